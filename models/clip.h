/* CLIP-L text tower: tokens to the pooled vector of FLUX.
 *
 * Facts that have bitten someone (guards in tests/test_clip.c): causal mask and no padding mask; pooled is the row of the
 * first end-of-text token after final_layer_norm; no text_projection. Source: transformers' CLIPTextModel. */
#ifndef DFX_MODELS_CLIP_H
#define DFX_MODELS_CLIP_H

#include "offload/builder.h"

typedef struct dfx_clip_config {
    int64_t width, n_layers, n_heads, mlp_width, n_positions, n_vocab;
    float eps;
} dfx_clip_config;

/* dir/config.json. Errors: DFX_E_FORMAT for what we do not run (another activation, odd sizes). */
dfx_status dfx_clip_config_load(const char *dir, const dfx_sink *sink, dfx_clip_config *out);

/* Externs, in order: ids [1, n_tokens] I32; out [n_tokens, width]: after final_layer_norm, every row. */
enum { DFX_CLIP_IDS, DFX_CLIP_OUT, DFX_CLIP_EXTERNS };
dfx_status dfx_clip_build(const dfx_clip_config *config, const dfx_tensors *tensors,
                          int64_t n_tokens, dfx_dtype act_dtype, const dfx_sink *sink,
                          dfx_program *out);

#endif
