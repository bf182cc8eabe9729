/* A file is a list of plates, one for each tensor in it: its name there, and the random tensors whose rows it holds. */
#include "tools/random_single.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "models/checkpoint_names.h"
#include "tools/random_header.h"
#include "tools/random_place.h"

enum { Q8_BLOCK = 32, Q8_BLOCK_BYTES = 34, BLOCKS_MAX = 4096, CHUNK = 4096 };

/* A tensor of a file. */
typedef struct plate {
    dfx_tensor made; /* name in arena; type and shape in the file */
    const char *component;
    const dfx_tensor *parts[DFX_SPLIT_MAX]; /* of the random weights; none: `constant` */
    int n_parts;
    bool swap;      /* the two halves of its rows trade places */
    float scale;    /* of fp8-scaled: values are divided by it. Else 1 */
    float constant; /* a tensor of one value */
} plate;

typedef struct single_run {
    dfx_random_weights *weights;
    const dfx_sink *sink;
    dfx_arena arena;
    dfx_random_stream stream;
    dfx_single_format format;
    plate *plates; /* owned; of the file at hand */
    size_t n_plates, cap_plates;
} single_run;

/* ---- values ---- */

/* Elements of the plate as bf16, found in its parts: rows one after the other. */
static void read_parts(const single_run *run, const plate *p, int64_t first, int64_t n,
                       uint16_t *dst) {
    int64_t all = (int64_t)p->made.n_elements;
    while (n > 0) {
        int64_t at = p->swap ? (first + all / 2) % all : first, most = n, skipped = 0;
        int i = 0;
        if (p->swap)
            most = all / 2 - first % (all / 2);
        while (at - skipped >= (int64_t)p->parts[i]->n_elements)
            skipped += (int64_t)p->parts[i++]->n_elements;
        int64_t left = skipped + (int64_t)p->parts[i]->n_elements - at;
        int64_t take = n < left ? n : left;
        take = take < most ? take : most;
        dfx_random_weights_read(run->weights, p->component, p->parts[i],
                                (uint64_t)(at - skipped) * 2, dst, (size_t)take * 2);
        first += take;
        n -= take;
        dst += take;
    }
}

static void encode_q8_0(const float *values, int64_t n, uint8_t *dst) {
    for (int64_t b = 0; b < n; b += Q8_BLOCK, dst += Q8_BLOCK_BYTES) {
        float absmax = 0;
        for (int i = 0; i < Q8_BLOCK; i++)
            absmax = fmaxf(absmax, fabsf(values[b + i]));
        uint16_t d = dfx_f32_to_f16(absmax / 127);
        float scale = dfx_f16_to_f32(d);
        memcpy(dst, &d, sizeof(d));
        for (int i = 0; i < Q8_BLOCK; i++) {
            float code = scale > 0 ? rintf(values[b + i] / scale) : 0;
            dst[2 + i] = (uint8_t)(int8_t)fmaxf(-127, fminf(127, code));
        }
    }
}

static void fill(void *user, const dfx_random_item *item, uint64_t off, uint8_t *dst,
                 size_t n_bytes) {
    const single_run *run = user;
    const plate *p = item->of;
    dfx_dtype_block block = dfx_dtype_block_of(p->made.dtype);
    int64_t first = (int64_t)(off / block.bytes * block.elements),
            n = (int64_t)(n_bytes / block.bytes * block.elements);
    if (p->n_parts == 0) {
        dfx_from_f32(p->made.dtype, &p->constant, dst, 1);
        return;
    }
    while (n > 0) {
        uint16_t stored[CHUNK];
        float values[CHUNK];
        int64_t take = n < CHUNK ? n : CHUNK;
        read_parts(run, p, first, take, stored);
        dfx_to_f32(DFX_DTYPE_BF16, stored, values, (size_t)take);
        for (int64_t i = 0; p->scale != 1 && i < take; i++)
            values[i] /= p->scale;
        if (p->made.dtype == DFX_DTYPE_Q8_0)
            encode_q8_0(values, take, dst);
        else
            dfx_from_f32(p->made.dtype, values, dst, (size_t)take);
        dst += dfx_dtype_size(p->made.dtype, (size_t)take);
        first += take;
        n -= take;
    }
}

