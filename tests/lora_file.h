/* LoRA files for tests, tensor by tensor, a model of width 2 that they are for, and the change that they make.
 *
 *     lora_file f;
 *     lora_file_begin(&f);
 *     lora_file_add(&f, "x_embedder.lora_A.weight", 1, 4, (float[]){1, 2, 3, 4});
 *     lora_file_write(&f, dir, "a.safetensors");
 *
 * Nothing here allocates through core/mem.h. */
#ifndef DFX_TESTS_LORA_FILE_H
#define DFX_TESTS_LORA_FILE_H

#include <jansson.h>

#include "models/lora.h"
#include "tests/tmpdir.h"

enum { LORA_FILE_BYTES = 1 << 16 };

typedef struct lora_file {
    json_t *header; /* owned */
    unsigned char data[LORA_FILE_BYTES];
    size_t bytes;
} lora_file;

void lora_file_begin(lora_file *f);
/* An F32 matrix; a scalar of rank 0; any other. */
void lora_file_add(lora_file *f, const char *name, int rows, int cols, const float *values);
void lora_file_scalar(lora_file *f, const char *name, float value);
void lora_file_tensor(lora_file *f, const char *name, dfx_dtype dtype, int rank,
                      const int64_t *shape, const float *values);
void lora_file_metadata(lora_file *f, const char *key, const char *value);
/* Writes and forgets. */
void lora_file_write(lora_file *f, const tmpdir *dir, const char *name);

/* base + ".lora_A.weight" [r, k] and base + ".lora_B.weight" [n, r]. */
void lora_file_pair(lora_file *f, const char *base, int r, int k, const float *down, int n,
                    const float *up);

/* Two double blocks and a single one, D = 2, 4 latent channels, text of 3 and 5 values, guidance; CLIP of width 2 with an MLP of 3,
 * T5 of width 3, 2 inner and an MLP of 4; one block each. */
dfx_configs lora_configs(void);

/* Open "a.safetensors" of the folder. On failure the test fails. */
extern const char lora_name[];
dfx_lora *lora_opens(tmpdir *dir, const dfx_configs *configs);
/* It is refused as a bad format with one sentence that has `words` and the file's name; nothing stays allocated. */
void lora_rejects(tmpdir *dir, const dfx_configs *configs, const char *words);

/* scale * up * down of a layer, f64 sums rounded to f32 [n, k]; free() by the caller. The test fails when there is no part. */
float *lora_delta(const dfx_lora *lora, dfx_component component, const char *layer);
void lora_delta_is(const dfx_lora *lora, dfx_component component, const char *layer, size_t n,
                   const float *want);
/* The same parts, and each with exactly the same delta. */
void lora_deltas_equal(const dfx_lora *a, const dfx_lora *b);

#endif
