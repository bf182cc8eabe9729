/* LINEAR on the CPU with int8 weights and int8 activations: the sums over K are exact in int32, so neither tiles nor
 * vectors nor M can change a bit of y.
 *
 * Exact: codes of x are -127..127 and of W -128..127, a product is at most 127 * 128 = 16256, and dfx_op_check refuses
 * K above 132104 = floor((2^31 - 1) / 16256). No sum of some of the products can leave int32 either.
 *
 * First pass, unless x is codes: its rows become codes in shared scratch, a few rows an index. Second pass: y in tiles. K goes in chunks;
 * a chunk of the tile's rows of W, as int16, stays in the second level cache while rows of x pass by it, a panel of
 * PANEL_ROWS at a time, which as int16 stays in the first. Rows and columns that round a panel up are zeros, and what
 * they sum to is never read. */
#include <string.h>

#include "kernels/cpu/cpu_int8.h"
#include "kernels/cpu/cpu_linear_tile.h"
#include "quant/q_rows.h"

enum { ROWS_AN_INDEX = 8, PANEL_ROWS = 8 };

typedef struct linear {
    const dfx_cpu *cpu;
    const dfx_mat *x, *w;
    int8_t *codes; /* of x, [M, K] */
    int64_t ldx;
    float *scales; /* of its rows, [M] */
    dfx_cpu_int8_fn multiply;
    dfx_cpu_end end;
    dfx_cpu_tiling t;
} linear;

static dfx_cpu_tiling choose_tiling(const dfx_op_call *call) {
    static const int sizes[][2] = {{512, 128}, {256, 128}, {128, 128}, {128, 64}};
    dfx_cpu_tiling t = dfx_cpu_tiling_choose(call->m[0].rows, call->m[0].cols,
                                             call->m[DFX_LINEAR_W].cols, sizes, DFX_COUNT(sizes));
    t.k = (int64_t)dfx_align_up((size_t)t.k, DFX_CPU_INT8_DEPTH);
    return t;
}

/* Worker scratch: sums [t.m, t.n] int32 | chunk of W [t.n, t.k] int16 | panel of x [PANEL_ROWS, t.k] int16 | a row of
 * sums [t.n] f32 | bias and scale [2, t.n] f32. Tile sizes are multiples of 16, so each part begins aligned.
 * Shared scratch: codes of x, then scales. */
static size_t codes_bytes(const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    return dfx_align_up((size_t)(x->rows * x->cols), DFX_CPU_INT8_ALIGN);
}

dfx_cpu_scratch_need dfx_cpu_linear_int8_scratch(const dfx_op_call *call) {
    dfx_cpu_tiling t = choose_tiling(call);
    size_t worker = (size_t)(t.m * t.n) * sizeof(int32_t) +
                    (size_t)((t.n + PANEL_ROWS) * t.k) * sizeof(int16_t) +
                    3 * dfx_cpu_floats(t.n) * sizeof(float);
    return (dfx_cpu_scratch_need){worker, codes_bytes(call) +
                                              (size_t)call->m[DFX_LINEAR_X].rows * sizeof(float)};
}

static void quantize_rows(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    int64_t first = index * ROWS_AN_INDEX, width = l->x->cols;
    int64_t end = dfx_cpu_min(first + ROWS_AN_INDEX, l->x->rows);
    for (int64_t m = first; m < end; m++)
        l->scales[m] = dfx_q_token_int8(dfx_cpu_f32(l->x, m), width, l->codes + m * width);
}

/* A part of a matrix of codes as int16: `rows` rows of `cols` codes from `src`, `ld` apart, to rows of `depth`. Zeros
 * fill each row up to `depth`, and rows up to `full_rows`. */
static void widen(const int8_t *src, int64_t ld, int64_t rows, int64_t cols, int64_t full_rows,
                  int64_t depth, int16_t *dst) {
    for (int64_t row = 0; row < rows; row++) {
        dfx_cpu_int8_widen(src + row * ld, cols, dst + row * depth);
        memset(dst + row * depth + cols, 0, (size_t)(depth - cols) * sizeof(*dst));
    }
    memset(dst + rows * depth, 0, (size_t)((full_rows - rows) * depth) * sizeof(*dst));
}

