/* Whether a profile is good: the seconds of a step that it makes a plan say, beside those that the bundled model takes. */
#ifndef DFX_TOOLS_BENCH_STEP_H
#define DFX_TOOLS_BENCH_STEP_H

#include "offload/profile.h"
#include "tools/bench_sample.h"
#include "tools/console.h"

typedef struct dfx_bench_step {
    char model[64]; /* its name */
    int width, height;
    double planned_seconds;
    dfx_bench_sample
        measured; /* seconds; of every step but the first, which may wait for weights */
} dfx_bench_step;

/* On the processor. (A GPU has launched such small ops before it has done them; it is no measure of its rates.) The model is
 * the one that generate takes without --model. Errors: those of finding, opening, planning and running it. */
dfx_status dfx_bench_step_run(const dfx_profile *profile, int n_threads,
                              bool (*cancelled)(void *user), dfx_console *console,
                              dfx_bench_step *out);

#endif
