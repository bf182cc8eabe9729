/* Names of others to those of diffusers. Source: diffusers' conversion of single files.
 * In a pattern '#' is a number and '*' is the rest, both taken over in their order; '~' is a number that counts from the other
 * end. A pattern covers the whole layer. The first that fits is taken. */
#include "models/checkpoint_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum rule_kind { LAYER, SWAP, NORM } rule_kind;

typedef struct rule {
    const char *from, *to[DFX_SPLIT_MAX];
    rule_kind kind;
} rule;

#define TIME "time_text_embed.timestep_embedder."
#define TEXT "time_text_embed.text_embedder."
#define GUIDANCE "time_text_embed.guidance_embedder."
#define DOUBLE "transformer_blocks.#."
#define SINGLE "single_transformer_blocks.#."

static const rule FLUX[] = {
    {"img_in", {"x_embedder"}, LAYER},
    {"txt_in", {"context_embedder"}, LAYER},
    {"time_in.in_layer", {TIME "linear_1"}, LAYER},
    {"time_in.out_layer", {TIME "linear_2"}, LAYER},
    {"vector_in.in_layer", {TEXT "linear_1"}, LAYER},
    {"vector_in.out_layer", {TEXT "linear_2"}, LAYER},
    {"guidance_in.in_layer", {GUIDANCE "linear_1"}, LAYER},
    {"guidance_in.out_layer", {GUIDANCE "linear_2"}, LAYER},
    {"final_layer.adaLN_modulation.1", {"norm_out.linear"}, SWAP},
    {"final_layer.linear", {"proj_out"}, LAYER},
    {"double_blocks.#.img_mod.lin", {DOUBLE "norm1.linear"}, LAYER},
    {"double_blocks.#.txt_mod.lin", {DOUBLE "norm1_context.linear"}, LAYER},
    {"double_blocks.#.img_attn.qkv",
     {DOUBLE "attn.to_q", DOUBLE "attn.to_k", DOUBLE "attn.to_v"},
     LAYER},
    {"double_blocks.#.txt_attn.qkv",
     {DOUBLE "attn.add_q_proj", DOUBLE "attn.add_k_proj", DOUBLE "attn.add_v_proj"},
     LAYER},
    {"double_blocks.#.img_attn.norm.query_norm", {DOUBLE "attn.norm_q"}, NORM},
    {"double_blocks.#.img_attn.norm.key_norm", {DOUBLE "attn.norm_k"}, NORM},
    {"double_blocks.#.txt_attn.norm.query_norm", {DOUBLE "attn.norm_added_q"}, NORM},
    {"double_blocks.#.txt_attn.norm.key_norm", {DOUBLE "attn.norm_added_k"}, NORM},
    {"double_blocks.#.img_attn.proj", {DOUBLE "attn.to_out.0"}, LAYER},
    {"double_blocks.#.txt_attn.proj", {DOUBLE "attn.to_add_out"}, LAYER},
    {"double_blocks.#.img_mlp.0", {DOUBLE "ff.net.0.proj"}, LAYER},
    {"double_blocks.#.img_mlp.2", {DOUBLE "ff.net.2"}, LAYER},
    {"double_blocks.#.txt_mlp.0", {DOUBLE "ff_context.net.0.proj"}, LAYER},
    {"double_blocks.#.txt_mlp.2", {DOUBLE "ff_context.net.2"}, LAYER},
    {"single_blocks.#.modulation.lin", {SINGLE "norm.linear"}, LAYER},
    {"single_blocks.#.linear1",
     {SINGLE "attn.to_q", SINGLE "attn.to_k", SINGLE "attn.to_v", SINGLE "proj_mlp"},
     LAYER},
    {"single_blocks.#.linear2", {SINGLE "proj_out"}, LAYER},
    {"single_blocks.#.norm.query_norm", {SINGLE "attn.norm_q"}, NORM},
    {"single_blocks.#.norm.key_norm", {SINGLE "attn.norm_k"}, NORM},
};

