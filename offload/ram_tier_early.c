/* Reading before there is a plan: one thread, as many requests in flight as a disk needs. All memory is taken before it starts,
 * so that what cannot be had is told like anything else; untouched it costs nothing. */
#include "offload/ram_tier_internal.h"

/* In flight at the least, while there is more: some tens of requests. More would only make the plan wait for it. */
static const size_t AHEAD_BYTES = (size_t)32 << 20;

static void *early_main(void *raw);

/* As many of the pages as `most_bytes` hold. */
static dfx_status hold_pages(dfx_tier *tier, const uint32_t *page_idx, uint32_t n_pages,
                             uint64_t most_bytes) {
    for (uint32_t i = 0; i < n_pages; i++) {
        const dfx_packed_page *page = dfx_packed_page_at(tier->o.packed, page_idx[i]);
        if (page->codec != DFX_CODEC_RAW)
            continue;
        if (dfx_tier_page_bytes(tier, page_idx[i]) > most_bytes)
            break;
        DFX_TRY(dfx_tier_hold(tier, page_idx[i]));
        most_bytes -= dfx_tier_page_bytes(tier, page_idx[i]);
        tier->early[tier->n_early++] = page_idx[i];
    }
    return DFX_OK;
}

dfx_status dfx_tier_read_early(dfx_tier *tier, const uint32_t *page_idx, uint32_t n_pages,
                               uint64_t most_bytes) {
    DFX_TRY(dfx_new_array(tier->sink, n_pages, "pages in RAM", &tier->early));
    DFX_TRY(hold_pages(tier, page_idx, n_pages, most_bytes));
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
