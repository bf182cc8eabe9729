/* See draw_rig.h. */
#include "tests/draw_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/safetensors.h"
#include "models/pack.h"

int draw_cache_setup(void **state) {
    if (tmpdir_setup(state) != 0)
        return -1;
    return setenv("XDG_CACHE_HOME", ((tmpdir *)*state)->path, 1);
}

int draw_setup(void **state) {
    draw_rig *r = calloc(1, sizeof(*r));
    void *dir;
    if (!r || tmpdir_setup(&dir) != 0)
        return -1;
    r->cache = *state;
    *state = r;
    if (r->cache && setenv("XDG_CACHE_HOME", r->cache->path, 1) != 0)
        return -1;
    r->dir = dir;
    r->log = &r->dir->log;
    r->n_threads = 2;
    return 0;
}

int draw_teardown(void **state) {
    draw_rig *r = *state;
    dfx_model_close(r->model);
    void *dir = r->dir;
    free(r);
    return tmpdir_teardown(&dir);
}

static dfx_open_options options_of(const draw_rig *r, const char *path, uint64_t budget_bytes) {
    return (dfx_open_options){.model_path = path,
                              .device = DFX_DEVICE_CPU,
                              .n_threads = r->n_threads,
                              .vram_budget_bytes = budget_bytes,
                              .ram_budget_bytes = r->ram_budget_bytes,
                              .offload = r->offload,
                              .quant = r->quant,
                              .loras = r->loras,
                              .n_loras = r->n_loras,
                              .lora_max_rank = r->lora_max_rank,
                              .lora_max = r->lora_max,
                              .attention_bits = r->attention_bits,
                              .trace_path = r->trace,
                              .sink = r->log->sink};
}

