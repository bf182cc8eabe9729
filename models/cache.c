#include "models/cache.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/checksum.h"
#include "models/configs.h"
#include "models/tokenizer_files.h"

enum { SAMPLES = 64, SAMPLE_BYTES = 4096, SMALL_BYTES_MAX = 64 << 20, KEY_VERSION = 2 };

static dfx_status make_folder(const char *path, const dfx_sink *sink) {
    if (mkdir(path, 0755) == 0 || (errno == EEXIST && dfx_file_is_dir(path)))
        return DFX_OK;
    return dfx_fail(
        sink, DFX_E_IO,
        "%s: the cache folder cannot be made: %s; set XDG_CACHE_HOME to a folder that can be "
        "written, or pack the model yourself (dfx-edge pack)",
        path, strerror(errno));
}

/* The folder that holds the caches of all programs. */
static bool find_base(char out[DFX_PATH_BYTES]) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/')
        return snprintf(out, DFX_PATH_BYTES, "%s", xdg) < DFX_PATH_BYTES;
    return home && home[0] == '/' && dfx_path_join(NULL, home, ".cache", out) == DFX_OK;
}

bool dfx_cache_find(char out[DFX_PATH_BYTES]) {
    char base[DFX_PATH_BYTES];
    return find_base(base) && dfx_path_join(NULL, base, "dfx-edge", out) == DFX_OK;
}

dfx_status dfx_cache_folder(const dfx_sink *sink, char out[DFX_PATH_BYTES]) {
    char base[DFX_PATH_BYTES];
    if (!find_base(base))
        return dfx_fail(sink, DFX_E_IO,
                        "no place for the cache of packed models: neither XDG_CACHE_HOME nor HOME "
                        "is set");
    DFX_TRY(make_folder(base, sink));
    DFX_TRY(dfx_path_join(sink, base, "dfx-edge", out));
    return make_folder(out, sink);
}

/* Chain: the hash so far goes in front of what comes. */
static uint64_t chain(uint64_t hash, const void *data, size_t bytes) {
    uint64_t pair[2] = {hash, dfx_xxh3(data, bytes)};
    return dfx_xxh3(pair, sizeof(pair));
}

/* wanted NULL: all of them. */
static dfx_status hash_small_files(const dfx_bundle *bundle, bool (*wanted)(const char *path),
                                   const dfx_sink *sink, uint64_t *hash) {
    for (size_t i = 0; i < dfx_n_model_files; i++) {
        char *text;
        size_t bytes;
        if ((wanted && !wanted(dfx_model_files[i])) || !dfx_bundle_has(bundle, dfx_model_files[i]))
            continue;
        DFX_TRY(dfx_bundle_slurp(bundle, dfx_model_files[i], sink, SMALL_BYTES_MAX, &text, &bytes));
        *hash = chain(*hash, dfx_model_files[i], strlen(dfx_model_files[i]));
        *hash = chain(*hash, text, bytes);
        dfx_free(text);
    }
    return DFX_OK;
}

/* Size, time, and samples spread over the file: its beginning, which is the header, and SAMPLES places of the data. */
static dfx_status hash_weights_file(const char *path, const dfx_sink *sink, uint64_t *hash) {
    unsigned char sample[SAMPLE_BYTES];
    struct stat st;
    dfx_file file;
    DFX_TRY(dfx_file_open(path, sink, &file));
    dfx_status status = DFX_OK;
    if (fstat(file.fd, &st) == 0) {
        uint64_t facts[3] = {file.bytes, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec};
        *hash = chain(*hash, facts, sizeof(facts));
    }
    for (uint64_t i = 0; i < SAMPLES && status == DFX_OK; i++) {
        uint64_t off = file.bytes / SAMPLES * i, left = file.bytes - off;
        size_t bytes = left < SAMPLE_BYTES ? (size_t)left : SAMPLE_BYTES;
        status = dfx_file_read(&file, sink, off, sample, bytes);
        if (status == DFX_OK)
            *hash = chain(*hash, sample, bytes);
    }
    dfx_file_close(&file);
    return status;
}

static int is_weights(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".json") == 0);
}

