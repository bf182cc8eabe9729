/* Opening a LoRA file: tensors -> modules (by name) -> checks -> parts (by layer). See lora.h; names: lora_layers.c and lora_keys.c;
 * one module: lora_module.c; values: lora_factors.c. */
#include "models/lora.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "models/lora_alpha.h"

/* ---- names ---- */

static dfx_status find_file(const char *path, const dfx_sink *sink, char out[DFX_PATH_BYTES]) {
    if (!dfx_file_is_dir(path)) {
        if (snprintf(out, DFX_PATH_BYTES, "%s", path) >= DFX_PATH_BYTES)
            return dfx_fail(sink, DFX_E_USAGE, "%.200s...: a path of more than %d bytes", path,
                            DFX_PATH_BYTES - 1);
        return DFX_OK;
    }
    for (size_t i = 0; i < DFX_COUNT(dfx_lora_folder_names); i++) {
        DFX_TRY(dfx_path_join(sink, path, dfx_lora_folder_names[i], out));
        if (dfx_file_exists(out))
            return DFX_OK;
    }
    return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a LoRA file, or a folder with %s or %s in it",
                    path, dfx_lora_folder_names[0], dfx_lora_folder_names[1]);
}

/* A module that names no layer of the model. Names are sorted, so its tensors come one after the other. */
static dfx_status note_unmatched(dfx_lora *lora, const dfx_sink *sink, const char *name,
                                 size_t bytes, const char **last, size_t *last_bytes) {
    dfx_lora_facts *f = &lora->facts;
    if (*last && *last_bytes == bytes && memcmp(*last, name, bytes) == 0)
        return DFX_OK;
    *last = name;
    *last_bytes = bytes;
    f->n_unmatched++;
    lora->n_unmatched_text += dfx_lora_is_text_name(name);
    if (f->n_named == DFX_LORA_NAMED_MAX)
        return DFX_OK;
    char *copy;
    DFX_TRY(dfx_arena_text(&lora->arena, sink, name, bytes, &copy));
    f->unmatched[f->n_named++] = copy;
    return DFX_OK;
}

static dfx_status find_module(dfx_lora *lora, const dfx_sink *sink, uint32_t *of_alias,
                              const dfx_lora_alias *alias, const dfx_tensor *tensor,
                              size_t name_bytes, dfx_lora_style style, dfx_lora_module **out) {
    uint32_t *idx = &of_alias[alias - lora->layers.aliases];
    if (*idx == 0) {
        char *name;
        DFX_TRY(dfx_grow(sink, lora->n_modules + 1, sizeof(*lora->modules), "lora",
                         &lora->cap_modules, (void **)&lora->modules));
        DFX_TRY(dfx_arena_text(&lora->arena, sink, tensor->name, name_bytes, &name));
        lora->modules[lora->n_modules++] =
            (dfx_lora_module){.alias = alias, .name = name, .style = style};
        *idx = (uint32_t)lora->n_modules;
    }
    *out = &lora->modules[*idx - 1];
    return DFX_OK;
}

static dfx_status add_to_module(const dfx_lora *lora, const dfx_sink *sink, dfx_lora_module *m,
                                dfx_lora_role role, const dfx_tensor *tensor) {
    if (m->tensors[role])
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: %.200s and %.200s are the same tensor of the layer %s: wanted one of "
                        "them",
                        lora->path, m->tensors[role]->name, tensor->name,
                        lora->layers.layers[m->alias->layers[0]].name);
    m->tensors[role] = tensor;
    return DFX_OK;
}

/* Sort tensors into modules. of_alias: for each alias 1 + its module, 0: none yet. */
static dfx_status collect(dfx_lora *lora, const dfx_sink *sink, uint32_t *of_alias) {
    const char *last = NULL;
    size_t last_bytes = 0;
    for (size_t i = 0; i < dfx_tensors_count(lora->set); i++) {
        const dfx_tensor *tensor = dfx_tensors_at(lora->set, i);
        dfx_lora_key key = dfx_lora_key_split(tensor->name);
        dfx_lora_style style = DFX_LORA_PEFT;
        dfx_lora_module *m;
        if (key.role == DFX_LORA_EXTRA)
            continue;
        const dfx_lora_alias *alias =
            key.role == DFX_LORA_UNKNOWN
                ? NULL
                : dfx_lora_layers_find(&lora->layers, tensor->name, key.module_bytes, &style);
        if (!alias) {
            DFX_TRY(note_unmatched(lora, sink, tensor->name, key.module_bytes, &last, &last_bytes));
            continue;
        }
        if (key.role == DFX_LORA_REFUSED)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: %.200s is of %s, which is not applied; LoRA, LoHa, LoKr and DoRA "
                            "are",
                            lora->path, tensor->name, key.what);
        DFX_TRY(find_module(lora, sink, of_alias, alias, tensor, key.module_bytes, style, &m));
        DFX_TRY(add_to_module(lora, sink, m, key.role, tensor));
    }
    return DFX_OK;
}

