/* The linear layers of a FLUX pipeline that a LoRA can change, and every name under which LoRA files know them.
 *
 * Layers have our (diffusers') names. An *alias* is a name of some file's: of one layer, or of a fused one whose rows are those of
 * up to four layers of ours in turn. Files write names with dots or with underscores, so both are compared with underscores. */
#ifndef DFX_MODELS_LORA_LAYERS_H
#define DFX_MODELS_LORA_LAYERS_H

#include "core/arena.h"
#include "models/lora.h"

enum { DFX_LORA_CUTS_MAX = 4 };

typedef struct dfx_lora_layer {
    dfx_component component;
    const char *name; /* in arena */
    int64_t n, k;
} dfx_lora_layer;

typedef enum dfx_lora_naming {
    DFX_LORA_NAMES_DIFFUSERS,
    DFX_LORA_NAMES_BFL,
    DFX_LORA_NAMES_XLABS
} dfx_lora_naming;

typedef struct dfx_lora_alias {
    const char *key; /* with '_' for every '.'; in arena */
    dfx_lora_naming naming;
    bool halves_swapped; /* the file's second half of rows is our first */
    int n_cuts;
    uint32_t layers[DFX_LORA_CUTS_MAX]; /* its rows, in turn */
    int64_t n, k;                       /* of all of it */
} dfx_lora_alias;

typedef struct dfx_lora_layers {
    dfx_arena arena;
    dfx_lora_layer *layers; /* owned; as they are used: transformer, CLIP, T5 */
    size_t n_layers, cap_layers;
    dfx_lora_alias *aliases; /* owned; sorted by key */
    size_t n_aliases, cap_aliases;
} dfx_lora_layers;

dfx_status dfx_lora_layers_init(dfx_lora_layers *table, const dfx_configs *configs,
                                const dfx_sink *sink);
void dfx_lora_layers_fini(dfx_lora_layers *table);

/* The module name `name` (of `bytes` bytes) behind any prefix that files put before it; NULL when it is no layer of this model.
 * *style: whose way of writing this is. */
const dfx_lora_alias *dfx_lora_layers_find(const dfx_lora_layers *table, const char *name,
                                           size_t bytes, dfx_lora_style *style);

/* Is this a name of a text encoder's, whatever model that is of? */
bool dfx_lora_is_text_name(const char *name);

/* The same name with '_' for '.', cut to fit; for comparing. */
enum { DFX_LORA_KEY_BYTES = 256 };
void dfx_lora_key_of(const char *name, size_t bytes, char out[DFX_LORA_KEY_BYTES]);

#endif
