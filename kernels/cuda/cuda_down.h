/* The product with few columns that comes before t u^T in a low-rank pair, of what a quantized LINEAR reads:
 *     y[m,n] = (sum_k x[m,k] w[n,k]) * xs[m]
 * summed in f32, in an order that is the same for every count of rows up to 64, and for every count above that makes as many
 * blocks. */
#ifndef DFX_KERNELS_CUDA_DOWN_H
#define DFX_KERNELS_CUDA_DOWN_H

#include "kernels/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DFX_CUDA_DOWN_COLS = 512 };

/* Rows of matrices begin at multiples of 16 bytes. k is a multiple of 16, n of 8. */
typedef struct dfx_cuda_down {
    dfx_dtype in; /* of x: I8 or F8_E4M3 */
    int64_t m, n, k;
    const void *x, *w; /* [m, k], [n, k]; w is BF16 */
    int64_t ldx, ldw;  /* bytes from a row to the next */
    const float *xs;
    dfx_mat y; /* [m, n] BF16 */
} dfx_cuda_down;

/* Whether it can be done. Addresses may still be NULL. */
bool dfx_cuda_down_fits(const dfx_cuda_down *p);

/* Sums in parts of K go to the workspace. */
size_t dfx_cuda_down_workspace(const dfx_cuda *cuda, const dfx_cuda_down *p);

/* Queue it. It fits. Errors: DFX_E_DEVICE. */
dfx_status dfx_cuda_down_run(dfx_cuda *cuda, const dfx_cuda_down *p);

/* cuda_down_sm90.cu: Hopper's own. Columns of a block; and n_parts of K, sums of which go to the workspace if there
 * is more than one, packed. */
bool dfx_cuda_down_sm90_fits(const dfx_cuda *cuda);
int dfx_cuda_down_sm90_cols(int64_t n);
dfx_status dfx_cuda_down_sm90_run(dfx_cuda *cuda, const dfx_cuda_down *p, int n_parts);

#ifdef __cplusplus
}
#endif

#endif
