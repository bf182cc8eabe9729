#include "models/t5.h"

#include <string.h>

#include "models/config.h"

static dfx_status read_config(const json_t *json, const char *path, const dfx_sink *sink,
                              void *out) {
    dfx_t5_config *c = out;
    const char *ff;
    double eps = 1e-6;
    c->max_distance = 128;
    DFX_TRY(dfx_json_int(json, path, "d_model", 1, 1 << 16, sink, &c->width));
    DFX_TRY(dfx_json_int(json, path, "d_kv", 1, 1 << 12, sink, &c->head_size));
    DFX_TRY(dfx_json_int(json, path, "num_heads", 1, 1024, sink, &c->n_heads));
    DFX_TRY(dfx_json_int(json, path, "d_ff", 1, 1 << 20, sink, &c->mlp_width));
    DFX_TRY(dfx_json_int(json, path, "num_layers", 1, 1024, sink, &c->n_layers));
    DFX_TRY(dfx_json_int(json, path, "vocab_size", 1, 1 << 24, sink, &c->n_vocab));
    DFX_TRY(dfx_json_int(json, path, "relative_attention_num_buckets", 4, 1 << 12, sink,
                         &c->n_buckets));
    if (dfx_json_has(json, "relative_attention_max_distance"))
        DFX_TRY(dfx_json_int(json, path, "relative_attention_max_distance", 2, 1 << 20, sink,
                             &c->max_distance));
    if (dfx_json_has(json, "layer_norm_epsilon"))
        DFX_TRY(dfx_json_real(json, path, "layer_norm_epsilon", sink, &eps));
    c->eps = (float)eps;
    DFX_TRY(dfx_json_str(json, path, "feed_forward_proj", sink, &ff));
    if (strcmp(ff, "gated-gelu") != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: feed_forward_proj: wanted \"gated-gelu\" (T5 v1.1), found \"%s\"",
                        path, ff);
    return DFX_OK;
}

dfx_status dfx_t5_config_load(const char *dir, const dfx_sink *sink, dfx_t5_config *out) {
    return dfx_config_load(dir, "config.json", read_config, sink, out);
}

/* n = RMS(x);  x += o(attention(n));  n = RMS(x);  x += wo(gelu(wi_0 n) * wi_1 n) */
static void build_block(dfx_builder *b, const dfx_t5_config *c, dfx_ref x, dfx_ref bias) {
    int64_t inner = c->n_heads * c->head_size;
    dfx_ref n = dfx_rmsnorm(b, x, "layer.0.layer_norm", c->eps);
    dfx_ref q = dfx_linear(
        b,
        &(dfx_linear_spec){.x = n, .name = "layer.0.SelfAttention.q", .n = inner, .no_bias = true});
    dfx_ref k = dfx_linear(
        b,
        &(dfx_linear_spec){.x = n, .name = "layer.0.SelfAttention.k", .n = inner, .no_bias = true});
    dfx_ref v = dfx_linear(
        b,
        &(dfx_linear_spec){.x = n, .name = "layer.0.SelfAttention.v", .n = inner, .no_bias = true});
    dfx_ref a = dfx_attention(b, &(dfx_attention_spec){.q = q,
                                                       .k = k,
                                                       .v = v,
                                                       .bias = bias,
                                                       .n_heads = (int)c->n_heads,
                                                       .scale = 1.0f,
                                                       .label = "layer.0.SelfAttention"});
    dfx_linear(b, &(dfx_linear_spec){.x = a,
                                     .name = "layer.0.SelfAttention.o",
                                     .n = c->width,
                                     .no_bias = true,
                                     .residual = x,
                                     .into = x});
    n = dfx_rmsnorm(b, x, "layer.1.layer_norm", c->eps);
    dfx_ref up = dfx_linear(
        b, &(dfx_linear_spec){
               .x = n, .name = "layer.1.DenseReluDense.wi_1", .n = c->mlp_width, .no_bias = true});
    dfx_ref g = dfx_linear(
        b, &(dfx_linear_spec){
               .x = n, .name = "layer.1.DenseReluDense.wi_0", .n = c->mlp_width, .no_bias = true});
    dfx_emit(b, DFX_OP_ACT_MUL, "layer.1.gated", (dfx_ref[DFX_OP_SLOTS]){g, g, up},
             &(dfx_op_params){.act = DFX_ACT_GELU_TANH});
    dfx_linear(b, &(dfx_linear_spec){.x = g,
                                     .name = "layer.1.DenseReluDense.wo",
                                     .n = c->width,
                                     .no_bias = true,
                                     .residual = x,
                                     .into = x});
}

/* Both names of the embedding are in use; they are one tensor. */
static dfx_ref embedding(dfx_builder *b, const dfx_t5_config *c) {
    dfx_builder_page(b, "shared");
    dfx_builder_scope(b, "%s", "");
    const char *name =
        dfx_builder_has(b, "shared.weight") ? "shared.weight" : "encoder.embed_tokens.weight";
    return dfx_weight_ref(b, name, c->n_vocab, c->width);
}

dfx_status dfx_t5_build(const dfx_t5_config *c, const dfx_tensors *tensors, int64_t n_tokens,
                        dfx_dtype act_dtype, const dfx_sink *sink, dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "t5", tensors, "text_encoder_2", act_dtype, sink);
    dfx_ref ids = dfx_extern_buf(&b, "ids", 1, n_tokens, DFX_DTYPE_I32);
    dfx_ref y = dfx_extern_buf(&b, "out", n_tokens, c->width, act_dtype);
    dfx_ref x = dfx_temp(&b, n_tokens, c->width);
    dfx_ref bias = dfx_temp(&b, c->n_heads, 2 * n_tokens - 1);
    dfx_ref embed = embedding(&b, c);
    dfx_emit(&b, DFX_OP_EMBED, "embed", (dfx_ref[DFX_OP_SLOTS]){x, embed, ids}, NULL);
    for (int64_t i = 0; i < c->n_layers; i++) {
        dfx_builder_page(&b, "encoder.block.%d", (int)i);
        if (i == 0) {
            dfx_ref table =
                dfx_weight_ref(&b, "layer.0.SelfAttention.relative_attention_bias.weight",
                               c->n_buckets, c->n_heads);
            dfx_emit(&b, DFX_OP_REL_BIAS, "relative_bias", (dfx_ref[DFX_OP_SLOTS]){bias, table},
                     &(dfx_op_params){.n_buckets = (int)c->n_buckets,
                                      .max_distance = (int)c->max_distance});
        }
        build_block(&b, c, x, bias);
    }
    dfx_builder_page(&b, "encoder.final_layer_norm");
    dfx_ref w = dfx_weight_ref(&b, "weight", 1, c->width);
    dfx_emit(&b, DFX_OP_RMSNORM, "out", (dfx_ref[DFX_OP_SLOTS]){y, x, w},
             &(dfx_op_params){.eps = c->eps});
    return dfx_builder_finish(&b, out);
}
