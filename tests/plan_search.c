#include "tests/plan_search.h"

#include <stdlib.h>

#include "tests/tmpdir.h"

/* Everything that happens, in lists: when the g-th transfer and the v-th visit end, and whose transfer it is. */
typedef struct events {
    double *transfer_end, *read_end, *visit_end;
    uint32_t *visit_of; /* [transfer] */
    size_t n_transfers, n_visits;
} events;

static double most(double a, double b) {
    return a < b ? b : a;
}

static void play_transfer(const plan_rhythm *r, events *e, uint32_t i) {
    size_t g = e->n_transfers;
    double begin = g > 0 ? e->transfer_end[g - 1] : 0;
    if (g >= r->n_slots)
        begin = most(begin, e->visit_end[e->visit_of[g - r->n_slots]]);
    if (r->disk_s) {
        double read = g > 0 ? e->read_end[g - 1] : 0;
        if (g >= r->n_staging)
            read = most(read, e->transfer_end[g - r->n_staging]);
        e->read_end[g] = read + r->disk_s[i];
        begin = most(begin, e->read_end[g]);
    }
    e->transfer_end[g] = begin + r->link_s[i];
    e->visit_of[g] = (uint32_t)e->n_visits;
    e->n_transfers++;
}

double plan_rhythm_seconds(const plan_rhythm *r, uint32_t n_repeats) {
    size_t n = (size_t)n_repeats * r->n;
    double *times = calloc(3 * n + 1, sizeof(double));
    uint32_t *visit_of = calloc(n + 1, sizeof(uint32_t));
    assert_non_null(times);
    assert_non_null(visit_of);
    events e = {.transfer_end = times,
                .read_end = times + n,
                .visit_end = times + 2 * n,
                .visit_of = visit_of};
    double now = 0, half = 0;
    for (uint32_t repeat = 0; repeat < n_repeats; repeat++) {
        if (repeat == n_repeats / 2)
            half = now;
        for (uint32_t i = 0; i < r->n; i++) {
            if (!r->stays[i]) {
                play_transfer(r, &e, i);
                now = most(now, e.transfer_end[e.n_transfers - 1]);
            }
            now += r->seconds[i];
            e.visit_end[e.n_visits++] = now;
        }
    }
    free(times);
    free(visit_of);
    return (now - half) / (n_repeats / 2);
}

double plan_search_best(const plan_rhythm *rhythm, const uint64_t *bytes, uint64_t room,
                        uint32_t n_repeats) {
    plan_rhythm r = *rhythm;
    double best = 1e300;
    for (uint32_t set = 0; set < 1u << r.n; set++) {
        uint64_t held = 0, slot = 0;
        uint32_t n_streamed = 0;
        for (uint32_t i = 0; i < r.n; i++) {
            r.stays[i] = set >> i & 1;
            held += r.stays[i] ? bytes[i] : 0;
            slot = !r.stays[i] && bytes[i] > slot ? bytes[i] : slot;
            n_streamed += !r.stays[i];
        }
        uint32_t least = n_streamed ? 1 : 0;
        for (r.n_slots = least; r.n_slots <= n_streamed; r.n_slots++) {
            if (held + r.n_slots * slot > room)
                break;
            double seconds = plan_rhythm_seconds(&r, n_repeats);
            best = seconds < best ? seconds : best;
        }
    }
    return best;
}
