/* Noise that equals torch.randn on the CPU generator for the same seed.
 * Sources: Matsumoto & Nishimura, MT19937 (1998); Box & Muller (1958); torch's CPU normal_ fills blocks of 16.
 *
 * The same numbers come out on every machine: the logarithm, sine and cosine are computed here from IEEE double
 * operations without fused multiply-add, not by the C library.
 * Fact that bites: only the low 32 bits of a seed matter (torch does the same); guarded by test_rng. */
#ifndef DFX_CORE_RNG_H
#define DFX_CORE_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dfx_rng {
    uint32_t state[624];
    uint32_t at;
    bool has_spare; /* draws shorter than 16 keep the sine half for the next call */
    double spare;
} dfx_rng;

void dfx_rng_seed(dfx_rng *rng, uint64_t seed);
uint32_t dfx_rng_u32(dfx_rng *rng);

/* n normal numbers as one torch.randn(n) draw in f32: blocks of 16 for n >= 16, pairs in double below. */
void dfx_rng_normal(dfx_rng *rng, float *dst, size_t n);

#endif
