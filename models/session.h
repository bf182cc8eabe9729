/* Session: the programs of a picture built for one shape (size, steps, text length), the plan of its memory, the arena, and the
 * feed that brings pages into it. Kept in the model and reused while the shape stays the same. */
#ifndef DFX_MODELS_SESSION_H
#define DFX_MODELS_SESSION_H

#include "core/budget.h"
#include "models/picture.h"
#include "offload/executor.h"
#include "offload/page_feed.h"

typedef struct dfx_model dfx_model;

typedef struct dfx_session {
    bool ready;
    dfx_shape shape;
    dfx_program programs[DFX_N_PROGRAMS];
    uint32_t first_region[DFX_N_PROGRAMS]; /* within the stage */
    dfx_trace trace;
    dfx_plan plan;
    uint32_t *page_idx; /* owned; of the plan's pages in the packed file */
    dfx_mem arena;      /* owned */
    dfx_feed *feed;     /* owned */
    dfx_executor executor;
    dfx_state state;
    char *text_key;     /* owned; the prompt whose encodings the state holds, NULL: none */
    int64_t pooled_row; /* of clip_out, for text_key */
    bool cond_valid;    /* the modulation table holds text_key at cond_guidance */
    float cond_guidance;
} dfx_session;

/* Build for the shape unless the session already is. Errors: DFX_E_FORMAT, DFX_E_NOFIT (before anything is allocated on the
 * device), DFX_E_DEVICE, DFX_E_IO. */
dfx_status dfx_session_begin(dfx_model *model, const dfx_shape *shape);
void dfx_session_end(dfx_model *model); /* frees everything; fine when there is none */

/* Run a program with its pages from the feed. `step`: which repetition, 0 where there is one. */
dfx_status dfx_session_run(dfx_model *model, dfx_program_id id, int step, void *const *externs);

#endif
