/* See stfile.h. */
#include "tests/stfile.h"

#include <stdlib.h>
#include <string.h>

void stfile_write_raw(const tmpdir *dir, const char *name, uint64_t length, const void *header,
                      size_t header_bytes, const void *data, size_t data_bytes) {
    unsigned char *file = calloc(1, 8 + header_bytes + data_bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> 8 * i);
    memcpy(file + 8, header, header_bytes);
    if (data)
        memcpy(file + 8 + header_bytes, data, data_bytes);
    tmpdir_write(dir, name, file, 8 + header_bytes + data_bytes);
    free(file);
}

void stfile_write(const tmpdir *dir, const char *name, const char *header, const void *data,
                  size_t data_bytes) {
    size_t bytes = strlen(header);
    stfile_write_raw(dir, name, bytes, header, bytes, data, data_bytes);
}

const char stfile_name[] = "m.safetensors";

dfx_status stfile_open(tmpdir *dir, dfx_tensors **set) {
    char path[TMPDIR_PATH];
    recorder_clear(&dir->log);
    *set = NULL;
    return dfx_tensors_open_file(tmpdir_join(dir, stfile_name, path), &dir->log.sink, set);
}

void stfile_rejects(tmpdir *dir, const char *words) {
    dfx_tensors *set;
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(stfile_open(dir, &set), DFX_E_FORMAT);
    said_error(&dir->log, words);
    said_error(&dir->log, stfile_name);
    assert_null(set);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

void stfile_rejects_header(tmpdir *dir, const char *header, size_t data_bytes, const char *words) {
    stfile_write(dir, stfile_name, header, NULL, data_bytes);
    stfile_rejects(dir, words);
}

dfx_tensors *stfile_accepts(tmpdir *dir) {
    dfx_tensors *set;
    dfx_status status = stfile_open(dir, &set);
    said_nothing(&dir->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    return set;
}

dfx_tensors *stfile_accepts_header(tmpdir *dir, const char *header, const void *data,
                                   size_t data_bytes) {
    stfile_write(dir, stfile_name, header, data, data_bytes);
    return stfile_accepts(dir);
}

void stfile_reads_f32(tmpdir *dir, const dfx_tensors *set, const char *name, size_t n,
                      const float *want) {
    float got[16];
    const dfx_tensor *tensor = dfx_tensors_find(set, name);
    assert_non_null(tensor);
    assert_in_range(n, 0, DFX_COUNT(got));
    assert_int_equal(tensor->n_elements, n);
    assert_int_equal(dfx_tensors_read_f32(set, tensor, &dir->log.sink, got), DFX_OK);
    assert_memory_equal(got, want, n * sizeof(*want));
}
