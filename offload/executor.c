#include "offload/executor.h"

#include "core/timeline.h"

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

static dfx_status run_ops(dfx_executor *ex, const dfx_program *program, const dfx_region *region,
                          void *const *externs, void *page_base) {
    for (uint32_t i = region->first_op; i < region->end_op; i++) {
        const dfx_op *op = &program->ops[i];
        dfx_op_call call;
        dfx_program_call(program, i, &call);
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
            if (op->r[slot].buf)
                call.m[slot].ptr = address(ex, program, &op->r[slot], externs, page_base);
        DFX_TRY(ex->backend->vt->run(ex->backend, &call));
        if (ex->probe)
            ex->probe(ex->probe_user, op, &call);
    }
    return DFX_OK;
}

static dfx_status record_ops(dfx_executor *ex, const dfx_program *program, const dfx_region *region,
                             void *const *externs, void *page_base, dfx_recording **out) {
    const dfx_backend_vtable *vt = ex->backend->vt;
    uint64_t begin_ns = dfx_clock_ns();
    DFX_TRY(vt->record_begin(ex->backend));
    dfx_status status = run_ops(ex, program, region, externs, page_base);
    if (status != DFX_OK) {
        vt->record_end(ex->backend, NULL);
        return status;
    }
    DFX_TRY(vt->record_end(ex->backend, out));
    ex->n_recorded++;
    ex->record_ns += dfx_clock_ns() - begin_ns;
    return DFX_OK;
}

/* From its recording; where there is none yet, it is made. */
static dfx_status run_region(dfx_executor *ex, const dfx_program *program, dfx_recorded *recorded,
                             uint32_t region_idx, void *const *externs, void *base) {
    const dfx_region *region = &program->regions[region_idx];
    if (!recorded || !ex->backend->vt->replay || ex->probe)
        return run_ops(ex, program, region, externs, base);
    dfx_recording *recording = dfx_recorded_find(recorded, region_idx, base);
    if (!recording && ex->is_full)
        return run_ops(ex, program, region, externs, base);
    if (!recording) {
        dfx_status status = record_ops(ex, program, region, externs, base, &recording);
        if (status == DFX_E_NOFIT) {
            ex->is_full = true;
            dfx_info(ex->sink,
                     "the device has no memory to record more than %u regions: the others are "
                     "launched op by op",
                     ex->n_recorded);
            return run_ops(ex, program, region, externs, base);
        }
        DFX_TRY(status);
        DFX_TRY(dfx_recorded_add(recorded, ex->backend, region_idx, base, recording));
    }
    return ex->backend->vt->replay(ex->backend, recording);
}

static void range_begin(const dfx_executor *ex, const dfx_program *program, uint32_t region_idx) {
    if (ex->backend->vt->range_begin)
        ex->backend->vt->range_begin(ex->backend,
                                     program->pages[program->regions[region_idx].page_idx].name);
}

static void range_end(const dfx_executor *ex) {
    if (ex->backend->vt->range_end)
        ex->backend->vt->range_end(ex->backend);
}

dfx_status dfx_executor_run(dfx_executor *ex, const dfx_program *program, dfx_recorded *recorded,
                            const dfx_page_source *pages, void *const *externs) {
    if (ex->activation_bytes < program->act_bytes)
        return dfx_fail(ex->sink, DFX_E_INTERNAL,
                        "%s: an activation block of %zu bytes, wanted %zu", program->name,
                        ex->activation_bytes, program->act_bytes);
    if (recorded)
        DFX_TRY(dfx_recorded_begin(recorded, ex->backend, program->n_regions, externs,
                                   program->n_externs));
    for (uint32_t i = 0; i < program->n_regions; i++) {
        void *base;
        DFX_TRY(pages->pin(pages->self, i, program->regions[i].page_idx, &base));
        range_begin(ex, program, i);
        dfx_status status = run_region(ex, program, recorded, i, externs, base);
        range_end(ex);
        pages->unpin(pages->self, i);
        DFX_TRY(status);
    }
    return DFX_OK;
}
