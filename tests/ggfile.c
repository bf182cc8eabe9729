/* See ggfile.h. */
#include "tests/ggfile.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

const char ggfile_name[] = "m.gguf";

void ggfile_bytes(ggfile *f, const void *data, size_t n) {
    f->bytes = realloc(f->bytes, f->n + n + 1);
    assert_non_null(f->bytes);
    if (data)
        memcpy(f->bytes + f->n, data, n);
    else
        memset(f->bytes + f->n, 0, n);
    f->n += n;
}

static void put_number(ggfile *f, uint64_t value, size_t n) {
    unsigned char le[8];
    for (size_t i = 0; i < n; i++)
        le[i] = (unsigned char)(value >> 8 * i);
    ggfile_bytes(f, le, n);
}

void ggfile_u32(ggfile *f, uint32_t value) {
    put_number(f, value, 4);
}

void ggfile_u64(ggfile *f, uint64_t value) {
    put_number(f, value, 8);
}

void ggfile_text(ggfile *f, const char *text) {
    ggfile_u64(f, strlen(text));
    ggfile_bytes(f, text, strlen(text));
}

void ggfile_head(ggfile *f, uint32_t version, uint64_t n_tensors, uint64_t n_kvs) {
    ggfile_bytes(f, "GGUF", 4);
    ggfile_u32(f, version);
    ggfile_u64(f, n_tensors);
    ggfile_u64(f, n_kvs);
}

void ggfile_key(ggfile *f, const char *key, uint32_t type) {
    ggfile_text(f, key);
    ggfile_u32(f, type);
}

void ggfile_tensor(ggfile *f, const char *name, uint32_t type, uint64_t off, uint32_t n_dims,
                   const uint64_t *dims) {
    ggfile_text(f, name);
    ggfile_u32(f, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        ggfile_u64(f, dims[i]);
    ggfile_u32(f, type);
    ggfile_u64(f, off);
}

void ggfile_data(ggfile *f, size_t align, size_t n_bytes) {
    ggfile_bytes(f, NULL, (align - f->n % align) % align);
    for (size_t i = 0; i < n_bytes; i++)
        put_number(f, i + 1, 1);
}

void ggfile_free(ggfile *f) {
    free(f->bytes);
    *f = (ggfile){0};
}

dfx_status ggfile_open(tmpdir *dir, ggfile *f, dfx_tensors **set) {
    char path[TMPDIR_PATH];
    recorder_clear(&dir->log);
    tmpdir_write(dir, ggfile_name, f->bytes, f->n);
    ggfile_free(f);
    *set = NULL;
    return dfx_tensors_open_file(tmpdir_join(dir, ggfile_name, path), &dir->log.sink, set);
}

void ggfile_rejects(tmpdir *dir, ggfile *f, const char *words) {
    dfx_tensors *set;
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(ggfile_open(dir, f, &set), DFX_E_FORMAT);
    said_error(&dir->log, words);
    said_error(&dir->log, ggfile_name);
    assert_null(set);
    assert_int_equal(dfx_mem_held_bytes(), held);
    assert_in_range(dfx_mem_peak_bytes(), 0, (size_t)64 << 20);
}

dfx_tensors *ggfile_accepts(tmpdir *dir, ggfile *f) {
    dfx_tensors *set;
    dfx_status status = ggfile_open(dir, f, &set);
    said_nothing(&dir->log, DFX_ERROR);
    said_nothing(&dir->log, DFX_WARN);
    assert_int_equal(status, DFX_OK);
    return set;
}
