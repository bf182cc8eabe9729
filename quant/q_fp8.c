/* fp8 codes: e4m3 (OCP), sign, 4 bits of exponent (bias 7), 3 of mantissa, rounded to nearest
 * even.
 *
 * dfx_f32_to_e4m3() in core does the same for any float. Here |x| <= absmax is known, so the
 * product of x and 448 / absmax stays below 464, where rounding to 448 ends: neither NaN nor
 * saturation needs a test, and what is left fits vector code. */
#include "quant/q_internal.h"

enum { CODE_OF_NAN = 0x7f };

/* The smallest normal is 2^-6; below it values count in steps of 2^-9. */
#define SMALLEST_NORMAL 0x1p-6f

/* Both ways of rounding, chosen without a branch. Normal: add half of what the 20 dropped
 * mantissa bits can hold, less one where the kept part is even, and lower the exponent's bias
 * from 127 to 7. Subnormal: the last mantissa bit of 2^14 is worth 2^-9, so the adder rounds to
 * steps. */
static inline uint8_t narrow(float v) {
    uint32_t bits = dfx_q_bits(v), magnitude = bits & 0x7fffffff;
    uint32_t half = 0x7ffff + (magnitude >> 20 & 1);
    uint32_t normal = (magnitude + half - ((127u - 7u) << 23)) >> 20;
    uint32_t subnormal = dfx_q_bits(fabsf(v) + 0x1p14f) - dfx_q_bits(0x1p14f);
    uint32_t is_normal = 0u - (uint32_t)(magnitude >= dfx_q_bits(SMALLEST_NORMAL));
    return (uint8_t)((normal & is_normal) | (subnormal & ~is_normal) | (bits >> 24 & 0x80));
}

DFX_Q_CLONES
void dfx_q_fp8_codes(const float *restrict x, size_t n, float inverse, uint8_t *restrict codes) {
    for (size_t i = 0; i < n; i++)
        codes[i] = narrow(x[i] * inverse);
}

DFX_Q_CLONES
void dfx_q_token_fp8_scaled(const float *x, int64_t n, float scale, uint8_t *codes) {
    float inverse = 1.0f / scale;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] * inverse;
        v = v > DFX_Q_FP8_MAX ? DFX_Q_FP8_MAX : v;
        v = v < -DFX_Q_FP8_MAX ? -DFX_Q_FP8_MAX : v;
        codes[i] = v == v ? narrow(v) : CODE_OF_NAN;
    }
}

float dfx_q_token_fp8_least(const float *x, int64_t n, float least, uint8_t *codes) {
    float absmax = dfx_q_absmax(x, (size_t)n, 0.0f);
    if (!dfx_q_in_range(absmax) || isnan(least)) {
        memset(codes, 0, (size_t)n);
        return NAN;
    }
    float own = absmax < DFX_Q_TINY ? 0.0f : absmax / DFX_Q_FP8_MAX,
          scale = own > least ? own : least;
    dfx_q_token_fp8_scaled(x, n, scale, codes);
    return scale;
}

float dfx_q_token_fp8(const float *x, int64_t n, uint8_t *codes) {
    float absmax = dfx_q_absmax(x, (size_t)n, 0.0f);
    if (!dfx_q_in_range(absmax)) {
        memset(codes, 0, (size_t)n);
        return NAN;
    }
    dfx_q_step step = dfx_q_step_of(absmax, DFX_Q_FP8_MAX);
    dfx_q_fp8_codes(x, (size_t)n, step.inverse, codes);
    return step.scale;
}
