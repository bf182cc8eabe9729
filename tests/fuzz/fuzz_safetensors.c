/* safetensors: input is the file. */
#include "tests/fuzz/fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_tensors *set = NULL;
    fuzz_begin();
    dfx_status status = dfx_tensors_open_file(fuzz_file(data, bytes), &fuzz_sink, &set);
    if (status == DFX_OK)
        fuzz_read_tensors(set);
    dfx_tensors_close(set);
    fuzz_end(status);
    return 0;
}
