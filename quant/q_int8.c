/* int8 codes: symmetric, -127..127, rounded to nearest even.
 *
 * |x| <= absmax gives |x * (127 / absmax)| <= 127 * (1 + 2^-23) after both roundings, which
 * rounds to 127 at the most: no clamp is needed, and -128 never appears. */
#include "quant/q_internal.h"

/* Adding 1.5 * 2^23 leaves the integer nearest to |v| < 2^22 (ties to even) in the low mantissa
 * bits, in two's complement: a rounding that every instruction set has. */
static inline int8_t nearest(float v) {
    return (int8_t)(dfx_q_bits(v + 0x1.8p23f) & 0xff);
}

DFX_Q_CLONES
void dfx_q_int8_codes(const float *restrict x, size_t n, float inverse, int8_t *restrict codes) {
    for (size_t i = 0; i < n; i++)
        codes[i] = nearest(x[i] * inverse);
}

float dfx_q_token_int8(const float *x, int64_t n, int8_t *codes) {
    float absmax = dfx_q_absmax(x, (size_t)n, 0.0f);
    if (!dfx_q_in_range(absmax)) {
        memset(codes, 0, (size_t)n);
        return NAN;
    }
    dfx_q_step step = dfx_q_step_of(absmax, DFX_Q_INT8_MAX);
    dfx_q_int8_codes(x, (size_t)n, step.inverse, codes);
    return step.scale;
}
