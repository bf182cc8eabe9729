/* CLIP-L text tower: tokens to the pooled vector of FLUX.
 *
 * Facts that have bitten someone (guards in tests/test_clip.c): causal mask and no padding mask; pooled is the row of the
 * first end-of-text token after final_layer_norm; no text_projection. Source: transformers' CLIPTextModel. */
#ifndef DFX_MODELS_CLIP_H
#define DFX_MODELS_CLIP_H

#include "core/bundle.h"
#include "offload/builder.h"

typedef struct dfx_clip_config {
    int64_t width, n_layers, n_heads, mlp_width, n_positions, n_vocab;
    float eps;
} dfx_clip_config;

/* folder/config.json of the bundle. Errors: DFX_E_FORMAT for what we do not run (another activation, odd sizes). */
dfx_status dfx_clip_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                dfx_clip_config *out);

/* Token and position embeddings, as a page that no op reads: rows are looked up on the host (models/embed.h). Its weights are
 * weights[0] and weights[1]. */
dfx_status dfx_clip_build_table(const dfx_clip_config *config, const dfx_build_env *env,
                                dfx_program *out);

/* Externs, in order: x [n_tokens, width]: token plus position embeddings, written over; out [n_tokens, width]: after
 * final_layer_norm, every row. */
enum { DFX_CLIP_X, DFX_CLIP_OUT, DFX_CLIP_EXTERNS };
dfx_status dfx_clip_build(const dfx_clip_config *config, const dfx_build_env *env, int64_t n_tokens,
                          dfx_program *out);

#endif
