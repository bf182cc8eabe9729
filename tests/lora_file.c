/* See lora_file.h. */
#include "tests/lora_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stfile.h"

const char lora_name[] = "a.safetensors";

void lora_file_begin(lora_file *f) {
    f->header = json_object();
    f->bytes = 0;
    assert_non_null(f->header);
}

void lora_file_tensor(lora_file *f, const char *name, dfx_dtype dtype, int rank,
                      const int64_t *shape, const float *values) {
    json_t *sides = json_array();
    size_t n = 1, bytes;
    for (int i = 0; i < rank; i++) {
        n *= (size_t)shape[i];
        json_array_append_new(sides, json_integer(shape[i]));
    }
    bytes = n * dfx_dtype_bytes(dtype);
    assert_true(f->bytes + bytes <= sizeof(f->data));
    if (dtype == DFX_DTYPE_I8)
        memset(f->data + f->bytes, 1, bytes);
    else if (n)
        assert_true(dfx_from_f32(dtype, values, f->data + f->bytes, n));
    assert_int_equal(
        json_object_set_new(f->header, name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dfx_dtype_name(dtype),
                                      "shape", sides, "data_offsets", (json_int_t)f->bytes,
                                      (json_int_t)(f->bytes + bytes))),
        0);
    f->bytes += bytes;
}

void lora_file_add(lora_file *f, const char *name, int rows, int cols, const float *values) {
    lora_file_tensor(f, name, DFX_DTYPE_F32, 2, (int64_t[]){rows, cols}, values);
}

void lora_file_scalar(lora_file *f, const char *name, float value) {
    lora_file_tensor(f, name, DFX_DTYPE_F32, 0, NULL, &value);
}

void lora_file_metadata(lora_file *f, const char *key, const char *value) {
    json_t *all = json_object_get(f->header, "__metadata__");
    if (!all) {
        all = json_object();
        json_object_set_new(f->header, "__metadata__", all);
    }
    json_object_set_new(all, key, json_string(value));
}

void lora_file_write(lora_file *f, const tmpdir *dir, const char *name) {
    char *text = json_dumps(f->header, JSON_COMPACT);
    assert_non_null(text);
    stfile_write(dir, name, text, f->data, f->bytes);
    free(text);
    json_decref(f->header);
    f->header = NULL;
}

void lora_file_pair(lora_file *f, const char *base, int r, int k, const float *down, int n,
                    const float *up) {
    char name[256];
    snprintf(name, sizeof(name), "%s.lora_A.weight", base);
    lora_file_add(f, name, r, k, down);
    snprintf(name, sizeof(name), "%s.lora_B.weight", base);
    lora_file_add(f, name, n, r, up);
}

dfx_configs lora_configs(void) {
    return (dfx_configs){
        .clip = {.width = 2, .n_layers = 1, .n_heads = 1, .mlp_width = 3},
        .t5 = {.width = 3, .head_size = 2, .n_heads = 1, .mlp_width = 4, .n_layers = 1},
        .flux = {.in_channels = 4,
                 .out_channels = 4,
                 .n_double = 2,
                 .n_single = 1,
                 .n_heads = 1,
                 .head_size = 2,
                 .text_width = 3,
                 .pooled_width = 5,
                 .has_guidance = true,
                 .width = 2},
    };
}

dfx_lora *lora_opens(tmpdir *dir, const dfx_configs *configs) {
    char path[TMPDIR_PATH];
    dfx_lora *lora = NULL;
    recorder_clear(&dir->log);
    dfx_status status =
        dfx_lora_open(tmpdir_join(dir, lora_name, path), configs, &dir->log.sink, &lora);
    said_nothing(&dir->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    return lora;
}

void lora_rejects(tmpdir *dir, const dfx_configs *configs, const char *words) {
    char path[TMPDIR_PATH];
    dfx_lora *lora = NULL;
    size_t held = dfx_mem_held_bytes();
    recorder_clear(&dir->log);
    assert_int_equal(
        dfx_lora_open(tmpdir_join(dir, lora_name, path), configs, &dir->log.sink, &lora),
        DFX_E_FORMAT);
    said_error(&dir->log, words);
    said_error(&dir->log, lora_name);
    assert_null(lora);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static float *delta_of(const dfx_lora *lora, const dfx_lora_part *p) {
    float *down = calloc((size_t)(p->rank * p->k), sizeof(float));
    float *up = calloc((size_t)(p->n * p->rank), sizeof(float));
    float *delta = calloc((size_t)(p->n * p->k), sizeof(float));
    assert_true(down && up && delta);
    assert_int_equal(dfx_lora_factors(lora, p, NULL, down, up), DFX_OK);
    for (int64_t y = 0; y < p->n; y++)
        for (int64_t x = 0; x < p->k; x++) {
            double sum = 0;
            for (int64_t r = 0; r < p->rank; r++)
                sum += (double)up[y * p->rank + r] * (double)down[r * p->k + x];
            delta[y * p->k + x] = (float)((double)p->scale * sum);
        }
    free(down);
    free(up);
    return delta;
}

float *lora_delta(const dfx_lora *lora, dfx_component component, const char *layer) {
    const dfx_lora_part *p = dfx_lora_find(lora, component, layer);
    if (!p)
        fail_msg("no part for %s", layer);
    return delta_of(lora, p);
}

void lora_delta_is(const dfx_lora *lora, dfx_component component, const char *layer, size_t n,
                   const float *want) {
    const dfx_lora_part *p = dfx_lora_find(lora, component, layer);
    float *delta = lora_delta(lora, component, layer);
    assert_int_equal(p->n * p->k, n);
    for (size_t i = 0; i < n; i++)
        if (delta[i] != want[i])
            fail_msg("%s: delta[%zu] is %g, wanted %g", layer, i, (double)delta[i],
                     (double)want[i]);
    free(delta);
}

void lora_deltas_equal(const dfx_lora *a, const dfx_lora *b) {
    assert_int_equal(dfx_lora_n_parts(a), dfx_lora_n_parts(b));
    for (size_t i = 0; i < dfx_lora_n_parts(a); i++) {
        const dfx_lora_part *p = dfx_lora_part_at(a, i), *q = dfx_lora_part_at(b, i);
        assert_int_equal(p->component, q->component);
        assert_string_equal(p->layer, q->layer);
        assert_true(p->n == q->n && p->k == q->k);
        float *x = delta_of(a, p), *y = delta_of(b, q);
        for (int64_t j = 0; j < p->n * p->k; j++)
            if (x[j] != y[j])
                fail_msg("%s: delta[%d] is %g and %g", p->layer, (int)j, (double)x[j],
                         (double)y[j]);
        free(x);
        free(y);
    }
}
