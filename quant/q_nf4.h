/* Weights that bitsandbytes has packed, back to f32: 4 bits through a table of 16 (NF4, FP4), and 8 bits with a scale
 * for each row (LLM.int8). Pure functions of arrays that the caller holds.
 *
 *     dfx_nf4 q = {.codes = w, .quant_map = map, .absmax = absmax, .block = 64};
 *     dfx_nf4_decode(&q, row * cols, cols, dst);
 *
 * Facts that are easy to get wrong: the even element is the high nibble of its byte; a block is a run of
 * elements in row-major order and knows nothing of rows; a doubly quantized absmax has its offset added after the product.
 * FP4 is the same layout with another map: the file's own is used, whatever it holds. */
#ifndef DFX_QUANT_Q_NF4_H
#define DFX_QUANT_Q_NF4_H

#include <stdint.h>

enum { DFX_NF4_MAP = 16, DFX_NF4_NESTED_MAP = 256 };

/* A tensor of N elements; all arrays are borrowed. */
typedef struct dfx_nf4 {
    const uint8_t *codes;          /* [(N + 1) / 2] */
    const float *quant_map;        /* [DFX_NF4_MAP] */
    const float *absmax;           /* [N / block, rounded up]; NULL: the four that follow say it */
    const uint8_t *absmax_codes;   /* [N / block, rounded up] */
    const float *nested_absmax;    /* [number of absmax_codes / nested_block, rounded up] */
    const float *nested_quant_map; /* [DFX_NF4_NESTED_MAP] */
    float nested_offset;
    int64_t block,
        nested_block; /* elements an absmax; absmax_codes a nested_absmax. Above 0 where used */
} dfx_nf4;

/* dst[i] = quant_map[nibble first + i] * absmax of its block, i < n. Any range within the tensor: it may begin and end inside
 * a byte or block. One rounding for the product; with a nested absmax one more for each of its two steps. Any thread. */
void dfx_nf4_decode(const dfx_nf4 *q, int64_t first, int64_t n, float *dst);

/* LLM.int8: dst[i] = codes[first + i] * row_absmax[row] / 127, i < n, where row = (first + i) / cols. codes [rows, cols],
 * row_absmax [rows] ("SCB"), cols > 0. Any thread. */
void dfx_llm_int8_decode(const int8_t *codes, const float *row_absmax, int64_t cols, int64_t first,
                         int64_t n, float *dst);

#endif
