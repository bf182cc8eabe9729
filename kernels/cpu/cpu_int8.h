/* Products of int8 codes, exact in int32: the innermost loops of int8 LINEAR, once for each vector unit.
 *
 * Codes come widened to int16, because multiplying pairs of int16 and adding the two products to an int32 is one
 * instruction, or two, of every x86 vector unit since SSE2, of signed numbers and without saturation; the
 * instructions for bytes need one side unsigned. The bits are the same in every kernel: they are integers. */
#ifndef DFX_KERNELS_CPU_INT8_H
#define DFX_KERNELS_CPU_INT8_H

#include <stdint.h>

/* Operands come in multiples of ROWS rows and DEPTH columns, ALIGN bytes aligned. */
enum { DFX_CPU_INT8_ROWS = 4, DFX_CPU_INT8_DEPTH = 32, DFX_CPU_INT8_ALIGN = 64 };

/* sums[i, j] += sum over k of x[i, k] * w[j, k].   x [m, k] and w [n, k], packed; sums [m, n] in rows of ld. The caller
 * knows that no sum can leave int32. Fast while x fits the first level of cache and w the second. */
typedef void (*dfx_cpu_int8_fn)(const int16_t *x, int64_t m, const int16_t *w, int64_t n, int64_t k,
                                int32_t *sums, int64_t ld);

typedef struct dfx_cpu_int8_kernel {
    const char *name;
    dfx_cpu_int8_fn multiply;
} dfx_cpu_int8_kernel;

/* Those that this processor can run, the fastest first; returns their number, at least 1. */
enum { DFX_CPU_INT8_KERNELS = 4 };
int dfx_cpu_int8_kernels(dfx_cpu_int8_kernel out[DFX_CPU_INT8_KERNELS]);

/* dst[i] = src[i], i < n. */
void dfx_cpu_int8_widen(const int8_t *src, int64_t n, int16_t *dst);

#endif
