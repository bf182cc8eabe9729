#include "models/configs.h"

#include <inttypes.h>
#include <string.h>

#include "models/config.h"

const dfx_component_place dfx_component_places[DFX_N_COMPONENTS] = {
    [DFX_CLIP] = {"text_encoder", "model"},
    [DFX_T5] = {"text_encoder_2", "model"},
    [DFX_TRANSFORMER] = {"transformer", "diffusion_pytorch_model"},
    [DFX_VAE] = {"vae", "diffusion_pytorch_model"},
};

/* What model_index.json must say of each part. */
static const char *const CLASSES[DFX_N_COMPONENTS] = {
    [DFX_CLIP] = "CLIPTextModel",
    [DFX_T5] = "T5EncoderModel",
    [DFX_TRANSFORMER] = "FluxTransformer2DModel",
    [DFX_VAE] = "AutoencoderKL",
};

const char *const dfx_model_files[] = {
    "model_index.json",
    "dfx.json",
    "scheduler/scheduler_config.json",
    "text_encoder/config.json",
    "text_encoder_2/config.json",
    "transformer/config.json",
    "vae/config.json",
    "tokenizer/vocab.json",
    "tokenizer/merges.txt",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/special_tokens_map.json",
    "tokenizer/added_tokens.json",
    "tokenizer_2/spiece.model",
    "tokenizer_2/tokenizer.json",
    "tokenizer_2/tokenizer_config.json",
    "tokenizer_2/special_tokens_map.json",
    "tokenizer_2/added_tokens.json",
};
const size_t dfx_n_model_files = DFX_COUNT(dfx_model_files);

/* Pipelines of diffusers that folders of look-alikes have. */
static const struct {
    const char *class_name, *text;
} OTHERS[] = {
    {"FluxKontextPipeline", "FLUX.1 Kontext"},
    {"FluxFillPipeline", "FLUX.1 Fill"},
    {"FluxControlPipeline", "FLUX.1 Canny or Depth"},
    {"FluxPriorReduxPipeline", "FLUX.1 Redux"},
    {"Flux2Pipeline", "FLUX.2"},
    {"Flux2KleinPipeline", "FLUX.2 klein"},
    {"ChromaPipeline", "Chroma"},
    {"StableDiffusion3Pipeline", "Stable Diffusion 3"},
    {"StableDiffusionXLPipeline", "Stable Diffusion XL"},
    {"StableDiffusionPipeline", "Stable Diffusion"},
    {"QwenImagePipeline", "Qwen-Image"},
    {"ZImagePipeline", "Z-Image"},
    {"PixArtAlphaPipeline", "PixArt"},
};

static dfx_status refuse_pipeline(const char *class_name, const char *path, const dfx_sink *sink) {
    const char *text = NULL;
    for (size_t i = 0; i < DFX_COUNT(OTHERS) && !text; i++)
        if (strcmp(class_name, OTHERS[i].class_name) == 0)
            text = OTHERS[i].text;
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: _class_name: wanted FluxPipeline (FLUX.1 dev or schnell), found %s%s%s",
                    path, class_name, text ? ", which is " : "", text ? text : "");
}

static dfx_status read_index(const json_t *json, const char *path, const dfx_sink *sink,
                             void *out) {
    (void)out;
    const char *class_name;
    DFX_TRY(dfx_json_str(json, path, "_class_name", sink, &class_name));
    if (strcmp(class_name, "FluxPipeline") != 0)
        return refuse_pipeline(class_name, path, sink);
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        json_t *pair;
        const char *folder = dfx_component_places[i].folder;
        DFX_TRY(dfx_json_array(json, path, folder, sink, &pair));
        const char *found = json_string_value(json_array_get(pair, 1));
        if (!found || strcmp(found, CLASSES[i]) != 0)
            return dfx_fail(sink, DFX_E_FORMAT, "%s: %s: wanted class %s, found %s", path, folder,
                            CLASSES[i], found ? found : "none");
    }
    return DFX_OK;
}

dfx_status dfx_configs_agree(const dfx_bundle *bundle, const dfx_sink *sink, const char *what,
                             int64_t a, const char *other, int64_t b, bool at_most) {
    if (at_most ? a <= b : a == b)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: %s is %" PRId64 " but %s is %" PRId64
                    ": the parts are of different models",
                    bundle->name, what, a, other, b);
}

static dfx_status check_together(const dfx_bundle *bundle, const dfx_sink *sink,
                                 const dfx_configs *c) {
    DFX_TRY(dfx_configs_agree(bundle, sink, "the transformer's joint_attention_dim",
                              c->flux.text_width, "the T5 encoder's d_model", c->t5.width, false));
    DFX_TRY(dfx_configs_agree(bundle, sink, "the transformer's pooled_projection_dim",
                              c->flux.pooled_width, "the CLIP encoder's hidden_size", c->clip.width,
                              false));
    DFX_TRY(dfx_configs_agree(bundle, sink, "the transformer's in_channels", c->flux.in_channels,
                              "4 x the VAE's latent_channels", 4 * c->vae.latent_channels, false));
    return dfx_configs_agree(bundle, sink, "the VAE's pixels a latent", dfx_vae_factor(&c->vae),
                             "what FLUX uses", 8, false);
}

dfx_status dfx_configs_check_index(const dfx_bundle *bundle, const dfx_sink *sink) {
    return dfx_config_load(bundle, "", "model_index.json", read_index, sink, NULL);
}

dfx_status dfx_configs_load(const dfx_bundle *bundle, const dfx_sink *sink, dfx_configs *out) {
    DFX_TRY(dfx_configs_check_index(bundle, sink));
    DFX_TRY(dfx_clip_config_load(bundle, dfx_component_places[DFX_CLIP].folder, sink, &out->clip));
    DFX_TRY(dfx_t5_config_load(bundle, dfx_component_places[DFX_T5].folder, sink, &out->t5));
    DFX_TRY(dfx_flux_config_load(bundle, dfx_component_places[DFX_TRANSFORMER].folder, sink,
                                 &out->flux));
    DFX_TRY(dfx_vae_config_load(bundle, dfx_component_places[DFX_VAE].folder, sink, &out->vae));
    DFX_TRY(dfx_sigma_config_load(bundle, "scheduler", sink, &out->sigmas));
    return check_together(bundle, sink, out);
}
