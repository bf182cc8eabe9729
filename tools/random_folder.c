/* Two buffers: one is filled on all cores while the other is written. */
#include "tools/random_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/pool.h"
#include "core/write_behind.h"

enum { BUFFER_BYTES = 64 << 20, PIECE_BYTES = 1 << 20 };

/* A run of bytes of one tensor, on its way through a buffer. */
typedef struct piece {
    const dfx_tensor *tensor;
    uint64_t off; /* in the tensor */
    size_t at, n_bytes;
} piece;

typedef struct folder_run {
    dfx_random_weights *weights;
    const dfx_random_folder_options *options;
    const dfx_sink *sink;
    dfx_pool *pool;
    dfx_mem buffers[2];
    piece *pieces; /* owned; of one buffer */
    size_t n_pieces, cap_pieces;
    int filling;
    dfx_write_behind write;
    dfx_file_writer file;
    uint64_t file_off, done_bytes, all_bytes;
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

static void fill_piece(void *ctx, int64_t index, int worker) {
    folder_run *run = ctx;
    const piece *p = &run->pieces[index];
    uint8_t *to = (uint8_t *)run->buffers[run->filling].ptr + p->at;
    dfx_random_weights_read(run->weights, run->component, p->tensor, p->off, to, p->n_bytes);
}

/* Fill what has been gathered, and let it be written. */
static dfx_status flush(folder_run *run) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < run->n_pieces; i++)
        n_bytes += run->pieces[i].n_bytes;
    DFX_TRY(dfx_pool_run(run->pool, (int64_t)run->n_pieces, fill_piece, run));
    DFX_TRY(dfx_write_behind_wait(&run->write));
    dfx_write_behind_begin(&run->write, &run->file, run->sink, run->file_off,
                           run->buffers[run->filling].ptr, n_bytes);
    run->file_off += n_bytes;
    run->filling = 1 - run->filling;
    run->n_pieces = 0;
    run->done_bytes += n_bytes;
    if (run->options->progress)
        run->options->progress(run->options->user, run->done_bytes, run->all_bytes);
    return DFX_OK;
}

static dfx_status write_tensors(folder_run *run, const dfx_tensors *set, shard s) {
    size_t used = 0;
    for (size_t i = s.first; i < s.end; i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        for (uint64_t off = 0; off < t->bytes;) {
            uint64_t n = t->bytes - off < PIECE_BYTES ? t->bytes - off : PIECE_BYTES;
            if (used + n > BUFFER_BYTES) {
                DFX_TRY(flush(run));
                used = 0;
            }
            DFX_TRY(dfx_grow(run->sink, run->n_pieces + 1, sizeof(*run->pieces), "random model",
                             &run->cap_pieces, (void **)&run->pieces));
            run->pieces[run->n_pieces++] =
                (piece){.tensor = t, .off = off, .at = used, .n_bytes = (size_t)n};
            used += (size_t)n;
            off += n;
        }
    }
    return flush(run);
}

/* As the format's own library writes it: header padded to 8 bytes. */
static char *shard_header(const dfx_tensors *set, shard s) {
    json_t *root = json_object();
    uint64_t begin = 0;
    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (size_t i = s.first; i < s.end; i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dfx_dtype_name(t->dtype),
                                      "shape", shape, "data_offsets", (json_int_t)begin,
                                      (json_int_t)(begin + t->bytes)));
        begin += t->bytes;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static dfx_status write_header(folder_run *run, const char *text) {
    uint64_t n_text = strlen(text), n_padded = dfx_align_up(n_text, 8);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(n_padded >> 8 * i);
    DFX_TRY(dfx_file_write_at(&run->file, run->sink, 0, length, sizeof(length)));
    DFX_TRY(dfx_file_write_at(&run->file, run->sink, 8, text, n_text));
    DFX_TRY(dfx_file_write_at(&run->file, run->sink, 8 + n_text, "       ", n_padded - n_text));
    run->file_off = 8 + n_padded;
    return DFX_OK;
}

