/* vae/config.json. */
#include <inttypes.h>
#include <string.h>

#include "models/config.h"
#include "models/vae.h"

int64_t dfx_vae_factor(const dfx_vae_config *c) {
    return (int64_t)1 << (c->n_levels - 1);
}

static dfx_status check_block_types(const json_t *json, const char *path, const char *key,
                                    const char *wanted, const dfx_sink *sink) {
    json_t *list, *item;
    size_t i;
    if (!dfx_json_has(json, key))
        return DFX_OK;
    DFX_TRY(dfx_json_array(json, path, key, sink, &list));
    json_array_foreach(list, i, item) {
        const char *text = json_is_string(item) ? json_string_value(item) : "(not a text)";
        if (strcmp(text, wanted) != 0)
            return dfx_fail(sink, DFX_E_FORMAT, "%s: %s[%zu]: wanted \"%s\", found \"%s\"", path,
                            key, i, wanted, text);
    }
    return DFX_OK;
}

static dfx_status read_channels(const json_t *json, const char *path, const dfx_sink *sink,
                                dfx_vae_config *c) {
    json_t *list;
    DFX_TRY(dfx_json_array(json, path, "block_out_channels", sink, &list));
    size_t n = json_array_size(list);
    if (n < 1 || n > DFX_VAE_LEVELS_MAX)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: block_out_channels: wanted 1 to %d levels, found %zu", path,
                        DFX_VAE_LEVELS_MAX, n);
    c->n_levels = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        c->channels[i] = json_is_integer(item) ? json_integer_value(item) : 0;
        if (c->channels[i] < 1 || c->channels[i] > 1 << 14 || c->channels[i] % c->n_groups != 0)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: block_out_channels[%zu] is %" PRId64
                            ": wanted a multiple of norm_num_groups %" PRId64,
                            path, i, c->channels[i], c->n_groups);
    }
    return DFX_OK;
}

static dfx_status read_flag(const json_t *json, const char *path, const char *key, bool otherwise,
                            const dfx_sink *sink, bool *out) {
    *out = otherwise;
    return dfx_json_has(json, key) ? dfx_json_bool(json, path, key, sink, out) : DFX_OK;
}

static dfx_status read_config(const json_t *json, const char *path, const dfx_sink *sink,
                              void *out) {
    dfx_vae_config *c = out;
    double scaling, shift = 0;
    int64_t rgb = 3;
    c->n_groups = 32;
    DFX_TRY(dfx_json_int(json, path, "in_channels", 3, 3, sink, &rgb));
    DFX_TRY(dfx_json_int(json, path, "out_channels", 3, 3, sink, &rgb));
    if (dfx_json_has(json, "norm_num_groups"))
        DFX_TRY(dfx_json_int(json, path, "norm_num_groups", 1, 1024, sink, &c->n_groups));
    DFX_TRY(dfx_json_int(json, path, "layers_per_block", 1, 64, sink, &c->layers_per_block));
    DFX_TRY(dfx_json_int(json, path, "latent_channels", 1, 1024, sink, &c->latent_channels));
    DFX_TRY(dfx_json_real(json, path, "scaling_factor", sink, &scaling));
    if (dfx_json_has(json, "shift_factor"))
        DFX_TRY(dfx_json_real(json, path, "shift_factor", sink, &shift));
    if (!(scaling > 0))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: scaling_factor: wanted a number above 0, found %g",
                        path, scaling);
    c->scaling = (float)scaling;
    c->shift = (float)shift;
    DFX_TRY(read_channels(json, path, sink, c));
    DFX_TRY(check_block_types(json, path, "down_block_types", "DownEncoderBlock2D", sink));
    DFX_TRY(check_block_types(json, path, "up_block_types", "UpDecoderBlock2D", sink));
    DFX_TRY(read_flag(json, path, "use_quant_conv", true, sink, &c->quant_conv));
    DFX_TRY(read_flag(json, path, "use_post_quant_conv", true, sink, &c->post_quant_conv));
    return read_flag(json, path, "mid_block_add_attention", true, sink, &c->mid_attention);
}

dfx_status dfx_vae_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                               dfx_vae_config *out) {
    return dfx_config_load(bundle, folder, "config.json", read_config, sink, out);
}
