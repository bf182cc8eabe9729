/* Which of the given files is what. In order: open what was given, find each component in it, refuse what cannot be run, make the
 * views, then the small files. */
#include "models/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "models/checkpoint_internal.h"
#include "models/tokenizer_files.h"
#include "offload/packed.h"

enum { SMALL_FILE_BYTES_MAX = 64 << 20 };

static const char *path_of(const dfx_model_paths *p, dfx_component component) {
    const char *const paths[DFX_N_COMPONENTS] = {
        [DFX_CLIP] = p->clip, [DFX_T5] = p->t5, [DFX_TRANSFORMER] = p->model, [DFX_VAE] = p->vae};
    return paths[component];
}

dfx_status dfx_checkpoint_ask(const dfx_model_paths *p, const dfx_sink *sink, bool *is) {
    bool packed = false;
    *is = dfx_file_is_dir(p->model) || p->vae || p->clip || p->t5 || p->tokenizer;
    if (*is)
        return DFX_OK;
    DFX_TRY(dfx_packed_ask(p->model, sink, &packed));
    *is = !packed;
    return DFX_OK;
}

static bool is_pipeline(const char *path) {
    char index[DFX_PATH_BYTES];
    return dfx_file_is_dir(path) &&
           dfx_path_join(NULL, path, "model_index.json", index) == DFX_OK && dfx_file_exists(index);
}

/* ---- opening ---- */

/* A component's config.json, where there is one. */
static dfx_status read_config(dfx_checkpoint *c, const char *dir, dfx_part *part) {
    char path[DFX_PATH_BYTES], *text, *copy;
    DFX_TRY(dfx_path_join(c->sink, dir, "config.json", path));
    if (!dfx_file_exists(path))
        return DFX_OK;
    DFX_TRY(dfx_file_slurp(path, c->sink, SMALL_FILE_BYTES_MAX, &text, &part->config_bytes));
    dfx_status status = dfx_arena_text(&c->arena, c->sink, text, part->config_bytes, &copy);
    dfx_free(text);
    part->config = copy;
    return status;
}

/* A folder of one component, or of a pipeline that has it. */
static dfx_status open_folder(dfx_checkpoint *c, const char *path, dfx_component component,
                              dfx_source **out) {
    char dir[DFX_PATH_BYTES];
    dfx_part *part = &c->parts[component];
    if (is_pipeline(path))
        DFX_TRY(dfx_path_join(c->sink, path, dfx_component_places[component].folder, dir));
    else
        snprintf(dir, sizeof(dir), "%s", path);
    DFX_TRY(dfx_source_open_folder(c, dir, component, out));
    return read_config(c, dir, part);
}

/* What --vae, --clip-l, --t5 and -m name. given[component]: NULL where nothing. */
static dfx_status open_given(dfx_checkpoint *c, dfx_source *given[DFX_N_COMPONENTS]) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        const char *path = path_of(&c->options.paths, (dfx_component)i);
        given[i] = NULL;
        if (path && dfx_file_is_dir(path))
            DFX_TRY(open_folder(c, path, (dfx_component)i, &given[i]));
        else if (path)
            DFX_TRY(dfx_source_open_file(c, path, &given[i]));
    }
    return DFX_OK;
}

/* ---- who is who ---- */

static dfx_status wrong_file(const dfx_checkpoint *c, const dfx_source *s, dfx_component wanted) {
    char text[DFX_SOURCE_TEXT_BYTES];
    const char *example, *storage = dfx_kind_storage(s->set, &example);
    if (storage)
        return dfx_fail(c->sink, DFX_E_FORMAT,
                        "%s: stored by %s (tensor \"%.100s\"), which is not read", s->path, storage,
                        example);
    return dfx_fail(c->sink, DFX_E_FORMAT, "%s: wanted a %s for %s, found %s", s->path,
                    dfx_component_texts[wanted], dfx_component_options[wanted],
                    dfx_source_text(s, text));
}

static void take(dfx_checkpoint *c, dfx_component component, dfx_source *from) {
    c->parts[component].source = from;
    c->parts[component].found = from->found[component];
}

/* Among the files given for other parts one that is this part, and not what it was given for. */
static dfx_source *find_swapped(dfx_source *const given[DFX_N_COMPONENTS], dfx_component wanted) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (i != (int)wanted && given[i] && given[i]->found[wanted].is && !given[i]->found[i].is)
            return given[i];
    return NULL;
}

