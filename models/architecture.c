/* Sources: config.json of the components of FLUX.1-dev, FLUX.1-schnell and the bundled model; tiny is made up, for tests. */
#include "models/architecture.h"

#include <stdio.h>
#include <string.h>

#define CLIP_L                                                                             \
    {                                                                                      \
        .width = 768, .n_layers = 12, .n_heads = 12, .mlp_width = 3072, .n_positions = 77, \
        .n_vocab = 49408, .eps = 1e-5f                                                     \
    }
#define T5_XXL                                                                             \
    {                                                                                      \
        .width = 4096, .head_size = 64, .n_heads = 64, .mlp_width = 10240, .n_layers = 24, \
        .n_vocab = 32128, .n_buckets = 32, .max_distance = 128, .eps = 1e-6f               \
    }
#define FLUX_1(guidance)                                                                      \
    {                                                                                         \
        .in_channels = 64, .out_channels = 64, .n_double = 19, .n_single = 38, .n_heads = 24, \
        .head_size = 128, .text_width = 4096, .pooled_width = 768, .axes = {16, 56, 56},      \
        .has_guidance = (guidance), .width = 3072                                             \
    }
#define FLUX_VAE                                                                     \
    {                                                                                \
        .n_levels = 4, .channels = {128, 256, 512, 512}, .layers_per_block = 2,      \
        .latent_channels = 16, .n_groups = 32, .scaling = 0.3611f, .shift = 0.1159f, \
        .mid_attention = true                                                        \
    }
#define SHIFT(is_dynamic, by)                                                         \
    {                                                                                 \
        .dynamic = (is_dynamic), .shift = (by), .base_shift = 0.5, .max_shift = 1.15, \
        .base_tokens = 256, .max_tokens = 4096                                        \
    }
#define SMALL_CLIP                                                                     \
    {                                                                                  \
        .width = 64, .n_layers = 2, .n_heads = 1, .mlp_width = 128, .n_positions = 77, \
        .n_vocab = 843, .eps = 1e-5f                                                   \
    }
#define SMALL_T5(d, ff)                                                                \
    {                                                                                  \
        .width = (d), .head_size = 64, .n_heads = 2, .mlp_width = (ff), .n_layers = 2, \
        .n_vocab = 195, .n_buckets = 32, .max_distance = 128, .eps = 1e-6f             \
    }
#define SMALL_FLUX(singles, text, guidance)                                                        \
    {                                                                                              \
        .in_channels = 64, .out_channels = 64, .n_double = 2, .n_single = (singles), .n_heads = 2, \
        .head_size = 128, .text_width = (text), .pooled_width = 64, .axes = {16, 56, 56},          \
        .has_guidance = (guidance), .width = 256                                                   \
    }
#define SCENES_VAE                                                                                 \
    {                                                                                              \
        .n_levels = 4, .channels = {32, 48, 64, 64}, .layers_per_block = 1, .latent_channels = 16, \
        .n_groups = 16, .scaling = 0.6857f, .shift = -0.0239f, .mid_attention = true               \
    }
#define TINY_VAE                                                                                   \
    {                                                                                              \
        .n_levels = 4, .channels = {32, 64, 64, 64}, .layers_per_block = 1, .latent_channels = 16, \
        .n_groups = 32, .scaling = 0.3611f, .shift = 0.1159f, .mid_attention = true                \
    }

static const dfx_architecture ARCHITECTURES[] = {
    {"flux-dev",
     {CLIP_L, T5_XXL, FLUX_1(true), FLUX_VAE, SHIFT(true, 3)},
     28,
     1024,
     512,
     49408,
     32100},
    {"flux-schnell",
     {CLIP_L, T5_XXL, FLUX_1(false), FLUX_VAE, SHIFT(false, 1)},
     4,
     1024,
     256,
     49408,
     32100},
    {"scenes",
     {SMALL_CLIP, SMALL_T5(128, 320), SMALL_FLUX(3, 128, false), SCENES_VAE, SHIFT(false, 3)},
     16,
     256,
     64,
     843,
     195},
    {"tiny",
     {SMALL_CLIP, SMALL_T5(64, 128), SMALL_FLUX(2, 64, true), TINY_VAE, SHIFT(true, 3)},
     2,
     64,
     64,
     843,
     195},
};

const char *const *dfx_architecture_names(void) {
    static const char *const names[] = {"flux-dev", "flux-schnell", "scenes", "tiny", NULL};
    return names;
}

const dfx_architecture *dfx_architecture_find(const char *name) {
    for (size_t i = 0; i < DFX_COUNT(ARCHITECTURES); i++)
        if (strcmp(ARCHITECTURES[i].name, name) == 0)
            return &ARCHITECTURES[i];
    return NULL;
}

dfx_defaults dfx_architecture_defaults(const dfx_architecture *a) {
    dfx_defaults defaults = {.shape = {.width = a->side,
                                       .height = a->side,
                                       .n_text = a->text_length,
                                       .n_steps = a->steps},
                             .max_text_length = a->text_length};
    snprintf(defaults.name, sizeof(defaults.name), "%s", a->name);
    return defaults;
}
