/* Writes safetensors files for tests, right or wrong: the header is whatever the test says. And
 * opens them, with what every test of a refusal wants to know. */
#ifndef DFX_TESTS_STFILE_H
#define DFX_TESTS_STFILE_H

#include "core/safetensors.h"
#include "tests/tmpdir.h"

/* u64 LE `length` | header | data. `data` NULL: that many zero bytes. */
void stfile_write_raw(const tmpdir *dir, const char *name, uint64_t length, const void *header,
                      size_t header_bytes, const void *data, size_t data_bytes);

/* The same with the header's true length; `header` is text. */
void stfile_write(const tmpdir *dir, const char *name, const char *header, const void *data,
                  size_t data_bytes);

/* Open the folder's stfile_name, with an empty log. *set is NULL unless it opens. */
extern const char stfile_name[];
dfx_status stfile_open(tmpdir *dir, dfx_tensors **set);

/* It is refused as a bad format, with one sentence that holds its name and `words`; no byte stays
 * allocated. */
void stfile_rejects(tmpdir *dir, const char *words);
void stfile_rejects_header(tmpdir *dir, const char *header, size_t data_bytes, const char *words);

/* It opens without an error; dfx_tensors_close() by the caller. */
dfx_tensors *stfile_accepts(tmpdir *dir);
dfx_tensors *stfile_accepts_header(tmpdir *dir, const char *header, const void *data,
                                   size_t data_bytes);

/* The named tensor widens to exactly these bits; n <= 16. */
void stfile_reads_f32(tmpdir *dir, const dfx_tensors *set, const char *name, size_t n,
                      const float *want);

#endif
