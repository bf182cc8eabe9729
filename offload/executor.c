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

/* Where the buffers of a lane are, in a region. */
typedef struct places {
    unsigned char *activations, *page, *adapters;
    void *const *externs;
} places;

/* Where a ref's first value is. */
static void *address(const dfx_program *program, const dfx_ref *r, const places *at) {
    const dfx_buf *buf = &program->bufs[r->buf];
    unsigned char *base = NULL;
    switch (buf->kind) {
    case DFX_BUF_TEMP:
        base = at->activations + buf->off;
        break;
    case DFX_BUF_EXTERN:
        base = at->externs[buf->idx];
        break;
    case DFX_BUF_ADAPTER:
        base = at->adapters + buf->off;
        break;
    case DFX_BUF_WEIGHT:
        base = at->page + program->weights[buf->idx].off;
        break;
    }
    return base + (size_t)(r->row0 * buf->cols + r->col0) * dfx_dtype_bytes(buf->dtype);
}

static dfx_status run_ops(dfx_executor *ex, const dfx_program *program, const dfx_region *region,
                          const places *at) {
    for (uint32_t i = region->first_op; i < region->end_op; i++) {
        const dfx_op *op = &program->ops[i];
        dfx_op_call call;
        dfx_program_call(program, i, &call);
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
            if (op->r[slot].buf)
                call.m[slot].ptr = address(program, &op->r[slot], at);
        DFX_TRY(ex->backend->vt->run(ex->backend, &call));
        if (ex->probe)
            ex->probe(ex->probe_user, op, &call);
    }
    return DFX_OK;
}

static dfx_status record_ops(dfx_executor *ex, const dfx_program *program, const dfx_region *region,
                             const places *at, dfx_recording **out) {
    const dfx_backend_vtable *vt = ex->backend->vt;
    uint64_t begin_ns = dfx_clock_ns();
    DFX_TRY(vt->record_begin(ex->backend));
    dfx_status status = run_ops(ex, program, region, at);
    if (status != DFX_OK) {
        vt->record_end(ex->backend, NULL);
        return status;
    }
    DFX_TRY(vt->record_end(ex->backend, out));
    ex->n_recorded++;
    ex->record_ns += dfx_clock_ns() - begin_ns;
    return DFX_OK;
}

/* Several lanes have as many recordings as one each: beyond what the budget has room for, launches are the lesser evil. */
static bool may_record(const dfx_executor *ex) {
    return !ex->is_full && ex->n_recorded < DFX_RECORDINGS_MAX;
}

/* From its recording; where there is none yet, it is made. */
static dfx_status run_region(dfx_executor *ex, const dfx_program *program, dfx_recorded *recorded,
                             uint32_t region_idx, const places *at) {
    const dfx_region *region = &program->regions[region_idx];
    if (!recorded || !ex->backend->vt->replay || ex->probe)
        return run_ops(ex, program, region, at);
    dfx_recording *recording = dfx_recorded_find(recorded, region_idx, at->page);
    if (!recording && !may_record(ex))
        return run_ops(ex, program, region, at);
    if (!recording) {
        dfx_status status = record_ops(ex, program, region, at, &recording);
        if (status == DFX_E_NOFIT) {
            ex->is_full = true;
            dfx_info(ex->sink,
                     "the device has no memory to record more than %u regions: the others are "
                     "launched op by op",
                     ex->n_recorded);
            return run_ops(ex, program, region, at);
        }
        DFX_TRY(status);
        DFX_TRY(dfx_recorded_add(recorded, ex->backend, region_idx, at->page, recording));
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

/* All lanes, while the page is there. */
static dfx_status run_lanes(dfx_executor *ex, const dfx_program *program, uint32_t region_idx,
                            const dfx_lane *lanes, uint32_t n_lanes, void *page) {
    places at = {.activations = ex->activations, .page = page, .adapters = ex->adapters};
    for (uint32_t i = 0; i < n_lanes; i++) {
        at.externs = lanes[i].externs;
        if (at.externs)
            DFX_TRY(run_region(ex, program, lanes[i].recorded, region_idx, &at));
        at.activations += program->act_bytes;
    }
    return DFX_OK;
}

dfx_status dfx_executor_run_lanes(dfx_executor *ex, const dfx_program *program,
                                  const dfx_page_source *pages, const dfx_lane *lanes,
                                  uint32_t n_lanes) {
    if (ex->activation_bytes < n_lanes * program->act_bytes)
        return dfx_fail(ex->sink, DFX_E_INTERNAL,
                        "%s: an activation block of %zu bytes, wanted %zu", program->name,
                        ex->activation_bytes, n_lanes * program->act_bytes);
    for (uint32_t i = 0; i < n_lanes; i++)
        if (lanes[i].externs && lanes[i].recorded)
            DFX_TRY(dfx_recorded_begin(lanes[i].recorded, ex->backend, program->n_regions,
                                       lanes[i].externs, program->n_externs));
    for (uint32_t i = 0; i < program->n_regions; i++) {
        void *page;
        DFX_TRY(pages->pin(pages->self, i, program->regions[i].page_idx, &page));
        range_begin(ex, program, i);
        dfx_status status = run_lanes(ex, program, i, lanes, n_lanes, page);
        range_end(ex);
        pages->unpin(pages->self, i);
        DFX_TRY(status);
    }
    return DFX_OK;
}

dfx_status dfx_executor_run(dfx_executor *ex, const dfx_program *program, dfx_recorded *recorded,
                            const dfx_page_source *pages, void *const *externs) {
    return dfx_executor_run_lanes(ex, program, pages,
                                  &(dfx_lane){.externs = externs, .recorded = recorded}, 1);
}
