/* How one weight is stored, told by the tensors beside it. What is not understood is an error that names the layer: a weight whose
 * scale was overlooked would be finite, 1000 times too large, and run.
 *
 *   X.weight with       is
 *   nothing             its values; fp8 only where the component has no scales at all
 *   X.scale_weight or X.weight_scale      codes * scale: F8, or I8 with one scale or one a row
 *   X.SCB               I8 * SCB[row] / 127 (LLM.int8)
 *   X.weight.absmax     4 bits (bitsandbytes NF4, FP4), the absmax maybe in codes itself
 *   X.comfy_quant, or the file's _quantization_metadata: says which, and whether rotated */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/checkpoint_internal.h"
#include "quant/q_nf4.h"

enum { HINT_BYTES_MAX = 4096, GROUP_USUAL = 256, GROUP_MAX = 4096, SMALL_VALUES_MAX = 1 << 24 };

/* A weight being described. */
typedef struct subject {
    dfx_checkpoint *c;
    const dfx_part *part;
    dfx_source *source;
    const dfx_tensor *weight;
    char layer[DFX_LAYER_BYTES]; /* full name without ".weight" */
    dfx_storage *s;
    json_t *hint; /* owned; what the file says of the layer, or NULL */
} subject;

static const char *const PARTS[] = {
    ".scale_weight",   ".weight_scale", ".scale_input",   ".input_scale",     ".comfy_quant",
    ".weight_scale_2", ".SCB",          ".weight_format", ".pre_quant_scale", ".absmax",
    ".nested_absmax",  ".quant_map",    ".weight_scale",  ".nested_quant_map"};

bool dfx_storage_is_part(const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i < DFX_COUNT(PARTS); i++) {
        size_t n = strlen(PARTS[i]);
        if (len > n && strcmp(name + len - n, PARTS[i]) == 0)
            return true;
    }
    return strstr(name, ".quant_state.bitsandbytes__") != NULL;
}

static const dfx_tensor *beside(const subject *x, const char *suffix) {
    return dfx_source_take(x->source, x->layer, suffix);
}

static dfx_status wrong(const subject *x, const char *what) {
    char name[DFX_SHAPE_TEXT], shape[DFX_SHAPE_TEXT];
    snprintf(name, sizeof(name), "%.150s", x->layer);
    return dfx_fail(x->c->sink, DFX_E_FORMAT, "%s: layer %s: %s (weight %s)", x->source->path, name,
                    what, dfx_tensor_shape_text(x->weight, shape));
}

/* All values of a small tensor, finite. */
static dfx_status read_small(const subject *x, const dfx_tensor *t, const float **out) {
    float *values;
    if (t->n_elements > SMALL_VALUES_MAX || !dfx_dtype_is_numeric(t->dtype))
        return wrong(x, "its scales are no numbers");
    DFX_TRY(dfx_arena_alloc(&x->c->arena, x->c->sink, t->n_elements * sizeof(*values),
                            (void **)&values));
    DFX_TRY(dfx_tensors_read_f32(x->source->set, t, x->c->sink, values));
    for (uint64_t i = 0; i < t->n_elements; i++)
        if (!isfinite(values[i]))
            return wrong(x, "a scale is not finite");
    *out = values;
    return DFX_OK;
}

/* ---- hints ---- */

static dfx_status read_hint_tensor(subject *x, const dfx_tensor *t) {
    char text[HINT_BYTES_MAX], label[DFX_LAYER_BYTES + 16];
    if (t->bytes == 0 || t->bytes > sizeof(text))
        return wrong(x, "its comfy_quant is no description of 1 to 4096 bytes");
    DFX_TRY(dfx_tensors_read(x->source->set, t, x->c->sink, text));
    snprintf(label, sizeof(label), "%s.comfy_quant", x->layer);
    return dfx_json_parse(text, t->bytes, label, x->c->sink, &x->hint);
}

