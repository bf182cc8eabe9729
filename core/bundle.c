#include "core/bundle.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"

static const dfx_tensor *find_tensor(const dfx_bundle *bundle, const char *path) {
    char name[DFX_PATH_BYTES];
    snprintf(name, sizeof(name), "%s%s", DFX_BUNDLE_PREFIX, path);
    return dfx_tensors_find(bundle->tensors, name);
}

static const dfx_bundle_text *find_text(const dfx_bundle *bundle, const char *path) {
    for (size_t i = 0; i < bundle->n_texts; i++)
        if (strcmp(bundle->texts[i].path, path) == 0)
            return &bundle->texts[i];
    return NULL;
}

void dfx_bundle_label(const dfx_bundle *bundle, const char *path, char out[DFX_PATH_BYTES]) {
    size_t len = strlen(bundle->name);
    while (len > 1 && bundle->name[len - 1] == '/')
        len--;
    snprintf(out, DFX_PATH_BYTES, "%.*s/%s", (int)len, bundle->name, path);
}

bool dfx_bundle_has(const dfx_bundle *bundle, const char *path) {
    char full[DFX_PATH_BYTES];
    if (bundle->texts)
        return find_text(bundle, path) != NULL;
    if (!bundle->folder)
        return find_tensor(bundle, path) != NULL;
    return dfx_path_join(NULL, bundle->folder, path, full) == DFX_OK && dfx_file_exists(full);
}

/* From a packed model or from memory. */
static dfx_status slurp_inside(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                               size_t max_bytes, char **out, size_t *out_bytes) {
    const dfx_bundle_text *held = bundle->texts ? find_text(bundle, path) : NULL;
    const dfx_tensor *t = bundle->texts ? NULL : find_tensor(bundle, path);
    char label[DFX_PATH_BYTES], *text;
    dfx_bundle_label(bundle, path, label);
    if (!held && !t)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: not in %s", label,
                        bundle->texts ? "what was given" : "the packed model");
    size_t bytes = held ? held->bytes : (size_t)t->bytes;
    if (bytes > max_bytes)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted at most %zu bytes, found %zu", label,
                        max_bytes, bytes);
    DFX_TRY(dfx_new_array(sink, bytes + 1, "file", &text));
    if (held)
        memcpy(text, held->text, bytes);
    dfx_status status = held ? DFX_OK : dfx_tensors_read(bundle->tensors, t, sink, text);
    if (status != DFX_OK) {
        dfx_free(text);
        return status;
    }
    *out = text;
    *out_bytes = bytes;
    return DFX_OK;
}

dfx_status dfx_bundle_slurp(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                            size_t max_bytes, char **out, size_t *out_bytes) {
    char full[DFX_PATH_BYTES];
    if (!bundle->folder)
        return slurp_inside(bundle, path, sink, max_bytes, out, out_bytes);
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
