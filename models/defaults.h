/* What a picture is when the request does not say: of the kind of model, or as dfx.json beside model_index.json says. */
#ifndef DFX_MODELS_DEFAULTS_H
#define DFX_MODELS_DEFAULTS_H

#include "models/picture.h"

enum { DFX_MODEL_NAME_BYTES = 128 };

typedef struct dfx_defaults {
    char name[DFX_MODEL_NAME_BYTES]; /* "" when the model has none of its own */
    dfx_shape shape;
    int max_text_length;
} dfx_defaults;

/* t5_limit: model_max_length of the T5 tokenizer, 0 when it does not say. dfx.json may hold name, steps, width, height.
 * Errors: DFX_E_FORMAT. */
dfx_status dfx_defaults_load(const dfx_bundle *bundle, const dfx_configs *configs, size_t t5_limit,
                             const dfx_sink *sink, dfx_defaults *out);

/* The same without files: of the kind alone. */
void dfx_defaults_of_kind(const dfx_configs *configs, size_t t5_limit, dfx_defaults *out);

#endif
