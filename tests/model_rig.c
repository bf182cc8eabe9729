/* See model_rig.h. */
#include "tests/model_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/embed.h"
#include "tests/device_program.h"

static void keep_output(void *user, const dfx_op *op, const dfx_op_call *call) {
    model_rig *r = user;
    const dfx_mat *y = &call->m[0];
    op_output *grown = realloc(r->outputs, (r->n_outputs + 1) * sizeof(*grown));
    if (!grown)
        abort();
    r->outputs = grown;
    size_t label_bytes = strlen(op->label) + 1;
    char *label = memcpy(rig_alloc(r->mem, label_bytes), op->label, label_bytes);
    float *values = rig_alloc(r->mem, (size_t)(y->rows * y->cols) * sizeof(*values));
    device_values(r->backend, y, values);
    r->outputs[r->n_outputs++] =
        (op_output){.label = label, .rows = y->rows, .cols = y->cols, .values = values};
}

static model_rig *new_rig(tmpdir *dir) {
    model_rig *r = calloc(1, sizeof(*r));
    void *mem;
    if (!r || rig_setup(&mem) != 0)
        abort();
    r->mem = mem;
    r->dir = dir;
    r->sink = r->mem->log.sink;
    return r;
}

int mrig_setup(void **state) {
    model_rig *r = new_rig(*state);
    *state = r;
    dfx_cpu_options options = {.n_threads = 2};
    return dfx_cpu_backend_open(&options, &r->sink, &r->backend) == DFX_OK ? 0 : -1;
}

int mrig_teardown(void **state) {
    model_rig *r = *state;
    dfx_backend *backend = r->backend;
    if (r->worst_of)
        print_message("worst relative error %.2e (%s)\n", r->worst, r->worst_of);
    mrig_close(r);
    backend->vt->close(backend);
    return 0;
}

model_rig *mrig_open_on(dfx_backend *backend, const dfx_sink *sink, tmpdir *dir) {
    model_rig *r = new_rig(dir);
    r->backend = backend;
    r->sink = *sink;
    return r;
}

void mrig_close(model_rig *r) {
    for (size_t i = 0; i < r->n_tensors; i++)
        dfx_tensors_close(r->tensors[i]);
    free(r->outputs);
    void *mem = r->mem;
    rig_teardown(&mem);
    free(r);
}

const dfx_tensors *mrig_open(model_rig *r, const char *folder, const char *stem) {
    char path[TMPDIR_PATH];
    assert_true(r->n_tensors < DFX_COUNT(r->tensors));
    if (!r->dir || !dfx_file_is_dir(tmpdir_join(r->dir, folder, path)))
        snprintf(path, sizeof(path), "%s", folder);
    dfx_tensors **set = &r->tensors[r->n_tensors];
    assert_int_equal(dfx_tensors_open_dir(path, stem, &r->sink, set), DFX_OK);
    r->n_tensors++;
    return *set;
}

dfx_build_env mrig_env(const model_rig *r, const dfx_tensors *weights) {
    return (dfx_build_env){
        .tensors = weights, .act_dtype = r->backend->act_dtype, .sink = &r->sink};
}

float *mrig_floats(model_rig *r, int64_t n) {
    return rig_poison(r->mem, 1, n, (n + 3) / 4 * 4).ptr;
}

const float *mrig_golden(model_rig *r, const char *file, int64_t n, const char *fmt, ...) {
    char name[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    return rig_golden(r->mem, file, name, (size_t)n);
}

int32_t *mrig_golden_ids(model_rig *r, const char *file, int64_t n, const char *name) {
    const float *values = mrig_golden(r, file, n, "%s", name);
    int32_t *ids = rig_alloc(r->mem, (size_t)n * sizeof(*ids));
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)values[i];
    return ids;
}

float *mrig_embed(model_rig *r, const dfx_program *tables, bool with_position, const int32_t *ids,
                  int64_t n, int64_t width) {
    float *x = mrig_floats(r, n * width);
    const dfx_weight *position = with_position ? &tables->weights[1] : NULL;
    assert_int_equal(dfx_embed_rows(tables, &tables->weights[0], position, ids, n, &r->sink, x),
                     DFX_OK);
    return x;
}

/* `bytes` of all ones, NaN in every float; free() by the caller. */
static void *new_block(size_t bytes) {
    void *block = aligned_alloc(DFX_ACT_ALIGN, dfx_align_up(bytes ? bytes : 1, DFX_ACT_ALIGN));
    if (!block)
        abort();
    return memset(block, 0xFF, bytes);
}

/* The page source of mrig_run: the one page that is pinned, read from the program's tensors. */
typedef struct loaded_page {
    const dfx_program *program;
    const dfx_sink *sink;
    void *block;
} loaded_page;

static dfx_status load_page(void *self, uint32_t region, uint32_t page_idx, void **base) {
    loaded_page *l = self;
    const dfx_page *page = &l->program->pages[page_idx];
    assert_null(l->block);
    l->block = new_block(page->bytes);
    for (uint32_t i = page->first_weight; i < page->first_weight + page->n_weights; i++) {
        const dfx_weight *w = &l->program->weights[i];
        DFX_TRY(dfx_tensors_read(l->program->tensors, w->tensor, l->sink,
                                 (unsigned char *)l->block + w->off));
    }
    *base = l->block;
    return DFX_OK;
}