static dfx_status write_shard(folder_run *run, const dfx_tensors *set, shard s, const char *path) {
    char *header = shard_header(set, s);
    if (!header)
        return dfx_fail(run->sink, DFX_E_NOFIT, "random-model: out of memory");
    dfx_status status = dfx_file_write_begin_large(path, run->sink, &run->file);
    if (status != DFX_OK) {
        free(header);
        return status;
    }
    status = dfx_file_write_room(&run->file, run->sink, run->all_bytes - run->done_bytes);
    if (status == DFX_OK)
        status = write_header(run, header);
    if (status == DFX_OK)
        status = write_tensors(run, set, s);
    dfx_status written = dfx_write_behind_wait(&run->write);
    status = status != DFX_OK ? status : written;
    run->write = (dfx_write_behind){0};
    free(header);
    if (status == DFX_OK)
        return dfx_file_write_commit(&run->file, run->sink);
    dfx_file_write_abort(&run->file);
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

static dfx_status write_text(const char *dir, const char *name, const char *text,
                             const dfx_sink *sink) {
    char path[DFX_PATH_BYTES];
    dfx_file_writer file;
    DFX_TRY(dfx_path_join(sink, dir, name, path));
    DFX_TRY(dfx_file_write_begin(path, sink, &file));
    dfx_status status = dfx_file_write(&file, sink, text, strlen(text));
    if (status == DFX_OK)
        return dfx_file_write_commit(&file, sink);
    dfx_file_write_abort(&file);
    return status;
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
    dfx_status status = text ? write_text(dir, name, text, sink)
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

static dfx_status check_empty(const char *dir, const dfx_sink *sink) {
    DIR *open_dir = opendir(dir);
    size_t n = 0;
    if (!open_dir)
        return errno == ENOENT ? DFX_OK
                               : dfx_fail(sink, DFX_E_IO, "%s: wanted a folder to write to: %s",
                                          dir, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(open_dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open_dir);
    return n == 0 ? DFX_OK
                  : dfx_fail(sink, DFX_E_USAGE,
                             "%s: wanted an empty folder or none, found one "
                             "with %zu entries; choose another name",
                             dir, n);
}

static dfx_status make_folder(const char *dir, const char *name, const dfx_sink *sink) {
    char path[DFX_PATH_BYTES];
    DFX_TRY(dfx_path_join(sink, dir, name, path));
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return dfx_fail(sink, DFX_E_IO, "%s: cannot make the folder: %s", path, strerror(errno));
    return DFX_OK;
}

static dfx_status make_folders(const char *dir, const dfx_sink *sink) {
    static const char *const others[] = {"", "scheduler", "tokenizer", "tokenizer_2"};
    for (size_t i = 0; i < DFX_COUNT(others); i++)
        DFX_TRY(make_folder(dir, others[i], sink));
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        DFX_TRY(make_folder(dir, dfx_component_places[c].folder, sink));
    return DFX_OK;
}

static dfx_status write_all(folder_run *run, const dfx_random_files *files, const char *dir) {
    DFX_TRY(dfx_pool_open(run->sink, run->options->n_threads, &run->pool));
    dfx_pool_set_cancel(run->pool, run->options->cancelled, run->options->user);
    for (int i = 0; i < 2; i++)
        DFX_TRY(dfx_mem_alloc(run->sink, BUFFER_BYTES, "random model", &run->buffers[i]));
    DFX_TRY(make_folders(dir, run->sink));
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        DFX_TRY(write_component(run, dir, c));
    for (int i = 0; i < DFX_RANDOM_FILES; i++)
        DFX_TRY(write_text(dir, files->paths[i], files->texts[i], run->sink));
    return DFX_OK;
}

dfx_status dfx_random_folder_write(dfx_random_weights *weights, const dfx_random_files *files,
                                   const char *dir, const dfx_random_folder_options *options,
                                   const dfx_sink *sink, uint64_t *out_bytes) {
    folder_run run = {.weights = weights, .options = options, .sink = sink};
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        run.all_bytes += dfx_tensors_bytes(weights->sets[c]);
    DFX_TRY(check_empty(dir, sink));
    dfx_status status = write_all(&run, files, dir);
    for (int i = 0; i < 2; i++)
        dfx_mem_free(&run.buffers[i]);
    dfx_pool_close(run.pool);
    dfx_free(run.pieces);
    *out_bytes = run.done_bytes;
    return status;
}
