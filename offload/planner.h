/* Planner: every choice of what stays, what streams, into which slot, how far ahead. Pure arithmetic; it allocates host
 * memory for its result and touches nothing else.
 *
 * Theory. One step uses every page of the denoiser once, in the same order, N times. With the resident pages fixed, a step
 * takes at least max(computing, streamed bytes / link rate); it is reached when streamed pages are spread evenly, by time,
 * between the resident ones, and each transfer begins as soon as its slot is free, across the borders of steps and stages. */
#ifndef DFX_OFFLOAD_PLANNER_H
#define DFX_OFFLOAD_PLANNER_H

#include "offload/plan.h"

enum { DFX_PLAN_SLOTS_MAX = 64 };

/* Errors: DFX_E_NOFIT before any work, with the table of owners and the smallest budget (or RAM budget) that would do. */
dfx_status dfx_plan_make(const dfx_plan_problem *problem, const dfx_sink *sink, dfx_plan *out);

/* Staging at the most, bytes, whatever plan is made for pages of which none has more than `page_bytes`. */
uint64_t dfx_plan_staging_most(uint64_t page_bytes, uint64_t ram_budget_bytes);

/* Play a plan against a simulated link, disk and device: when each transfer and visit begins and ends. warm: permanent pages
 * are there and the RAM tier is filled. Returns the seconds of the picture; the arrays may be NULL.
 * visit_end[n_visits], transfer_end[n_transfers]: seconds from the start; skipped transfers end at 0. */
double dfx_plan_simulate(const dfx_plan *plan, const dfx_plan_problem *problem, bool warm,
                         double *visit_end, double *transfer_end);

/* Steady seconds of one repetition of n regions: region i computes seconds[i]; those with stays[i] false stream, each in
 * transfer_s[i] seconds, one after the other, round robin through n_slots slots, as early as a slot is free. The arithmetic
 * under dfx_plan_make, for tests and searches. n_slots is 1 to DFX_PLAN_SLOTS_MAX; 0 when everything stays. */
double dfx_plan_cycle_seconds(const double *transfer_s, const double *seconds, const bool *stays,
                              uint32_t n, uint32_t n_slots);

#endif