static int64_t up(int64_t n, int64_t multiple) {
    return dfx_cpu_ceil_div(n, multiple) * multiple;
}

/* sums [mb, ld] of the tile, columns up to the next DFX_CPU_INT8_ROWS. */
static void sum_tile(const linear *l, const dfx_cpu_tile *at, int32_t *sums, int64_t ld) {
    int16_t *w = (int16_t *)(sums + l->t.m * l->t.n), *x = w + l->t.n * l->t.k;
    int64_t width = l->x->cols, full_nb = up(at->nb, DFX_CPU_INT8_ROWS);
    memset(sums, 0, (size_t)(up(at->mb, DFX_CPU_INT8_ROWS) * ld) * sizeof(*sums));
    for (int64_t k0 = 0; k0 < width; k0 += l->t.k) {
        int64_t kb = dfx_cpu_min(l->t.k, width - k0), depth = up(kb, DFX_CPU_INT8_DEPTH);
        const int8_t *w_codes = (const int8_t *)l->w->ptr + at->n0 * l->w->ld + k0;
        const int8_t *x_codes = l->codes + at->m0 * l->ldx + k0;
        widen(w_codes, l->w->ld, at->nb, kb, full_nb, depth, w);
        for (int64_t m = 0; m < at->mb; m += PANEL_ROWS) {
            int64_t rows = dfx_cpu_min(PANEL_ROWS, at->mb - m);
            int64_t full_rows = up(rows, DFX_CPU_INT8_ROWS);
            widen(x_codes + m * l->ldx, l->ldx, rows, kb, full_rows, depth, x);
            l->multiply(x, full_rows, w, full_nb, depth, sums + m * ld, ld);
        }
    }
}

static void run_tile(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    const dfx_cpu_tiling *t = &l->t;
    dfx_cpu_tile at = dfx_cpu_tile_at(t, index, l->x->rows, l->w->rows);
    int32_t *sums = dfx_cpu_worker_scratch(l->cpu, worker);
    float *row = (float *)((int16_t *)(sums + t->m * t->n) + (t->n + PANEL_ROWS) * t->k);
    sum_tile(l, &at, sums, t->n);
    dfx_cpu_end_cols cols = dfx_cpu_end_cols_of(&l->end, at.n0, at.nb, row + dfx_cpu_floats(t->n));
    for (int64_t m = 0; m < at.mb; m++) {
        for (int64_t n = 0; n < at.nb; n++)
            row[n] = (float)sums[m * t->n + n];
        dfx_cpu_end_row(&l->end, &cols, at.m0 + m, row);
    }
}

dfx_status dfx_cpu_linear_int8(dfx_cpu *cpu, const dfx_op_call *call) {
    dfx_cpu_int8_kernel kernels[DFX_CPU_INT8_KERNELS];
    dfx_cpu_int8_kernels(kernels);
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    bool is_codes = dfx_op_is_codes(call, DFX_LINEAR_X);
    char *shared = dfx_cpu_shared_scratch(cpu);
    float *scales =
        is_codes ? call->m[DFX_LINEAR_X_SCALE].ptr : (float *)(void *)(shared + codes_bytes(call));
    linear l = {.cpu = cpu,
                .x = x,
                .w = &call->m[DFX_LINEAR_W],
                .codes = is_codes ? x->ptr : (int8_t *)shared,
                .ldx = is_codes ? x->ld : x->cols,
                .scales = scales,
                .multiply = kernels[0].multiply,
                .end = dfx_cpu_end_of(call, scales),
                .t = choose_tiling(call)};
    if (!is_codes)
        DFX_TRY(
            dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(x->rows, ROWS_AN_INDEX), quantize_rows, &l));
    return dfx_pool_run(cpu->pool, l.t.n_m * l.t.n_n, run_tile, &l);
}
