/* What `dfx-edge inspect` finds, as JSON: the one form from which both outputs are made.
 *
 * A table of tensors:  {"kind", "tensors", "parameters", "bytes", "dtypes": [{"dtype", "tensors", "parameters",
 *                      "bytes"}], "groups": [{"name", "tensors", "bytes"}]}, and with `listed` "list": [{"name",
 *                      "dtype", "shape", "bytes"}]
 * A file:              "path", "form": "file", "metadata": {..}, "table"
 * A LoRA:              the same as a file, "form": "lora", and what inspect_lora.h says
 * A packed model:      the same as a file and what inspect_packed.h says, "form": "packed"
 * A component folder:  "path", "form": "component", "files", "file_bytes", "table"
 * A diffusers folder:  "path", "form": "model", "class", "components": [{"name", "class", "files", "file_bytes",
 *                      "table" where it has weights, "broken": true when it cannot be read}]
 * and all of them:     "runs": bool, "verdict": one sentence. */
#ifndef DFX_TOOLS_INSPECT_READ_H
#define DFX_TOOLS_INSPECT_READ_H

#include <jansson.h>
#include <stdbool.h>

#include "core/sink.h"

/* Reads tables of contents, no weights. *out: json_decref by the caller. A fault of one component is said, and the
 * others are read all the same: *out is then set although the status is an error; it is NULL when nothing could be
 * read. Errors: DFX_E_IO, DFX_E_FORMAT. */
dfx_status dfx_inspect_read(const char *path, bool listed, const dfx_sink *sink, json_t **out);

#endif
