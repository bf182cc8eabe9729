/* The block of the denoiser in which attention stands beside an MLP and both may make codes (offload/fuse_bound.c), small.
 *
 *     y = joined([attention(q, k, v), gelu(in(n))])     n = LN(x) * (1 + scale) + shift; q, k, v: products of n
 *
 * In two pages. q and k are normed by heads, with the first columns of the extern `scale` for a weight. Checkpoint, externs and
 * sizes are those of mlp_blocks.h; the env says whether attention is in 8 bits. */
#ifndef DFX_TESTS_ATTENDED_BLOCK_H
#define DFX_TESTS_ATTENDED_BLOCK_H

#include "tests/mlp_blocks.h"

enum { ATTENDED_H = 2, ATTENDED_E = MLP_A / ATTENDED_H };

/* What is not as in the block of FLUX. The first two have a bound of values, the others none. */
typedef enum attended_twist {
    ATTENDED_AS_IT_IS,
    ATTENDED_NO_BIAS,        /* of the values' product */
    ATTENDED_OTHER_NORM,     /* values are a product of another norm of x */
    ATTENDED_GIVEN,          /* they are an extern */
    ATTENDED_ACT,            /* their product has an activation, */
    ATTENDED_GATED,          /* a gate, */
    ATTENDED_RESIDUAL,       /* a residual, */
    ATTENDED_ADAPTER,        /* an adapter */
    ATTENDED_CHANGED,        /* another op adds to them */
    ATTENDED_BESIDE,         /* it writes beside them, and another op writes them */
    ATTENDED_CODES_ANEW,     /* codes of x are made anew after their product, in the same place */
    ATTENDED_OTHER_PAGE,     /* their weights are in a page of their own */
    ATTENDED_GAP,            /* nobody writes the columns between attention and MLP */
    ATTENDED_AFTER_GAP,      /* nobody writes those before attention */
    ATTENDED_HALF_OF_ROWS,   /* attention writes half of the joined buffer's rows */
    ATTENDED_WRITTEN_BEFORE, /* another op writes its columns before it, */
    ATTENDED_WRITTEN_AFTER,  /* or after it */
    ATTENDED_N_TWISTS
} attended_twist;

/* The status is the builder's. */
dfx_status attended_build(const dfx_build_env *env, int64_t n_tokens, attended_twist what,
                          dfx_program *out);

#endif
