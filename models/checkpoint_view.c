/* A component out of one file: for every tensor that diffusers knows a recipe, which names the source's tensor and the rows of it.
 * Reading follows the recipe. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/checkpoint_internal.h"
#include "quant/q_policy.h"

/* A part being made. */
typedef struct maker {
    dfx_checkpoint *c;
    dfx_component component;
    dfx_part *part;
    dfx_source *source;
    int n_levels;  /* of a VAE */
    int64_t width; /* of a FLUX transformer with BFL's names */
} maker;

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with) {
    size_t len = strlen(text), n = strlen(with);
    return len >= n && strcmp(text + len - n, with) == 0;
}

/* ---- what a tensor becomes ---- */

/* Would the policy make codes of it? */
static bool is_large_matrix(const maker *m, const char *name, const dfx_tensor *made) {
    char full[DFX_LAYER_BYTES + 32];
    dfx_q_policy policy = {.target = DFX_Q_INT8, .kept = DFX_Q_STORED};
    dfx_q_tensor t = {
        .name = full, .dtype = DFX_DTYPE_BF16, .shape = made->shape, .n_dims = made->rank};
    snprintf(full, sizeof(full), "%s.%s", dfx_component_places[m->component].folder, name);
    return dfx_q_policy_format(&policy, &t) == DFX_Q_INT8;
}

/* Codes that a page can hold as they are, and that nobody wants otherwise. */
static bool keeps_codes(const maker *m, const dfx_storage *s) {
    dfx_qformat q = m->c->options.quant;
    if (s->full_precision || s->kind == DFX_STORE_ROTATED || s->kind == DFX_STORE_4BIT)
        return false;
    bool any = m->c->options.automatic || q == DFX_Q_STORED;
    if (s->code_dtype == DFX_DTYPE_F8_E4M3)
        return any || q == DFX_Q_FP8;
    return s->code_dtype == DFX_DTYPE_I8 && s->n_scales > 0 &&
           (any || q == DFX_Q_INT8 || q == DFX_Q_INT8WO);
}

static bool is_wide(dfx_dtype dtype) {
    return dtype == DFX_DTYPE_F32 || dtype == DFX_DTYPE_BF16 || dtype == DFX_DTYPE_F16 ||
           dtype == DFX_DTYPE_F64;
}

/* What is not a wide type becomes bf16; f32 on its way to codes, so that it is rounded once. */
static dfx_dtype type_of(const maker *m, const dfx_storage *s, bool large) {
    if (s->kind == DFX_STORE_PLAIN &&
        (is_wide(s->code_dtype) || !dfx_dtype_is_numeric(s->code_dtype)))
        return s->code_dtype;
    bool coded = dfx_q_has_row_scale(m->part->target);
    return (large && coded) || m->part->target == DFX_Q_F32 ? DFX_DTYPE_F32 : DFX_DTYPE_BF16;
}

static dfx_status add(maker *m, const dfx_recipe *recipe) {
    dfx_part *p = m->part;
    DFX_TRY(dfx_grow(m->c->sink, p->n_recipes + 1, sizeof(*p->recipes), "checkpoint",
                     &p->cap_recipes, (void **)&p->recipes));
    p->recipes[p->n_recipes++] = *recipe;
    return DFX_OK;
}

/* The scales of `codes`, one for each row, as our codes have them. */
static dfx_status add_scales(maker *m, const dfx_recipe *codes) {
    dfx_recipe r = *codes;
    char *name;
    DFX_TRY(dfx_arena_printf(&m->c->arena, m->c->sink, &name, "%s_scale", codes->made.name));
    r.is_scale = true;
    r.made = (dfx_tensor){.name = name,
                          .dtype = DFX_DTYPE_F32,
                          .rank = 1,
                          .shape = {codes->made.shape[0]},
                          .file_idx = DFX_TENSOR_NO_FILE};
    dfx_tensor_measure(&r.made);
    return add(m, &r);
}

/* A linear layer's weight may be a convolution of 1x1. */
static void flatten(const maker *m, const char *name, dfx_tensor *made) {
    if (m->component == DFX_VAE && strstr(name, ".attentions.") && made->rank == 4 &&
        made->shape[2] == 1 && made->shape[3] == 1)
        made->rank = 2;
}

