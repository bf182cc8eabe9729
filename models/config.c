#include "models/config.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

dfx_status dfx_config_load(const char *dir, const char *file, dfx_config_reader read,
                           const dfx_sink *sink, void *out) {
    char path[DFX_PATH_BYTES];
    json_t *json;
    DFX_TRY(dfx_path_join(sink, dir, file, path));
    DFX_TRY(dfx_json_load(path, sink, CONFIG_BYTES_MAX, &json));
    dfx_status status = json_is_object(json)
                            ? read(json, path, sink, out)
                            : dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a JSON object", path);
    json_decref(json);
    return status;
}