/* Weight files and their indexes of one component, in the order of their names. */
static dfx_status hash_component(const char *dir, const dfx_sink *sink, uint64_t *hash) {
    char path[DFX_PATH_BYTES];
    struct dirent **entries;
    int n = scandir(dir, &entries, is_weights, alphasort);
    if (n < 0)
        return dfx_fail(sink, DFX_E_IO, "%s: the folder cannot be read: %s", dir, strerror(errno));
    dfx_status status = DFX_OK;
    for (int i = 0; i < n; i++) {
        if (status == DFX_OK)
            status = dfx_path_join(sink, dir, entries[i]->d_name, path);
        if (status == DFX_OK)
            status = hash_weights_file(path, sink, hash);
        *hash = chain(*hash, entries[i]->d_name, strlen(entries[i]->d_name));
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* The parts of a pipeline's folder. */
static dfx_status hash_pipeline(const char *folder, const dfx_sink *sink, uint64_t *hash) {
    dfx_bundle bundle = {.folder = folder, .name = folder};
    char dir[DFX_PATH_BYTES];
    DFX_TRY(hash_small_files(&bundle, NULL, sink, hash));
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        DFX_TRY(dfx_path_join(sink, folder, dfx_component_places[i].folder, dir));
        if (dfx_file_is_dir(dir))
            DFX_TRY(hash_component(dir, sink, hash));
    }
    return DFX_OK;
}

/* A file, or a folder of a pipeline or of one component. */
static dfx_status hash_given(const char *path, const dfx_sink *sink, uint64_t *hash) {
    char index[DFX_PATH_BYTES];
    if (!dfx_file_is_dir(path))
        return hash_weights_file(path, sink, hash);
    DFX_TRY(dfx_path_join(sink, path, "model_index.json", index));
    return dfx_file_exists(index) ? hash_pipeline(path, sink, hash)
                                  : hash_component(path, sink, hash);
}

/* Of files that have none themselves: those that will be taken. None at all is told when the files are opened, after what is
 * wrong with them. */
static dfx_status hash_tokenizers(const dfx_model_paths *paths, const dfx_sink *sink,
                                  uint64_t *hash) {
    const dfx_sink quiet = {0};
    dfx_tokenizer_files files;
    if ((!paths->tokenizer && dfx_file_is_dir(paths->model)) ||
        dfx_tokenizer_files_find(paths->tokenizer, &quiet, &files) != DFX_OK)
        return DFX_OK;
    dfx_status status = hash_small_files(&files.bundle, dfx_tokenizer_file_is, sink, hash);
    dfx_tokenizer_files_close(&files);
    return status;
}

static dfx_status hash_paths(const dfx_model_paths *p, const dfx_sink *sink, uint64_t *hash) {
    const char *const given[] = {p->model, p->vae, p->clip, p->t5};
    for (size_t i = 0; i < DFX_COUNT(given); i++) {
        if (!given[i])
            continue;
        *hash = chain(*hash, &i, sizeof(i));
        DFX_TRY(hash_given(given[i], sink, hash));
    }
    return hash_tokenizers(p, sink, hash);
}

void dfx_cache_short_name(const char *path, char *out, size_t out_bytes) {
    static const char *const extensions[] = {".safetensors", ".sft", ".gguf"};
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (size_t i = 0; i < DFX_COUNT(extensions); i++) {
        size_t n = strlen(extensions[i]);
        if (end > n && strncmp(path + end - n, extensions[i], n) == 0)
            end -= n;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, out_bytes, "%.*s", (int)(end - begin), path + begin);
}

dfx_status dfx_cache_path(const dfx_model_paths *paths, dfx_qformat quant, const dfx_sink *sink,
                          char out[DFX_PATH_BYTES]) {
    char dir[DFX_PATH_BYTES], name[160], short_name[100];
    uint64_t options[2] = {KEY_VERSION, (uint64_t)quant};
    uint64_t hash = chain(dfx_xxh3(options, sizeof(options)), DFX_VERSION, strlen(DFX_VERSION));
    DFX_TRY(hash_paths(paths, sink, &hash));
    DFX_TRY(dfx_cache_folder(sink, dir));
    dfx_cache_short_name(paths->model, short_name, sizeof(short_name));
    snprintf(name, sizeof(name), "%s-%s-%016" PRIx64 ".safetensors", short_name, dfx_q_name(quant),
             hash);
    return dfx_path_join(sink, dir, name, out);
}
