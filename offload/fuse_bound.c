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
 * For fp8, whose codes have the range for a scale that is not the best (kernels/ops.h); and not beside adapters, which a bound
 * from W knows nothing of. */
#include "offload/fuse.h"

/* Who makes and who reads J. */
typedef struct chain {
    uint32_t norm, product, quantize; /* ops */
    int64_t before;                   /* columns of J that the product does not write */
} chain;

static bool is_candidate(const dfx_program *p, const dfx_op *op) {
    static const int never[] = {DFX_LINEAR_GATE, DFX_LINEAR_R, DFX_LINEAR_T, DFX_LINEAR_Y_SCALE};
    if (op->kind != DFX_OP_LINEAR || op->p.act != DFX_ACT_GELU_TANH ||
        p->bufs[op->r[0].buf].kind != DFX_BUF_TEMP || !op->r[DFX_LINEAR_SCALE].buf ||
        !op->r[DFX_LINEAR_X_SCALE].buf ||
        p->bufs[op->r[DFX_LINEAR_W].buf].dtype != DFX_DTYPE_F8_E4M3)
        return false;
    for (size_t i = 0; i < DFX_COUNT(never); i++)
        if (op->r[never[i]].buf)
            return false;
    return true;
}

/* The op that x of the product is from, if it is a norm that makes codes. */
static bool find_norm(const dfx_program *p, chain *c) {
    const dfx_ref *x = &p->ops[c->product].r[DFX_LINEAR_X];
    for (uint32_t i = c->product; i-- > 0;) {
        const dfx_op *op = &p->ops[i];
        if (op->r[0].buf != x->buf)
            continue;
        c->norm = i;
        return op->kind == DFX_OP_LAYERNORM && op->r[DFX_NORM_Y_SCALE].buf &&
               dfx_ref_same(&op->r[0], x);
    }
    return false;
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
    const dfx_op *product = &p->ops[c->product];
    dfx_op op = {.kind = DFX_OP_BOUND, .label = product->label, .page_idx = product->page_idx};
    op.p.scale = dfx_bound_scale(product->r[DFX_LINEAR_W].cols);
    op.r[0] = y;
    op.r[DFX_BOUND_X_NORM] = p->ops[c->norm].r[DFX_NORM_Y_NORM];
    op.r[DFX_BOUND_W_SCALE] = product->r[DFX_LINEAR_SCALE];
    op.r[DFX_BOUND_B] = product->r[DFX_LINEAR_B];
    return op;
}

/* BOUND, what is left of QUANTIZE, the product; QUANTIZE's own place is taken by what moves up. */
static void fuse(dfx_builder *b, const chain *c) {
    dfx_program *p = &b->program;
    int64_t n_rows = p->ops[c->product].r[0].rows;
    dfx_ref norms = p->ops[c->norm].r[DFX_NORM_Y_NORM], least = {0};
    if (!norms.buf)
        norms = dfx_temp_of(b, 1, n_rows, DFX_DTYPE_F32);
    if (c->before)
        least = dfx_temp_of(b, 1, n_rows, DFX_DTYPE_F32);
    dfx_op quantize = p->ops[c->quantize];
    dfx_ref codes = quantize.r[0], scale = quantize.r[DFX_QUANTIZE_Y_SCALE];
    for (uint32_t i = c->quantize; i > c->product; i--)
        p->ops[i] = p->ops[i - 1];
    if (c->before && !open_gap(b, c->product))
        return;
    p->ops[c->norm].r[DFX_NORM_Y_NORM] = norms;
    uint32_t product_idx = c->product + (c->before ? 2 : 1);
    dfx_op *product = &p->ops[product_idx];
    p->ops[c->product] =
        bound_of(p, &(chain){.norm = c->norm, .product = product_idx}, c->before ? least : scale);
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

/* What has become of them keeps to the contract. */
static void check(dfx_builder *b, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n && b->status == DFX_OK; i++) {
        dfx_op_call call;
        dfx_program_call(&b->program, i, &call);
        b->status = dfx_op_check(&call, b->sink);
    }
}

void dfx_fuse_bounds(dfx_builder *b) {
    dfx_program *p = &b->program;
    for (uint32_t i = 0; i < p->n_ops && b->status == DFX_OK; i++) {
        chain c = {.product = i};
        if (!is_candidate(p, &p->ops[i]) || !find_norm(p, &c) || !find_quantize(p, &c))
            continue;
        fuse(b, &c);
        check(b, c.norm, 1);
        check(b, c.product, c.before ? 3 : 2);
        i = c.product + (c.before ? 2 : 1);
    }
}
