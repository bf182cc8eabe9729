/* A plan, played and watched: written from the contract in offload/plan.h alone. */
#ifndef DFX_TESTS_PLAN_REPLAY_H
#define DFX_TESTS_PLAN_REPLAY_H

#include "offload/planner.h"

/* When everything begins and ends, in seconds of the picture. Skipped transfers: all 0. */
typedef struct plan_replay {
    double *transfer_begin, *transfer_end; /* [n_transfers] */
    double *visit_begin, *visit_end;       /* [n_visits] */
    double seconds;
} plan_replay;

/* Plays the plan and fails the running test when a visit would find anything but its page in its place, when a transfer
 * writes where something is in use, when anything is outside the arena, or when dfx_plan_simulate says another time. */
void plan_replay_watch(const dfx_plan *plan, const dfx_plan_problem *problem, bool warm,
                       plan_replay *out);
void plan_replay_free(plan_replay *replay);

/* Mean seconds of a repetition of the stage, over its last half. */
double plan_replay_steady(const plan_replay *replay, const dfx_plan *plan,
                          const dfx_plan_problem *problem, uint32_t stage);

#endif