/* BFL's Canny and Depth LoRAs want a model whose input is wider. Told before anything else that is particular about them. */
static dfx_status check_input(const dfx_lora *lora, const dfx_sink *sink) {
    for (size_t i = 0; i < lora->n_modules; i++) {
        const dfx_lora_module *m = &lora->modules[i];
        const dfx_lora_layer *layer = &lora->layers.layers[m->alias->layers[0]];
        dfx_lora_matrix down;
        if (strcmp(layer->name, "x_embedder") != 0 || !m->tensors[DFX_LORA_DOWN] ||
            !dfx_lora_matrix_of(m->tensors[DFX_LORA_DOWN], &down) || down.cols <= layer->k)
            continue;
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: control LoRA needs %" PRId64 " input channels, this model has %" PRId64
                        " (%.200s)",
                        lora->path, down.cols, layer->k, m->tensors[DFX_LORA_DOWN]->name);
    }
    return DFX_OK;
}

/* Changes that have no low rank. Where they are zero they are nothing. */
static dfx_status check_extras(dfx_lora *lora, const dfx_sink *sink) {
    for (size_t i = 0; i < dfx_tensors_count(lora->set); i++) {
        const dfx_tensor *tensor = dfx_tensors_at(lora->set, i);
        dfx_lora_key key = dfx_lora_key_split(tensor->name);
        bool is_zero;
        if (key.role != DFX_LORA_EXTRA)
            continue;
        DFX_TRY(dfx_lora_is_zero(lora->set, tensor, sink, &is_zero));
        if (!is_zero)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: %.200s changes %s, which is not applied (only low-rank changes "
                            "are), and it is not zero",
                            lora->path, tensor->name, key.what);
        lora->facts.n_ignored_zeros++;
    }
    return DFX_OK;
}

/* ---- parts ---- */

typedef struct owner {
    const dfx_lora_module *module; /* NULL: none */
    int cut;
    int64_t row;
} owner;

/* Which module has each layer; owners: one a layer. */
static dfx_status find_owners(const dfx_lora *lora, const dfx_sink *sink, owner *owners) {
    for (size_t i = 0; i < lora->n_modules; i++) {
        const dfx_lora_module *m = &lora->modules[i];
        int64_t row = 0;
        for (int c = 0; c < m->alias->n_cuts; c++) {
            const dfx_lora_layer *layer = &lora->layers.layers[m->alias->layers[c]];
            owner *o = &owners[m->alias->layers[c]];
            if (o->module)
                return dfx_fail(sink, DFX_E_FORMAT,
                                "%s: %.200s and %.200s both change the layer %s: wanted one of "
                                "them",
                                lora->path, o->module->name, m->name, layer->name);
            *o = (owner){m, c, row};
            row += layer->n;
        }
    }
    return DFX_OK;
}

static void count_part(dfx_lora_facts *f, const dfx_lora_part *p, bool first) {
    f->n_parts_of[p->component]++;
    f->rank_min = first || p->rank < f->rank_min ? p->rank : f->rank_min;
    f->rank_max = first || p->rank > f->rank_max ? p->rank : f->rank_max;
    f->alpha_min = first || p->alpha < f->alpha_min ? p->alpha : f->alpha_min;
    f->alpha_max = first || p->alpha > f->alpha_max ? p->alpha : f->alpha_max;
    f->scale_min = first || p->scale < f->scale_min ? p->scale : f->scale_min;
    f->scale_max = first || p->scale > f->scale_max ? p->scale : f->scale_max;
}

static void add_part(dfx_lora *lora, const dfx_lora_layer *layer, const owner *o) {
    const dfx_lora_module *m = o->module;
    dfx_lora_part *p = &lora->parts[lora->n_parts];
    *p = (dfx_lora_part){
        .component = layer->component,
        .layer = layer->name,
        .module = m->name,
        .n = layer->n,
        .k = layer->k,
        .rank = m->block_diagonal ? m->rank / m->alias->n_cuts : m->rank,
        .scale = m->scale,
        .alpha = m->alpha,
        .magnitude = m->magnitude,
    };
    lora->origins[lora->n_parts] = (dfx_lora_origin){(uint32_t)(m - lora->modules), o->cut, o->row};
    count_part(&lora->facts, p, lora->n_parts == 0);
    lora->n_parts++;
}

