/* The factors of a part, from its module's tensors.
 *
 *   plain  down and up as they are; of a fused module all of down and the part's rows of up, of a block diagonal one its block of
 *          both.
 *   LoHa   (a1 b1) * (a2 b2), elementwise: row j of up holds a1[j,p] a2[j,q], column c of down b1[p,c] b2[q,c], at p r2 + q
 *          (the row-wise and the column-wise Khatri-Rao product).
 *   LoKr   kron(u1, u2) kron(d1, d2) of w1 = u1 d1, w2 = u2 d2. */
#include <string.h>

#include "models/lora_inside.h"

static const dfx_lora_origin *origin_of(const dfx_lora *lora, const dfx_lora_part *part) {
    return &lora->origins[part - lora->parts];
}

/* The module's row that is row j of the part. */
static int64_t module_row(const dfx_lora_module *m, const dfx_lora_origin *o, int64_t n,
                          int64_t j) {
    return o->row + (m->alias->halves_swapped ? (j + n / 2) % n : j);
}

/* Columns [col, col + n_cols) of the part's rows of a factor with the module's rows: dst [n, n_cols]. */
static dfx_status read_rows(const dfx_lora *lora, const dfx_lora_part *part,
                            const dfx_lora_matrix *matrix, int64_t col, int64_t n_cols,
                            const dfx_sink *sink, float *dst) {
    const dfx_lora_origin *o = origin_of(lora, part);
    const dfx_lora_module *m = &lora->modules[o->module_idx];
    int64_t n = part->n, first = m->alias->halves_swapped ? n / 2 : n;
    DFX_TRY(dfx_lora_read_block(lora->set, matrix, module_row(m, o, n, 0), first, col, n_cols, sink,
                                dst));
    if (first == n)
        return DFX_OK;
    return dfx_lora_read_block(lora->set, matrix, module_row(m, o, n, first), n - first, col,
                               n_cols, sink, dst + first * n_cols);
}

static dfx_status read_all(const dfx_lora *lora, const dfx_lora_matrix *matrix,
                           const dfx_sink *sink, float *dst) {
    return dfx_lora_read_block(lora->set, matrix, 0, matrix->rows, 0, matrix->cols, sink, dst);
}

static dfx_status plain_factors(const dfx_lora *lora, const dfx_lora_part *part,
                                const dfx_sink *sink, float *down, float *up) {
    const dfx_lora_origin *o = origin_of(lora, part);
    const dfx_lora_module *m = &lora->modules[o->module_idx];
    int64_t first = m->block_diagonal ? part->rank * o->cut : 0;
    DFX_TRY(dfx_lora_read_block(lora->set, &m->matrices[DFX_LORA_DOWN], first, part->rank, 0,
                                part->k, sink, down));
    return read_rows(lora, part, &m->matrices[DFX_LORA_UP], first, part->rank, sink, up);
}

/* Room for the values of four factors. */
typedef struct workspace {
    float *a1, *b1, *a2, *b2; /* owned */
} workspace;

static dfx_status workspace_begin(workspace *w, const dfx_sink *sink, int64_t a1, int64_t b1,
                                  int64_t a2, int64_t b2) {
    *w = (workspace){0};
    DFX_TRY(dfx_new_array(sink, (size_t)a1, "lora", &w->a1));
    DFX_TRY(dfx_new_array(sink, (size_t)b1, "lora", &w->b1));
    DFX_TRY(dfx_new_array(sink, (size_t)a2, "lora", &w->a2));
    return dfx_new_array(sink, (size_t)b2, "lora", &w->b2);
}

static void workspace_end(workspace *w) {
    dfx_free(w->a1);
    dfx_free(w->b1);
    dfx_free(w->a2);
    dfx_free(w->b2);
}

/* out[p n2 + q] = x[p] y[q] */
static void outer(float *out, const float *x, int64_t n1, const float *y, int64_t n2) {
    for (int64_t p = 0; p < n1; p++)
        for (int64_t q = 0; q < n2; q++)
            out[p * n2 + q] = x[p] * y[q];
}

static dfx_status loha_factors(const dfx_lora *lora, const dfx_lora_part *part,
                               const dfx_sink *sink, float *down, float *up) {
    const dfx_lora_module *m = &lora->modules[origin_of(lora, part)->module_idx];
    int64_t r1 = m->matrices[DFX_LORA_HADA_W1_B].rows, r2 = m->matrices[DFX_LORA_HADA_W2_B].rows;
    int64_t n = part->n, k = part->k;
    workspace w;
    dfx_status status;
    DFX_TRY_OUT(status, workspace_begin(&w, sink, n * r1, r1 * k, n * r2, r2 * k));
    DFX_TRY_OUT(status, read_rows(lora, part, &m->matrices[DFX_LORA_HADA_W1_A], 0, r1, sink, w.a1));
    DFX_TRY_OUT(status, read_rows(lora, part, &m->matrices[DFX_LORA_HADA_W2_A], 0, r2, sink, w.a2));
    DFX_TRY_OUT(status, read_all(lora, &m->matrices[DFX_LORA_HADA_W1_B], sink, w.b1));
    DFX_TRY_OUT(status, read_all(lora, &m->matrices[DFX_LORA_HADA_W2_B], sink, w.b2));
    for (int64_t j = 0; j < n; j++)
        outer(up + j * r1 * r2, w.a1 + j * r1, r1, w.a2 + j * r2, r2);
    for (int64_t p = 0; p < r1; p++)
        for (int64_t q = 0; q < r2; q++)
            for (int64_t c = 0; c < k; c++)
                down[(p * r2 + q) * k + c] = w.b1[p * k + c] * w.b2[q * k + c];
out:
    workspace_end(&w);
    return status;
}

