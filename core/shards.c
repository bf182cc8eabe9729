/* The weights of a folder: which files they are, opened as one set. The folder's names and the
 * index are untrusted: nothing outside the folder is opened, and every shard is known to be there
 * before the first one is read. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/tensors_set.h"

enum {
    INDEX_BYTES_MAX = 16 << 20, /* real ones of FLUX are 0.1 MB */
    FILE_NAME_BYTES = 256,      /* NAME_MAX and the NUL */
    SHARD_DIGITS = 5
};

static const char suffix[] = ".safetensors";

typedef struct finder {
    dfx_tensors *set;
    const dfx_sink *sink;
    const char *dir, *stem;
    char index_path[DFX_PATH_BYTES], single_path[DFX_PATH_BYTES];
} finder;

/* What a folder without index and without <stem>.safetensors offers. */
typedef struct listing {
    char variant[FILE_NAME_BYTES]; /* the first in alphabetical order; "" when none */
    size_t n_variants;
    bool *present; /* owned; [n_shards] */
    uint32_t n_shards;
} listing;

static dfx_status open_weights(finder *f);
static dfx_status open_index(finder *f);
static dfx_status open_listed(finder *f);

dfx_status dfx_tensors_open_dir(const char *dir, const char *stem, const dfx_sink *sink,
                                dfx_tensors **out) {
    finder f = {.sink = sink, .dir = dir, .stem = stem};
    if (!dfx_file_is_dir(dir))
        return dfx_fail(sink, DFX_E_IO, "%s: no such folder, looking for the weights %s%s", dir,
                        stem, suffix);
    DFX_TRY(dfx_tensors_new(sink, &f.set));
    dfx_status status = open_weights(&f);
    if (status == DFX_OK)
        *out = f.set;
    else
        dfx_tensors_close(f.set);
    return status;
}

static dfx_status stem_path(const finder *f, const char *tail, char out[DFX_PATH_BYTES]) {
    char name[FILE_NAME_BYTES];
    int len = snprintf(name, sizeof(name), "%s%s", f->stem, tail);
    if (len < 0 || (size_t)len >= sizeof(name))
        return dfx_fail(f->sink, DFX_E_USAGE, "%s: \"%.60s...\" is too long for a file name",
                        f->dir, f->stem);
    return dfx_path_join(f->sink, f->dir, name, out);
}

static dfx_status open_weights(finder *f) {
    DFX_TRY(stem_path(f, ".safetensors.index.json", f->index_path));
    DFX_TRY(stem_path(f, suffix, f->single_path));
    bool has_single = dfx_file_exists(f->single_path);
    if (dfx_file_exists(f->index_path)) {
        if (has_single)
            dfx_info(f->sink, "%s: the index and its shards are used, not %s beside it",
                     f->index_path, f->single_path);
        return open_index(f);
    }
    return has_single ? dfx_tensors_add_file(f->set, f->single_path, f->sink) : open_listed(f);
}

