/* These files are written by many tools: tokens come as text or as an object with "content", and an
 * unlimited length as an integer of 31 digits. Integers are therefore read as reals, which
 * core/json.h does not do. */
#include "models/tok_config.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/sink.h"

enum { CONFIG_BYTES_MAX = 16 << 20, EXTRA_IDS_MAX = 1000, LENGTH_MAX = 1 << 24 };

dfx_status dfx_tok_file_find(const dfx_bundle *bundle, const char *folder, const char *name,
                             const dfx_sink *sink, dfx_tok_file *out) {
    if (folder[0] == '\0')
        snprintf(out->path, sizeof(out->path), "%s", name);
    else
        DFX_TRY(dfx_path_join(sink, folder, name, out->path));
    dfx_bundle_label(bundle, out->path, out->label);
    out->exists = dfx_bundle_has(bundle, out->path);
    return DFX_OK;
}

static dfx_status load_object(const dfx_bundle *bundle, const dfx_tok_file *file,
                              const dfx_sink *sink, json_t **out) {
    char *text;
    size_t bytes;
    DFX_TRY(dfx_bundle_slurp(bundle, file->path, sink, CONFIG_BYTES_MAX, &text, &bytes));
    json_error_t error;
    json_t *root =
        json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    dfx_free(text);
    if (!root)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: line %d: %s", file->label, error.line, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a JSON object", file->label);
    }
    *out = root;
    return DFX_OK;
}

/* A token that an earlier file named is kept; null and absent are the same. */
static dfx_status read_token(const json_t *root, const char *path, const char *key,
                             const dfx_sink *sink, char text[DFX_SPECIAL_BYTES]) {
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value) || text[0] != '\0')
        return DFX_OK;
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) >= DFX_SPECIAL_BYTES)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %s: wanted a text of 1 to %d bytes", path, key,
                        DFX_SPECIAL_BYTES - 1);
    snprintf(text, DFX_SPECIAL_BYTES, "%s", json_string_value(value));
    return DFX_OK;
}

static dfx_status read_numbers(const json_t *root, const char *path, const dfx_sink *sink,
                               dfx_tok_config *config) {
    const json_t *length = json_object_get(root, "model_max_length");
    if (length && !json_is_null(length)) {
        if (!json_is_real(length) || !(json_real_value(length) >= 1))
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: model_max_length: wanted a number of at least 1", path);
        if (json_real_value(length) <= LENGTH_MAX)
            config->model_max_length = (size_t)json_real_value(length);
    }
    const json_t *extra = json_object_get(root, "extra_ids");
    if (extra && !json_is_null(extra)) {
        double value = json_is_real(extra) ? json_real_value(extra) : -1;
        if (!(value >= 0 && value <= EXTRA_IDS_MAX && value == (int)value))
            return dfx_fail(sink, DFX_E_FORMAT, "%s: extra_ids: wanted an integer from 0 to %d",
                            path, EXTRA_IDS_MAX);
        config->extra_ids = (int)value;
    }
    return DFX_OK;
}

static dfx_status read_file(const dfx_bundle *bundle, const dfx_tok_file *file,
                            const dfx_sink *sink, dfx_tok_config *config) {
    json_t *root = NULL;
    const char *path = file->label;
    DFX_TRY(load_object(bundle, file, sink, &root));
    dfx_status status;
    DFX_TRY_OUT(status, read_token(root, path, "bos_token", sink, config->bos));
    DFX_TRY_OUT(status, read_token(root, path, "eos_token", sink, config->eos));
    DFX_TRY_OUT(status, read_token(root, path, "pad_token", sink, config->pad));
    DFX_TRY_OUT(status, read_token(root, path, "unk_token", sink, config->unk));
    DFX_TRY_OUT(status, read_numbers(root, path, sink, config));
out:
    json_decref(root);
    return status;
}

dfx_status dfx_tok_config_read(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                               dfx_tok_config *out) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
    *out = (dfx_tok_config){.extra_ids = -1};
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        dfx_tok_file file;
        DFX_TRY(dfx_tok_file_find(bundle, folder, names[i], sink, &file));
        if (file.exists)
            DFX_TRY(read_file(bundle, &file, sink, out));
    }
    return DFX_OK;
}