static dfx_status add_recipe(maker *m, const dfx_storage *s, const char *name, int64_t row0,
                             int64_t n_rows, bool swap) {
    dfx_recipe r = {.from = s, .row0 = row0, .half = swap ? n_rows / 2 : 0};
    char *copy;
    DFX_TRY(dfx_arena_text(&m->c->arena, m->c->sink, name, strlen(name), &copy));
    r.made = (dfx_tensor){.name = copy, .rank = s->rank, .file_idx = DFX_TENSOR_NO_FILE};
    memcpy(r.made.shape, s->shape, sizeof(r.made.shape));
    if (s->rank > 0)
        r.made.shape[0] = n_rows;
    flatten(m, name, &r.made);
    bool large = is_large_matrix(m, name, &r.made), kept = large && keeps_codes(m, s);
    r.made.dtype = kept ? s->code_dtype : type_of(m, s, large);
    if (!dfx_tensor_measure(&r.made))
        return dfx_fail(m->c->sink, DFX_E_FORMAT, "%s: tensor %s is too large", m->source->path,
                        name);
    DFX_TRY(add(m, &r));
    return kept ? add_scales(m, &r) : DFX_OK;
}

/* Rows of `n` layers that lie one after the other: q, k, v of equal size, then what is left. */
static dfx_status add_split(maker *m, const dfx_storage *s, const dfx_renamed *to,
                            const char *suffix) {
    int64_t rows = s->rank > 0 ? s->shape[0] : 1, row = 0;
    bool even = to->n == 3;
    int64_t each = to->n == 1 ? rows : even ? rows / 3 : m->width;
    if ((even && rows % 3 != 0) || (to->n == 4 && rows <= 3 * m->width) ||
        (to->swap && rows % 2 != 0))
        return dfx_fail(m->c->sink, DFX_E_FORMAT,
                        "%s: tensor \"%.200s\" has %" PRId64 " rows, which are no %s",
                        m->source->path, s->codes->name, rows,
                        to->swap ? "two halves"
                        : even   ? "q, k and v"
                                 : "q, k, v and MLP");
    for (int i = 0; i < to->n; i++) {
        char name[DFX_LAYER_BYTES + 16];
        int64_t n = i == to->n - 1 ? rows - row : each;
        snprintf(name, sizeof(name), "%s%s", to->to[i], to->is_norm ? ".weight" : suffix);
        DFX_TRY(add_recipe(m, s, name, row, n, to->swap));
        row += n;
    }
    return DFX_OK;
}

/* ---- which tensors there are ---- */

bool dfx_name_is_idle(const char *name) {
    static const char *const endings[] = {
        "position_ids",    "logit_scale", "text_projection.weight",
        "text_projection", "scaled_fp8",  "spiece_model"};
    for (size_t i = 0; i < DFX_COUNT(endings); i++)
        if (ends(name, endings[i]))
            return true;
    return false;
}

/* The last part of a name that says what of a layer it is. */
static const char *suffix_of(const char *name) {
    static const char *const suffixes[] = {".weight", ".bias", ".scale"};
    for (size_t i = 0; i < DFX_COUNT(suffixes); i++)
        if (ends(name, suffixes[i]))
            return suffixes[i];
    return "";
}

/* Copies of the embedding: one is taken, and they must be the same. */
static bool is_second_embedding(const maker *m, const char *name) {
    return m->component == DFX_T5 && strcmp(name, "encoder.embed_tokens.weight") == 0;
}

/* Something else beside the component: of a text encoder what FLUX has no use for, one line of each. */
static bool is_other_half(const maker *m, const char *name, const char **text) {
    *text = NULL;
    if (m->component == DFX_CLIP && (strstr(name, "vision_model.") || begins(name, "visual")))
        *text = "a vision tower";
    else if (m->component == DFX_T5 &&
             (begins(name, "decoder.") || begins(name, "dec.") || begins(name, "lm_head") ||
              strcmp(name, "output.weight") == 0))
        *text = "a decoder";
    return *text != NULL;
}

