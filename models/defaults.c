#include "models/defaults.h"

#include <stdio.h>

#include "models/config.h"

enum { TEXT_LENGTH_MOST = 512, STEPS_MOST = 1000, SIDE_MOST = 4096 };

void dfx_defaults_of_kind(const dfx_configs *configs, size_t t5_limit, dfx_defaults *out) {
    bool guidance = configs->flux.has_guidance;
    *out = (dfx_defaults){.max_text_length = t5_limit > 0 && t5_limit < TEXT_LENGTH_MOST
                                                 ? (int)t5_limit
                                                 : TEXT_LENGTH_MOST};
    int64_t usual = guidance ? 512 : 256;
    out->shape = (dfx_shape){.width = 1024,
                             .height = 1024,
                             .n_text = usual < out->max_text_length ? usual : out->max_text_length,
                             .n_steps = guidance ? 28 : 4,
                             .n_pictures = 1};
}

static dfx_status read_defaults(const json_t *json, const char *path, const dfx_sink *sink,
                                void *out) {
    dfx_defaults *d = out;
    int64_t steps = d->shape.n_steps;
    const char *name;
    if (dfx_json_has(json, "name")) {
        DFX_TRY(dfx_json_str(json, path, "name", sink, &name));
        snprintf(d->name, sizeof(d->name), "%s", name);
    }
    if (dfx_json_has(json, "steps"))
        DFX_TRY(dfx_json_int(json, path, "steps", 1, STEPS_MOST, sink, &steps));
    if (dfx_json_has(json, "width"))
        DFX_TRY(dfx_json_int(json, path, "width", 16, SIDE_MOST, sink, &d->shape.width));
    if (dfx_json_has(json, "height"))
        DFX_TRY(dfx_json_int(json, path, "height", 16, SIDE_MOST, sink, &d->shape.height));
    if (d->shape.width % 16 != 0 || d->shape.height % 16 != 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: width and height: wanted multiples of 16", path);
    d->shape.n_steps = (int)steps;
    return DFX_OK;
}

dfx_status dfx_defaults_load(const dfx_bundle *bundle, const dfx_configs *configs, size_t t5_limit,
                             const dfx_sink *sink, dfx_defaults *out) {
    dfx_defaults_of_kind(configs, t5_limit, out);
    return dfx_bundle_has(bundle, "dfx.json")
               ? dfx_config_load(bundle, "", "dfx.json", read_defaults, sink, out)
               : DFX_OK;
}
