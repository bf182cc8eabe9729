/* See cpu_rig.h. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/safetensors.h"

int rig_setup(void **state) {
    rig *r = calloc(1, sizeof(*r));
    if (!r)
        return -1;
    recorder_init(&r->log);
    *state = r;
    return 0;
}

int rig_teardown(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < r->n_blocks; i++)
        free(r->blocks[i]);
    free(r->blocks);
    recorder_fini(&r->log);
    free(r);
    return 0;
}

void *rig_alloc(rig *r, size_t bytes) {
    void *block = aligned_alloc(64, dfx_align_up(bytes ? bytes : 1, 64));
    void **grown = realloc(r->blocks, (r->n_blocks + 1) * sizeof(*grown));
    if (!block || !grown)
        abort();
    r->blocks = grown;
    r->blocks[r->n_blocks++] = block;
    return memset(block, 0, bytes);
}

dfx_mat rig_poison(rig *r, int64_t rows, int64_t cols, int64_t ld) {
    assert_true(ld >= cols && ld % 4 == 0);
    float *values = rig_alloc(r, (size_t)(rows * ld) * sizeof(*values));
    for (int64_t i = 0; i < rows * ld; i++)
        values[i] = NAN;
    return (dfx_mat){.ptr = values, .rows = rows, .cols = cols, .ld = ld, .dtype = DFX_DTYPE_F32};
}

dfx_mat rig_values(rig *r, int64_t rows, int64_t cols, int64_t ld, const float *values) {
    dfx_mat m = rig_poison(r, rows, cols, ld);
    for (int64_t t = 0; t < rows; t++)
        memcpy((float *)m.ptr + t * ld, values + t * cols, (size_t)cols * sizeof(*values));
    return m;
}

static float *random_values(rig *r, int64_t n, uint64_t seed) {
    float *values = rig_alloc(r, (size_t)n * sizeof(*values));
    uint64_t x = seed * 2 + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)(x >> 40) * 0x1p-22f - 2.0f;
    }
    return values;
}

dfx_mat rig_random(rig *r, int64_t rows, int64_t cols, int64_t ld, uint64_t seed) {
    return rig_values(r, rows, cols, ld, random_values(r, rows * cols, seed));
}

dfx_mat rig_weight(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols, const float *values) {
    size_t n = (size_t)(rows * cols), bytes = n * dfx_dtype_bytes(dtype);
    void *aligned = rig_alloc(r, bytes);
    assert_true(dfx_from_f32(dtype, values, aligned, n));
    char *odd = (char *)rig_alloc(r, bytes + 1) + 1;
    memcpy(odd, aligned, bytes);
    return (dfx_mat){.ptr = odd, .rows = rows, .cols = cols, .ld = cols, .dtype = dtype};
}

dfx_mat rig_random_weight(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    return rig_weight(r, dtype, rows, cols, random_values(r, rows * cols, seed));
}

double rig_at(const dfx_mat *m, int64_t row, int64_t col) {
    float value;
    const char *at = (const char *)m->ptr + (size_t)(row * m->ld + col) * dfx_dtype_bytes(m->dtype);
    assert_true(dfx_to_f32(m->dtype, at, &value, 1));
    return (double)value;
}

double rig_or(const dfx_mat *m, int64_t col, double absent) {
    return m->ptr ? rig_at(m, 0, col) : absent;
}

const float *rig_golden(rig *r, const char *file, const char *name, size_t n) {
    char path[TMPDIR_PATH];
    snprintf(path, sizeof(path), "tests/golden/%s.safetensors", file);
    dfx_tensors *set;
    assert_int_equal(dfx_tensors_open_file(path, &r->log.sink, &set), DFX_OK);
    const dfx_tensor *tensor = dfx_tensors_find(set, name);
    if (!tensor)
        fail_msg("%s holds no %s", path, name);
    assert_int_equal(tensor->n_elements, n);
    float *values = rig_alloc(r, n * sizeof(*values));
    assert_int_equal(dfx_tensors_read_f32(set, tensor, &r->log.sink, values), DFX_OK);
    dfx_tensors_close(set);
    return values;
}

static dfx_status run_once(rig *r, const dfx_op_call *call, int n_threads) {
    dfx_backend *be;
    dfx_cpu_options options = {.n_threads = n_threads};
    assert_int_equal(dfx_op_check(call, &r->log.sink), DFX_OK);
    assert_int_equal(dfx_cpu_backend_open(&options, &r->log.sink, &be), DFX_OK);
    assert_int_equal(be->vt->prepare(be, call), DFX_OK);
    assert_int_equal(be->vt->workspace_alloc(be), DFX_OK);
    dfx_status status = be->vt->run(be, call);
    be->vt->close(be);
    return status;
}

void rig_run(rig *r, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    size_t bytes = (size_t)(y->rows * y->ld) * dfx_dtype_bytes(y->dtype);
    char *before = rig_alloc(r, bytes), *first = rig_alloc(r, bytes);
    memcpy(before, y->ptr, bytes);
    assert_int_equal(run_once(r, call, 3), DFX_OK);
    memcpy(first, y->ptr, bytes);
    memcpy(y->ptr, before, bytes);
    assert_int_equal(run_once(r, call, 1), DFX_OK);
    assert_memory_equal(y->ptr, first, bytes);
    said_nothing(&r->log, DFX_ERROR);
}

void rig_run_fails(rig *r, const dfx_op_call *call, dfx_status status, const char *words) {
    assert_int_equal(run_once(r, call, 2), status);
    said_error(&r->log, words);
}

void rig_same(const dfx_mat *got, const float *want, double tolerance) {
    for (int64_t t = 0; t < got->rows; t++) {
        for (int64_t i = 0; i < got->cols; i++) {
            double g = rig_at(got, t, i), w = (double)want[t * got->cols + i];
            if (!(fabs(g - w) <= tolerance))
                fail_msg("row %lld column %lld: got %.9g, want %.9g, tolerance %g", (long long)t,
                         (long long)i, g, w, tolerance);
        }
        for (int64_t i = got->cols; i < got->ld; i++)
            assert_true(isnan(rig_at(got, t, i)));
    }
}
