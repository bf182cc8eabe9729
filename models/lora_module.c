/* One module of a LoRA file: which kind it is, whether its tensors go together and with the layer, what its scale is, and which of
 * its parts do nothing. Every value of the file is looked at here, once. Formulas: LyCORIS, PEFT (spec of LoRA formats, 5 and 7). */
#include <inttypes.h>
#include <math.h>

#include "models/lora_alpha.h"

static dfx_status bad(const dfx_lora *lora, const dfx_sink *sink, const char *name,
                      const char *rule) {
    return dfx_fail(sink, DFX_E_FORMAT, "%s: %.200s: %s", lora->path, name, rule);
}

static bool has(const dfx_lora_module *m, dfx_lora_role role) {
    return m->tensors[role] != NULL;
}

static bool has_any(const dfx_lora_module *m, dfx_lora_role first, dfx_lora_role last) {
    for (int role = (int)first; role <= (int)last; role++)
        if (m->tensors[role])
            return true;
    return false;
}

static dfx_status check_pair(const dfx_lora *lora, const dfx_sink *sink, const dfx_lora_module *m) {
    if (has(m, DFX_LORA_DOWN) && has(m, DFX_LORA_UP))
        return DFX_OK;
    bool down = has(m, DFX_LORA_DOWN);
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: %.200s stands alone: wanted the module's other factor (%s) beside it",
                    lora->path, m->tensors[down ? DFX_LORA_DOWN : DFX_LORA_UP]->name,
                    down ? "lora_B or lora_up" : "lora_A or lora_down");
}

/* A factor of LoKr is whole, or a product of two. */
static bool is_kron_side(const dfx_lora_module *m, dfx_lora_role whole) {
    bool a = has(m, whole + 1), b = has(m, whole + 2);
    return has(m, whole) ? !a && !b : a && b;
}

static dfx_status find_kind(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    bool plain = has_any(m, DFX_LORA_DOWN, DFX_LORA_UP);
    bool loha = has_any(m, DFX_LORA_HADA_W1_A, DFX_LORA_HADA_W2_B);
    bool lokr = has_any(m, DFX_LORA_LOKR_W1, DFX_LORA_LOKR_W2_B);
    if (plain + loha + lokr == 0)
        return bad(lora, sink, m->name, "only an alpha or a magnitude, and no factors");
    if (plain + loha + lokr > 1)
        return bad(lora, sink, m->name, "factors of two kinds (LoRA, LoHa, LoKr) for one layer");
    m->kind = plain ? DFX_LORA_PLAIN : loha ? DFX_LORA_LOHA : DFX_LORA_LOKR;
    if (plain)
        return check_pair(lora, sink, m);
    if (loha && !(has(m, DFX_LORA_HADA_W1_A) && has(m, DFX_LORA_HADA_W1_B) &&
                  has(m, DFX_LORA_HADA_W2_A) && has(m, DFX_LORA_HADA_W2_B)))
        return bad(lora, sink, m->name, "LoHa wants hada_w1_a, hada_w1_b, hada_w2_a and hada_w2_b");
    if (lokr && !(is_kron_side(m, DFX_LORA_LOKR_W1) && is_kron_side(m, DFX_LORA_LOKR_W2)))
        return bad(lora, sink, m->name,
                   "LoKr wants lokr_w1 or lokr_w1_a and lokr_w1_b, and the same of lokr_w2");
    return DFX_OK;
}

static dfx_status find_matrices(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    char shape[DFX_SHAPE_TEXT];
    for (int role = 0; role < DFX_LORA_N_FACTORS; role++)
        if (m->tensors[role] && !dfx_lora_matrix_of(m->tensors[role], &m->matrices[role]))
            return dfx_fail(
                sink, DFX_E_FORMAT, "%s: %.200s: wanted a matrix of floats, not empty, found %s",
                lora->path, m->tensors[role]->name, dfx_tensor_shape_text(m->tensors[role], shape));
    return DFX_OK;
}

