/* A folder of shards: input is the index. Beside it lie two shards, one of tensors a and b, one of c. */
#include <string.h>

#include "tests/fuzz/fuzzing.h"

static void put_shard(const char *name, const char *header) {
    uint8_t file[256] = {(uint8_t)strlen(header)};
    memcpy(file + 8, header, strlen(header));
    fuzz_put(name, file, 8 + strlen(header) + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static int ready;
    dfx_tensors *set = NULL;
    if (!ready++) {
        put_shard("m-1.safetensors",
                  "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}");
        put_shard("m-2.safetensors",
                  "{\"c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}");
    }
    fuzz_put("m.safetensors.index.json", data, bytes);
    fuzz_begin();
    dfx_status status = dfx_tensors_open_dir(fuzz_folder(), "m", &fuzz_sink, &set);
    if (status == DFX_OK)
        fuzz_read_tensors(set);
    dfx_tensors_close(set);
    fuzz_end(status);
    return 0;
}
