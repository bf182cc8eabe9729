#include "core/bundle.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"

static const dfx_tensor *find_tensor(const dfx_bundle *bundle, const char *path) {
    char name[DFX_PATH_BYTES];
    snprintf(name, sizeof(name), "%s%s", DFX_BUNDLE_PREFIX, path);
    return dfx_tensors_find(bundle->tensors, name);
}

void dfx_bundle_label(const dfx_bundle *bundle, const char *path, char out[DFX_PATH_BYTES]) {
    size_t len = strlen(bundle->name);
    while (len > 1 && bundle->name[len - 1] == '/')
        len--;
    snprintf(out, DFX_PATH_BYTES, "%.*s/%s", (int)len, bundle->name, path);
}

bool dfx_bundle_has(const dfx_bundle *bundle, const char *path) {
    char full[DFX_PATH_BYTES];
    if (!bundle->folder)
        return find_tensor(bundle, path) != NULL;
    return dfx_path_join(NULL, bundle->folder, path, full) == DFX_OK && dfx_file_exists(full);
}

static dfx_status slurp_tensor(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                               size_t max_bytes, char **out, size_t *out_bytes) {
    const dfx_tensor *t = find_tensor(bundle, path);
    char label[DFX_PATH_BYTES], *text;
    dfx_bundle_label(bundle, path, label);
    if (!t)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: not in the packed model", label);
    if (t->bytes > max_bytes)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted at most %zu bytes, found %zu", label,
                        max_bytes, (size_t)t->bytes);
    DFX_TRY(dfx_new_array(sink, t->bytes + 1, "file", &text));
    dfx_status status = dfx_tensors_read(bundle->tensors, t, sink, text);
    if (status != DFX_OK) {
        dfx_free(text);
        return status;
    }
    *out = text;
    *out_bytes = t->bytes;
    return DFX_OK;
}

dfx_status dfx_bundle_slurp(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                            size_t max_bytes, char **out, size_t *out_bytes) {
    char full[DFX_PATH_BYTES];
    if (!bundle->folder)
        return slurp_tensor(bundle, path, sink, max_bytes, out, out_bytes);
    DFX_TRY(dfx_path_join(sink, bundle->folder, path, full));
    return dfx_file_slurp(full, sink, max_bytes, out, out_bytes);
}

dfx_status dfx_bundle_json(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                           size_t max_bytes, json_t **out) {
    char label[DFX_PATH_BYTES], *text;
    size_t bytes;
    DFX_TRY(dfx_bundle_slurp(bundle, path, sink, max_bytes, &text, &bytes));
    dfx_bundle_label(bundle, path, label);
    dfx_status status = dfx_json_parse(text, bytes, label, sink, out);
    dfx_free(text);
    return status;
}
