/* Feed: plays a plan's timetable: disk -> pinned -> device. It has no policy of its own.
 *
 *   a page of the RAM tier    COLD --read--> PINNED --verified, copy--> PLACED --visit ends--> its place is free again
 *   one that came early       LOADED --verified, pinned, copy--> PLACED  (given back, if the plan does not keep it)
 *   any other page            COLD --read into a staging buffer--> STAGED --verified, copy--> PLACED  (buffer free again)
 *   on unified memory         COLD --read straight to its place--> PLACED
 *
 * Two threads beside the executor's: one reads (io_uring with O_DIRECT, registered buffers and file, the profile's queue
 * depth; pread where the system refuses, said once), one copies, in the order of the timetable. They meet in bounded queues
 * under one lock. Reading runs ahead of copying as far as staging buffers go; copying waits for `after_visit`. */
#ifndef DFX_OFFLOAD_PAGE_FEED_H
#define DFX_OFFLOAD_PAGE_FEED_H

#include "core/timeline.h"
#include "kernels/backend.h"
#include "offload/disk.h"
#include "offload/packed.h"
#include "offload/plan.h"
#include "offload/ram_tier.h"

typedef struct dfx_feed dfx_feed;

typedef enum dfx_verify { DFX_VERIFY_FIRST, DFX_VERIFY_ALWAYS } dfx_verify;

typedef struct dfx_feed_options {
    const dfx_plan *plan;     /* borrowed until close */
    const dfx_packed *packed; /* borrowed until close */
    const uint32_t *page_idx; /* [plan->n_pages]: index in the packed file; borrowed until close */
    dfx_tier *tier;           /* of the packed file; borrowed until close, and nobody else's */
    uint64_t early_bytes;     /* what came early may take beside plan->host_bytes, until copied */
    dfx_backend *backend;     /* borrowed until close */
    void *arena;              /* device address of the plan's arena */
    uint32_t queue_depth;     /* reads in flight; 0: a sane default */
    dfx_verify verify;        /* checksums: on a page's first read, or on each */
    bool unified;             /* as the profile says */
    const dfx_disk_os *os;    /* NULL: the system; tests make its calls fail */
    dfx_timeline *timeline;   /* of reads and copies; borrowed until close; NULL: none */
} dfx_feed_options;

/* Since open. What was read early is counted by the first begin. */
typedef struct dfx_feed_stats {
    uint64_t read_bytes, copied_bytes;
    double wait_seconds;      /* the executor has waited in pin */
    double disk_wait_seconds; /* of it, for a page that was not read yet */
    double link_wait_seconds; /* of it, for a page that was, and was not copied yet */
    const char *io;           /* how it reads by now: what dfx_disk_mode says */
} dfx_feed_stats;

/* Ends early reading, allocates staging and what the RAM tier lacks (plan->host_bytes, all included) and starts the threads.
 * What it leaves in the tier the next feed finds there. Errors: DFX_E_NOFIT, DFX_E_IO. */
dfx_status dfx_feed_open(const dfx_feed_options *options, const dfx_sink *sink, dfx_feed **out);
void dfx_feed_close(dfx_feed *feed); /* at any moment; NULL is fine */

/* A picture begins. Visits before `first_visit` and those in [skip_from, skip_to) will not be made (stages and repetitions that
 * it does without): transfers for them alone are not either. Transfers start at once. Of visits from hold_from on it is not known
 * yet whether they will be made: nothing is read for them until dfx_feed_decide says more. hold_from 0: all is known. */
typedef struct dfx_feed_visits {
    uint32_t first, skip_from, skip_to, hold_from;
} dfx_feed_visits;
dfx_status dfx_feed_begin(dfx_feed *feed, const dfx_feed_visits *visits);

/* More is known of the picture at hand: visits before hold_from (0: all) will be made, and none in [skip_from, skip_to), which
 * only grows, and not to before the old hold_from. Executor's thread. */
dfx_status dfx_feed_decide(dfx_feed *feed, uint32_t skip_from, uint32_t hold_from);

/* Wait until the page of `visit` is in its place, or on its way there: the ops that are run next wait for it then. Visits in
 * order. Errors: DFX_E_IO or DFX_E_FORMAT from a read, told once
 * by the thread that met it; DFX_E_CANCELLED when `cancelled` (may be NULL, polled) says so. Executor's thread. */
dfx_status dfx_feed_pin(dfx_feed *feed, uint32_t visit, bool (*cancelled)(void *user), void *user,
                        void **base);

/* What the last pin has had to wait for, or will make the ops wait for. Executor's thread. */
typedef enum dfx_feed_wait {
    DFX_FEED_NO_WAIT,
    DFX_FEED_WAIT_LINK,
    DFX_FEED_WAIT_DISK
} dfx_feed_wait;
dfx_feed_wait dfx_feed_last_wait(const dfx_feed *feed);

/* The visit has ended: its place may be written over as the timetable says. */
void dfx_feed_unpin(dfx_feed *feed, uint32_t visit);

/* The picture is finished or abandoned; returns when nothing is in flight. Permanent pages that came stay, what came early and
 * was not asked for is given back; after an error or an abandoned picture the next begin starts clean. */
void dfx_feed_end(dfx_feed *feed);

void dfx_feed_get_stats(const dfx_feed *feed, dfx_feed_stats *out);

#endif
