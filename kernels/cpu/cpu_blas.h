/* Products on the CPU: OpenBLAS, loaded when the backend opens rather than when the program starts.
 *
 * OpenBLAS chooses its kernels once, while it is loaded, by the processor's model number; a version older than the
 * processor falls back to SSE3 kernels, six times slower (0.3.21 on Sapphire Rapids: 27 against 173 GFLOP/s). What the
 * processor can do is known here, so it is said in OPENBLAS_CORETYPE while the library loads, unless the user has set it. */
#ifndef DFX_KERNELS_CPU_BLAS_H
#define DFX_KERNELS_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sink.h"

/* C [m,n] = alpha * A [m,k] * op(B) + beta * C, row-major; transpose_b: B is [n,k], else [k,n]. Leading dimensions count
 * values. One thread: the caller's; any number of callers at once. */
typedef struct dfx_cpu_blas {
    void (*cblas_sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta, float *c,
                        int ldc);
} dfx_cpu_blas;

/* Errors: DFX_E_DEVICE when the library is not installed or is not OpenBLAS. It stays loaded for the process. */
dfx_status dfx_cpu_blas_open(const dfx_sink *sink, dfx_cpu_blas *out);

static inline void dfx_cpu_sgemm(const dfx_cpu_blas *blas, bool transpose_b, int64_t m, int64_t n,
                                 int64_t k, float alpha, const float *a, int64_t lda,
                                 const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* of cblas.h */
    blas->cblas_sgemm(ROW_MAJOR, PLAIN, transpose_b ? TRANSPOSED : PLAIN, (int)m, (int)n, (int)k,
                      alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

#endif
