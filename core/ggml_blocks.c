/* See ggml_blocks.h. One function a type decodes one block; each is its layout, read in the order of the elements.
 *
 * In all of them an element's low bits and its high bits (where a fifth or sixth bit is kept apart) lie in planes of 16, 32
 * or 64 bytes, so that neighbours in a plane are neighbours in the block and compilers make vector code of the inner loops. */
#include "core/ggml_blocks.h"

static float half_at(const uint8_t *p) {
    return dfx_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

enum { HALF = 16 }; /* of a block of 32: low nibbles are its first half, high ones its second */

/* d | qs[16]: d * (q - 8) */
static void block_Q4_0(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src);
    const uint8_t *qs = src + 2;
    for (int j = 0; j < HALF; j++) {
        y[j] = d * (float)((qs[j] & 15) - 8);
        y[j + HALF] = d * (float)((qs[j] >> 4) - 8);
    }
}

/* d | m | qs[16]: d * q + m */
static void block_Q4_1(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src), m = half_at(src + 2);
    const uint8_t *qs = src + 4;
    for (int j = 0; j < HALF; j++) {
        y[j] = d * (float)(qs[j] & 15) + m;
        y[j + HALF] = d * (float)(qs[j] >> 4) + m;
    }
}

/* Bit j of qh, little endian, is the fifth of element j. */
static uint32_t fifth_bits(const uint8_t *qh) {
    return qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
}

/* d | qh u32 | qs[16]: d * (q - 16) */
static void block_Q5_0(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src);
    uint32_t qh = fifth_bits(src + 2);
    const uint8_t *qs = src + 6;
    for (int j = 0; j < HALF; j++) {
        int low = (qs[j] & 15) | (int)(qh >> j & 1) << 4;
        int high = qs[j] >> 4 | (int)(qh >> (j + HALF) & 1) << 4;
        y[j] = d * (float)(low - 16);
        y[j + HALF] = d * (float)(high - 16);
    }
}

/* d | m | qh u32 | qs[16]: d * q + m */
static void block_Q5_1(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src), m = half_at(src + 2);
    uint32_t qh = fifth_bits(src + 4);
    const uint8_t *qs = src + 8;
    for (int j = 0; j < HALF; j++) {
        int low = (qs[j] & 15) | (int)(qh >> j & 1) << 4;
        int high = qs[j] >> 4 | (int)(qh >> (j + HALF) & 1) << 4;
        y[j] = d * (float)low + m;
        y[j + HALF] = d * (float)high + m;
    }
}

/* d | i8 qs[32]: d * q */
static void block_Q8_0(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src);
    const int8_t *qs = (const int8_t *)(src + 2);
    for (int j = 0; j < 2 * HALF; j++)
        y[j] = d * (float)qs[j];
}

/* scales[16] | qs[64] | d | dmin. A sub-block k of 16 has its scale in the low nibble of scales[k], its minimum in the high
 * one; eight of them share 32 bytes of qs, two bits each. */
static void block_Q2_K(const uint8_t *restrict src, float *restrict y) {
    const uint8_t *scales = src, *qs = src + 16;
    float d = half_at(src + 80), dmin = half_at(src + 82);
    for (int k = 0; k < 16; k++) {
        float scale = d * (float)(scales[k] & 15), min = dmin * (float)(scales[k] >> 4);
        const uint8_t *q = qs + 32 * (k / 8) + 16 * (k % 2);
        int shift = 2 * (k % 8 / 2);
        for (int l = 0; l < 16; l++)
            y[16 * k + l] = scale * (float)(q[l] >> shift & 3) - min;
    }
}

/* hmask[32] | qs[64] | scales[12] | d. As Q2_K without minima; a third bit, which takes 4 off where it is not set, lies in
 * plane k / 2 of hmask. Scales have six bits: the low four of 16 in 8 bytes, then the high two of 16 in 4. */
static void block_Q3_K(const uint8_t *restrict src, float *restrict y) {
    const uint8_t *hmask = src, *qs = src + 32, *scales = src + 96;
    float d = half_at(src + 108);
    for (int k = 0; k < 16; k++) {
        int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
        int high = scales[8 + k % 4] >> 2 * (k / 4) & 3;
        float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *q = qs + 32 * (k / 8) + 16 * (k % 2), *third = hmask + 16 * (k % 2);
        int shift = 2 * (k % 8 / 2), bit = k / 2;
        for (int l = 0; l < 16; l++)
            y[16 * k + l] = scale * (float)((q[l] >> shift & 3) + 4 * (third[l] >> bit & 1) - 4);
    }
}

