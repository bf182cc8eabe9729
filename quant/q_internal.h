/* What the files of quant/ share: bits of a float, the greatest magnitude, and the scale that
 * follows from it.
 *
 * Bits are identical on every machine: only IEEE f32 multiply, divide and add, each rounded to
 * nearest even by itself (so no contraction into fused multiply-add: the build passes
 * -ffp-contract=off), and integers. */
#ifndef DFX_QUANT_Q_INTERNAL_H
#define DFX_QUANT_Q_INTERNAL_H

#include <math.h>
#include <string.h>

#include "quant/q_rows.h"

#ifdef __FAST_MATH__
#error "the codes of packed models are exact: build quant/ without -ffast-math"
#endif

/* Clones of hot loops for wider vectors, chosen at load time. Not under sanitizers, whose
 * start-up they precede. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DFX_SANITIZED)
#define DFX_Q_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DFX_Q_CLONES
#endif

/* Rows go through f32 in pieces of this many values, so that nothing is allocated; whole blocks of every type. */
enum { DFX_Q_CHUNK = 1024 };

/* The largest code of a format; the largest magnitude of a row becomes this. */
#define DFX_Q_INT8_MAX 127.0f
#define DFX_Q_FP8_MAX 448.0f

/* Magnitudes from LIMIT on are refused like infinity; a row wholly below TINY counts as a row of
 * zeros. Between them no scale and no reciprocal can overflow or become subnormal, so
 * flush-to-zero modes change nothing. */
#define DFX_Q_LIMIT 0x1p100f
#define DFX_Q_TINY 0x1p-100f

/* x = code * scale, code = round(x * inverse) */
typedef struct dfx_q_step {
    float scale, inverse;
} dfx_q_step;

static inline uint32_t dfx_q_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The greater of `absmax` and all |x[i]|; a NaN or infinity wins over every number. */
float dfx_q_absmax(const float *x, size_t n, float absmax);

/* False for NaN too. */
static inline bool dfx_q_in_range(float absmax) {
    return absmax < DFX_Q_LIMIT;
}

static inline dfx_q_step dfx_q_step_of(float absmax, float code_max) {
    if (absmax < DFX_Q_TINY)
        return (dfx_q_step){1.0f, 0.0f};
    return (dfx_q_step){absmax / code_max, code_max / absmax};
}

/* codes[i] = round(x[i] * inverse), i < n. */
void dfx_q_int8_codes(const float *x, size_t n, float inverse, int8_t *codes);
void dfx_q_fp8_codes(const float *x, size_t n, float inverse, uint8_t *codes);

#endif
