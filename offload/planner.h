/* Planner: every choice of what stays, what streams, into which slot, how far ahead. Pure arithmetic; it allocates host
 * memory for its result and touches nothing else.
 *
 * Theory. One step uses every page of the denoiser once, in the same order, N times. With the resident pages fixed, a step
 * takes at least max(computing, streamed bytes / link rate); it is reached when streamed pages are spread evenly, by time,
 * between the resident ones, and each transfer begins as soon as its slot is free, across the borders of steps and stages.
 * Where computing takes a share a longer while the link copies, each second of copying costs the device a / (1 + a): the bound
 * is then max(computing + a / (1 + a) x streamed bytes / link rate, streamed bytes / link rate). */
#ifndef DFX_OFFLOAD_PLANNER_H
#define DFX_OFFLOAD_PLANNER_H

#include "offload/plan.h"

enum { DFX_PLAN_SLOTS_MAX = 64 };

/* Errors: DFX_E_NOFIT before any work, with the table of owners and the smallest budget (or RAM budget) that would do. */
dfx_status dfx_plan_make(const dfx_plan_problem *problem, const dfx_sink *sink, dfx_plan *out);

/* Seconds from the start of a picture. */
typedef struct dfx_plan_times {
    double *visit_end;                     /* [n_visits]; borrowed, as the others */
    double *transfer_begin, *transfer_end; /* [n_transfers]: of the copy; both 0 of skipped ones */
} dfx_plan_times;

/* Play a plan against a simulated link, disk and device: when each transfer and visit begins and ends. While the link copies,
 * computing goes on at 1 / (1 + link_slows_compute) of its speed. warm: permanent pages are there and the RAM tier is filled.
 * Returns the seconds of the picture. */
double dfx_plan_simulate(const dfx_plan *plan, const dfx_plan_problem *problem, bool warm,
                         const dfx_plan_times *times);

/* Steady seconds of one repetition of n regions: region i computes seconds[i], at 1 / (1 + link_slows_compute) of that speed
 * while a transfer is made; those with stays[i] false stream, each in transfer_s[i] seconds, one after the other, round robin
 * through n_slots slots, as early as a slot is free. The arithmetic under dfx_plan_make, for tests and searches. n_slots is 1
 * to DFX_PLAN_SLOTS_MAX; 0 when everything stays. */
double dfx_plan_cycle_seconds(const double *transfer_s, const double *seconds, const bool *stays,
                              uint32_t n, uint32_t n_slots, double link_slows_compute);

#endif
