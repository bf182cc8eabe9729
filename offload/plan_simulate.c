/* Plays a timetable in simulated time: one disk, one link, one device, each doing one thing at a time in order. A transfer is
 * played as soon as the visit that frees its place has been, so that the copies beside a visit are known when it is. */
#include <math.h>

#include "offload/planner_internal.h"

enum { STAGING_MAX = 16 };

typedef struct clocks {
    const dfx_plan *plan;
    const dfx_plan_problem *p;
    const dfx_profile *f;
    const dfx_plan_times *times;
    bool warm;
    double disk, link, device;  /* when each is free */
    double staged[STAGING_MAX]; /* when each staging buffer is free */
    uint64_t n_staged;
    uint32_t next_visit, next_transfer; /* not yet played */
    uint32_t first_copy;                /* those before it have ended */
} clocks;

/* A page of the RAM tier is read from disk once: in the cold picture, at its first transfer. */
static bool is_first_transfer(const dfx_plan *plan, uint32_t idx) {
    for (uint32_t i = 0; i < idx; i++)
        if (plan->transfers[i].page_idx == plan->transfers[idx].page_idx)
            return false;
    return true;
}

/* When the page is in pinned memory, or on unified memory in its place. */
static double read_end(clocks *c, uint32_t idx, double place_free) {
    uint32_t page_idx = c->plan->transfers[idx].page_idx;
    double seconds =
        c->f->disk_latency_s + (double)c->p->pages[page_idx].disk_bytes / c->f->disk_bytes_per_s;
    if (c->f->unified)
        return c->disk = fmax(c->disk, place_free) + seconds;
    if (c->plan->in_ram[page_idx])
        return c->warm || !is_first_transfer(c->plan, idx) ? 0 : (c->disk += seconds);
    double buffer_free = c->staged[c->n_staged % c->plan->n_staging];
    return c->disk = fmax(c->disk, buffer_free) + seconds;
}

static void play_transfer(clocks *c, uint32_t idx) {
    const dfx_transfer *t = &c->plan->transfers[idx];
    double *begin = &c->times->transfer_begin[idx], *end = &c->times->transfer_end[idx];
    *begin = *end = 0;
    if (t->once && c->warm)
        return;
    double place_free = t->after_visit == DFX_NO_VISIT ? 0 : c->times->visit_end[t->after_visit];
    double here = read_end(c, idx, place_free);
    *begin = *end = here;
    if (c->f->unified)
        return;
    *begin = fmax(fmax(c->link, here), place_free);
    *end = c->link = *begin + c->f->link_latency_s +
                     (double)c->p->pages[t->page_idx].bytes / c->f->link_bytes_per_s;
    if (!c->plan->in_ram[t->page_idx])
        c->staged[c->n_staged++ % c->plan->n_staging] = c->link;
}

/* All that may begin before the next visit ends. */
static void play_transfers(clocks *c) {
    while (c->next_transfer < c->plan->n_transfers) {
        uint32_t after = c->plan->transfers[c->next_transfer].after_visit;
        if (after != DFX_NO_VISIT && after >= c->next_visit)
            return;
        play_transfer(c, c->next_transfer++);
    }
}

static double compute_end(clocks *c, double begin, double seconds) {
    const dfx_plan_times *t = c->times;
    dfx_plan_computing computing = {begin, seconds};
    double share = dfx_plan_share(c->f);
    while (c->first_copy < c->next_transfer && t->transfer_end[c->first_copy] <= begin)
        c->first_copy++;
    for (uint32_t i = c->first_copy; share > 0 && i < c->next_transfer; i++) {
        if (t->transfer_begin[i] >= computing.at + computing.left)
            break;
        dfx_plan_compute_beside(&computing, share, t->transfer_begin[i], t->transfer_end[i]);
    }
    return computing.at + computing.left;
}

double dfx_plan_simulate(const dfx_plan *plan, const dfx_plan_problem *p, bool warm,
                         const dfx_plan_times *times) {
    clocks c = {.plan = plan, .p = p, .f = p->profile, .times = times, .warm = warm};
    for (uint32_t own = 0; c.next_visit < plan->n_visits; c.next_visit++) {
        play_transfers(&c);
        if (own < plan->n_transfers && plan->transfers[own].for_visit == c.next_visit)
            c.device = fmax(c.device, times->transfer_end[own++]);
        c.device = compute_end(&c, c.device, plan->visits[c.next_visit].seconds);
        times->visit_end[c.next_visit] = c.device;
    }
    return c.device;
}