/* Layers are called by their names in the file, or without the prefix, or with one that the tensors no longer have. */
static json_t *hint_of_file(const subject *x) {
    const char *prefix = x->part->found.prefix, *key;
    bool inside = strncmp(x->layer, prefix, strlen(prefix)) == 0;
    const char *bare = x->layer + (inside ? strlen(prefix) : 0);
    json_t *value, *exact = json_object_get(x->source->layers, x->layer);
    if (exact)
        return exact;
    size_t n = strlen(bare);
    json_object_foreach(x->source->layers, key, value) {
        size_t len = strlen(key);
        if (len >= n && strcmp(key + len - n, bare) == 0 && (len == n || key[len - n - 1] == '.'))
            return value;
    }
    return NULL;
}

static dfx_status find_hint(subject *x) {
    const dfx_tensor *t = beside(x, ".comfy_quant");
    if (t)
        DFX_TRY(read_hint_tensor(x, t));
    else if (x->source->layers)
        x->hint = json_incref(hint_of_file(x));
    if (x->hint && !json_is_object(x->hint))
        return wrong(x, "the description of its quantization is no JSON object");
    return DFX_OK;
}

/* The type of the codes as the hint has it; the tensor's own where it says nothing. */
static dfx_status follow_hint(subject *x) {
    static const struct {
        const char *format;
        dfx_dtype dtype;
    } known[] = {{"float8_e4m3fn", DFX_DTYPE_F8_E4M3},
                 {"float8_e5m2", DFX_DTYPE_F8_E5M2},
                 {"int8_tensorwise", DFX_DTYPE_I8}};
    dfx_storage *s = x->s;
    char text[128];
    if (!x->hint)
        return DFX_OK;
    const char *format = json_string_value(json_object_get(x->hint, "format"));
    size_t i = 0;
    while (i < DFX_COUNT(known) && (!format || strcmp(format, known[i].format) != 0))
        i++;
    snprintf(text, sizeof(text), "the format \"%.60s\" is not read", format ? format : "(none)");
    if (i == DFX_COUNT(known))
        return wrong(x, text);
    if (dfx_dtype_bytes(s->code_dtype) != 1)
        return wrong(x, "it is said to have codes of 8 bits");
    s->code_dtype = known[i].dtype;
    s->full_precision = json_is_true(json_object_get(x->hint, "full_precision_matrix_mult"));
    if (!json_is_true(json_object_get(x->hint, "convrot")))
        return DFX_OK;
    json_t *group = json_object_get(x->hint, "convrot_groupsize");
    s->group = json_is_integer(group) ? json_integer_value(group) : GROUP_USUAL;
    s->kind = DFX_STORE_ROTATED;
    int64_t power = 4;
    while (power < s->group)
        power *= 4;
    if (power != s->group || s->group > GROUP_MAX || s->rank != 2 || s->shape[1] % s->group != 0)
        return wrong(x, "its rotation is of no group of 4, 16, 64 ... inputs");
    return DFX_OK;
}

/* ---- scales ---- */

/* Both spellings may be there if they say the same. */
static dfx_status find_scale(const subject *x, const float **scales, int64_t *n_scales) {
    const dfx_tensor *a = beside(x, ".scale_weight"), *b = beside(x, ".weight_scale");
    const dfx_tensor *scale = a ? a : b;
    const float *other;
    *n_scales = 0;
    if (beside(x, ".weight_scale_2") || beside(x, ".pre_quant_scale"))
        return wrong(x, "scales of blocks (nvfp4) are not read");
    beside(x, ".scale_input"); /* of activations, which get scales of their own here */
    beside(x, ".input_scale");
    if (!scale)
        return DFX_OK;
    DFX_TRY(read_small(x, scale, scales));
    *n_scales = (int64_t)scale->n_elements;
    if (!a || !b)
        return DFX_OK;
    DFX_TRY(read_small(x, b, &other));
    if (a->n_elements != b->n_elements ||
        memcmp(*scales, other, a->n_elements * sizeof(**scales)) != 0)
        return wrong(x, "scale_weight and weight_scale say different things");
    return DFX_OK;
}

