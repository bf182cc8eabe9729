/* Embeddings, looked up on the host: of a table of a quarter gigabyte a prompt needs some hundred rows. */
#ifndef DFX_MODELS_EMBED_H
#define DFX_MODELS_EMBED_H

#include "offload/program.h"

/* x[i] = table[ids[i]] (+ position[i]), f32, i < n. table and position are weights of `tables`; position may be NULL.
 * Errors: DFX_E_IO; DFX_E_INTERNAL for an id outside the table: tokenizers are checked against it at open. */
dfx_status dfx_embed_rows(const dfx_program *tables, const dfx_weight *table,
                          const dfx_weight *position, const int32_t *ids, int64_t n,
                          const dfx_sink *sink, float *x);

#endif
