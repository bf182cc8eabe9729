/* Endings of tensor names in LoRA files: which module a tensor belongs to, and what it is there. */
#ifndef DFX_MODELS_LORA_KEYS_H
#define DFX_MODELS_LORA_KEYS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum dfx_lora_role {
    DFX_LORA_DOWN,
    DFX_LORA_UP,
    DFX_LORA_HADA_W1_A,
    DFX_LORA_HADA_W1_B,
    DFX_LORA_HADA_W2_A,
    DFX_LORA_HADA_W2_B,
    DFX_LORA_LOKR_W1,
    DFX_LORA_LOKR_W1_A,
    DFX_LORA_LOKR_W1_B,
    DFX_LORA_LOKR_W2,
    DFX_LORA_LOKR_W2_A,
    DFX_LORA_LOKR_W2_B,
    DFX_LORA_N_FACTORS, /* all above are matrices that a delta is made of */
    DFX_LORA_ALPHA = DFX_LORA_N_FACTORS,
    DFX_LORA_MAGNITUDE,
    DFX_LORA_RESHAPE, /* the shape that the weight is widened to before */
    DFX_LORA_N_ROLES, /* all above belong to a module that we can apply */
    DFX_LORA_EXTRA,   /* a change that has no low rank: nothing where it is zero */
    DFX_LORA_REFUSED, /* of a kind that we do not apply */
    DFX_LORA_UNKNOWN
} dfx_lora_role;

typedef struct dfx_lora_key {
    dfx_lora_role role;
    size_t module_bytes; /* how much of the name names the module; all of it for UNKNOWN */
    const char *what;    /* of EXTRA and REFUSED, for messages: "a bias", "GLoRA"; else NULL */
} dfx_lora_key;

dfx_lora_key dfx_lora_key_split(const char *name);

#endif
