/* What the planner's files share: choosing what stays (planner.c), giving every page a place and every visit its transfer
 * (plan_layout.c). */
#ifndef DFX_OFFLOAD_PLANNER_INTERNAL_H
#define DFX_OFFLOAD_PLANNER_INTERNAL_H

#include "core/budget.h"
#include "offload/planner.h"

enum { DFX_PLAN_ALIGN = 256, DFX_PLAN_HOST_ALIGN = 4096 };

static inline uint64_t dfx_plan_align(uint64_t bytes) {
    return (bytes + DFX_PLAN_ALIGN - 1) / DFX_PLAN_ALIGN * DFX_PLAN_ALIGN;
}

static inline uint64_t dfx_plan_host_align(uint64_t bytes) {
    return (bytes + DFX_PLAN_HOST_ALIGN - 1) / DFX_PLAN_HOST_ALIGN * DFX_PLAN_HOST_ALIGN;
}

/* The stage that repeats most: the one worth planning. */
uint32_t dfx_plan_main_stage(const dfx_plan_problem *problem);

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

/* plan->in_ram, staging and host_bytes. Needs resident, permanent and the visits. Errors: DFX_E_NOFIT of the RAM budget. */
dfx_status dfx_plan_host(const dfx_plan_problem *problem, const dfx_sink *sink, dfx_plan *plan);

/* Which of n pages to keep, spread evenly: kept[i] is set so that at most `keep_bytes` are kept; those with wanted[i] false are
 * left alone. Returns the bytes kept. */
uint64_t dfx_plan_spread(const uint64_t *bytes, const bool *wanted, uint32_t n, uint64_t keep_bytes,
                         bool *kept);

#endif