/* Scale and minimum of sub-block k of Q4_K and Q5_K, six bits each in 12 bytes: those of the first four in six bits of their
 * own, whose upper two bits hold the upper two of the last four. */
static void scale_and_min(const uint8_t *scales, int k, int *scale, int *min) {
    if (k < 4) {
        *scale = scales[k] & 63;
        *min = scales[k + 4] & 63;
    } else {
        *scale = (scales[k + 4] & 15) | scales[k - 4] >> 6 << 4;
        *min = scales[k + 4] >> 4 | scales[k] >> 6 << 4;
    }
}

/* d | dmin | scales[12] | qs[128]. Sub-blocks of 32; two share 32 bytes of qs, the even one their low nibbles. */
static void block_Q4_K(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src), dmin = half_at(src + 2);
    const uint8_t *scales = src + 4, *qs = src + 16;
    for (int k = 0; k < 8;
         k += 2, qs += 32, y += 64) { /* both at once: 8 times as fast as one by one */
        int sub_scale, sub_min;
        scale_and_min(scales, k, &sub_scale, &sub_min);
        float scale = d * (float)sub_scale, min = dmin * (float)sub_min;
        scale_and_min(scales, k + 1, &sub_scale, &sub_min);
        float odd_scale = d * (float)sub_scale, odd_min = dmin * (float)sub_min;
        for (int l = 0; l < 32; l++) {
            y[l] = scale * (float)(qs[l] & 15) - min;
            y[32 + l] = odd_scale * (float)(qs[l] >> 4) - odd_min;
        }
    }
}

/* d | dmin | scales[12] | qh[32] | qs[128]. As Q4_K with a fifth bit, bit k of qh. */
static void block_Q5_K(const uint8_t *restrict src, float *restrict y) {
    float d = half_at(src), dmin = half_at(src + 2);
    const uint8_t *scales = src + 4, *qh = src + 16, *qs = src + 48;
    for (int k = 0; k < 8; k++) {
        int sub_scale, sub_min;
        scale_and_min(scales, k, &sub_scale, &sub_min);
        float scale = d * (float)sub_scale, min = dmin * (float)sub_min;
        const uint8_t *q = qs + 32 * (k / 2);
        int shift = 4 * (k % 2);
        for (int l = 0; l < 32; l++)
            y[32 * k + l] = scale * (float)((q[l] >> shift & 15) | (qh[l] >> k & 1) << 4) - min;
    }
}

/* ql[128] | qh[64] | i8 scales[16] | d: d * scale * (q - 32), scales a sub-block of 16. Of each half of 128, run r of 32 has
 * its low nibbles in 64 bytes of ql (even runs the first 32, runs 2 and 3 the high nibbles) and bits 2r, 2r + 1 of 32 of qh. */
static void block_Q6_K(const uint8_t *restrict src, float *restrict y) {
    const int8_t *scales = (const int8_t *)(src + 192);
    float d = half_at(src + 208);
    for (int k = 0; k < 16; k++) {
        int half = k / 8, run = k % 8 / 2, at = 16 * (k % 2);
        float scale = d * (float)scales[k];
        const uint8_t *ql = src + 64 * half + 32 * (run % 2) + at, *qh = src + 128 + 32 * half + at;
        int low_shift = 4 * (run / 2), high_shift = 2 * run;
        for (int l = 0; l < 16; l++) {
            int q = (ql[l] >> low_shift & 15) | (qh[l] >> high_shift & 3) << 4;
            y[16 * k + l] = scale * (float)(q - 32);
        }
    }
}

bool dfx_ggml_to_f32(dfx_dtype dtype, const void *src, float *dst, size_t n) {
    static void (*const decode[])(const uint8_t *restrict, float *restrict) = {
#define DECODER(name, text, elements, bytes) [DFX_DTYPE_##name - DFX_DTYPE_Q4_0] = block_##name,
        DFX_DTYPE_GGML_LIST(DECODER)
#undef DECODER
    };
    dfx_dtype_block block = dfx_dtype_block_of(dtype);
    if (!dfx_dtype_is_ggml(dtype) || n % block.elements != 0)
        return false;
    const uint8_t *from = src;
    for (size_t at = 0; at < n; at += block.elements, from += block.bytes)
        decode[dtype - DFX_DTYPE_Q4_0](from, dst + at);
    return true;
}
