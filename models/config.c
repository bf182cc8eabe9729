#include "models/config.h"

#include <stdio.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

dfx_status dfx_config_load(const dfx_bundle *bundle, const char *folder, const char *file,
                           dfx_config_reader read, const dfx_sink *sink, void *out) {
    char path[256], label[DFX_PATH_BYTES];
    json_t *json;
    snprintf(path, sizeof(path), "%s%s%s", folder, folder[0] ? "/" : "", file);
    dfx_bundle_label(bundle, path, label);
    DFX_TRY(dfx_bundle_json(bundle, path, sink, CONFIG_BYTES_MAX, &json));
    dfx_status status = json_is_object(json)
                            ? read(json, label, sink, out)
                            : dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a JSON object", label);
    json_decref(json);
    return status;
}
