#include "tests/plan_replay.h"

#include <math.h>
#include <stdlib.h>

#include "tests/tmpdir.h"

typedef struct watch {
    const dfx_plan *plan;
    const dfx_plan_problem *p;
    plan_replay *r;
    bool warm;
    bool *read_once; /* [n_pages] a page of the RAM tier has been read */
    double
        *staged_until; /* [n_transfers] by count of staged reads: when the buffer is free again */
    uint32_t n_staged, first_copy; /* copies before it have ended */
    double disk_free;
} watch;

static double most(double a, double b) {
    return a < b ? b : a;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 255) & ~(uint64_t)255;
}

static bool skipped(const watch *w, uint32_t t) {
    return w->warm && w->plan->transfers[t].once;
}

static double read_seconds(const watch *w, uint32_t page) {
    return w->p->profile->disk_latency_s +
           (double)w->p->pages[page].disk_bytes / w->p->profile->disk_bytes_per_s;
}

/* Transfer t, after all before it: the previous one, the visit that frees its place, its read. */
static void play_transfer(watch *w, uint32_t t, double link_free) {
    const dfx_transfer *x = &w->plan->transfers[t];
    const dfx_profile *f = w->p->profile;
    double place_free = x->after_visit == DFX_NO_VISIT ? 0 : w->r->visit_end[x->after_visit];
    double begin = most(link_free, place_free), copy = f->link_latency_s;
    copy += (double)w->p->pages[x->page_idx].bytes / f->link_bytes_per_s;
    if (f->unified) {
        begin = most(w->disk_free, place_free);
        copy = read_seconds(w, x->page_idx);
        w->disk_free = begin + copy;
    } else if (w->plan->in_ram[x->page_idx]) {
        if (!w->warm && !w->read_once[x->page_idx]) {
            w->disk_free += read_seconds(w, x->page_idx);
            begin = most(begin, w->disk_free);
        }
        w->read_once[x->page_idx] = true;
    } else {
        uint32_t n = w->plan->n_staging;
        assert_true(n >= 1);
        assert_true(w->p->pages[x->page_idx].bytes <= w->plan->staging_bytes);
        if (w->n_staged >= n)
            w->disk_free = most(w->disk_free, w->staged_until[w->n_staged - n]);
        w->disk_free += read_seconds(w, x->page_idx);
        begin = most(begin, w->disk_free);
        w->staged_until[w->n_staged++] = begin + copy;
    }
    w->r->transfer_begin[t] = begin;
    w->r->transfer_end[t] = begin + copy;
}

/* How much of [from, until] the first n transfers copy. */
static double copied_seconds(const watch *w, uint32_t n, double from, double until) {
    double sum = 0;
    for (uint32_t t = w->first_copy; t < n; t++) {
        double begin = most(w->r->transfer_begin[t], from), end = w->r->transfer_end[t];
        sum += most((end < until ? end : until) - begin, 0);
    }
    return sum;
}

/* When what takes `seconds` alone has been computed: looked for by halves, as the moment up to which the time without copies and
 * the 1 / (1 + share) of that with them add up to it. */
static double computed(watch *w, uint32_t n, double begin, double seconds) {
    double share = w->p->profile->link_slows_compute, low = begin,
           high = begin + seconds * (1 + share);
    if (share == 0 || w->p->profile->unified)
        return begin + seconds;
    while (w->first_copy < n && w->r->transfer_end[w->first_copy] <= begin)
        w->first_copy++;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2, beside = copied_seconds(w, n, begin, middle);
        *(middle - begin - beside + beside / (1 + share) < seconds ? &low : &high) = middle;
    }
    return high;
}

static void play(watch *w) {
    const dfx_plan *plan = w->plan;
    double link_free = 0, now = 0;
    uint32_t t = 0, begun = 0;
    for (uint32_t v = 0; v < plan->n_visits; v++) {
        double here = 0;
        for (; begun < plan->n_transfers; begun++) { /* whatever needs not wait for this visit */
            uint32_t after = plan->transfers[begun].after_visit;
            if (after != DFX_NO_VISIT && after >= v)
                break;
            if (skipped(w, begun))
                continue;
            play_transfer(w, begun, link_free);
            link_free = w->r->transfer_end[begun];
        }
        if (t < plan->n_transfers && plan->transfers[t].for_visit == v) {
            const dfx_transfer *x = &plan->transfers[t];
            assert_true(t < begun);
            assert_int_equal(x->page_idx, plan->visits[v].page_idx);
            assert_true(x->off == plan->visits[v].off);
            here = w->r->transfer_end[t++];
        }
        w->r->visit_begin[v] = most(now, here);
        now = w->r->visit_end[v] =
            computed(w, begun, w->r->visit_begin[v], plan->visits[v].seconds);
    }
    assert_int_equal(t, plan->n_transfers); /* in the order of visits, one for each at the most */
    w->r->seconds = now;
}

static bool touches(const watch *w, uint32_t t, uint64_t off, uint64_t bytes) {
    const dfx_transfer *x = &w->plan->transfers[t];
    return x->off < off + bytes && off < x->off + w->p->pages[x->page_idx].bytes;
}