void draw_open(draw_rig *r, const char *path, uint64_t budget_bytes) {
    dfx_open_options options = options_of(r, path, budget_bytes);
    dfx_model_close(r->model);
    r->model = NULL;
    recorder_clear(r->log);
    dfx_status status = dfx_model_open(&options, &r->model);
    said_nothing(r->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
}

void draw_open_fails(draw_rig *r, const char *path, dfx_status status, const char *words) {
    dfx_open_options options = options_of(r, path, 0);
    size_t held = dfx_mem_held_bytes();
    dfx_model *model = NULL;
    recorder_clear(r->log);
    assert_int_equal(dfx_model_open(&options, &model), status);
    said_error(r->log, words);
    assert_null(model);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

dfx_request draw_request(const draw_rig *r, uint64_t seed) {
    dfx_request request;
    dfx_request_init(r->model, &request);
    request.prompt = DRAW_PROMPT;
    request.width = request.height = 32;
    request.steps = 2;
    request.text_length = 4;
    request.seed = seed;
    return request;
}

dfx_image draw(draw_rig *r, const dfx_request *request) {
    dfx_image image = {0};
    recorder_clear(r->log);
    dfx_status status = dfx_generate(r->model, request, &image);
    said_nothing(r->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    return image;
}

void draw_fails(draw_rig *r, const dfx_request *request, dfx_status status, const char *words) {
    dfx_image image = {0};
    recorder_clear(r->log);
    assert_int_equal(dfx_generate(r->model, request, &image), status);
    said_error(r->log, words);
    assert_null(image.rgb);
}

static bool are_same(const dfx_image *a, const dfx_image *b) {
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    return memcmp(a->rgb, b->rgb, (size_t)a->width * (size_t)a->height * 3) == 0;
}

void draw_same(const dfx_image *a, const dfx_image *b) {
    assert_true(are_same(a, b));
}

void draw_differ(const dfx_image *a, const dfx_image *b) {
    assert_false(are_same(a, b));
}

enum { SCENES_PATH = TMPDIR_PATH + 64 };

static void link_file(draw_rig *r, const char *name) {
    char from[SCENES_PATH], to[TMPDIR_PATH], whole[SCENES_PATH];
    snprintf(from, sizeof(from), DRAW_SCENES "/%s", name);
    if (!realpath(from, whole) || symlink(whole, tmpdir_join(r->dir, name, to)) != 0)
        fail_msg("cannot link %s", from);
}

static void link_folder(draw_rig *r, const char *folder) {
    char path[SCENES_PATH];
    snprintf(path, sizeof(path), DRAW_SCENES "/%s", folder);
    DIR *stream = opendir(path);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        char name[TMPDIR_PATH];
        struct stat info;
        snprintf(name, sizeof(name), "%s%s%s", folder, *folder ? "/" : "", entry->d_name);
        snprintf(path, sizeof(path), DRAW_SCENES "/%s", name);
        if (entry->d_name[0] == '.' || stat(path, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode)) {
            tmpdir_mkdir(r->dir, name);
            link_folder(r, name);
        } else {
            link_file(r, name);
        }
    }
    closedir(stream);
}

const char *draw_copy(draw_rig *r) {
    link_folder(r, "");
    return r->dir->path;
}

/* Puts a file in the place of the link. */
static void replace(draw_rig *r, const char *name, const void *data, size_t bytes) {
    char path[TMPDIR_PATH];
    assert_int_equal(unlink(tmpdir_join(r->dir, name, path)), 0);
    tmpdir_write(r->dir, name, data, bytes);
}

void draw_edit_text(draw_rig *r, const char *name, const char *old, const char *text) {
    size_t bytes;
    char *whole = tmpdir_slurp(r->dir, name, &bytes), *at = strstr(whole, old);
    if (!at)
        fail_msg("%s holds no %s", name, old);
    char *changed = calloc(1, bytes + strlen(text) + 1);
    assert_non_null(changed);
    int len = sprintf(changed, "%.*s%s%s", (int)(at - whole), whole, text, at + strlen(old));
    replace(r, name, changed, (size_t)len);
    free(changed);
    free(whole);
}

void draw_edit_header(draw_rig *r, const char *name,
                      void (*edit)(json_t *header, size_t data_bytes), size_t extra_bytes) {
    size_t bytes;
    uint64_t header_bytes;
    char *whole = tmpdir_slurp(r->dir, name, &bytes);
    memcpy(&header_bytes, whole, sizeof(header_bytes)); /* little-endian, as this machine */
    size_t data_at = 8 + header_bytes, data_bytes = bytes - data_at;
    json_t *header = json_loadb(whole + 8, header_bytes, 0, NULL);
    assert_non_null(header);
    edit(header, data_bytes);
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t text_bytes = strlen(text);
    char *changed = calloc(1, 8 + text_bytes + data_bytes + extra_bytes);
    assert_non_null(changed);
    memcpy(changed, &text_bytes, 8);
    memcpy(changed + 8, text, text_bytes);
    memcpy(changed + 8 + text_bytes, whole + data_at, data_bytes);
    replace(r, name, changed, 8 + text_bytes + data_bytes + extra_bytes);
    json_decref(header);
    free(text);
    free(changed);
    free(whole);
}

void draw_poke(draw_rig *r, const char *name, const char *tensor_name, uint16_t bits, size_t n) {
    char path[TMPDIR_PATH];
    dfx_tensors *set;
    assert_int_equal(dfx_tensors_open_file(tmpdir_join(r->dir, name, path), &r->log->sink, &set),
                     DFX_OK);
    const dfx_tensor *tensor = dfx_tensors_find(set, tensor_name);
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, DFX_DTYPE_BF16);
    assert_true(n <= tensor->n_elements);
    uint64_t off = tensor->off;
    dfx_tensors_close(set);
    size_t bytes;
    char *whole = tmpdir_slurp(r->dir, name, &bytes);
    for (size_t i = 0; i < n; i++)
        memcpy(whole + off + 2 * i, &bits, sizeof(bits)); /* little-endian, as this machine */
    replace(r, name, whole, bytes);
    free(whole);
}

const char *draw_pack(draw_rig *r, const char *name, dfx_qformat quant, bool compress,
                      char path[TMPDIR_PATH]) {
    dfx_pack_options options = {.quant = quant, .compress = compress, .n_threads = r->n_threads};
    dfx_pack_report report;
    tmpdir_join(r->dir, name, path);
    assert_int_equal(dfx_model_pack(&(dfx_checkpoint_options){.paths = {.model = DRAW_SCENES},
                                                              .quant = options.quant},
                                    &options, path, &r->log->sink, &report),
                     DFX_OK);
    return path;
}