/* ---- plates ---- */

static dfx_status add(single_run *run, const plate *p) {
    DFX_TRY(dfx_grow(run->sink, run->n_plates + 1, sizeof(*run->plates), "random model",
                     &run->cap_plates, (void **)&run->plates));
    run->plates[run->n_plates++] = *p;
    if (!dfx_tensor_measure(&run->plates[run->n_plates - 1].made))
        return dfx_fail(run->sink, DFX_E_INTERNAL, "random-model: tensor %s cannot be %s",
                        p->made.name, dfx_dtype_name(p->made.dtype));
    return DFX_OK;
}

static bool is_large(const plate *p) {
    return p->made.rank == 2 &&
           (strstr(p->parts[0]->name, "transformer_blocks.") ||
            strstr(p->parts[0]->name, "encoder.block.")) &&
           p->made.shape[1] % 64 == 0 && strcmp(p->component, "text_encoder") != 0;
}

/* Its greatest value becomes fp8's. */
static dfx_status add_scaled(single_run *run, plate *p) {
    char *name;
    size_t len = strlen(p->made.name) - strlen(".weight");
    p->made.dtype = DFX_DTYPE_F8_E4M3;
    p->scale = dfx_random_weights_max(run->weights, p->parts[0]) / 448;
    DFX_TRY(add(run, p));
    DFX_TRY(dfx_arena_printf(&run->arena, run->sink, &name, "%.*s.scale_weight", (int)len,
                             p->made.name));
    plate scale = {.made = {.name = name, .dtype = DFX_DTYPE_F32},
                   .component = p->component,
                   .scale = 1,
                   .constant = p->scale};
    return add(run, &scale);
}

static dfx_status add_plate(single_run *run, plate *p) {
    p->scale = 1;
    p->made.dtype =
        run->format == DFX_SINGLE_Q8_0 && p->made.rank == 1 ? DFX_DTYPE_F32 : DFX_DTYPE_BF16;
    if (is_large(p) && run->format == DFX_SINGLE_FP8_SCALED)
        return add_scaled(run, p);
    if (is_large(p) && run->format == DFX_SINGLE_FP8)
        p->made.dtype = DFX_DTYPE_F8_E4M3;
    if (is_large(p) && run->format == DFX_SINGLE_Q8_0)
        p->made.dtype = DFX_DTYPE_Q8_0;
    return add(run, p);
}

/* One original layer for block `number`: weight and bias, or a norm's scale. */
static dfx_status add_layer(single_run *run, int c, const char *prefix, const char *layer,
                            const dfx_renamed *to, bool *found) {
    static const char *const suffixes[] = {".weight", ".bias"};
    for (size_t s = 0; s < DFX_COUNT(suffixes); s++) {
        plate p = {.component = dfx_component_places[c].folder, .swap = to->swap, .n_parts = to->n};
        char name[DFX_LAYER_BYTES + 16], *own;
        int64_t rows = 0;
        for (int i = 0; i < to->n; i++) {
            snprintf(name, sizeof(name), "%s%s", to->to[i], suffixes[s]);
            p.parts[i] = dfx_tensors_find(run->weights->sets[c], name);
            rows += p.parts[i] ? p.parts[i]->shape[0] : 0;
        }
        if (!p.parts[0])
            continue;
        *found = true;
        DFX_TRY(dfx_arena_printf(&run->arena, run->sink, &own, "%s%s%s", prefix, layer,
                                 to->is_norm ? ".scale" : suffixes[s]));
        p.made = *p.parts[0];
        p.made.name = own;
        p.made.shape[0] = rows;
        DFX_TRY(add_plate(run, &p));
    }
    return DFX_OK;
}

