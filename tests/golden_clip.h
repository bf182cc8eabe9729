/* Goldens of CLIP's text tower, of transformers: every layer, and the pooled row at the first end token. */
#ifndef DFX_TESTS_GOLDEN_CLIP_H
#define DFX_TESTS_GOLDEN_CLIP_H

#include "tests/model_rig.h"

enum { GOLDEN_CLIP_PROMPTS = 3, GOLDEN_CLIP_TOKENS = 77, GOLDEN_CLIP_WIDTH = 64 };

typedef struct clip_model {
    dfx_program tables, program;
} clip_model;

clip_model clip_model_build(model_rig *r);
void clip_model_fini(clip_model *m);
/* One prompt through the tower: [tokens, width] after final_layer_norm. */
float *clip_model_encode(model_rig *r, const clip_model *m, const int32_t *ids);

/* Prompts of 3, 20 and 77 tokens. Rows behind the end token see it and the padding: the mask is causal and no more. */
void golden_clip_layers(model_rig *r);
void golden_clip_pooled(model_rig *r);

#endif
