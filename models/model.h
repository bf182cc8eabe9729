/* What is behind dfx_model: the checked parts of a diffusers folder, the device, and the session that was built for the
 * shape of the last request. Private to models/. */
#ifndef DFX_MODELS_MODEL_H
#define DFX_MODELS_MODEL_H

#include "models/clip.h"
#include "models/dfx.h"
#include "models/flux.h"
#include "models/session.h"
#include "models/sigmas.h"
#include "models/t5.h"
#include "models/tok_clip.h"
#include "models/tok_t5.h"
#include "models/vae.h"

typedef enum dfx_component {
    DFX_CLIP,
    DFX_T5,
    DFX_TRANSFORMER,
    DFX_VAE,
    DFX_N_COMPONENTS
} dfx_component;

struct dfx_model {
    dfx_sink sink;
    char *path, *name;    /* owned */
    dfx_backend *backend; /* owned */
    dfx_budget budget;
    dfx_executor executor;
    size_t workspace_bytes;                 /* of the backend, as far as the budget knows */
    dfx_tensors *tensors[DFX_N_COMPONENTS]; /* owned */
    dfx_tok_clip *tok_clip;                 /* owned */
    dfx_tok_t5 *tok_t5;                     /* owned */
    dfx_clip_config clip;
    dfx_t5_config t5;
    dfx_flux_config flux;
    dfx_vae_config vae;
    dfx_sigma_config sigmas;
    int default_steps, default_width, default_height, default_text_length, max_text_length;
    dfx_session session;
};

/* The whole request against the model's limits. */
dfx_status dfx_request_validate(const dfx_model *model, const dfx_request *request);

#endif
