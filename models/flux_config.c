/* transformer/config.json: what of a FLUX transformer varies, and a clear no to what we do not run. */
#include <inttypes.h>
#include <string.h>

#include "models/config.h"
#include "models/flux.h"

/* The first published configurations lack axes_dims_rope: those of all FLUX.1 models. */
static dfx_status read_axes(const json_t *json, const char *path, const dfx_sink *sink,
                            dfx_flux_config *c) {
    static const int64_t usual[3] = {16, 56, 56};
    json_t *list = NULL;
    for (int i = 0; i < 3; i++)
        c->axes[i] = usual[i];
    if (dfx_json_has(json, "axes_dims_rope")) {
        DFX_TRY(dfx_json_array(json, path, "axes_dims_rope", sink, &list));
        if (json_array_size(list) != 3)
            return dfx_fail(sink, DFX_E_FORMAT, "%s: axes_dims_rope: wanted 3 numbers, found %zu",
                            path, json_array_size(list));
        for (size_t i = 0; i < 3; i++) {
            const json_t *item = json_array_get(list, i);
            int64_t value = json_is_integer(item) ? json_integer_value(item) : -1;
            if (value < 2 || value > 4096 || value % 2 != 0)
                return dfx_fail(sink, DFX_E_FORMAT,
                                "%s: axes_dims_rope[%zu]: wanted an even number from 2 to 4096",
                                path, i);
            c->axes[i] = value;
        }
    }
    int64_t sum = c->axes[0] + c->axes[1] + c->axes[2];
    if (sum != c->head_size)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: axes_dims_rope sum to %" PRId64 ", wanted attention_head_dim %" PRId64,
                        path, sum, c->head_size);
    return DFX_OK;
}

/* How weights are stored is told by themselves (models/checkpoint.h); here only who stored them. */
static dfx_status check_quantization(const json_t *json, const char *path, const dfx_sink *sink) {
    const char *method = "none";
    json_t *quantization;
    if (!dfx_json_has(json, "quantization_config"))
        return DFX_OK;
    DFX_TRY(dfx_json_object(json, path, "quantization_config", sink, &quantization));
    DFX_TRY(dfx_json_str(quantization, path, "quant_method", sink, &method));
    return strcmp(method, "bitsandbytes") == 0
               ? DFX_OK
               : dfx_fail(
                     sink, DFX_E_FORMAT,
                     "%s: quantization_config: quant_method: wanted bitsandbytes, found %s; use "
                     "the bf16 weights",
                     path, method);
}

static dfx_status read_config(const json_t *json, const char *path, const dfx_sink *sink,
                              void *out) {
    dfx_flux_config *c = out;
    int64_t patch = 1;
    DFX_TRY(dfx_json_int(json, path, "in_channels", 4, 4096, sink, &c->in_channels));
    c->out_channels = c->in_channels;
    if (dfx_json_has(json, "out_channels"))
        DFX_TRY(dfx_json_int(json, path, "out_channels", 4, 4096, sink, &c->out_channels));
    if (dfx_json_has(json, "patch_size"))
        DFX_TRY(dfx_json_int(json, path, "patch_size", 1, 1, sink, &patch));
    DFX_TRY(dfx_json_int(json, path, "num_layers", 0, 1024, sink, &c->n_double));
    DFX_TRY(dfx_json_int(json, path, "num_single_layers", 0, 1024, sink, &c->n_single));
    DFX_TRY(dfx_json_int(json, path, "attention_head_dim", 2, 1024, sink, &c->head_size));
    DFX_TRY(dfx_json_int(json, path, "num_attention_heads", 1, 1024, sink, &c->n_heads));
    DFX_TRY(dfx_json_int(json, path, "joint_attention_dim", 1, 1 << 16, sink, &c->text_width));
    DFX_TRY(dfx_json_int(json, path, "pooled_projection_dim", 1, 1 << 16, sink, &c->pooled_width));
    DFX_TRY(dfx_json_bool(json, path, "guidance_embeds", sink, &c->has_guidance));
    c->width = c->n_heads * c->head_size;
    if (c->in_channels != c->out_channels)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: in_channels %" PRId64 " with out_channels %" PRId64
                        " is a FLUX.1 Fill, Canny or Depth model; "
                        "dfx-edge runs dev and schnell (equal channels)",
                        path, c->in_channels, c->out_channels);
    DFX_TRY(check_quantization(json, path, sink));
    return read_axes(json, path, sink, c);
}

dfx_status dfx_flux_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                dfx_flux_config *out) {
    return dfx_config_load(bundle, folder, "config.json", read_config, sink, out);
}
