/* See lora_layers.h. Source of the names: spec of LoRA formats, tables of both spellings; shapes: models/flux.c, clip.c, t5.c. */
#include "models/lora_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer of a block, and a name of some file's for layers of the same block. */
typedef struct layer_row {
    const char *name;
    int64_t n, k;
} layer_row;

typedef struct alias_row {
    const char *name, *layers[DFX_LORA_CUTS_MAX];
} alias_row;

typedef struct build {
    dfx_lora_layers *table;
    const dfx_sink *sink;
    dfx_component component;
} build;

static dfx_status add_alias(build *b, const char *block, const char *name, dfx_lora_naming naming,
                            dfx_lora_alias **out) {
    dfx_lora_layers *t = b->table;
    char *key;
    DFX_TRY(dfx_grow(b->sink, t->n_aliases + 1, sizeof(*t->aliases), "lora", &t->cap_aliases,
                     (void **)&t->aliases));
    DFX_TRY(dfx_arena_printf(&t->arena, b->sink, &key, "%s%s%s", block, block[0] ? "." : "", name));
    for (char *p = key; *p; p++)
        *p = *p == '.' ? '_' : *p;
    *out = &t->aliases[t->n_aliases++];
    **out = (dfx_lora_alias){.key = key, .naming = naming};
    return DFX_OK;
}

static void add_cut(const build *b, dfx_lora_alias *alias, size_t layer_idx) {
    const dfx_lora_layer *layer = &b->table->layers[layer_idx];
    alias->layers[alias->n_cuts++] = (uint32_t)layer_idx;
    alias->n += layer->n;
    alias->k = layer->k;
}

/* A layer, and its own name as an alias. */
static dfx_status add_layer(build *b, const char *block, const layer_row *row) {
    dfx_lora_layers *t = b->table;
    dfx_lora_alias *alias;
    char *name;
    DFX_TRY(dfx_grow(b->sink, t->n_layers + 1, sizeof(*t->layers), "lora", &t->cap_layers,
                     (void **)&t->layers));
    DFX_TRY(dfx_arena_printf(&t->arena, b->sink, &name, "%s%s%s", block, block[0] ? "." : "",
                             row->name));
    t->layers[t->n_layers++] = (dfx_lora_layer){b->component, name, row->n, row->k};
    DFX_TRY(add_alias(b, block, row->name, DFX_LORA_NAMES_DIFFUSERS, &alias));
    add_cut(b, alias, t->n_layers - 1);
    return DFX_OK;
}

/* The layers `rows` of one block; *first: where they begin in the table. */
static dfx_status add_layers(build *b, const char *block, const layer_row *rows, size_t n_rows,
                             size_t *first) {
    *first = b->table->n_layers;
    for (size_t i = 0; i < n_rows; i++)
        DFX_TRY(add_layer(b, block, &rows[i]));
    return DFX_OK;
}

/* Other names for the layers that add_layers() has put at `first`. */
static dfx_status add_aliases(build *b, const char *block, const alias_row *aliases,
                              size_t n_aliases, dfx_lora_naming naming, const layer_row *rows,
                              size_t n_rows, size_t first) {
    for (size_t i = 0; i < n_aliases; i++) {
        dfx_lora_alias *alias;
        DFX_TRY(add_alias(b, block, aliases[i].name, naming, &alias));
        for (int c = 0; c < DFX_LORA_CUTS_MAX && aliases[i].layers[c]; c++)
            for (size_t r = 0; r < n_rows; r++)
                if (strcmp(aliases[i].layers[c], rows[r].name) == 0)
                    add_cut(b, alias, first + r);
    }
    return DFX_OK;
}

