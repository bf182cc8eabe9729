#include "offload/visit_clock.h"

/* What is between two visits on an idle host. */
enum { GAP_NS = 20000 };

dfx_status dfx_visit_clock_init(dfx_visit_clock *c, const dfx_plan *plan, const dfx_trace *trace,
                                dfx_timeline *timeline, const dfx_sink *sink) {
    *c = (dfx_visit_clock){.plan = plan, .trace = trace, .timeline = timeline};
    return dfx_new_array(sink, plan->n_visits, "visit clock", &c->wait);
}

void dfx_visit_clock_fini(dfx_visit_clock *c) {
    dfx_free(c->wait);
    *c = (dfx_visit_clock){0};
}

static void set_next(dfx_visit_clock *c, uint32_t visit) {
    c->next_visit = visit == c->visits.skip_from ? c->visits.skip_to : visit;
}

void dfx_visit_clock_begin(dfx_visit_clock *c, const dfx_feed_visits *visits) {
    c->visits = *visits;
    set_next(c, visits->first);
    c->last_ns = (int64_t)dfx_clock_ns();
    c->compute_seconds = c->link_seconds = c->disk_seconds = c->host_seconds = 0;
}

void dfx_visit_clock_skip(dfx_visit_clock *c, uint32_t skip_from) {
    c->visits.skip_from = skip_from;
    set_next(c, c->next_visit);
}

void dfx_visit_clock_again(dfx_visit_clock *c, uint32_t visit) {
    c->next_visit = visit;
}

void dfx_visit_clock_pinned(dfx_visit_clock *c, uint32_t visit, dfx_feed_wait wait) {
    c->wait[visit] = (uint8_t)wait;
}

static void add_span(const dfx_visit_clock *c, dfx_track track, uint32_t visit, int64_t begin_ns,
                     int64_t end_ns) {
    dfx_timeline_span(c->timeline, track, c->trace->pages[c->plan->visits[visit].page_idx].name,
                      (uint64_t)begin_ns, (uint64_t)end_ns, 0);
}

static double *waited_for(dfx_visit_clock *c, uint32_t visit) {
    switch ((dfx_feed_wait)c->wait[visit]) {
    case DFX_FEED_WAIT_LINK:
        return &c->link_seconds;
    case DFX_FEED_WAIT_DISK:
        return &c->disk_seconds;
    case DFX_FEED_NO_WAIT:
        break;
    }
    return &c->host_seconds;
}

void dfx_visit_clock_ended(dfx_visit_clock *c, uint32_t visit, dfx_times at) {
    int64_t gap_ns = at.begin_ns - c->last_ns;
    if (gap_ns > 0)
        *waited_for(c, visit) += 1e-9 * (double)gap_ns;
    if (gap_ns > GAP_NS)
        add_span(c, DFX_TRACK_STALL, visit, c->last_ns, at.begin_ns);
    c->compute_seconds += 1e-9 * (double)(at.end_ns - at.begin_ns);
    add_span(c, DFX_TRACK_COMPUTE, visit, at.begin_ns, at.end_ns);
    c->last_ns = at.end_ns;
    set_next(c, visit + 1);
}
