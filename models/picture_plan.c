#include "models/picture_plan.h"

#include "kernels/product_workspace.h"
#include "models/lanes.h"
#include "offload/executor.h"

/* The largest part of what a CUDA backend holds beside its context and what products want. */
enum { OP_WORKSPACE_BYTES = 64 << 20 };

/* workspace_bytes and driver_bytes. */
static dfx_status workspace(const dfx_picture_question *q, const dfx_program p[DFX_N_PROGRAMS],
                            dfx_plan_problem *problem) {
    problem->driver_bytes = q->profile->context_bytes;
    problem->workspace_bytes = q->profile->context_bytes +
                               dfx_product_workspace_bytes((int)q->profile->sm) +
                               OP_WORKSPACE_BYTES;
    if (!q->backend)
        return DFX_OK;
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        DFX_TRY(dfx_executor_announce(q->backend, &p[i]));
    problem->workspace_bytes = q->backend->vt->workspace_bytes(q->backend);
    problem->driver_bytes = q->backend->vt->driver_reserve_bytes(q->backend);
    return DFX_OK;
}

static dfx_status make(const dfx_picture_question *q, const dfx_sink *sink, dfx_picture_plan *out) {
    const dfx_profile *f = q->profile;
    dfx_lanes_answer answer;
    dfx_shape most = q->shape; /* what a session is built for */
    most.n_steps = dfx_picture_step_capacity(q->shape.n_steps);
    DFX_TRY(dfx_picture_build(q->configs, q->env, &most, out->programs));
    dfx_lanes_question question = {
        .configs = q->configs,
        .programs = out->programs,
        .shape = q->shape,
        .n_steps = q->shape.n_steps,
        .act_dtype = q->env[0].act_dtype,
        .problem = {.budget_bytes = q->budget_bytes ? q->budget_bytes : f->device_bytes,
                    .ram_budget_bytes =
                        q->ram_budget_bytes ? q->ram_budget_bytes : f->host_bytes / 4 * 3,
                    .offload = q->offload,
                    .profile = f}};
    DFX_TRY(workspace(q, out->programs, &question.problem));
    DFX_TRY(dfx_lanes_choose(&question, sink, &answer));
    out->trace = answer.trace;
    out->problem = answer.problem;
    out->plan = answer.plan;
    return DFX_OK;
}

dfx_status dfx_picture_plan_make(const dfx_picture_question *question, const dfx_sink *sink,
                                 dfx_picture_plan *out) {
    *out = (dfx_picture_plan){0};
    dfx_status status = make(question, sink, out);
    if (status != DFX_OK)
        dfx_picture_plan_fini(out);
    return status;
}

void dfx_picture_plan_fini(dfx_picture_plan *picture) {
    dfx_plan_fini(&picture->plan);
    dfx_trace_fini(&picture->trace);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&picture->programs[i]);
    *picture = (dfx_picture_plan){0};
}
