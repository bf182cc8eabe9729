/* What the fuzz targets share: their input as files, and what every reader promises about errors and memory.
 *
 * A target is a file tests/fuzz/fuzz_NAME.c, whose seeds are in tests/fuzz/seeds/NAME; `make fuzz` finds both. It runs in the
 * root of the tree. In essence:
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
 *         thing *t = NULL;
 *         fuzz_begin();
 *         dfx_status status = thing_open(fuzz_file(data, bytes), &fuzz_sink, &t);
 *         thing_close(t);
 *         fuzz_end(status);
 *         return 0;
 *     } */
#ifndef DFX_TESTS_FUZZING_H
#define DFX_TESTS_FUZZING_H

#include <stdint.h>

#include "core/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* One input: what is said to fuzz_sink in between must be one line of error when, and only when, the status is none of
 * success; and no byte of core/mem.h may stay held. Otherwise the process ends, which libFuzzer takes for a finding.
 * FUZZ_SAY=1 in the environment shows what is said. */
extern const dfx_sink fuzz_sink;
void fuzz_begin(void);
void fuzz_end(dfx_status status);

/* A file in memory that holds the input; its path, good until the next call. */
const char *fuzz_file(const uint8_t *data, size_t bytes);

/* A folder in $TMPDIR (run.sh: in memory) that goes when the process ends well. */
const char *fuzz_folder(void);
void fuzz_put(const char *name, const uint8_t *data,
              size_t bytes); /* a file in it; folders on the way are made */
void fuzz_put_copy(const char *name, const char *of); /* of: in the tree */
void fuzz_drop(const char *name);                     /* no such file; fine when there was none */

/* Inputs that stand for several files have byte 0x1e, which neither JSON nor text holds, between them. Takes the first file
 * off the input; NULL when there is none left. */
enum { FUZZ_CUT = 0x1e };
const uint8_t *fuzz_next(const uint8_t **data, size_t *bytes, size_t *part_bytes);

/* Read all small tensors of a set, as a user of it would. */
void fuzz_read_tensors(const dfx_tensors *set);

#endif
