/* The architectures that plans and random models can be made for without a checkpoint: the numbers of their configuration
 * files. */
#ifndef DFX_MODELS_ARCHITECTURE_H
#define DFX_MODELS_ARCHITECTURE_H

#include "models/defaults.h"

typedef struct dfx_architecture {
    const char *name;
    dfx_configs configs;
    int steps, side,
        text_length; /* defaults of a picture; the T5 tokenizer allows no more tokens */
    int n_clip_pieces,
        n_t5_pieces; /* of the tokenizers; at most the vocabularies of the encoders */
} dfx_architecture;

/* "flux-dev", "flux-schnell", "scenes", "tiny"; NULL after the last. */
const char *const *dfx_architecture_names(void);

/* NULL for a name that is not known. */
const dfx_architecture *dfx_architecture_find(const char *name);

dfx_defaults dfx_architecture_defaults(const dfx_architecture *architecture);

#endif
