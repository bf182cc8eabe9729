/* Configurations out of the shapes of tensors. What shapes do not say is the same in all models of the family: heads of 64 in
 * CLIP, 32 norm groups, the factors of the VAE, RoPE's axes, the schedule that goes with a guidance embedding. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/checkpoint_internal.h"
#include "models/config_write.h"

enum { CLIP_HEAD = 64, CLIP_POSITIONS = 77, BLOCKS_MAX = 1024, USUAL_SIDE = 1024 };

/* A part being looked at; the first fault sticks. */
typedef struct shapes {
    const dfx_checkpoint *c;
    const dfx_part *part;
    dfx_component component;
    dfx_status status;
} shapes;

/* Side `dim` of a tensor that must be there. */
static int64_t side(shapes *s, const char *name, int rank, int dim) {
    const dfx_tensor *t = dfx_tensors_find(s->part->view, name);
    char text[DFX_SHAPE_TEXT];
    if (s->status != DFX_OK)
        return 1;
    if (t && t->rank == rank)
        return t->shape[dim];
    if (!t)
        s->status = dfx_fail(s->c->sink, DFX_E_FORMAT, "%s: of the %s the tensor %s is missing",
                             s->part->source->path, dfx_component_texts[s->component], name);
    else
        s->status = dfx_fail(s->c->sink, DFX_E_FORMAT, "%s: %s: wanted %d sides, found %s",
                             s->part->source->path, name, rank, dfx_tensor_shape_text(t, text));
    return 1;
}

static bool has(const shapes *s, const char *name) {
    return dfx_tensors_find(s->part->view, name) != NULL;
}

/* How many n have the tensor before + n + after. */
static int64_t count(const shapes *s, const char *before, const char *after) {
    char name[256];
    int64_t n = 0;
    for (; n < BLOCKS_MAX; n++) {
        snprintf(name, sizeof(name), "%s%" PRId64 "%s", before, n, after);
        if (!has(s, name))
            break;
    }
    return n;
}

static dfx_status refuse(const shapes *s, const char *fmt, int64_t number) {
    char text[256];
    snprintf(text, sizeof(text), fmt, number);
    return dfx_fail(s->c->sink, DFX_E_FORMAT, "%s: %s", s->part->source->path, text);
}

static dfx_status derive_flux(shapes *s, dfx_flux_config *c) {
    int64_t in = side(s, "x_embedder.weight", 2, 1);
    *c = (dfx_flux_config){
        .in_channels = in,
        .out_channels = side(s, "proj_out.weight", 2, 0),
        .n_double = count(s, "transformer_blocks.", ".attn.norm_q.weight"),
        .n_single = count(s, "single_transformer_blocks.", ".attn.norm_q.weight"),
        .head_size = side(s, "single_transformer_blocks.0.attn.norm_q.weight", 1, 0),
        .text_width = side(s, "context_embedder.weight", 2, 1),
        .pooled_width = side(s, "time_text_embed.text_embedder.linear_1.weight", 2, 1),
        .axes = {16, 56, 56},
        .has_guidance = has(s, "time_text_embed.guidance_embedder.linear_1.weight"),
        .width = side(s, "x_embedder.weight", 2, 0)};
    DFX_TRY(s->status);
    if (in == 384)
        return refuse(s,
                      "img_in has %" PRId64
                      " input channels: this is FLUX.1 Fill, which paints into "
                      "a picture; dfx-edge makes pictures of text, with dev and schnell (64)",
                      in);
    if (in == 128)
        return refuse(s,
                      "img_in has %" PRId64 " input channels: this is FLUX.1 Depth or Canny, which "
                      "wants a control picture; dfx-edge runs dev and schnell (64)",
                      in);
    if (in != 64 || c->out_channels != 64)
        return refuse(s, "img_in has %" PRId64 " input channels; FLUX.1 dev and schnell have 64",
                      in);
    if (c->head_size != 128 || c->width % 128 != 0)
        return refuse(s, "heads of %" PRId64 " values; FLUX.1 has heads of 128", c->head_size);
    c->n_heads = c->width / c->head_size;
    return DFX_OK;
}

