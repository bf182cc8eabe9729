/* See pack_rig.h. */
#include "tests/pack_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/builder.h"
#include "tests/stfile.h"

static const char SOURCE[] = "source.safetensors";

/* The checkpoint as it lies in its file. */
typedef struct prig_data {
    uint16_t q[PRIG_ROWS][PRIG_COLS], q_bias[PRIG_ROWS], norm[8][PRIG_COLS];
    float out[3][PRIG_COLS], out_bias[3];
    uint16_t tail[PRIG_TAIL_ROWS][PRIG_COLS], spare[4];
} prig_data;

#define ENTRY(name, dtype, shape, member)                                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[%zu,%zu]}", \
        offsetof(prig_data, member),                                                         \
        offsetof(prig_data, member) + sizeof(((prig_data *)0)->member)

static void add(char *header, size_t cap, const char *before, const char *fmt, ...)
    DFX_PRINTF(4, 5);
static void add(char *header, size_t cap, const char *before, const char *fmt, ...) {
    size_t len = strlen(header);
    len += (size_t)snprintf(header + len, cap - len, "%s", before);
    va_list args;
    va_start(args, fmt);
    vsnprintf(header + len, cap - len, fmt, args);
    va_end(args);
}

static void write_source(const tmpdir *dir, const prig_data *data) {
    char header[2048] = "";
    add(header, sizeof(header), "{",
        ENTRY("transformer_blocks.0.attn.to_q.weight", "BF16", "[96,64]", q));
    add(header, sizeof(header), ",",
        ENTRY("transformer_blocks.0.attn.to_q.bias", "BF16", "[96]", q_bias));
    add(header, sizeof(header), ",",
        ENTRY("transformer_blocks.0.norm1.linear.weight", "BF16", "[8,64]", norm));
    add(header, sizeof(header), ",", ENTRY("proj_out.weight", "F32", "[3,64]", out));
    add(header, sizeof(header), ",", ENTRY("proj_out.bias", "F32", "[3]", out_bias));
    add(header, sizeof(header), ",", ENTRY("tail.weight", "BF16", "[2048,64]", tail));
    add(header, sizeof(header), ",", ENTRY("spare.weight", "BF16", "[4]", spare));
    add(header, sizeof(header), "}", "%s", "");
    stfile_write(dir, SOURCE, header, data, sizeof(*data));
}

/* Values of either sign and many magnitudes, exact in bf16. */
static float value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)((int)(*state >> 24) - 128) / (float)(1 << (*state >> 8 & 7));
}

static void fill(uint16_t *dst, size_t n, uint32_t *state) {
    for (size_t i = 0; i < n; i++)
        dst[i] = dfx_f32_to_bf16(value(state));
}

static void make_data(prig_data *d) {
    static const float example[4] = {1, -0.5f, 0.25f, 2};
    uint32_t state = 1;
    memset(d, 0, sizeof(*d));
    fill(&d->q[0][0], sizeof(d->q) / 2, &state);
    fill(d->q_bias, PRIG_ROWS, &state);
    fill(&d->norm[0][0], sizeof(d->norm) / 2, &state);
    fill(&d->tail[0][0], PRIG_COLS, &state);
    for (int i = 0; i < 3 * PRIG_COLS; i++)
        d->out[i / PRIG_COLS][i % PRIG_COLS] = value(&state);
    for (int i = 0; i < 3; i++)
        d->out_bias[i] = value(&state);
    memset(d->q[0], 0, sizeof(d->q[0]));
    for (int i = 0; i < 4; i++)
        d->q[0][i] = dfx_f32_to_bf16(example[i]);
}

dfx_status prig_build(const dfx_tensors *set, const dfx_sink *sink, dfx_program *out) {
    dfx_builder b;
    dfx_build_env env = {.tensors = set, .act_dtype = DFX_DTYPE_F32, .sink = sink};
    dfx_builder_init(&b, "step", "transformer", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", 1, PRIG_COLS, DFX_DTYPE_F32);
    dfx_builder_page(&b, "transformer_blocks.%d", 0);
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "attn.to_q", .n = PRIG_ROWS});
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "norm1.linear", .n = 8, .no_bias = true});
    dfx_builder_page(&b, "proj_out");
    dfx_builder_scope(&b, "%s", "");
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "proj_out", .n = 3});
    dfx_builder_page(&b, "proj_out");
    dfx_builder_scope(&b, "%s", "");
    dfx_linear(&b,
               &(dfx_linear_spec){.x = x, .name = "tail", .n = PRIG_TAIL_ROWS, .no_bias = true});
    return dfx_builder_finish(&b, out);
}

