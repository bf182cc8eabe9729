/* MT19937 words, and the two normal draws of torch's CPU generator: a Box-Muller pair of doubles
 * for short draws, blocks of 16 in f32 for the others.
 *
 * torch's vector code takes ln, sin and cos from f32 polynomials that err by a unit or so in the
 * last place. Here each intermediate is a double result rounded to f32 instead. Measured on torch's
 * own numbers: one value in six differs, by 3 units at most; test_rng allows 4. */
#include "core/rng.h"

#include <math.h>
#include <string.h>

#include "core/detmath.h"

enum { WORDS = 624, SHIFT = 397, BLOCK = 16, HALF = BLOCK / 2 };

static const double TWO_PI = 0x1.921fb54442d18p+2;

void dfx_rng_seed(dfx_rng *rng, uint64_t seed) {
    memset(rng, 0, sizeof(*rng));
    rng->state[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < WORDS; j++) {
        uint32_t prev = rng->state[j - 1];
        rng->state[j] = UINT32_C(1812433253) * (prev ^ (prev >> 30)) + j;
    }
    rng->at = WORDS;
}

static void twist(uint32_t state[WORDS]) {
    for (size_t j = 0; j < WORDS; j++) {
        uint32_t y = (state[j] & UINT32_C(0x80000000)) | (state[(j + 1) % WORDS] & 0x7fffffff);
        uint32_t odd = (y & 1) ? UINT32_C(0x9908b0df) : 0;
        state[j] = state[(j + SHIFT) % WORDS] ^ (y >> 1) ^ odd;
    }
}

uint32_t dfx_rng_u32(dfx_rng *rng) {
    if (rng->at == WORDS) {
        twist(rng->state);
        rng->at = 0;
    }
    uint32_t y = rng->state[rng->at++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

/* [0, 1) in steps of 2^-53; the first word drawn is the high one. */
static double uniform_f64(dfx_rng *rng) {
    uint64_t high = dfx_rng_u32(rng);
    uint64_t word = high << 32 | dfx_rng_u32(rng);
    return (double)(word & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static double normal_f64(dfx_rng *rng) {
    if (rng->has_spare) {
        rng->has_spare = false;
        return rng->spare;
    }
    double turn = uniform_f64(rng);
    double below_one = uniform_f64(rng);
    double radius = sqrt(-2 * dfx_det_log(1 - below_one)); /* the difference is exact */
    double s, c;
    dfx_det_sincos(TWO_PI * turn, &s, &c);
    rng->spare = radius * s;
    rng->has_spare = true;
    return radius * c;
}

/* [0, 1) in steps of 2^-24, so that 1 - u is exact and never 0. */
static void fill_uniform(dfx_rng *rng, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)(dfx_rng_u32(rng) & 0xffffff) * 0x1p-24f;
}

/* Box-Muller of d[j] with d[j + 8], every intermediate rounded to f32. */
static void transform_block(float d[BLOCK]) {
    for (size_t j = 0; j < HALF; j++) {
        float ln = (float)dfx_det_log(1.0f - d[j]);
        float radius = sqrtf(-2.0f * ln);
        float theta = (float)TWO_PI * d[j + HALF];
        double s, c;
        dfx_det_sincos(theta, &s, &c);
        d[j] = radius * (float)c;
        d[j + HALF] = radius * (float)s;
    }
}

void dfx_rng_normal(dfx_rng *rng, float *dst, size_t n) {
    if (n < BLOCK) {
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)normal_f64(rng);
        return;
    }
    fill_uniform(rng, dst, n);
    for (size_t i = 0; i + BLOCK <= n; i += BLOCK)
        transform_block(dst + i);
    if (n % BLOCK) { /* the last 16 places are drawn anew, over results already there */
        fill_uniform(rng, dst + n - BLOCK, BLOCK);
        transform_block(dst + n - BLOCK);
    }
}
