/* What every way of computing LINEAR shares: how y is cut into tiles, and the epilogue that takes sums to y:
 *
 *     y[m,n] = r[m,n] + gate[n] * act(sum[m,n] * row_scale[m] * scale[n] + t[m,:] u[n,:] + b[n])
 *
 * or the codes of that; from the left, each operation rounded to f32 by itself; parts that a call leaves out are skipped. The sum comes first
 * because two scales may have a product that f32 cannot hold where the value itself is an ordinary number. */
#ifndef DFX_KERNELS_CPU_LINEAR_TILE_H
#define DFX_KERNELS_CPU_LINEAR_TILE_H

#include "kernels/cpu/cpu_internal.h"

typedef struct dfx_cpu_tiling {
    int64_t m, n, k;  /* size of a full tile, and of a chunk of K */
    int64_t n_m, n_n; /* tiles along M and N */
} dfx_cpu_tiling;

/* Rectangle of y, less at its ends than a full tile. */
typedef struct dfx_cpu_tile {
    int64_t m0, mb, n0, nb;
} dfx_cpu_tile;

/* The first of sizes[n_sizes], {most rows, most columns} in falling order, that gives enough tiles to keep small
 * machines busy; larger tiles pack operands less often. By shape alone. */
dfx_cpu_tiling dfx_cpu_tiling_choose(int64_t m, int64_t n, int64_t k, const int (*sizes)[2],
                                     size_t n_sizes);
dfx_cpu_tile dfx_cpu_tile_at(const dfx_cpu_tiling *t, int64_t index, int64_t m, int64_t n);

/* n floats, rounded up so that what follows them is aligned too. */
static inline size_t dfx_cpu_floats(int64_t n) {
    return dfx_align_up((size_t)n, DFX_LANES);
}

typedef struct dfx_cpu_end {
    const dfx_mat *y, *b, *gate, *r, *scale, *t, *u; /* borrowed from the call */
    const float *row_scales;                         /* [M], or NULL */
    const float *y_scales;                           /* [M] where y is codes, or NULL */
    dfx_act act;
} dfx_cpu_end;

dfx_cpu_end dfx_cpu_end_of(const dfx_op_call *call, const float *row_scales);

/* Bias and scale of columns [n0, n0 + nb), as f32; NULL where the call has none. */
typedef struct dfx_cpu_end_cols {
    int64_t n0, nb;
    const float *bias, *scale;
} dfx_cpu_end_cols;

/* buf: 2 * dfx_cpu_floats(nb) floats, in use as long as the result. */
dfx_cpu_end_cols dfx_cpu_end_cols_of(const dfx_cpu_end *end, int64_t n0, int64_t nb, float *buf);

/* y[m, n0 .. n0+nb] from sums[nb]; sums are used up. */
void dfx_cpu_end_row(const dfx_cpu_end *end, const dfx_cpu_end_cols *cols, int64_t m, float *sums);

/* Column n0 + n of y, all M rows, from sums[M]; the same bits as by rows. */
void dfx_cpu_end_col(const dfx_cpu_end *end, const dfx_cpu_end_cols *cols, int64_t n, float *sums);

#endif
