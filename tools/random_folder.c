#include "tools/random_folder.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/random_header.h"
#include "tools/random_place.h"

typedef struct folder_run {
    dfx_random_weights *weights;
    const dfx_sink *sink;
    dfx_random_stream stream;
    const char *component;
} folder_run;

/* Which tensors are in a shard: [first, end) of a component's set. */
typedef struct shard {
    size_t first, end;
} shard;

enum { SHARDS_MAX = 16 };

static const struct {
    const char *stem;
    uint64_t shard_bytes;
} LAYOUT[DFX_N_COMPONENTS] = {
    {"model", 5000000000}, /* text_encoder */
    {"model", 5000000000},
    {"diffusion_pytorch_model", 10000000000},
    {"diffusion_pytorch_model", 10000000000},
};

static void fill(void *user, const dfx_random_item *item, uint64_t off, uint8_t *dst,
                 size_t n_bytes) {
    folder_run *run = user;
    dfx_random_weights_read(run->weights, run->component, item->of, off, dst, n_bytes);
}

static dfx_status write_shard(folder_run *run, const dfx_tensors *set, shard s, const char *path) {
    uint8_t *header = NULL;
    dfx_random_item *items = NULL;
    const dfx_tensor **tensors = NULL;
    size_t n_header = 0, n = s.end - s.first;
    dfx_status status = dfx_new_array(run->sink, n, "random model", &items);
    if (status == DFX_OK)
        status = dfx_new_array(run->sink, n, "random model", &tensors);
    for (size_t i = 0; i < n && status == DFX_OK; i++) {
        const dfx_tensor *t = tensors[i] = dfx_tensors_at(set, s.first + i);
        items[i] = (dfx_random_item){.of = t, .bytes = t->bytes, .unit = dfx_dtype_bytes(t->dtype)};
    }
    if (status == DFX_OK)
        status = dfx_safetensors_header(tensors, n, run->sink, &header, &n_header);
    if (status == DFX_OK)
        status = dfx_random_stream_write(&run->stream, path, header, n_header, items, n, fill, run);
    dfx_free(header);
    dfx_free(tensors);
    dfx_free(items);
    return status;
}

static size_t cut_shards(const dfx_tensors *set, uint64_t limit, shard shards[SHARDS_MAX]) {
    size_t n = 0;
    uint64_t bytes = 0;
    shards[0] = (shard){0, 0};
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        uint64_t more = dfx_tensors_at(set, i)->bytes;
        if (bytes > 0 && bytes + more > limit && n + 1 < SHARDS_MAX) {
            shards[++n] = (shard){i, i};
            bytes = 0;
        }
        shards[n].end = i + 1;
        bytes += more;
    }
    return n + 1;
}

static dfx_status write_index(const dfx_tensors *set, const char *dir, const char *stem,
                              const shard *shards, size_t n_shards, const dfx_sink *sink) {
    json_t *map = json_object();
    char name[128];
    for (size_t k = 0; k < n_shards; k++)
        for (size_t i = shards[k].first; i < shards[k].end; i++) {
            snprintf(name, sizeof(name), "%s-%05zu-of-%05zu.safetensors", stem, k + 1, n_shards);
            json_object_set_new(map, dfx_tensors_at(set, i)->name, json_string(name));
        }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                             (json_int_t)dfx_tensors_bytes(set), "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    snprintf(name, sizeof(name), "%s.safetensors.index.json", stem);
    dfx_status status = text ? dfx_random_write_text(dir, name, text, sink)
                             : dfx_fail(sink, DFX_E_NOFIT, "random-model: out of memory");
    free(text);
    return status;
}

static dfx_status write_component(folder_run *run, const char *dir, int c) {
    const dfx_tensors *set = run->weights->sets[c];
    char folder[DFX_PATH_BYTES], path[DFX_PATH_BYTES], name[128];
    shard shards[SHARDS_MAX];
    size_t n = cut_shards(set, LAYOUT[c].shard_bytes, shards);
    run->component = dfx_component_places[c].folder;
    DFX_TRY(dfx_path_join(run->sink, dir, run->component, folder));
    for (size_t k = 0; k < n; k++) {
        if (n == 1)
            snprintf(name, sizeof(name), "%s.safetensors", LAYOUT[c].stem);
        else
            snprintf(name, sizeof(name), "%s-%05zu-of-%05zu.safetensors", LAYOUT[c].stem, k + 1, n);
        DFX_TRY(dfx_path_join(run->sink, folder, name, path));
        DFX_TRY(write_shard(run, set, shards[k], path));
    }
    return n > 1 ? write_index(set, folder, LAYOUT[c].stem, shards, n, run->sink) : DFX_OK;
}

/* ---- folders ---- */

static dfx_status make_folders(const char *dir, const dfx_sink *sink) {
    static const char *const others[] = {"", "scheduler", "tokenizer", "tokenizer_2"};
    for (size_t i = 0; i < DFX_COUNT(others); i++)
        DFX_TRY(dfx_random_make_folder(dir, others[i], sink));
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        DFX_TRY(dfx_random_make_folder(dir, dfx_component_places[c].folder, sink));
    return DFX_OK;
}

static dfx_status write_all(folder_run *run, const dfx_random_files *files, const char *dir) {
    DFX_TRY(make_folders(dir, run->sink));
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        DFX_TRY(write_component(run, dir, c));
    for (int i = 0; i < DFX_RANDOM_FILES; i++)
        DFX_TRY(dfx_random_write_text(dir, files->paths[i], files->texts[i], run->sink));
    return DFX_OK;
}

dfx_status dfx_random_folder_write(dfx_random_weights *weights, const dfx_random_files *files,
                                   const char *dir, const dfx_random_options *options,
                                   const dfx_sink *sink, uint64_t *out_bytes) {
    folder_run run = {.weights = weights, .sink = sink};
    uint64_t all_bytes = 0;
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        all_bytes += dfx_tensors_bytes(weights->sets[c]);
    DFX_TRY(dfx_random_check_empty(dir, sink));
    DFX_TRY(dfx_random_stream_init(&run.stream, options, all_bytes, sink));
    dfx_status status = write_all(&run, files, dir);
    *out_bytes = run.stream.done_bytes;
    dfx_random_stream_fini(&run.stream);
    return status;
}
