#include "tools/random_files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *model_index(const dfx_architecture *a) {
    return json_pack("{s:s, s:s, s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s], s:[s,s]}",
                     "_class_name", "FluxPipeline", "_diffusers_version", "0.30.0", "scheduler",
                     "diffusers", "FlowMatchEulerDiscreteScheduler", "text_encoder", "transformers",
                     "CLIPTextModel", "text_encoder_2", "transformers", "T5EncoderModel",
                     "tokenizer", "transformers", "CLIPTokenizer", "tokenizer_2", "transformers",
                     "T5TokenizerFast", "transformer", "diffusers", "FluxTransformer2DModel", "vae",
                     "diffusers", "AutoencoderKL");
}

/* Name and defaults. */
static json_t *defaults(const dfx_architecture *a) {
    json_t *json = json_object();
    char name[64];
    snprintf(name, sizeof(name), "%s, random weights", a->name);
    json_object_set_new(json, "name", json_string(name));
    json_object_set_new(json, "steps", json_integer(a->steps));
    json_object_set_new(json, "width", json_integer(a->side));
    json_object_set_new(json, "height", json_integer(a->side));
    return json;
}

static json_t *scheduler(const dfx_architecture *a) {
    return json_pack("{s:s, s:i, s:f, s:i, s:f, s:i, s:f, s:b}", "_class_name",
                     "FlowMatchEulerDiscreteScheduler", "base_image_seq_len", 256, "base_shift",
                     0.5, "max_image_seq_len", 4096, "max_shift", 1.15, "num_train_timesteps", 1000,
                     "shift", a->configs.sigmas.shift, "use_dynamic_shifting",
                     a->configs.sigmas.dynamic);
}

static json_t *transformer(const dfx_architecture *a) {
    const dfx_flux_config *c = &a->configs.flux;
    return json_pack(
        "{s:s, s:I, s:[I,I,I], s:b, s:I, s:I, s:I, s:I, s:I, s:n, s:i, s:I}", "_class_name",
        "FluxTransformer2DModel", "attention_head_dim", (json_int_t)c->head_size, "axes_dims_rope",
        (json_int_t)c->axes[0], (json_int_t)c->axes[1], (json_int_t)c->axes[2], "guidance_embeds",
        c->has_guidance, "in_channels", (json_int_t)c->in_channels, "joint_attention_dim",
        (json_int_t)c->text_width, "num_attention_heads", (json_int_t)c->n_heads, "num_layers",
        (json_int_t)c->n_double, "num_single_layers", (json_int_t)c->n_single, "out_channels",
        "patch_size", 1, "pooled_projection_dim", (json_int_t)c->pooled_width);
}

static json_t *clip(const dfx_architecture *a) {
    const dfx_clip_config *c = &a->configs.clip;
    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "architectures",
        "CLIPTextModel", "model_type", "clip_text_model", "hidden_act", "quick_gelu",
        "bos_token_id", (json_int_t)a->n_clip_pieces - 2, "eos_token_id",
        (json_int_t)a->n_clip_pieces - 1, "pad_token_id", (json_int_t)a->n_clip_pieces - 1,
        "hidden_size", (json_int_t)c->width, "intermediate_size", (json_int_t)c->mlp_width,
        "num_hidden_layers", (json_int_t)c->n_layers, "num_attention_heads", (json_int_t)c->n_heads,
        "max_position_embeddings", (json_int_t)c->n_positions, "vocab_size", (json_int_t)c->n_vocab,
        "projection_dim", (json_int_t)c->width, "layer_norm_eps", 1e-5);
}

static json_t *t5(const dfx_architecture *a) {
    const dfx_t5_config *c = &a->configs.t5;
    return json_pack(
        "{s:[s], s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "architectures",
        "T5EncoderModel", "model_type", "t5", "feed_forward_proj", "gated-gelu", "dense_act_fn",
        "gelu_new", "is_encoder_decoder", 0, "d_model", (json_int_t)c->width, "d_kv",
        (json_int_t)c->head_size, "d_ff", (json_int_t)c->mlp_width, "num_heads",
        (json_int_t)c->n_heads, "num_layers", (json_int_t)c->n_layers, "vocab_size",
        (json_int_t)c->n_vocab, "relative_attention_num_buckets", (json_int_t)c->n_buckets,
        "relative_attention_max_distance", (json_int_t)c->max_distance, "layer_norm_epsilon", 1e-6);
}