static void open_source(pack_rig *r) {
    char path[TMPDIR_PATH];
    dfx_program_fini(&r->program);
    dfx_tensors_close(r->set);
    r->set = NULL;
    tmpdir_join(r->dir, SOURCE, path);
    assert_int_equal(dfx_tensors_open_file(path, r->sink, &r->set), DFX_OK);
    assert_int_equal(prig_build(r->set, r->sink, &r->program), DFX_OK);
}

int prig_setup(void **state) {
    pack_rig *r = calloc(1, sizeof(*r));
    prig_data *data = malloc(sizeof(*data));
    void *dir;
    if (!r || !data || tmpdir_setup(&dir) != 0)
        return -1;
    *state = r;
    r->dir = dir;
    r->sink = &r->dir->log.sink;
    make_data(data);
    write_source(r->dir, data);
    free(data);
    tmpdir_write_text(r->dir, "model_index.json", "{\"_class_name\": \"FluxPipeline\"}\n");
    tmpdir_write_text(r->dir, "transformer/config.json", "{}");
    r->bundle = (dfx_bundle){.folder = r->dir->path, .name = r->dir->path};
    open_source(r);
    return 0;
}

int prig_teardown(void **state) {
    pack_rig *r = *state;
    void *dir = r->dir;
    dfx_program_fini(&r->program);
    dfx_tensors_close(r->set);
    free(r);
    return tmpdir_teardown(&dir);
}

dfx_status prig_pack_program(pack_rig *r, const dfx_program *program,
                             const dfx_pack_options *options, const char *name) {
    static const char *const files[] = {"model_index.json", "transformer/config.json"};
    char path[TMPDIR_PATH];
    dfx_pack_source source = {.programs = &program,
                              .components = (const char *const[]){"transformer"},
                              .n_programs = 1,
                              .bundle = &r->bundle,
                              .files = files,
                              .n_files = DFX_COUNT(files)};
    return dfx_pack_write(&source, options, name ? tmpdir_join(r->dir, name, path) : NULL, r->sink,
                          &r->report);
}

dfx_status prig_pack(pack_rig *r, const dfx_pack_options *options, const char *name) {
    return prig_pack_program(r, &r->program, options, name);
}

dfx_packed *prig_open(pack_rig *r, const char *name) {
    char path[TMPDIR_PATH];
    dfx_packed *packed = NULL;
    assert_int_equal(dfx_packed_open(tmpdir_join(r->dir, name, path), r->sink, &packed), DFX_OK);
    return packed;
}

uint8_t *prig_page(pack_rig *r, const dfx_packed *packed, size_t page_idx) {
    const dfx_packed_page *page = dfx_packed_page_at(packed, page_idx);
    uint8_t *bytes = malloc(page->bytes), *scratch = malloc(page->bytes);
    uint8_t *stored = malloc(page->stored_bytes);
    dfx_file file;
    assert_non_null(bytes);
    assert_non_null(scratch);
    assert_non_null(stored);
    assert_int_equal(dfx_file_open(dfx_packed_path(packed), r->sink, &file), DFX_OK);
    assert_int_equal(dfx_file_read(&file, r->sink, page->off, stored, page->stored_bytes), DFX_OK);
    dfx_file_close(&file);
    assert_int_equal(dfx_packed_expand(page, r->sink, stored, bytes, scratch), DFX_OK);
    assert_int_equal(dfx_packed_verify(packed, page, bytes, r->sink), DFX_OK);
    free(stored);
    free(scratch);
    return bytes;
}

void prig_spoil(pack_rig *r, const char *tensor, int64_t row, int64_t col, uint16_t bits) {
    size_t bytes;
    const dfx_tensor *t = dfx_tensors_find(r->set, tensor);
    assert_non_null(t);
    char *file = tmpdir_slurp(r->dir, SOURCE, &bytes);
    int64_t cols = t->rank > 1 ? t->shape[1] : (int64_t)t->n_elements;
    memcpy(file + t->off + 2 * (size_t)(row * cols + col), &bits, sizeof(bits));
    tmpdir_write(r->dir, SOURCE, file, bytes);
    free(file);
    open_source(r);
}
