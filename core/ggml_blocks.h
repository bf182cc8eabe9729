/* The block types of GGUF files, to f32: weights in blocks of 32 (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0) or 256 (Q2_K to Q6_K), each
 * with its scale, and minimum where there is one, in f16. ggml_blocks.c has the layouts.
 *
 * A value is a product or two of f16 scales and small integers, and at most one difference or sum. Products of two of them
 * are exact in f32, so the bits depend on one or two roundings only, which stand in the formulas from left to right:
 * (scale * sub-scale) * code - (minimum scale * sub-minimum). */
#ifndef DFX_CORE_GGML_BLOCKS_H
#define DFX_CORE_GGML_BLOCKS_H

#include "core/dtype.h"

/* dst[i] = element i of the blocks at src, i < n. `src` needs no alignment. False, and nothing written, when `dtype` is none
 * of the list or n no multiple of its block. Any thread. */
bool dfx_ggml_to_f32(dfx_dtype dtype, const void *src, float *dst, size_t n);

#endif