/* By the rules that read such names, the other way. */
static dfx_status add_renamed(single_run *run, int c, dfx_names names, const char *prefix) {
    char layer[DFX_LAYER_BYTES];
    dfx_renamed to;
    for (size_t rule = 0; dfx_names_rule((dfx_component)c, names, rule, 0, layer, &to); rule++) {
        bool found = true;
        for (int number = 0; found; number++) {
            found = false;
            dfx_names_rule((dfx_component)c, names, rule, number, layer, &to);
            DFX_TRY(add_layer(run, c, prefix, layer, &to, &found));
        }
    }
    return DFX_OK;
}

static dfx_status add_as_named(single_run *run, int c, const char *prefix) {
    const dfx_tensors *set = run->weights->sets[c];
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        plate p = {
            .component = dfx_component_places[c].folder, .parts = {t}, .n_parts = 1, .made = *t};
        char *name;
        DFX_TRY(dfx_arena_printf(&run->arena, run->sink, &name, "%s%s", prefix, t->name));
        p.made.name = name;
        DFX_TRY(add_plate(run, &p));
    }
    return DFX_OK;
}

/* "This file has scaled fp8." */
static dfx_status add_marker(single_run *run, const char *prefix) {
    plate marker = {.made = {.dtype = DFX_DTYPE_F8_E4M3, .rank = 1}, .scale = 1};
    char *name;
    if (run->format != DFX_SINGLE_FP8_SCALED)
        return DFX_OK;
    DFX_TRY(dfx_arena_printf(&run->arena, run->sink, &name, "%sscaled_fp8", prefix));
    marker.made.name = name;
    return add(run, &marker);
}

static dfx_status add_component(single_run *run, int c, const char *prefix) {
    bool gguf = run->format == DFX_SINGLE_Q8_0;
    if (c == DFX_TRANSFORMER || c == DFX_T5)
        DFX_TRY(add_marker(run, prefix));
    if (c == DFX_TRANSFORMER)
        return add_renamed(run, c, DFX_NAMES_ORIGINAL, prefix);
    if (c == DFX_T5 && gguf)
        return add_renamed(run, c, DFX_NAMES_LLAMA, prefix);
    return add_as_named(run, c, prefix);
}

/* ---- files ---- */

static dfx_status write_file(single_run *run, const char *dir, const char *name,
                             const char *architecture) {
    char path[DFX_PATH_BYTES];
    dfx_random_item *items = NULL;
    const dfx_tensor **tensors = NULL;
    uint8_t *header = NULL;
    size_t n_header = 0, n = run->n_plates;
    dfx_status status = dfx_path_join(run->sink, dir, name, path);
    if (status == DFX_OK)
        status = dfx_new_array(run->sink, n, "random model", &items);
    if (status == DFX_OK)
        status = dfx_new_array(run->sink, n, "random model", &tensors);
    for (size_t i = 0; i < n && status == DFX_OK; i++) {
        const plate *p = &run->plates[i];
        tensors[i] = &p->made;
        items[i] = (dfx_random_item){
            .of = p, .bytes = p->made.bytes, .unit = dfx_dtype_block_of(p->made.dtype).bytes};
    }
    if (status == DFX_OK)
        status = architecture
                     ? dfx_gguf_header(tensors, n, architecture, run->sink, &header, &n_header)
                     : dfx_safetensors_header(tensors, n, run->sink, &header, &n_header);
    if (status == DFX_OK)
        status = dfx_random_stream_write(&run->stream, path, header, n_header, items, n, fill, run);
    dfx_free(header);
    dfx_free(tensors);
    dfx_free(items);
    run->n_plates = 0;
    return status;
}

