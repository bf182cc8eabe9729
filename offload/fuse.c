#include "offload/fuse.h"

static bool is_whole(const dfx_program *p, const dfx_ref *r) {
    const dfx_buf *buf = &p->bufs[r->buf];
    return r->row0 == 0 && r->col0 == 0 && r->rows == buf->rows && r->cols == buf->cols;
}

static bool names(const dfx_op *op, uint32_t buf) {
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        if (op->r[slot].buf == buf)
            return true;
    return false;
}

/* The only op but `maker` that names the buffer; UINT32_MAX: there is none, or more than one. */
static uint32_t only_reader(const dfx_program *p, uint32_t maker, uint32_t buf) {
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (i == maker || !names(&p->ops[i], buf))
            continue;
        if (i < maker || found != UINT32_MAX)
            return UINT32_MAX;
        found = i;
    }
    return found;
}

/* Neighbours: what lies between cannot have changed anything that the norm reads. */
static bool fuse_norm(dfx_program *p, uint32_t norm_idx) {
    dfx_op *norm = &p->ops[norm_idx];
    const dfx_ref *y = &norm->r[0];
    if (norm->kind != DFX_OP_LAYERNORM || norm->r[DFX_NORM_Y_SCALE].buf ||
        p->bufs[y->buf].kind != DFX_BUF_TEMP || !is_whole(p, y) ||
        norm->r[DFX_NORM_X].buf == y->buf)
        return false;
    uint32_t reader = only_reader(p, norm_idx, y->buf);
    if (reader != norm_idx + 1 || p->ops[reader].kind != DFX_OP_QUANTIZE)
        return false;
    norm->r[DFX_NORM_Y_SCALE] = p->ops[reader].r[DFX_QUANTIZE_Y_SCALE];
    norm->r[0] = p->ops[reader].r[0];
    return true;
}

void dfx_fuse_ops(dfx_program *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        bool fused = fuse_norm(p, i);
        p->ops[n++] = p->ops[i];
        i += fused;
    }
    p->n_ops = n;
}
