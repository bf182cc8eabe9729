/* One path of the user's, opened, and the components that are in it. A component is recognised by a tensor that only it has and
 * that nobody quantizes; whatever stands before that name is the prefix of all its tensors. */
#include <stdio.h>
#include <string.h>

#include "models/checkpoint_internal.h"

const char *const dfx_component_texts[DFX_N_COMPONENTS] = {
    [DFX_CLIP] = "CLIP text encoder",
    [DFX_T5] = "T5 encoder",
    [DFX_TRANSFORMER] = "FLUX transformer",
    [DFX_VAE] = "VAE",
};

const char *const dfx_component_options[DFX_N_COMPONENTS] = {
    [DFX_CLIP] = "--clip-l",
    [DFX_T5] = "--t5",
    [DFX_TRANSFORMER] = "--model",
    [DFX_VAE] = "--vae",
};

static const struct {
    dfx_component component;
    dfx_names names;
    const char *anchor;
} ANCHORS[] = {
    {DFX_TRANSFORMER, DFX_NAMES_ORIGINAL, "double_blocks.0.img_attn.norm.key_norm.scale"},
    {DFX_TRANSFORMER, DFX_NAMES_DIFFUSERS, "single_transformer_blocks.0.attn.norm_q.weight"},
    {DFX_VAE, DFX_NAMES_ORIGINAL, "decoder.mid.block_1.norm1.weight"},
    {DFX_VAE, DFX_NAMES_DIFFUSERS, "decoder.mid_block.resnets.0.norm1.weight"},
    {DFX_CLIP, DFX_NAMES_DIFFUSERS, "embeddings.token_embedding.weight"},
    {DFX_T5, DFX_NAMES_DIFFUSERS, "encoder.block.0.layer.0.layer_norm.weight"},
    {DFX_T5, DFX_NAMES_LLAMA, "enc.blk.0.attn_norm.weight"},
};

/* Length of what is before `anchor` in `name`, or -1. It ends with a point, or is empty. */
static int prefix_length(const char *name, const char *anchor) {
    size_t len = strlen(name), n = strlen(anchor);
    if (len < n || strcmp(name + len - n, anchor) != 0 || (len > n && name[len - n - 1] != '.'))
        return -1;
    return (int)(len - n);
}

/* Of several CLIPs, FLUX's is the one called clip_l. */
static bool is_better(const char *name, int len, const dfx_found *than) {
    return strstr(than->prefix, "clip_l") == NULL && memmem(name, (size_t)len, "clip_l", 6) != NULL;
}

static dfx_status look_at(dfx_source *s, const char *name, const dfx_sink *sink) {
    for (size_t a = 0; a < DFX_COUNT(ANCHORS); a++) {
        int len = prefix_length(name, ANCHORS[a].anchor);
        dfx_found *found = &s->found[ANCHORS[a].component];
        if (len < 0 || len >= DFX_PREFIX_BYTES)
            continue;
        if (found->is && ANCHORS[a].component == DFX_CLIP) {
            if (!is_better(name, len, found))
                continue;
        } else if (found->is) {
            return dfx_fail(
                sink, DFX_E_FORMAT,
                "%s: there are two of the %s, behind \"%s\" and behind \"%.*s\"; wanted "
                "one",
                s->path, dfx_component_texts[ANCHORS[a].component], found->prefix, len, name);
        }
        *found = (dfx_found){.is = true, .names = ANCHORS[a].names};
        memcpy(found->prefix, name, (size_t)len);
    }
    return DFX_OK;
}

/* {"layers": {"<layer>": {"format": ...}}} of newer Comfy files. */
static dfx_status read_layers(dfx_source *s, const dfx_sink *sink) {
    static const char key[] = "_quantization_metadata";
    const char *text = dfx_tensors_metadata(s->set, key);
    char label[DFX_PATH_BYTES];
    json_t *root, *layers;
    if (!text)
        return DFX_OK;
    snprintf(label, sizeof(label), "%s: %s", s->path, key);
    DFX_TRY(dfx_json_parse(text, strlen(text), label, sink, &root));
    dfx_status status = dfx_json_object(root, label, "layers", sink, &layers);
    if (status == DFX_OK)
        s->layers = json_incref(layers);
    json_decref(root);
    return status;
}

