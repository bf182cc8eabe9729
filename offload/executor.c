#include "offload/executor.h"

void dfx_executor_init(dfx_executor *ex, dfx_backend *backend, dfx_budget *budget,
                       const dfx_sink *sink) {
    *ex = (dfx_executor){.backend = backend, .budget = budget, .sink = sink};
}

static void owned_free(dfx_executor *ex, const char *owner, dfx_mem *mem) {
    if (!mem->ptr)
        return;
    dfx_budget_release(ex->budget, owner, mem->bytes);
    ex->backend->vt->free(ex->backend, mem);
}

static dfx_status owned_alloc(dfx_executor *ex, const char *owner, size_t bytes, dfx_mem *out) {
    DFX_TRY(dfx_budget_reserve(ex->budget, ex->sink, owner, bytes));
    dfx_status status = ex->backend->vt->alloc(ex->backend, bytes, owner, out);
    if (status != DFX_OK)
        dfx_budget_release(ex->budget, owner, bytes);
    return status;
}

void dfx_executor_fini(dfx_executor *ex) {
    owned_free(ex, "activations", &ex->activations);
    *ex = (dfx_executor){0};
}

dfx_status dfx_executor_announce(dfx_executor *ex, const dfx_program *program) {
    for (uint32_t i = 0; i < program->n_ops; i++) {
        dfx_op_call call;
        dfx_program_call(program, i, &call);
        DFX_TRY(ex->backend->vt->prepare(ex->backend, &call));
    }
    return DFX_OK;
}

dfx_status dfx_executor_reserve(dfx_executor *ex, size_t bytes) {
    if (ex->activations.ptr && ex->activations.bytes >= bytes)
        return DFX_OK;
    owned_free(ex, "activations", &ex->activations);
    return owned_alloc(ex, "activations", bytes, &ex->activations);
}

dfx_status dfx_executor_state_alloc(dfx_executor *ex, size_t bytes, dfx_mem *out) {
    return owned_alloc(ex, "state", bytes, out);
}

void dfx_executor_state_free(dfx_executor *ex, dfx_mem *mem) {
    owned_free(ex, "state", mem);
}

/* Where a ref's first value is. */
static void *address(const dfx_executor *ex, const dfx_program *program, const dfx_ref *r,
                     void *const *externs, unsigned char *page_base) {
    const dfx_buf *buf = &program->bufs[r->buf];
    unsigned char *base = NULL;
    switch (buf->kind) {
    case DFX_BUF_TEMP:
        base = (unsigned char *)ex->activations.ptr + buf->off;
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

static dfx_status run_op(dfx_executor *ex, const dfx_program *program, uint32_t op_idx,
                         void *const *externs, void *page_base) {
    const dfx_op *op = &program->ops[op_idx];
    dfx_op_call call;
    dfx_program_call(program, op_idx, &call);
    for (int i = 0; i < DFX_OP_SLOTS; i++)
        if (op->r[i].buf)
            call.m[i].ptr = address(ex, program, &op->r[i], externs, page_base);
    DFX_TRY(ex->backend->vt->run(ex->backend, &call));
    if (ex->probe)
        ex->probe(ex->probe_user, op, &call);
    return DFX_OK;
}

dfx_status dfx_executor_run(dfx_executor *ex, dfx_pager *pager, void *const *externs) {
    const dfx_program *program = pager->program;
    uint32_t pinned = DFX_NO_PAGE;
    void *page_base = NULL;
    dfx_status status = DFX_OK;
    if (ex->activations.bytes < program->act_bytes)
        return dfx_fail(ex->sink, DFX_E_INTERNAL,
                        "%s: activation block of %zu bytes is not reserved", program->name,
                        program->act_bytes);
    for (uint32_t i = 0; i < program->n_ops && status == DFX_OK; i++) {
        uint32_t page = program->ops[i].page_idx;
        if (page != DFX_NO_PAGE && page != pinned) {
            if (pinned != DFX_NO_PAGE)
                dfx_pager_unpin(pager, pinned);
            pinned = DFX_NO_PAGE;
            DFX_TRY(dfx_pager_pin(pager, page, &page_base));
            pinned = page;
        }
        status = run_op(ex, program, i, externs, page_base);
    }
    if (pinned != DFX_NO_PAGE)
        dfx_pager_unpin(pager, pinned);
    return status;
}
