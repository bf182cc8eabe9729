/* Pictures, JPEG and PNG: input is the file. */
#include "core/pixels.h"
#include "tests/fuzz/fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_pixels pixels = {0};
    fuzz_begin();
    dfx_status status = dfx_pixels_read(fuzz_file(data, bytes), &fuzz_sink, &pixels);
    if (status == DFX_OK)
        dfx_pixels_to_grey(&pixels);
    dfx_pixels_free(&pixels);
    fuzz_end(status);
    return 0;
}
