/* LoRA files: input is a safetensors file. What opens gives the factors of every part. */
#include <stdlib.h>

#include "models/lora.h"
#include "tests/fuzz/fuzzing.h"

/* A model of width 2, so that small files hold whole layers. */
static const dfx_configs CONFIGS = {
    .clip = {.width = 2, .n_layers = 1, .n_heads = 1, .mlp_width = 3},
    .t5 = {.width = 3, .head_size = 2, .n_heads = 1, .mlp_width = 4, .n_layers = 1},
    .flux = {.in_channels = 4,
             .out_channels = 4,
             .n_double = 1,
             .n_single = 1,
             .n_heads = 1,
             .head_size = 2,
             .text_width = 3,
             .pooled_width = 5,
             .has_guidance = true,
             .width = 2},
};

static void read_part(const dfx_lora *lora, const dfx_lora_part *p) {
    int64_t sides = p->n + p->k;
    float *down = malloc((size_t)(sides * (p->rank + 1)) * sizeof(float));
    if (!down || dfx_lora_factors(lora, p, NULL, down, down + p->rank * p->k) != DFX_OK)
        abort();
    if (p->magnitude && dfx_lora_magnitude(lora, p, NULL, down) != DFX_OK)
        abort();
    free(down);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_lora *lora = NULL;
    fuzz_begin();
    dfx_status status = dfx_lora_open(fuzz_file(data, bytes), &CONFIGS, &fuzz_sink, &lora);
    for (size_t i = 0; lora && i < dfx_lora_n_parts(lora); i++)
        read_part(lora, dfx_lora_part_at(lora, i));
    dfx_lora_close(lora);
    fuzz_end(status);
    return 0;
}