static dfx_status assign_given(dfx_checkpoint *c, dfx_source *const given[DFX_N_COMPONENTS]) {
    bool swapped = false;
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        if (!given[i])
            continue;
        dfx_source *from = given[i]->found[i].is ? given[i] : find_swapped(given, (dfx_component)i);
        if (!from)
            return wrong_file(c, given[i], (dfx_component)i);
        if (from != given[i] && !swapped)
            dfx_warn(c->sink, "%s is the %s: taken as %s, not for what it was given", from->path,
                     dfx_component_texts[i], dfx_component_options[i]);
        swapped |= from != given[i];
        take(c, (dfx_component)i, from);
    }
    return DFX_OK;
}

static void add_words(char *text, size_t bytes, const char *before, const char *words) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? before : "", words);
}

/* What nobody was named for is in the model's file. */
static dfx_status assign_rest(dfx_checkpoint *c, dfx_source *model) {
    static const char *const hints[DFX_N_COMPONENTS] = {[DFX_CLIP] = "--clip-l FILE",
                                                        [DFX_T5] = "--t5 FILE",
                                                        [DFX_TRANSFORMER] = "-m FILE",
                                                        [DFX_VAE] = "--vae FILE"};
    char missing[128] = "", options[128] = "";
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        if (c->parts[i].source)
            continue;
        if (model->found[i].is) {
            take(c, (dfx_component)i, model);
            continue;
        }
        add_words(missing, sizeof(missing), ", no ", dfx_component_texts[i]);
        add_words(options, sizeof(options), " ", hints[i]);
    }
    return missing[0] ? dfx_fail(c->sink, DFX_E_FORMAT,
                                 "%s: no %s in this file, and no other was given for it; add %s",
                                 model->path, missing, options)
                      : DFX_OK;
}

/* The rest of a pipeline in a folder. */
static dfx_status open_rest(dfx_checkpoint *c) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        dfx_source *from;
        if (c->parts[i].source)
            continue;
        DFX_TRY(open_folder(c, c->options.paths.model, (dfx_component)i, &from));
        take(c, (dfx_component)i, from);
    }
    return DFX_OK;
}

/* Families and storages that we do not read, before anything is looked for in them. */
static dfx_status refuse_foreign(const dfx_checkpoint *c,
                                 dfx_source *const given[DFX_N_COMPONENTS]) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        const char *example, *kind;
        if (!given[i])
            continue;
        if ((kind = dfx_kind_storage(given[i]->set, &example)))
            return dfx_fail(c->sink, DFX_E_FORMAT,
                            "%s: stored by %s (tensor \"%.100s\"), which is not read",
                            given[i]->path, kind, example);
        if (i == DFX_TRANSFORMER && (kind = dfx_kind_foreign(given[i]->set, &example)))
            return dfx_fail(c->sink, DFX_E_FORMAT,
                            "%s: wanted a FLUX.1 transformer (dev or schnell), found %s (tensor "
                            "\"%.100s\")",
                            given[i]->path, kind, example);
        if (given[i]->found[i].is)
            DFX_TRY(dfx_kind_check_architecture(given[i], (dfx_component)i, c->sink));
    }
    return DFX_OK;
}

static dfx_status find_parts(dfx_checkpoint *c) {
    dfx_source *given[DFX_N_COMPONENTS];
    DFX_TRY(open_given(c, given));
    DFX_TRY(refuse_foreign(c, given));
    DFX_TRY(assign_given(c, given));
    return is_pipeline(c->options.paths.model) ? open_rest(c)
                                               : assign_rest(c, given[DFX_TRANSFORMER]);
}

/* ---- what is left ---- */

/* A transformer's tensor behind another prefix than the others'. */
static dfx_status check_mixed(const dfx_checkpoint *c, const dfx_source *s, const char *name) {
    static const char *const prefixes[] = {"", "model.diffusion_model.", "diffusion_model.",
                                           "transformer.", "net."};
    const dfx_part *part = &c->parts[DFX_TRANSFORMER];
    char layer[DFX_LAYER_BYTES];
    dfx_renamed to;
    for (size_t i = 0; i < DFX_COUNT(prefixes) && part->source == s; i++) {
        size_t n = strlen(prefixes[i]), len = strlen(name);
        const char *end = strrchr(name, '.');
        if (strncmp(name, prefixes[i], n) != 0 || len <= n || !end || end < name + n ||
            (size_t)(end - name) - n >= sizeof(layer) ||
            strcmp(prefixes[i], part->found.prefix) == 0)
            continue;
        memcpy(layer, name + n, (size_t)(end - name) - n);
        layer[(size_t)(end - name) - n] = 0;
        dfx_names_map(DFX_TRANSFORMER, part->found.names, layer, 0, &to);
        if (to.n > 0)
            return dfx_fail(c->sink, DFX_E_FORMAT,
                            "%s: some tensors of the transformer are behind the prefix \"%s\" and "
                            "some behind \"%s\", such as \"%s\"; wanted one for all",
                            s->path, part->found.prefix, prefixes[i], name);
    }
    return DFX_OK;
}

