/* The still part of the feed: is the plan one that can be played, and the memory that pages pass through.
 *
 * All sizes are rounded up to blocks of the disk, so that direct reads may fill them. Staging is one block, each page of the RAM
 * tier another: what is locked in the end is what the plan has booked, but for the rounding.
 * Only staging, which is read into again and again, is registered with the ring; a page of the RAM tier is read once. */
#include <inttypes.h>

#include "offload/page_feed_internal.h"

/* What a transfer that waits for `after_visit` holds up is everything from it on. */
static dfx_status check_order(const dfx_feed *feed) {
    const dfx_plan *plan = feed->o.plan;
    uint32_t soonest = UINT32_MAX;
    for (uint32_t k = plan->n_transfers; k-- > 0;) {
        const dfx_transfer *t = &plan->transfers[k];
        soonest = t->for_visit < soonest ? t->for_visit : soonest;
        if (t->after_visit != DFX_NO_VISIT && t->after_visit >= soonest)
            return dfx_fail(feed->sink, DFX_E_INTERNAL,
                            "plan: transfer %u waits for visit %u, which waits for it", k,
                            t->after_visit);
    }
    return DFX_OK;
}

static dfx_status check_transfer(const dfx_feed *feed, uint32_t k) {
    const dfx_plan *plan = feed->o.plan;
    const dfx_transfer *t = &plan->transfers[k];
    uint64_t end;
    if (t->page_idx >= plan->n_pages || t->for_visit >= plan->n_visits)
        return dfx_fail(feed->sink, DFX_E_INTERNAL, "plan: transfer %u of no page or visit", k);
    const dfx_packed_page *page = dfx_feed_page(feed, t->page_idx);
    if (__builtin_add_overflow(t->off, page->bytes, &end) || end > plan->arena_bytes)
        return dfx_fail(feed->sink, DFX_E_INTERNAL,
                        "plan: page %s of %" PRIu64 " bytes at %" PRIu64 " of an arena of %" PRIu64,
                        page->name, page->bytes, t->off, plan->arena_bytes);
    if (dfx_feed_way_of(feed, t->page_idx) == FEED_WAY_STAGED &&
        (plan->n_staging == 0 || page->bytes > plan->staging_bytes))
        return dfx_fail(feed->sink, DFX_E_INTERNAL,
                        "plan: page %s of %" PRIu64 " bytes has to pass through %u staging buffers "
                        "of %" PRIu64,
                        page->name, page->bytes, plan->n_staging, plan->staging_bytes);
    return DFX_OK;
}

/* A visit uses what the last transfer for it or for an earlier visit has brought. */
static dfx_status match_visits(dfx_feed *feed, uint32_t *by_page) {
    const dfx_plan *plan = feed->o.plan;
    for (uint32_t p = 0; p < plan->n_pages; p++)
        by_page[p] = UINT32_MAX;
    uint32_t k = 0;
    for (uint32_t v = 0; v < plan->n_visits; v++) {
        for (; k < plan->n_transfers && plan->transfers[k].for_visit <= v; k++)
            by_page[plan->transfers[k].page_idx] = k;
        const dfx_visit *visit = &plan->visits[v];
        uint32_t found = visit->page_idx < plan->n_pages ? by_page[visit->page_idx] : UINT32_MAX;
        if (found == UINT32_MAX || plan->transfers[found].off != visit->off)
            return dfx_fail(feed->sink, DFX_E_INTERNAL,
                            "plan: visit %u uses page %u at %" PRIu64
                            ", where no transfer brings it",
                            v, visit->page_idx, visit->off);
        feed->transfer_of[v] = found;
    }
    return DFX_OK;
}

dfx_status dfx_feed_plan_check(dfx_feed *feed) {
    const dfx_plan *plan = feed->o.plan;
    uint32_t *by_page;
    DFX_TRY(dfx_new_array(feed->sink, plan->n_visits, "page feed", &feed->transfer_of));
    DFX_TRY(check_order(feed));
    for (uint32_t p = 0; p < plan->n_pages; p++)
        if (feed->o.page_idx[p] >= dfx_packed_n_pages(feed->o.packed))
            return dfx_fail(feed->sink, DFX_E_INTERNAL, "plan: page %u is not in the packed model",
                            p);
    for (uint32_t k = 0; k < plan->n_transfers; k++)
        DFX_TRY(check_transfer(feed, k));
    DFX_TRY(dfx_new_array(feed->sink, plan->n_pages, "page feed", &by_page));
    dfx_status status = match_visits(feed, by_page);
    dfx_free(by_page);
    return status;
}

/* The sizes that buffers for compressed pages need. */
static dfx_status lay_out(dfx_feed *feed, size_t *stored, size_t *scratch) {
    const dfx_plan *plan = feed->o.plan;
    *stored = *scratch = 0;
    for (uint32_t p = 0; p < plan->n_pages; p++) {
        const dfx_packed_page *page = dfx_feed_page(feed, p);
        if (page->bytes > SIZE_MAX / 4 || page->stored_bytes > SIZE_MAX / 4)
            return dfx_fail(feed->sink, DFX_E_NOFIT,
                            "page %s: %" PRIu64 " bytes are more than can be addressed", page->name,
                            page->bytes);
        if (page->codec == DFX_CODEC_RAW)
            continue;
        *stored = page->stored_bytes > *stored ? (size_t)page->stored_bytes : *stored;
        *scratch = page->bytes > *scratch ? (size_t)page->bytes : *scratch;
    }
    return DFX_OK;
}

