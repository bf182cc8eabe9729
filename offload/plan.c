#include "offload/plan.h"

void dfx_plan_fini(dfx_plan *plan) {
    dfx_arena_fini(&plan->memory);
    *plan = (dfx_plan){0};
}
