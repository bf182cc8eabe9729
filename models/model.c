/* Opening a diffusers folder: every part is checked against every other before a weight is read. */
#include "models/model.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "models/config.h"

/* What model_index.json must say of each part, and where its weights are. */
static const struct part {
    const char *folder, *class_name, *stem;
    dfx_component component;
} PARTS[] = {
    {"text_encoder", "CLIPTextModel", "model", DFX_CLIP},
    {"text_encoder_2", "T5EncoderModel", "model", DFX_T5},
    {"transformer", "FluxTransformer2DModel", "diffusion_pytorch_model", DFX_TRANSFORMER},
    {"vae", "AutoencoderKL", "diffusion_pytorch_model", DFX_VAE},
};

static dfx_status read_index(const json_t *json, const char *path, const dfx_sink *sink,
                             void *out) {
    (void)out;
    const char *class_name;
    DFX_TRY(dfx_json_str(json, path, "_class_name", sink, &class_name));
    if (strcmp(class_name, "FluxPipeline") != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: _class_name: wanted FluxPipeline (FLUX.1 dev or schnell), found %s",
                        path, class_name);
    for (size_t i = 0; i < DFX_COUNT(PARTS); i++) {
        json_t *pair;
        DFX_TRY(dfx_json_array(json, path, PARTS[i].folder, sink, &pair));
        const char *found = json_string_value(json_array_get(pair, 1));
        if (!found || strcmp(found, PARTS[i].class_name) != 0)
            return dfx_fail(sink, DFX_E_FORMAT, "%s: %s: wanted class %s, found %s", path,
                            PARTS[i].folder, PARTS[i].class_name, found ? found : "none");
    }
    return DFX_OK;
}

/* dfx.json beside model_index.json, if it is there: name and defaults of a model that are not FLUX.1's own. */
static dfx_status read_defaults(const json_t *json, const char *path, const dfx_sink *sink,
                                void *out) {
    dfx_model *m = out;
    int64_t steps = m->default_steps, width = m->default_width, height = m->default_height;
    const char *name;
    if (dfx_json_has(json, "name")) {
        DFX_TRY(dfx_json_str(json, path, "name", sink, &name));
        dfx_free(m->name);
        if (!(m->name = dfx_strdup(name, "model")))
            return dfx_fail(sink, DFX_E_NOFIT, "out of memory opening %s", path);
    }
    if (dfx_json_has(json, "steps"))
        DFX_TRY(dfx_json_int(json, path, "steps", 1, DFX_STEPS_MAX, sink, &steps));
    if (dfx_json_has(json, "width"))
        DFX_TRY(dfx_json_int(json, path, "width", DFX_SIZE_MULTIPLE, 4096, sink, &width));
    if (dfx_json_has(json, "height"))
        DFX_TRY(dfx_json_int(json, path, "height", DFX_SIZE_MULTIPLE, 4096, sink, &height));
    m->default_steps = (int)steps;
    m->default_width = (int)width;
    m->default_height = (int)height;
    return DFX_OK;
}

static dfx_status open_backend(dfx_model *m, const dfx_open_options *o) {
    if (o->device == DFX_DEVICE_CUDA)
        return dfx_fail(
            &m->sink, DFX_E_DEVICE,
            "device cuda: this version of dfx-edge has no CUDA backend yet; use --device cpu");
    DFX_TRY(
        dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = o->n_threads}, &m->sink, &m->backend));
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    size_t limit = o->vram_budget_bytes;
    if (!limit) /* leave a tenth of the machine to others */
        limit =
            pages > 0 && page_bytes > 0 ? (size_t)pages / 10 * 9 * (size_t)page_bytes : SIZE_MAX;
    dfx_budget_init(&m->budget, limit);
    dfx_executor_init(&m->executor, m->backend, &m->budget, &m->sink);
    return DFX_OK;
}