/* VAE and CLIP are small, and bf16 in every format. */
static dfx_status write_separate(single_run *run, const char *dir) {
    dfx_single_format format = run->format;
    bool gguf = format == DFX_SINGLE_Q8_0;
    DFX_TRY(add_component(run, DFX_TRANSFORMER, ""));
    DFX_TRY(write_file(run, dir, gguf ? "flux.gguf" : "flux.safetensors", gguf ? "flux" : NULL));
    DFX_TRY(add_component(run, DFX_T5, ""));
    DFX_TRY(
        write_file(run, dir, gguf ? "t5xxl.gguf" : "t5xxl.safetensors", gguf ? "t5encoder" : NULL));
    run->format = DFX_SINGLE_BF16;
    DFX_TRY(add_component(run, DFX_CLIP, ""));
    DFX_TRY(write_file(run, dir, "clip_l.safetensors", NULL));
    DFX_TRY(add_component(run, DFX_VAE, ""));
    return write_file(run, dir, "ae.safetensors", NULL);
}

static dfx_status write_together(single_run *run, const char *dir) {
    DFX_TRY(add_component(run, DFX_TRANSFORMER, "model.diffusion_model."));
    DFX_TRY(add_component(run, DFX_T5, "text_encoders.t5xxl.transformer."));
    DFX_TRY(add_component(run, DFX_CLIP, "text_encoders.clip_l.transformer."));
    DFX_TRY(add_component(run, DFX_VAE, "vae."));
    return write_file(run, dir, "flux.safetensors", NULL);
}

static dfx_status write_tokenizers(const dfx_random_files *files, const char *dir,
                                   const dfx_sink *sink) {
    DFX_TRY(dfx_random_make_folder(dir, "tokenizer", sink));
    DFX_TRY(dfx_random_make_folder(dir, "tokenizer_2", sink));
    for (int i = 0; i < DFX_RANDOM_FILES; i++)
        if (strncmp(files->paths[i], "tokenizer", 9) == 0)
            DFX_TRY(dfx_random_write_text(dir, files->paths[i], files->texts[i], sink));
    return DFX_OK;
}

/* What the files' tensors will take. */
static dfx_status count_bytes(single_run *run, uint64_t *n_bytes) {
    dfx_single_format format = run->format;
    *n_bytes = 0;
    for (int c = 0; c < DFX_N_COMPONENTS; c++) {
        bool small = c == DFX_CLIP || c == DFX_VAE;
        run->format = small && format == DFX_SINGLE_Q8_0 ? DFX_SINGLE_BF16 : format;
        DFX_TRY(add_component(run, c, ""));
    }
    for (size_t i = 0; i < run->n_plates; i++)
        *n_bytes += run->plates[i].made.bytes;
    run->n_plates = 0;
    run->format = format;
    return DFX_OK;
}

dfx_status dfx_random_single_write(dfx_random_weights *weights, const dfx_random_files *files,
                                   const char *dir, dfx_single_layout layout,
                                   dfx_single_format format, const dfx_random_options *options,
                                   const dfx_sink *sink, uint64_t *out_bytes) {
    single_run run = {.weights = weights, .sink = sink, .format = format};
    DFX_TRY(dfx_random_check_empty(dir, sink));
    DFX_TRY(dfx_random_make_folder(dir, "", sink));
    dfx_arena_init(&run.arena, "random model");
    uint64_t all_bytes;
    dfx_status status = count_bytes(&run, &all_bytes);
    if (status == DFX_OK)
        status = dfx_random_stream_init(&run.stream, options, all_bytes, sink);
    if (status == DFX_OK)
        status = layout == DFX_SINGLE_COMFY ? write_together(&run, dir) : write_separate(&run, dir);
    if (status == DFX_OK)
        status = write_tokenizers(files, dir, sink);
    *out_bytes = run.stream.done_bytes;
    dfx_random_stream_fini(&run.stream);
    dfx_arena_fini(&run.arena);
    dfx_free(run.plates);
    return status;
}
