/* See ckfile.h. */
#include "tests/ckfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <math.h>

#include "core/dtype.h"
#include "tests/ggfile.h"

void ckfile_free(ckfile *f) {
    for (size_t i = 0; i < f->n; i++)
        free(f->tensors[i].data);
    free(f->tensors);
    *f = (ckfile){0};
}

static size_t count_of(const ck_tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->shape[i];
    return n;
}

static ck_tensor *add(ckfile *f, const char *name, size_t bytes) {
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->tensors = realloc(f->tensors, f->cap * sizeof(*f->tensors));
        assert_non_null(f->tensors);
    }
    ck_tensor *t = &f->tensors[f->n++];
    *t = (ck_tensor){.bytes = bytes, .data = calloc(1, bytes + 1)};
    assert_non_null(t->data);
    assert_true(snprintf(t->name, sizeof(t->name), "%s", name) < (int)sizeof(t->name));
    return t;
}

void ckfile_add(ckfile *f, const char *name, dfx_dtype dtype, int rank, const int64_t *shape,
                const void *data) {
    ck_tensor like = {.dtype = dtype, .rank = rank};
    memcpy(like.shape, shape, (size_t)rank * sizeof(*shape));
    ck_tensor *t = add(f, name, count_of(&like) * dfx_dtype_bytes(dtype));
    t->dtype = dtype;
    t->rank = rank;
    memcpy(t->shape, like.shape, sizeof(t->shape));
    if (data)
        memcpy(t->data, data, t->bytes);
}

void ckfile_add_text(ckfile *f, const char *name, const char *text) {
    ckfile_add(f, name, DFX_DTYPE_U8, 1, (int64_t[]){(int64_t)strlen(text)}, text);
}

void ckfile_add_f32(ckfile *f, const char *name, int64_t n, const float *values) {
    ckfile_add(f, name, DFX_DTYPE_F32, 1, &n, values);
}

void ckfile_add_filled(ckfile *f, const char *name, int64_t rows, int64_t cols, float value) {
    ckfile_add(f, name, DFX_DTYPE_BF16, 2, (int64_t[]){rows, cols}, NULL);
    uint16_t *bits = f->tensors[f->n - 1].data;
    for (int64_t i = 0; i < rows * cols; i++)
        bits[i] = dfx_f32_to_bf16(value);
}

/* ---- from the tiny model ---- */

static dfx_tensors *open_component(const char *dir, const char *component) {
    char path[TMPDIR_PATH];
    dfx_tensors *set;
    bool diffusers = !strcmp(component, "transformer") || !strcmp(component, "vae");
    snprintf(path, sizeof(path), "%s/%s/%s.safetensors", dir, component,
             diffusers ? "diffusion_pytorch_model" : "model");
    assert_int_equal(dfx_tensors_open_file(path, NULL, &set), DFX_OK);
    return set;
}

static void *slurp(const dfx_tensors *set, const char *name, const dfx_tensor **tensor) {
    *tensor = dfx_tensors_find(set, name);
    if (!*tensor)
        return NULL;
    void *data = malloc((*tensor)->bytes + 1);
    assert_non_null(data);
    assert_int_equal(dfx_tensors_read(set, *tensor, NULL, data), DFX_OK);
    return data;
}

void ckfile_diffusers(ckfile *f, const char *dir, const char *component, const char *prefix) {
    dfx_tensors *set = open_component(dir, component);
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        char name[256];
        const dfx_tensor *t;
        void *data = slurp(set, dfx_tensors_at(set, i)->name, &t);
        snprintf(name, sizeof(name), "%s%s", prefix, t->name);
        ckfile_add(f, name, t->dtype, t->rank, t->shape, data);
        free(data);
    }
    dfx_tensors_close(set);
}

/* The rows of several tensors one after the other. */
static void concatenate(ckfile *f, const dfx_tensors *set, const char *name, const json_t *names) {
    ck_tensor made = {0};
    uint8_t *all = NULL;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const dfx_tensor *t;
        void *data = slurp(set, json_string_value(json_array_get(names, i)), &t);
        if (!data) /* of a guidance embedder that schnell has not */
            break;
        if (i == 0) {
            made = (ck_tensor){.dtype = t->dtype, .rank = t->rank};
            memcpy(made.shape, t->shape, sizeof(made.shape));
            made.shape[0] = 0;
        }
        all = realloc(all, made.bytes + t->bytes);
        assert_non_null(all);
        memcpy(all + made.bytes, data, t->bytes);
        made.bytes += t->bytes;
        made.shape[0] += t->shape[0];
        free(data);
    }
    if (all)
        ckfile_add(f, name, made.dtype, made.rank, made.shape, all);
    free(all);
}