static dfx_status open_parts(dfx_model *m) {
    char dir[DFX_PATH_BYTES];
    const dfx_sink *sink = &m->sink;
    for (size_t i = 0; i < DFX_COUNT(PARTS); i++) {
        DFX_TRY(dfx_path_join(sink, m->path, PARTS[i].folder, dir));
        switch (PARTS[i].component) {
        case DFX_CLIP:
            DFX_TRY(dfx_clip_config_load(dir, sink, &m->clip));
            break;
        case DFX_T5:
            DFX_TRY(dfx_t5_config_load(dir, sink, &m->t5));
            break;
        case DFX_TRANSFORMER:
            DFX_TRY(dfx_flux_config_load(dir, sink, &m->flux));
            break;
        default:
            DFX_TRY(dfx_vae_config_load(dir, sink, &m->vae));
        }
        DFX_TRY(dfx_tensors_open_dir(dir, PARTS[i].stem, sink, &m->tensors[PARTS[i].component]));
    }
    DFX_TRY(dfx_path_join(sink, m->path, "scheduler", dir));
    DFX_TRY(dfx_sigma_config_load(dir, sink, &m->sigmas));
    dfx_bundle bundle = {.folder = m->path, .name = m->path};
    DFX_TRY(dfx_tok_clip_open(&bundle, "tokenizer", sink, &m->tok_clip));
    return dfx_tok_t5_open(&bundle, "tokenizer_2", sink, &m->tok_t5);
}

/* Two numbers of two files that must be equal, or the first at the most the second. */
static dfx_status agree(const dfx_model *m, const char *what, int64_t a, const char *other,
                        int64_t b, bool at_most) {
    if (at_most ? a <= b : a == b)
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_FORMAT,
                    "%s: %s is %" PRId64 " but %s is %" PRId64
                    ": the parts are of different models",
                    m->path, what, a, other, b);
}

static dfx_status check_parts(const dfx_model *m) {
    DFX_TRY(agree(m, "the transformer's joint_attention_dim", m->flux.text_width,
                  "the T5 encoder's d_model", m->t5.width, false));
    DFX_TRY(agree(m, "the transformer's pooled_projection_dim", m->flux.pooled_width,
                  "the CLIP encoder's hidden_size", m->clip.width, false));
    DFX_TRY(agree(m, "the transformer's in_channels", m->flux.in_channels,
                  "4 x the VAE's latent_channels", 4 * m->vae.latent_channels, false));
    DFX_TRY(agree(m, "the CLIP tokenizer's vocabulary",
                  (int64_t)dfx_tok_clip_vocab_size(m->tok_clip), "the CLIP encoder's vocab_size",
                  m->clip.n_vocab, true));
    DFX_TRY(agree(m, "the T5 tokenizer's vocabulary", (int64_t)dfx_tok_t5_vocab_size(m->tok_t5),
                  "the T5 encoder's vocab_size", m->t5.n_vocab, true));
    return agree(m, "the VAE's pixels a latent", dfx_vae_factor(&m->vae), "what FLUX uses", 8,
                 false);
}

static dfx_status set_defaults(dfx_model *m) {
    char path[DFX_PATH_BYTES];
    int64_t limit = (int64_t)dfx_tok_t5_model_max_length(m->tok_t5);
    m->max_text_length = limit > 0 && limit < 512 ? (int)limit : 512;
    m->default_text_length = m->flux.has_guidance ? 512 : 256;
    if (m->default_text_length > m->max_text_length)
        m->default_text_length = m->max_text_length;
    m->default_steps = m->flux.has_guidance ? 28 : 4;
    m->default_width = m->default_height = 1024;
    DFX_TRY(dfx_path_join(&m->sink, m->path, "dfx.json", path));
    return dfx_file_exists(path) ? dfx_config_load(m->path, "dfx.json", read_defaults, &m->sink, m)
                                 : DFX_OK;
}

