#include "offload/pager.h"

static const char *const OWNER = "weights";

dfx_status dfx_pager_init(dfx_pager *pager, const dfx_program *program, dfx_backend *backend,
                          dfx_budget *budget, const dfx_sink *sink) {
    *pager = (dfx_pager){.program = program, .backend = backend, .budget = budget, .sink = sink};
    return dfx_new_array(sink, program->n_pages, "pager", &pager->pages);
}

void dfx_pager_fini(dfx_pager *pager) {
    if (pager->program)
        dfx_pager_drop(pager);
    dfx_free(pager->pages);
    *pager = (dfx_pager){0};
}

void dfx_pager_set_residency(dfx_pager *pager, dfx_residency residency) {
    dfx_pager_drop(pager);
    pager->residency = residency;
}

static dfx_status device_alloc(dfx_pager *pager, size_t bytes, dfx_mem *out) {
    DFX_TRY(dfx_budget_reserve(pager->budget, pager->sink, OWNER, bytes));
    dfx_status status = pager->backend->vt->alloc(pager->backend, bytes, OWNER, out);
    if (status != DFX_OK)
        dfx_budget_release(pager->budget, OWNER, bytes);
    return status;
}

static void device_free(dfx_pager *pager, dfx_mem *mem) {
    if (!mem->ptr)
        return;
    dfx_budget_release(pager->budget, OWNER, mem->bytes);
    pager->backend->vt->free(pager->backend, mem);
}

/* Every tensor of the page from its file to its place. */
static dfx_status read_page(dfx_pager *pager, uint32_t page_idx, unsigned char *base) {
    const dfx_program *program = pager->program;
    const dfx_page *page = &program->pages[page_idx];
    bool direct = pager->backend->host_visible;
    if (!direct && pager->staging.bytes < program->page_bytes_max) {
        dfx_mem_free(&pager->staging);
        DFX_TRY(dfx_mem_alloc(pager->sink, program->page_bytes_max, "staging", &pager->staging));
    }
    unsigned char *dst = direct ? base : pager->staging.ptr;
    for (uint32_t i = page->first_weight; i < page->first_weight + page->n_weights; i++) {
        const dfx_weight *w = &program->weights[i];
        DFX_TRY(dfx_tensors_read(program->tensors, w->tensor, pager->sink, dst + w->off));
        pager->read_bytes += w->bytes;
    }
    return direct ? DFX_OK : pager->backend->vt->upload(pager->backend, base, dst, page->bytes);
}

dfx_status dfx_pager_pin(dfx_pager *pager, uint32_t page_idx, void **base) {
    const dfx_program *program = pager->program;
    bool keep = pager->residency == DFX_KEEP;
    dfx_mem *mem = keep ? &pager->pages[page_idx] : &pager->slot;
    bool fresh = !mem->ptr;
    if (fresh)
        DFX_TRY(device_alloc(pager, keep ? program->pages[page_idx].bytes : program->page_bytes_max,
                             mem));
    if (fresh || !keep) {
        dfx_status status = read_page(pager, page_idx, mem->ptr);
        if (status != DFX_OK) {
            device_free(pager, mem);
            return status;
        }
    }
    *base = mem->ptr;
    return DFX_OK;
}

void dfx_pager_unpin(dfx_pager *pager, uint32_t page_idx) {
    /* The host runs ops in order and pin reads on the same thread, so nothing has to be waited for here. */
    (void)pager;
    (void)page_idx;
}

bool dfx_pager_is_loaded(const dfx_pager *pager) {
    for (uint32_t i = 0; i < pager->program->n_pages; i++)
        if (!pager->pages[i].ptr)
            return false;
    return true;
}

void dfx_pager_drop(dfx_pager *pager) {
    for (uint32_t i = 0; i < pager->program->n_pages; i++)
        device_free(pager, &pager->pages[i]);
    device_free(pager, &pager->slot);
    dfx_mem_free(&pager->staging);
}
