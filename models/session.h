/* Session: the programs of a picture built for one shape (size, steps, text length), the lanes and the plan of its memory, the
 * arena, and the feed that brings pages into it. Kept in the model and reused while the shape stays the same. */
#ifndef DFX_MODELS_SESSION_H
#define DFX_MODELS_SESSION_H

#include "core/budget.h"
#include "models/init.h"
#include "models/picture.h"
#include "offload/executor.h"
#include "offload/page_feed.h"
#include "offload/visit_clock.h"

typedef struct dfx_model dfx_model;

typedef struct dfx_session {
    bool ready;
    dfx_shape shape;  /* n_steps, n_pictures: the most that it can make well */
    int n_idle_lanes; /* of the group at hand */
    dfx_program programs[DFX_N_PROGRAMS];
    /* Of the denoiser's: what is run once a picture gains nothing by it. */
    dfx_recorded recorded[DFX_N_PROGRAMS][DFX_LANES_MAX];
    uint32_t first_region[DFX_N_PROGRAMS]; /* within the stage */
    dfx_trace trace;
    dfx_plan plan;
    uint32_t *page_idx; /* owned; of the plan's pages in the packed file */
    dfx_mem arena;      /* owned */
    dfx_feed *feed;     /* owned */
    dfx_executor executor;
    dfx_visit_clock clock;
    dfx_state state;
    char *text_key;     /* owned; the prompt whose encodings the state holds, NULL: none */
    int64_t pooled_row; /* of clip_out, for text_key */
    bool cond_valid;    /* the modulation table holds text_key at cond_guidance in cond_steps */
    float cond_guidance;
    int cond_steps, cond_first_step;
    float *sigmas; /* owned; of the steps that are conditioned, and the last one's end */
    dfx_init init;
    char *loras_key;        /* owned; what the adapter block holds, NULL: nothing yet */
    bool loras_change_text; /* an encoder has adapters in it: text_key holds with these alone */
    dfx_mem lora_image; /* owned; pinned: the blocks on their way; none where the host sees them */
    dfx_mem
        latents[2]; /* owned; pinned: of the last two steps, lane by lane, as the device has them */
    dfx_mem diffs;  /* owned; pinned: of each lane, where blocks may be reused */
    uint32_t
        kept_visit; /* that was marked last beside the feed; DFX_NO_VISIT: none since the group began */
} dfx_session;

/* Build for the shape unless the session serves it already. Errors: DFX_E_FORMAT, DFX_E_NOFIT (before anything is allocated on the
 * device), DFX_E_DEVICE, DFX_E_IO. */
dfx_status dfx_session_begin(dfx_model *model, const dfx_shape *shape);
/* Would begin find room? Nothing is allocated on the device, and the session that is there stays. Errors: as begin's. */
dfx_status dfx_session_look(dfx_model *model, const dfx_shape *shape);
void dfx_session_end(dfx_model *model); /* frees everything; fine when there is none */

/* A group begins: pictures of one request, n_pictures <= shape.n_lanes, that are made together from a stage of the plan on, by
 * n_most repetitions of the denoiser at the most and n_sure at the least: no page is read for one of which it is not sure that
 * it will be made. Pages begin to come. After begin, end; on failure too. */
dfx_status dfx_session_group_begin(dfx_model *model, int first_stage, int n_sure, int n_most,
                                   int n_pictures);
void dfx_session_group_end(dfx_model *model);

/* More is known: n_sure has grown, n_most is as before, or n_sure. */
dfx_status dfx_session_sure(dfx_model *model, int n_sure, int n_most);

/* The sigmas of `n_steps` from `first_step` on, which are made, and their differences, to the state: before conditioning. */
dfx_status dfx_session_upload_sigmas(dfx_model *model, int n_steps, int first_step);

/* Queue a program with its pages from the feed. `repeat`: of the denoiser's stage, the picture of the decoder, else 0. */
dfx_status dfx_session_run(dfx_model *model, dfx_program_id id, int repeat, void *const *externs);

/* The same in several lanes, which the denoiser alone has: externs of one behind those of the other. takes_part [n_lanes]; NULL:
 * all do. */
dfx_status dfx_session_run_lanes(dfx_model *model, dfx_program_id id, int repeat,
                                 void *const *externs, int n_lanes, const bool *takes_part);

/* The same of a program whose pages are kept, and have come in this session: beside the feed, which stays where it is. Marks and
 * times are those of the repetition's visits, which may be made again. */
dfx_status dfx_session_run_kept(dfx_model *model, dfx_program_id id, int repeat,
                                void *const *externs, int n_lanes, const bool *takes_part);

/* Wait until the program has run. */
dfx_status dfx_session_wait(dfx_model *model, dfx_program_id id, int repeat);

/* Wait until STEP and REUSED have run beside the feed, at the end of which their visits are still to be made. */
dfx_status dfx_session_wait_reused(dfx_model *model, int repeat);

/* Behind STEP that was run beside the feed: wait for it, and tell how far each lane is from where it was. */
dfx_status dfx_session_diffs(dfx_model *model, int repeat, int n_lanes, float *out);

/* Latents as they are after a step, one of the last two, once its end has been waited for. keep is queued behind the step, which
 * was this repetition, or came before it. */
dfx_status dfx_session_keep_latents(dfx_model *model, int step, int repeat, int n_lanes);
void *dfx_session_latents(const dfx_model *model, int step, int lane);

#endif