/* Tensors that no part of a picture reads: known leftovers are fine, anything else deserves a word. */
static bool is_known_leftover(const char *name) {
    static const char *const prefixes[] = {"encoder.conv_in.",
                                           "encoder.conv_out.",
                                           "encoder.conv_norm_out.",
                                           "encoder.down_blocks.",
                                           "encoder.mid_block.",
                                           "quant_conv.",
                                           "decoder.block.",
                                           "decoder.embed_tokens.",
                                           "decoder.final_layer_norm.",
                                           "lm_head.",
                                           "shared.",
                                           "encoder.embed_tokens.",
                                           "text_projection.",
                                           "logit_scale",
                                           "text_model.embeddings.position_ids"};
    for (size_t i = 0; i < DFX_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool program_reads(const dfx_program *p, const dfx_tensor *t) {
    for (uint32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i].tensor == t)
            return true;
    return false;
}

static void warn_unused(const dfx_model *m, const dfx_program programs[DFX_N_PROGRAMS]) {
    for (size_t part = 0; part < DFX_COUNT(PARTS); part++) {
        const dfx_tensors *set = m->tensors[PARTS[part].component];
        size_t n_unused = 0;
        const char *example = NULL;
        for (size_t i = 0; i < dfx_tensors_count(set); i++) {
            const dfx_tensor *t = dfx_tensors_at(set, i);
            bool used = is_known_leftover(t->name);
            for (int p = 0; p < DFX_N_PROGRAMS && !used; p++)
                used = programs[p].tensors == set && program_reads(&programs[p], t);
            if (!used && !n_unused++)
                example = t->name;
        }
        if (n_unused)
            dfx_warn(&m->sink,
                     "%s/%s: %zu tensors are not used by this architecture, the first is %s",
                     m->path, PARTS[part].folder, n_unused, example);
    }
}

/* Build the programs once for the default shape: that checks every tensor. */
static dfx_status check_tensors(dfx_model *m) {
    dfx_program programs[DFX_N_PROGRAMS] = {0};
    dfx_shape shape = {.width = m->default_width,
                       .height = m->default_height,
                       .n_text = m->default_text_length,
                       .n_steps = m->default_steps};
    DFX_TRY(dfx_session_build(m, &shape, m->backend->act_dtype, programs));
    warn_unused(m, programs);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&programs[i]);
    return DFX_OK;
}

/* The folder's own name: "FLUX.1-dev" of ".../FLUX.1-dev/". */
static char *folder_name(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    char *name = dfx_strdup(path + begin, "model");
    if (name)
        name[end - begin] = 0;
    return name;
}

static dfx_status open_model(dfx_model *m, const dfx_open_options *o) {
    m->path = dfx_strdup(o->model_path, "model");
    m->name = folder_name(o->model_path);
    if (!m->path || !m->name)
        return dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", o->model_path);
    if (!dfx_file_is_dir(m->path))
        return dfx_fail(&m->sink, dfx_file_exists(m->path) ? DFX_E_FORMAT : DFX_E_IO,
                        "%s: wanted a diffusers folder with a model_index.json, found %s", m->path,
                        dfx_file_exists(m->path) ? "a file (single files are not read yet)"
                                                 : "nothing there");
    DFX_TRY(dfx_config_load(m->path, "model_index.json", read_index, &m->sink, NULL));
    DFX_TRY(open_backend(m, o));
    DFX_TRY(open_parts(m));
    DFX_TRY(check_parts(m));
    DFX_TRY(set_defaults(m));
    return check_tensors(m);
}

dfx_status dfx_model_open(const dfx_open_options *options, dfx_model **out) {
    dfx_model *m;
    DFX_TRY(dfx_new(&options->sink, "model", &m));
    m->sink = options->sink;
    dfx_status status = open_model(m, options);
    if (status != DFX_OK) {
        dfx_model_close(m);
        return status;
    }
    *out = m;
    return DFX_OK;
}

void dfx_model_close(dfx_model *m) {
    if (!m)
        return;
    if (m->backend) {
        dfx_session_end(m);
        dfx_executor_fini(&m->executor);
        m->backend->vt->close(m->backend);
    }
    dfx_tok_clip_close(m->tok_clip);
    dfx_tok_t5_close(m->tok_t5);
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        dfx_tensors_close(m->tensors[i]);
    dfx_free(m->name);
    dfx_free(m->path);
    dfx_free(m);
}

void dfx_model_describe(const dfx_model *m, dfx_model_info *out) {
    *out = (dfx_model_info){.name = m->name,
                            .kind = m->flux.has_guidance ? "FLUX.1 dev" : "FLUX.1 schnell",
                            .device = m->backend->name,
                            .has_guidance = m->flux.has_guidance,
                            .steps = m->default_steps,
                            .width = m->default_width,
                            .height = m->default_height,
                            .text_length = m->default_text_length,
                            .max_text_length = m->max_text_length};
    for (int c = 0; c < DFX_N_COMPONENTS; c++) {
        out->weight_bytes += dfx_tensors_bytes(m->tensors[c]);
        for (size_t i = 0; i < dfx_tensors_count(m->tensors[c]); i++)
            out->n_parameters += dfx_tensors_at(m->tensors[c], i)->n_elements;
    }
}

uint64_t dfx_host_peak_bytes(void) {
    return dfx_mem_peak_bytes();
}

void dfx_buffer_free(void *buffer) {
    dfx_free(buffer);
}

const char *dfx_version(void) {
    return DFX_VERSION;
}