static void set_identity(float *out, int64_t n) {
    memset(out, 0, (size_t)(n * n) * sizeof(*out));
    for (int64_t i = 0; i < n; i++)
        out[i * n + i] = 1;
}

/* out [o, i] = a [o, r] b [r, i] */
static void multiply(float *out, const float *a, const float *b, int64_t o, int64_t r, int64_t i) {
    for (int64_t y = 0; y < o; y++)
        for (int64_t x = 0; x < i; x++) {
            double sum = 0;
            for (int64_t p = 0; p < r; p++)
                sum += (double)a[y * r + p] * (double)b[p * i + x];
            out[y * i + x] = (float)sum;
        }
}

/* w of a LoKr as u [o, r] d [r, i]. A product of an inner side beyond o and i is multiplied out, and is then a whole w. */
static dfx_status kron_side(const dfx_lora *lora, const dfx_lora_module *m, dfx_lora_role whole,
                            int64_t o, int64_t i, int64_t r, const dfx_sink *sink, float *u,
                            float *d) {
    const dfx_lora_matrix *w = &m->matrices[whole], *a = w + 1, *b = w + 2;
    float *to = i <= o ? u : d; /* where a whole w goes; the other is the identity */
    workspace tmp;
    if (!w->tensor && b->rows == r) {
        DFX_TRY(read_all(lora, a, sink, u));
        return read_all(lora, b, sink, d);
    }
    set_identity(i <= o ? d : u, r);
    if (w->tensor)
        return read_all(lora, w, sink, to);
    dfx_status status = workspace_begin(&tmp, sink, o * a->cols, a->cols * i, 0, 0);
    if (status == DFX_OK)
        status = read_all(lora, a, sink, tmp.a1);
    if (status == DFX_OK)
        status = read_all(lora, b, sink, tmp.b1);
    if (status == DFX_OK)
        multiply(to, tmp.a1, tmp.b1, o, a->cols, i);
    workspace_end(&tmp);
    return status;
}

static dfx_status lokr_factors(const dfx_lora *lora, const dfx_lora_part *part,
                               const dfx_sink *sink, float *down, float *up) {
    const dfx_lora_origin *origin = origin_of(lora, part);
    const dfx_lora_module *m = &lora->modules[origin->module_idx];
    const dfx_lora_kron *q = &m->kron;
    workspace w;
    dfx_status status;
    DFX_TRY_OUT(status, workspace_begin(&w, sink, q->o1 * q->r1, q->r1 * q->i1, q->o2 * q->r2,
                                        q->r2 * q->i2));
    DFX_TRY_OUT(status,
                kron_side(lora, m, DFX_LORA_LOKR_W1, q->o1, q->i1, q->r1, sink, w.a1, w.b1));
    DFX_TRY_OUT(status,
                kron_side(lora, m, DFX_LORA_LOKR_W2, q->o2, q->i2, q->r2, sink, w.a2, w.b2));
    for (int64_t j = 0; j < part->n; j++) {
        int64_t row = module_row(m, origin, part->n, j);
        outer(up + j * part->rank, w.a1 + row / q->o2 * q->r1, q->r1, w.a2 + row % q->o2 * q->r2,
              q->r2);
    }
    for (int64_t p = 0; p < q->r1; p++)
        for (int64_t s = 0; s < q->r2; s++)
            outer(down + (p * q->r2 + s) * part->k, w.b1 + p * q->i1, q->i1, w.b2 + s * q->i2,
                  q->i2);
out:
    workspace_end(&w);
    return status;
}

dfx_status dfx_lora_factors(const dfx_lora *lora, const dfx_lora_part *part, const dfx_sink *sink,
                            float *down, float *up) {
    switch (lora->modules[origin_of(lora, part)->module_idx].kind) {
    case DFX_LORA_LOHA:
        return loha_factors(lora, part, sink, down, up);
    case DFX_LORA_LOKR:
        return lokr_factors(lora, part, sink, down, up);
    default:
        return plain_factors(lora, part, sink, down, up);
    }
}

dfx_status dfx_lora_magnitude(const dfx_lora *lora, const dfx_lora_part *part, const dfx_sink *sink,
                              float *out) {
    const dfx_tensor *t =
        lora->modules[origin_of(lora, part)->module_idx].tensors[DFX_LORA_MAGNITUDE];
    int64_t n = t ? (int64_t)t->n_elements : 0;
    dfx_lora_matrix column = {t, n, 1};
    if (part->magnitude == DFX_LORA_MAGNITUDE_ROWS)
        return read_rows(lora, part, &column, 0, 1, sink, out);
    if (part->magnitude == DFX_LORA_MAGNITUDE_COLUMNS)
        return read_all(lora, &column, sink, out);
    return dfx_fail(sink, DFX_E_USAGE, "%s: %s has no magnitude", lora->path, part->module);
}
