#include "models/sigmas.h"

#include <math.h>
#include <string.h>

#include "models/config.h"

/* Options of the class that change the schedule and that we do not follow: refused when they are on. */
static const char *const UNSUPPORTED[] = {"use_karras_sigmas",   "use_exponential_sigmas",
                                          "use_beta_sigmas",     "invert_sigmas",
                                          "stochastic_sampling", "shift_terminal"};

static dfx_status read_real(const json_t *json, const char *path, const char *key,
                            const dfx_sink *sink, double *value) {
    return dfx_json_has(json, key) ? dfx_json_real(json, path, key, sink, value) : DFX_OK;
}

static dfx_status read_config(const json_t *json, const char *path, const dfx_sink *sink,
                              void *out) {
    dfx_sigma_config *c = out;
    const char *class_name, *type = "exponential";
    *c = (dfx_sigma_config){
        .shift = 1, .base_shift = 0.5, .max_shift = 1.15, .base_tokens = 256, .max_tokens = 4096};
    DFX_TRY(dfx_json_str(json, path, "_class_name", sink, &class_name));
    if (strcmp(class_name, "FlowMatchEulerDiscreteScheduler") != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: _class_name: wanted FlowMatchEulerDiscreteScheduler, found %s", path,
                        class_name);
    for (size_t i = 0; i < DFX_COUNT(UNSUPPORTED); i++) {
        const json_t *value = json_object_get(json, UNSUPPORTED[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return dfx_fail(sink, DFX_E_FORMAT, "%s: %s is set, and dfx-edge does not follow it",
                            path, UNSUPPORTED[i]);
    }
    if (dfx_json_has(json, "time_shift_type"))
        DFX_TRY(dfx_json_str(json, path, "time_shift_type", sink, &type));
    if (strcmp(type, "exponential") != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: time_shift_type: wanted \"exponential\", found \"%s\"", path, type);
    if (dfx_json_has(json, "use_dynamic_shifting"))
        DFX_TRY(dfx_json_bool(json, path, "use_dynamic_shifting", sink, &c->dynamic));
    DFX_TRY(read_real(json, path, "shift", sink, &c->shift));
    DFX_TRY(read_real(json, path, "base_shift", sink, &c->base_shift));
    DFX_TRY(read_real(json, path, "max_shift", sink, &c->max_shift));
    if (dfx_json_has(json, "base_image_seq_len"))
        DFX_TRY(dfx_json_int(json, path, "base_image_seq_len", 1, 1 << 24, sink, &c->base_tokens));
    if (dfx_json_has(json, "max_image_seq_len"))
        DFX_TRY(dfx_json_int(json, path, "max_image_seq_len", 1, 1 << 24, sink, &c->max_tokens));
    if (!(c->shift > 0) || c->max_tokens <= c->base_tokens)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: wanted shift above 0 and max_image_seq_len above base_image_seq_len",
                        path);
    return DFX_OK;
}

dfx_status dfx_sigma_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                 dfx_sigma_config *out) {
    return dfx_config_load(bundle, folder, "scheduler_config.json", read_config, sink, out);
}

void dfx_sigmas_make(const dfx_sigma_config *c, int64_t n_image, int n_steps, float *sigmas) {
    double slope = (c->max_shift - c->base_shift) / (double)(c->max_tokens - c->base_tokens);
    double e_mu = exp(slope * (double)n_image + c->base_shift - slope * (double)c->base_tokens);
    for (int i = 0; i < n_steps; i++) {
        double s = 1.0 - (double)i / n_steps;
        sigmas[i] = (float)(c->dynamic ? e_mu / (e_mu + (1.0 / s - 1.0))
                                       : c->shift * s / (1.0 + (c->shift - 1.0) * s));
    }
    sigmas[n_steps] = 0;
}
