/* A product with all that follows it in one kernel:
 *     y[m,n] = r[m,n] + gate[n] * act((sum_k x[m,k] w[n,k]) * xs[m] * ws[n] + sum_i t[m,i] u[n,i] + b[n])
 * from the left, as cuda_epilogue.cu computes it: for I8 without t and u, where sums are exact, bit for bit the same. BF16
 * has no scales, and its sums go on over t and u. Or, of F8_E4M3, the codes of that: e4m3(y * (1 / ys[m])), no further than
 * +-448. */
#ifndef DFX_KERNELS_CUDA_FUSED_H
#define DFX_KERNELS_CUDA_FUSED_H

#include "kernels/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of matrices begin at multiples of 16 bytes. k is a multiple of 16, n of 8; all are below 2^22. Parts that a call leaves
 * out are zeroed. */
typedef struct dfx_cuda_fused {
    dfx_dtype in; /* of x and w: I8, F8_E4M3 or BF16 */
    int64_t m, n, k;
    const void *x, *w;    /* [m, k], [n, k] */
    int64_t ldx, ldw;     /* bytes from a row to the next */
    const float *xs, *ws; /* of codes */
    const float *ys;      /* [m] where y is codes, else NULL */
    dfx_mat t, u;         /* [m, rank] and [n, rank] BF16, or none; rank is a multiple of 16 */
    dfx_mat b;            /* [1, n] F32, BF16 or F16, or none */
    dfx_mat gate;         /* [1, n] BF16, or none */
    dfx_mat r;            /* [m, n] BF16, or none; may be y itself, else does not overlap it */
    dfx_mat y;            /* [m, n] BF16, or F8_E4M3 without gate, r, t and u */
    dfx_act act;
} dfx_cuda_fused;

/* Whether this device and build can do it. Addresses may still be NULL. */
bool dfx_cuda_fused_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p);

/* Choose a kernel for it by the clock, where that is done; it fits, and may wait. */
void dfx_cuda_fused_prepare(dfx_cuda *cuda, const dfx_cuda_fused *p);

/* Queue it. It fits. Errors: DFX_E_DEVICE. */
dfx_status dfx_cuda_fused_run(dfx_cuda *cuda, const dfx_cuda_fused *p);

/* The kernels that these choose from, for what cuda_fused.c has looked at; tests call them by themselves. cuda_fused_sm90.cu:
 * Hopper's own; activations other than NONE and GELU_TANH, GELU_TANH with gate or r, codes of anything but GELU_TANH, and of
 * columns that 16 does not divide are not for it. */
bool dfx_cuda_fused_sm90_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p);
dfx_status dfx_cuda_fused_sm90_run(dfx_cuda *cuda, const dfx_cuda_fused *p);

/* cuda_fused_mma.cu: codes, from sm_80 on, F8_E4M3 from sm_89 on; x and w of less than 4 GiB. Its tiles have numbers from 0 on;
 * guess: the one that is reckoned to take the least time. */
enum { DFX_CUDA_FUSED_TILES = 5 }; /* at most */
typedef struct dfx_cuda_fused_tile {
    int32_t rows, cols;
} dfx_cuda_fused_tile;
bool dfx_cuda_fused_mma_fits(const dfx_cuda *cuda, const dfx_cuda_fused *p);
int dfx_cuda_fused_mma_n_tiles(const dfx_cuda_fused *p);
dfx_cuda_fused_tile dfx_cuda_fused_mma_tile(const dfx_cuda_fused *p, int tile);
int dfx_cuda_fused_mma_guess(const dfx_cuda *cuda, const dfx_cuda_fused *p);
dfx_status dfx_cuda_fused_mma_run_tile(dfx_cuda *cuda, const dfx_cuda_fused *p, int tile);

/* cuda_fused_tune.c: choose a tile by the clock, once for each shape and machine; it may wait. Run with the one that was chosen,
 * else with the guess. */
void dfx_cuda_fused_mma_choose(dfx_cuda *cuda, const dfx_cuda_fused *p);
dfx_status dfx_cuda_fused_mma_run(dfx_cuda *cuda, const dfx_cuda_fused *p);

#ifdef __cplusplus
}
#endif

#endif
