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

enum { SAMPLES = 64, SAMPLE_BYTES = 4096, SMALL_BYTES_MAX = 64 << 20, KEY_VERSION = 1 };

static dfx_status make_folder(const char *path, const dfx_sink *sink) {
    if (mkdir(path, 0755) == 0 || (errno == EEXIST && dfx_file_is_dir(path)))
        return DFX_OK;
    return dfx_fail(
        sink, DFX_E_IO,
        "%s: the cache folder cannot be made: %s; set XDG_CACHE_HOME to a folder that can be "
        "written, or pack the model yourself (dfx-edge pack)",
        path, strerror(errno));
}

dfx_status dfx_cache_folder(const dfx_sink *sink, char out[DFX_PATH_BYTES]) {
    char base[DFX_PATH_BYTES];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/')
        snprintf(base, sizeof(base), "%s", xdg);
    else if (home && home[0] == '/')
        DFX_TRY(dfx_path_join(sink, home, ".cache", base));
    else
        return dfx_fail(sink, DFX_E_IO,
                        "no place for the cache: neither XDG_CACHE_HOME nor HOME is set");
    DFX_TRY(make_folder(base, sink));
    DFX_TRY(dfx_path_join(sink, base, "dfx-edge", out));
    return make_folder(out, sink);
}

/* Chain: the hash so far goes in front of what comes. */
static uint64_t chain(uint64_t hash, const void *data, size_t bytes) {
    uint64_t pair[2] = {hash, dfx_xxh3(data, bytes)};
    return dfx_xxh3(pair, sizeof(pair));
}

static dfx_status hash_small_files(const char *folder, const dfx_sink *sink, uint64_t *hash) {
    dfx_bundle bundle = {.folder = folder, .name = folder};
    for (size_t i = 0; i < dfx_n_model_files; i++) {
        char *text;
        size_t bytes;
        if (!dfx_bundle_has(&bundle, dfx_model_files[i]))
            continue;
        DFX_TRY(
            dfx_bundle_slurp(&bundle, dfx_model_files[i], sink, SMALL_BYTES_MAX, &text, &bytes));
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
static dfx_status hash_component(const char *folder, const char *component, const dfx_sink *sink,
                                 uint64_t *hash) {
    char dir[DFX_PATH_BYTES], path[DFX_PATH_BYTES];
    struct dirent **entries;
    DFX_TRY(dfx_path_join(sink, folder, component, dir));
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

/* "FLUX.1-dev" of "/models/FLUX.1-dev/". */
static void folder_name(const char *path, char *out, size_t out_bytes) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, out_bytes, "%.*s", (int)(end - begin), path + begin);
}

dfx_status dfx_cache_path(const char *folder, dfx_qformat quant, const dfx_sink *sink,
                          char out[DFX_PATH_BYTES]) {
    char dir[DFX_PATH_BYTES], name[160], short_name[100];
    uint64_t options[2] = {KEY_VERSION, (uint64_t)quant};
    uint64_t hash = chain(dfx_xxh3(options, sizeof(options)), DFX_VERSION, strlen(DFX_VERSION));
    DFX_TRY(hash_small_files(folder, sink, &hash));
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        DFX_TRY(hash_component(folder, dfx_component_places[i].folder, sink, &hash));
    DFX_TRY(dfx_cache_folder(sink, dir));
    folder_name(folder, short_name, sizeof(short_name));
    snprintf(name, sizeof(name), "%s-%s-%016" PRIx64 ".safetensors", short_name, dfx_q_name(quant),
             hash);
    return dfx_path_join(sink, dir, name, out);
}