static dfx_status use_row_absmax(const subject *x, const dfx_tensor *scb) {
    const float *absmax;
    float *scales;
    beside(x, ".weight_format");
    if (x->s->code_dtype != DFX_DTYPE_I8)
        return wrong(x, "it has the SCB of LLM.int8 and is no I8");
    DFX_TRY(read_small(x, scb, &absmax));
    DFX_TRY(dfx_arena_alloc(&x->c->arena, x->c->sink, scb->n_elements * sizeof(*scales),
                            (void **)&scales));
    for (uint64_t i = 0; i < scb->n_elements; i++)
        scales[i] = absmax[i] / 127.0f;
    x->s->scales = scales;
    x->s->n_scales = (int64_t)scb->n_elements;
    return DFX_OK;
}

static bool is_fp8(dfx_dtype dtype) {
    return dtype == DFX_DTYPE_F8_E4M3 || dtype == DFX_DTYPE_F8_E5M2;
}

/* Embeddings are looked up, not multiplied; writers of scaled fp8 leave them out. */
static bool is_table(const char *layer) {
    return strstr(layer, "embed") != NULL || strstr(layer, "shared") != NULL ||
           strstr(layer, "relative_attention_bias") != NULL;
}

static dfx_status describe_scaled(subject *x) {
    dfx_storage *s = x->s;
    const dfx_tensor *scb = beside(x, ".SCB");
    DFX_TRY(find_scale(x, &s->scales, &s->n_scales));
    if (scb)
        DFX_TRY(use_row_absmax(x, scb));
    bool coded = is_fp8(s->code_dtype) || s->code_dtype == DFX_DTYPE_I8;
    if (s->n_scales > 0 && !coded)
        return wrong(x, "it has a scale, and its weight is no codes of 8 bits");
    if (s->n_scales == 0 && s->code_dtype == DFX_DTYPE_I8)
        return wrong(x, "its weight is I8 and there is no scale beside it");
    if (s->code_dtype == DFX_DTYPE_U8)
        return wrong(x, "its weight is U8, and nothing says what these bytes mean");
    if (s->n_scales == 0 && is_fp8(s->code_dtype) && s->rank == 2 &&
        (x->part->scaled_marker || x->hint) && !is_table(x->layer))
        return wrong(x, "its weight is fp8 without a scale, in a file of scaled fp8");
    if (s->n_scales == 0)
        return DFX_OK;
    if (s->rank < 1 || (s->n_scales != 1 && s->n_scales != s->shape[0]))
        return wrong(x, "wanted one scale, or one for each row");
    if (s->kind == DFX_STORE_PLAIN)
        s->kind = DFX_STORE_SCALED;
    return DFX_OK;
}

/* ---- bitsandbytes ---- */

static dfx_status read_state(const subject *x, const json_t *state, bool nested) {
    dfx_storage *s = x->s;
    json_t *shape, *side;
    double offset = 0;
    size_t i;
    DFX_TRY(
        dfx_json_int(state, x->layer, "blocksize", 2, DFX_STORAGE_CHUNK, x->c->sink, &s->block));
    DFX_TRY(dfx_json_array(state, x->layer, "shape", x->c->sink, &shape));
    if (json_array_size(shape) > DFX_TENSOR_RANK_MAX || (s->block & (s->block - 1)) != 0)
        return wrong(x, "its quant_state has no shape and block that can be");
    s->rank = (int)json_array_size(shape);
    dfx_tensor logical = {.dtype = DFX_DTYPE_U8, .rank = s->rank};
    json_array_foreach(shape, i, side) {
        s->shape[i] = logical.shape[i] = json_integer_value(side);
        if (s->shape[i] < 1)
            return wrong(x, "its quant_state has no shape");
    }
    if (!dfx_tensor_measure(&logical) || (logical.n_elements + 1) / 2 != x->weight->bytes ||
        (logical.n_elements + (uint64_t)s->block - 1) / (uint64_t)s->block != s->absmax->n_elements)
        return wrong(x, "the shape in its quant_state is not that of its codes and their absmax");
    if (!nested)
        return DFX_OK;
    DFX_TRY(dfx_json_int(state, x->layer, "nested_blocksize", 1, 1 << 20, x->c->sink,
                         &s->nested_block));
    DFX_TRY(dfx_json_real(state, x->layer, "nested_offset", x->c->sink, &offset));
    s->nested_offset = (float)offset;
    return DFX_OK;
}

