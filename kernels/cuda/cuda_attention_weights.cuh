/* Scores of q k^T in 8 bits become weights of softmax, as E4M3 codes: what a thread of attention in 8 bits does between two
 * products. Scores lie as wgmma leaves them: a thread has two rows, which it shares with three other lanes.
 *
 * On the straight line between powers of two, the E4M3 code of 2^u is 8 u + 56: one multiply-add. As a subnormal F16, whose
 * bits are the number, it is rounded by the conversion of two values at once, which also makes 0 of what is negative. The
 * line is above the power by up to 6 %; softmax divides its mean out.
 *   A row's weights are 2^(score - lift), where lift is not the greatest score so far but stays while codes fit: that it must
 * move shows in the codes themselves. It moves by whole octaves, to which the line is indifferent. Codes 0 to 126 are 15
 * octaves: so the first scores get codes up to TOP_AT_FIRST, since later ones may be greater; when MANY_TILES of keys have been
 * seen, and what is to come is hardly greater, what was kept for nothing is given to the small weights. TOP_AT_FIRST is an
 * eighth of an octave above a power, where the line is above it as much as on the average: a row may be that one weight.
 *   Sums are of the rounded weights: the code's bits, 7 further left, are the weight times 2^-8 as F16. Within 24 of them F16
 * is exact enough, above it is F32. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_WEIGHTS_CUH
#define DFX_KERNELS_CUDA_ATTENTION_WEIGHTS_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/cuda_attention_sm90.cuh"

enum {
    HALF = 96, /* keys whose scores are in registers together */
    MANY_TILES = 4,
    LINE_STEPS = 8,      /* codes of an octave */
    TOP_AT_FIRST = 89,   /* codes of the greatest weight of a row: of its first keys, */
    TOP_WHEN_MANY = 108, /* after many, at most, */
    TOP_AGAIN = 118,     /* and after one that did not fit, at most */
    /* Bits of 1.5 * 2^23: an integer below 2^22 added to them gives the bits of a float that is as much greater. */
    ZERO_SCORE = 0x4b400000,
    MASKED_SCORE = (int32_t)0xff800000u, /* -infinity */
};
static const float CODE = 0x1p-24f; /* of a subnormal F16: one step */
static const float OCTAVE = LINE_STEPS * 0x1p-24f;
static const float SUM_UNIT = 0x1p8f;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef int32_t scores[HALF / 2];
typedef uint32_t weights[HALF / 32][4]; /* the left operands of wgmma, 32 keys each */

/* Of a thread's two rows. A code of score s is s * unit + lift, in CODEs. sum: the thread's part, in SUM_UNITs. fade: what
 * outputs are to be multiplied with, once they hold all weights made before the lift moved. most: the greatest code so far, as
 * two F16 of which each may be it. */
struct row_weights {
    float unit[2], lift[2], sum[2], fade[2];
    uint32_t most[2];
};

/* octaves: of a step of score. Not a number: nor are the outputs. What is steeper than an octave in 256 steps, 48 where scores
 * have a deviation of 18000 steps, is as good as that: tops are found in F16, whose error must be small beside 118 codes. */
__device__ static inline void begin_row(row_weights &r, int half, float octaves) {
    r.unit[half] = fminf(fmaxf(octaves * LINE_STEPS, 0x1p-100f), 0x1p-5f) * CODE;
    r.sum[half] = 0 * octaves;
    r.fade[half] = 1;
    r.most[half] = 0;
}

