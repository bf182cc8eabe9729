/* The steady rhythm of a stage that repeats: how long one repetition takes once the first ones are over.
 *
 * Every moment of the play is the latest of some earlier moments plus a constant: a max-plus linear system, in which link,
 * disk, slots and device wait for each other. From some repetition on, the distances between its clocks repeat; then the time
 * between two equal states is exact. A drift that is too slow to settle in CYCLES_MAX repetitions is slower than a buffer's
 * worth in that many, and the sums of computing, link and disk bound it from below. */
#include "offload/planner_internal.h"

#include <math.h>
#include <string.h>

enum { CYCLES_MAX = 40, PERIOD_MAX = 8, STATE_MAX = 2 + DFX_PLAN_SLOTS_MAX + DFX_PLAN_STAGING_MAX };

/* When each is free; slots and staging buffers are taken round robin, `_at` is the next. */
typedef struct clocks {
    double device, link, disk;
    double slot[DFX_PLAN_SLOTS_MAX], staging[DFX_PLAN_STAGING_MAX];
    uint32_t slot_at, staging_at;
} clocks;

/* The clocks seen from the device, oldest slot first. */
typedef struct snapshot {
    double device;
    double state[STATE_MAX];
} snapshot;

static double later(double a, double b) {
    return a > b ? a : b;
}

static void play_transfer(const dfx_plan_cycle *c, clocks *k, uint32_t i) {
    double begin = later(k->link, k->slot[k->slot_at]);
    bool staged = c->disk_s && c->disk_s[i] > 0;
    if (staged) {
        k->disk = later(k->disk, k->staging[k->staging_at]) + c->slowness * c->disk_s[i];
        begin = later(begin, k->disk);
    }
    k->link = begin + c->slowness * c->link_s[i];
    if (staged) {
        k->staging[k->staging_at] = k->link;
        k->staging_at = k->staging_at + 1 == c->n_staging ? 0 : k->staging_at + 1;
    }
}

static void play(const dfx_plan_cycle *c, clocks *k) {
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->stays[i]) {
            k->device += c->seconds[i];
            continue;
        }
        play_transfer(c, k, i);
        k->device = later(k->device, k->link) + c->seconds[i];
        k->slot[k->slot_at] = k->device;
        k->slot_at = k->slot_at + 1 == c->n_slots ? 0 : k->slot_at + 1;
    }
}

static uint32_t look(const dfx_plan_cycle *c, const clocks *k, snapshot *to) {
    uint32_t n = 0;
    to->device = k->device;
    to->state[n++] = k->link - k->device;
    for (uint32_t i = 0; i < c->n_slots; i++)
        to->state[n++] = k->slot[(k->slot_at + i) % c->n_slots] - k->device;
    if (c->disk_s) {
        to->state[n++] = k->disk - k->device;
        for (uint32_t i = 0; i < c->n_staging; i++)
            to->state[n++] = k->staging[(k->staging_at + i) % c->n_staging] - k->device;
    }
    return n;
}

static bool same(const snapshot *a, const snapshot *b, uint32_t n, double tolerance) {
    for (uint32_t i = 0; i < n; i++)
        if (fabs(a->state[i] - b->state[i]) > tolerance)
            return false;
    return true;
}

double dfx_plan_cycle_bound(const dfx_plan_cycle *c) {
    double device = 0, link = 0, disk = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        device += c->seconds[i];
        link += c->stays[i] ? 0 : c->link_s[i];
        disk += c->stays[i] || !c->disk_s ? 0 : c->disk_s[i];
    }
    return later(device, c->slowness * later(link, disk));
}

double dfx_plan_cycle_run(const dfx_plan_cycle *c) {
    double bound = dfx_plan_cycle_bound(c);
    clocks k = {0};
    snapshot past[PERIOD_MAX + 1];
    if (c->n_slots == 0)
        return bound;
    for (uint32_t cycle = 0; cycle < CYCLES_MAX; cycle++) {
        snapshot *now = &past[cycle % (PERIOD_MAX + 1)];
        play(c, &k);
        uint32_t n = look(c, &k, now);
        for (uint32_t period = 1; period <= PERIOD_MAX && period <= cycle; period++) {
            const snapshot *then = &past[(cycle - period) % (PERIOD_MAX + 1)];
            if (same(now, then, n, 1e-9 * bound))
                return (now->device - then->device) / period;
        }
    }
    const snapshot *last = &past[(CYCLES_MAX - 1) % (PERIOD_MAX + 1)],
                   *then = &past[(CYCLES_MAX - 1 - PERIOD_MAX) % (PERIOD_MAX + 1)];
    return later(bound, (last->device - then->device) / PERIOD_MAX);
}

double dfx_plan_cycle_seconds(const double *transfer_s, const double *seconds, const bool *stays,
                              uint32_t n, uint32_t n_slots) {
    dfx_plan_cycle c = {.link_s = transfer_s,
                        .seconds = seconds,
                        .stays = stays,
                        .n = n,
                        .n_slots = n_slots,
                        .slowness = 1};
    return dfx_plan_cycle_run(&c);
}
