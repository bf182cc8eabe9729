/* Attention of two streams that makes codes of its values. Part of offload/fuse.h.
 *
 *     v[:a] = n1 W1^T + b1;  v[a:] = n2 W2^T + b2;  y = ATTENTION(q, k, v);  codes = QUANTIZE(y)
 *
 * Rows of y are means of rows of v, of which BOUND knows a scale for all from the norms of n1 and n2, which are LAYERNORM's, before
 * there is a value:
 *
 *     scale = BOUND([|n1|, |n2|], W1, b1, W2, b2), whole;  codes = ATTENTION(q, k, v) with scale
 *
 * For fp8 and not beside adapters, as fuse_bound.c says. */
#include "offload/fuse_internal.h"

enum { STREAMS = 2 };

/* Ops: products of values by rows, what norms their x, attention, and who reads that. */
typedef struct attended {
    uint32_t product[STREAMS], norm[STREAMS], attention, quantize;
} attended;

static bool is_whole(const dfx_program *p, const dfx_ref *r) {
    const dfx_buf *buf = &p->bufs[r->buf];
    return !r->row0 && !r->col0 && r->rows == buf->rows && r->cols == buf->cols;
}

/* QUANTIZE alone has to do with y, which is all of its buffer. */
static bool find_quantize(const dfx_program *p, attended *a) {
    const dfx_ref *y = &p->ops[a->attention].r[0];
    a->quantize = DFX_FUSE_NONE;
    if (p->bufs[y->buf].kind != DFX_BUF_TEMP || !is_whole(p, y))
        return false;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (i == a->attention || !dfx_op_names(&p->ops[i], y->buf))
            continue;
        if (i < a->attention || a->quantize != DFX_FUSE_NONE)
            return false;
        a->quantize = i;
    }
    if (a->quantize == DFX_FUSE_NONE)
        return false;
    const dfx_op *op = &p->ops[a->quantize];
    return op->kind == DFX_OP_QUANTIZE && dfx_ref_same(&op->r[DFX_QUANTIZE_X], y) &&
           !op->r[DFX_QUANTIZE_LEAST].buf && is_whole(p, &op->r[0]) &&
           is_whole(p, &op->r[DFX_QUANTIZE_Y_SCALE]) &&
           p->bufs[op->r[0].buf].dtype == DFX_DTYPE_F8_E4M3 &&
           dfx_fuse_last_writer(p, a->attention, op->r[0].buf) == DFX_FUSE_NONE;
}

/* The page that is there when the op is run. */
static uint32_t page_at(const dfx_program *p, uint32_t op) {
    while (op > 0 && p->ops[op].page_idx == DFX_NO_PAGE)
        op--;
    return p->ops[op].page_idx;
}

/* Rows of values from row0 on, and all columns; x is all codes of a norm that nobody has asked for norms of rows. */
static bool find_stream(const dfx_program *p, attended *a, int stream, int64_t row0) {
    const dfx_op *product = &p->ops[a->product[stream]];
    const dfx_ref *v = &product->r[0];
    a->norm[stream] = dfx_fuse_norm_of(p, a->product[stream]);
    if (!dfx_fuse_is_bounded(p, product, DFX_ACT_NONE) || a->norm[stream] == DFX_FUSE_NONE)
        return false;
    const dfx_op *norm = &p->ops[a->norm[stream]];
    return v->row0 == row0 && !v->col0 && v->cols == p->bufs[v->buf].cols &&
           product->page_idx == page_at(p, a->attention) &&
           dfx_ref_same(&product->r[DFX_LINEAR_X], &norm->r[0]) && !norm->r[DFX_NORM_Y_NORM].buf;
}

/* Two products, and nothing else, have written the values, which are of as many tokens as y. */
static bool find_streams(const dfx_program *p, attended *a) {
    uint32_t before, n = 0;
    const dfx_ref *v = dfx_fuse_values_of(p, a->attention, &before);
    if (!v || !is_whole(p, v) || v->rows != p->ops[a->attention].r[0].rows)
        return false;
    for (uint32_t i = 0; i < before; i++) {
        if (p->ops[i].r[0].buf != v->buf)
            continue;
        if (n == STREAMS)
            return false;
        a->product[n++] = i;
    }
    if (n != STREAMS || !find_stream(p, a, 0, 0))
        return false;
    const dfx_op *first = &p->ops[a->product[0]], *second = &p->ops[a->product[1]];
    return find_stream(p, a, 1, first->r[0].rows) &&
           second->r[0].row0 + second->r[0].rows == v->rows && a->norm[0] != a->norm[1] &&
           first->r[DFX_LINEAR_W].cols == second->r[DFX_LINEAR_W].cols;
}

static dfx_op bound_of(const dfx_program *p, const attended *a, dfx_ref norms, dfx_ref y) {
    const dfx_op *first = &p->ops[a->product[0]], *second = &p->ops[a->product[1]];
    dfx_op op = {.kind = DFX_OP_BOUND, .label = first->label, .page_idx = first->page_idx};
    op.p = (dfx_op_params){.scale = dfx_bound_scale(first->r[DFX_LINEAR_W].cols), .whole = true};
    op.r[0] = y;
    op.r[DFX_BOUND_X_NORM] = norms;
    op.r[DFX_BOUND_W_SCALE] = first->r[DFX_LINEAR_SCALE];
    op.r[DFX_BOUND_B] = first->r[DFX_LINEAR_B];
    op.r[DFX_BOUND_V_SCALE] = second->r[DFX_LINEAR_SCALE];
    op.r[DFX_BOUND_V_B] = second->r[DFX_LINEAR_B];
    return op;
}

static void fuse(dfx_builder *b, const attended *a) {
    dfx_program *p = &b->program;
    dfx_ref scale = p->ops[a->quantize].r[DFX_QUANTIZE_Y_SCALE];
    dfx_ref norms = dfx_temp_of(b, 1, scale.cols, DFX_DTYPE_F32);
    for (int i = 0; i < STREAMS; i++) {
        const dfx_ref *v = &p->ops[a->product[i]].r[0];
        p->ops[a->norm[i]].r[DFX_NORM_Y_NORM] = dfx_cols(norms, v->row0, v->rows);
    }
    dfx_op bound = bound_of(p, a, norms, scale);
    dfx_fuse_attention_to_codes(p, a->attention, a->quantize, &bound,
                                p->ops[a->quantize].r[0].cols);
    dfx_fuse_check(b, a->norm[0] < a->norm[1] ? a->norm[0] : a->norm[1], a->quantize + 1);
}

void dfx_fuse_streams(dfx_builder *b) {
    dfx_program *p = &b->program;
    for (uint32_t i = 0; i < p->n_ops && b->status == DFX_OK; i++) {
        const dfx_op *op = &p->ops[i];
        attended a = {.attention = i};
        if (!dfx_fuse_is_attention(op) || op->r[dfx_op_y_scale_given(op->kind)].buf ||
            !find_quantize(p, &a) || !find_streams(p, &a))
            continue;
        fuse(b, &a);
        i++;
    }
}