/* The side of a factor that is one of the layer's. */
static dfx_status check_side(const dfx_lora *lora, const dfx_sink *sink, const dfx_lora_module *m,
                             dfx_lora_role role, bool is_rows, int64_t wanted) {
    const dfx_lora_matrix *x = &m->matrices[role];
    char shape[DFX_SHAPE_TEXT];
    int64_t found = is_rows ? x->rows : x->cols;
    if (found == wanted)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: %.200s: wanted %" PRId64 " %s, as the layer %s of this model has, found "
                    "%s",
                    lora->path, x->tensor->name, wanted,
                    is_rows ? "rows (out features)" : "columns (in features)",
                    lora->layers.layers[m->alias->layers[0]].name,
                    dfx_tensor_shape_text(x->tensor, shape));
}

/* The side that two factors share: columns of `left`, rows of `right`. */
static dfx_status check_inner(const dfx_lora *lora, const dfx_sink *sink, const dfx_lora_module *m,
                              dfx_lora_role left, dfx_lora_role right) {
    const dfx_lora_matrix *l = &m->matrices[left], *r = &m->matrices[right];
    if (l->cols == r->rows)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: %.200s has %" PRId64 " columns, %.200s has %" PRId64
                    " rows: wanted one rank",
                    lora->path, l->tensor->name, l->cols, r->tensor->name, r->rows);
}

/* r1 r2, of a module whose low rank is derived. */
static dfx_status set_derived_rank(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m,
                                   int64_t r1, int64_t r2) {
    if (__builtin_mul_overflow(r1, r2, &m->rank) || m->rank > DFX_LORA_DERIVED_RANK_MAX)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: %.200s: as a product of two factors this %s has rank %" PRId64
                        " x %" PRId64 ", wanted at most %d; merge it into the model instead",
                        lora->path, m->name, m->kind == DFX_LORA_LOHA ? "LoHa" : "LoKr", r1, r2,
                        DFX_LORA_DERIVED_RANK_MAX);
    return DFX_OK;
}

static dfx_status check_loha(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_HADA_W1_A, true, m->alias->n));
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_HADA_W2_A, true, m->alias->n));
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_HADA_W1_B, false, m->alias->k));
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_HADA_W2_B, false, m->alias->k));
    DFX_TRY(check_inner(lora, sink, m, DFX_LORA_HADA_W1_A, DFX_LORA_HADA_W1_B));
    DFX_TRY(check_inner(lora, sink, m, DFX_LORA_HADA_W2_A, DFX_LORA_HADA_W2_B));
    return set_derived_rank(lora, sink, m, m->matrices[DFX_LORA_HADA_W1_B].rows,
                            m->matrices[DFX_LORA_HADA_W2_B].rows);
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Sides and rank of one factor of LoKr. */
static dfx_status measure_kron_side(const dfx_lora *lora, const dfx_sink *sink,
                                    const dfx_lora_module *m, dfx_lora_role whole, int64_t *o,
                                    int64_t *i, int64_t *r) {
    if (has(m, whole)) {
        *o = m->matrices[whole].rows;
        *i = m->matrices[whole].cols;
        *r = min64(*o, *i);
        return DFX_OK;
    }
    DFX_TRY(check_inner(lora, sink, m, whole + 1, whole + 2));
    *o = m->matrices[whole + 1].rows;
    *i = m->matrices[whole + 2].cols;
    *r = min64(m->matrices[whole + 2].rows, min64(*o, *i));
    return DFX_OK;
}

static dfx_status check_lokr(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    dfx_lora_kron *q = &m->kron;
    int64_t n, k;
    DFX_TRY(measure_kron_side(lora, sink, m, DFX_LORA_LOKR_W1, &q->o1, &q->i1, &q->r1));
    DFX_TRY(measure_kron_side(lora, sink, m, DFX_LORA_LOKR_W2, &q->o2, &q->i2, &q->r2));
    if (__builtin_mul_overflow(q->o1, q->o2, &n) || __builtin_mul_overflow(q->i1, q->i2, &k) ||
        n != m->alias->n || k != m->alias->k)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: %.200s: LoKr of [%" PRId64 ", %" PRId64 "] and [%" PRId64 ", %" PRId64
                        "], wanted the product [%" PRId64 ", %" PRId64 "] of the layer %s",
                        lora->path, m->name, q->o1, q->i1, q->o2, q->i2, m->alias->n, m->alias->k,
                        lora->layers.layers[m->alias->layers[0]].name);
    return set_derived_rank(lora, sink, m, q->r1, q->r2);
}

