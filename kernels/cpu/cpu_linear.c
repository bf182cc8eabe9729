/* LINEAR on the CPU with products in f32: y = r + gate * act(x W^T + b), W of any dtype, widened.
 *
 * Tiles: y is cut into tiles of at most 512 x 256 by shape alone, one index each. A tile is summed in worker scratch,
 * K in chunks: each chunk of W rows is widened to f32 beside it (or read in place, when it is aligned f32 already) and
 * multiplied by sgemm. The same chunks either way, so bits do not depend on the dtype or alignment that a weight's
 * values came in. The epilogue then takes the tile, still in cache, to y; so y may be r.
 *
 * Skinny: M <= 64 and weights that are not f32. Each row of W is widened once and dotted with all rows of x; sgemm has
 * no say, so that a row of y does not depend on M.
 *
 * cpu_linear_q.c comes here too, with codes for W: the scales belong to the epilogue. */
#include "kernels/cpu/cpu_linear_tile.h"

enum {
    SKINNY_ROWS = 64,  /* the greatest M of the skinny path */
    SKINNY_GROUP = 16, /* rows of W an index */
    SKINNY_ABREAST = 4 /* rows of x that share one pass over a row of W */
};

typedef struct linear {
    const dfx_cpu *cpu;
    const dfx_mat *x, *w;
    dfx_cpu_end end;
    dfx_cpu_tiling t;
} linear;

static bool is_skinny(const dfx_op_call *call) {
    return call->m[0].rows <= SKINNY_ROWS && call->m[DFX_LINEAR_W].dtype != DFX_DTYPE_F32;
}

static dfx_cpu_tiling choose_tiling(const dfx_op_call *call) {
    static const int sizes[][2] = {{512, 256}, {256, 256}, {256, 128}, {128, 128}, {128, 64}};
    return dfx_cpu_tiling_choose(call->m[0].rows, call->m[0].cols, call->m[DFX_LINEAR_W].cols,
                                 sizes, DFX_COUNT(sizes));
}

/* Worker scratch. Tile: sums [t.m, t.n] | widened chunk of W [t.n, t.k] | bias and scale [2, t.n].
 * Skinny: widened row of W [K] | sums of one column of y [SKINNY_ROWS] | bias and scale [2, SKINNY_GROUP]. */
dfx_cpu_scratch_need dfx_cpu_linear_scratch(const dfx_op_call *call) {
    dfx_cpu_tiling t = choose_tiling(call);
    size_t n =
        is_skinny(call)
            ? dfx_cpu_floats(call->m[DFX_LINEAR_W].cols) + SKINNY_ROWS + 2 * SKINNY_GROUP
            : dfx_cpu_floats(t.m * t.n) + dfx_cpu_floats(t.n * t.k) + 2 * dfx_cpu_floats(t.n);
    return (dfx_cpu_scratch_need){.worker_bytes = n * sizeof(float)};
}

/* W[n0 .. n0+nb, k0 .. k0+kb] as f32; *ld is its leading dimension. */
static const float *chunk_of_w(const dfx_mat *w, int64_t n0, int64_t nb, int64_t k0, int64_t kb,
                               float *buf, int64_t *ld) {
    if (w->dtype == DFX_DTYPE_F32 && (uintptr_t)w->ptr % sizeof(float) == 0) {
        *ld = w->ld;
        return (const float *)w->ptr + n0 * w->ld + k0;
    }
    *ld = kb;
    for (int64_t n = 0; n < nb; n++) {
        dfx_mat part = dfx_cpu_row_part(w, n0 + n, k0, kb);
        dfx_to_f32(part.dtype, part.ptr, buf + n * kb, (size_t)kb);
    }
    return buf;
}