static dfx_status derive_clip(shapes *s, dfx_clip_config *c) {
    *c = (dfx_clip_config){
        .width = side(s, "text_model.embeddings.token_embedding.weight", 2, 1),
        .n_vocab = side(s, "text_model.embeddings.token_embedding.weight", 2, 0),
        .n_positions = side(s, "text_model.embeddings.position_embedding.weight", 2, 0),
        .mlp_width = side(s, "text_model.encoder.layers.0.mlp.fc1.weight", 2, 0),
        .n_layers = count(s, "text_model.encoder.layers.", ".layer_norm1.weight")};
    DFX_TRY(s->status);
    if (c->n_positions != CLIP_POSITIONS)
        return refuse(s,
                      "the CLIP text encoder has %" PRId64
                      " positions; wanted 77: a Long-CLIP is not "
                      "read, take the usual clip_l.safetensors",
                      c->n_positions);
    if (c->width % CLIP_HEAD != 0)
        return refuse(s, "the CLIP text encoder is %" PRId64 " wide; wanted a multiple of 64",
                      c->width);
    c->n_heads = c->width / CLIP_HEAD;
    return DFX_OK;
}

static dfx_status derive_t5(shapes *s, dfx_t5_config *c) {
    static const char bias[] =
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    if (!has(s, "shared.weight"))
        return dfx_fail(s->c->sink, DFX_E_FORMAT,
                        "%s: of the T5 encoder the embedding is missing: neither shared.weight nor "
                        "encoder.embed_tokens.weight",
                        s->part->source->path);
    int64_t inner = side(s, "encoder.block.0.layer.0.SelfAttention.q.weight", 2, 0);
    *c = (dfx_t5_config){.width = side(s, "shared.weight", 2, 1),
                         .n_vocab = side(s, "shared.weight", 2, 0),
                         .n_heads = side(s, bias, 2, 1),
                         .n_buckets = side(s, bias, 2, 0),
                         .max_distance = 128,
                         .mlp_width =
                             side(s, "encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 2, 0),
                         .n_layers = count(s, "encoder.block.", ".layer.0.layer_norm.weight")};
    DFX_TRY(s->status);
    if (c->n_heads < 1 || inner % c->n_heads != 0)
        return refuse(
            s, "the T5 encoder's q has %" PRId64 " rows, which its heads do not share evenly",
            inner);
    c->head_size = inner / c->n_heads;
    return DFX_OK;
}

static dfx_status derive_vae(shapes *s, dfx_vae_config *c) {
    *c = (dfx_vae_config){.latent_channels = side(s, "decoder.conv_in.weight", 4, 1),
                          .layers_per_block =
                              count(s, "decoder.up_blocks.0.resnets.", ".norm1.weight") - 1,
                          .n_groups = 32,
                          .scaling = 0.3611f,
                          .shift = 0.1159f,
                          .mid_attention = has(s, "decoder.mid_block.attentions.0.to_q.weight"),
                          .quant_conv = has(s, "quant_conv.weight"),
                          .post_quant_conv = has(s, "post_quant_conv.weight")};
    int64_t n = count(s, "decoder.up_blocks.", ".resnets.0.norm1.weight");
    DFX_TRY(s->status);
    if (c->latent_channels != 16)
        return refuse(s,
                      "the VAE has %" PRId64 " latent channels; FLUX.1 wants the one with 16 "
                      "(ae.safetensors); 4 is Stable Diffusion's, 32 is FLUX.2's",
                      c->latent_channels);
    if (n < 1 || n > DFX_VAE_LEVELS_MAX || c->layers_per_block < 1)
        return refuse(s, "the VAE has %" PRId64 " levels; FLUX.1's has 4", n);
    c->n_levels = (int)n;
    for (int64_t i = 0; i < n; i++) {
        char name[96];
        snprintf(name, sizeof(name), "decoder.up_blocks.%" PRId64 ".resnets.0.conv1.weight",
                 n - 1 - i);
        c->channels[i] = side(s, name, 4, 0);
    }
    return s->status;
}

dfx_status dfx_checkpoint_add_text(dfx_checkpoint *c, const char *path, const char *text,
                                   size_t bytes) {
    char *copy;
    if (c->n_texts == dfx_n_model_files)
        return dfx_fail(c->sink, DFX_E_INTERNAL, "checkpoint: one small file too many, %s", path);
    DFX_TRY(dfx_arena_text(&c->arena, c->sink, text, bytes, &copy));
    c->texts[c->n_texts++] = (dfx_bundle_text){.path = path, .text = copy, .bytes = bytes};
    return DFX_OK;
}

static dfx_status add_json(dfx_checkpoint *c, const char *path, json_t *json) {
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    dfx_status status = text ? dfx_checkpoint_add_text(c, path, text, strlen(text))
                             : dfx_fail(c->sink, DFX_E_NOFIT, "out of memory writing %s", path);
    free(text);
    return status;
}

/* dev's schedule moves with the size of the picture, schnell's stands still. */
static json_t *write_scheduler(bool has_guidance) {
    dfx_sigma_config sigmas = {.dynamic = has_guidance, .shift = has_guidance ? 3.0 : 1.0};
    return dfx_config_write_scheduler(&sigmas);
}

static const char *const CONFIGS[DFX_N_COMPONENTS] = {[DFX_CLIP] = "text_encoder/config.json",
                                                      [DFX_T5] = "text_encoder_2/config.json",
                                                      [DFX_TRANSFORMER] = "transformer/config.json",
                                                      [DFX_VAE] = "vae/config.json"};

static dfx_status derive(shapes *s, dfx_configs *configs, json_t **json) {
    dfx_status status = DFX_OK;
    switch (s->component) {
    case DFX_CLIP:
        status = derive_clip(s, &configs->clip);
        *json =
            status == DFX_OK ? dfx_config_write_clip(&configs->clip, configs->clip.n_vocab) : NULL;
        break;
    case DFX_T5:
        status = derive_t5(s, &configs->t5);
        *json = status == DFX_OK ? dfx_config_write_t5(&configs->t5) : NULL;
        break;
    case DFX_TRANSFORMER:
        status = derive_flux(s, &configs->flux);
        *json = status == DFX_OK ? dfx_config_write_flux(&configs->flux) : NULL;
        break;
    default:
        status = derive_vae(s, &configs->vae);
        *json = status == DFX_OK ? dfx_config_write_vae(&configs->vae, USUAL_SIDE) : NULL;
        break;
    }
    return status;
}

static bool has_text(const dfx_checkpoint *c, const char *path) {
    for (size_t i = 0; i < c->n_texts; i++)
        if (strcmp(c->texts[i].path, path) == 0)
            return true;
    return false;
}

/* What is there already, from a folder, stays. */
dfx_status dfx_checkpoint_derive(dfx_checkpoint *c) {
    dfx_configs configs = {0};
    for (int i = 0; i < DFX_N_COMPONENTS; i++) {
        shapes s = {.c = c, .part = &c->parts[i], .component = (dfx_component)i};
        json_t *json;
        if (c->parts[i].config) {
            DFX_TRY(dfx_checkpoint_add_text(c, CONFIGS[i], c->parts[i].config,
                                            c->parts[i].config_bytes));
        } else if (!has_text(c, CONFIGS[i])) {
            DFX_TRY(derive(&s, &configs, &json));
            DFX_TRY(add_json(c, CONFIGS[i], json));
        }
    }
    bool has_guidance = dfx_tensors_find(c->parts[DFX_TRANSFORMER].view,
                                         "time_text_embed.guidance_embedder.linear_1.weight");
    if (!has_text(c, "scheduler/scheduler_config.json"))
        DFX_TRY(add_json(c, "scheduler/scheduler_config.json", write_scheduler(has_guidance)));
    return has_text(c, "model_index.json")
               ? DFX_OK
               : add_json(c, "model_index.json", dfx_config_write_index());
}
