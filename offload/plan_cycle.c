/* The steady rhythm of a stage that repeats: how long one repetition takes once the first ones are over.
 *
 * Every moment of the play is the latest of some earlier moments plus a constant: a max-plus linear system, in which link,
 * disk, slots and device wait for each other. From some repetition on, the distances between its clocks repeat; then the time
 * between two equal states is exact. Where copies slow computing the constants depend on how far the two overlap, by a small
 * part: the distances come as close to each other as one likes, soon. A drift that is too slow to settle in CYCLES_MAX
 * repetitions is slower than a buffer's worth in that many, and the sums of computing, link and disk bound it from below.
 *
 * A transfer is played as soon as its slot is free, so that those beside a visit are known when it begins. */
#include "offload/planner_internal.h"

#include <math.h>
#include <string.h>

enum {
    CYCLES_MAX = 40,
    PERIOD_MAX = 8,
    STATE_MAX = 1 + 2 * DFX_PLAN_SLOTS_MAX + DFX_PLAN_STAGING_MAX
};

/* When each is free; the last copies, each into its slot; slots and staging buffers are taken round robin, `_at` is the next. */
typedef struct clocks {
    double device, link, disk;
    double copy_begin[DFX_PLAN_SLOTS_MAX], copy_end[DFX_PLAN_SLOTS_MAX];
    double staging[DFX_PLAN_STAGING_MAX];
    uint32_t slot_at, staging_at;
    uint32_t next; /* region, from which on the next page that streams is looked for */
} clocks;

/* The clocks seen from the device, oldest copy first. */
typedef struct snapshot {
    double device;
    double state[STATE_MAX];
} snapshot;

static double later(double a, double b) {
    return a > b ? a : b;
}

static uint32_t after(uint32_t i, uint32_t n) {
    return i + 1 == n ? 0 : i + 1;
}

/* The next page that streams, into the next slot, which is free from `slot_free` on. */
static void play_transfer(const dfx_plan_cycle *c, clocks *k, double slot_free) {
    double begin = later(k->link, slot_free);
    uint32_t i = k->next;
    while (c->stays[i])
        i = after(i, c->n);
    bool staged = c->disk_s && c->disk_s[i] > 0;
    if (staged) {
        k->disk = later(k->disk, k->staging[k->staging_at]) + c->slowness * c->disk_s[i];
        begin = later(begin, k->disk);
    }
    k->link = begin + c->slowness * c->link_s[i];
    if (staged) {
        k->staging[k->staging_at] = k->link;
        k->staging_at = after(k->staging_at, c->n_staging);
    }
    k->copy_begin[k->slot_at] = begin;
    k->copy_end[k->slot_at] = k->link;
    k->slot_at = after(k->slot_at, c->n_slots);
    k->next = after(i, c->n);
}

/* When the device has computed `seconds` more. */
static double compute_end(const dfx_plan_cycle *c, const clocks *k, double seconds) {
    dfx_plan_computing computing = {k->device, seconds};
    uint32_t slot = k->slot_at;
    for (uint32_t i = 0; c->link_slows_compute > 0 && i < c->n_slots; i++) {
        dfx_plan_compute_beside(&computing, c->link_slows_compute, k->copy_begin[slot],
                                k->copy_end[slot]);
        slot = after(slot, c->n_slots);
    }
    return computing.at + computing.left;
}

static void play(const dfx_plan_cycle *c, clocks *k) {
    for (uint32_t i = 0; i < c->n; i++) {
        if (!c->stays[i])
            k->device = later(k->device, k->copy_end[k->slot_at]);
        k->device = compute_end(c, k, c->seconds[i]);
        if (!c->stays[i])
            play_transfer(c, k, k->device);
    }
}

static uint32_t look(const dfx_plan_cycle *c, const clocks *k, snapshot *to) {
    uint32_t n = 0;
    to->device = k->device;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        uint32_t slot = (k->slot_at + i) % c->n_slots;
        to->state[n++] = k->copy_end[slot] - k->device;
        if (c->link_slows_compute > 0)
            to->state[n++] = k->copy_begin[slot] - k->device;
    }
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
    for (uint32_t i = 0; i < c->n_slots; i++)
        play_transfer(c, &k, 0);
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
                              uint32_t n, uint32_t n_slots, double link_slows_compute) {
    dfx_plan_cycle c = {.link_s = transfer_s,
                        .seconds = seconds,
                        .stays = stays,
                        .n = n,
                        .n_slots = n_slots,
                        .slowness = 1,
                        .link_slows_compute = link_slows_compute};
    return dfx_plan_cycle_run(&c);
}
