/* LINEAR on the CPU: y = r + gate * act(x W^T + b).
 *
 * Tiles: y is cut into tiles of at most 512 x 256 by shape alone, one index each. A tile is summed in worker scratch,
 * K in chunks: each chunk of W rows is widened to f32 beside it (or read in place, when it is aligned f32 already) and
 * multiplied by sgemm. The same chunks either way, so bits do not depend on the dtype or alignment that a weight's
 * values came in. The epilogue then takes the tile, still in cache, to y; so y may be r.
 *
 * Skinny: M <= 64 and weights that are not f32. Each row of W is widened once and dotted with all rows of x; sgemm has
 * no say, so that a row of y does not depend on M. */
#include "kernels/cpu/cpu_internal.h"

enum {
    SKINNY_ROWS = 64,   /* the greatest M of the skinny path */
    SKINNY_GROUP = 16,  /* rows of W an index */
    SKINNY_ABREAST = 4, /* rows of x that share one pass over a row of W */
    CHUNK_K = 1024,
    TILE_GRAIN = 16, /* tile sizes are multiples, so that vectors of sgemm are full */
    TILES_WANTED = 8 /* enough to keep small machines busy; more would pack operands more often */
};

typedef struct tiling {
    int64_t m, n, k;  /* size of a full tile */
    int64_t n_m, n_n; /* tiles along M and N */
    bool skinny;
} tiling;

typedef struct linear {
    const dfx_cpu *cpu;
    const dfx_mat *y, *x, *w, *b, *gate, *r;
    dfx_act act;
    tiling t;
} linear;

/* `total` in pieces of nearly one size, none above `most`. */
static int64_t even_cut(int64_t total, int64_t most) {
    int64_t even = dfx_cpu_ceil_div(total, dfx_cpu_ceil_div(total, most));
    return dfx_cpu_ceil_div(even, TILE_GRAIN) * TILE_GRAIN;
}

/* The largest tiles that still give TILES_WANTED. */
static tiling choose_tiling(const dfx_op_call *call) {
    static const int sizes[][2] = {{512, 256}, {256, 256}, {256, 128}, {128, 128}, {128, 64}};
    const dfx_mat *y = &call->m[0], *w = &call->m[DFX_LINEAR_W];
    tiling t = {.k = even_cut(w->cols, CHUNK_K),
                .skinny = y->rows <= SKINNY_ROWS && w->dtype != DFX_DTYPE_F32};
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        t.m = even_cut(y->rows, sizes[i][0]);
        t.n = even_cut(y->cols, sizes[i][1]);
        t.n_m = dfx_cpu_ceil_div(y->rows, t.m);
        t.n_n = dfx_cpu_ceil_div(y->cols, t.n);
        if (t.n_m * t.n_n >= TILES_WANTED)
            break;
    }
    return t;
}

/* Worker scratch. Tile: sums [t.m, t.n] | widened chunk of W [t.n, t.k] | widened bias [t.n].
 * Skinny: widened row of W [K] | sums of one column of y [SKINNY_ROWS] | widened bias [SKINNY_GROUP]. */
static size_t floats(int64_t n) {
    return dfx_align_up((size_t)n, DFX_LANES);
}