static json_t *vae(const dfx_architecture *a) {
    const dfx_vae_config *c = &a->configs.vae;
    json_t *channels = json_array(), *down = json_array(), *up = json_array();
    for (int i = 0; i < c->n_levels; i++) {
        json_array_append_new(channels, json_integer(c->channels[i]));
        json_array_append_new(down, json_string("DownEncoderBlock2D"));
        json_array_append_new(up, json_string("UpDecoderBlock2D"));
    }
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:b, s:b, s:b, s:o, s:o, s:o}",
        "_class_name", "AutoencoderKL", "act_fn", "silu", "in_channels", 3, "out_channels", 3,
        "sample_size", a->side ? a->side : 1024, "latent_channels", (json_int_t)c->latent_channels,
        "layers_per_block", (json_int_t)c->layers_per_block, "norm_num_groups",
        (json_int_t)c->n_groups, "scaling_factor", (double)c->scaling, "shift_factor",
        (double)c->shift, "mid_block_add_attention", c->mid_attention, "use_quant_conv",
        c->quant_conv, "use_post_quant_conv", c->post_quant_conv, "block_out_channels", channels,
        "down_block_types", down, "up_block_types", up);
}

/* ---- tokenizers ---- */

enum { PIECE_BYTES = 24 };

/* A code point as UTF-8. */
static void utf8(unsigned code, char text[4]) {
    if (code < 0x80)
        snprintf(text, 4, "%c", (int)code);
    else
        snprintf(text, 4, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
}

/* CLIP writes a byte that is no visible character as one above U+0100, in their order. */
static unsigned byte_letter(unsigned byte) {
    unsigned n_hidden = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool visible = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        if (b == byte)
            return visible ? byte : 0x100 + n_hidden;
        n_hidden += !visible;
    }
    return byte;
}

static void filler(int i, char text[PIECE_BYTES]) {
    snprintf(text, PIECE_BYTES, "filler%05d", i);
}

/* The vocabulary, or NULL when memory did not do for all of it. */
static json_t *whole(json_t *vocabulary, size_t n, int wanted) {
    if (n == (size_t)wanted)
        return vocabulary;
    json_decref(vocabulary);
    return NULL;
}

static json_t *clip_vocabulary(const dfx_architecture *a) {
    json_t *json = json_object();
    char letter[4], piece[PIECE_BYTES];
    int id = 0;
    for (int end = 0; end < 2; end++)
        for (unsigned byte = 0; byte < 256; byte++) {
            utf8(byte_letter(byte), letter);
            snprintf(piece, sizeof(piece), "%s%s", letter, end ? "</w>" : "");
            json_object_set_new(json, piece, json_integer(id++));
        }
    for (; id < a->n_clip_pieces - 2; id++) {
        filler(id, piece);
        json_object_set_new(json, piece, json_integer(id));
    }
    json_object_set_new(json, "<|startoftext|>", json_integer(id++));
    json_object_set_new(json, "<|endoftext|>", json_integer(id++));
    return whole(json, json_object_size(json), a->n_clip_pieces);
}

static json_t *clip_tokenizer_config(const dfx_architecture *a) {
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "bos_token", "<|startoftext|>", "eos_token",
                     "<|endoftext|>", "pad_token", "<|endoftext|>", "unk_token", "<|endoftext|>",
                     "model_max_length", (int)a->configs.clip.n_positions, "tokenizer_class",
                     "CLIPTokenizer");
}

static json_t *t5_pieces(const dfx_architecture *a) {
    static const char *const special[] = {"<pad>", "</s>", "<unk>", "\xe2\x96\x81"};
    json_t *list = json_array();
    char piece[PIECE_BYTES];
    int n = 0;
    for (; n < 4; n++)
        json_array_append_new(list, json_pack("[s, f]", special[n], n == 3 ? -6.0 : 0.0));
    for (int c = 0x21; c < 0x7f; c++, n++) {
        snprintf(piece, sizeof(piece), "%c", c);
        json_array_append_new(list, json_pack("[s, f]", piece, -8.0));
    }
    for (; n < a->n_t5_pieces; n++) {
        filler(n, piece);
        json_array_append_new(list, json_pack("[s, f]", piece, -99.0));
    }
    return whole(list, json_array_size(list), a->n_t5_pieces);
}

