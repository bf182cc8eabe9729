/* Products by cuBLASLt. The library is loaded when a backend opens, so the program starts without it.
 *
 * Bits: a product's algorithm may be chosen by a clock, its result not: only algorithms that give the very bits of the
 * heuristic's first one are candidates (cuda_tune.c). So the same product gives the same bits in every process on the same
 * kind of device with the same library, prepared or not. */
#ifndef DFX_KERNELS_CUDA_GEMM_H
#define DFX_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/cuda_internal.h"

/* y[m,n] = act(alpha * sum_k x[m,k] w[n,k] + b[n] + r[m,n]), row-major, leading dimensions in values.
 *   in  BF16, I8 or F8_E4M3: of x and w.   out  of y: BF16 or F32; I32, exact, for I8 alone.
 * I8 and F8_E4M3: w as [N,K]; N, K and leading dimensions are multiples of 16, addresses too. */
typedef struct dfx_cuda_product {
    dfx_dtype in, out;
    bool w_transposed; /* w is [N,K], else [K,N] */
    float alpha;       /* 1 for I8 */
    dfx_act act;       /* NONE, or GELU_TANH without r and with y in BF16 */
    int64_t m, n, k;
    const void *x, *w;
    int64_t ldx, ldw;
    const void *b,
        *r; /* BF16, NULL: none; only beside y in BF16. r may be y with the same leading dimension */
    int64_t ldr;
    void *y;
    int64_t ldy;
    bool has_b, has_r; /* for prepare, which may not know addresses */
} dfx_cuda_product;

/* Choose the algorithm now, by the clock where that can matter; waits. Addresses count by their alignment, NULL as
 * aligned. Errors: DFX_E_DEVICE. */
dfx_status dfx_cuda_product_prepare(dfx_cuda *cuda, const dfx_cuda_product *product);

/* Queue it. One that was not prepared gets the heuristic's first algorithm. */
dfx_status dfx_cuda_product_run(dfx_cuda *cuda, const dfx_cuda_product *product);

/* Keep what was chosen since, for the next process: when a session's products are prepared. */
void dfx_cuda_products_keep(dfx_cuda *cuda);

/* What products want of the workspace, behind the ops' part: (char *)workspace + workspace_bytes. */
size_t dfx_cuda_blas_workspace_bytes(const dfx_cuda *cuda);

#endif