/* No transfer but `own` runs over these bytes between two moments. */
static void undisturbed(const watch *w, uint64_t off, uint64_t bytes, double from, double until,
                        uint32_t own) {
    const double slack = 1e-12 * (1 + w->r->seconds);
    for (uint32_t t = 0; t < w->plan->n_transfers; t++)
        if (t != own && !skipped(w, t) && touches(w, t, off, bytes) &&
            w->r->transfer_begin[t] < until - slack && w->r->transfer_end[t] > from + slack)
            fail_msg("transfer %u of page %u writes over bytes in use", t,
                     w->plan->transfers[t].page_idx);
}

/* The latest transfer of the page to this place, up to the visit. */
static uint32_t transfer_of(const watch *w, uint32_t v) {
    for (uint32_t t = w->plan->n_transfers; t-- > 0;) {
        const dfx_transfer *x = &w->plan->transfers[t];
        if (x->for_visit <= v && x->page_idx == w->plan->visits[v].page_idx)
            return t;
    }
    fail_msg("visit %u: its page never comes", v);
    return 0;
}

static void watch_visit(const watch *w, uint32_t v) {
    const dfx_visit *visit = &w->plan->visits[v];
    const dfx_plan_stage *stage = &w->p->stages[visit->stage_idx];
    uint64_t bytes = w->p->pages[visit->page_idx].bytes, state = rounded(w->p->state_bytes);
    uint32_t t = transfer_of(w, v);
    bool there = skipped(w, t);
    double from = there ? 0 : w->r->transfer_begin[t], end = w->r->visit_end[v];
    assert_true(w->plan->transfers[t].off == visit->off);
    assert_true(w->r->visit_begin[v] >= w->r->transfer_end[t]);
    undisturbed(w, visit->off, bytes, from, end, t);
    if (w->plan->permanent[visit->page_idx]) /* also for the next picture */
        undisturbed(w, visit->off, bytes, 0, w->r->seconds, t);
    assert_true(visit->off >= state + rounded(stage->activation_bytes));
    assert_true(visit->off + bytes <= w->plan->arena_bytes);
    undisturbed(w, state, stage->activation_bytes, w->r->visit_begin[v], end, DFX_NO_VISIT);
    undisturbed(w, 0, state, 0, w->r->seconds, DFX_NO_VISIT);
}

static void compare(const watch *w) {
    uint32_t n_visits = w->plan->n_visits, n_transfers = w->plan->n_transfers;
    double *all = calloc(n_visits + 2 * (size_t)n_transfers + 1, sizeof(double));
    assert_non_null(all);
    dfx_plan_times times = {all, all + n_visits, all + n_visits + n_transfers};
    double seconds = dfx_plan_simulate(w->plan, w->p, w->warm, &times);
    double tolerance = 1e-9 * w->r->seconds + 1e-15;
    assert_true(fabs(seconds - w->r->seconds) <= tolerance);
    for (uint32_t v = 0; v < n_visits; v++)
        assert_true(fabs(times.visit_end[v] - w->r->visit_end[v]) <= tolerance);
    for (uint32_t t = 0; t < n_transfers; t++)
        assert_true(fabs(times.transfer_end[t] - w->r->transfer_end[t]) <= tolerance);
    free(all);
}

void plan_replay_watch(const dfx_plan *plan, const dfx_plan_problem *p, bool warm,
                       plan_replay *out) {
    *out = (plan_replay){.transfer_begin = calloc(plan->n_transfers + 1, sizeof(double)),
                         .transfer_end = calloc(plan->n_transfers + 1, sizeof(double)),
                         .visit_begin = calloc(plan->n_visits + 1, sizeof(double)),
                         .visit_end = calloc(plan->n_visits + 1, sizeof(double))};
    watch w = {.plan = plan,
               .p = p,
               .r = out,
               .warm = warm,
               .read_once = calloc(plan->n_pages + 1, sizeof(bool)),
               .staged_until = calloc(plan->n_transfers + 1, sizeof(double))};
    assert_true(out->transfer_begin && out->transfer_end && out->visit_begin && out->visit_end &&
                w.read_once && w.staged_until);
    play(&w);
    for (uint32_t v = 0; v < plan->n_visits; v++)
        watch_visit(&w, v);
    compare(&w);
    free(w.read_once);
    free(w.staged_until);
}

void plan_replay_free(plan_replay *r) {
    free(r->transfer_begin);
    free(r->transfer_end);
    free(r->visit_begin);
    free(r->visit_end);
    *r = (plan_replay){0};
}

double plan_replay_steady(const plan_replay *r, const dfx_plan *plan, const dfx_plan_problem *p,
                          uint32_t stage) {
    uint32_t n = p->stages[stage].n_regions, repeats = p->stages[stage].n_repeats,
             end = plan->stage_first_visit[stage + 1], timed = repeats / 2;
    return (r->visit_end[end - 1] - r->visit_end[end - 1 - timed * n]) / timed;
}