static void swap_halves(ck_tensor *t) {
    size_t half = t->bytes / 2;
    void *first = malloc(half);
    assert_non_null(first);
    memcpy(first, t->data, half);
    memmove(t->data, (uint8_t *)t->data + half, half);
    memcpy((uint8_t *)t->data + half, first, half);
    free(first);
}

void ckfile_original(ckfile *f, const char *dir, const char *component, const char *prefix) {
    json_t *map = json_load_file("tests/golden/bfl_map.json", 0, NULL), *entry;
    dfx_tensors *set = open_component(dir, component);
    const char *key;
    assert_non_null(map);
    json_object_foreach(json_object_get(map, component), key, entry) {
        char name[256];
        size_t before = f->n;
        const char *op = json_string_value(json_object_get(entry, "op"));
        snprintf(name, sizeof(name), "%s%s", prefix, key);
        concatenate(f, set, name, json_object_get(entry, "cat"));
        ck_tensor *t = &f->tensors[f->n - 1];
        if (f->n == before || !op)
            continue;
        if (strcmp(op, "swap") == 0) {
            swap_halves(t);
        } else {
            assert_string_equal(op, "conv1x1");
            t->rank = 4;
            t->shape[2] = t->shape[3] = 1;
        }
    }
    dfx_tensors_close(set);
    json_decref(map);
}

/* ---- changing it ---- */

static ck_tensor *look_up(ckfile *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

ck_tensor *ckfile_find(ckfile *f, const char *name) {
    ck_tensor *t = look_up(f, name);
    if (!t)
        print_error("no tensor %s\n", name);
    assert_non_null(t);
    return t;
}

void ckfile_remove(ckfile *f, const char *name) {
    ck_tensor *t = ckfile_find(f, name);
    free(t->data);
    *t = f->tensors[--f->n];
}

void ckfile_rename(ckfile *f, const char *name, const char *to) {
    ck_tensor *t = ckfile_find(f, name);
    assert_true(snprintf(t->name, sizeof(t->name), "%s", to) < (int)sizeof(t->name));
}

void ckfile_replace(ckfile *f, const char *from, const char *to) {
    for (size_t i = 0; i < f->n; i++) {
        char name[256], *at = strstr(f->tensors[i].name, from);
        if (!at)
            continue;
        snprintf(name, sizeof(name), "%.*s%s%s", (int)(at - f->tensors[i].name), f->tensors[i].name,
                 to, at + strlen(from));
        strcpy(f->tensors[i].name, name);
    }
}

float *ckfile_values(const ck_tensor *t) {
    size_t n = count_of(t);
    float *values = malloc((n + 1) * sizeof(*values));
    assert_non_null(values);
    assert_true(dfx_to_f32(t->dtype, t->data, values, n));
    return values;
}

/* ---- other storages ---- */

/* A power of two of which every value is a whole multiple, at most 7 times. */
static float unit_of(const float *values, size_t n) {
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(values[i]));
    float unit = 1;
    while (unit * 7 < most)
        unit *= 2;
    while (unit * 3.5f >= most && most > 0)
        unit /= 2;
    for (size_t i = 0; i < n; i++)
        assert_true(values[i] == unit * rintf(values[i] / unit));
    return unit;
}

static void set_data(ck_tensor *t, dfx_dtype dtype, const void *data, size_t bytes) {
    free(t->data);
    t->data = malloc(bytes + 1);
    assert_non_null(t->data);
    memcpy(t->data, data, bytes);
    t->bytes = bytes;
    t->dtype = dtype;
}

/* "<layer><suffix>" of "<layer>.weight". */
static const char *beside(const char *weight, const char *suffix, char out[256]) {
    snprintf(out, 256, "%.*s%s", (int)(strlen(weight) - strlen(".weight")), weight, suffix);
    return out;
}

static void to_fp8(ckfile *f, const char *name, const float *values, float unit,
                   ck_storage storage) {
    ck_tensor *t = ckfile_find(f, name);
    size_t n = count_of(t);
    uint8_t *codes = malloc(n + 1);
    char other[256];
    assert_non_null(codes);
    unit = storage == CK_FP8 ? 1 : unit;
    for (size_t i = 0; i < n; i++) {
        codes[i] = dfx_f32_to_e4m3(values[i] / unit);
        assert_true(dfx_e4m3_to_f32(codes[i]) * unit == values[i]);
    }
    set_data(t, DFX_DTYPE_F8_E4M3, codes, n);
    free(codes);
    if (storage == CK_FP8)
        return;
    bool second = storage == CK_FP8_SCALED2;
    float one = 1;
    ckfile_add(f, beside(name, second ? ".weight_scale" : ".scale_weight", other), DFX_DTYPE_F32, 0,
               (int64_t[]){0}, &unit);
    ckfile_add(f, beside(name, second ? ".input_scale" : ".scale_input", other), DFX_DTYPE_F32, 0,
               (int64_t[]){0}, &one);
}

