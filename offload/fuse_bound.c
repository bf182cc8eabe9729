/* Products that make codes of their own values. Part of offload/fuse.h.
 *
 *     n = LAYERNORM(x) to codes;  J[:, a:] = GELU(n W^T + b);  [J[:, :a] = ATTENTION ...;]  codes = QUANTIZE(J)
 *
 * J goes to memory in 16 bits and comes back for its greatest magnitudes, twice four times the width of the model for each token.
 * BOUND knows a scale before the product begins:
 *
 *     n, |n| = LAYERNORM(x);  least = BOUND(|n|, W, b);  [codes[:, :a], scale = QUANTIZE(J[:, :a], least);]
 *     codes[:, a:] = GELU(n W^T + b) with scale
 *
 * Where ATTENTION writes the other columns, and its values are a product of n as well, the bound is of these too, stands before
 * attention, and that makes codes itself: nothing is left of QUANTIZE.
 *
 * For fp8, whose codes have the range for a scale that is not the best (kernels/ops.h); and not beside adapters, which a bound
 * from W knows nothing of. */
#include "offload/fuse_internal.h"

enum { NONE = DFX_FUSE_NONE };

/* Who makes and who reads J. */
typedef struct chain {
    uint32_t norm, product, quantize; /* ops */
    int64_t before;                   /* columns of J that the product does not write */
    uint32_t attention, values; /* ops: who writes these, and the product of its values; NONE */
} chain;

/* The op that x of the product is rows of, if it is a norm that makes codes. */
static bool find_norm(const dfx_program *p, chain *c) {
    c->norm = dfx_fuse_norm_of(p, c->product);
    return c->norm != NONE;
}

/* J has the product's columns at its right end, others write those before them, and QUANTIZE alone reads it. */
static bool find_quantize(const dfx_program *p, chain *c) {
    const dfx_ref *y = &p->ops[c->product].r[0];
    const dfx_buf *buf = &p->bufs[y->buf];
    uint32_t n_after = 0;
    c->before = y->col0;
    if (y->row0 || y->rows != buf->rows || y->col0 + y->cols != buf->cols)
        return false;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const dfx_op *op = &p->ops[i];
        if (i == c->product || !dfx_op_names(op, y->buf))
            continue;
        if (i > c->product) {
            c->quantize = i;
            n_after++;
            continue;
        }
        for (int slot = 1; slot < DFX_OP_SLOTS; slot++)
            if (op->r[slot].buf == y->buf)
                return false;
        if (op->r[0].col0 + op->r[0].cols > c->before || dfx_op_info_of(op->kind)->inout)
            return false;
    }
    if (n_after != 1)
        return false;
    const dfx_op *op = &p->ops[c->quantize];
    return op->kind == DFX_OP_QUANTIZE && !op->r[DFX_QUANTIZE_LEAST].buf &&
           op->r[DFX_QUANTIZE_X].cols == buf->cols && op->r[DFX_QUANTIZE_X].rows == buf->rows &&
           p->bufs[op->r[0].buf].dtype == DFX_DTYPE_F8_E4M3;
}

/* It has written all of the other columns, alone, and its values are a product of the same x. */
static void find_attention(const dfx_program *p, chain *c) {
    const dfx_op *product = &p->ops[c->product];
    const dfx_ref *y = &product->r[0];
    const dfx_ref others = {y->buf, 0, y->rows, 0, c->before};
    uint32_t idx = dfx_fuse_last_writer(p, c->product, y->buf);
    if (idx == NONE || dfx_fuse_last_writer(p, idx, y->buf) != NONE)
        return;
    const dfx_op *attention = &p->ops[idx];
    if (!dfx_fuse_is_attention(attention) || !dfx_ref_same(&attention->r[0], &others))
        return;
    uint32_t before;
    const dfx_ref *v = dfx_fuse_values_of(p, idx, &before);
    uint32_t maker = v ? dfx_fuse_last_writer(p, before, v->buf) : NONE;
    if (maker == NONE || maker < c->norm || !dfx_fuse_is_bounded(p, &p->ops[maker], DFX_ACT_NONE) ||
        !dfx_ref_same(&p->ops[maker].r[0], v) ||
        !dfx_ref_same(&p->ops[maker].r[DFX_LINEAR_X], &product->r[DFX_LINEAR_X]) ||
        p->ops[maker].page_idx != product->page_idx)
        return;
    c->attention = idx;
    c->values = maker;
}

/* Room for one op more, and ops from `at` on one further. */
static bool open_gap(dfx_builder *b, uint32_t at) {
    dfx_program *p = &b->program;
    if (b->status == DFX_OK)
        b->status = dfx_grow(b->sink, (size_t)p->n_ops + 1, sizeof(*p->ops), "program", &b->cap_ops,
                             (void **)&p->ops);
    if (b->status != DFX_OK)
        return false;
    for (uint32_t i = p->n_ops++; i > at; i--)
        p->ops[i] = p->ops[i - 1];
    return true;
}

