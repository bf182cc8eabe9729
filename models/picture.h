/* A picture as programs: those that make one, the state that lives between them, and the planner's view of both. Needs
 * configurations and names of tensors, no device.
 *
 * Where blocks may be reused (shape.reuses, models/reuse.h) a step is two programs in turn, else it is one and the others are
 * empty. REUSED has pages of STEP and REST alone, which are kept, and is not in the plan's timetable. */
#ifndef DFX_MODELS_PICTURE_H
#define DFX_MODELS_PICTURE_H

#include "models/configs.h"
#include "offload/plan_trace.h"

typedef enum dfx_program_id {
    DFX_PROGRAM_CLIP,
    DFX_PROGRAM_T5,
    DFX_PROGRAM_COND,
    DFX_PROGRAM_ENCODE, /* of a shape with an init picture alone; else an empty program */
    DFX_PROGRAM_STEP,   /* with reuse DFX_FLUX_FIRST */
    DFX_PROGRAM_REST,   /* DFX_FLUX_REST, or empty */
    DFX_PROGRAM_DECODE,
    DFX_N_PLANNED_PROGRAMS,
    DFX_PROGRAM_REUSED = DFX_N_PLANNED_PROGRAMS, /* DFX_FLUX_REUSED, or empty */
    DFX_N_PROGRAMS
} dfx_program_id;

/* Stages of the plan of a shape without an init picture, in order: CLIP and T5; conditioning; the denoiser, once a step; the
 * decoder. An init picture's encoder is a stage before the denoiser, behind what another init picture leaves as it is. */
enum { DFX_PLAN_TEXT, DFX_PLAN_COND, DFX_PLAN_DENOISE, DFX_PLAN_DECODE, DFX_N_PLAN_STAGES };

/* Pictures that go through the denoiser side by side, at the most. */
enum { DFX_LANES_MAX = 8 };

typedef struct dfx_shape {
    int64_t width, height; /* pixels, multiples of 16 */
    int64_t n_text;        /* T5 tokens */
    int n_steps;           /* of a request; of a session: at the most */
    int n_pictures;        /* of a request; of a session: its lanes are right for as many */
    int n_lanes;           /* of a session: models/lanes.h chooses them */
    bool has_init;         /* it begins with a picture, which is encoded */
    bool reuses; /* of a request: blocks may be reused; of a session: it can, and need not */
} dfx_shape;

/* Of a shape's plan. ENCODE: with an init picture only. */
int dfx_picture_stage(const dfx_shape *shape, dfx_program_id id);

/* Steps that a session is built for when n_steps are asked for: so that requests of some more or fewer share it. A conditioning
 * of up to 64 rows has the same bits whatever their number is; beyond, sessions are shared by equals only. */
int dfx_picture_step_capacity(int n_steps);
bool dfx_picture_serves(const dfx_shape *session, const dfx_shape *request);

/* Latents of a side, and tokens of the picture. */
int64_t dfx_picture_latents(const dfx_configs *configs, int64_t pixels);
int64_t dfx_picture_tokens(const dfx_configs *configs, const dfx_shape *shape);

/* env[component]: what its programs are built from. On failure none is kept. */
dfx_status dfx_picture_build(const dfx_configs *configs, const dfx_build_env env[DFX_N_COMPONENTS],
                             const dfx_shape *shape, dfx_program programs[DFX_N_PROGRAMS]);

/* shape->n_steps times the denoiser, each time for all lanes; then the decoder, once for each lane. */
dfx_status dfx_picture_trace(const dfx_program programs[DFX_N_PROGRAMS], const dfx_shape *shape,
                             const dfx_profile *profile, const dfx_sink *sink, dfx_trace *out);

/* Device addresses of the state, by what it is. Shapes: T text tokens, I image tokens, L = T + I, N steps. */
typedef struct dfx_state {
    void *clip_x, *clip_out; /* [77, CLIP width] */
    void *t5_x, *t5_out;     /* [T, T5 width] */
    void *pooled;            /* [1, CLIP width]: the row of clip_out that is used */
    float *sigmas, *dt;      /* [1, N] */
    float *guidance;         /* [1, 1] */
    void *txt;               /* [T, D] */
    void *mod;               /* [N, mod_cols] */
    void *step_mod;          /* [1, mod_cols]: the row of the step */
    float *step_dt;          /* [1, 1] */
    float *cos, *sin;        /* [L, E/2] */
    void *x[DFX_LANES_MAX], *v[DFX_LANES_MAX]; /* [I, channels] of each lane */
    void *rgb;                                 /* [H*W, 3] */
    void *moments;                             /* [h*w, 2 Z]: of an init picture, like init_x */
    void *init_x;                              /* [I, channels] */
    void *adapters[DFX_N_PROGRAMS];            /* adapter blocks; NULL where there is none */
    /* With reuse, what the parts of a step hand on to each other: dfx_flux_part. Of each lane but `minus`. */
    void *h[DFX_LANES_MAX], *first[DFX_LANES_MAX], *last[DFX_LANES_MAX], *rest[DFX_LANES_MAX];
    float *minus, *diff; /* [1, 1], [1, lanes] */
} dfx_state;

/* Lay the state of the programs out from `base` on; NULL only counts. Returns its bytes. */
size_t dfx_picture_state(const dfx_configs *configs, const dfx_shape *shape, dfx_dtype act_dtype,
                         const dfx_program programs[DFX_N_PROGRAMS], void *base, dfx_state *out);

#endif
