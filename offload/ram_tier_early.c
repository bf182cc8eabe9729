/* Reading before there is a plan: one thread, as many requests in flight as a disk needs. All memory is taken before it starts,
 * so that what cannot be had is told like anything else; untouched it costs nothing. */
#include "offload/ram_tier_internal.h"

/* In flight at the least, while there is more: some tens of requests. More would only make the plan wait for it. */
static const size_t AHEAD_BYTES = (size_t)32 << 20;

static void *early_main(void *raw);

static dfx_status hold(dfx_tier *tier, uint32_t packed_idx, uint64_t off) {
    dfx_tier_page *page = &tier->pages[packed_idx];
    if (!tier->block.ptr)
        return dfx_tier_hold(tier, packed_idx);
    page->in_block = true;
    page->mem = tier->block;
    page->mem.ptr = (char *)tier->block.ptr + off;
    page->mem.bytes = dfx_tier_page_bytes(tier, packed_idx);
    return DFX_OK;
}

/* In the block they lie one behind the other, and what has to be read before them must not be in their way: the compressed. */
static dfx_status hold_pages(dfx_tier *tier, const dfx_tier_early *o) {
    uint64_t off = 0;
    if (o->in_block)
        DFX_TRY(dfx_mem_map(tier->sink, (size_t)o->most_bytes, "staging", &tier->block));
    for (uint32_t i = 0; i < o->n_pages; i++) {
        uint32_t p = o->page_idx[i];
        size_t bytes = dfx_tier_page_bytes(tier, p);
        bool is_raw = dfx_packed_page_at(tier->o.packed, p)->codec == DFX_CODEC_RAW;
        if (bytes > o->most_bytes - off || (!is_raw && o->in_block))
            break;
        if (!is_raw)
            continue;
        DFX_TRY(hold(tier, p, off));
        off += bytes;
        tier->early[tier->n_early++] = p;
    }
    return DFX_OK;
}

dfx_status dfx_tier_read_early(dfx_tier *tier, const dfx_tier_early *early) {
    DFX_TRY(dfx_new_array(tier->sink, early->n_pages, "pages in RAM", &tier->early));
    DFX_TRY(hold_pages(tier, early));
    if (tier->n_early == 0)
        return DFX_OK;
    dfx_disk_options options = {.path = dfx_packed_path(tier->o.packed), .os = tier->o.os};
    dfx_status status = dfx_disk_open(&options, NULL, &tier->disk);
    if (status == DFX_E_NOFIT)
        return dfx_fail(tier->sink, status, "out of memory: reading ahead of the plan needs some");
    tier->has_thread =
        status == DFX_OK && pthread_create(&tier->thread, NULL, early_main, tier) == 0;
    return DFX_OK;
}

void dfx_tier_stop_early(dfx_tier *tier, bool drop) {
    atomic_store(&tier->drop, drop);
    atomic_store(&tier->stop, true);
    if (tier->has_thread)
        pthread_join(tier->thread, NULL);
    tier->has_thread = false;
    dfx_disk_close(tier->disk);
    tier->disk = NULL;
}

/* Pages [first, end) of the list are being read. */
typedef struct window {
    uint32_t first, end;
    size_t bytes;
    uint64_t asked_ns[DFX_DISK_RANGES_MAX];
    uint64_t read_ns; /* when the last page had come */
} window;

static const dfx_packed_page *page_of(const dfx_tier *tier, uint32_t i) {
    return dfx_packed_page_at(tier->o.packed, tier->early[i]);
}

static dfx_status ask(dfx_tier *tier, window *w) {
    const dfx_packed_page *page = page_of(tier, w->end);
    uint32_t packed_idx = tier->early[w->end];
    w->asked_ns[w->end % DFX_DISK_RANGES_MAX] = dfx_clock_ns();
    w->bytes += (size_t)page->stored_bytes;
    w->end++;
    return dfx_disk_submit(tier->disk,
                           &(dfx_disk_range){.off = page->off,
                                             .dst = tier->pages[packed_idx].mem.ptr,
                                             .bytes = (size_t)page->stored_bytes,
                                             .room = dfx_tier_page_bytes(tier, packed_idx)});
}

/* Each page takes on the timeline what passed since the one before it. */
static void take(dfx_tier *tier, window *w) {
    const dfx_packed_page *page = page_of(tier, w->first);
    uint64_t asked_ns = w->asked_ns[w->first % DFX_DISK_RANGES_MAX];
    uint64_t begin_ns = asked_ns > w->read_ns ? asked_ns : w->read_ns;
    w->read_ns = dfx_clock_ns();
    dfx_timeline_span(tier->o.timeline, DFX_TRACK_DISK, page->name, begin_ns, w->read_ns,
                      page->stored_bytes);
    tier->pages[tier->early[w->first]].loaded = true;
    tier->read_bytes += page->stored_bytes;
    w->bytes -= (size_t)page->stored_bytes;
    w->first++;
}

static void *early_main(void *raw) {
    dfx_tier *tier = raw;
    window w = {0};
    dfx_status status = DFX_OK;
    while (status == DFX_OK && !atomic_load(&tier->drop)) {
        while (status == DFX_OK && !atomic_load(&tier->stop) && w.end < tier->n_early &&
               w.end - w.first < DFX_DISK_RANGES_MAX && w.bytes < AHEAD_BYTES)
            status = ask(tier, &w);
        if (status != DFX_OK || w.first == w.end)
            break;
        uint32_t n_done;
        status = dfx_disk_step(tier->disk, &n_done);
        for (uint32_t i = 0; status == DFX_OK && i < n_done; i++)
            take(tier, &w);
    }
    dfx_disk_drain(tier->disk);
    return NULL;
}
