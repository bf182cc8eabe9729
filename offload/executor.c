#include "offload/executor.h"

dfx_status dfx_executor_announce(dfx_backend *backend, const dfx_program *program) {
    for (uint32_t i = 0; i < program->n_ops; i++) {
        dfx_op_call call;
        dfx_program_call(program, i, &call);
        DFX_TRY(backend->vt->prepare(backend, &call));
    }
    return DFX_OK;
}

/* Where a ref's first value is. */
static void *address(const dfx_executor *ex, const dfx_program *program, const dfx_ref *r,
                     void *const *externs, unsigned char *page_base) {
    const dfx_buf *buf = &program->bufs[r->buf];
    unsigned char *base = NULL;
    switch (buf->kind) {
    case DFX_BUF_TEMP:
        base = (unsigned char *)ex->activations + buf->off;
        break;
    case DFX_BUF_EXTERN:
        base = externs[buf->idx];
        break;
    case DFX_BUF_WEIGHT:
        base = page_base + program->weights[buf->idx].off;
        break;
    }
    return base + (size_t)(r->row0 * buf->cols + r->col0) * dfx_dtype_bytes(buf->dtype);
}

static dfx_status run_op(dfx_executor *ex, const dfx_program *program, const dfx_op *op,
                         void *const *externs, void *page_base) {
    dfx_op_call call;
    dfx_program_call(program, (uint32_t)(op - program->ops), &call);
    for (int i = 0; i < DFX_OP_SLOTS; i++)
        if (op->r[i].buf)
            call.m[i].ptr = address(ex, program, &op->r[i], externs, page_base);
    DFX_TRY(ex->backend->vt->run(ex->backend, &call));
    if (ex->probe)
        ex->probe(ex->probe_user, op, &call);
    return DFX_OK;
}

/* Ops that read no weight belong to the region before them, the first ones to the first region; regions are those of
 * dfx_trace_regions(). */
dfx_status dfx_executor_run(dfx_executor *ex, const dfx_program *program,
                            const dfx_page_source *pages, void *const *externs) {
    uint32_t pinned = DFX_NO_PAGE, region = 0;
    void *base = NULL;
    dfx_status status = DFX_OK;
    if (ex->activation_bytes < program->act_bytes)
        return dfx_fail(ex->sink, DFX_E_INTERNAL,
                        "%s: an activation block of %zu bytes, wanted %zu", program->name,
                        ex->activation_bytes, program->act_bytes);
    for (uint32_t i = 0; i < program->n_ops && status == DFX_OK; i++) {
        uint32_t page = program->ops[i].page_idx;
        if (page != DFX_NO_PAGE && page != pinned) {
            if (pinned != DFX_NO_PAGE)
                pages->unpin(pages->self, region++);
            pinned = DFX_NO_PAGE;
            DFX_TRY(pages->pin(pages->self, region, page, &base));
            pinned = page;
        }
        status = run_op(ex, program, &program->ops[i], externs, base);
    }
    if (pinned != DFX_NO_PAGE)
        pages->unpin(pages->self, region);
    return status;
}
