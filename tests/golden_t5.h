/* Goldens of the T5 encoder, of transformers: every block, padding that is attended to, the relative bias. */
#ifndef DFX_TESTS_GOLDEN_T5_H
#define DFX_TESTS_GOLDEN_T5_H

#include "tests/model_rig.h"

enum { GOLDEN_T5_WIDTH = 64, GOLDEN_T5_TOKENS = 24 };

typedef struct t5_model {
    dfx_program table, program;
    int64_t n_tokens;
} t5_model;

t5_model t5_model_build(model_rig *r, int64_t n_tokens);
void t5_model_fini(t5_model *m);
/* One prompt through the encoder: [n_tokens, width]. */
float *t5_model_encode(model_rig *r, const t5_model *m, const int32_t *ids);

/* Prompts of 20 and 11 tokens in 24: no mask, so padding takes part. Block 1 has no table of its own. */
void golden_t5_blocks(model_rig *r);
void golden_t5_long(model_rig *r);
void golden_t5_position_bias(model_rig *r);

#endif
