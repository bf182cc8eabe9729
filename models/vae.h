/* FLUX's autoencoder (AutoencoderKL): tokens to pixels and back. Feature maps are [h*w, C], channels last.
 *
 * Facts that have bitten someone (guards in tests/test_vae.c): z = tokens / scaling + shift on the way in; the encoder pads
 * right and bottom only; GroupNorm eps is 1e-6; attention has one head of all channels. Source: diffusers' AutoencoderKL. */
#ifndef DFX_MODELS_VAE_H
#define DFX_MODELS_VAE_H

#include "core/bundle.h"
#include "offload/builder.h"

enum { DFX_VAE_LEVELS_MAX = 8 };

typedef struct dfx_vae_config {
    int n_levels;
    int64_t channels[DFX_VAE_LEVELS_MAX]; /* block_out_channels, finest first */
    int64_t layers_per_block, latent_channels, n_groups;
    float scaling, shift;
    bool quant_conv, post_quant_conv, mid_attention;
} dfx_vae_config;

dfx_status dfx_vae_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                               dfx_vae_config *out);

/* Pixels a side per latent: 2^(n_levels - 1). */
int64_t dfx_vae_factor(const dfx_vae_config *config);

/* Externs: x [(h/2)*(w/2), 4 * latent_channels]: tokens as the transformer leaves them; rgb [H*W, 3] out, about -1 .. 1.
 * h, w: latents, even. */
enum { DFX_DECODE_X, DFX_DECODE_RGB, DFX_DECODE_EXTERNS };
dfx_status dfx_vae_build_decoder(const dfx_vae_config *config, const dfx_build_env *env, int64_t h,
                                 int64_t w, dfx_program *out);

/* Externs: rgb [H*W, 3], -1 .. 1; moments [h*w, 2 * latent_channels] out: mean, then log variance; x out: the mean as
 * tokens, scaled as the transformer wants it. h, w: latents, even. */
enum { DFX_ENCODE_RGB, DFX_ENCODE_MOMENTS, DFX_ENCODE_X, DFX_ENCODE_EXTERNS };
dfx_status dfx_vae_build_encoder(const dfx_vae_config *config, const dfx_build_env *env, int64_t h,
                                 int64_t w, dfx_program *out);

#endif