static const alias_row DOUBLE_BFL[] = {
    {"img_mod.lin", {"norm1.linear"}},
    {"txt_mod.lin", {"norm1_context.linear"}},
    {"img_attn.qkv", {"attn.to_q", "attn.to_k", "attn.to_v"}},
    {"txt_attn.qkv", {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
    {"img_attn.proj", {"attn.to_out.0"}},
    {"txt_attn.proj", {"attn.to_add_out"}},
    {"img_mlp.0", {"ff.net.0.proj"}},
    {"img_mlp.2", {"ff.net.2"}},
    {"txt_mlp.0", {"ff_context.net.0.proj"}},
    {"txt_mlp.2", {"ff_context.net.2"}},
};

/* 1 is the image stream, 2 the text stream. */
static const alias_row DOUBLE_XLABS[] = {
    {"processor.qkv_lora1", {"attn.to_q", "attn.to_k", "attn.to_v"}},
    {"processor.qkv_lora2", {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
    {"processor.proj_lora1", {"attn.to_out.0"}},
    {"processor.proj_lora2", {"attn.to_add_out"}},
};

static dfx_status add_double_blocks(build *b, const dfx_flux_config *c) {
    int64_t D = c->width;
    const layer_row rows[] = {
        {"norm1.linear", 6 * D, D},
        {"norm1_context.linear", 6 * D, D},
        {"attn.to_q", D, D},
        {"attn.to_k", D, D},
        {"attn.to_v", D, D},
        {"attn.add_q_proj", D, D},
        {"attn.add_k_proj", D, D},
        {"attn.add_v_proj", D, D},
        {"attn.to_out.0", D, D},
        {"attn.to_add_out", D, D},
        {"ff.net.0.proj", 4 * D, D},
        {"ff.net.2", D, 4 * D},
        {"ff_context.net.0.proj", 4 * D, D},
        {"ff_context.net.2", D, 4 * D},
    };
    for (int64_t i = 0; i < c->n_double; i++) {
        char ours[64], theirs[64];
        size_t first;
        snprintf(ours, sizeof(ours), "transformer_blocks.%d", (int)i);
        snprintf(theirs, sizeof(theirs), "double_blocks.%d", (int)i);
        DFX_TRY(add_layers(b, ours, rows, DFX_COUNT(rows), &first));
        DFX_TRY(add_aliases(b, theirs, DOUBLE_BFL, DFX_COUNT(DOUBLE_BFL), DFX_LORA_NAMES_BFL, rows,
                            DFX_COUNT(rows), first));
        DFX_TRY(add_aliases(b, theirs, DOUBLE_XLABS, DFX_COUNT(DOUBLE_XLABS), DFX_LORA_NAMES_XLABS,
                            rows, DFX_COUNT(rows), first));
    }
    return DFX_OK;
}

static const alias_row SINGLE_BFL[] = {
    {"modulation.lin", {"norm.linear"}},
    {"linear1", {"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}},
    {"linear2", {"proj_out"}},
};

/* The file says processor.qkv_lora.down.weight, of which "_lora.down.weight" is the ending of another style. */
static const alias_row SINGLE_XLABS[] = {
    {"processor.qkv", {"attn.to_q", "attn.to_k", "attn.to_v"}},
    {"processor.proj", {"proj_out"}},
};

static dfx_status add_single_blocks(build *b, const dfx_flux_config *c) {
    int64_t D = c->width;
    const layer_row rows[] = {
        {"norm.linear", 3 * D, D}, {"attn.to_q", D, D},    {"attn.to_k", D, D},
        {"attn.to_v", D, D},       {"proj_mlp", 4 * D, D}, {"proj_out", D, 5 * D},
    };
    for (int64_t i = 0; i < c->n_single; i++) {
        char ours[64], theirs[64];
        size_t first;
        snprintf(ours, sizeof(ours), "single_transformer_blocks.%d", (int)i);
        snprintf(theirs, sizeof(theirs), "single_blocks.%d", (int)i);
        DFX_TRY(add_layers(b, ours, rows, DFX_COUNT(rows), &first));
        DFX_TRY(add_aliases(b, theirs, SINGLE_BFL, DFX_COUNT(SINGLE_BFL), DFX_LORA_NAMES_BFL, rows,
                            DFX_COUNT(rows), first));
        DFX_TRY(add_aliases(b, theirs, SINGLE_XLABS, DFX_COUNT(SINGLE_XLABS), DFX_LORA_NAMES_XLABS,
                            rows, DFX_COUNT(rows), first));
    }
    return DFX_OK;
}

enum { TIME_WIDTH = 256 };

static dfx_status add_rest_of_transformer(build *b, const dfx_flux_config *c) {
    static const alias_row bfl[] = {
        {"img_in", {"x_embedder"}},
        {"txt_in", {"context_embedder"}},
        {"time_in.in_layer", {"time_text_embed.timestep_embedder.linear_1"}},
        {"time_in.out_layer", {"time_text_embed.timestep_embedder.linear_2"}},
        {"vector_in.in_layer", {"time_text_embed.text_embedder.linear_1"}},
        {"vector_in.out_layer", {"time_text_embed.text_embedder.linear_2"}},
        {"final_layer.linear", {"proj_out"}},
        {"final_layer.adaLN_modulation.1", {"norm_out.linear"}},
        {"guidance_in.in_layer", {"time_text_embed.guidance_embedder.linear_1"}},
        {"guidance_in.out_layer", {"time_text_embed.guidance_embedder.linear_2"}},
    };
    int64_t D = c->width;
    const layer_row rows[] = {
        {"x_embedder", D, c->in_channels},
        {"context_embedder", D, c->text_width},
        {"time_text_embed.timestep_embedder.linear_1", D, TIME_WIDTH},
        {"time_text_embed.timestep_embedder.linear_2", D, D},
        {"time_text_embed.text_embedder.linear_1", D, c->pooled_width},
        {"time_text_embed.text_embedder.linear_2", D, D},
        {"proj_out", c->out_channels, D},
        {"norm_out.linear", 2 * D, D},
        {"time_text_embed.guidance_embedder.linear_1", D, TIME_WIDTH},
        {"time_text_embed.guidance_embedder.linear_2", D, D},
    };
    size_t n_without = c->has_guidance ? 0 : 2, first;
    DFX_TRY(add_layers(b, "", rows, DFX_COUNT(rows) - n_without, &first));
    DFX_TRY(add_aliases(b, "", bfl, DFX_COUNT(bfl) - n_without, DFX_LORA_NAMES_BFL, rows,
                        DFX_COUNT(rows) - n_without, first));
    for (size_t i = b->table->n_aliases; i-- > 0;)
        if (strcmp(b->table->aliases[i].key, "final_layer_adaLN_modulation_1") == 0)
            b->table->aliases[i].halves_swapped = true;
    return DFX_OK;
}

static dfx_status add_clip(build *b, const dfx_clip_config *c) {
    int64_t D = c->width, F = c->mlp_width;
    const layer_row rows[] = {
        {"self_attn.q_proj", D, D},   {"self_attn.k_proj", D, D}, {"self_attn.v_proj", D, D},
        {"self_attn.out_proj", D, D}, {"mlp.fc1", F, D},          {"mlp.fc2", D, F},
    };
    b->component = DFX_CLIP;
    for (int64_t i = 0; i < c->n_layers; i++) {
        char block[64];
        size_t first;
        snprintf(block, sizeof(block), "text_model.encoder.layers.%d", (int)i);
        DFX_TRY(add_layers(b, block, rows, DFX_COUNT(rows), &first));
    }
    return DFX_OK;
}

static dfx_status add_t5(build *b, const dfx_t5_config *c) {
    int64_t D = c->width, F = c->mlp_width, inner = c->n_heads * c->head_size;
    const layer_row rows[] = {
        {"layer.0.SelfAttention.q", inner, D}, {"layer.0.SelfAttention.k", inner, D},
        {"layer.0.SelfAttention.v", inner, D}, {"layer.0.SelfAttention.o", D, inner},
        {"layer.1.DenseReluDense.wi_0", F, D}, {"layer.1.DenseReluDense.wi_1", F, D},
        {"layer.1.DenseReluDense.wo", D, F},
    };
    b->component = DFX_T5;
    for (int64_t i = 0; i < c->n_layers; i++) {
        char block[64];
        size_t first;
        snprintf(block, sizeof(block), "encoder.block.%d", (int)i);
        DFX_TRY(add_layers(b, block, rows, DFX_COUNT(rows), &first));
    }
    return DFX_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const dfx_lora_alias *)a)->key, ((const dfx_lora_alias *)b)->key);
}

dfx_status dfx_lora_layers_init(dfx_lora_layers *table, const dfx_configs *configs,
                                const dfx_sink *sink) {
    build b = {.table = table, .sink = sink, .component = DFX_TRANSFORMER};
    *table = (dfx_lora_layers){0};
    dfx_arena_init(&table->arena, "lora");
    DFX_TRY(add_rest_of_transformer(&b, &configs->flux));
    DFX_TRY(add_double_blocks(&b, &configs->flux));
    DFX_TRY(add_single_blocks(&b, &configs->flux));
    DFX_TRY(add_clip(&b, &configs->clip));
    DFX_TRY(add_t5(&b, &configs->t5));
    qsort(table->aliases, table->n_aliases, sizeof(*table->aliases), by_key);
    return DFX_OK;
}

void dfx_lora_layers_fini(dfx_lora_layers *table) {
    dfx_free(table->layers);
    dfx_free(table->aliases);
    dfx_arena_fini(&table->arena);
    *table = (dfx_lora_layers){0};
}

void dfx_lora_key_of(const char *name, size_t bytes, char out[DFX_LORA_KEY_BYTES]) {
    size_t n = bytes < DFX_LORA_KEY_BYTES ? bytes : DFX_LORA_KEY_BYTES - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = name[i] == '.' ? '_' : name[i];
    out[n] = 0;
}

enum { OF_TRANSFORMER = 1 << DFX_TRANSFORMER, OF_CLIP = 1 << DFX_CLIP, OF_T5 = 1 << DFX_T5 };
enum { OF_ANY = OF_TRANSFORMER | OF_CLIP | OF_T5 };

/* What files put before a name, and of which component the name then is: lora_te2 is T5 in files for FLUX and a second CLIP in
 * files for SDXL. DFX_N_LORA_STYLES: the naming decides. */
static const struct {
    const char *text;
    int components;
    dfx_lora_style style;
} PREFIXES[] = {
    {"", OF_ANY, DFX_N_LORA_STYLES},
    {"lora_unet_", OF_TRANSFORMER, DFX_LORA_KOHYA},
    {"lora_transformer_", OF_TRANSFORMER, DFX_LORA_ONETRAINER},
    {"lycoris_", OF_TRANSFORMER, DFX_LORA_LYCORIS},
    {"transformer_", OF_TRANSFORMER, DFX_N_LORA_STYLES},
    {"diffusion_model_", OF_TRANSFORMER, DFX_N_LORA_STYLES},
    {"model_diffusion_model_", OF_TRANSFORMER, DFX_N_LORA_STYLES},
    {"base_model_model_", OF_ANY, DFX_LORA_FAL},
    {"base_model_model_transformer_", OF_TRANSFORMER, DFX_LORA_FAL},
    {"lora_te1_", OF_CLIP, DFX_LORA_KOHYA},
    {"lora_te_", OF_CLIP, DFX_LORA_KOHYA},
    {"text_encoder_", OF_CLIP, DFX_N_LORA_STYLES},
    {"text_encoders_clip_l_", OF_CLIP, DFX_LORA_BFL},
    {"text_encoders_clip_l_transformer_", OF_CLIP, DFX_LORA_BFL},
    {"lora_te3_", OF_T5, DFX_LORA_KOHYA},
    {"lora_te2_", OF_T5, DFX_LORA_ONETRAINER},
    {"text_encoder_2_", OF_T5, DFX_N_LORA_STYLES},
    {"text_encoders_t5xxl_", OF_T5, DFX_LORA_BFL},
    {"text_encoders_t5xxl_transformer_", OF_T5, DFX_LORA_BFL},
};

static dfx_lora_style style_of(dfx_lora_style prefix, dfx_lora_naming naming) {
    if (naming == DFX_LORA_NAMES_XLABS)
        return DFX_LORA_XLABS;
    if (prefix == DFX_LORA_FAL && naming == DFX_LORA_NAMES_DIFFUSERS)
        return DFX_LORA_PEFT;
    if (prefix != DFX_N_LORA_STYLES)
        return prefix;
    return naming == DFX_LORA_NAMES_BFL ? DFX_LORA_BFL : DFX_LORA_PEFT;
}

const dfx_lora_alias *dfx_lora_layers_find(const dfx_lora_layers *table, const char *name,
                                           size_t bytes, dfx_lora_style *style) {
    char key[DFX_LORA_KEY_BYTES];
    if (bytes >= sizeof(key))
        return NULL;
    dfx_lora_key_of(name, bytes, key);
    for (size_t i = 0; i < DFX_COUNT(PREFIXES); i++) {
        size_t len = strlen(PREFIXES[i].text);
        if (strncmp(key, PREFIXES[i].text, len) != 0)
            continue;
        dfx_lora_alias wanted = {.key = key + len};
        const dfx_lora_alias *found =
            bsearch(&wanted, table->aliases, table->n_aliases, sizeof(wanted), by_key);
        if (found &&
            (PREFIXES[i].components & 1 << table->layers[found->layers[0]].component) != 0) {
            *style = style_of(PREFIXES[i].style, found->naming);
            return found;
        }
    }
    return NULL;
}

bool dfx_lora_is_text_name(const char *name) {
    static const char *const begins[] = {"lora_te", "text_encoder", "text_model", "encoder.",
                                         "text_projection"};
    for (size_t i = 0; i < DFX_COUNT(begins); i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

const char *dfx_lora_style_text(dfx_lora_style style) {
    static const char *const texts[DFX_N_LORA_STYLES] = {
#define TEXT(name, text) text,
        DFX_LORA_STYLE_LIST(TEXT)
#undef TEXT
    };
    return (unsigned)style < DFX_N_LORA_STYLES ? texts[style] : "unknown";
}
