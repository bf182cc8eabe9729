/* What `dfx-edge inspect` says about a LoRA file beyond its tensors: what of a model it changes.
 *
 * Into the JSON of the file:  "lora": {"style", "for": the kind of model, "modules", "matched", "unmatched", "zero",
 *     "loha", "lokr", "dora", "block_diagonal", "ignored_zeros", "split_qkv", "rank_min", "rank_max", "alpha_min", "alpha_max",
 *     "scale_min", "scale_max", "layers": {"transformer", "text_encoder", "text_encoder_2"}, "unmatched_names": the first five,
 *     with `listed` "parts": [{"component", "layer", "module", "out", "in", "rank", "alpha", "scale", "dora"}]}
 * and "verdict" anew. */
#ifndef DFX_TOOLS_INSPECT_LORA_H
#define DFX_TOOLS_INSPECT_LORA_H

#include <jansson.h>
#include <stdbool.h>

#include "core/sink.h"

/* Adds to `file`. model: a folder or a packed model whose layers are meant; NULL: FLUX.1-dev's. All values are read.
 * Errors: as dfx_lora_open; also when nothing matches, and then "lora" is there. */
dfx_status dfx_inspect_lora(const char *path, const char *model, bool listed, const dfx_sink *sink,
                            json_t *file);

#endif
