/* Goldens of the transformer, of diffusers: both programs, every value between that they hold. Weights are those of tests/tiny.h;
 * the group's folder holds dev/transformer and schnell/transformer. */
#ifndef DFX_TESTS_GOLDEN_FLUX_H
#define DFX_TESTS_GOLDEN_FLUX_H

#include "models/flux.h"
#include "tests/model_rig.h"

typedef struct flux_case {
    const char *name, *folder;
    int64_t h, w, n_text, batch;
    bool taps;                 /* the golden file has the values between */
    const char *file, *inputs; /* NULL: "flux", and "NAME.in" before the names of inputs */
} flux_case;

enum { GOLDEN_N_FLUX_CASES = 6 };
extern const flux_case GOLDEN_FLUX_CASES[GOLDEN_N_FLUX_CASES];

/* One case on its way: the model, and what goes in and out of its programs. */
typedef struct flux_run {
    model_rig *r;
    const flux_case *c;
    dfx_flux_config config;
    dfx_build_env env;
    int64_t Ti, Tt;
    float *cos, *sin, *txt, *mod, *x, *v;
} flux_run;

flux_run flux_begin(model_rig *r, const flux_case *c);
/* An input of one picture of the batch; a value between. */
const float *flux_in(const flux_run *f, const char *name, int64_t n_a_row, int64_t row);
const float *flux_mid(const flux_run *f, const char *name, int64_t n);
void flux_run_cond(flux_run *f, int64_t row);
void flux_run_step(flux_run *f, int64_t row, float dt);

/* Fixture of a group: its folder, with the models in it. For teardown: tmpdir_teardown. */
int golden_flux_setup(void **state);

/* Velocity of every picture of a case, and what is between. */
void golden_flux(model_rig *r, const flux_case *c);

#endif
