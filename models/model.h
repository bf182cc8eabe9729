/* What is behind dfx_model: the checked parts of a packed model, the device, and the session that was built for the shape of
 * the last request. Private to models/. */
#ifndef DFX_MODELS_MODEL_H
#define DFX_MODELS_MODEL_H

#include "core/timeline.h"
#include "models/dfx.h"
#include "models/loras.h"
#include "models/parts.h"
#include "models/session.h"
#include "offload/packed.h"

struct dfx_model {
    dfx_sink sink;
    char *name;           /* owned */
    char *path;           /* owned; the packed file */
    dfx_packed *packed;   /* owned */
    dfx_tier *tier;       /* owned */
    dfx_backend *backend; /* owned */
    dfx_profile profile;
    dfx_budget budget; /* of the device */
    uint64_t ram_budget_bytes;
    dfx_offload offload;
    dfx_verify verify;
    bool attention_codes; /* of the denoiser, in 8 bits */
    dfx_parts parts;
    dfx_loras loras;
    dfx_program clip_table, t5_table; /* embeddings: pages that stay in the file */
    bool (*cancelled)(void *user);    /* of the request at hand */
    void *cancel_user;
    dfx_timeline *timeline; /* owned; NULL: none */
    char *trace_path;       /* owned */
    uint64_t n_traced;      /* spans that the file has */
    dfx_session session;
    dfx_shape looked; /* that dfx_session_look has found room for, last */
};

/* What the components' programs are built from. */
void dfx_model_env(const dfx_model *model, dfx_build_env env[DFX_N_COMPONENTS]);

/* The timeline, when there is one: told now if `path` cannot be written. models/tracing.c */
dfx_status dfx_model_trace_open(dfx_model *model, const char *path);
void dfx_model_trace_write(dfx_model *model); /* a fault is a warning */
void dfx_model_trace_close(dfx_model *model);

/* The whole request against the model's limits. */
dfx_status dfx_request_validate(const dfx_model *model, const dfx_request *request);

/* Of its steps the first that is made: 0 without an init picture. */
int dfx_request_first_step(const dfx_request *request);

#endif