static json_t *t5_tokenizer(const dfx_architecture *a) {
    static const char *const special[] = {"<pad>", "</s>", "<unk>"};
    json_t *added = json_array();
    for (int i = 0; i < 3; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", i,
                                               "content", special[i], "single_word", 0, "lstrip", 0,
                                               "rstrip", 0, "normalized", 0, "special", 1));
    json_t *splitter =
        json_pack("{s:s, s:[{s:s}, {s:s, s:s, s:s, s:b}]}", "type", "Sequence", "pretokenizers",
                  "type", "WhitespaceSplit", "type", "Metaspace", "replacement", "\xe2\x96\x81",
                  "prepend_scheme", "always", "split", 1);
    json_t *ending =
        json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}",
                  "type", "TemplateProcessing", "single", "Sequence", "id", "A", "type_id", 0,
                  "SpecialToken", "id", "</s>", "type_id", 0, "pair", "special_tokens", "</s>",
                  "id", "</s>", "ids", 1, "tokens", "</s>");
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:{s:s, s:i, s:o, s:b}}", "version",
                     "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     "pre_tokenizer", splitter, "post_processor", ending, "model", "type",
                     "Unigram", "unk_id", 2, "vocab", t5_pieces(a), "byte_fallback", 0);
}

static json_t *t5_tokenizer_config(const dfx_architecture *a) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:s}", "eos_token", "</s>", "pad_token", "<pad>",
                     "unk_token", "<unk>", "extra_ids", 0, "model_max_length", a->text_length,
                     "tokenizer_class", "T5TokenizerFast");
}

/* ---- all of them ---- */

/* make NULL: the text is `text`. */
static const struct {
    const char *path;
    json_t *(*make)(const dfx_architecture *arch);
    const char *text;
} FILES[DFX_RANDOM_FILES] = {
    {"dfx.json", defaults, NULL},
    {"scheduler/scheduler_config.json", scheduler, NULL},
    {"text_encoder/config.json", clip, NULL},
    {"text_encoder_2/config.json", t5, NULL},
    {"tokenizer/merges.txt", NULL, "#version: 0.2\n"},
    {"tokenizer/tokenizer_config.json", clip_tokenizer_config, NULL},
    {"tokenizer/vocab.json", clip_vocabulary, NULL},
    {"tokenizer_2/tokenizer.json", t5_tokenizer, NULL},
    {"tokenizer_2/tokenizer_config.json", t5_tokenizer_config, NULL},
    {"transformer/config.json", transformer, NULL},
    {"vae/config.json", vae, NULL},
    {"model_index.json", model_index, NULL},
};

static dfx_status make_text(char **out, json_t *(*make)(const dfx_architecture *arch),
                            const char *text, const dfx_architecture *arch, const dfx_sink *sink) {
    json_t *json = make ? make(arch) : NULL;
    char *dumped = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (dumped || text)
        *out = dfx_strdup(dumped ? dumped : text, "random model");
    free(dumped);
    json_decref(json);
    return *out ? DFX_OK : dfx_fail(sink, DFX_E_NOFIT, "random-model: out of memory");
}

dfx_status dfx_random_files_init(dfx_random_files *files, const dfx_architecture *arch,
                                 const dfx_sink *sink) {
    dfx_status status = DFX_OK;
    *files = (dfx_random_files){0};
    for (size_t i = 0; i < DFX_COUNT(FILES) && status == DFX_OK; i++) {
        files->paths[i] = FILES[i].path;
        status = make_text(&files->texts[i], FILES[i].make, FILES[i].text, arch, sink);
    }
    if (status != DFX_OK)
        dfx_random_files_fini(files);
    return status;
}

void dfx_random_files_fini(dfx_random_files *files) {
    for (int i = 0; i < DFX_RANDOM_FILES; i++)
        dfx_free(files->texts[i]);
    *files = (dfx_random_files){0};
}
