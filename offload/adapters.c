/* Places for adapters of low rank beside linear layers. Part of offload/builder.h.
 *
 * Products of one x in a row share one product with all their A, stacked: x is read once for them. It is emitted before the
 * first of them and grows with each further one, up to DFX_ADAPTER_RANK_MAX rows. */
#include "offload/builder.h"

static bool is_down(const dfx_program *p, const dfx_op *op) {
    return op->kind == DFX_OP_LINEAR && p->bufs[op->r[DFX_LINEAR_W].buf].kind == DFX_BUF_ADAPTER;
}

/* The product with A of an earlier layer that has room for another, unless x has been written to since. */
static dfx_op *find_down(dfx_builder *b, const dfx_ref *x) {
    for (uint32_t i = b->program.n_ops; i-- > 0;) {
        dfx_op *op = &b->program.ops[i];
        if (is_down(&b->program, op) && dfx_ref_same(&op->r[DFX_LINEAR_X], x))
            return op->r[0].cols + b->env.adapter_rank <= DFX_ADAPTER_RANK_MAX ? op : NULL;
        if (op->r[0].buf == x->buf)
            return NULL;
    }
    return NULL;
}

/* Room for another A behind the last, and for its part of t. */
static void widen(dfx_builder *b, dfx_op *down) {
    dfx_buf *t = &b->program.bufs[down->r[0].buf], *a = &b->program.bufs[down->r[DFX_LINEAR_W].buf];
    t->cols = a->rows = down->r[0].cols = down->r[DFX_LINEAR_W].rows =
        t->cols + b->env.adapter_rank;
    t->bytes = (size_t)(t->rows * t->cols) * dfx_dtype_bytes(t->dtype);
    a->bytes = (size_t)(a->rows * a->cols) * dfx_dtype_bytes(a->dtype);
}

static dfx_op *new_down(dfx_builder *b, const dfx_adapter_spec *s) {
    int64_t rank = b->env.adapter_rank;
    dfx_ref t = dfx_temp(b, s->x.rows, rank),
            a = dfx_adapter_buf(b, rank, s->x.cols, b->env.act_dtype);
    dfx_emit(
        b, DFX_OP_LINEAR, "adapters",
        (dfx_ref[DFX_OP_SLOTS]){
            [0] = t, [DFX_LINEAR_X] = s->x, [DFX_LINEAR_W] = a, [DFX_LINEAR_X_SCALE] = s->x_scale},
        NULL);
    return b->status == DFX_OK ? &b->program.ops[b->program.n_ops - 1] : NULL;
}

static uint32_t weight_of(const dfx_builder *b, const dfx_ref *r) {
    return b->program.bufs[r->buf].idx;
}

/* Scales in the adapter block stand for those of the page. */
static void place_scales(dfx_builder *b, const dfx_adapter_spec *s, dfx_adapter *place,
                         dfx_ref *scale) {
    if (!b->env.adapter_scales || !s->scale.buf)
        return;
    *scale = dfx_adapter_buf(b, 1, s->n, DFX_DTYPE_F32);
    place->scale_buf = scale->buf;
    place->weight_idx = weight_of(b, &s->w);
    place->scale_idx = weight_of(b, &s->scale);
}

dfx_adapter_refs dfx_adapter_place(dfx_builder *b, const dfx_adapter_spec *s) {
    int64_t rank = b->env.adapter_rank;
    dfx_adapter_refs refs = {.scale = s->scale};
    if (rank == 0 || b->status != DFX_OK)
        return refs;
    dfx_op *down = find_down(b, &s->x);
    if (down)
        widen(b, down);
    else
        down = new_down(b, s);
    if (!down)
        return refs;
    dfx_ref t = down->r[0], a = down->r[DFX_LINEAR_W];
    refs.t = dfx_cols(t, t.cols - rank, rank);
    refs.u = dfx_adapter_buf(b, s->n, rank, b->env.act_dtype);
    dfx_adapter place = {.layer = s->name,
                         .n = s->n,
                         .k = s->x.cols,
                         .a_buf = a.buf,
                         .a_row = a.rows - rank,
                         .u_buf = refs.u.buf};
    place_scales(b, s, &place, &refs.scale);
    dfx_builder_adapter(b, &place);
    return refs;
}