static void narrow_to(dfx_buf *buf, int64_t cols) {
    buf->cols = cols;
    buf->bytes = (size_t)(buf->rows * cols) * dfx_dtype_bytes(buf->dtype);
}

static dfx_op bound_of(const dfx_program *p, const chain *c, dfx_ref y) {
    const dfx_op *product = &p->ops[c->product], *norm = &p->ops[c->norm];
    const dfx_ref *x = &product->r[DFX_LINEAR_X];
    dfx_op op = {.kind = DFX_OP_BOUND, .label = product->label, .page_idx = product->page_idx};
    op.p.scale = dfx_bound_scale(product->r[DFX_LINEAR_W].cols);
    op.r[0] = y;
    op.r[DFX_BOUND_X_NORM] = dfx_cols(norm->r[DFX_NORM_Y_NORM], x->row0 - norm->r[0].row0, x->rows);
    op.r[DFX_BOUND_W_SCALE] = product->r[DFX_LINEAR_SCALE];
    op.r[DFX_BOUND_B] = product->r[DFX_LINEAR_B];
    if (c->attention != NONE) {
        op.r[DFX_BOUND_V_SCALE] = p->ops[c->values].r[DFX_LINEAR_SCALE];
        op.r[DFX_BOUND_V_B] = p->ops[c->values].r[DFX_LINEAR_B];
    }
    return op;
}

static void fuse_with_attention(dfx_builder *b, const chain *c) {
    dfx_program *p = &b->program;
    const dfx_op *quantize = &p->ops[c->quantize];
    dfx_ref codes = quantize->r[0], scale = quantize->r[DFX_QUANTIZE_Y_SCALE];
    dfx_op bound = bound_of(p, c, scale);
    dfx_fuse_attention_to_codes(p, c->attention, c->quantize, &bound, c->before);
    dfx_op *product = &p->ops[c->product + 1];
    product->r[0] = dfx_cols(codes, c->before, codes.cols - c->before);
    product->r[DFX_LINEAR_Y_SCALE] = scale;
}

/* BOUND, what is left of QUANTIZE, the product; QUANTIZE's own place is taken by what moves up. */
static void fuse_alone(dfx_builder *b, const chain *c) {
    dfx_program *p = &b->program;
    dfx_ref least = {0};
    if (c->before)
        least = dfx_temp_of(b, 1, p->ops[c->product].r[0].rows, DFX_DTYPE_F32);
    dfx_op quantize = p->ops[c->quantize];
    dfx_ref codes = quantize.r[0], scale = quantize.r[DFX_QUANTIZE_Y_SCALE];
    dfx_op bound = bound_of(p, c, c->before ? least : scale);
    for (uint32_t i = c->quantize; i > c->product; i--)
        p->ops[i] = p->ops[i - 1];
    if (c->before && !open_gap(b, c->product))
        return;
    p->ops[c->product] = bound;
    dfx_op *product = &p->ops[c->product + (c->before ? 2 : 1)];
    if (c->before) {
        narrow_to(&p->bufs[product->r[0].buf], c->before);
        quantize.r[0] = dfx_cols(codes, 0, c->before);
        quantize.r[DFX_QUANTIZE_X].cols = c->before;
        quantize.r[DFX_QUANTIZE_LEAST] = least;
        p->ops[c->product + 1] = quantize;
    }
    product->r[0] = dfx_cols(codes, c->before, codes.cols - c->before);
    product->r[DFX_LINEAR_Y_SCALE] = scale;
}

static void fuse(dfx_builder *b, const chain *c) {
    dfx_op *norm = &b->program.ops[c->norm];
    if (!norm->r[DFX_NORM_Y_NORM].buf)
        norm->r[DFX_NORM_Y_NORM] = dfx_temp_of(b, 1, norm->r[0].rows, DFX_DTYPE_F32);
    if (c->attention != NONE)
        fuse_with_attention(b, c);
    else
        fuse_alone(b, c);
}

void dfx_fuse_bounds(dfx_builder *b) {
    dfx_program *p = &b->program;
    for (uint32_t i = 0; i < p->n_ops && b->status == DFX_OK; i++) {
        chain c = {.product = i, .attention = NONE};
        if (!dfx_fuse_is_bounded(p, &p->ops[i], DFX_ACT_GELU_TANH) || !find_norm(p, &c) ||
            !find_quantize(p, &c))
            continue;
        if (c.before)
            find_attention(p, &c);
        uint32_t n_ops = p->n_ops;
        fuse(b, &c);
        dfx_fuse_check(b, c.norm, c.quantize + 1 + (p->n_ops - n_ops));
        i = c.product + 1;
    }
}
