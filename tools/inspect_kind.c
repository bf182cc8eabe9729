/* See inspect_kind.h. A part is recognised by tensors that only it has, behind any of the prefixes that all-in-one
 * checkpoints put before names. */
#include "tools/inspect_kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct checkpoint_part {
    const char *text;
    const char *names[2]; /* all of them must be there */
    const char *guidance; /* the tensor that only models with a guidance embedding have, or NULL */
    const char *image_input; /* its columns are the input channels; or NULL */
    const char *prefixes[4]; /* before `names`; ends with NULL */
} checkpoint_part;

#define FLUX_PREFIXES \
    { "", "model.diffusion_model.", "diffusion_model.", NULL }
#define VAE_PREFIXES \
    { "", "vae.", "first_stage_model.", NULL }

static const checkpoint_part parts[] = {
    {"FLUX transformer (BFL names", /* FLUX.2 and Chroma have no modulation inside the blocks */
     {"double_blocks.0.img_attn.qkv.weight", "double_blocks.0.img_mod.lin.weight"},
     "guidance_in.in_layer.weight",
     "img_in.weight",
     FLUX_PREFIXES},
    {"FLUX transformer (diffusers names", /* SD3 has no single blocks, AuraFlow no text in the time embedding */
     {"single_transformer_blocks.0.attn.to_q.weight",
      "time_text_embed.timestep_embedder.linear_1.weight"},
     "time_text_embed.guidance_embedder.linear_1.weight",
     "x_embedder.weight",
     FLUX_PREFIXES},
    {"VAE (BFL names)",
     {"decoder.conv_in.weight", "decoder.mid.block_1.conv1.weight"},
     NULL,
     NULL,
     VAE_PREFIXES},
    {"VAE (diffusers names)",
     {"decoder.conv_in.weight", "decoder.mid_block.resnets.0.conv1.weight"},
     NULL,
     NULL,
     VAE_PREFIXES},
    {"CLIP text encoder",
     {"text_model.embeddings.token_embedding.weight",
      "text_model.encoder.layers.0.self_attn.q_proj.weight"},
     NULL,
     NULL,
     {"", "text_encoders.clip_l.transformer.", "cond_stage_model.transformer.", NULL}},
    {"T5 encoder",
     {"encoder.block.0.layer.0.SelfAttention.q.weight",
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
     NULL,
     NULL,
     {"", "text_encoders.t5xxl.transformer.", NULL}},
    {"T5 encoder (llama.cpp names)",
     {"enc.blk.0.attn_q.weight", "enc.blk.0.attn_rel_b.weight"},
     NULL,
     NULL,
     {"", NULL}},
};

static const dfx_tensor *find(const dfx_tensors *set, const char *prefix, const char *name) {
    char full[256];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return dfx_tensors_find(set, full);
}

static bool has(const dfx_tensors *set, const char *prefix, const checkpoint_part *part) {
    for (size_t i = 0; i < DFX_COUNT(part->names); i++)
        if (!find(set, prefix, part->names[i]))
            return false;
    return true;
}

static void add(char text[DFX_KIND_TEXT_BYTES], const char *more) {
    size_t used = strlen(text);
    snprintf(text + used, DFX_KIND_TEXT_BYTES - used, "%s", more);
}

static void describe(const dfx_tensors *set, const char *prefix, const checkpoint_part *part,
                     char text[DFX_KIND_TEXT_BYTES]) {
    char channels[64];
    add(text, text[0] ? ", " : "");
    add(text, part->text);
    if (!part->guidance)
        return;
    add(text, find(set, prefix, part->guidance) ? ", guidance embedding: dev"
                                                : ", no guidance embedding: schnell");
    const dfx_tensor *input = find(set, prefix, part->image_input);
    if (input && input->rank == 2 && input->shape[1] != 64) {
        snprintf(channels, sizeof(channels), ", %" PRId64 " input channels: not text to image",
                 input->shape[1]);
        add(text, channels);
    }
    add(text, ")");
}

/* Endings that only adapters or packed layers have. */
static const struct {
    const char *words, *text;
    bool is_adapter;
} marks[] = {
    {".lora_A", "LoRA (lora_A, lora_B)", true},
    {".lora_down.", "LoRA (lora_down, lora_up)", true},
    {"_lora.down.", "LoRA (processor names)", true},
    {".processor.", "LoRA (processor names)", true},
    {".lora.down.", "LoRA (lora.down, lora.up)", true},
    {".lora_linear_layer.", "LoRA (lora_linear_layer)", true},
    {".lokr_w", "LoKr adapter", true},
    {".hada_w", "LoHa adapter", true},
    {".qweight", "packed 4-bit layers (SVDQuant or AWQ)", false},
};

/* An index into marks, or -1. */
static int find_mark(const dfx_tensors *set) {
    for (size_t i = 0; i < dfx_tensors_count(set); i++)
        for (size_t m = 0; m < DFX_COUNT(marks); m++)
            if (strstr(dfx_tensors_at(set, i)->name, marks[m].words))
                return (int)m;
    return -1;
}

bool dfx_kind_is_adapter(const dfx_tensors *set) {
    int mark = find_mark(set);
    return mark >= 0 && marks[mark].is_adapter;
}

void dfx_kind_text(const dfx_tensors *set, char text[DFX_KIND_TEXT_BYTES]) {
    int mark = find_mark(set);
    text[0] = 0;
    if (mark >= 0) {
        add(text, marks[mark].text);
        return;
    }
    for (size_t i = 0; i < DFX_COUNT(parts); i++)
        for (size_t p = 0; parts[i].prefixes[p]; p++)
            if (has(set, parts[i].prefixes[p], &parts[i]))
                describe(set, parts[i].prefixes[p], &parts[i], text);
    if (!text[0])
        add(text, "unknown");
}
