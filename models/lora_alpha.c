#include "models/lora_alpha.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

const char *const dfx_lora_folder_names[2] = {"adapter_model.safetensors",
                                              "pytorch_lora_weights.safetensors"};

static bool is_folder_name(const char *file_name) {
    return strcmp(file_name, dfx_lora_folder_names[0]) == 0 ||
           strcmp(file_name, dfx_lora_folder_names[1]) == 0;
}

/* "adapter_config.json" beside the file; false when there is none that is meant: a folder of many LoRAs has one by accident. */
static bool config_beside(const char *path, const dfx_sink *sink, char out[DFX_PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    size_t dir_bytes = slash ? (size_t)(slash + 1 - path) : 0;
    int len = snprintf(out, DFX_PATH_BYTES, "%.*sadapter_config.json", (int)dir_bytes, path);
    if (len >= DFX_PATH_BYTES || !dfx_file_exists(out))
        return false;
    if (is_folder_name(path + dir_bytes))
        return true;
    dfx_warn(sink, "%s: the adapter_config.json beside it is not read: it belongs to %s or %s",
             path, dfx_lora_folder_names[0], dfx_lora_folder_names[1]);
    return false;
}

dfx_status dfx_lora_alphas_open(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_alphas *out) {
    const char *text = dfx_tensors_metadata(lora->set, "lora_adapter_metadata");
    char path[DFX_PATH_BYTES];
    *out = (dfx_lora_alphas){.of_components = text != NULL};
    if (text) {
        snprintf(out->name, sizeof(out->name), "%s: lora_adapter_metadata", lora->path);
        DFX_TRY(dfx_json_parse(text, strlen(text), out->name, sink, &out->config));
    } else if (config_beside(lora->path, sink, path)) {
        snprintf(out->name, sizeof(out->name), "%s", path);
        DFX_TRY(dfx_json_load(path, sink, CONFIG_BYTES_MAX, &out->config));
    }
    if (out->config && !json_is_object(out->config))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a JSON object", out->name);
    return DFX_OK;
}

void dfx_lora_alphas_close(dfx_lora_alphas *alphas) {
    json_decref(alphas->config);
    *alphas = (dfx_lora_alphas){0};
}

static const json_t *field(const dfx_lora_alphas *alphas, dfx_component component,
                           const char *key) {
    char full[64];
    if (!alphas->of_components)
        return json_object_get(alphas->config, key);
    snprintf(full, sizeof(full), "%s.%s", dfx_component_places[component].folder, key);
    return json_object_get(alphas->config, full);
}

/* Does alpha_pattern's `pattern` name the module? It may be written as a regular expression of one name: ^a\.b$ */
static bool names(const char *pattern, const char *key) {
    char plain[DFX_LORA_KEY_BYTES];
    size_t n = 0;
    for (const char *p = pattern; *p && n + 1 < sizeof(plain); p++)
        if (!strchr("^$\\", *p))
            plain[n++] = *p == '.' ? '_' : *p;
    plain[n] = 0;
    return strcmp(plain, key) == 0;
}

static const json_t *pattern_of(const json_t *patterns, const char *key) {
    const char *pattern;
    json_t *value;
    json_object_foreach((json_t *)patterns, pattern, value) if (names(pattern, key)) return value;
    return NULL;
}

dfx_status dfx_lora_alphas_find(const dfx_lora_alphas *alphas, dfx_component component,
                                const dfx_lora_alias *alias, const dfx_sink *sink, bool *found,
                                float *alpha, bool *by_root) {
    *found = false;
    if (!alphas->config)
        return DFX_OK;
    const json_t *value = pattern_of(field(alphas, component, "alpha_pattern"), alias->key);
    value = value ? value : field(alphas, component, "lora_alpha");
    value = value ? value : field(alphas, component, "alpha"); /* of PEFT's LoHa and LoKr */
    if (!value || json_is_null(value))
        return DFX_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite((float)number))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: alpha of %s: wanted a number", alphas->name,
                        alias->key);
    *found = true;
    *alpha = (float)number;
    *by_root = json_is_true(field(alphas, component, "use_rslora"));
    return DFX_OK;
}

void dfx_lora_alphas_warn(const dfx_lora_alphas *alphas, const dfx_lora *lora,
                          const dfx_sink *sink) {
    static const dfx_component components[] = {DFX_TRANSFORMER, DFX_CLIP, DFX_T5};
    size_t n_components = !alphas->config ? 0 : alphas->of_components ? DFX_COUNT(components) : 1;
    for (size_t c = 0; c < n_components; c++) {
        const char *pattern;
        json_t *value;
        json_object_foreach((json_t *)field(alphas, components[c], "alpha_pattern"), pattern,
                            value) {
            size_t i = 0;
            while (i < lora->n_modules && !names(pattern, lora->modules[i].alias->key))
                i++;
            if (i == lora->n_modules)
                dfx_warn(
                    sink,
                    "%s: alpha_pattern names %.200s, which is no layer of the file; only whole "
                    "names count",
                    alphas->name, pattern);
        }
    }
}
