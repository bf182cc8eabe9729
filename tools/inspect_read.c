/* See inspect_read.h. */
#include "tools/inspect_read.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "models/pack.h"
#include "offload/packed.h"
#include "tools/inspect_kind.h"
#include "tools/inspect_packed.h"
#include "tools/inspect_table.h"

enum { INDEX_BYTES_MAX = 1 << 20, VERDICT_BYTES = 4096 };

/* Of a component's folder. */
static const char not_alone[] =
    "dfx-edge cannot run this alone; it can be a part beside a transformer: --vae, --clip-l, --t5";

static dfx_status no_memory(const dfx_sink *sink, const char *path) {
    return dfx_fail(sink, DFX_E_NOFIT, "%s: no memory to describe it", path);
}

static dfx_status give(json_t *value, const dfx_sink *sink, const char *path, json_t **out) {
    *out = value;
    return value ? DFX_OK : no_memory(sink, path);
}

/* The strings of a file's metadata. */
static json_t *metadata_strings(const dfx_tensors *set) {
    json_t *strings = json_object();
    const char *value;
    for (size_t i = 0; strings && i < dfx_tensors_n_metadata(set); i++) {
        const char *key = dfx_tensors_metadata_at(set, i, &value);
        if (value && json_object_set_new(strings, key, json_string(value)) != 0) {
            json_decref(strings);
            strings = NULL;
        }
    }
    return strings;
}

static json_t *judge(const char *path);

static dfx_status add_verdict(const char *path, const dfx_sink *sink, json_t *file) {
    json_t *verdict = judge(path);
    bool runs = verdict && strncmp(json_string_value(verdict), "dfx-edge can ", 13) == 0;
    if (json_object_set_new(file, "verdict", verdict) != 0 ||
        json_object_set_new(file, "runs", json_boolean(runs)) != 0)
        return no_memory(sink, path);
    return DFX_OK;
}

/* A packed model is more than its tensors. */
static dfx_status add_packed(const char *path, const dfx_sink *sink, json_t *file) {
    json_object_del(json_object_get(file, "metadata"), "dfx.pages"); /* "pages" says it in full */
    return dfx_inspect_packed(path, sink, file);
}

static dfx_status read_file(const char *path, bool listed, const dfx_sink *sink, json_t **out) {
    dfx_tensors *set;
    DFX_TRY(dfx_tensors_open_file(path, sink, &set));
    dfx_status status =
        give(json_pack("{s:s, s:s, s:s, s:o, s:o, s:b, s:s}", "path", path, "form",
                       dfx_kind_is_adapter(set) ? "lora" : "file", "format",
                       dfx_tensors_file_format(set, 0), "metadata", metadata_strings(set), "table",
                       dfx_inspect_table(set, listed), "runs", 0, "verdict", not_alone),
             sink, path, out);
    if (status == DFX_OK && !dfx_kind_is_adapter(set))
        status = add_verdict(path, sink, *out);
    if (status == DFX_OK && dfx_packed_is(path))
        status = add_packed(path, sink, *out);
    dfx_tensors_close(set);
    return status;
}

/* What a folder holds, without its subfolders. */
typedef struct folder_entries {
    int64_t n_files, n_bytes;
    const char *stem;        /* of the weights, or NULL */
    char only[NAME_MAX + 1]; /* a safetensors or GGUF file of another name */
    int n_others;
} folder_entries;

static bool ends_with(const char *name, const char *end) {
    size_t len = strlen(name), end_len = strlen(end);
    return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

static void look_at_entry(folder_entries *found, const char *name, int64_t n_bytes) {
    static const char *const stems[] = {"diffusion_pytorch_model", "model"};
    size_t len = strlen(name);
    found->n_files++;
    found->n_bytes += n_bytes;
    for (size_t i = 0; strstr(name, ".safetensors") && i < DFX_COUNT(stems); i++) {
        size_t stem_len = strlen(stems[i]);
        if (strncmp(name, stems[i], stem_len) == 0 &&
            (name[stem_len] == '.' || name[stem_len] == '-')) {
            found->stem = stems[i];
            return;
        }
    }
    if (len < sizeof(found->only) &&
        (ends_with(name, ".safetensors") || ends_with(name, ".gguf"))) {
        memcpy(found->only, name, len + 1);
        found->n_others++;
    }
}

static dfx_status look_at_folder(const char *path, const dfx_sink *sink, folder_entries *found) {
    struct dirent *entry;
    struct stat info;
    memset(found, 0, sizeof(*found));
    DIR *dir = opendir(path);
    if (!dir)
        return dfx_fail(sink, DFX_E_IO, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir)) != NULL)
        if (fstatat(dirfd(dir), entry->d_name, &info, 0) == 0 && S_ISREG(info.st_mode))
            look_at_entry(found, entry->d_name, info.st_size);
    closedir(dir);
    return DFX_OK;
}

