/* What `dfx-edge inspect` says about a packed model beyond its tensors.
 *
 * Into the JSON of the file:  "form": "packed", "quant", "source", "source_bytes", "compressed_pages", "page_bytes_max",
 *                             "pages": [{"name", "component", "off", "bytes", "stored", "codec", "dtypes", "xxh3"}]
 * and with a source:          "error": {"total": E, "kinds": [E], "pages": [E], "skipped_pages": compressed ones},
 *                             E = {"name", "tensors", "rows", "outlier_rows", "relative", "snr_db"}; a kind is a name
 *                             with '*' for its numbers, such as transformer.transformer_blocks.*.attn.to_q */
#ifndef DFX_TOOLS_INSPECT_PACKED_H
#define DFX_TOOLS_INSPECT_PACKED_H

#include <jansson.h>

#include "core/sink.h"

/* Adds to `file`. Only the table of contents is read. */
dfx_status dfx_inspect_packed(const char *path, const dfx_sink *sink, json_t *file);

/* Adds "error": codes against the weights of the diffusers folder `source`, all of them read, on all cores. */
dfx_status dfx_inspect_packed_error(const char *path, const char *source, const dfx_sink *sink,
                                    json_t *file);

#endif