/* Of another component that was taken from elsewhere. */
static bool is_of_unused_part(const dfx_checkpoint *c, const dfx_source *s, const char *name) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (s->found[i].is && c->parts[i].source != s &&
            strncmp(name, s->found[i].prefix, strlen(s->found[i].prefix)) == 0)
            return true;
    return false;
}

static void say_unused_parts(const dfx_checkpoint *c, const dfx_source *s) {
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (s->found[i].is && c->parts[i].source != s)
            dfx_info(c->sink, "%s: the %s in it is not used, %s is taken", s->path,
                     dfx_component_texts[i], c->parts[i].source->path);
}

static dfx_status check_left(const dfx_checkpoint *c, const dfx_source *s) {
    char first[256] = "";
    size_t n = 0;
    say_unused_parts(c, s);
    for (size_t i = 0; i < dfx_tensors_count(s->set); i++) {
        const char *name = dfx_tensors_at(s->set, i)->name;
        if (s->used[i] || dfx_name_is_idle(name) || is_of_unused_part(c, s, name))
            continue;
        DFX_TRY(check_mixed(c, s, name));
        if (n++ < 3)
            add_words(first, sizeof(first), ", ", name);
    }
    if (n > 0)
        dfx_warn(c->sink, "%s: %zu tensor%s of no part of FLUX and left out: %s%s", s->path, n,
                 n == 1 ? " is" : "s are", first, n > 3 ? ", ..." : "");
    return DFX_OK;
}

/* ---- small files ---- */

/* Those of a folder; those that `wanted` takes. */
static dfx_status add_files(dfx_checkpoint *c, const dfx_bundle *from,
                            bool (*wanted)(const char *)) {
    for (size_t i = 0; i < dfx_n_model_files; i++) {
        char *text;
        size_t bytes;
        const char *path = dfx_model_files[i];
        if (!wanted(path) || !dfx_bundle_has(from, path))
            continue;
        DFX_TRY(dfx_bundle_slurp(from, path, c->sink, SMALL_FILE_BYTES_MAX, &text, &bytes));
        dfx_status status = dfx_checkpoint_add_text(c, path, text, bytes);
        dfx_free(text);
        DFX_TRY(status);
    }
    return DFX_OK;
}

static bool is_index(const char *path) {
    return strcmp(path, "model_index.json") == 0 || strcmp(path, "dfx.json") == 0 ||
           strncmp(path, "scheduler/", 10) == 0;
}

static dfx_status add_tokenizers(dfx_checkpoint *c) {
    const dfx_model_paths *p = &c->options.paths;
    dfx_tokenizer_files files;
    const char *given = p->tokenizer ? p->tokenizer : is_pipeline(p->model) ? p->model : NULL;
    DFX_TRY(dfx_tokenizer_files_find(given, c->sink, &files));
    if (files.from_cache)
        dfx_info(c->sink, "tokenizers: %s", files.folder);
    dfx_status status = add_files(c, &files.bundle, dfx_tokenizer_file_is);
    dfx_tokenizer_files_close(&files);
    return status;
}

static bool is_plain_folder(const dfx_model_paths *p) {
    return is_pipeline(p->model) && !p->vae && !p->clip && !p->t5 && !p->tokenizer;
}

static dfx_status gather_files(dfx_checkpoint *c) {
    const dfx_model_paths *p = &c->options.paths;
    dfx_bundle folder = {.folder = p->model, .name = p->model};
    c->bundle = folder;
    if (is_plain_folder(p))
        return DFX_OK;
    DFX_TRY(dfx_arena_alloc(&c->arena, c->sink, dfx_n_model_files * sizeof(*c->texts),
                            (void **)&c->texts));
    if (is_pipeline(p->model))
        DFX_TRY(add_files(c, &folder, is_index));
    DFX_TRY(dfx_checkpoint_derive(c));
    DFX_TRY(add_tokenizers(c));
    c->bundle = (dfx_bundle){.texts = c->texts, .n_texts = c->n_texts, .name = p->model};
    return DFX_OK;
}

/* ---- the whole ---- */

