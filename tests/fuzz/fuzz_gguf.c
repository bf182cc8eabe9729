/* GGUF: input is the file behind its magic, so that no input is lost on the magic. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_tensors *set = NULL;
    const char *value;
    uint8_t *file = malloc(bytes + 4);
    if (!file)
        return -1;
    memcpy(file, "GGUF", 4);
    memcpy(file + 4, data, bytes);
    fuzz_begin();
    dfx_status status = dfx_tensors_open_file(fuzz_file(file, bytes + 4), &fuzz_sink, &set);
    if (status == DFX_OK) {
        fuzz_read_tensors(set);
        for (size_t i = 0; i < dfx_tensors_n_metadata(set); i++)
            if (!dfx_tensors_metadata_at(set, i, &value)[0])
                abort();
    }
    dfx_tensors_close(set);
    fuzz_end(status);
    free(file);
    return 0;
}
