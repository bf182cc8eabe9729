/* Session: the five programs of a picture built for one shape (size, steps, text length), their pages, and the state that
 * lives between them. Kept in the model and reused while the shape stays the same. */
#ifndef DFX_MODELS_SESSION_H
#define DFX_MODELS_SESSION_H

#include "offload/executor.h"
#include "offload/placement.h"

typedef enum dfx_program_id {
    DFX_PROGRAM_CLIP,
    DFX_PROGRAM_T5,
    DFX_PROGRAM_COND,
    DFX_PROGRAM_STEP,
    DFX_PROGRAM_DECODE,
    DFX_N_PROGRAMS
} dfx_program_id;

/* Stages of programs that run one after the other and share the memory for pages. */
enum {
    DFX_STAGE_NEED_TEXT,
    DFX_STAGE_NEED_COND,
    DFX_STAGE_NEED_STEP,
    DFX_STAGE_NEED_DECODE,
    DFX_N_STAGE_NEEDS
};

typedef struct dfx_shape {
    int64_t width, height; /* pixels, multiples of 16 */
    int64_t n_text;        /* T5 tokens */
    int n_steps;
} dfx_shape;

/* Device addresses of the state, by what it is. Shapes: T text tokens, I image tokens, L = T + I, N steps. */
typedef struct dfx_state {
    int32_t *clip_ids;  /* [1, 77] */
    void *clip_out;     /* [77, CLIP width] */
    int32_t *t5_ids;    /* [1, T] */
    void *t5_out;       /* [T, T5 width] */
    float *sigmas, *dt; /* [1, N] */
    float *guidance;    /* [1, 1] */
    void *txt;          /* [T, D] */
    void *mod;          /* [N, mod_cols] */
    float *cos, *sin;   /* [L, E/2] */
    void *x, *v;        /* [I, channels] */
    void *rgb;          /* [H*W, 3] */
} dfx_state;

typedef struct dfx_session {
    bool ready;
    dfx_shape shape;
    dfx_program programs[DFX_N_PROGRAMS];
    dfx_pager pagers[DFX_N_PROGRAMS];
    dfx_stage_need needs[DFX_N_STAGE_NEEDS];
    dfx_mem state_mem; /* owned */
    dfx_state state;
    size_t peak_bytes;  /* planned */
    char *text_key;     /* owned; the prompt whose encodings the state holds, NULL: none */
    int64_t pooled_row; /* of clip_out, for text_key */
    bool cond_valid;    /* the modulation table holds text_key at cond_guidance */
    float cond_guidance;
} dfx_session;

typedef struct dfx_model dfx_model;

/* Build for the shape unless the session already is. Errors: DFX_E_FORMAT, DFX_E_NOFIT (before anything is allocated on the
 * device), DFX_E_DEVICE. */
dfx_status dfx_session_begin(dfx_model *model, const dfx_shape *shape);
void dfx_session_end(dfx_model *model); /* frees everything; fine when there is none */

/* The programs for a shape, without a device. On failure none is kept. */
dfx_status dfx_session_build(const dfx_model *model, const dfx_shape *shape, dfx_dtype act_dtype,
                             dfx_program programs[DFX_N_PROGRAMS]);

#endif
