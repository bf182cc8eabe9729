/* A random model as the single files that users have: the transformer under BFL's names, VAE, CLIP and T5 beside it or in the same
 * file, and the tokenizers' folders.
 *
 *   bfl     flux.safetensors or flux.gguf, ae.safetensors, clip_l.safetensors, t5xxl.safetensors or t5xxl.gguf
 *   comfy   flux.safetensors with all of them behind ComfyUI's prefixes
 *
 * Formats are those of the large matrices, modulation included, of the transformer and T5; all else is bf16, in GGUF files
 * vectors f32. Values are those of the same seed in bf16, rounded: fp8 to the nearest, fp8-scaled with one scale a tensor
 * (scale_weight), q8_0 with d = absmax / 127 of each 32 in f16. */
#ifndef DFX_TOOLS_RANDOM_SINGLE_H
#define DFX_TOOLS_RANDOM_SINGLE_H

#include "tools/random_files.h"
#include "tools/random_stream.h"
#include "tools/random_weights.h"

typedef enum dfx_single_layout { DFX_SINGLE_BFL, DFX_SINGLE_COMFY } dfx_single_layout;
typedef enum dfx_single_format {
    DFX_SINGLE_BF16,
    DFX_SINGLE_FP8,
    DFX_SINGLE_FP8_SCALED,
    DFX_SINGLE_Q8_0
} dfx_single_format;

/* `dir` is made; it must not be there, or be empty. Errors: as dfx_random_folder_write. */
dfx_status dfx_random_single_write(dfx_random_weights *weights, const dfx_random_files *files,
                                   const char *dir, dfx_single_layout layout,
                                   dfx_single_format format, const dfx_random_options *options,
                                   const dfx_sink *sink, uint64_t *out_bytes);

#endif
