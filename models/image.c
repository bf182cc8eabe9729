#include "models/image.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/pixels.h"
#include "core/png.h"
#include "models/unicode.h"

dfx_status dfx_image_pixels(dfx_image *image, const float *rgb, const dfx_sink *sink) {
    size_t n = (size_t)image->width * (size_t)image->height * 3;
    DFX_TRY(dfx_new_array(sink, n, "picture", &image->rgb));
    for (size_t i = 0; i < n; i++) {
        float v = rgb[i] * 0.5f + 0.5f;
        v = v < 0 ? 0 : v > 1 ? 1 : v;
        /* 1.5 * 2^23 has no place for fractions: adding it rounds as the mode says, half to even, without a call. */
        image->rgb[i] = (uint8_t)(v * 255.0f + 0x1.8p23f - 0x1.8p23f);
    }
    return DFX_OK;
}

/* "style" of "loras/style.safetensors": as web UIs name them. */
typedef struct lora_name {
    const char *text;
    int len;
} lora_name;

static lora_name name_of(const char *path) {
    static const char extension[] = ".safetensors";
    const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
    size_t len = strlen(name), n = sizeof(extension) - 1;
    if (len > n && strcmp(name + len - n, extension) == 0)
        len -= n;
    return (lora_name){name, (int)len};
}

/* "Loras: <lora:style:0.8> <lora:face:1>, ", or nothing; the caller frees it. */
static char *loras_text(const dfx_request *r, const dfx_sink *sink) {
    size_t bytes = sizeof("Loras: , "), used = 0;
    char *text;
    for (int i = 0; i < r->n_loras; i++)
        bytes += strlen(r->loras[i].path) + 48;
    if (dfx_new_array(sink, bytes, "parameters", &text) != DFX_OK)
        return NULL;
    for (int i = 0; i < r->n_loras; i++) {
        lora_name name = name_of(r->loras[i].path);
        if (r->loras[i].strength != 0)
            used += (size_t)snprintf(text + used, bytes - used, "%s<lora:%.*s:%g>",
                                     used ? " " : "Loras: ", name.len, name.text,
                                     (double)r->loras[i].strength);
    }
    if (used)
        strcpy(text + used, ", ");
    return text;
}

/* The line that the common web UIs write and read: prompt, then "Steps: 4, Sampler: Euler, ..." */
static dfx_status make_parameters(dfx_image *image, const char *prompt, const char *loras,
                                  const char *model, const dfx_sink *sink) {
    char guidance[48] = "", reuse[64] = "", init[96] = "";
    const char *attention = image->attention_bits == 8 ? "Attention bits: 8, " : "";
    if (image->guidance > 0)
        snprintf(guidance, sizeof(guidance), "Distilled CFG Scale: %g, ", (double)image->guidance);
    if (image->reuse > 0)
        snprintf(reuse, sizeof(reuse), "Reuse: %g, Reused steps: %d, ", (double)image->reuse,
                 image->n_reused);
    if (image->strength > 0)
        snprintf(init, sizeof(init), "Denoising strength: %g, Init image hash: %016" PRIx64 ", %s",
                 image->strength, image->init_checksum, image->has_mask ? "Mask: yes, " : "");
    const char *fmt =
        "%s\nSteps: %d, Sampler: Euler, CFG scale: 1, %sSeed: %" PRIu64
        ", Size: %dx%d, Model: %s, %s%sT5 tokens: %d, %s%sRNG: CPU, Version: dfx-edge %s";
    int len = snprintf(NULL, 0, fmt, prompt, image->steps, guidance, image->seed, image->width,
                       image->height, model, init, loras, image->text_length, reuse, attention,
                       dfx_version());
    if (len < 0)
        return dfx_fail(sink, DFX_E_INTERNAL, "the picture's parameters cannot be written as text");
    DFX_TRY(dfx_new_array(sink, (size_t)len + 1, "parameters", &image->parameters));
    snprintf(image->parameters, (size_t)len + 1, fmt, prompt, image->steps, guidance, image->seed,
             image->width, image->height, model, init, loras, image->text_length, reuse, attention,
             dfx_version());
    return DFX_OK;
}

/* Seeds above 2^63 - 1 do not fit JSON integers as most readers know them: they are written as text. */
static json_t *json_seed(uint64_t seed) {
    char text[24];
    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    snprintf(text, sizeof(text), "%" PRIu64, seed);
    return json_string(text);
}

/* Of an init picture; a picture without one has none of these. */
static bool add_init(const dfx_image *image, json_t *root) {
    char checksum[32];
    snprintf(checksum, sizeof(checksum), "xxh3:%016" PRIx64, image->init_checksum);
    return image->strength == 0 ||
           (json_object_set_new(root, "strength", json_real(image->strength)) == 0 &&
            json_object_set_new(root, "init", json_string(checksum)) == 0 &&
            json_object_set_new(root, "mask", json_boolean(image->has_mask)) == 0);
}