static dfx_status make_parts(dfx_lora *lora, const dfx_sink *sink) {
    size_t n_layers = lora->layers.n_layers;
    owner *owners;
    DFX_TRY(dfx_new_array(sink, n_layers, "lora", &owners));
    dfx_status status = find_owners(lora, sink, owners);
    size_t n = 0;
    for (size_t i = 0; status == DFX_OK && i < n_layers; i++)
        n += owners[i].module != NULL;
    if (status == DFX_OK)
        status = dfx_new_array(sink, n, "lora", &lora->parts);
    if (status == DFX_OK)
        status = dfx_new_array(sink, n, "lora", &lora->origins);
    for (size_t i = 0; status == DFX_OK && i < n_layers; i++) {
        const owner *o = &owners[i];
        if (o->module && o->module->is_zero[o->cut])
            lora->facts.n_zero++;
        else if (o->module)
            add_part(lora, &lora->layers.layers[i], o);
    }
    dfx_free(owners);
    return status;
}

/* ---- facts ---- */

/* ss_network_args is text, usually of JSON: {"split_qkv": "True"}. */
static bool says_split_qkv(const dfx_tensors *set) {
    const char *args = dfx_tensors_metadata(set, "ss_network_args");
    const char *at = args ? strstr(args, "split_qkv") : NULL;
    if (!at)
        return false;
    at += strlen("split_qkv");
    at += strspn(at, "\"'\\:= ");
    return strncasecmp(at, "true", 4) == 0;
}

static void gather_facts(dfx_lora *lora) {
    dfx_lora_facts *f = &lora->facts;
    size_t of_style[DFX_N_LORA_STYLES] = {0};
    for (size_t i = 0; i < lora->n_modules; i++) {
        const dfx_lora_module *m = &lora->modules[i];
        of_style[m->style]++;
        f->n_loha += m->kind == DFX_LORA_LOHA;
        f->n_lokr += m->kind == DFX_LORA_LOKR;
        f->n_dora += m->magnitude != DFX_LORA_NO_MAGNITUDE;
        f->n_block_diagonal += m->block_diagonal;
    }
    for (int s = 0; s < DFX_N_LORA_STYLES; s++)
        if (of_style[s] > of_style[f->style])
            f->style = (dfx_lora_style)s;
    f->n_matched = lora->n_modules;
    f->n_modules = f->n_matched + f->n_unmatched;
    f->split_qkv = says_split_qkv(lora->set);
}

/* "a, b, c, ..." */
enum { NAMED_BYTES = 1024 };
static void name_unmatched(const dfx_lora_facts *f, char out[NAMED_BYTES]) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < f->n_named; i++)
        used += (size_t)snprintf(out + used, NAMED_BYTES - used, "%s%.150s", i ? ", " : "",
                                 f->unmatched[i]);
    if (f->n_unmatched > f->n_named)
        snprintf(out + used, NAMED_BYTES - used, ", ...");
}

dfx_status dfx_lora_check_matched(const dfx_lora *lora, const dfx_sink *sink) {
    const dfx_lora_facts *f = &lora->facts;
    char named[NAMED_BYTES];
    size_t n_transformer = 0, n_others = f->n_unmatched - lora->n_unmatched_text;
    for (size_t i = 0; i < lora->n_modules; i++)
        n_transformer +=
            lora->layers.layers[lora->modules[i].alias->layers[0]].component == DFX_TRANSFORMER;
    if (f->n_modules == 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a LoRA, found %s", lora->path,
                        dfx_tensors_count(lora->set) ? "none of its tensors" : "no tensors");
    name_unmatched(f, named);
    if (f->n_matched == 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: 0 of %zu modules match this model: no LoRA, or one for another model "
                        "(%s)",
                        lora->path, f->n_modules, named);
    if (n_transformer == 0 && n_others > 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: 0 of %zu modules match the transformer of this model, only text "
                        "encoders do: a LoRA for another model (%s)",
                        lora->path, n_others, named);
    return DFX_OK;
}

