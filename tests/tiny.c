/* See tiny.h. A weights file is written as safetensors writes it: tensors sorted by name, header
 * padded with spaces to 8 bytes. */
#include "tests/tiny.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/sink.h"

enum { PATH_BYTES = 4096 };

static void say(void *user, dfx_level level, const char *text) {
    print_error("tiny: %s\n", text);
}

static const dfx_sink sink = {.say = say};

/* ---- the rule ---- */

typedef struct rule {
    uint64_t hash;
    double step, base;
} rule;

static uint64_t hash_text(uint64_t h, const char *text) {
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return h;
}

static rule rule_of(const char *component, const char *tensor, const json_t *spec) {
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    h = hash_text(hash_text(hash_text(h, component), "/"), tensor);
    return (rule){.hash = h,
                  .step = ldexp(1, -(int)json_integer_value(json_object_get(spec, "e"))),
                  .base = json_number_value(json_object_get(spec, "base"))};
}

static float rule_value(const rule *r, uint64_t idx) {
    uint64_t z = r->hash + (idx + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    int k = (int)((z >> 32) % 15) - 7;
    return (float)(r->base + k * r->step);
}

static size_t count_of(const json_t *spec) {
    const json_t *shape = json_object_get(spec, "shape");
    size_t n = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        n *= (size_t)json_integer_value(json_array_get(shape, i));
    return n;
}

static dfx_status load_json(const char *path, json_t **out) {
    json_error_t error;
    *out = json_load_file(path, 0, &error);
    return *out ? DFX_OK : dfx_fail(&sink, DFX_E_IO, "%s: %s", path, error.text);
}

dfx_status tiny_fill(const char *component, const char *tensor, float *dst, size_t n) {
    json_t *root;
    DFX_TRY(load_json("tests/golden/weights.json", &root));
    const json_t *tensors = json_object_get(json_object_get(root, "components"), component);
    const json_t *spec = json_object_get(tensors, tensor);
    dfx_status status = DFX_OK;
    if (!spec) {
        status = dfx_fail(&sink, DFX_E_USAGE, "no tensor %s in component %s", tensor, component);
    } else if (count_of(spec) != n) {
        status = dfx_fail(&sink, DFX_E_USAGE, "%s/%s has %zu values, %zu wanted", component, tensor,
                          count_of(spec), n);
    } else {
        rule r = rule_of(component, tensor, spec);
        for (size_t i = 0; i < n; i++)
            dst[i] = rule_value(&r, i);
    }
    json_decref(root);
    return status;
}

/* ---- files ---- */

static dfx_status join(const char *dir, const char *name, char out[PATH_BYTES]) {
    int len = snprintf(out, PATH_BYTES, "%s/%s", dir, name);
    if (len < 0 || len >= PATH_BYTES)
        return dfx_fail(&sink, DFX_E_USAGE, "path too long: %s/%s", dir, name);
    return DFX_OK;
}

static dfx_status make_dir(const char *dir, const char *name, char out[PATH_BYTES]) {
    DFX_TRY(join(dir, name, out));
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        return dfx_fail(&sink, DFX_E_IO, "cannot make %s: %s", out, strerror(errno));
    return DFX_OK;
}

static dfx_status dump_json(const json_t *value, const char *dir, const char *name) {
    char path[PATH_BYTES];
    DFX_TRY(join(dir, name, path));
    if (json_dump_file(value, path, JSON_INDENT(1)) != 0)
        return dfx_fail(&sink, DFX_E_IO, "cannot write %s", path);
    return DFX_OK;
}

/* tests/golden/<model>/<part>/<name> into dir/<name>; `key`, where given, is set to `number`. */
static dfx_status copy_config(const char *model, const char *part, const char *name,
                              const char *dir, const char *key, int number) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "tests/golden/%s/%s/%s", model, part, name);
    json_t *config;
    DFX_TRY(load_json(path, &config));
    if (key)
        json_object_set_new(config, key, json_integer(number));
    dfx_status status = dump_json(config, dir, name);
    json_decref(config);
    return status;
}

static bool is_left_out(tiny_variant variant, const char *tensor) {
    return variant == TINY_SCHNELL && strstr(tensor, "guidance_embedder") != NULL;
}

/* The safetensors header: an object, kept in the order of insertion, whose keys come sorted. */
static char *header_text(json_t *tensors, const char *const *names, size_t n_names) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    size_t at = 0;
    for (size_t i = 0; i < n_names; i++) {
        json_t *spec = json_object_get(tensors, names[i]);
        size_t end = at + 2 * count_of(spec);
        json_t *entry = json_pack("{s:s, s:O, s:[I, I]}", "dtype", "BF16", "shape",
                                  json_object_get(spec, "shape"), "data_offsets", (json_int_t)at,
                                  (json_int_t)end);
        json_object_set_new(header, names[i], entry);
        at = end;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return text;
}

