/* Two blocks of the denoiser whose MLP may make codes by a bound (offload/fuse_bound.c), small, and a checkpoint for them.
 *
 *     plain    y = down(gelu(in(n)))                    n = LN(x) * (1 + scale) + shift
 *     joined   y = joined([first, gelu(in(n))])         in two pages; another product of n comes before, as attention's do
 *
 *     dfx_tensors *set = mlp_open_fp8(dir);
 *     dfx_build_env env = mlp_env(dir, set);
 *     mlp_build_joined(&env, MLP_T, MLP_AS_IT_IS, &program);
 *
 * The calls fail the running test, but for those that build, whose status is the builder's. */
#ifndef DFX_TESTS_MLP_BLOCKS_H
#define DFX_TESTS_MLP_BLOCKS_H

#include "offload/builder.h"
#include "tests/tmpdir.h"

enum {
    MLP_T = 70, /* tokens, or fewer */
    MLP_D = 48, /* width */
    MLP_A = 16, /* columns of `first` */
    MLP_F = 96, /* width of the MLP */
    MLP_N = 24, /* outputs */
    MLP_GAP = 8 /* columns of a joined buffer that is wider than it need be */
};

/* block.in [F, D], block.q, k and v [A, D]; block.down [N, F], block.joined [N, A + F], block.wide [N, GAP + A + F], block.out
 * [N, A], with biases. Of types as safetensors spells them, with scales or without; codes are any but NaN. dfx_tensors_close() by
 * the caller. */
dfx_tensors *mlp_open(tmpdir *dir, const char *in, bool in_is_scaled, const char *out,
                      bool out_is_scaled);
dfx_tensors *mlp_open_fp8(tmpdir *dir);

dfx_build_env mlp_env(tmpdir *dir, const dfx_tensors *tensors);

/* Externs of both, in order: x [n_tokens, D], scale and shift [1, D], first [n_tokens, A], y [n_tokens, N]. */
enum { MLP_X, MLP_SCALE, MLP_SHIFT, MLP_FIRST, MLP_Y };
typedef struct mlp_externs {
    dfx_ref x, scale, shift, first, y;
} mlp_externs;

/* A program that has them and nothing else yet. */
mlp_externs mlp_begin(dfx_builder *b, const dfx_build_env *env, int64_t n_tokens);

/* What is not as in the block that is fused. */
typedef enum mlp_twist {
    MLP_AS_IT_IS,
    MLP_SILU,
    MLP_QUICK_GELU,
    MLP_NO_ACT,
    MLP_GATED,
    MLP_RESIDUAL,
    MLP_OF_X,            /* not of a norm */
    MLP_OF_RMSNORM,      /* not of LAYERNORM */
    MLP_HALF_OF_ROWS,    /* `in` writes half of the joined buffer's rows */
    MLP_AT_LEFT,         /* it writes the first columns, and nobody the last */
    MLP_OVER_OTHERS,     /* it writes over what another op has written */
    MLP_OUTSIDE,         /* the joined buffer is an extern */
    MLP_READ_BEFORE,     /* `first` is read before the product */
    MLP_IN_PLACE_BEFORE, /* and written to by an op in place */
    MLP_READ_AFTER,      /* it is read as values after it */
    MLP_READ_IN_PARTS,   /* gelu(in(n)) goes to another product too, by itself */
    MLP_READ_MLP,        /* to that product alone */
    MLP_READ_ROWS,       /* half of the rows go to the product */
    MLP_READ_BY_NORM,    /* the joined buffer goes through a norm that makes codes */
    MLP_N_TWISTS
} mlp_twist;

/* `times` products like it, one after the other, of one norm. */
dfx_status mlp_build_plain(const dfx_build_env *env, int64_t n_tokens, int times, bool no_bias,
                           dfx_program *out);
dfx_status mlp_build_joined(const dfx_build_env *env, int64_t n_tokens, mlp_twist what,
                            dfx_program *out);

/* The program's ops are of these kinds; a ref is all rows of a buffer, these columns. */
void mlp_has_ops(const dfx_program *p, const dfx_op_kind *kinds, uint32_t n);
void mlp_is_ref(dfx_ref got, uint32_t buf, int64_t rows, int64_t col0, int64_t cols);

/* Whichever of its allocations fails, the build says so and holds nothing. */
typedef dfx_status (*mlp_build_fn)(const dfx_build_env *env, dfx_program *out);
void mlp_survives_failing_allocations(tmpdir *dir, const dfx_build_env *env, mlp_build_fn build);

#endif