/* No device copies from it: plain memory will do. */
static dfx_status alloc_stored(dfx_feed *feed, size_t stored, size_t scratch) {
    if (stored == 0)
        return DFX_OK;
    feed->stored_stride = dfx_align_up(stored, FEED_ALIGN);
    size_t bytes = FEED_STORED_BUFFERS * feed->stored_stride;
    DFX_TRY(dfx_mem_alloc(feed->sink, bytes + FEED_ALIGN, "compressed pages", &feed->stored_mem));
    feed->stored = feed->stored_mem;
    feed->stored.ptr = (void *)dfx_align_up((uintptr_t)feed->stored_mem.ptr, FEED_ALIGN);
    feed->stored.bytes = bytes;
    return dfx_mem_alloc(feed->sink, scratch, "compressed pages", &feed->scratch);
}

static dfx_status open_disk(dfx_feed *feed) {
    dfx_mem buffers[2];
    dfx_disk_options options = {.path = dfx_packed_path(feed->o.packed),
                                .queue_depth = feed->o.queue_depth,
                                .buffers = buffers,
                                .os = feed->o.os};
    if (feed->staging.ptr)
        buffers[options.n_buffers++] = feed->staging;
    if (feed->stored.ptr)
        buffers[options.n_buffers++] = feed->stored;
    DFX_TRY(dfx_disk_open(&options, feed->sink, &feed->disk));
    feed->stats.io = dfx_disk_mode(feed->disk);
    return DFX_OK;
}

/* While early reading goes on: pinning takes long. */
static dfx_status alloc_staging(dfx_feed *feed, size_t bytes) {
    dfx_backend *be = feed->o.backend;
    dfx_mem block = dfx_tier_block(feed->o.tier);
    if (!block.ptr || block.bytes != bytes)
        return be->vt->pinned_alloc(be, bytes, "staging", &feed->staging);
    DFX_TRY(be->vt->pin(be, block.ptr, bytes));
    dfx_tier_take_block(feed->o.tier);
    feed->staging = block;
    feed->staging_is_block = true;
    return DFX_OK;
}

static void free_staging(dfx_feed *feed) {
    dfx_backend *be = feed->o.backend;
    if (!feed->staging_is_block) {
        be->vt->pinned_free(be, &feed->staging);
        return;
    }
    dfx_tier_drop_early(feed->o.tier);
    be->vt->unpin(be, feed->staging.ptr, feed->staging.bytes);
    dfx_mem_unmap(&feed->staging);
}

static bool overlap(const dfx_mem *a, const char *b, size_t b_bytes) {
    const char *from = a->ptr;
    return from < b + b_bytes && b < from + a->bytes;
}

bool dfx_feed_buffer_is_empty(dfx_feed *feed, const void *buffer) {
    size_t bytes = feed->staging_stride;
    if (!feed->staging_is_block)
        return true;
    for (uint32_t i = feed->n_placed; i < feed->n_asked; i++) {
        uint32_t k = feed->list[i];
        const dfx_tier_page *held = dfx_feed_held(feed, feed->o.plan->transfers[k].page_idx);
        if (feed->way[k] == FEED_WAY_EARLY && overlap(&held->mem, buffer, bytes))
            return false;
    }
    for (uint32_t p = 0; p < feed->o.plan->n_pages; p++) {
        dfx_tier_page *held = dfx_feed_held(feed, p);
        if (held->in_block && overlap(&held->mem, buffer, bytes))
            held->loaded = false;
    }
    return true;
}

static dfx_status tell_tier(const dfx_feed *feed) {
    const dfx_plan *plan = feed->o.plan;
    bool *is_kept;
    DFX_TRY(dfx_new_array(feed->sink, dfx_packed_n_pages(feed->o.packed), "page feed", &is_kept));
    for (uint32_t p = 0; p < plan->n_pages; p++)
        is_kept[feed->o.page_idx[p]] |= plan->in_ram[p];
    dfx_tier_want(feed->o.tier, is_kept, feed->o.backend);
    dfx_free(is_kept);
    return DFX_OK;
}

dfx_status dfx_feed_memory_init(dfx_feed *feed) {
    const dfx_plan *plan = feed->o.plan;
    size_t stored, scratch, staging_bytes;
    DFX_TRY(dfx_new_array(feed->sink, plan->n_transfers, "page feed", &feed->is_made));
    DFX_TRY(dfx_new_array(feed->sink, plan->n_transfers, "page feed", &feed->way));
    DFX_TRY(dfx_new_array(feed->sink, plan->n_transfers, "page feed", &feed->list));
    DFX_TRY(dfx_new_array(feed->sink, plan->n_transfers, "page feed", &feed->position));
    DFX_TRY(lay_out(feed, &stored, &scratch));
    feed->staging_stride = dfx_align_up((size_t)plan->staging_bytes, FEED_ALIGN);
    if (!dfx_mul_size(feed->staging_stride, plan->n_staging, &staging_bytes))
        return dfx_fail(feed->sink, DFX_E_NOFIT,
                        "%u staging buffers of %" PRIu64 " bytes are more than can be addressed",
                        plan->n_staging, plan->staging_bytes);
    DFX_TRY(tell_tier(feed));
    if (staging_bytes > 0)
        DFX_TRY(alloc_staging(feed, staging_bytes));
    DFX_TRY(alloc_stored(feed, stored, scratch));
    DFX_TRY(dfx_tier_settle(feed->o.tier, feed->o.early_bytes));
    return open_disk(feed);
}

void dfx_feed_memory_fini(dfx_feed *feed) {
    dfx_disk_close(feed->disk);
    dfx_mem_free(&feed->scratch);
    dfx_mem_free(&feed->stored_mem);
    if (feed->staging.ptr)
        free_staging(feed);
    dfx_free(feed->position);
    dfx_free(feed->list);
    dfx_free(feed->way);
    dfx_free(feed->is_made);
    dfx_free(feed->transfer_of);
}
