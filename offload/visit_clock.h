/* Visit clock: where the time of a picture went, visit by visit: computing, or waiting for the link, the disk, the host. What is
 * between the end of a visit and the begin of the next is waiting, for what the next one's page had to be waited for when it
 * was pinned; where its page was there, the host was late. */
#ifndef DFX_OFFLOAD_VISIT_CLOCK_H
#define DFX_OFFLOAD_VISIT_CLOCK_H

#include "core/timeline.h"
#include "offload/page_feed.h"
#include "offload/plan_trace.h"

typedef struct dfx_visit_clock {
    const dfx_plan *plan;   /* borrowed, as the others */
    const dfx_trace *trace; /* names of pages */
    dfx_timeline *timeline; /* NULL: none */
    uint8_t *wait;          /* owned; [n_visits]: a dfx_feed_wait */
    dfx_feed_visits visits; /* of the picture */
    uint32_t next_visit;    /* whose end is not known yet */
    int64_t last_ns;        /* end of the one before; begin of the picture */
    /* Of the picture, so far. */
    double compute_seconds, link_seconds, disk_seconds, host_seconds;
} dfx_visit_clock;

dfx_status dfx_visit_clock_init(dfx_visit_clock *clock, const dfx_plan *plan,
                                const dfx_trace *trace, dfx_timeline *timeline,
                                const dfx_sink *sink);
void dfx_visit_clock_fini(dfx_visit_clock *clock); /* zeroed is fine */

void dfx_visit_clock_begin(dfx_visit_clock *clock, const dfx_feed_visits *visits);
/* The picture does without visits from skip_from on, up to those that it does without anyway. */
void dfx_visit_clock_skip(dfx_visit_clock *clock, uint32_t skip_from);
void dfx_visit_clock_pinned(dfx_visit_clock *clock, uint32_t visit, dfx_feed_wait wait);
/* In order. Times of the host's clock. */
void dfx_visit_clock_ended(dfx_visit_clock *clock, uint32_t visit, dfx_times at);
/* The ops of visits from this one on have run, and will run again. */
void dfx_visit_clock_again(dfx_visit_clock *clock, uint32_t visit);

#endif
