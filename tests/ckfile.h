/* Checkpoints as users have them, made of the tiny model (tests/tiny.h): other names, prefixes, storages, several components in one
 * file. Names come from golden/bfl_map.json, which is not ours. Every weight of the tiny model is k * 2^-e with k from -7 to
 * 7 (or 1 plus that), so fp8, int8, 4 bits and blocks with a power of two as their scale hold it exactly: whatever a file is
 * stored as, what is packed as bf16 must be the bytes that the folder gives.
 *
 *     ckfile f = {0};
 *     ckfile_original(&f, r->folder, "transformer", "model.diffusion_model.");
 *     ckfile_encode(&f, "double_blocks.0.img_mlp.0.weight", CK_FP8_SCALED);
 *     ckfile_write(&f, r->dir, "flux.safetensors");       -- and ckfile_free(&f)
 *
 * The helpers fail the running test. */
#ifndef DFX_TESTS_CKFILE_H
#define DFX_TESTS_CKFILE_H

#include "core/safetensors.h"
#include "tests/tmpdir.h"

typedef struct ck_tensor {
    char name[256];
    dfx_dtype dtype;
    uint32_t ggml; /* type in a GGUF file, where that has another */
    int rank;
    int64_t shape[4];
    void *data; /* owned */
    size_t bytes;
} ck_tensor;

typedef struct ckfile {
    ck_tensor *tensors; /* owned */
    size_t n, cap;
    const char *metadata; /* borrowed; the text of __metadata__, or NULL */
} ckfile;

void ckfile_free(ckfile *f);

/* data is copied; NULL: zeros. */
void ckfile_add(ckfile *f, const char *name, dfx_dtype dtype, int rank, const int64_t *shape,
                const void *data);
void ckfile_add_text(ckfile *f, const char *name, const char *text); /* as U8 */
void ckfile_add_f32(ckfile *f, const char *name, int64_t n, const float *values);
/* A bf16 matrix of one value. */
void ckfile_add_filled(ckfile *f, const char *name, int64_t rows, int64_t cols, float value);

/* All tensors of a component of the diffusers folder `dir`, behind a prefix; under their own names, or BFL's. */
void ckfile_diffusers(ckfile *f, const char *dir, const char *component, const char *prefix);
void ckfile_original(ckfile *f, const char *dir, const char *component, const char *prefix);

ck_tensor *ckfile_find(ckfile *f, const char *name); /* the test fails without it */
void ckfile_remove(ckfile *f, const char *name);
void ckfile_rename(ckfile *f, const char *name, const char *to);
/* `from` becomes `to` wherever it stands in a name. */
void ckfile_replace(ckfile *f, const char *from, const char *to);
/* n values of a tensor as f32; free() by the caller. */
float *ckfile_values(const ck_tensor *t);

typedef enum ck_storage {
    CK_FP8,         /* e4m3, no scale; exact only where the values allow: else the test fails */
    CK_FP8_SCALED,  /* scale_weight, scale_input */
    CK_FP8_SCALED2, /* weight_scale, input_scale */
    CK_INT8,        /* int8_tensorwise by comfy_quant, a scale a row */
    CK_LLM_INT8,    /* SCB */
    CK_NF4,         /* bitsandbytes with a map of its own */
    CK_NF4_NESTED,  /* and its absmax in codes */
    CK_Q8_0,        /* of a GGUF */
    CK_Q4_0
} ck_storage;
/* "<prefix><layer>.weight", a bf16 tensor, into another storage, exactly. */
void ckfile_encode(ckfile *f, const char *name, ck_storage storage);
/* Every matrix in it that has at least 64 columns. */
void ckfile_encode_all(ckfile *f, ck_storage storage);

void ckfile_write(const ckfile *f, const tmpdir *dir, const char *name);
/* general.architecture NULL: none. */
void ckfile_write_gguf(const ckfile *f, const tmpdir *dir, const char *name,
                       const char *architecture);

#endif
