/* See fuse_internal.h. */
#include "offload/fuse_internal.h"

bool dfx_fuse_is_bounded(const dfx_program *p, const dfx_op *op, dfx_act act) {
    static const int never[] = {DFX_LINEAR_GATE, DFX_LINEAR_R, DFX_LINEAR_T, DFX_LINEAR_Y_SCALE};
    if (op->kind != DFX_OP_LINEAR || op->p.act != act ||
        p->bufs[op->r[0].buf].kind != DFX_BUF_TEMP || !op->r[DFX_LINEAR_SCALE].buf ||
        !op->r[DFX_LINEAR_X_SCALE].buf ||
        p->bufs[op->r[DFX_LINEAR_W].buf].dtype != DFX_DTYPE_F8_E4M3)
        return false;
    for (size_t i = 0; i < DFX_COUNT(never); i++)
        if (op->r[never[i]].buf)
            return false;
    return true;
}

uint32_t dfx_fuse_last_writer(const dfx_program *p, uint32_t before, uint32_t buf) {
    for (uint32_t i = before; i-- > 0;)
        if (p->ops[i].r[0].buf == buf)
            return i;
    return DFX_FUSE_NONE;
}

uint32_t dfx_fuse_norm_of(const dfx_program *p, uint32_t product) {
    const dfx_ref *x = &p->ops[product].r[DFX_LINEAR_X];
    uint32_t norm = dfx_fuse_last_writer(p, product, x->buf);
    if (norm == DFX_FUSE_NONE)
        return norm;
    const dfx_op *op = &p->ops[norm];
    bool makes_codes = op->kind == DFX_OP_LAYERNORM && op->r[DFX_NORM_Y_SCALE].buf;
    return makes_codes && dfx_ref_rows_of(x, &op->r[0]) ? norm : DFX_FUSE_NONE;
}

const dfx_ref *dfx_fuse_values_of(const dfx_program *p, uint32_t attention, uint32_t *before) {
    const dfx_ref *v = &p->ops[attention].r[DFX_ATTN_V];
    uint32_t maker = dfx_fuse_last_writer(p, attention, v->buf);
    *before = attention;
    if (maker == DFX_FUSE_NONE || p->ops[maker].kind != DFX_OP_V_CODES)
        return v;
    *before = maker;
    return dfx_ref_same(&p->ops[maker].r[0], v) ? &p->ops[maker].r[DFX_V_CODES_V] : NULL;
}

void dfx_fuse_attention_to_codes(dfx_program *p, uint32_t attention, uint32_t quantize,
                                 const dfx_op *bound, int64_t cols) {
    const dfx_op gone = p->ops[quantize];
    for (uint32_t i = quantize; i > attention; i--)
        p->ops[i] = p->ops[i - 1];
    p->ops[attention] = *bound;
    dfx_op *op = &p->ops[attention + 1];
    op->r[0] = dfx_cols(gone.r[0], 0, cols);
    op->r[dfx_op_y_scale_given(op->kind)] = gone.r[DFX_QUANTIZE_Y_SCALE];
}

void dfx_fuse_check(dfx_builder *b, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end && b->status == DFX_OK; i++) {
        dfx_op_call call;
        dfx_program_call(&b->program, i, &call);
        b->status = dfx_op_check(&call, b->sink);
    }
}
