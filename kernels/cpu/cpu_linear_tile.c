/* See cpu_linear_tile.h. */
#include "kernels/cpu/cpu_linear_tile.h"
#include "quant/q_rows.h"

enum {
    TILE_GRAIN = 16, /* tile sizes are multiples, so that vectors of sgemm are full */
    TILES_WANTED = 8,
    CHUNK_K = 1024
};

/* `total` in pieces of nearly one size, none above `most`. */
static int64_t even_cut(int64_t total, int64_t most) {
    int64_t even = dfx_cpu_ceil_div(total, dfx_cpu_ceil_div(total, most));
    return dfx_cpu_ceil_div(even, TILE_GRAIN) * TILE_GRAIN;
}

dfx_cpu_tiling dfx_cpu_tiling_choose(int64_t m, int64_t n, int64_t k, const int (*sizes)[2],
                                     size_t n_sizes) {
    dfx_cpu_tiling t = {.k = even_cut(k, CHUNK_K)};
    for (size_t i = 0; i < n_sizes; i++) {
        t.m = even_cut(m, sizes[i][0]);
        t.n = even_cut(n, sizes[i][1]);
        t.n_m = dfx_cpu_ceil_div(m, t.m);
        t.n_n = dfx_cpu_ceil_div(n, t.n);
        if (t.n_m * t.n_n >= TILES_WANTED)
            break;
    }
    return t;
}

dfx_cpu_tile dfx_cpu_tile_at(const dfx_cpu_tiling *t, int64_t index, int64_t m, int64_t n) {
    int64_t m0 = index / t->n_n * t->m, n0 = index % t->n_n * t->n;
    return (dfx_cpu_tile){m0, dfx_cpu_min(t->m, m - m0), n0, dfx_cpu_min(t->n, n - n0)};
}

dfx_cpu_end dfx_cpu_end_of(const dfx_op_call *call, const float *row_scales) {
    const dfx_mat *m = call->m;
    return (dfx_cpu_end){.y = &m[0],
                         .b = &m[DFX_LINEAR_B],
                         .gate = &m[DFX_LINEAR_GATE],
                         .r = &m[DFX_LINEAR_R],
                         .scale = &m[DFX_LINEAR_SCALE],
                         .t = &m[DFX_LINEAR_T],
                         .u = &m[DFX_LINEAR_U],
                         .row_scales = row_scales,
                         .y_scales = m[DFX_LINEAR_Y_SCALE].ptr,
                         .act = call->p.act};
}

static const float *cols_of(const dfx_mat *row, int64_t n0, int64_t nb, float *buf) {
    dfx_mat part = dfx_cpu_row_part(row, 0, n0, nb);
    return part.ptr ? dfx_cpu_row(&part, 0, buf) : NULL;
}

dfx_cpu_end_cols dfx_cpu_end_cols_of(const dfx_cpu_end *end, int64_t n0, int64_t nb, float *buf) {
    return (dfx_cpu_end_cols){n0, nb, cols_of(end->b, n0, nb, buf),
                              cols_of(end->scale, n0, nb, buf + dfx_cpu_floats(nb))};
}

static float adapted(const dfx_cpu_end *end, int64_t m, int64_t n) {
    return dfx_cpu_dot(dfx_cpu_f32(end->t, m), dfx_cpu_f32(end->u, n), end->t->cols);
}

static uint8_t *codes_at(const dfx_cpu_end *end, int64_t m, int64_t n) {
    return (uint8_t *)end->y->ptr + m * end->y->ld + n;
}

void dfx_cpu_end_row(const dfx_cpu_end *end, const dfx_cpu_end_cols *cols, int64_t m, float *sums) {
    int64_t nb = cols->nb;
    const float *gate = end->gate->ptr ? dfx_cpu_f32(end->gate, 0) + cols->n0 : NULL;
    const float *r = end->r->ptr ? dfx_cpu_f32(end->r, m) + cols->n0 : NULL;
    if (end->row_scales)
        for (int64_t n = 0; n < nb; n++)
            sums[n] *= end->row_scales[m];
    if (cols->scale)
        for (int64_t n = 0; n < nb; n++)
            sums[n] *= cols->scale[n];
    if (end->t->ptr)
        for (int64_t n = 0; n < nb; n++)
            sums[n] += adapted(end, m, cols->n0 + n);
    if (cols->bias)
        for (int64_t n = 0; n < nb; n++)
            sums[n] += cols->bias[n];
    dfx_cpu_act(end->act, sums, nb);
    if (end->y_scales) {
        dfx_q_token_fp8_scaled(sums, nb, end->y_scales[m], codes_at(end, m, cols->n0));
        return;
    }
    float *y = dfx_cpu_f32(end->y, m) + cols->n0;
    if (gate)
        for (int64_t n = 0; n < nb; n++)
            sums[n] *= gate[n];
    for (int64_t n = 0; n < nb; n++)
        y[n] = r ? r[n] + sums[n] : sums[n];
}

void dfx_cpu_end_col(const dfx_cpu_end *end, const dfx_cpu_end_cols *cols, int64_t n, float *sums) {
    int64_t n_rows = end->y->rows, col = cols->n0 + n;
    if (end->row_scales)
        for (int64_t m = 0; m < n_rows; m++)
            sums[m] *= end->row_scales[m];
    if (cols->scale)
        for (int64_t m = 0; m < n_rows; m++)
            sums[m] *= cols->scale[n];
    if (end->t->ptr)
        for (int64_t m = 0; m < n_rows; m++)
            sums[m] += adapted(end, m, col);
    if (cols->bias)
        for (int64_t m = 0; m < n_rows; m++)
            sums[m] += cols->bias[n];
    dfx_cpu_act(end->act, sums, n_rows);
    for (int64_t m = 0; m < n_rows && end->y_scales; m++)
        dfx_q_token_fp8_scaled(&sums[m], 1, end->y_scales[m], codes_at(end, m, col));
    for (int64_t m = 0; m < n_rows && !end->y_scales; m++) {
        float value = end->gate->ptr ? sums[m] * dfx_cpu_f32(end->gate, 0)[col] : sums[m];
        dfx_cpu_f32(end->y, m)[col] = end->r->ptr ? dfx_cpu_f32(end->r, m)[col] + value : value;
    }
}