static void drop_page(void *self, uint32_t region) {
    loaded_page *l = self;
    free(l->block);
    l->block = NULL;
}

/* free() by the caller. */
static void *new_adapters(const model_rig *r, const dfx_program *program) {
    void *block = memset(new_block(program->adapter_bytes), 0, program->adapter_bytes);
    if (program->adapter_bytes)
        r->fill_adapters(r->fill_user, program, r->backend->act_dtype, block);
    return block;
}

static void run_in_device_memory(model_rig *r, const dfx_program *program, void *const *externs) {
    device_program d;
    device_program_open(&d, r->backend, program, &r->sink);
    for (uint32_t i = 0; i < program->n_externs; i++)
        device_program_put(&d, i, externs[i]);
    void *adapters = new_adapters(r, program);
    device_program_put_adapters(&d, adapters);
    free(adapters);
    device_program_run(&d, NULL, keep_output, r);
    for (uint32_t i = 0; i < program->n_externs; i++)
        if (device_program_writes(program, i))
            device_program_get(&d, i, externs[i]);
    device_program_close(&d);
}

void mrig_run(model_rig *r, const dfx_program *program, void *const *externs) {
    r->n_outputs = 0;
    if (!r->backend->host_visible) {
        run_in_device_memory(r, program, externs);
        return;
    }
    loaded_page page = {.program = program, .sink = &r->sink};
    dfx_page_source pages = {.pin = load_page, .unpin = drop_page, .self = &page};
    dfx_executor executor = {.backend = r->backend,
                             .sink = &r->sink,
                             .activations = new_block(program->act_bytes),
                             .activation_bytes = program->act_bytes,
                             .adapters = new_adapters(r, program),
                             .probe = keep_output,
                             .probe_user = r};
    assert_int_equal(dfx_executor_announce(r->backend, program), DFX_OK);
    assert_int_equal(r->backend->vt->workspace_alloc(r->backend), DFX_OK);
    assert_int_equal(dfx_executor_run(&executor, program, NULL, &pages, externs), DFX_OK);
    assert_null(page.block);
    r->backend->vt->workspace_free(r->backend);
    free(executor.activations);
    free(executor.adapters);
}

const op_output *mrig_output(const model_rig *r, const char *label) {
    for (size_t i = r->n_outputs; i-- > 0;)
        if (strcmp(r->outputs[i].label, label) == 0)
            return &r->outputs[i];
    fail_msg("no op is called %s", label);
    return NULL;
}

void mrig_same(model_rig *r, const char *what, const float *got, const float *want, int64_t n,
               double tolerance) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double w = (double)want[i], d = (double)got[i] - w;
        error += d * d;
        size += w * w;
    }
    double relative = sqrt(error / size);
    if (r->off && tolerance > 0)
        tolerance = r->tolerance;
    r->n_compared++;
    if (!r->worst_of || (!isnan(r->worst) && !(relative <= r->worst))) {
        size_t bytes = strlen(what) + 1;
        r->worst = relative;
        r->worst_of = memcpy(rig_alloc(r->mem, bytes), what, bytes);
    }
    if (relative <= tolerance)
        return;
    if (r->off)
        r->off(r->off_user, what, relative, tolerance);
    else
        fail_msg("%s: relative error %.3e, wanted at most %.1e", what, relative, tolerance);
}

void mrig_same_output(model_rig *r, const char *label, const float *want, int64_t rows,
                      int64_t cols, double tolerance) {
    const op_output *y = mrig_output(r, label);
    assert_int_equal(y->rows, rows);
    assert_int_equal(y->cols, cols);
    mrig_same(r, label, y->values, want, rows * cols, tolerance);
}

const float *mrig_channels_last(model_rig *r, const float *planes, int64_t channels,
                                int64_t n_pixels) {
    float *out = mrig_floats(r, channels * n_pixels);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < n_pixels; i++)
            out[i * channels + c] = planes[c * n_pixels + i];
    return out;
}

float *mrig_pack(model_rig *r, const float *latents, int64_t channels, int64_t h, int64_t w,
                 float shift, float scaling) {
    float *out = mrig_floats(r, channels * h * w);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++) {
                int64_t token = y / 2 * (w / 2) + x / 2, at = 4 * c + 2 * (y % 2) + x % 2;
                out[token * 4 * channels + at] = (latents[(c * h + y) * w + x] - shift) * scaling;
            }
    return out;
}

void mrig_same_pixels(const uint8_t *got, const float *want, size_t n) {
    size_t n_far = 0;
    for (size_t i = 0; i < n; i++)
        n_far += fabs((double)got[i] - (double)want[i]) > 1;
    if (n_far * 1000 > n)
        fail_msg("%zu of %zu 8-bit values are more than 1 apart", n_far, n);
}
