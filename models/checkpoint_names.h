/* The names that others give to FLUX's layers, and those of diffusers and transformers, which are ours. A layer is a tensor's name
 * without its last part: ".weight", ".bias" or ".scale". */
#ifndef DFX_MODELS_CHECKPOINT_NAMES_H
#define DFX_MODELS_CHECKPOINT_NAMES_H

#include "models/configs.h"

enum { DFX_LAYER_BYTES = 512, DFX_SPLIT_MAX = 4 };

typedef enum dfx_names {
    DFX_NAMES_DIFFUSERS, /* and transformers' */
    DFX_NAMES_ORIGINAL,  /* BFL's, and those of LDM's VAE */
    DFX_NAMES_LLAMA      /* llama.cpp's, of T5 */
} dfx_names;

/* What diffusers calls a layer. */
typedef struct dfx_renamed {
    int n; /* 0: no such layer. More than 1: its rows are those of these, one after the other */
    char to[DFX_SPLIT_MAX][DFX_LAYER_BYTES];
    bool swap;    /* its two halves trade places */
    bool is_norm; /* ".scale" becomes ".weight" */
} dfx_renamed;

/* n_levels: of a VAE. */
void dfx_names_map(dfx_component component, dfx_names names, const char *layer, int n_levels,
                   dfx_renamed *out);

/* The way back, of BFL's transformer and llama.cpp's T5: rule `idx` for block `number`. False past the last rule. A rule of
 * something that is there once gives out->n 0 for a number above 0. */
bool dfx_names_rule(dfx_component component, dfx_names names, size_t idx, int number,
                    char layer[DFX_LAYER_BYTES], dfx_renamed *out);

#endif
