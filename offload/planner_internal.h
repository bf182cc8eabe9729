/* What the planner's files share: choosing what stays (planner.c) by the rhythm that it gives (plan_cycle.c), giving every
 * page a place and every visit its transfer (plan_layout.c), and the host's memory (plan_host.c). Computing beside copies
 * (plan_beside.c) is in the rhythm and in the play of a whole plan (plan_simulate.c). */
#ifndef DFX_OFFLOAD_PLANNER_INTERNAL_H
#define DFX_OFFLOAD_PLANNER_INTERNAL_H

#include "core/budget.h"
#include "offload/planner.h"

enum {
    DFX_PLAN_ALIGN = 256,
    DFX_PLAN_HOST_ALIGN = 4096,
    DFX_PLAN_STAGING_MAX = 3, /* staging buffers; with two the disk reads while the link copies */
    DFX_PLAN_STAGING_GOOD = 2
};

static inline uint64_t dfx_plan_align(uint64_t bytes) {
    return (bytes + DFX_PLAN_ALIGN - 1) / DFX_PLAN_ALIGN * DFX_PLAN_ALIGN;
}

/* The stage that repeats most, of several the one with the most bytes: the one worth planning. */
uint32_t dfx_plan_main_stage(const dfx_plan_problem *problem);

/* Of the pages that must be permanent. */
uint64_t dfx_plan_kept_bytes(const dfx_plan_problem *problem);

/* What planner.c decided. Of the main stage: stays[i] for region i. */
typedef struct dfx_plan_choice {
    bool all_permanent;
    const bool *stays; /* borrowed */
    uint32_t n_slots;
    uint64_t slot_bytes; /* aligned */
} dfx_plan_choice;

/* Places, visits, transfers, owners and sizes of `plan` from the choice. The budget is known to suffice. */
dfx_status dfx_plan_lay_out(const dfx_plan_problem *problem, const dfx_plan_choice *choice,
                            const dfx_sink *sink, dfx_plan *plan);

/* One repetition of n regions. A streamed region (stays[i] false) waits for its transfer, which takes the link link_s[i]; if
 * disk_s[i] > 0, it takes the disk so long before, through one of n_staging buffers. All borrowed. */
typedef struct dfx_plan_cycle {
    const double *link_s, *disk_s; /* disk_s NULL: the disk has no part in it */
    const double *seconds;
    const bool *stays;
    uint32_t n, n_slots, n_staging; /* n_slots 0: everything stays */
    double slowness;                /* times the seconds of link and disk */
    double link_slows_compute;
} dfx_plan_cycle;

double dfx_plan_cycle_run(const dfx_plan_cycle *cycle);   /* steady seconds of one repetition */
double dfx_plan_cycle_bound(const dfx_plan_cycle *cycle); /* the largest sum: it is never faster */

/* Computing that is at `at` and would take `left` seconds alone. Past the copies beside it, at + left is when it ends. */
typedef struct dfx_plan_computing {
    double at, left;
} dfx_plan_computing;

/* On through a copy [begin, end), as far as the computing reaches: while it is made, computing takes `share` longer. Copies
 * come in their order. plan_beside.c */
void dfx_plan_compute_beside(dfx_plan_computing *computing, double share, double begin, double end);

/* On unified memory no link is passed. */
static inline double dfx_plan_share(const dfx_profile *profile) {
    return profile->unified ? 0 : profile->link_slows_compute;
}

/* Pinned bytes of a page. */
uint64_t dfx_plan_host_bytes(const dfx_plan_page *page);

/* Of the RAM budget, what the tier may take when other pages must pass through staging. */
uint64_t dfx_plan_tier_room(const dfx_plan_problem *problem);

/* Staging buffers of `one` bytes beside a tier of `tier` bytes: as many as the RAM budget allows, but one. */
uint32_t dfx_plan_n_staging(const dfx_plan_problem *problem, uint64_t tier, uint64_t one);

/* plan->in_ram, staging and host_bytes. Needs resident, permanent and the visits. Errors: DFX_E_NOFIT of the RAM budget. */
dfx_status dfx_plan_host(const dfx_plan_problem *problem, const dfx_sink *sink, dfx_plan *plan);

/* Which of n pages to keep, spread evenly: kept[i] is set so that at most `keep_bytes` are kept; those with wanted[i] false are
 * left alone. Returns the bytes kept. */
uint64_t dfx_plan_spread(const uint64_t *bytes, const bool *wanted, uint32_t n, uint64_t keep_bytes,
                         bool *kept);

#endif
