/* Writes GGUF files for tests, right or wrong, piece by piece, and opens them with what every test of a refusal wants to
 * know.
 *
 *     ggfile f = {0};
 *     ggfile_head(&f, 3, 1, 0);
 *     ggfile_tensor(&f, "w", 8, 0, 2, (uint64_t[]){32, 2});
 *     ggfile_data(&f, 32, 68);
 *     ggfile_rejects(dir, &f, "words");        -- frees it */
#ifndef DFX_TESTS_GGFILE_H
#define DFX_TESTS_GGFILE_H

#include "core/safetensors.h"
#include "tests/tmpdir.h"

typedef struct ggfile {
    unsigned char *bytes; /* owned */
    size_t n;
} ggfile;

void ggfile_bytes(ggfile *f, const void *data, size_t n); /* data NULL: zeros */
void ggfile_u32(ggfile *f, uint32_t value);
void ggfile_u64(ggfile *f, uint64_t value);
void ggfile_text(ggfile *f, const char *text); /* length and bytes */
void ggfile_head(ggfile *f, uint32_t version, uint64_t n_tensors, uint64_t n_kvs);
void ggfile_key(ggfile *f, const char *key, uint32_t type); /* the value is next */
void ggfile_tensor(ggfile *f, const char *name, uint32_t type, uint64_t off, uint32_t n_dims,
                   const uint64_t *dims);
void ggfile_data(ggfile *f, size_t align,
                 size_t n_bytes); /* padding, then that many bytes 1, 2, ... */
void ggfile_free(ggfile *f);

/* Write as ggfile_name into the folder and open it, with an empty log. *set is NULL unless it opens. The file is freed. */
extern const char ggfile_name[];
dfx_status ggfile_open(tmpdir *dir, ggfile *f, dfx_tensors **set);

/* Refused as a bad format in one sentence with the file's name and `words`; nothing stays allocated, and never more than
 * 64 MiB is. */
void ggfile_rejects(tmpdir *dir, ggfile *f, const char *words);

/* It opens without an error or a warning; dfx_tensors_close() by the caller. */
dfx_tensors *ggfile_accepts(tmpdir *dir, ggfile *f);

#endif