static dfx_status add_tensor(maker *m, const dfx_tensor *t, const char *name) {
    const char *suffix = suffix_of(name);
    char layer[DFX_LAYER_BYTES];
    dfx_renamed to = {0};
    dfx_storage *s;
    size_t len = strlen(name) - strlen(suffix);
    if (len >= sizeof(layer))
        return DFX_OK;
    memcpy(layer, name, len);
    layer[len] = 0;
    if (*suffix)
        dfx_names_map(m->component, m->part->found.names, layer, m->n_levels, &to);
    if (is_second_embedding(m, name)) {
        strcpy(to.to[0], "shared");
        to.n = 1;
    }
    if (to.n == 0 && !m->source->is_folder)
        return DFX_OK;
    if (to.n ==
        0) { /* a folder's are taken along under their own names; who packs says that nobody reads them */
        snprintf(to.to[0], DFX_LAYER_BYTES, "%s", layer);
        to.n = 1;
    }
    DFX_TRY(dfx_arena_alloc(&m->c->arena, m->c->sink, sizeof(*s), (void **)&s));
    DFX_TRY(dfx_storage_describe(m->c, m->part, t, s));
    return add_split(m, s, &to, suffix);
}

static int count_levels(const dfx_source *source, const dfx_found *found) {
    int n = 0;
    char name[DFX_PREFIX_BYTES + 64];
    do
        snprintf(name, sizeof(name), "%sdecoder.up.%d.block.0.norm1.weight", found->prefix, n++);
    while (dfx_tensors_find(source->set, name));
    return n - 1;
}

static int64_t count_rows(const dfx_source *source, const char *prefix, const char *name) {
    char full[DFX_PREFIX_BYTES + 64];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    const dfx_tensor *t = dfx_tensors_find(source->set, full);
    return t && t->rank == 1 ? t->shape[0] : 0;
}

/* ---- checks of the whole ---- */

/* The same bytes, read side by side. */
static dfx_status compare(const maker *m, const dfx_tensor *a, const dfx_tensor *b, bool *same) {
    enum { PIECE = 1 << 20 };
    dfx_mem both;
    *same = a->dtype == b->dtype && a->bytes == b->bytes;
    if (!*same)
        return DFX_OK;
    DFX_TRY(dfx_mem_alloc(m->c->sink, 2 * PIECE, "checkpoint", &both));
    dfx_status status = DFX_OK;
    uint8_t *x = both.ptr, *y = x + PIECE;
    for (uint64_t at = 0; at < a->bytes && *same && status == DFX_OK; at += PIECE) {
        size_t n = a->bytes - at < PIECE ? (size_t)(a->bytes - at) : PIECE;
        status = dfx_tensors_read_part(m->source->set, a, at, n, m->c->sink, x);
        if (status == DFX_OK)
            status = dfx_tensors_read_part(m->source->set, b, at, n, m->c->sink, y);
        *same = memcmp(x, y, n) == 0;
    }
    dfx_mem_free(&both);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const dfx_recipe *)a)->made.name, ((const dfx_recipe *)b)->made.name);
}

/* Of T5's embedding and its copy one recipe stays. Both are called `shared.weight` by now. */
static dfx_status drop_copy(maker *m) {
    dfx_part *p = m->part;
    bool same;
    for (size_t i = 1; i < p->n_recipes; i++) {
        const dfx_recipe *a = &p->recipes[i - 1], *b = &p->recipes[i];
        if (strcmp(b->made.name, "shared.weight") != 0 || by_name(a, b) != 0)
            continue;
        DFX_TRY(compare(m, a->from->codes, b->from->codes, &same));
        if (!same)
            return dfx_fail(m->c->sink, DFX_E_FORMAT,
                            "%s: \"%s\" and \"%s\" differ, and only one can be the embedding",
                            m->source->path, a->from->codes->name, b->from->codes->name);
        p->n_recipes--;
        memmove(&p->recipes[i], &p->recipes[i + 1], (p->n_recipes - i) * sizeof(*p->recipes));
        return DFX_OK;
    }
    return DFX_OK;
}

