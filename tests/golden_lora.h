/* Goldens of the transformer with LoRAs, of diffusers and PEFT: velocities with one adapter in three key styles, with a dense one
 * on fused layers and modulations, and with both, at several strengths. The group's folder holds dev/transformer. */
#ifndef DFX_TESTS_GOLDEN_LORA_H
#define DFX_TESTS_GOLDEN_LORA_H

#include "tests/golden_flux.h"

enum { GOLDEN_LORAS_MOST = 2 };

typedef struct lora_case {
    const char *name;                     /* for messages */
    const char *files[GOLDEN_LORAS_MOST]; /* of tests/golden/lora */
    float strengths[GOLDEN_LORAS_MOST];
    const char *input, *want; /* of the golden file */
} lora_case;

enum { GOLDEN_N_LORA_CASES = 13 };
extern const lora_case GOLDEN_LORA_CASES[GOLDEN_N_LORA_CASES];

void golden_lora(model_rig *r, const lora_case *c);

#endif
