#include "offload/fuse.h"

static bool is_whole(const dfx_program *p, const dfx_ref *r) {
    const dfx_buf *buf = &p->bufs[r->buf];
    return r->row0 == 0 && r->col0 == 0 && r->rows == buf->rows && r->cols == buf->cols;
}

/* The only op after `maker` that names the buffer; UINT32_MAX: there is none, or more than one. */
static uint32_t only_reader(const dfx_program *p, uint32_t maker, uint32_t buf) {
    uint32_t found = UINT32_MAX;
    for (uint32_t i = maker + 1; i < p->n_ops; i++) {
        if (!dfx_op_names(&p->ops[i], buf))
            continue;
        if (found != UINT32_MAX)
            return UINT32_MAX;
        found = i;
    }
    return found;
}

/* Neighbours: what lies between cannot have changed anything that the maker reads. It may have worked in place: codes have a
 * buffer of their own, and what was in the old one before is then read here for the last time. */
static bool fuse_codes(dfx_program *p, uint32_t maker_idx) {
    dfx_op *maker = &p->ops[maker_idx];
    const dfx_ref *y = &maker->r[0];
    int y_scale = dfx_op_y_scale(maker->kind);
    if (!y_scale || maker->r[y_scale].buf || p->bufs[y->buf].kind != DFX_BUF_TEMP ||
        !is_whole(p, y))
        return false;
    uint32_t reader = only_reader(p, maker_idx, y->buf);
    if (reader != maker_idx + 1 || p->ops[reader].kind != DFX_OP_QUANTIZE)
        return false;
    maker->r[y_scale] = p->ops[reader].r[DFX_QUANTIZE_Y_SCALE];
    maker->r[0] = p->ops[reader].r[0];
    return true;
}

void dfx_fuse_ops(dfx_program *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        bool fused = fuse_codes(p, i);
        p->ops[n++] = p->ops[i];
        i += fused;
    }
    p->n_ops = n;
}
