/* The pages of the tier. Each has its memory from the system and gives it back there, so that another plan's pages find room at
 * once, and what is held is what the plan has booked. */
#include "offload/ram_tier_internal.h"

dfx_status dfx_tier_open(const dfx_tier_options *options, const dfx_sink *sink, dfx_tier **out) {
    dfx_tier *tier;
    DFX_TRY(dfx_new(sink, "pages in RAM", &tier));
    tier->o = *options;
    tier->sink = sink;
    tier->n_pages = (uint32_t)dfx_packed_n_pages(options->packed);
    dfx_status status = dfx_new_array(sink, tier->n_pages, "pages in RAM", &tier->pages);
    if (status == DFX_OK)
        *out = tier;
    else
        dfx_tier_close(tier);
    return status;
}

static void free_memory(dfx_tier *tier, uint32_t packed_idx) {
    dfx_tier_page *page = &tier->pages[packed_idx];
    if (page->pinned)
        tier->backend->vt->unpin(tier->backend, page->mem.ptr,
                                 dfx_tier_page_bytes(tier, packed_idx));
    if (!page->in_block)
        dfx_mem_unmap(&page->mem);
    page->mem = (dfx_mem){0};
    page->pinned = page->in_block = false;
}

static void give_back(dfx_tier *tier, uint32_t packed_idx) {
    free_memory(tier, packed_idx);
    tier->pages[packed_idx].loaded = false;
}

void dfx_tier_close(dfx_tier *tier) {
    if (!tier)
        return;
    dfx_tier_stop_early(tier, true);
    for (uint32_t p = 0; tier->pages && p < tier->n_pages; p++)
        give_back(tier, p);
    dfx_mem_unmap(&tier->block);
    dfx_free(tier->early);
    dfx_free(tier->pages);
    dfx_free(tier);
}

dfx_tier_page *dfx_tier_page_at(dfx_tier *tier, uint32_t packed_idx) {
    return &tier->pages[packed_idx];
}

size_t dfx_tier_page_bytes(const dfx_tier *tier, uint32_t packed_idx) {
    return dfx_align_up((size_t)dfx_packed_page_at(tier->o.packed, packed_idx)->bytes,
                        DFX_DISK_ALIGN);
}

dfx_status dfx_tier_hold(dfx_tier *tier, uint32_t packed_idx) {
    dfx_tier_page *page = &tier->pages[packed_idx];
    return page->mem.ptr ? DFX_OK
                         : dfx_mem_map(tier->sink, dfx_tier_page_bytes(tier, packed_idx),
                                       "pages in RAM", &page->mem);
}

void dfx_tier_drop_taken(dfx_tier *tier, uint32_t packed_idx) {
    if (!tier->pages[packed_idx].in_block)
        free_memory(tier, packed_idx);
}

void dfx_tier_drop_early(dfx_tier *tier) {
    dfx_tier_stop_early(tier, false);
    for (uint32_t p = 0; p < tier->n_pages; p++)
        if (!tier->pages[p].kept)
            give_back(tier, p);
}

void dfx_tier_want(dfx_tier *tier, const bool *is_kept, dfx_backend *backend) {
    tier->backend = backend;
    for (uint32_t p = 0; p < tier->n_pages; p++)
        tier->pages[p].kept = is_kept[p];
    if (!tier->early)
        dfx_tier_drop_early(tier);
}

dfx_mem dfx_tier_block(const dfx_tier *tier) {
    return tier->block;
}

void dfx_tier_take_block(dfx_tier *tier) {
    tier->block = (dfx_mem){0};
    tier->block_is_taken = true;
}

/* May a page that came early stay? *room: for those that the plan does not keep. */
static bool stays(const dfx_tier *tier, uint32_t packed_idx, uint64_t *room) {
    const dfx_tier_page *page = &tier->pages[packed_idx];
    size_t bytes = dfx_tier_page_bytes(tier, packed_idx);
    if (page->in_block)
        return tier->block_is_taken && page->loaded && !page->kept;
    if (page->kept)
        return true;
    if (!page->loaded || bytes > *room)
        return false;
    *room -= bytes;
    return true;
}

/* The first ones stay: their turn comes first. */
static void settle_early(dfx_tier *tier, uint64_t room) {
    for (uint32_t i = 0; i < tier->n_early; i++)
        if (!stays(tier, tier->early[i], &room))
            give_back(tier, tier->early[i]);
    dfx_mem_unmap(&tier->block);
    tier->block_is_taken = false;
    dfx_free(tier->early);
    tier->early = NULL;
    tier->n_early = 0;
}

dfx_status dfx_tier_settle(dfx_tier *tier, uint64_t early_bytes) {
    dfx_tier_stop_early(tier, false);
    settle_early(tier, early_bytes);
    for (uint32_t p = 0; p < tier->n_pages; p++) {
        if (tier->pages[p].kept)
            DFX_TRY(dfx_tier_hold(tier, p));
        if (!tier->pages[p].loaded)
            tier->pages[p].verified = false;
    }
    return DFX_OK;
}

dfx_status dfx_tier_pin(dfx_tier *tier, uint32_t packed_idx) {
    dfx_tier_page *page = &tier->pages[packed_idx];
    dfx_backend *be = tier->backend;
    if (page->pinned || page->in_block)
        return DFX_OK;
    DFX_TRY(be->vt->pin(be, page->mem.ptr, dfx_tier_page_bytes(tier, packed_idx)));
    page->pinned = true;
    return DFX_OK;
}

uint64_t dfx_tier_take_read_bytes(dfx_tier *tier) {
    uint64_t bytes = tier->read_bytes;
    tier->read_bytes = 0;
    return bytes;
}
