/* Plays a timetable in simulated time: one disk, one link, one device, each doing one thing at a time in order. */
#include <math.h>

#include "offload/planner.h"

enum { STAGING_MAX = 16 };

typedef struct clocks {
    const dfx_plan *plan;
    const dfx_profile *f;
    double disk, link, device;  /* when each is free */
    double staged[STAGING_MAX]; /* when each staging buffer is free */
    uint64_t n_staged;
    uint32_t next_visit, next_transfer; /* not yet played */
    double *visit_end;                  /* [n_visits] */
} clocks;

/* When the page is in pinned memory, or on unified memory in its place. */
static double read_end(clocks *c, const dfx_plan_page *page, const dfx_transfer *t,
                       double place_free, bool warm) {
    double seconds = c->f->disk_latency_s + (double)page->disk_bytes / c->f->disk_bytes_per_s;
    if (c->f->unified)
        return c->disk = fmax(c->disk, place_free) + seconds;
    if (c->plan->in_ram[t->page_idx])
        return warm ? 0 : (c->disk += seconds);
    double buffer_free = c->staged[c->n_staged % c->plan->n_staging];
    return c->disk = fmax(c->disk, buffer_free) + seconds;
}

static double play_transfer(clocks *c, const dfx_plan_problem *p, const dfx_transfer *t,
                            bool warm) {
    const dfx_plan_page *page = &p->pages[t->page_idx];
    double place_free = t->after_visit == DFX_NO_VISIT ? 0 : c->visit_end[t->after_visit];
    double here = read_end(c, page, t, place_free, warm);
    if (c->f->unified)
        return here;
    c->link = fmax(fmax(c->link, here), place_free) + c->f->link_latency_s +
              (double)page->bytes / c->f->link_bytes_per_s;
    if (!c->plan->in_ram[t->page_idx])
        c->staged[c->n_staged++ % c->plan->n_staging] = c->link;
    return c->link;
}

/* A page of the RAM tier is read from disk once: in the cold picture, at its first transfer. */
static bool is_first_transfer(const dfx_plan *plan, uint32_t idx) {
    for (uint32_t i = 0; i < idx; i++)
        if (plan->transfers[i].page_idx == plan->transfers[idx].page_idx)
            return false;
    return true;
}

static void play_visit(clocks *c, double page_here) {
    c->device = fmax(c->device, page_here) + c->plan->visits[c->next_visit].seconds;
    c->visit_end[c->next_visit++] = c->device;
}

static double simulate(clocks *c, const dfx_plan_problem *p, bool warm, double *transfer_end) {
    const dfx_plan *plan = c->plan;
    for (uint32_t i = 0; i < plan->n_transfers; i++) {
        const dfx_transfer *t = &plan->transfers[i];
        while (c->next_visit < t->for_visit) /* visits that need no transfer */
            play_visit(c, 0);
        double end = 0;
        if (!(t->once && warm))
            end = play_transfer(c, p, t,
                                warm || (plan->in_ram[t->page_idx] && !is_first_transfer(plan, i)));
        if (transfer_end)
            transfer_end[i] = end;
        play_visit(c, end);
    }
    while (c->next_visit < plan->n_visits)
        play_visit(c, 0);
    return c->device;
}

double dfx_plan_simulate(const dfx_plan *plan, const dfx_plan_problem *p, bool warm,
                         double *visit_end, double *transfer_end) {
    void *own = NULL;
    if (!visit_end &&
        dfx_alloc_array(NULL, plan->n_visits, sizeof(double), "planner", &own) != DFX_OK)
        return NAN;
    clocks c = {.plan = plan, .f = p->profile, .visit_end = visit_end ? visit_end : own};
    double seconds = simulate(&c, p, warm, transfer_end);
    dfx_free(own);
    return seconds;
}