static dfx_status describe_nested(const subject *x) {
    const dfx_tensor *absmax = beside(x, ".weight.nested_absmax"),
                     *map = beside(x, ".weight.nested_quant_map");
    dfx_storage *s = x->s;
    if (!absmax || !map || map->n_elements != DFX_NF4_NESTED_MAP)
        return wrong(x, "its absmax is codes, and what they mean is not beside it");
    DFX_TRY(read_small(x, absmax, &s->nested_absmax));
    DFX_TRY(read_small(x, map, &s->nested_map));
    if ((int64_t)absmax->n_elements * s->nested_block < (int64_t)s->absmax->n_elements)
        return wrong(x, "its nested_absmax is too short");
    return DFX_OK;
}

static dfx_status describe_4bit(subject *x) {
    const dfx_tensor *state = beside(x, ".weight.quant_state.bitsandbytes__nf4"),
                     *map = beside(x, ".weight.quant_map");
    dfx_storage *s = x->s;
    char text[HINT_BYTES_MAX];
    json_t *json;
    if (!state)
        state = beside(x, ".weight.quant_state.bitsandbytes__fp4");
    if (!state || !map || state->bytes > sizeof(text) || map->n_elements != DFX_NF4_MAP ||
        x->weight->dtype != DFX_DTYPE_U8)
        return wrong(x, "it has an absmax, and not all else that 4 bits of bitsandbytes have");
    s->kind = DFX_STORE_4BIT;
    DFX_TRY(read_small(x, map, &s->quant_map));
    DFX_TRY(dfx_tensors_read(x->source->set, state, x->c->sink, text));
    DFX_TRY(dfx_json_parse(text, state->bytes, x->layer, x->c->sink, &json));
    bool nested = s->absmax->dtype == DFX_DTYPE_U8;
    dfx_status status = read_state(x, json, nested);
    json_decref(json);
    if (status == DFX_OK && !nested && s->absmax->dtype != DFX_DTYPE_F32)
        return wrong(x, "its absmax is neither F32 nor U8");
    return status == DFX_OK && nested ? describe_nested(x) : status;
}

static dfx_status describe_weight(subject *x) {
    if ((x->s->absmax = beside(x, ".weight.absmax")))
        return describe_4bit(x);
    DFX_TRY(find_hint(x));
    DFX_TRY(follow_hint(x));
    return describe_scaled(x);
}

dfx_status dfx_storage_describe(dfx_checkpoint *c, const dfx_part *part, const dfx_tensor *tensor,
                                dfx_storage *out) {
    static const char weight[] = ".weight";
    size_t len = strlen(tensor->name), n = sizeof(weight) - 1;
    subject x = {.c = c, .part = part, .source = part->source, .weight = tensor, .s = out};
    *out = (dfx_storage){.codes = tensor, .code_dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(out->shape, tensor->shape, sizeof(out->shape));
    dfx_source_use(part->source, tensor);
    if (len <= n || strcmp(tensor->name + len - n, weight) != 0 || len - n >= sizeof(x.layer))
        return DFX_OK;
    memcpy(x.layer, tensor->name, len - n);
    dfx_status status = describe_weight(&x);
    json_decref(x.hint);
    out->full_precision |= part->full_precision;
    return status;
}