static dfx_status check_shapes(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    DFX_TRY(find_matrices(lora, sink, m));
    if (m->kind == DFX_LORA_LOHA)
        return check_loha(lora, sink, m);
    if (m->kind == DFX_LORA_LOKR)
        return check_lokr(lora, sink, m);
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_DOWN, false, m->alias->k));
    DFX_TRY(check_side(lora, sink, m, DFX_LORA_UP, true, m->alias->n));
    DFX_TRY(check_inner(lora, sink, m, DFX_LORA_UP, DFX_LORA_DOWN));
    m->rank = m->matrices[DFX_LORA_DOWN].rows;
    return DFX_OK;
}

static dfx_status read_alpha(const dfx_lora *lora, const dfx_sink *sink, const dfx_tensor *tensor,
                             float *out) {
    char shape[DFX_SHAPE_TEXT];
    if (tensor->n_elements != 1 || !dfx_dtype_is_numeric(tensor->dtype))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %.200s: wanted one number, found %s", lora->path,
                        tensor->name, dfx_tensor_shape_text(tensor, shape));
    DFX_TRY(dfx_tensors_read_f32(lora->set, tensor, sink, out));
    if (!isfinite(*out))
        return bad(lora, sink, tensor->name, "alpha is not finite (NaN or infinity)");
    return DFX_OK;
}

/* The rank that alpha is divided by: for LoKr, the inner side of the last factor that is a product; 0 when both are whole, which
 * have no scale. */
static int64_t rank_under_alpha(const dfx_lora_module *m) {
    if (m->kind == DFX_LORA_PLAIN)
        return m->rank;
    if (m->kind == DFX_LORA_LOHA)
        return m->matrices[DFX_LORA_HADA_W1_B].rows;
    return has(m, DFX_LORA_LOKR_W2_B)   ? m->matrices[DFX_LORA_LOKR_W2_B].rows
           : has(m, DFX_LORA_LOKR_W1_B) ? m->matrices[DFX_LORA_LOKR_W1_B].rows
                                        : 0;
}

static dfx_status find_scale(const dfx_lora *lora, const dfx_lora_alphas *alphas,
                             const dfx_sink *sink, dfx_lora_module *m) {
    int64_t r = rank_under_alpha(m);
    dfx_component component = lora->layers.layers[m->alias->layers[0]].component;
    bool found, by_root = false;
    m->alpha = (float)r;
    DFX_TRY(dfx_lora_alphas_find(alphas, component, m->alias, sink, &found, &m->alpha, &by_root));
    if (!found && has(m, DFX_LORA_ALPHA))
        DFX_TRY(read_alpha(lora, sink, m->tensors[DFX_LORA_ALPHA], &m->alpha));
    m->scale = r == 0    ? 1.0f
               : by_root ? (float)(m->alpha / sqrt((double)r))
                         : (float)((double)m->alpha / (double)r);
    return DFX_OK;
}

static dfx_status find_magnitude(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    const dfx_tensor *t = m->tensors[DFX_LORA_MAGNITUDE];
    char shape[DFX_SHAPE_TEXT];
    dfx_lora_matrix as_matrix;
    bool ignored;
    if (!t)
        return DFX_OK;
    bool matrix = dfx_lora_matrix_of(t, &as_matrix);
    if (t->rank == 1 ? t->shape[0] == m->alias->n
                     : matrix && as_matrix.rows == m->alias->n && as_matrix.cols == 1)
        m->magnitude = DFX_LORA_MAGNITUDE_ROWS;
    else if (matrix && as_matrix.rows == 1 && as_matrix.cols == m->alias->k)
        m->magnitude = DFX_LORA_MAGNITUDE_COLUMNS;
    else
        return dfx_fail(
            sink, DFX_E_FORMAT,
            "%s: %.200s: wanted a DoRA magnitude [%" PRId64 "] or [1, %" PRId64 "], found %s",
            lora->path, t->name, m->alias->n, m->alias->k, dfx_tensor_shape_text(t, shape));
    if (m->magnitude == DFX_LORA_MAGNITUDE_COLUMNS && m->alias->n_cuts > 1)
        return bad(lora, sink, t->name,
                   "a DoRA magnitude over the columns of a fused layer, which cannot be cut into "
                   "the layers that this model has");
    return dfx_lora_is_zero(lora->set, t, sink, &ignored); /* looks at every value */
}