static bool write_header(FILE *stream, const char *text) {
    size_t len = strlen(text), padded = (len + 7) / 8 * 8;
    uint8_t size_bytes[8];
    for (int i = 0; i < 8; i++)
        size_bytes[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    return fwrite(size_bytes, 1, 8, stream) == 8 &&
           fprintf(stream, "%s%*s", text, (int)(padded - len), "") == (int)padded;
}

static bool write_values(FILE *stream, const rule *r, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = dfx_f32_to_bf16(rule_value(r, i));
        if (putc(bits & 0xFF, stream) == EOF || putc(bits >> 8, stream) == EOF)
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static dfx_status write_weights(const char *path, tiny_variant variant, const char *component,
                                json_t *tensors) {
    const char **names = calloc(json_object_size(tensors) + 1, sizeof(*names));
    if (!names)
        return dfx_fail(&sink, DFX_E_NOFIT, "no memory for the names of %s", component);
    size_t n_names = 0;
    for (void *it = json_object_iter(tensors); it; it = json_object_iter_next(tensors, it))
        if (!is_left_out(variant, json_object_iter_key(it)))
            names[n_names++] = json_object_iter_key(it);
    qsort(names, n_names, sizeof(*names), by_name);

    char *header = header_text(tensors, names, n_names);
    FILE *stream = fopen(path, "wb");
    bool done = header && stream && write_header(stream, header);
    for (size_t i = 0; done && i < n_names; i++) {
        const json_t *spec = json_object_get(tensors, names[i]);
        rule r = rule_of(component, names[i], spec);
        done = write_values(stream, &r, count_of(spec));
    }
    done = stream && fclose(stream) == 0 && done;
    free(header);
    free(names);
    return done ? DFX_OK : dfx_fail(&sink, DFX_E_IO, "cannot write %s", path);
}

static dfx_status write_part(const char *dir, tiny_variant variant, const char *component,
                             const char *key, int number) {
    bool diffusers = !strcmp(component, "transformer") || !strcmp(component, "vae");
    bool schnell = variant == TINY_SCHNELL && !strcmp(component, "transformer");
    char part[PATH_BYTES], path[PATH_BYTES];
    DFX_TRY(make_dir(dir, component, part));
    DFX_TRY(copy_config(schnell ? "tiny-schnell" : "tiny-dev", component, "config.json", part, key,
                        number));
    DFX_TRY(
        join(part, diffusers ? "diffusion_pytorch_model.safetensors" : "model.safetensors", path));
    json_t *root;
    DFX_TRY(load_json("tests/golden/weights.json", &root));
    json_t *tensors = json_object_get(json_object_get(root, "components"), component);
    dfx_status status = tensors ? write_weights(path, variant, component, tensors)
                                : dfx_fail(&sink, DFX_E_USAGE, "no component %s", component);
    json_decref(root);
    return status;
}

dfx_status tiny_write_component(const char *dir, tiny_variant variant, const char *component) {
    return write_part(dir, variant, component, NULL, 0);
}

dfx_status tiny_write_vae(const char *dir, int n_groups) {
    return write_part(dir, TINY_DEV, "vae", "norm_num_groups", n_groups);
}

dfx_status tiny_write_model(const char *dir, tiny_variant variant) {
    static const char *const components[] = {"transformer", "vae", "text_encoder",
                                             "text_encoder_2"};
    const char *model = variant == TINY_SCHNELL ? "tiny-schnell" : "tiny-dev";
    char part[PATH_BYTES];
    DFX_TRY(copy_config(model, ".", "model_index.json", dir, NULL, 0));
    DFX_TRY(make_dir(dir, "scheduler", part));
    DFX_TRY(copy_config(model, "scheduler", "scheduler_config.json", part, NULL, 0));
    for (size_t i = 0; i < DFX_COUNT(components); i++)
        DFX_TRY(tiny_write_component(dir, variant, components[i]));
    return DFX_OK;
}

bool tiny_link_tokenizers(const char *dir) {
    static const char *const names[][2] = {{"clip-l", "tokenizer"}, {"t5-xxl", "tokenizer_2"}};
    const char *base = getenv("DFX_TOKENIZERS");
    if (!base || !*base)
        return false;
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        char from[PATH_BYTES], to[PATH_BYTES], whole[PATH_BYTES];
        if (join(base, names[i][0], from) != DFX_OK || join(dir, names[i][1], to) != DFX_OK ||
            !realpath(from, whole) || symlink(whole, to) != 0)
            return false;
    }
    return true;
}