dfx_cpu_scratch_need dfx_cpu_linear_scratch(const dfx_op_call *call) {
    tiling t = choose_tiling(call);
    size_t n = t.skinny ? floats(call->m[DFX_LINEAR_W].cols) + SKINNY_ROWS + SKINNY_GROUP
                        : floats(t.m * t.n) + floats(t.n * t.k) + floats(t.n);
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

/* y[m, n0 .. n0+nb] = r + gate * act(sums + b). */
static void finish_row(const linear *l, int64_t m, int64_t n0, int64_t nb, float *sums,
                       const float *bias) {
    float *y = (float *)l->y->ptr + m * l->y->ld + n0;
    const float *gate = l->gate->ptr ? (const float *)l->gate->ptr + n0 : NULL;
    const float *r = l->r->ptr ? (const float *)l->r->ptr + m * l->r->ld + n0 : NULL;
    if (bias)
        for (int64_t n = 0; n < nb; n++)
            sums[n] += bias[n];
    dfx_cpu_act(l->act, sums, nb);
    if (gate)
        for (int64_t n = 0; n < nb; n++)
            sums[n] *= gate[n];
    for (int64_t n = 0; n < nb; n++)
        y[n] = r ? r[n] + sums[n] : sums[n];
}

static void run_tile(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    const tiling *t = &l->t;
    int64_t m0 = index / t->n_n * t->m, mb = dfx_cpu_min(t->m, l->y->rows - m0);
    int64_t n0 = index % t->n_n * t->n, nb = dfx_cpu_min(t->n, l->y->cols - n0);
    float *sums = dfx_cpu_worker_scratch(l->cpu, worker);
    float *w_buf = sums + floats(t->m * t->n);
    float *bias_buf = w_buf + floats(t->n * t->k);
    const float *x = (const float *)l->x->ptr + m0 * l->x->ld;
    for (int64_t k0 = 0; k0 < l->x->cols; k0 += t->k) {
        int64_t kb = dfx_cpu_min(t->k, l->x->cols - k0), ldw;
        const float *w = chunk_of_w(l->w, n0, nb, k0, kb, w_buf, &ldw);
        dfx_cpu_sgemm(&l->cpu->blas, true, mb, nb, kb, 1.0f, x + k0, l->x->ld, w, ldw,
                      k0 ? 1.0f : 0.0f, sums, nb);
    }
    dfx_mat b = dfx_cpu_row_part(l->b, 0, n0, nb);
    const float *bias = b.ptr ? dfx_cpu_row(&b, 0, bias_buf) : NULL;
    for (int64_t m = 0; m < mb; m++)
        finish_row(l, m0 + m, n0, nb, sums + m * nb, bias);
}

/* Four dfx_cpu_dot of one `a`, each with the very sums that dfx_cpu_dot makes. */
DFX_CPU_CLONES static void dot_abreast(const float *a, const float *b, int64_t ldb, int64_t n,
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

/* Column n of y. */
static void finish_column(const linear *l, int64_t n, float *sums, const float *bias) {
    int64_t n_rows = l->y->rows;
    if (bias)
        for (int64_t m = 0; m < n_rows; m++)
            sums[m] += *bias;
    dfx_cpu_act(l->act, sums, n_rows);
    for (int64_t m = 0; m < n_rows; m++) {
        float value = l->gate->ptr ? sums[m] * ((const float *)l->gate->ptr)[n] : sums[m];
        float *y = (float *)l->y->ptr + m * l->y->ld + n;
        *y = l->r->ptr ? ((const float *)l->r->ptr)[m * l->r->ld + n] + value : value;
    }
}

static void run_skinny(void *ctx, int64_t index, int worker) {
    const linear *l = ctx;
    int64_t n0 = index * SKINNY_GROUP, nb = dfx_cpu_min(SKINNY_GROUP, l->y->cols - n0);
    int64_t n_rows = l->y->rows, width = l->x->cols, ldx = l->x->ld;
    float *w_buf = dfx_cpu_worker_scratch(l->cpu, worker);
    float *sums = w_buf + floats(width);
    float *bias_buf = sums + SKINNY_ROWS;
    const float *x = l->x->ptr;
    dfx_mat b = dfx_cpu_row_part(l->b, 0, n0, nb);
    const float *bias = b.ptr ? dfx_cpu_row(&b, 0, bias_buf) : NULL;
    for (int64_t n = 0; n < nb; n++) {
        const float *w = dfx_cpu_row(l->w, n0 + n, w_buf);
        int64_t m = 0;
        for (; m + SKINNY_ABREAST <= n_rows; m += SKINNY_ABREAST)
            dot_abreast(w, x + m * ldx, ldx, width, sums + m);
        for (; m < n_rows; m++)
            sums[m] = dfx_cpu_dot(w, x + m * ldx, width);
        finish_column(l, n0 + n, sums, bias ? bias + n : NULL);
    }
}

dfx_status dfx_cpu_linear(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    linear l = {.cpu = cpu,
                .y = &m[0],
                .x = &m[DFX_LINEAR_X],
                .w = &m[DFX_LINEAR_W],
                .b = &m[DFX_LINEAR_B],
                .gate = &m[DFX_LINEAR_GATE],
                .r = &m[DFX_LINEAR_R],
                .act = call->p.act,
                .t = choose_tiling(call)};
    if (l.t.skinny)
        return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(l.y->cols, SKINNY_GROUP), run_skinny, &l);
    return dfx_pool_run(cpu->pool, l.t.n_m * l.t.n_n, run_tile, &l);
}
