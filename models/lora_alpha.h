/* Alphas that stand beside a LoRA's tensors as text: PEFT's configuration, in the file's metadata or in a file of its own. */
#ifndef DFX_MODELS_LORA_ALPHA_H
#define DFX_MODELS_LORA_ALPHA_H

#include "core/json.h"
#include "models/lora_inside.h"

/* From metadata (lora_adapter_metadata) keys begin with the component: "transformer.lora_alpha". */
struct dfx_lora_alphas {
    json_t *config; /* owned; NULL: there is none */
    bool of_components;
    char name[DFX_PATH_BYTES + 32]; /* for messages */
};

/* Of the file that `lora` has open: its metadata; else, beside a file of the name that PEFT or diffusers gives, adapter_config.json.
 * Errors: DFX_E_FORMAT when it is there and is no JSON object: its alphas would be missed. */
dfx_status dfx_lora_alphas_open(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_alphas *out);
void dfx_lora_alphas_close(dfx_lora_alphas *alphas); /* zeroed alphas are fine */

/* Alpha of a module, and whether the scale is alpha / sqrt(rank) (rsLoRA). *found false, and the others untouched, where nothing
 * is said. An alpha_pattern counts for the layer of exactly that name: endings would give one layer another's. */
dfx_status dfx_lora_alphas_find(const dfx_lora_alphas *alphas, dfx_component component,
                                const dfx_lora_alias *alias, const dfx_sink *sink, bool *found,
                                float *alpha, bool *by_root);

/* A warning when alpha_pattern names what no module of the file is. */
void dfx_lora_alphas_warn(const dfx_lora_alphas *alphas, const dfx_lora *lora,
                          const dfx_sink *sink);

/* The two file names that PEFT and diffusers give a LoRA in a folder. */
extern const char *const dfx_lora_folder_names[2];

#endif
