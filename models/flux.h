/* The FLUX.1 transformer, as two programs.
 *
 *   cond  once per picture: everything that sees only (sigma, guidance, pooled text) or only the text. The modulation of
 *         every block for every step is one skinny product: 27 % of the parameters of the real model, read once.
 *   step  once per step: 2-stream blocks, 1-stream blocks, final layer, and the Euler update of the latents.
 *
 * Facts that have bitten someone (guards in tests/test_flux.c): text tokens stand before image tokens; modulation chunks are
 * shift, scale, gate, but the final layer's (diffusers order) scale, shift; RoPE rotates adjacent pairs; positions are not
 * rounded to bf16; timestep and guidance are not rounded either. Source: diffusers' FluxTransformer2DModel. */
#ifndef DFX_MODELS_FLUX_H
#define DFX_MODELS_FLUX_H

#include "core/bundle.h"
#include "offload/builder.h"

typedef struct dfx_flux_config {
    int64_t in_channels, out_channels; /* of a token: 4 x latent channels */
    int64_t n_double, n_single, n_heads, head_size, text_width, pooled_width;
    int64_t axes[3]; /* RoPE widths, sum = head_size */
    bool has_guidance;
    int64_t width; /* n_heads * head_size */
} dfx_flux_config;

dfx_status dfx_flux_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                dfx_flux_config *out);

/* Columns of the modulation table: per double block 6 D image then 6 D text, per single block 3 D, then 2 D of the final
 * layer. */
int64_t dfx_flux_mod_cols(const dfx_flux_config *config);

/* Externs: text [Tt, text_width]; pooled [1, pooled_width]; sigmas [1, n_steps] f32; guidance [1, 1] f32 (not read without
 * has_guidance); txt [Tt, D] out; mod [n_steps, mod_cols] out. */
enum {
    DFX_COND_TEXT,
    DFX_COND_POOLED,
    DFX_COND_SIGMAS,
    DFX_COND_GUIDANCE,
    DFX_COND_TXT,
    DFX_COND_MOD,
    DFX_COND_EXTERNS
};
dfx_status dfx_flux_build_cond(const dfx_flux_config *config, const dfx_build_env *env,
                               int64_t n_text, int64_t n_steps, dfx_program *out);

/* Externs: x [Ti, in_channels] in and out: latents, x += dt * v; txt [Tt, D]; mod [1, mod_cols]: this step's row; cos, sin
 * [Tt + Ti, E/2] f32; dt [1, 1] f32: sigma' - sigma; v [Ti, out_channels] out: the velocity. */
enum {
    DFX_STEP_X,
    DFX_STEP_TXT,
    DFX_STEP_MOD,
    DFX_STEP_COS,
    DFX_STEP_SIN,
    DFX_STEP_DT,
    DFX_STEP_V,
    DFX_STEP_EXTERNS
};
dfx_status dfx_flux_build_step(const dfx_flux_config *config, const dfx_build_env *env,
                               int64_t n_text, int64_t n_image, dfx_program *out);

/* The same step in parts, so that a step may do without most of its blocks (models/reuse.h): the first part, then one of the two
 * others. n_double >= 1. Pages are the step's; those of FIRST and of the final layer are kept on the device. All parts have
 * the step's externs and, behind them: h [Tt + Ti, D]: the streams between the parts; first, last, rest [Ti, D]: what the first
 * block has added to the image's stream in this step, and in the last one with REST, and what the blocks of REST have added
 * there; minus [1, 1] f32: -1; diff [1, 1] f32 out: how far first is from last (REL_DIFF).
 *
 *   FIRST    x_embedder and block 0 to h; first and diff
 *   REST     the other blocks, the final layer, the update of x: with FIRST, bit for bit the step; last and rest
 *   REUSED   h + rest in the place of the other blocks, the final layer, the update of x */
typedef enum dfx_flux_part { DFX_FLUX_FIRST, DFX_FLUX_REST, DFX_FLUX_REUSED } dfx_flux_part;
enum {
    DFX_PART_H = DFX_STEP_EXTERNS,
    DFX_PART_FIRST,
    DFX_PART_LAST,
    DFX_PART_REST,
    DFX_PART_MINUS,
    DFX_PART_DIFF,
    DFX_PART_EXTERNS
};
dfx_status dfx_flux_build_part(const dfx_flux_config *config, const dfx_build_env *env,
                               int64_t n_text, int64_t n_image, dfx_flux_part part,
                               dfx_program *out);

/* RoPE tables for Tt text tokens at (0,0,0), then image tokens at (0, row, col) of a grid of h x w, row-major.
 * cos, sin: host, [(n_text + h*w), head_size/2]. Frequencies and angles in f64, theta 10000. */
void dfx_flux_rope(const dfx_flux_config *config, int64_t n_text, int64_t h, int64_t w,
                   float *cos_out, float *sin_out);

#endif
