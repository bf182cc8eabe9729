/* T5 v1.1 encoder: tokens to the text rows of FLUX.
 *
 * Facts that have bitten someone (guards in tests/test_t5.c): no mask, padding is attended to and all rows are used; scores
 * are not divided by sqrt(d_kv); the relative bias of block 0 serves all blocks; no biases. Source: transformers' T5Stack. */
#ifndef DFX_MODELS_T5_H
#define DFX_MODELS_T5_H

#include "core/bundle.h"
#include "offload/builder.h"

typedef struct dfx_t5_config {
    int64_t width, head_size, n_heads, mlp_width, n_layers, n_vocab, n_buckets, max_distance;
    float eps;
} dfx_t5_config;

dfx_status dfx_t5_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                              dfx_t5_config *out);

/* The embedding, as a page that no op reads: its rows are looked up on the host (models/embed.h), so that it never takes
 * device memory. Its one weight is weights[0]. */
dfx_status dfx_t5_build_table(const dfx_t5_config *config, const dfx_build_env *env,
                              dfx_program *out);

/* Externs, in order: x [n_tokens, width]: the embedded tokens, written over; out [n_tokens, width]. */
enum { DFX_T5_X, DFX_T5_OUT, DFX_T5_EXTERNS };
dfx_status dfx_t5_build(const dfx_t5_config *config, const dfx_build_env *env, int64_t n_tokens,
                        dfx_program *out);

#endif
