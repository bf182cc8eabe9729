/* Everything of a model but its weights: configurations, tokenizers, defaults; checked against each other. */
#ifndef DFX_MODELS_PARTS_H
#define DFX_MODELS_PARTS_H

#include "models/configs.h"
#include "models/defaults.h"
#include "models/tok_clip.h"
#include "models/tok_t5.h"

typedef struct dfx_parts {
    dfx_configs configs;
    dfx_tok_clip *tok_clip; /* owned */
    dfx_tok_t5 *tok_t5;     /* owned */
    dfx_defaults defaults;
} dfx_parts;

/* Errors: DFX_E_IO, DFX_E_FORMAT. On failure nothing is kept. */
dfx_status dfx_parts_load(const dfx_bundle *bundle, const dfx_sink *sink, dfx_parts *out);
void dfx_parts_fini(dfx_parts *parts); /* zeroed parts are fine */

/* "FLUX.1 dev" or "FLUX.1 schnell" */
const char *dfx_parts_kind(const dfx_parts *parts);

#endif
