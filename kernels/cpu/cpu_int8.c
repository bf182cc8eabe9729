/* One loop in C, compiled for several vector units: the compiler finds in it the multiply-add of pairs.
 *
 * A block of y, 4 rows by 4 or 2 columns, is summed with one vector of partial sums for each value, so that what is
 * loaded from one row of x meets all columns of the block. 16 sums need the 32 registers of AVX-512; with 16 registers
 * 8 sums are faster. Functions are chosen by asking the processor here, not by target_clones, which cannot name these
 * units on every gcc that builds us, and so that tests can run each of them.
 *
 * One thread of a Sapphire Rapids (2 shared cores), operands in cache, K = 1024, in 10^9 multiplies and adds a second:
 * vnni 340, avx512 195, avx2 140, plain (SSE2) 75. sgemm of OpenBLAS: 173. */
#include "kernels/cpu/cpu_int8.h"

#include "kernels/cpu/cpu_internal.h"

enum { ROWS = DFX_CPU_INT8_ROWS };

#define ALWAYS_INLINE DFX_CPU_INNERMOST static inline __attribute__((always_inline))

/* `cols` is a constant at every call. */
ALWAYS_INLINE void multiply_block(const int16_t *x, const int16_t *w, int64_t k, int32_t *sums,
                                  int64_t ld, int cols) {
    int32_t block[ROWS][ROWS] = {{0}};
    int64_t n_pieces = k / DFX_CPU_INT8_DEPTH;
    for (int64_t i = 0; i < n_pieces * DFX_CPU_INT8_DEPTH; i++)
        for (int m = 0; m < ROWS; m++)
            for (int n = 0; n < cols; n++)
                block[m][n] += x[m * k + i] * w[n * k + i];
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < cols; n++)
            sums[m * ld + n] += block[m][n];
}

ALWAYS_INLINE void multiply_all(const int16_t *x, int64_t m, const int16_t *w, int64_t n, int64_t k,
                                int32_t *sums, int64_t ld, int cols) {
    for (int64_t j = 0; j < n; j += cols)
        for (int64_t i = 0; i < m; i += ROWS)
            multiply_block(x + i * k, w + j * k, k, sums + i * ld + j, ld, cols);
}

DFX_CPU_INNERMOST static void multiply_plain(const int16_t *x, int64_t m, const int16_t *w,
                                             int64_t n, int64_t k, int32_t *sums, int64_t ld) {
    multiply_all(x, m, w, n, k, sums, ld, 2);
}

#if defined(__x86_64__)
DFX_CPU_INNERMOST __attribute__((target("avx2"))) static void multiply_avx2(
    const int16_t *x, int64_t m, const int16_t *w, int64_t n, int64_t k, int32_t *sums,
    int64_t ld) {
    multiply_all(x, m, w, n, k, sums, ld, 2);
}

DFX_CPU_INNERMOST __attribute__((target("avx512f,avx512bw"))) static void multiply_avx512(
    const int16_t *x, int64_t m, const int16_t *w, int64_t n, int64_t k, int32_t *sums,
    int64_t ld) {
    multiply_all(x, m, w, n, k, sums, ld, 4);
}

DFX_CPU_INNERMOST __attribute__((target("avx512f,avx512bw,avx512vnni"))) static void multiply_vnni(
    const int16_t *x, int64_t m, const int16_t *w, int64_t n, int64_t k, int32_t *sums,
    int64_t ld) {
    multiply_all(x, m, w, n, k, sums, ld, 4);
}
#endif

int dfx_cpu_int8_kernels(dfx_cpu_int8_kernel out[DFX_CPU_INT8_KERNELS]) {
    int n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        out[n++] = (dfx_cpu_int8_kernel){"vnni", multiply_vnni};
    if (__builtin_cpu_supports("avx512bw"))
        out[n++] = (dfx_cpu_int8_kernel){"avx512", multiply_avx512};
    if (__builtin_cpu_supports("avx2"))
        out[n++] = (dfx_cpu_int8_kernel){"avx2", multiply_avx2};
#endif
    out[n++] = (dfx_cpu_int8_kernel){"plain", multiply_plain};
    return n;
}

DFX_CPU_CLONES void dfx_cpu_int8_widen(const int8_t *src, int64_t n, int16_t *dst) {
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i];
}
