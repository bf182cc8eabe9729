/* Configurations of a pipeline: the first byte of the input says which file the rest is; the others are those of a tiny
 * model, so that what the parts must agree on is reached. */
#include "models/configs.h"
#include "models/defaults.h"
#include "tests/fuzz/fuzzing.h"

static const char *const names[] = {"model_index.json",
                                    "scheduler/scheduler_config.json",
                                    "text_encoder/config.json",
                                    "text_encoder_2/config.json",
                                    "transformer/config.json",
                                    "vae/config.json",
                                    "dfx.json"};

/* "" is a model without dfx.json. */
static void put_original(size_t i) {
    char path[128];
    snprintf(path, sizeof(path), "tests/golden/tiny-dev/%s", names[i]);
    if (dfx_file_exists(path))
        fuzz_put_copy(names[i], path);
    else
        fuzz_drop(names[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static int ready;
    dfx_configs configs;
    dfx_defaults defaults;
    for (size_t i = 0; !ready && i < DFX_COUNT(names); i++)
        put_original(i);
    ready = 1;
    if (bytes == 0)
        return -1;
    size_t which = data[0] % DFX_COUNT(names);
    fuzz_put(names[which], data + 1, bytes - 1);
    dfx_bundle bundle = {.folder = fuzz_folder(), .name = "model"};
    fuzz_begin();
    dfx_status status = dfx_configs_load(&bundle, &fuzz_sink, &configs);
    if (status == DFX_OK)
        status = dfx_defaults_load(&bundle, &configs, 512, &fuzz_sink, &defaults);
    fuzz_end(status);
    put_original(which);
    return 0;
}