static void to_int8(ckfile *f, const char *name, const float *values, float unit,
                    ck_storage storage) {
    ck_tensor *t = ckfile_find(f, name);
    size_t n = count_of(t);
    int64_t rows = t->shape[0];
    int8_t *codes = malloc(n + 1);
    float *scales = malloc((size_t)rows * sizeof(*scales));
    char other[256];
    assert_true(codes && scales);
    for (size_t i = 0; i < n; i++)
        codes[i] = (int8_t)rintf(values[i] / unit);
    for (int64_t i = 0; i < rows; i++)
        scales[i] = storage == CK_LLM_INT8 ? 127 * unit : unit;
    set_data(t, DFX_DTYPE_I8, codes, n);
    if (storage == CK_LLM_INT8) {
        ckfile_add(f, beside(name, ".SCB", other), DFX_DTYPE_F32, 1, &rows, scales);
        ckfile_add(f, beside(name, ".weight_format", other), DFX_DTYPE_U8, 1, (int64_t[]){1}, NULL);
    } else {
        ckfile_add(f, beside(name, ".weight_scale", other), DFX_DTYPE_F32, 2, (int64_t[]){rows, 1},
                   scales);
        ckfile_add_text(f, beside(name, ".comfy_quant", other), "{\"format\":\"int8_tensorwise\"}");
    }
    free(codes);
    free(scales);
}

enum { NF4_BLOCK = 64, NESTED_BLOCK = 256 };

/* The map's entry j is (j - 7) / 8 and a block's absmax 8 units; in codes, entry 3 of 16 units times 0.25 plus an offset of 4
 * units. */
static void to_4bit(ckfile *f, const char *name, const float *values, float unit, bool nested) {
    ck_tensor *t = ckfile_find(f, name);
    size_t n = count_of(t), n_blocks = n / NF4_BLOCK,
           n_outer = (n_blocks + NESTED_BLOCK - 1) / NESTED_BLOCK;
    uint8_t *codes = calloc(1, n / 2 + 1), *absmax_codes = malloc(n_blocks);
    float map[16], outer_map[256] = {[3] = 0.25f}, *absmax = malloc(n_blocks * sizeof(*absmax));
    char other[256], state[512];
    assert_true(n % NF4_BLOCK == 0 && codes && absmax && absmax_codes);
    for (int j = 0; j < 16; j++)
        map[j] = (float)(j - 7) / 8;
    for (size_t i = 0; i < n; i++)
        codes[i / 2] |= (uint8_t)((int)rintf(values[i] / unit) + 7) << (i % 2 ? 0 : 4);
    memset(absmax_codes, 3, n_blocks);
    for (size_t i = 0; i < n_blocks; i++)
        absmax[i] = nested ? 16 * unit : 8 * unit;
    snprintf(
        state, sizeof(state),
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [%lld, "
        "%lld], \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": %.9g}",
        (long long)t->shape[0], (long long)t->shape[1], (double)(4 * unit));
    set_data(t, DFX_DTYPE_U8, codes, n / 2);
    t->shape[0] = (int64_t)n / 2;
    t->shape[1] = 1;
    ckfile_add_f32(f, beside(name, ".weight.quant_map", other), 16, map);
    ckfile_add_text(f, beside(name, ".weight.quant_state.bitsandbytes__nf4", other), state);
    if (nested) {
        ckfile_add(f, beside(name, ".weight.absmax", other), DFX_DTYPE_U8, 1,
                   (int64_t[]){(int64_t)n_blocks}, absmax_codes);
        ckfile_add_f32(f, beside(name, ".weight.nested_absmax", other), (int64_t)n_outer, absmax);
        ckfile_add_f32(f, beside(name, ".weight.nested_quant_map", other), 256, outer_map);
    } else {
        ckfile_add_f32(f, beside(name, ".weight.absmax", other), (int64_t)n_blocks, absmax);
    }
    free(codes);
    free(absmax);
    free(absmax_codes);
}