static void run_tile(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    const dfx_cpu_tiling *t = &l->t;
    dfx_cpu_tile at = dfx_cpu_tile_at(t, index, l->x->rows, l->w->rows);
    float *sums = dfx_cpu_worker_scratch(l->cpu, worker);
    float *w_buf = sums + dfx_cpu_floats(t->m * t->n);
    float *cols_buf = w_buf + dfx_cpu_floats(t->n * t->k);
    const float *x = dfx_cpu_f32(l->x, at.m0);
    for (int64_t k0 = 0; k0 < l->x->cols; k0 += t->k) {
        int64_t kb = dfx_cpu_min(t->k, l->x->cols - k0), ldw;
        const float *w = chunk_of_w(l->w, at.n0, at.nb, k0, kb, w_buf, &ldw);
        dfx_cpu_sgemm(&l->cpu->blas, true, at.mb, at.nb, kb, 1.0f, x + k0, l->x->ld, w, ldw,
                      k0 ? 1.0f : 0.0f, sums, at.nb);
    }
    dfx_cpu_end_cols cols = dfx_cpu_end_cols_of(&l->end, at.n0, at.nb, cols_buf);
    for (int64_t m = 0; m < at.mb; m++)
        dfx_cpu_end_row(&l->end, &cols, at.m0 + m, sums + m * at.nb);
}

/* Four dfx_cpu_dot of one `a`, each with the very sums that dfx_cpu_dot makes. */
DFX_CPU_INNERMOST DFX_CPU_CLONES static void dot_abreast(const float *a, const float *b,
                                                         int64_t ldb, int64_t n,
                                                         float out[SKINNY_ABREAST]) {
    float lane[SKINNY_ABREAST][DFX_LANES] = {{0}};
    const float *b0 = b, *b1 = b + ldb, *b2 = b + 2 * ldb, *b3 = b + 3 * ldb;
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int l = 0; l < DFX_LANES; l++) {
            lane[0][l] += a[i + l] * b0[i + l];
            lane[1][l] += a[i + l] * b1[i + l];
            lane[2][l] += a[i + l] * b2[i + l];
            lane[3][l] += a[i + l] * b3[i + l];
        }
    for (int l = 0; i + l < n; l++)
        for (int m = 0; m < SKINNY_ABREAST; m++)
            lane[m][l] += a[i + l] * b[m * ldb + i + l];
    for (int m = 0; m < SKINNY_ABREAST; m++) {
        for (int half = DFX_LANES / 2; half > 0; half /= 2)
            for (int l = 0; l < half; l++)
                lane[m][l] += lane[m][l + half];
        out[m] = lane[m][0];
    }
}

static void run_skinny(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    int64_t n0 = index * SKINNY_GROUP, nb = dfx_cpu_min(SKINNY_GROUP, l->w->rows - n0);
    int64_t n_rows = l->x->rows, width = l->x->cols, ldx = l->x->ld;
    float *w_buf = dfx_cpu_worker_scratch(l->cpu, worker);
    float *sums = w_buf + dfx_cpu_floats(width);
    const float *x = l->x->ptr;
    dfx_cpu_end_cols cols = dfx_cpu_end_cols_of(&l->end, n0, nb, sums + SKINNY_ROWS);
    for (int64_t n = 0; n < nb; n++) {
        const float *w = dfx_cpu_row(l->w, n0 + n, w_buf);
        int64_t m = 0;
        for (; m + SKINNY_ABREAST <= n_rows; m += SKINNY_ABREAST)
            dot_abreast(w, x + m * ldx, ldx, width, sums + m);
        for (; m < n_rows; m++)
            sums[m] = dfx_cpu_dot(w, x + m * ldx, width);
        dfx_cpu_end_col(&l->end, &cols, n, sums);
    }
}

dfx_status dfx_cpu_linear_products(dfx_cpu *cpu, const dfx_op_call *call, const dfx_mat *x,
                                   const float *row_scales) {
    linear l = {.cpu = cpu,
                .x = x,
                .w = &call->m[DFX_LINEAR_W],
                .end = dfx_cpu_end_of(call, row_scales),
                .t = choose_tiling(call)};
    if (is_skinny(call))
        return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(l.w->rows, SKINNY_GROUP), run_skinny, &l);
    return dfx_pool_run(cpu->pool, l.t.n_m * l.t.n_n, run_tile, &l);
}

dfx_status dfx_cpu_linear(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_cpu_linear_products(cpu, call, &call->m[DFX_LINEAR_X], NULL);
}