static json_t *json_loras(const dfx_request *r) {
    json_t *list = json_array();
    for (int i = 0; list && i < r->n_loras; i++) {
        lora_name name = name_of(r->loras[i].path);
        if (r->loras[i].strength != 0 &&
            json_array_append_new(list,
                                  json_pack("{s:s%, s:f}", "name", name.text, (size_t)name.len,
                                            "strength", (double)r->loras[i].strength)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Nothing of how long it took or what it used: the same picture is the same file. */
static dfx_status make_json(dfx_image *image, const dfx_request *request, const char *prompt,
                            const char *model, const dfx_sink *sink) {
    json_t *root =
        json_pack("{s:s, s:o, s:i, s:i, s:i, s:f, s:i, s:s, s:s, s:s}", "prompt", prompt, "seed",
                  json_seed(image->seed), "width", image->width, "height", image->height, "steps",
                  image->steps, "guidance", (double)image->guidance, "text_length",
                  image->text_length, "sampler", "euler", "model", model, "version", dfx_version());
    json_t *loras = json_loras(request);
    bool good = root && loras;
    if (good && json_array_size(loras) > 0)
        good = json_object_set(root, "loras", loras) == 0;
    if (good && image->reuse > 0)
        good = json_object_set_new(root, "reuse", json_real((double)image->reuse)) == 0 &&
               json_object_set_new(root, "reused_steps", json_integer(image->n_reused)) == 0;
    if (good && image->attention_bits == 8)
        good = json_object_set_new(root, "attention_bits", json_integer(8)) == 0;
    good = good && add_init(image, root);
    char *text = good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(loras);
    json_decref(root);
    if (text)
        image->json = dfx_strdup(text, "parameters");
    free(text);
    return image->json ? DFX_OK
                       : dfx_fail(sink, DFX_E_NOFIT, "out of memory writing the picture's JSON");
}

dfx_status dfx_image_describe(dfx_image *image, const dfx_request *request, const char *model,
                              const dfx_sink *sink) {
    char *clean, *loras = loras_text(request, sink);
    size_t bytes;
    if (!loras)
        return DFX_E_NOFIT;
    dfx_status status =
        dfx_utf8_repair(request->prompt, strlen(request->prompt), sink, &clean, &bytes);
    if (status == DFX_OK) {
        status = make_parameters(image, clean, loras, model, sink);
        if (status == DFX_OK)
            status = make_json(image, request, clean, model, sink);
        dfx_free(clean);
    }
    dfx_free(loras);
    return status;
}

void dfx_image_free(dfx_image *image) {
    dfx_free(image->rgb);
    dfx_free(image->parameters);
    dfx_free(image->json);
    *image = (dfx_image){0};
}

dfx_status dfx_image_encode_png(const dfx_image *image, const dfx_sink *sink, uint8_t **out,
                                size_t *out_bytes) {
    const dfx_png_text texts[] = {{"parameters", image->parameters}, {"dfx-edge", image->json}};
    return dfx_png_encode(sink, image->rgb, (uint32_t)image->width, (uint32_t)image->height, texts,
                          image->plain ? 0 : DFX_COUNT(texts), out, out_bytes);
}

dfx_status dfx_image_save_png(const dfx_image *image, const char *path, const dfx_sink *sink) {
    dfx_file_writer writer;
    uint8_t *png;
    size_t bytes;
    DFX_TRY(dfx_image_encode_png(image, sink, &png, &bytes));
    dfx_status status = dfx_file_write_begin(path, sink, &writer);
    if (status == DFX_OK) {
        status = dfx_file_write(&writer, sink, png, bytes);
        if (status == DFX_OK)
            status = dfx_file_write_commit(&writer, sink);
        else
            dfx_file_write_abort(&writer);
    }
    dfx_free(png);
    return status;
}

static dfx_status read_picture(const char *path, bool grey, const dfx_sink *sink, uint8_t **values,
                               int *width, int *height) {
    dfx_pixels pixels;
    DFX_TRY(dfx_pixels_read(path, sink, &pixels));
    if (grey)
        dfx_pixels_to_grey(&pixels);
    *values = pixels.values;
    *width = (int)pixels.width;
    *height = (int)pixels.height;
    return DFX_OK;
}

dfx_status dfx_picture_read_rgb(const char *path, const dfx_sink *sink, uint8_t **values,
                                int *width, int *height) {
    return read_picture(path, false, sink, values, width, height);
}

dfx_status dfx_picture_read_grey(const char *path, const dfx_sink *sink, uint8_t **values,
                                 int *width, int *height) {
    return read_picture(path, true, sink, values, width, height);
}
