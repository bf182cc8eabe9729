/* Goldens of the whole pipeline, of diffusers' FluxPipeline: fixed noise and embeddings, or token ids; the velocity and the
 * latents of every step, the picture. The group's folder holds dev and schnell of tests/tiny.h. */
#ifndef DFX_TESTS_GOLDEN_PIPELINE_H
#define DFX_TESTS_GOLDEN_PIPELINE_H

#include "models/flux.h"
#include "models/sigmas.h"
#include "models/vae.h"
#include "tests/model_rig.h"

enum { GOLDEN_STEPS_MAX = 4 };

typedef struct pipe_case {
    const char *file, *name, *variant;
    int64_t h, w; /* latents */
    int64_t n_text, batch;
    int n_steps;
    float guidance;
    const char *prompt; /* NULL: embeddings only */
} pipe_case;

enum { GOLDEN_N_PIPE_CASES = 6 };
extern const pipe_case GOLDEN_PIPE_CASES[GOLDEN_N_PIPE_CASES];

/* One picture of a case. */
typedef struct picture {
    model_rig *r;
    const pipe_case *c;
    int64_t row, Ti;
    dfx_flux_config flux;
    dfx_vae_config vae;
    dfx_build_env env, vae_env;
    float sigmas[GOLDEN_STEPS_MAX + 1];
} picture;

picture picture_begin(model_rig *r, const pipe_case *c);
/* Of the picture's row; n values. */
const float *picture_golden(const picture *p, const char *what, int64_t n);
int32_t *picture_golden_ids(const picture *p, const char *what, int64_t n);
float *picture_first_latents(const picture *p);
void picture_check_step(const picture *p, int step, const float *v, const float *x);
void picture_check(const picture *p, const float *rgb);

/* Velocities, latents and pictures of a case, from the embeddings. */
void golden_pipeline(model_rig *r, const pipe_case *c);
/* What the encoders make of a case's token ids; from it, where `draw`, the same. */
void golden_pipeline_of_ids(model_rig *r, const pipe_case *c, bool draw);

#endif