static int text_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A file directly in the folder; a link that the folder's owner put there is fine. */
static bool is_plain_name(const char *name) {
    return name[0] != '\0' && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* The distinct shards of the map, sorted, into shards[0, *n); room for one per entry. */
static dfx_status list_shards(const finder *f, json_t *map, const char **shards, size_t *n) {
    const char *tensor;
    json_t *value;
    size_t n_all = 0, n_distinct = 0;
    json_object_foreach(map, tensor, value) {
        char name[DFX_NAME_TEXT], shard_text[DFX_NAME_TEXT];
        const char *shard = json_string_value(value);
        if (!shard)
            return dfx_fail(f->sink, DFX_E_FORMAT,
                            "%s: weight_map of \"%s\": wanted the name of a shard as a string",
                            f->index_path, dfx_name_text(tensor, name));
        if (!is_plain_name(shard))
            return dfx_fail(f->sink, DFX_E_FORMAT,
                            "%s: weight_map of \"%s\": wanted the name of a file in this folder, "
                            "found \"%s\"",
                            f->index_path, dfx_name_text(tensor, name),
                            dfx_name_text(shard, shard_text));
        shards[n_all++] = shard;
    }
    qsort(shards, n_all, sizeof(*shards), text_order);
    for (size_t i = 0; i < n_all; i++)
        if (i == 0 || strcmp(shards[i], shards[n_distinct - 1]) != 0)
            shards[n_distinct++] = shards[i];
    *n = n_distinct;
    return DFX_OK;
}

/* Names for one message: as many as fit, then how many more. */
typedef struct name_list {
    char text[1024];
    size_t len, n, n_left_out;
} name_list;

static void list_name(name_list *list, const char *file_name) {
    char name[DFX_NAME_TEXT];
    dfx_name_text(file_name, name);
    list->n++;
    if (list->len + strlen(name) + 3 > sizeof(list->text))
        list->n_left_out++;
    else
        list->len += (size_t)sprintf(list->text + list->len, "%s%s", list->len ? ", " : "", name);
}

static dfx_status missing_shards(const finder *f, const char *where, const name_list *list) {
    char more[40] = "";
    if (list->n_left_out > 0)
        snprintf(more, sizeof(more), " and %zu more", list->n_left_out);
    return dfx_fail(f->sink, DFX_E_FORMAT,
                    "%s: %zu shard%s missing from the folder: %s%s; fetch %s", where, list->n,
                    list->n == 1 ? " is" : "s are", list->text, more, list->n == 1 ? "it" : "them");
}

static dfx_status open_shards(finder *f, const char *const *shards, size_t n) {
    name_list missing = {.len = 0};
    char path[DFX_PATH_BYTES];
    for (size_t i = 0; i < n; i++) {
        DFX_TRY(dfx_path_join(f->sink, f->dir, shards[i], path));
        if (!dfx_file_exists(path))
            list_name(&missing, shards[i]);
    }
    if (missing.n > 0)
        return missing_shards(f, f->index_path, &missing);
    for (size_t i = 0; i < n; i++) {
        DFX_TRY(dfx_path_join(f->sink, f->dir, shards[i], path));
        DFX_TRY(dfx_tensors_add_file(f->set, path, f->sink));
    }
    return dfx_tensors_seal(f->set, f->sink);
}

/* Every entry of the map is in its shard. *bytes: what the mapped tensors take. */
static dfx_status check_map(const finder *f, json_t *map, const char *const *shards,
                            uint64_t *bytes) {
    const char *tensor_name;
    json_t *value;
    *bytes = 0;
    json_object_foreach(map, tensor_name, value) {
        char name[DFX_NAME_TEXT];
        const char *shard = json_string_value(value);
        const dfx_tensor *tensor = dfx_tensors_find(f->set, tensor_name);
        dfx_name_text(tensor_name, name);
        if (!tensor)
            return dfx_fail(
                f->sink, DFX_E_FORMAT,
                "%s: tensor \"%s\" is not in its shard %s, nor in another one; index and "
                "shards do not belong together",
                f->index_path, name, shard);
        if (strcmp(shards[tensor->file_idx], shard) != 0)
            return dfx_fail(
                f->sink, DFX_E_FORMAT,
                "%s: tensor \"%s\" is not in its shard %s but in %s; index and shards do "
                "not belong together",
                f->index_path, name, shard, shards[tensor->file_idx]);
        *bytes += tensor->bytes;
    }
    return DFX_OK;
}

static void warn_unmapped(const finder *f, const json_t *map) {
    char name[DFX_NAME_TEXT] = "";
    size_t n = 0;
    for (size_t i = 0; i < f->set->n_tensors; i++)
        if (!json_object_get(map, f->set->tensors[i].name) && n++ == 0)
            dfx_name_text(f->set->tensors[i].name, name);
    if (n > 0)
        dfx_warn(f->sink, "%s: %zu tensor%s of the shards %s not in the index, the first is \"%s\"",
                 f->index_path, n, n == 1 ? "" : "s", n == 1 ? "is" : "are", name);
}

static void warn_total(const finder *f, const json_t *index, uint64_t bytes) {
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    json_int_t told = json_integer_value(total);
    if (json_is_integer(total) && (told < 0 || (uint64_t)told != bytes))
        dfx_warn(f->sink,
                 "%s: total_size is %" JSON_INTEGER_FORMAT ", but its tensors take %" PRIu64
                 " bytes",
                 f->index_path, told, bytes);
}

static dfx_status open_mapped(finder *f, const json_t *index, json_t *map, const char **shards) {
    size_t n_shards = 0;
    uint64_t bytes;
    DFX_TRY(list_shards(f, map, shards, &n_shards));
    DFX_TRY(open_shards(f, shards, n_shards));
    DFX_TRY(check_map(f, map, shards, &bytes));
    warn_unmapped(f, map);
    warn_total(f, index, bytes);
    return DFX_OK;
}

static dfx_status open_index(finder *f) {
    json_t *index, *map;
    const char **shards = NULL;
    DFX_TRY(dfx_json_load(f->index_path, f->sink, INDEX_BYTES_MAX, &index));
    dfx_status status = dfx_json_object(index, f->index_path, "weight_map", f->sink, &map);
    if (status == DFX_OK && json_object_size(map) == 0)
        status = dfx_fail(f->sink, DFX_E_FORMAT, "%s: weight_map is empty, it names no tensor",
                          f->index_path);
    if (status == DFX_OK)
        status = dfx_new_array(f->sink, json_object_size(map), "shards", &shards);
    if (status == DFX_OK)
        status = open_mapped(f, index, map, shards);
    dfx_free(shards);
    json_decref(index);
    return status;
}

/* Five digits, or -1. */
static int32_t shard_number(const char *text) {
    int32_t value = 0;
    for (int i = 0; i < SHARD_DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* "-0000k-of-0000n" after the stem. */
static bool parse_shard(const char *middle, size_t len, uint32_t *k, uint32_t *n) {
    enum { OF_AT = 1 + SHARD_DIGITS, N_AT = OF_AT + 4, LEN = N_AT + SHARD_DIGITS };
    if (len != LEN || middle[0] != '-' || memcmp(middle + OF_AT, "-of-", 4) != 0)
        return false;
    int32_t shard = shard_number(middle + 1), count = shard_number(middle + N_AT);
    if (shard < 1 || count < shard)
        return false;
    *k = (uint32_t)shard;
    *n = (uint32_t)count;
    return true;
}

/* ".fp16" after the stem: one word. */
static bool is_variant(const char *middle, size_t len) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return len > 1 && middle[0] == '.' && strspn(middle + 1, letters) == len - 1;
}

static dfx_status list_entry(const finder *f, listing *list, const char *name) {
    size_t stem_len = strlen(f->stem), len = strlen(name), tail_len = sizeof(suffix) - 1;
    uint32_t k, n;
    if (len <= stem_len + tail_len || len >= FILE_NAME_BYTES ||
        memcmp(name, f->stem, stem_len) != 0 || strcmp(name + len - tail_len, suffix) != 0)
        return DFX_OK;
    const char *middle = name + stem_len;
    size_t middle_len = len - stem_len - tail_len;
    if (is_variant(middle, middle_len)) {
        if (list->n_variants++ == 0 || strcmp(name, list->variant) < 0)
            strcpy(list->variant, name);
    } else if (parse_shard(middle, middle_len, &k, &n)) {
        if (!list->present) {
            DFX_TRY(dfx_new_array(f->sink, n, "shards", &list->present));
            list->n_shards = n;
        }
        if (n != list->n_shards)
            return dfx_fail(f->sink, DFX_E_FORMAT,
                            "%s: shards of two sets, of %" PRIu32 " and of %" PRIu32
                            ", and no index %s%s.index.json to tell which",
                            f->dir, list->n_shards, n, f->stem, suffix);
        list->present[k - 1] = true;
    }
    return DFX_OK;
}

static dfx_status list_folder(const finder *f, listing *list) {
    DIR *dir = opendir(f->dir);
    if (!dir)
        return dfx_fail(f->sink, DFX_E_IO, "%s: cannot list the folder: %s", f->dir,
                        strerror(errno));
    dfx_status status = DFX_OK;
    for (struct dirent *entry; status == DFX_OK && (entry = readdir(dir));)
        status = list_entry(f, list, entry->d_name);
    closedir(dir);
    return status;
}

static dfx_status open_variant(finder *f, const listing *list) {
    char path[DFX_PATH_BYTES];
    DFX_TRY(dfx_path_join(f->sink, f->dir, list->variant, path));
    dfx_info(f->sink, "%s: used as there is no %s%s; the first of %zu variant%s", path, f->stem,
             suffix, list->n_variants, list->n_variants == 1 ? "" : "s");
    return dfx_tensors_add_file(f->set, path, f->sink);
}

static dfx_status open_all_shards(finder *f, const listing *list) {
    char tail[48], path[DFX_PATH_BYTES];
    name_list missing = {.len = 0};
    for (uint32_t k = 1; k <= list->n_shards; k++) {
        char name[FILE_NAME_BYTES];
        if (list->present[k - 1])
            continue;
        snprintf(name, sizeof(name), "%s-%05" PRIu32 "-of-%05" PRIu32 "%s", f->stem, k,
                 list->n_shards, suffix);
        list_name(&missing, name);
    }
    if (missing.n > 0)
        return missing_shards(f, f->dir, &missing);
    for (uint32_t k = 1; k <= list->n_shards; k++) {
        snprintf(tail, sizeof(tail), "-%05" PRIu32 "-of-%05" PRIu32 "%s", k, list->n_shards,
                 suffix);
        DFX_TRY(stem_path(f, tail, path));
        DFX_TRY(dfx_tensors_add_file(f->set, path, f->sink));
    }
    return dfx_tensors_seal(f->set, f->sink);
}

static dfx_status open_found(finder *f, const listing *list) {
    if (list->n_variants > 0)
        return open_variant(f, list);
    if (list->n_shards > 0)
        return open_all_shards(f, list);
    return dfx_fail(f->sink, DFX_E_FORMAT,
                    "%s: no weights here: wanted %s%s, or its shards, or its index", f->dir,
                    f->stem, suffix);
}

static dfx_status open_listed(finder *f) {
    listing list = {.n_shards = 0};
    dfx_status status = list_folder(f, &list);
    if (status == DFX_OK)
        status = open_found(f, &list);
    dfx_free(list.present);
    return status;
}
