/* See bench_io.h. The plan is the plainest that streams: each page is visited once, in the order of the file, through two
 * places and a few staging buffers, nothing stays. Visits take no time, so the disk is what the feed waits for. */
#include "tools/bench_io.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "offload/page_feed.h"
#include "tools/bench_bare.h"

enum { N_PLACES = 2, N_STAGING = 3 };

typedef struct bench {
    const dfx_packed *packed;
    const dfx_bench_io_options *options;
    const dfx_sink *sink;
    dfx_bench_io *out;
    dfx_bench_bare bare;
    uint32_t *page_idx; /* owned; [n_pages] */
    bool *never;        /* owned; [n_pages]: all false */
    dfx_plan plan;      /* its arrays owned here */
    dfx_backend *backend;
    dfx_mem arena;
    dfx_tier *tier;
    dfx_feed *feed;
} bench;

/* Pages as they are in memory, and the stretch of the file from the first to the last of them. */
static dfx_status choose_pages(bench *b) {
    size_t n = dfx_packed_n_pages(b->packed);
    uint64_t first = UINT64_MAX, end = 0;
    DFX_TRY(dfx_new_array(b->sink, n, "bench", &b->page_idx));
    for (size_t i = 0; i < n; i++) {
        const dfx_packed_page *page = dfx_packed_page_at(b->packed, i);
        if (page->codec != DFX_CODEC_RAW || page->bytes == 0)
            continue;
        b->page_idx[b->out->n_pages++] = (uint32_t)i;
        b->out->bytes += page->bytes;
        first = page->off < first ? page->off : first;
        end = page->off + page->bytes > end ? page->off + page->bytes : end;
        if (page->bytes > b->plan.slot_bytes)
            b->plan.slot_bytes = page->bytes;
    }
    if (b->out->n_pages == 0)
        return dfx_fail(b->sink, DFX_E_USAGE,
                        "%s: wanted pages that are not compressed, found none; pack it without "
                        "--compress",
                        dfx_packed_path(b->packed));
    b->bare.off = first;
    b->bare.bytes = (end - first) / DFX_DISK_ALIGN * DFX_DISK_ALIGN;
    return DFX_OK;
}

static dfx_status make_plan(bench *b) {
    dfx_plan *plan = &b->plan;
    uint32_t n = b->out->n_pages;
    DFX_TRY(dfx_new_array(b->sink, n, "bench", &plan->visits));
    DFX_TRY(dfx_new_array(b->sink, n, "bench", &plan->transfers));
    DFX_TRY(dfx_new_array(b->sink, n, "bench", &b->never));
    plan->in_ram = plan->permanent = plan->resident = b->never;
    plan->n_visits = plan->n_transfers = plan->n_pages = n;
    plan->slot_bytes = dfx_align_up((size_t)plan->slot_bytes, DFX_DISK_ALIGN);
    plan->arena_bytes = N_PLACES * plan->slot_bytes;
    plan->n_staging = N_STAGING;
    plan->staging_bytes = plan->slot_bytes;
    plan->host_bytes = N_STAGING * plan->staging_bytes;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t off = i % N_PLACES * plan->slot_bytes;
        plan->visits[i] = (dfx_visit){.page_idx = i, .off = off};
        plan->transfers[i] =
            (dfx_transfer){.page_idx = i,
                           .after_visit = i < N_PLACES ? DFX_NO_VISIT : i - N_PLACES,
                           .for_visit = i,
                           .off = off};
    }
    return DFX_OK;
}

static dfx_status set_up(bench *b) {
    dfx_bench_io *out = b->out;
    out->queue_depth =
        b->options->queue_depth ? b->options->queue_depth : (uint32_t)DFX_DISK_DEPTH_DEFAULT;
    out->block_bytes = DFX_DISK_BLOCK_BYTES;
    DFX_TRY(choose_pages(b));
    DFX_TRY(make_plan(b));
    b->bare.path = dfx_packed_path(b->packed);
    b->bare.queue_depth = out->queue_depth;
    b->bare.block_bytes = out->block_bytes;
    b->bare.cancelled = b->options->cancelled;
    DFX_TRY(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 1}, b->sink, &b->backend));
    DFX_TRY(b->backend->vt->alloc(b->backend, (size_t)b->plan.arena_bytes, "bench", &b->arena));
    DFX_TRY(dfx_tier_open(&(dfx_tier_options){.packed = b->packed}, b->sink, &b->tier));
    return dfx_feed_open(&(dfx_feed_options){.plan = &b->plan,
                                             .packed = b->packed,
                                             .page_idx = b->page_idx,
                                             .tier = b->tier,
                                             .backend = b->backend,
                                             .arena = b->arena.ptr,
                                             .queue_depth = out->queue_depth},
                         b->sink, &b->feed);
}

static void tear_down(bench *b) {
    dfx_feed_close(b->feed);
    dfx_tier_close(b->tier);
    if (b->backend) {
        b->backend->vt->free(b->backend, &b->arena);
        b->backend->vt->close(b->backend);
    }
    dfx_free(b->never);
    dfx_free(b->plan.transfers);
    dfx_free(b->plan.visits);
    dfx_free(b->page_idx);
}

static dfx_status run_feed(bench *b, double *seconds) {
    double began = dfx_bench_seconds();
    dfx_status status = dfx_feed_begin(b->feed, &(dfx_feed_visits){.first = 0});
    for (uint32_t v = 0; status == DFX_OK && v < b->plan.n_visits; v++) {
        void *base;
        status = dfx_feed_pin(b->feed, v, b->options->cancelled, NULL, &base);
        if (status == DFX_OK)
            dfx_feed_unpin(b->feed, v);
    }
    *seconds = dfx_bench_seconds() - began;
    dfx_feed_end(b->feed);
    return status;
}

/* The kernel's name of the block device under the file. */
static void find_device(const char *path, char device[DFX_BENCH_DEVICE_BYTES]) {
    struct stat st;
    char link[64], target[PATH_MAX];
    device[0] = '\0';
    if (stat(path, &st) != 0)
        return;
    snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(device, DFX_BENCH_DEVICE_BYTES, "%.60s", slash ? slash + 1 : target);
}

dfx_status dfx_bench_io_run(const dfx_packed *packed, const dfx_bench_io_options *options,
                            const dfx_sink *sink, dfx_bench_io *out) {
    bench b = {.packed = packed, .options = options, .sink = sink, .out = out};
    dfx_feed_stats stats;
    dfx_status status;
    double seconds;
    *out = (dfx_bench_io){0};
    DFX_TRY_OUT(status, set_up(&b));
    find_device(dfx_packed_path(packed), out->device);
    DFX_TRY_OUT(status, run_feed(&b, &seconds));
    for (uint32_t i = 0; i < 2 * options->n_runs; i++) {
        bool feed = (i + 1) / 2 % 2; /* bare, feed, feed, bare: neither always follows the other */
        DFX_TRY_OUT(status,
                    feed ? run_feed(&b, &seconds) : dfx_bench_bare_read(&b.bare, sink, &seconds));
        if (feed)
            dfx_bench_sample_add(&out->feed, (double)out->bytes / seconds);
        else
            dfx_bench_sample_add(&out->bare, (double)b.bare.bytes / seconds);
    }
    dfx_feed_get_stats(b.feed, &stats);
    out->mode = stats.io;
out:
    tear_down(&b);
    return status;
}
