/* Random questions for the planner, the same on every machine for the same seed. */
#ifndef DFX_TESTS_PLAN_RANDOM_H
#define DFX_TESTS_PLAN_RANDOM_H

#include "offload/planner.h"

enum { PLAN_RANDOM_PAGES = 96, PLAN_RANDOM_STAGES = 4, PLAN_RANDOM_REGIONS = 40 };

/* What kind of question; the rest is drawn. */
typedef struct plan_random_kind {
    uint32_t main_regions_max;         /* of the stage that repeats; at most PLAN_RANDOM_REGIONS */
    uint32_t repeats_min, repeats_max; /* of it */
    bool only_main;                    /* one stage */
    bool no_twice;                     /* no page comes back in a repetition */
    dfx_offload offload;
    bool unified;
    bool keeps; /* every third page or so of the stage that repeats must stay */
    bool
        scarce_ram; /* the RAM budget is drawn too, from what staging needs up; else it is endless */
} plan_random_kind;

/* Must not move: the problem points into it. */
typedef struct plan_random {
    dfx_plan_problem problem;
    dfx_profile profile;
    dfx_plan_page pages[PLAN_RANDOM_PAGES];
    dfx_plan_stage stages[PLAN_RANDOM_STAGES];
    dfx_plan_region regions[PLAN_RANDOM_STAGES][PLAN_RANDOM_REGIONS];
    uint32_t main; /* the stage that repeats */
} plan_random;

void plan_random_make(plan_random *r, uint64_t seed, const plan_random_kind *kind);

uint64_t plan_random_next(uint64_t *state); /* xorshift64*; the state must not be 0 */

/* Hand arithmetic: the fullest stage with its largest page alone, beside what must stay; and everything at once. */
uint64_t plan_least_bytes(const dfx_plan_problem *problem);
uint64_t plan_everything_bytes(const dfx_plan_problem *problem);
uint64_t plan_aligned(uint64_t bytes); /* up to the planner's border */

#endif