static void say(const dfx_lora *lora, const dfx_sink *sink) {
    const dfx_lora_facts *f = &lora->facts;
    char named[NAMED_BYTES];
    dfx_info(sink, "%s: %zu of %zu modules match (%s), ranks %" PRId64 " to %" PRId64, lora->path,
             f->n_matched, f->n_modules, dfx_lora_style_text(f->style), f->rank_min, f->rank_max);
    if (f->split_qkv)
        dfx_info(
            sink,
            "%s: its metadata says split_qkv: the scale is alpha / rank of the fused layers as "
            "they are in the file; trained with 3 or 4 times that if alpha was left alone",
            lora->path);
    if (f->n_unmatched) {
        name_unmatched(f, named);
        dfx_warn(sink, "%s: %zu of %zu modules name no layer of this model and are left out: %s",
                 lora->path, f->n_unmatched, f->n_modules, named);
    }
    if (lora->n_parts == 0)
        dfx_warn(sink, "%s: has no effect: all that it changes it changes by zero", lora->path);
}

/* ---- opening ---- */

static dfx_status read_modules(dfx_lora *lora, const dfx_sink *sink) {
    dfx_lora_alphas alphas;
    dfx_status status = dfx_lora_alphas_open(lora, sink, &alphas);
    for (size_t i = 0; status == DFX_OK && i < lora->n_modules; i++)
        status = dfx_lora_module_check(lora, &alphas, sink, &lora->modules[i]);
    if (status == DFX_OK)
        dfx_lora_alphas_warn(&alphas, lora, sink);
    dfx_lora_alphas_close(&alphas);
    return status;
}

static dfx_status load(dfx_lora *lora, const dfx_configs *configs, const dfx_sink *sink) {
    uint32_t *of_alias = NULL;
    dfx_status status;
    DFX_TRY(dfx_tensors_open_file(lora->path, sink, &lora->set));
    DFX_TRY(dfx_lora_layers_init(&lora->layers, configs, sink));
    DFX_TRY(dfx_new_array(sink, lora->layers.n_aliases, "lora", &of_alias));
    status = collect(lora, sink, of_alias);
    dfx_free(of_alias);
    DFX_TRY(status);
    DFX_TRY(check_input(lora, sink));
    DFX_TRY(check_extras(lora, sink));
    DFX_TRY(read_modules(lora, sink));
    DFX_TRY(make_parts(lora, sink));
    gather_facts(lora);
    return DFX_OK;
}

dfx_status dfx_lora_look(const char *path, const dfx_configs *configs, const dfx_sink *sink,
                         dfx_lora **out) {
    dfx_lora *lora;
    DFX_TRY(dfx_new(sink, "lora", &lora));
    dfx_arena_init(&lora->arena, "lora");
    dfx_status status = find_file(path, sink, lora->path);
    if (status == DFX_OK)
        status = load(lora, configs, sink);
    if (status == DFX_OK)
        *out = lora;
    else
        dfx_lora_close(lora);
    return status;
}

dfx_status dfx_lora_open(const char *path, const dfx_configs *configs, const dfx_sink *sink,
                         dfx_lora **out) {
    dfx_lora *lora;
    DFX_TRY(dfx_lora_look(path, configs, sink, &lora));
    dfx_status status = dfx_lora_check_matched(lora, sink);
    if (status != DFX_OK) {
        dfx_lora_close(lora);
        return status;
    }
    say(lora, sink);
    *out = lora;
    return DFX_OK;
}

void dfx_lora_close(dfx_lora *lora) {
    if (!lora)
        return;
    dfx_free(lora->parts);
    dfx_free(lora->origins);
    dfx_free(lora->modules);
    dfx_lora_layers_fini(&lora->layers);
    dfx_tensors_close(lora->set);
    dfx_arena_fini(&lora->arena);
    dfx_free(lora);
}

const dfx_lora_facts *dfx_lora_facts_of(const dfx_lora *lora) {
    return &lora->facts;
}

size_t dfx_lora_n_parts(const dfx_lora *lora) {
    return lora->n_parts;
}

const dfx_lora_part *dfx_lora_part_at(const dfx_lora *lora, size_t idx) {
    return &lora->parts[idx];
}

const dfx_lora_part *dfx_lora_find(const dfx_lora *lora, dfx_component component,
                                   const char *layer) {
    for (size_t i = 0; i < lora->n_parts; i++)
        if (lora->parts[i].component == component && strcmp(lora->parts[i].layer, layer) == 0)
            return &lora->parts[i];
    return NULL;
}
