#include "models/lanes.h"

#include <limits.h>

/* Less is not worth the wait for the first picture, and models of machines are not more exact. */
static const double WORTH = 0.98;

void dfx_lanes_answer_fini(dfx_lanes_answer *a) {
    dfx_plan_fini(&a->plan);
    dfx_trace_fini(&a->trace);
}

static dfx_status plan_with(const dfx_lanes_question *q, int n_lanes, const dfx_sink *sink,
                            dfx_lanes_answer *out) {
    dfx_state unused;
    *out = (dfx_lanes_answer){.shape = q->shape, .problem = q->problem};
    out->shape.n_steps = dfx_picture_step_capacity(q->shape.n_steps);
    out->shape.n_lanes = n_lanes;
    dfx_shape planned = out->shape;
    planned.n_steps = q->n_steps;
    DFX_TRY(dfx_picture_trace(q->programs, &planned, q->problem.profile, sink, &out->trace));
    out->problem.pages = out->trace.pages;
    out->problem.stages = out->trace.stages;
    out->problem.n_pages = out->trace.n_pages;
    out->problem.n_stages = out->trace.n_stages;
    out->problem.n_together = (uint32_t)n_lanes;
    out->problem.state_bytes =
        dfx_picture_state(q->configs, &out->shape, q->act_dtype, q->programs, NULL, &unused);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        out->problem.adapter_bytes += q->programs[i].adapter_bytes;
    dfx_status status = dfx_plan_make(&out->problem, sink, &out->plan);
    if (status != DFX_OK)
        dfx_lanes_answer_fini(out);
    return status;
}

/* Of all pictures, behind text and conditioning. A last group that is not full is counted as if it were. */
static double all_seconds(const dfx_lanes_answer *a) {
    int n = a->shape.n_lanes;
    return (a->shape.n_pictures + n - 1) / n *
           (a->plan.stage_seconds[dfx_picture_stage(&a->shape, DFX_PROGRAM_STEP)] +
            a->plan.stage_seconds[dfx_picture_stage(&a->shape, DFX_PROGRAM_DECODE)]);
}

/* The same if no page were ever waited for. `one`: of one lane. */
static double computing_seconds(const dfx_lanes_answer *one) {
    double seconds = 0;
    int first = dfx_picture_stage(&one->shape, DFX_PROGRAM_STEP),
        last = dfx_picture_stage(&one->shape, DFX_PROGRAM_DECODE);
    for (int s = first; s <= last; s++) {
        const dfx_plan_stage *stage = &one->trace.stages[s];
        for (uint32_t i = 0; i < stage->n_regions; i++)
            seconds += stage->n_repeats * stage->regions[i].seconds;
    }
    return one->shape.n_pictures * seconds;
}

static int least_of(int a, int b) {
    return a < b ? a : b;
}

/* The decoder is planned once for each lane, and the denoiser shall stay the stage that repeats most. */
static int most_lanes(const dfx_lanes_question *q) {
    return least_of(least_of(q->shape.n_pictures, q->shape.n_steps), DFX_LANES_MAX);
}

/* More lanes than *best has, as long as they can pay; those that do not fit end it. */
static void try_more(const dfx_lanes_question *q, double computing, dfx_lanes_answer *best) {
    uint64_t least_budget_bytes = best->plan.least_budget_bytes;
    dfx_lanes_answer more;
    for (int n = 2; n <= most_lanes(q) && computing < WORTH * all_seconds(best); n++) {
        if (plan_with(q, n, NULL, &more) != DFX_OK)
            return;
        more.plan.least_budget_bytes = least_budget_bytes;
        bool pays = all_seconds(&more) < WORTH * all_seconds(best);
        dfx_lanes_answer_fini(pays ? best : &more);
        if (pays)
            *best = more;
    }
}

dfx_status dfx_lanes_choose(const dfx_lanes_question *q, const dfx_sink *sink,
                            dfx_lanes_answer *out) {
    DFX_TRY(plan_with(q, 1, sink, out));
    double computing = computing_seconds(out);
    if (computing < WORTH * all_seconds(out))
        try_more(q, computing, out);
    else
        out->shape.n_pictures = INT_MAX;
    return DFX_OK;
}
