/* Packed models: input is the file. Pages are read, expanded and verified, whatever their checksums say. */
#include <stdlib.h>

#include "offload/packed.h"
#include "tests/fuzz/fuzzing.h"

enum { PAGE_BYTES_MAX = 1 << 20 };

/* Damage is one error; it does not count for opening. */
static void read_page(const dfx_packed *packed, const dfx_packed_page *page, const char *path) {
    static uint8_t stored[PAGE_BYTES_MAX], memory[PAGE_BYTES_MAX], scratch[PAGE_BYTES_MAX];
    dfx_file file;
    if (page->bytes > PAGE_BYTES_MAX || page->stored_bytes > PAGE_BYTES_MAX)
        return;
    if (dfx_file_open(path, NULL, &file) != DFX_OK)
        abort();
    if (dfx_file_read(&file, NULL, page->off, stored, page->stored_bytes) != DFX_OK)
        abort();
    dfx_file_close(&file);
    if (dfx_packed_expand(page, NULL, stored, memory, scratch) == DFX_OK)
        dfx_packed_verify(packed, page, memory, NULL);
    if (page->codec == DFX_CODEC_RAW)
        dfx_packed_verify_file(packed, page, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_packed *packed = NULL;
    const char *path = fuzz_file(data, bytes);
    dfx_packed_is(path);
    fuzz_begin();
    dfx_status status = dfx_packed_open(path, &fuzz_sink, &packed);
    if (status == DFX_OK) {
        for (size_t i = 0; i < dfx_packed_n_pages(packed); i++)
            read_page(packed, dfx_packed_page_at(packed, i), path);
        dfx_bundle bundle = dfx_packed_bundle(packed);
        dfx_bundle_has(&bundle, "model_index.json");
    }
    dfx_packed_close(packed);
    fuzz_end(status);
    return 0;
}