/* Of one half of a VAE: "encoder." or "decoder." is before both sides. */
static const rule LDM[] = {
    {"conv_in", {"conv_in"}, LAYER},
    {"conv_out", {"conv_out"}, LAYER},
    {"norm_out", {"conv_norm_out"}, LAYER},
    {"mid.attn_1.norm", {"mid_block.attentions.0.group_norm"}, LAYER},
    {"mid.attn_1.q", {"mid_block.attentions.0.to_q"}, LAYER},
    {"mid.attn_1.k", {"mid_block.attentions.0.to_k"}, LAYER},
    {"mid.attn_1.v", {"mid_block.attentions.0.to_v"}, LAYER},
    {"mid.attn_1.proj_out", {"mid_block.attentions.0.to_out.0"}, LAYER},
    {"mid.block_1.*", {"mid_block.resnets.0.*"}, LAYER},
    {"mid.block_2.*", {"mid_block.resnets.1.*"}, LAYER},
    {"down.#.block.#.nin_shortcut", {"down_blocks.#.resnets.#.conv_shortcut"}, LAYER},
    {"down.#.block.#.*", {"down_blocks.#.resnets.#.*"}, LAYER},
    {"down.#.downsample.conv", {"down_blocks.#.downsamplers.0.conv"}, LAYER},
    {"up.~.block.#.nin_shortcut", {"up_blocks.#.resnets.#.conv_shortcut"}, LAYER},
    {"up.~.block.#.*", {"up_blocks.#.resnets.#.*"}, LAYER},
    {"up.~.upsample.conv", {"up_blocks.#.upsamplers.0.conv"}, LAYER},
};

/* What diffusers called the attention of a VAE when it was young. */
static const rule LEGACY[] = {
    {"mid_block.attentions.0.query", {"mid_block.attentions.0.to_q"}, LAYER},
    {"mid_block.attentions.0.key", {"mid_block.attentions.0.to_k"}, LAYER},
    {"mid_block.attentions.0.value", {"mid_block.attentions.0.to_v"}, LAYER},
    {"mid_block.attentions.0.proj_attn", {"mid_block.attentions.0.to_out.0"}, LAYER},
    {"*", {"*"}, LAYER},
};

#define T5_BLOCK "encoder.block.#.layer."
static const rule LLAMA_T5[] = {
    {"token_embd", {"shared"}, LAYER},
    {"enc.blk.#.attn_norm", {T5_BLOCK "0.layer_norm"}, LAYER},
    {"enc.blk.#.attn_q", {T5_BLOCK "0.SelfAttention.q"}, LAYER},
    {"enc.blk.#.attn_k", {T5_BLOCK "0.SelfAttention.k"}, LAYER},
    {"enc.blk.#.attn_v", {T5_BLOCK "0.SelfAttention.v"}, LAYER},
    {"enc.blk.#.attn_o", {T5_BLOCK "0.SelfAttention.o"}, LAYER},
    {"enc.blk.#.attn_rel_b", {T5_BLOCK "0.SelfAttention.relative_attention_bias"}, LAYER},
    {"enc.blk.#.ffn_norm", {T5_BLOCK "1.layer_norm"}, LAYER},
    {"enc.blk.#.ffn_gate", {T5_BLOCK "1.DenseReluDense.wi_0"}, LAYER},
    {"enc.blk.#.ffn_up", {T5_BLOCK "1.DenseReluDense.wi_1"}, LAYER},
    {"enc.blk.#.ffn_down", {T5_BLOCK "1.DenseReluDense.wo"}, LAYER},
    {"enc.output_norm", {"encoder.final_layer_norm"}, LAYER},
};

enum { NUMBERS_MAX = 2, NUMBER_DIGITS = 6 };

/* What a pattern's signs stand for in a name. */
typedef struct taken {
    long numbers[NUMBERS_MAX];
    int n_numbers;
    const char *rest;
} taken;

static bool take_number(const char **name, bool from_the_end, int n_levels, taken *out) {
    size_t digits = strspn(*name, "0123456789");
    if (digits == 0 || digits > NUMBER_DIGITS || out->n_numbers == NUMBERS_MAX)
        return false;
    long number = strtol(*name, NULL, 10);
    *name += digits;
    if (from_the_end && number >= n_levels)
        return false;
    out->numbers[out->n_numbers++] = from_the_end ? n_levels - 1 - number : number;
    return true;
}