static dfx_status seal(maker *m) {
    dfx_part *p = m->part;
    qsort(p->recipes, p->n_recipes, sizeof(*p->recipes), by_name);
    if (m->component == DFX_T5)
        DFX_TRY(drop_copy(m));
    DFX_TRY(dfx_tensors_new_view(m->source->set, m->c->sink, &p->view));
    for (size_t i = 0; i < p->n_recipes; i++)
        DFX_TRY(dfx_tensors_add(p->view, &p->recipes[i].made, m->c->sink));
    return dfx_tensors_seal(p->view, m->c->sink);
}

static void list_types(dfx_part *p) {
    bool seen[DFX_N_DTYPES] = {false};
    bool four = false;
    size_t used = 0;
    for (size_t i = 0; i < p->n_recipes; i++) {
        const dfx_storage *s = p->recipes[i].from;
        bool *is_seen = s->kind == DFX_STORE_4BIT ? &four : &seen[s->code_dtype];
        if (s->rank >= 2 && !*is_seen && used < sizeof(p->types))
            used += (size_t)snprintf(
                p->types + used, sizeof(p->types) - used, "%s%s", used ? ", " : "",
                s->kind == DFX_STORE_4BIT ? "bitsandbytes 4 bits" : dfx_dtype_name(s->code_dtype));
        *is_seen |= s->rank >= 2;
    }
}

/* ---- the source as a whole ---- */

/* What is true of all weights of the component: marks of scaled fp8, blocks, and so what the large ones become. */
static void survey(maker *m) {
    dfx_part *p = m->part;
    const dfx_checkpoint_options *o = &m->c->options;
    size_t n = strlen(p->found.prefix);
    for (size_t i = 0; i < dfx_tensors_count(m->source->set); i++) {
        const dfx_tensor *t = dfx_tensors_at(m->source->set, i);
        bool marker = ends(t->name, "scaled_fp8");
        size_t len = marker ? strlen(t->name) - strlen("scaled_fp8") : 0;
        if (marker && len <= n && strncmp(t->name, p->found.prefix, len) == 0) {
            p->scaled_marker = true;
            p->full_precision = t->n_elements == 2;
            dfx_source_use(m->source, t);
        }
        if (strncmp(t->name, p->found.prefix, n) != 0)
            continue;
        p->scaled_marker |= ends(t->name, ".scale_weight") || ends(t->name, ".weight_scale");
        p->is_blocks |= dfx_dtype_is_ggml(t->dtype) || ends(t->name, ".weight.absmax");
    }
    p->target = o->automatic && o->quant == DFX_Q_STORED && p->is_blocks ? DFX_Q_INT8WO : o->quant;
}

static void say_left(const maker *m, const char *half) {
    if (half)
        dfx_info(m->c->sink, "%s: %s is in it too, which FLUX has no use for", m->source->path,
                 half);
}

static dfx_status add_all(maker *m) {
    const char *prefix = m->part->found.prefix, *half = NULL, *other;
    size_t n = strlen(prefix), n_tensors = dfx_tensors_count(m->source->set);
    for (size_t i = 0; i < n_tensors; i++) {
        const dfx_tensor *t = dfx_tensors_at(m->source->set, i);
        bool inside = strncmp(t->name, prefix, n) == 0;
        const char *name = inside ? t->name + n : t->name;
        if (m->source->used[i] || dfx_storage_is_part(name))
            continue;
        if (dfx_name_is_idle(name) || is_other_half(m, name, &other)) {
            if (inside || m->source->is_folder || m->component == DFX_CLIP) {
                half = dfx_name_is_idle(name) ? half : other;
                m->source->used[i] = true;
            }
            continue;
        }
        if (inside || m->source->is_folder)
            DFX_TRY(add_tensor(m, t, name));
    }
    say_left(m, half);
    return DFX_OK;
}