static dfx_status add_source(dfx_checkpoint *c, const char *path, dfx_source **out) {
    char *copy;
    if (c->n_sources == DFX_CHECKPOINT_SOURCES)
        return dfx_fail(c->sink, DFX_E_INTERNAL, "%s: one file too many", path);
    DFX_TRY(dfx_arena_text(&c->arena, c->sink, path, strlen(path), &copy));
    *out = &c->sources[c->n_sources++];
    (*out)->path = copy;
    return DFX_OK;
}

dfx_status dfx_source_open_file(dfx_checkpoint *c, const char *path, dfx_source **out) {
    dfx_source *s = NULL;
    DFX_TRY(add_source(c, path, &s));
    DFX_TRY(dfx_tensors_open_file(path, c->sink, &s->set));
    size_t n = dfx_tensors_count(s->set);
    DFX_TRY(dfx_new_array(c->sink, n, "checkpoint", &s->used));
    for (size_t i = 0; i < n; i++)
        DFX_TRY(look_at(s, dfx_tensors_at(s->set, i)->name, c->sink));
    DFX_TRY(read_layers(s, c->sink));
    *out = s;
    return DFX_OK;
}

/* Either stem serves: transformers' and diffusers' folders differ in nothing else. */
static const char *stem_of(const char *dir, dfx_component component) {
    static const char *const stems[] = {"diffusion_pytorch_model", "model"};
    static const char *const tails[] = {".safetensors", ".safetensors.index.json"};
    for (size_t i = 0; i < DFX_COUNT(stems); i++)
        for (size_t t = 0; t < DFX_COUNT(tails); t++) {
            char name[64], path[DFX_PATH_BYTES];
            snprintf(name, sizeof(name), "%s%s", stems[i], tails[t]);
            if (dfx_path_join(NULL, dir, name, path) == DFX_OK && dfx_file_exists(path))
                return stems[i];
        }
    return dfx_component_places[component].stem;
}

dfx_status dfx_source_open_folder(dfx_checkpoint *c, const char *dir, dfx_component component,
                                  dfx_source **out) {
    dfx_source *s = NULL;
    DFX_TRY(add_source(c, dir, &s));
    s->is_folder = true;
    DFX_TRY(dfx_tensors_open_dir(dir, stem_of(dir, component), c->sink, &s->set));
    DFX_TRY(dfx_new_array(c->sink, dfx_tensors_count(s->set), "checkpoint", &s->used));
    s->found[component] = (dfx_found){.is = true, .names = DFX_NAMES_DIFFUSERS};
    if (component == DFX_CLIP)
        strcpy(s->found[component].prefix, "text_model.");
    DFX_TRY(read_layers(s, c->sink));
    *out = s;
    return DFX_OK;
}

void dfx_source_close(dfx_source *s) {
    dfx_tensors_close(s->set);
    dfx_free(s->used);
    json_decref(s->layers);
    *s = (dfx_source){0};
}

void dfx_source_use(dfx_source *s, const dfx_tensor *tensor) {
    s->used[tensor - dfx_tensors_at(s->set, 0)] = true;
}

const dfx_tensor *dfx_source_take(dfx_source *s, const char *prefix, const char *name) {
    char full[DFX_LAYER_BYTES];
    if (snprintf(full, sizeof(full), "%s%s", prefix, name) >= (int)sizeof(full))
        return NULL;
    const dfx_tensor *tensor = dfx_tensors_find(s->set, full);
    if (tensor)
        dfx_source_use(s, tensor);
    return tensor;
}

char *dfx_source_text(const dfx_source *s, char text[DFX_SOURCE_TEXT_BYTES]) {
    const char *example, *foreign = dfx_kind_foreign(s->set, &example);
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < DFX_N_COMPONENTS && !foreign; i++)
        if (s->found[i].is)
            used += (size_t)snprintf(text + used, DFX_SOURCE_TEXT_BYTES - used, "%sa %s",
                                     used ? " and " : "", dfx_component_texts[i]);
    if (!used)
        snprintf(text, DFX_SOURCE_TEXT_BYTES, "%s",
                 foreign ? foreign : "nothing that dfx-edge knows by its tensors");
    return text;
}
