/* Lanes: how many pictures of a request go through the denoiser side by side, so that a page that is brought serves them all.
 *
 * A step of one picture takes max(c, s): computing, or bringing what does not stay. L lanes take max(L c, s'), where s' > s,
 * since L - 1 blocks of activations are taken from the pages that stay. Where c < s this pays until L c = s': with int8
 * FLUX.1-dev at 1024x1024 on a 4090 c is 0.26 s; in 4 GiB, read from disk, s is 0.87 s, so that four lanes take 1.02 s, and a
 * picture 0.26 s. Where c >= s, when all stays above all, lanes gain nothing and one is the choice. */
#ifndef DFX_MODELS_LANES_H
#define DFX_MODELS_LANES_H

#include "models/picture.h"
#include "offload/planner.h"

typedef struct dfx_lanes_question {
    const dfx_configs *configs;
    const dfx_program *programs; /* [DFX_N_PROGRAMS] */
    dfx_shape shape;             /* of the request; n_lanes is the question */
    int n_steps; /* that are planned: those of the request, or all that the session can make */
    dfx_dtype act_dtype;
    dfx_plan_problem problem; /* without what depends on lanes: pages, stages, state */
} dfx_lanes_question;

typedef struct dfx_lanes_answer {
    dfx_shape
        shape; /* with n_lanes; n_pictures: INT_MAX when more lanes would pay for no number of them */
    dfx_trace trace;
    dfx_plan_problem problem; /* points into trace */
    dfx_plan plan;            /* its least budget is that of one lane */
} dfx_lanes_answer;

/* The lanes that make shape.n_pictures in the least time, and their plan. Errors: those of the plan with one lane. */
dfx_status dfx_lanes_choose(const dfx_lanes_question *question, const dfx_sink *sink,
                            dfx_lanes_answer *out);
void dfx_lanes_answer_fini(dfx_lanes_answer *answer);

#endif
