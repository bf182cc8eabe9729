/* The table of formats by name. Its rows answer one question, "may this become 8 bits wide?";
 * what a tensor's type and shape forbid is asked apart from it. */
#include "quant/q_policy.h"

#define DOUBLE "transformer.transformer_blocks.*."
#define SINGLE "transformer.single_transformer_blocks.*."
#define T5 "text_encoder_2.encoder.block.*."

/* Kept by the last row: x_embedder, context_embedder, time_text_embed.*, norm_out.*, the final
 * proj_out (single blocks have one too, named below), T5's embedding, and all of CLIP (0.12 G
 * parameters) and the VAE (0.08 G). */
const dfx_q_rule dfx_q_rules[] = {
    {"*norm*", DFX_Q_KEEP}, /* those of q and k too, in whatever shape; and modulation */

    {DOUBLE "attn.*.weight", DFX_Q_CONVERT}, /* to_q to_k to_v to_out.0, add_*_proj to_add_out */
    {DOUBLE "ff.net.*.weight", DFX_Q_CONVERT},
    {DOUBLE "ff_context.net.*.weight", DFX_Q_CONVERT},
    {SINGLE "attn.*.weight", DFX_Q_CONVERT},
    {SINGLE "proj_mlp.weight", DFX_Q_CONVERT},
    {SINGLE "proj_out.weight", DFX_Q_CONVERT},

    {T5 "layer.0.SelfAttention.relative_attention_bias.weight", DFX_Q_KEEP},
    {T5 "layer.0.SelfAttention.*.weight", DFX_Q_CONVERT},  /* q k v o */
    {T5 "layer.1.DenseReluDense.*.weight", DFX_Q_CONVERT}, /* wi_0 wi_1 wo */

    {"*", DFX_Q_KEEP},
};
const int dfx_q_n_rules = (int)(sizeof(dfx_q_rules) / sizeof(dfx_q_rules[0]));

/* Below this a row's scale costs more than 1/16 of its codes, and the layer is too small to
 * matter. */
enum { MIN_COLS = 64 };

/* Each '*' first takes nothing; on a mismatch the latest one takes one character more. Earlier
 * stars need no second try: the latest can take whatever they could. */
bool dfx_q_glob(const char *pattern, const char *name) {
    const char *after_star = NULL, *taken = NULL;
    while (*name) {
        if (*pattern == '*') {
            after_star = ++pattern;
            taken = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (after_star) {
            pattern = after_star;
            name = ++taken;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static dfx_q_action action_for(const dfx_q_policy *policy, const char *name) {
    for (int i = 0; i < policy->n_keep; i++)
        if (dfx_q_glob(policy->keep[i], name))
            return DFX_Q_KEEP;
    int rule = 0;
    while (!dfx_q_glob(dfx_q_rules[rule].pattern, name)) /* ends: the last row matches all */
        rule++;
    return dfx_q_rules[rule].action;
}

static bool is_float(dfx_dtype dtype) {
    switch (dtype) {
    case DFX_DTYPE_F64:
    case DFX_DTYPE_F32:
    case DFX_DTYPE_F16:
    case DFX_DTYPE_BF16:
    case DFX_DTYPE_F8_E4M3:
    case DFX_DTYPE_F8_E5M2:
        return true;
    default:
        return dfx_dtype_is_ggml(dtype);
    }
}

dfx_qformat dfx_q_policy_format(const dfx_q_policy *policy, const dfx_q_tensor *tensor) {
    if (!is_float(tensor->dtype))
        return DFX_Q_STORED;
    bool is_wide_matrix = tensor->n_dims == 2 && tensor->shape[1] >= MIN_COLS;
    bool kept = !is_wide_matrix || action_for(policy, tensor->name) == DFX_Q_KEEP;
    dfx_qformat format = kept ? policy->kept : policy->target;
    /* 8 bits to 8 other bits would only round once more. */
    if (dfx_q_has_row_scale(format) && dfx_dtype_bytes(tensor->dtype) == 1)
        return DFX_Q_STORED;
    return format == DFX_Q_STORED ? dfx_q_unchanged(tensor->dtype) : format;
}
