/* The plan of a picture, or of several of one request, on any machine, without that machine: programs for the shape, their pages
 * in the wanted format, the state between the stages, the lanes, and the planner's answer. */
#ifndef DFX_MODELS_PICTURE_PLAN_H
#define DFX_MODELS_PICTURE_PLAN_H

#include "kernels/backend.h"
#include "models/picture.h"
#include "offload/planner.h"

typedef struct dfx_picture_question {
    const dfx_configs *configs; /* borrowed until fini */
    /* What the weights are: tensors of a folder or a packed model, or none and the formats they would have. */
    const dfx_build_env *env; /* [DFX_N_COMPONENTS]; act_dtype is the backend's */
    dfx_shape shape;
    dfx_backend
        *backend; /* borrowed; whose workspace is asked for. NULL: an estimate for a CUDA device */
    const dfx_profile *profile; /* borrowed until fini */
    uint64_t budget_bytes;      /* 0: what the device has */
    uint64_t ram_budget_bytes;  /* 0: three quarters of the machine's RAM */
    dfx_offload offload;
} dfx_picture_question;

typedef struct dfx_picture_plan {
    dfx_program programs[DFX_N_PROGRAMS];
    dfx_trace trace;
    dfx_plan_problem problem; /* points into trace */
    dfx_plan plan;
} dfx_picture_plan;

/* Errors: those of the programs; DFX_E_NOFIT. */
dfx_status dfx_picture_plan_make(const dfx_picture_question *question, const dfx_sink *sink,
                                 dfx_picture_plan *out);
void dfx_picture_plan_fini(dfx_picture_plan *picture); /* zeroed is fine */

#endif