/* `automatic` goes by what the parts are stored as. */
static void choose_format(dfx_checkpoint *c) {
    static const char *const patterns[DFX_N_COMPONENTS] = {[DFX_CLIP] = "text_encoder.*",
                                                           [DFX_T5] = "text_encoder_2.*",
                                                           [DFX_TRANSFORMER] = "transformer.*",
                                                           [DFX_VAE] = "vae.*"};
    bool any = false;
    c->quant = c->options.quant;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        any |= c->parts[i].target != c->options.quant;
    if (!any)
        return;
    c->quant = DFX_Q_INT8WO;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (c->parts[i].target == DFX_Q_STORED)
            c->keep[c->n_keep++] = patterns[i];
}

static void say_what_it_is(const dfx_checkpoint *c) {
    const dfx_part *t = &c->parts[DFX_TRANSFORMER];
    bool guidance = dfx_tensors_find(t->view, "time_text_embed.guidance_embedder.linear_1.weight");
    dfx_info(c->sink, "%s: FLUX.1 %s (%s names, %s); CLIP %s, T5 %s (%s), VAE %s", t->source->path,
             guidance ? "dev, told by its guidance embedding"
                      : "schnell, without guidance embedding",
             t->found.names == DFX_NAMES_ORIGINAL ? "original" : "diffusers", t->types,
             c->parts[DFX_CLIP].source->path, c->parts[DFX_T5].source->path, c->parts[DFX_T5].types,
             c->parts[DFX_VAE].source->path);
}

static dfx_status open_checkpoint(dfx_checkpoint *c) {
    const dfx_model_paths *p = &c->options.paths;
    bool packed = false;
    if (!dfx_file_is_dir(p->model))
        DFX_TRY(dfx_packed_ask(p->model, c->sink, &packed));
    if (packed && !p->vae && !p->clip && !p->t5 && !p->tokenizer)
        return dfx_fail(c->sink, DFX_E_FORMAT, "%s is a packed model already", p->model);
    if (packed)
        return dfx_fail(c->sink, DFX_E_USAGE,
                        "%s is a packed model, which has all its parts: --vae, --clip-l, --t5 and "
                        "--tokenizer go with single files and folders",
                        p->model);
    dfx_bundle folder = {.folder = p->model, .name = p->model};
    if (is_pipeline(p->model))
        DFX_TRY(dfx_configs_check_index(&folder, c->sink));
    DFX_TRY(find_parts(c));
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        DFX_TRY(dfx_part_make(c, (dfx_component)i));
    for (size_t i = 0; i < c->n_sources; i++)
        DFX_TRY(check_left(c, &c->sources[i]));
    DFX_TRY(gather_files(c));
    choose_format(c);
    if (!is_plain_folder(p))
        say_what_it_is(c);
    return DFX_OK;
}

dfx_status dfx_checkpoint_open(const dfx_checkpoint_options *options, const dfx_sink *sink,
                               dfx_checkpoint **out) {
    dfx_checkpoint *c;
    DFX_TRY(dfx_new(sink, "checkpoint", &c));
    c->options = *options;
    c->own_sink = *sink;
    c->sink = &c->own_sink;
    dfx_arena_init(&c->arena, "checkpoint");
    dfx_status status = open_checkpoint(c);
    if (status == DFX_OK)
        *out = c;
    else
        dfx_checkpoint_close(c);
    return status;
}

void dfx_checkpoint_close(dfx_checkpoint *c) {
    if (!c)
        return;
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        dfx_tensors_close(c->parts[i].view);
        dfx_free(c->parts[i].recipes);
    }
    for (size_t i = 0; i < c->n_sources; i++)
        dfx_source_close(&c->sources[i]);
    dfx_arena_fini(&c->arena);
    dfx_free(c);
}

const dfx_tensors *dfx_checkpoint_tensors(const dfx_checkpoint *c, dfx_component component) {
    return c->parts[component].view;
}

const dfx_bundle *dfx_checkpoint_bundle(const dfx_checkpoint *c) {
    return &c->bundle;
}

dfx_qformat dfx_checkpoint_quant(const dfx_checkpoint *c) {
    return c->quant;
}

const char *const *dfx_checkpoint_keep(const dfx_checkpoint *c, size_t *n) {
    *n = c->n_keep;
    return c->keep;
}

dfx_status dfx_checkpoint_read(void *checkpoint, const char *component, const dfx_tensor *tensor,
                               uint64_t off, void *dst, size_t n_bytes) {
    const dfx_checkpoint *c = checkpoint;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        if (strcmp(component, dfx_component_places[i].folder) == 0)
            return dfx_part_read(&c->parts[i], tensor, c->sink, off, dst, n_bytes);
    return dfx_fail(c->sink, DFX_E_INTERNAL, "checkpoint: no component %s", component);
}
