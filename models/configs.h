/* All configurations of a FLUX pipeline, from a folder or a packed model, checked against each other. */
#ifndef DFX_MODELS_CONFIGS_H
#define DFX_MODELS_CONFIGS_H

#include "core/bundle.h"
#include "models/clip.h"
#include "models/flux.h"
#include "models/sigmas.h"
#include "models/t5.h"
#include "models/vae.h"

typedef enum dfx_component {
    DFX_CLIP,
    DFX_T5,
    DFX_TRANSFORMER,
    DFX_VAE,
    DFX_N_COMPONENTS
} dfx_component;

/* Where a component's files are, and what its weights are called there: "text_encoder", "model"; ... */
typedef struct dfx_component_place {
    const char *folder, *stem;
} dfx_component_place;
extern const dfx_component_place dfx_component_places[DFX_N_COMPONENTS];

typedef struct dfx_configs {
    dfx_clip_config clip;
    dfx_t5_config t5;
    dfx_flux_config flux;
    dfx_vae_config vae;
    dfx_sigma_config sigmas;
} dfx_configs;

/* model_index.json and the configuration of each part. Errors: DFX_E_IO; DFX_E_FORMAT for a pipeline that we do not run, or
 * parts that do not go together. */
dfx_status dfx_configs_load(const dfx_bundle *bundle, const dfx_sink *sink, dfx_configs *out);

/* model_index.json alone: is it a pipeline that we run? */
dfx_status dfx_configs_check_index(const dfx_bundle *bundle, const dfx_sink *sink);

/* Two numbers of two parts that must be equal, or the first at most the second. */
dfx_status dfx_configs_agree(const dfx_bundle *bundle, const dfx_sink *sink, const char *what,
                             int64_t a, const char *other, int64_t b, bool at_most);

/* The small files that make a model complete; those that are there are packed. */
extern const char *const dfx_model_files[];
extern const size_t dfx_n_model_files;

#endif
