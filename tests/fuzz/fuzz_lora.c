/* LoRA files, for the tiny model of tests/golden: input is the file. Factors of every part are computed. */
#include <stdlib.h>

#include "models/lora.h"
#include "tests/fuzz/fuzzing.h"

enum { VALUES_MAX = 1 << 18 };

/* The file does not change between looking and reading, so nothing may fail here. */
static void read_part(const dfx_lora *lora, const dfx_lora_part *part) {
    static float down[VALUES_MAX], up[VALUES_MAX], magnitude[VALUES_MAX];
    if (part->rank * part->k > VALUES_MAX || part->n * part->rank > VALUES_MAX)
        return;
    if (dfx_lora_factors(lora, part, NULL, down, up) != DFX_OK)
        abort();
    if (part->magnitude != DFX_LORA_NO_MAGNITUDE && part->n <= VALUES_MAX &&
        part->k <= VALUES_MAX && dfx_lora_magnitude(lora, part, NULL, magnitude) != DFX_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static dfx_configs configs;
    static const char tiny[] = "tests/golden/tiny-dev";
    dfx_bundle bundle = {.folder = tiny, .name = tiny};
    dfx_lora *lora = NULL;
    if (!configs.flux.width && dfx_configs_load(&bundle, NULL, &configs) != DFX_OK)
        abort();
    fuzz_begin();
    dfx_status status = dfx_lora_open(fuzz_file(data, bytes), &configs, &fuzz_sink, &lora);
    for (size_t i = 0; status == DFX_OK && i < dfx_lora_n_parts(lora); i++)
        read_part(lora, dfx_lora_part_at(lora, i));
    dfx_lora_close(lora);
    fuzz_end(status);
    return 0;
}