static void to_ggml(ckfile *f, const char *name, const float *values, float unit,
                    ck_storage storage) {
    ck_tensor *t = ckfile_find(f, name);
    size_t n = count_of(t), block = storage == CK_Q8_0 ? 34 : 18, bytes = n / 32 * block;
    uint8_t *blocks = calloc(1, bytes);
    uint16_t half = dfx_f32_to_f16(unit);
    assert_true(blocks && n % 32 == 0 && dfx_f16_to_f32(half) == unit);
    for (size_t i = 0; i < n; i++) {
        uint8_t *b = blocks + i / 32 * block;
        int k = (int)rintf(values[i] / unit), at = (int)(i % 32);
        memcpy(b, &half, 2);
        if (storage == CK_Q8_0)
            b[2 + at] = (uint8_t)k;
        else
            b[2 + at % 16] |= (uint8_t)((k + 8) << (at < 16 ? 0 : 4));
    }
    set_data(t, DFX_DTYPE_U8, blocks, bytes);
    t->ggml = storage == CK_Q8_0 ? 8 : 2;
    free(blocks);
}

void ckfile_encode(ckfile *f, const char *name, ck_storage storage) {
    ck_tensor *t = ckfile_find(f, name);
    char own[256];
    float *values = ckfile_values(t), unit = unit_of(values, count_of(t));
    strcpy(own, name);
    if (storage == CK_FP8 || storage == CK_FP8_SCALED || storage == CK_FP8_SCALED2)
        to_fp8(f, own, values, unit, storage);
    else if (storage == CK_INT8 || storage == CK_LLM_INT8)
        to_int8(f, own, values, unit, storage);
    else if (storage == CK_NF4 || storage == CK_NF4_NESTED)
        to_4bit(f, own, values, unit, storage == CK_NF4_NESTED);
    else
        to_ggml(f, own, values, unit, storage);
    free(values);
}

void ckfile_encode_all(ckfile *f, ck_storage storage) {
    size_t n = f->n;
    for (size_t i = 0; i < n; i++) {
        const ck_tensor *t = &f->tensors[i];
        size_t len = strlen(t->name);
        if (t->rank == 2 && t->shape[1] >= 64 && len > 7 &&
            strcmp(t->name + len - 7, ".weight") == 0)
            ckfile_encode(f, t->name, storage);
    }
}

/* ---- writing ---- */

void ckfile_write(const ckfile *f, const tmpdir *dir, const char *name) {
    json_t *header = json_object();
    size_t off = 0;
    if (f->metadata)
        json_object_set_new(header, "__metadata__", json_loads(f->metadata, 0, NULL));
    for (size_t i = 0; i < f->n; i++) {
        const ck_tensor *t = &f->tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dfx_dtype_name(t->dtype),
                                      "shape", shape, "data_offsets", (json_int_t)off,
                                      (json_int_t)(off + t->bytes)));
        off += t->bytes;
    }
    assert_int_equal(json_object_size(header), f->n + (f->metadata ? 1 : 0));
    char *text = json_dumps(header, JSON_COMPACT);
    size_t len = strlen(text), at = 8 + len;
    uint8_t *all = malloc(at + off);
    assert_non_null(all);
    for (int i = 0; i < 8; i++)
        all[i] = (uint8_t)((uint64_t)len >> 8 * i);
    memcpy(all + 8, text, len);
    for (size_t i = 0; i < f->n; at += f->tensors[i++].bytes)
        memcpy(all + at, f->tensors[i].data, f->tensors[i].bytes);
    tmpdir_write(dir, name, all, at);
    free(all);
    free(text);
    json_decref(header);
}

static uint32_t ggml_type(const ck_tensor *t) {
    return t->ggml ? t->ggml : t->dtype == DFX_DTYPE_F32 ? 0 : t->dtype == DFX_DTYPE_F16 ? 1 : 30;
}

void ckfile_write_gguf(const ckfile *f, const tmpdir *dir, const char *name,
                       const char *architecture) {
    ggfile g = {0};
    uint64_t off = 0;
    ggfile_head(&g, 3, f->n, architecture ? 1 : 0);
    if (architecture) {
        ggfile_key(&g, "general.architecture", 8);
        ggfile_text(&g, architecture);
    }
    for (size_t i = 0; i < f->n; i++) {
        const ck_tensor *t = &f->tensors[i];
        uint64_t dims[4];
        for (int d = 0; d < t->rank; d++)
            dims[d] = (uint64_t)t->shape[t->rank - 1 - d];
        ggfile_tensor(&g, t->name, ggml_type(t), off, (uint32_t)t->rank, dims);
        off += (t->bytes + 31) / 32 * 32;
    }
    ggfile_bytes(&g, NULL, (32 - g.n % 32) % 32);
    for (size_t i = 0; i < f->n; i++) {
        ggfile_bytes(&g, f->tensors[i].data, f->tensors[i].bytes);
        ggfile_bytes(&g, NULL, (32 - f->tensors[i].bytes % 32) % 32);
    }
    tmpdir_write(dir, name, g.bytes, g.n);
    ggfile_free(&g);
}