static bool fits(const char *pattern, const char *name, int n_levels, taken *out) {
    *out = (taken){0};
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            out->rest = name;
            return *name != '\0';
        }
        if (*pattern == '#' || *pattern == '~') {
            if (!take_number(&name, *pattern == '~', n_levels, out))
                return false;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

static void put(const char *to, const char *before, const taken *t, char out[DFX_LAYER_BYTES]) {
    int number = 0;
    size_t len = (size_t)snprintf(out, DFX_LAYER_BYTES, "%s", before);
    for (; *to && len < DFX_LAYER_BYTES - 1; to++) {
        size_t left = DFX_LAYER_BYTES - len;
        int n = *to == '#'   ? snprintf(out + len, left, "%ld", t->numbers[number++])
                : *to == '*' ? snprintf(out + len, left, "%s", t->rest)
                             : snprintf(out + len, left, "%c", *to);
        len += (size_t)n;
    }
}

static void map_by(const rule *rules, size_t n, const char *before, const char *layer, int n_levels,
                   dfx_renamed *out) {
    taken t;
    for (size_t i = 0; i < n; i++) {
        if (!fits(rules[i].from, layer, n_levels, &t))
            continue;
        out->swap = rules[i].kind == SWAP;
        out->is_norm = rules[i].kind == NORM;
        while (out->n < DFX_SPLIT_MAX && rules[i].to[out->n]) {
            put(rules[i].to[out->n], before, &t, out->to[out->n]);
            out->n++;
        }
        return;
    }
}

static void keep_name(const char *before, const char *layer, dfx_renamed *out) {
    snprintf(out->to[0], DFX_LAYER_BYTES, "%s%s", before, layer);
    out->n = 1;
}

static void map_vae(dfx_names names, const char *layer, int n_levels, dfx_renamed *out) {
    static const char *const halves[] = {"encoder.", "decoder."};
    for (size_t i = 0; i < DFX_COUNT(halves); i++) {
        size_t n = strlen(halves[i]);
        if (strncmp(layer, halves[i], n) != 0)
            continue;
        if (names == DFX_NAMES_ORIGINAL)
            map_by(LDM, DFX_COUNT(LDM), halves[i], layer + n, n_levels, out);
        else
            map_by(LEGACY, DFX_COUNT(LEGACY), halves[i], layer + n, n_levels, out);
        return;
    }
    if (strcmp(layer, "quant_conv") == 0 || strcmp(layer, "post_quant_conv") == 0)
        keep_name("", layer, out);
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_flux(const char *layer) {
    static const char *const beginnings[] = {"transformer_blocks.",
                                             "single_transformer_blocks.",
                                             "time_text_embed.",
                                             "x_embedder",
                                             "context_embedder",
                                             "norm_out.",
                                             "proj_out"};
    for (size_t i = 0; i < DFX_COUNT(beginnings); i++)
        if (begins(layer, beginnings[i]))
            return true;
    return false;
}

void dfx_names_map(dfx_component component, dfx_names names, const char *layer, int n_levels,
                   dfx_renamed *out) {
    *out = (dfx_renamed){0};
    if (component == DFX_VAE)
        map_vae(names, layer, n_levels, out);
    else if (component == DFX_TRANSFORMER && names == DFX_NAMES_ORIGINAL)
        map_by(FLUX, DFX_COUNT(FLUX), "", layer, 0, out);
    else if (component == DFX_TRANSFORMER && is_flux(layer))
        keep_name("", layer, out);
    else if (component == DFX_T5 && names == DFX_NAMES_LLAMA)
        map_by(LLAMA_T5, DFX_COUNT(LLAMA_T5), "", layer, 0, out);
    else if (component == DFX_T5 && (begins(layer, "encoder.") || strcmp(layer, "shared") == 0))
        keep_name("", layer, out);
    else if (component == DFX_CLIP && (begins(layer, "embeddings.") || begins(layer, "encoder.") ||
                                       begins(layer, "final_layer_norm")))
        keep_name("text_model.", layer, out);
}

bool dfx_names_rule(dfx_component component, dfx_names names, size_t idx, int number,
                    char layer[DFX_LAYER_BYTES], dfx_renamed *out) {
    bool is_flux_rule = component == DFX_TRANSFORMER && names == DFX_NAMES_ORIGINAL;
    const rule *rules = is_flux_rule ? FLUX : LLAMA_T5;
    size_t n = is_flux_rule ? DFX_COUNT(FLUX) : DFX_COUNT(LLAMA_T5);
    *out = (dfx_renamed){0};
    if (idx >= n)
        return false;
    taken t = {.numbers = {number}, .n_numbers = 1};
    put(rules[idx].from, "", &t, layer);
    if (number == 0 || strchr(rules[idx].from, '#'))
        map_by(&rules[idx], 1, "", layer, 0, out);
    return true;
}
