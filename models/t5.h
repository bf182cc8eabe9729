/* T5 v1.1 encoder: tokens to the text rows of FLUX.
 *
 * Facts that have bitten someone (guards in tests/test_t5.c): no mask, padding is attended to and all rows are used; scores
 * are not divided by sqrt(d_kv); the relative bias of block 0 serves all blocks; no biases. Source: transformers' T5Stack. */
#ifndef DFX_MODELS_T5_H
#define DFX_MODELS_T5_H

#include "offload/builder.h"

typedef struct dfx_t5_config {
    int64_t width, head_size, n_heads, mlp_width, n_layers, n_vocab, n_buckets, max_distance;
    float eps;
} dfx_t5_config;

dfx_status dfx_t5_config_load(const char *dir, const dfx_sink *sink, dfx_t5_config *out);

/* Externs, in order: ids [1, n_tokens] I32; out [n_tokens, width]. */
enum { DFX_T5_IDS, DFX_T5_OUT, DFX_T5_EXTERNS };
dfx_status dfx_t5_build(const dfx_t5_config *config, const dfx_tensors *tensors, int64_t n_tokens,
                        dfx_dtype act_dtype, const dfx_sink *sink, dfx_program *out);

#endif