/* Adds "files", "file_bytes" and, where there are weights, "table" to `to`. */
static dfx_status read_folder(const char *path, bool listed, const dfx_sink *sink, json_t *to) {
    folder_entries found;
    dfx_tensors *set = NULL;
    char file[DFX_PATH_BYTES];
    DFX_TRY(look_at_folder(path, sink, &found));
    if (json_object_set_new(to, "files", json_integer(found.n_files)) != 0 ||
        json_object_set_new(to, "file_bytes", json_integer(found.n_bytes)) != 0)
        return no_memory(sink, path);
    if (found.stem) {
        DFX_TRY(dfx_tensors_open_dir(path, found.stem, sink, &set));
    } else if (found.n_others == 1) {
        DFX_TRY(dfx_path_join(sink, path, found.only, file));
        DFX_TRY(dfx_tensors_open_file(file, sink, &set));
    } else {
        return DFX_OK;
    }
    int failed = json_object_set_new(to, "table", dfx_inspect_table(set, listed));
    dfx_tensors_close(set);
    return failed ? no_memory(sink, path) : DFX_OK;
}

static dfx_status read_component(const char *path, bool listed, const dfx_sink *sink,
                                 json_t **out) {
    json_t *found;
    DFX_TRY(give(json_pack("{s:s, s:s, s:b, s:s}", "path", path, "form", "component", "runs", 0,
                           "verdict", not_alone),
                 sink, path, &found));
    dfx_status status = read_folder(path, listed, sink, found);
    if (status == DFX_OK && !json_object_get(found, "table"))
        status = dfx_fail(sink, DFX_E_FORMAT,
                          "%s: wanted model_index.json or the weights of one component, "
                          "found neither",
                          path);
    if (status == DFX_OK)
        *out = found;
    else
        json_decref(found);
    return status;
}

/* One entry of model_index.json; `value` is [library, class]. */
static dfx_status read_index_entry(const char *model, const char *name, const json_t *value,
                                   bool listed, const dfx_sink *sink, json_t *components) {
    char path[DFX_PATH_BYTES];
    const char *class = json_string_value(json_array_get(value, 1));
    if (!class || !*name || *name == '.' || strchr(name, '/'))
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s/model_index.json: %s: wanted the name of a folder with [library, "
                        "class]",
                        model, name);
    json_t *component = json_pack("{s:s, s:s}", "name", name, "class", class);
    if (json_array_append_new(components, component) != 0)
        return no_memory(sink, model);
    dfx_status status = dfx_path_join(sink, model, name, path);
    if (status == DFX_OK)
        status = read_folder(path, listed, sink, component);
    if (status != DFX_OK && json_object_set_new(component, "broken", json_true()) != 0)
        return no_memory(sink, model);
    return status;
}

static void record_error(void *user, dfx_level level, const char *text) {
    char *first = user;
    if (level == DFX_ERROR && !first[0])
        strncat(first, text, VERDICT_BYTES - 1);
}

/* Asks the library. Messages below errors have been said when the components were read. */
static json_t *judge(const char *path) {
    char error[VERDICT_BYTES] = "";
    dfx_sink sink = {.say = record_error, .user = error};
    dfx_parts parts;
    dfx_status status = dfx_model_check(&(dfx_model_paths){.model = path}, &sink, &parts);
    if (status != DFX_OK)
        return json_sprintf("dfx-edge cannot run this: %s",
                            error[0] ? error : dfx_status_text(status));
    const dfx_shape *shape = &parts.defaults.shape;
    json_t *verdict = json_sprintf(
        "dfx-edge can run this: %s, by default %lldx%lld in %d steps with %lld text tokens",
        dfx_parts_kind(&parts), (long long)shape->width, (long long)shape->height, shape->n_steps,
        (long long)shape->n_text);
    dfx_parts_fini(&parts);
    return verdict;
}

static dfx_status read_model(const char *path, const char *index_path, bool listed,
                             const dfx_sink *sink, json_t **out) {
    json_t *index, *components = json_array(), *value;
    const char *name, *class = NULL;
    dfx_status status = components ? dfx_json_load(index_path, sink, INDEX_BYTES_MAX, &index)
                                   : no_memory(sink, path);
    if (status != DFX_OK) {
        json_decref(components);
        return status;
    }
    dfx_status fault = dfx_json_str(index, index_path, "_class_name", sink, &class);
    json_object_foreach(index, name, value) {
        if (name[0] == '_' || !json_is_array(value) || json_is_null(json_array_get(value, 0)))
            continue; /* a note of the pipeline's, or a part that it does without */
        status = read_index_entry(path, name, value, listed, sink, components);
        if (status != DFX_OK)
            fault = status;
    }
    json_t *verdict = judge(path);
    bool runs = verdict && strncmp(json_string_value(verdict), "dfx-edge can ", 13) == 0;
    status = give(json_pack("{s:s, s:s, s:s, s:o, s:b, s:o}", "path", path, "form", "model",
                            "class", class ? class : "?", "components", components, "runs", runs,
                            "verdict", verdict),
                  sink, path, out);
    json_decref(index);
    return fault != DFX_OK ? fault : status;
}

dfx_status dfx_inspect_read(const char *path, bool listed, const dfx_sink *sink, json_t **out) {
    char index_path[DFX_PATH_BYTES];
    *out = NULL;
    if (!dfx_file_is_dir(path))
        return read_file(path, listed, sink, out);
    DFX_TRY(dfx_path_join(sink, path, "model_index.json", index_path));
    if (dfx_file_exists(index_path))
        return read_model(path, index_path, listed, sink, out);
    return read_component(path, listed, sink, out);
}