dfx_status dfx_part_make(dfx_checkpoint *c, dfx_component component) {
    maker m = {.c = c, .component = component, .part = &c->parts[component]};
    m.source = m.part->source;
    if (component == DFX_VAE)
        m.n_levels = count_levels(m.source, &m.part->found);
    if (component == DFX_TRANSFORMER)
        m.width = count_rows(m.source, m.part->found.prefix, "img_in.bias");
    survey(&m);
    DFX_TRY(add_all(&m));
    DFX_TRY(seal(&m));
    list_types(m.part);
    return DFX_OK;
}

/* ---- reading ---- */

static dfx_status read_scales(const dfx_recipe *r, int64_t first, int64_t n, float *dst) {
    const dfx_storage *s = r->from;
    for (int64_t i = 0; i < n; i++)
        dst[i] = s->n_scales == 0   ? 1.0f
                 : s->n_scales == 1 ? s->scales[0]
                                    : s->scales[r->row0 + first + i];
    return DFX_OK;
}

/* Elements [first, first + n) of the storage, in the type of the recipe. */
static dfx_status read_run(const dfx_part *p, const dfx_recipe *r, const dfx_sink *sink,
                           int64_t first, int64_t n, uint8_t *dst) {
    const dfx_storage *s = r->from;
    size_t bytes = dfx_dtype_bytes(r->made.dtype);
    int64_t unit = dfx_storage_unit(s), all = 1;
    if (r->made.dtype == s->code_dtype && s->kind != DFX_STORE_4BIT && s->kind != DFX_STORE_ROTATED)
        return dfx_tensors_read_part(p->source->set, s->codes, (uint64_t)first * bytes,
                                     (size_t)n * bytes, sink, dst);
    for (int i = 0; i < s->rank; i++)
        all *= s->shape[i];
    while (n > 0) {
        float wide[DFX_STORAGE_CHUNK];
        int64_t from = first / unit * unit, lead = first - from;
        int64_t take = n < DFX_STORAGE_CHUNK - lead ? n : DFX_STORAGE_CHUNK - lead;
        int64_t end = (from + lead + take + unit - 1) / unit * unit;
        end = end > all ? all : end;
        DFX_TRY(dfx_storage_decode(s, p->source->set, sink, from, end - from, wide));
        dfx_from_f32(r->made.dtype, wide + lead, dst, (size_t)take);
        first += take;
        n -= take;
        dst += (size_t)take * bytes;
    }
    return DFX_OK;
}

/* Elements of the recipe, cut where two halves have traded places. */
static dfx_status read_elements(const dfx_part *p, const dfx_recipe *r, const dfx_sink *sink,
                                int64_t first, int64_t n, uint8_t *dst) {
    int64_t rows = r->made.rank > 0 && r->made.n_elements > 0 ? r->made.shape[0] : 1;
    int64_t cols = (int64_t)r->made.n_elements / rows, middle = r->half * cols;
    while (n > 0) {
        int64_t take = first < middle && n > middle - first ? middle - first : n;
        int64_t from = r->half == 0 ? first : first < middle ? first + middle : first - middle;
        DFX_TRY(read_run(p, r, sink, r->row0 * cols + from, take, dst));
        first += take;
        n -= take;
        dst += (size_t)take * dfx_dtype_bytes(r->made.dtype);
    }
    return DFX_OK;
}

dfx_status dfx_part_read(const dfx_part *p, const dfx_tensor *tensor, const dfx_sink *sink,
                         uint64_t off, void *dst, size_t n_bytes) {
    dfx_recipe wanted = {.made.name = tensor->name};
    const dfx_recipe *r = bsearch(&wanted, p->recipes, p->n_recipes, sizeof(wanted), by_name);
    if (!r)
        return dfx_fail(sink, DFX_E_INTERNAL, "checkpoint: no recipe for %s", tensor->name);
    size_t bytes = dfx_dtype_bytes(r->made.dtype);
    if (bytes == 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: tensor %s is %s, which cannot be packed",
                        p->source->path, tensor->name, dfx_dtype_name(r->made.dtype));
    int64_t first = (int64_t)(off / bytes), n = (int64_t)(n_bytes / bytes);
    return r->is_scale ? read_scales(r, first, n, dst) : read_elements(p, r, sink, first, n, dst);
}