__device__ static inline uint32_t code_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ static inline uint32_t add_pairs(uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/* The sum of a row's weights, of those that the thread has. */
__device__ static inline float sum_of(const uint32_t (&pairs)[HALF / 8]) {
    uint32_t sums[HALF / 16];
#pragma unroll
    for (int n = 0; n < HALF / 16; n++)
        sums[n] = add_pairs(pairs[2 * n] << 7, pairs[2 * n + 1] << 7);
    uint32_t a = add_pairs(sums[0], sums[1]), b = add_pairs(sums[2], sums[3]),
             c = add_pairs(sums[4], sums[5]);
    a = add_pairs(add_pairs(a, b), c);
    float2 sum = __half22float2(*(const __half2 *)&a);
    return sum.x + sum.y;
}

/* Every fourth word of two codes becomes half of a word of four. */
__device__ static inline void make_weights(const scores &s, row_weights &r, weights &p,
                                           float (&sums)[2]) {
    uint32_t pairs[2][HALF / 8];
#pragma unroll
    for (int n = 0; n < HALF / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float low = __int_as_float(s[4 * n + 2 * half]);
            float high = __int_as_float(s[4 * n + 2 * half + 1]);
            pairs[half][n] = code_pair(fmaf(low, r.unit[half], r.lift[half]),
                                       fmaf(high, r.unit[half], r.lift[half]));
        }
#pragma unroll
    for (int n = 0; n < HALF / 8; n += 2)
#pragma unroll
        for (int half = 0; half < 2; half++)
            r.most[half] = __vimax3_u16x2(r.most[half], pairs[half][n], pairs[half][n + 1]);
#pragma unroll
    for (int k = 0; k < HALF / 32; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = __byte_perm(pairs[i % 2][4 * k + i / 2 * 2],
                                  pairs[i % 2][4 * k + i / 2 * 2 + 1], 0x6420);
    sums[0] = sum_of(pairs[0]);
    sums[1] = sum_of(pairs[1]);
}

/* Of any lane of the warp. 127 is no number in E4M3. */
__device__ static inline bool overflows(const row_weights &r) {
    uint32_t above = (r.most[0] + 0x00010001) | (r.most[1] + 0x00010001);
    return __any_sync(0xffffffff, above & 0xff80ff80);
}

/* The greatest codes of the rows. Above 2047 they are rounded, as F16 does. */
__device__ static inline void find_tops(const row_weights &r, float (&tops)[2]) {
    uint32_t both = __vmaxu2(__byte_perm(r.most[0], r.most[1], 0x5410),
                             __byte_perm(r.most[0], r.most[1], 0x7632));
    both = __vmaxu2(both, __shfl_xor_sync(0xffffffff, both, 1));
    both = __vmaxu2(both, __shfl_xor_sync(0xffffffff, both, 2));
    float2 top = __half22float2(*(const __half2 *)&both);
    tops[0] = top.x;
    tops[1] = top.y;
}

/* All weights of a row become 2^octaves of what they were. */
__device__ static inline void move_lift(row_weights &r, int half, float octaves, float top) {
    float fade = exp2_fast(octaves);
    r.lift[half] = fmaf(octaves, OCTAVE, r.lift[half]);
    r.sum[half] *= fade;
    r.fade[half] *= fade;
    top = fmaf(octaves, OCTAVE, top);
    r.most[half] = code_pair(top, top);
}

__device__ static inline void lower_lifts(row_weights &r) {
    float tops[2];
    find_tops(r, tops);
#pragma unroll
    for (int half = 0; half < 2; half++)
        move_lift(r, half, -ceilf(fmaxf(tops[half] - TOP_AGAIN * CODE, 0) * (1 / OCTAVE)),
                  tops[half]);
}

__device__ static inline void raise_lifts(row_weights &r) {
    float tops[2];
    find_tops(r, tops);
#pragma unroll
    for (int half = 0; half < 2; half++)
        move_lift(r, half, floorf(fmaxf(TOP_WHEN_MANY * CODE - tops[half], 0) * (1 / OCTAVE)),
                  tops[half]);
}

/* By the first scores of the rows, of which at least one is not masked. */
__device__ static inline void find_lifts(const scores &s, row_weights &r) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float a = -CUDART_INF_F, b = a; /* two chains, each half as long */
#pragma unroll
        for (int n = 0; n < HALF / 8; n++) {
            a = fmaxf(a, __int_as_float(s[4 * n + 2 * half]));
            b = fmaxf(b, __int_as_float(s[4 * n + 2 * half + 1]));
        }
        a = fmaxf(a, b);
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 1));
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 2));
        r.lift[half] = fmaf(-a, r.unit[half], TOP_AT_FIRST * CODE);
    }
}

/* The rows' next weights, and their sums. Whether lifts moved, so that outputs must fade. Once is enough for tops of up to 2047
 * codes, and each further time for the square of as much. */
__device__ static inline bool soften(const scores &s, row_weights &r, weights &p) {
    float sums[2];
    make_weights(s, r, p, sums);
    bool lowered = overflows(r);
    if (lowered) {
        for (int tries = 0; tries < 4 && overflows(r); tries++) {
            lower_lifts(r);
            make_weights(s, r, p, sums);
        }
    }
    r.sum[0] += sums[0];
    r.sum[1] += sums[1];
    return lowered;
}

/* Keys from n_there on get no weight. */
__device__ static inline void mask(scores &s, int n_there) {
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < HALF / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + column + i % 2 >= n_there)
                s[4 * n + i] = MASKED_SCORE;
}
#endif

#endif