static dfx_status check_reshape(const dfx_lora *lora, const dfx_sink *sink,
                                const dfx_lora_module *m) {
    const dfx_tensor *t = m->tensors[DFX_LORA_RESHAPE];
    float sides[2];
    if (!t)
        return DFX_OK;
    if (t->n_elements != 2 || !dfx_dtype_is_numeric(t->dtype))
        return bad(lora, sink, t->name, "wanted two numbers, the shape of a weight");
    DFX_TRY(dfx_tensors_read_f32(lora->set, t, sink, sides));
    if (sides[0] != (float)m->alias->n || sides[1] != (float)m->alias->k)
        return bad(lora, sink, t->name,
                   "the LoRA wants the layer's weight widened, which is not done");
    return DFX_OK;
}

/* The rows of an up factor as the parts have them. */
static dfx_lora_blocks blocks_of_parts(const dfx_lora *lora, const dfx_lora_module *m,
                                       int n_col_groups) {
    dfx_lora_blocks b = {.n_row_groups = m->alias->n_cuts, .n_col_groups = n_col_groups};
    int64_t end = 0;
    for (int c = 0; c < m->alias->n_cuts; c++)
        b.row_ends[c] = end += lora->layers.layers[m->alias->layers[c]].n;
    return b;
}

/* A part is zero where one of its factors is. sd-scripts trains the parts of a fused layer apart and saves them as one module:
 * down stacked, up block diagonal. */
static dfx_status survey_plain(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    int n_cuts = m->alias->n_cuts, n_groups = m->rank % n_cuts == 0 ? n_cuts : 1;
    dfx_lora_blocks up = blocks_of_parts(lora, m, n_groups);
    dfx_lora_blocks down = {.n_row_groups = 1, .n_col_groups = 1, .row_ends = {m->rank}};
    DFX_TRY(dfx_lora_survey(lora->set, &m->matrices[DFX_LORA_UP], sink, &up));
    m->block_diagonal = n_cuts > 1 && n_groups == n_cuts;
    for (int c = 0; c < n_cuts; c++)
        for (int g = 0; g < n_groups; g++)
            m->block_diagonal &= c == g || !up.used[c][g];
    if (m->block_diagonal) {
        down.n_row_groups = n_cuts;
        for (int c = 0; c < n_cuts; c++)
            down.row_ends[c] = m->rank / n_cuts * (c + 1);
    }
    DFX_TRY(dfx_lora_survey(lora->set, &m->matrices[DFX_LORA_DOWN], sink, &down));
    for (int c = 0; c < n_cuts; c++) {
        bool used = false;
        for (int g = 0; g < n_groups; g++)
            used |= up.used[c][g];
        m->is_zero[c] = !used || !down.used[m->block_diagonal ? c : 0][0];
    }
    return DFX_OK;
}

/* Every factor of a product of products, as a whole. */
static dfx_status survey_derived(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m) {
    bool any_is_zero = false;
    for (int role = 0; role < DFX_LORA_N_FACTORS; role++) {
        bool is_zero = false;
        if (m->tensors[role])
            DFX_TRY(dfx_lora_is_zero(lora->set, m->tensors[role], sink, &is_zero));
        any_is_zero |= is_zero;
    }
    for (int c = 0; c < m->alias->n_cuts; c++)
        m->is_zero[c] = any_is_zero;
    return DFX_OK;
}

dfx_status dfx_lora_module_check(const dfx_lora *lora, const dfx_lora_alphas *alphas,
                                 const dfx_sink *sink, dfx_lora_module *m) {
    DFX_TRY(find_kind(lora, sink, m));
    DFX_TRY(check_reshape(lora, sink, m));
    DFX_TRY(check_shapes(lora, sink, m));
    DFX_TRY(find_scale(lora, alphas, sink, m));
    DFX_TRY(m->kind == DFX_LORA_PLAIN ? survey_plain(lora, sink, m)
                                      : survey_derived(lora, sink, m));
    DFX_TRY(find_magnitude(lora, sink, m));
    for (int c = 0; c < m->alias->n_cuts; c++) /* a magnitude does something without a delta */
        m->is_zero[c] = !m->magnitude && (m->is_zero[c] || m->scale == 0);
    return DFX_OK;
}
