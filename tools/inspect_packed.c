#include "tools/inspect_packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "offload/packed.h"

static dfx_status no_memory(const dfx_sink *sink, const char *path) {
    return dfx_fail(sink, DFX_E_NOFIT, "%s: no memory to describe it", path);
}

/* "I8 F32 BF16": the types of a page's tensors, each once. */
static void page_dtypes(const dfx_packed *packed, size_t idx, char text[64]) {
    const dfx_tensors *set = dfx_packed_tensors(packed, dfx_packed_component(packed, idx));
    const dfx_packed_page *page = dfx_packed_page_at(packed, idx);
    bool seen[DFX_N_DTYPES] = {false};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; page->codec == DFX_CODEC_RAW && i < dfx_tensors_count(set); i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        if (t->file_idx == DFX_TENSOR_NO_FILE || t->off < page->off ||
            t->off >= page->off + page->bytes || seen[t->dtype] || used > 48)
            continue;
        seen[t->dtype] = true;
        used += (size_t)snprintf(text + used, 64 - used, "%s%s", used ? " " : "",
                                 dfx_dtype_name(t->dtype));
    }
}

static json_t *describe_page(const dfx_packed *packed, size_t idx) {
    const dfx_packed_page *page = dfx_packed_page_at(packed, idx);
    char dtypes[64], sum[17];
    page_dtypes(packed, idx, dtypes);
    snprintf(sum, sizeof(sum), "%016" PRIx64, page->xxh3);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s}", "name", page->name, "component",
                     dfx_packed_component(packed, idx), "off", (json_int_t)page->off, "bytes",
                     (json_int_t)page->bytes, "stored", (json_int_t)page->stored_bytes, "codec",
                     page->codec == DFX_CODEC_RAW ? "raw" : "lz4-planes", "dtypes", dtypes, "xxh3",
                     sum);
}

static json_t *describe(const dfx_packed *packed) {
    json_t *pages = json_array();
    uint64_t n_compressed = 0, bytes_max = 0;
    for (size_t i = 0; i < dfx_packed_n_pages(packed); i++) {
        const dfx_packed_page *page = dfx_packed_page_at(packed, i);
        n_compressed += page->codec != DFX_CODEC_RAW;
        bytes_max = page->bytes > bytes_max ? page->bytes : bytes_max;
        if (json_array_append_new(pages, describe_page(packed, i)) != 0)
            bytes_max = 0;
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "form", "packed", "quant",
                     dfx_q_name(dfx_packed_quant(packed)), "source", dfx_packed_source(packed),
                     "source_bytes", (json_int_t)dfx_packed_source_bytes(packed),
                     "compressed_pages", (json_int_t)n_compressed, "page_bytes_max",
                     (json_int_t)bytes_max, "pages", pages);
}

dfx_status dfx_inspect_packed(const char *path, const dfx_sink *sink, json_t *file) {
    dfx_packed *packed;
    DFX_TRY(dfx_packed_open(path, sink, &packed));
    json_t *found = describe(packed);
    int failed = !found || json_object_update(file, found) != 0;
    json_decref(found);
    dfx_packed_close(packed);
    return failed ? no_memory(sink, path) : DFX_OK;
}
