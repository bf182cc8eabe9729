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

dfx_status dfx_t5_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                              dfx_t5_config *out) {
    return dfx_config_load(bundle, folder, "config.json", read_config, sink, out);
}

/* A page for part of block i, whose weights are named after the block. */
static void open_page(dfx_builder *b, int64_t i, const char *part) {
    dfx_builder_page(b, "encoder.block.%d/%s", (int)i, part);
    dfx_builder_scope(b, "encoder.block.%d", (int)i);
}

static dfx_ref linear(dfx_builder *b, dfx_ref x, const char *name, int64_t n) {
    return dfx_linear(b, &(dfx_linear_spec){.x = x, .name = name, .n = n, .no_bias = true});
}

static void linear_onto(dfx_builder *b, dfx_ref x, const char *name, dfx_ref y) {
    dfx_linear(b,
               &(dfx_linear_spec){
                   .x = x, .name = name, .n = y.cols, .no_bias = true, .residual = y, .into = y});
}

/* n = RMS(x);  x += o(attention(n));  n = RMS(x);  x += wo(gelu(wi_0 n) * wi_1 n) */
static void build_block(dfx_builder *b, const dfx_t5_config *c, int64_t i, dfx_ref x,
                        dfx_ref bias) {
    int64_t inner = c->n_heads * c->head_size;
    open_page(b, i, "attn");
    if (i == 0) {
        dfx_ref table = dfx_weight_ref(b, "layer.0.SelfAttention.relative_attention_bias.weight",
                                       c->n_buckets, c->n_heads);
        dfx_emit(
            b, DFX_OP_REL_BIAS, "relative_bias", (dfx_ref[DFX_OP_SLOTS]){bias, table},
            &(dfx_op_params){.n_buckets = (int)c->n_buckets, .max_distance = (int)c->max_distance});
    }
    dfx_ref n = dfx_rmsnorm(b, x, "layer.0.layer_norm", c->eps);
    dfx_ref q = linear(b, n, "layer.0.SelfAttention.q", inner);
    dfx_ref k = linear(b, n, "layer.0.SelfAttention.k", inner);
    dfx_ref v = linear(b, n, "layer.0.SelfAttention.v", inner);
    dfx_ref a = dfx_attention(b, &(dfx_attention_spec){.q = q,
                                                       .k = k,
                                                       .v = v,
                                                       .bias = bias,
                                                       .n_heads = (int)c->n_heads,
                                                       .scale = 1.0f,
                                                       .label = "layer.0.SelfAttention"});
    linear_onto(b, a, "layer.0.SelfAttention.o", x);
    open_page(b, i, "wi");
    n = dfx_rmsnorm(b, x, "layer.1.layer_norm", c->eps);
    dfx_ref up = linear(b, n, "layer.1.DenseReluDense.wi_1", c->mlp_width);
    dfx_ref g = linear(b, n, "layer.1.DenseReluDense.wi_0", c->mlp_width);
    dfx_emit(b, DFX_OP_ACT_MUL, "layer.1.gated", (dfx_ref[DFX_OP_SLOTS]){g, g, up},
             &(dfx_op_params){.act = DFX_ACT_GELU_TANH});
    open_page(b, i, "wo");
    linear_onto(b, g, "layer.1.DenseReluDense.wo", x);
}

dfx_status dfx_t5_build_table(const dfx_t5_config *c, const dfx_build_env *env, dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "t5_table", "text_encoder_2", env);
    dfx_builder_page(&b, "shared");
    dfx_builder_scope(&b, "%s", "");
    /* Both names are in use; they are one tensor. */
    const char *name =
        dfx_builder_has(&b, "shared.weight") ? "shared.weight" : "encoder.embed_tokens.weight";
    dfx_weight_ref(&b, name, c->n_vocab, c->width);
    return dfx_builder_finish(&b, out);
}

dfx_status dfx_t5_build(const dfx_t5_config *c, const dfx_build_env *env, int64_t n_tokens,
                        dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "t5", "text_encoder_2", env);
    dfx_ref x = dfx_extern_buf(&b, "x", n_tokens, c->width, env->act_dtype);
    dfx_ref y = dfx_extern_buf(&b, "out", n_tokens, c->width, env->act_dtype);
    dfx_ref bias = dfx_temp(&b, c->n_heads, 2 * n_tokens - 1);
    for (int64_t i = 0; i < c->n_layers; i++)
        build_block(&b, c, i, x, bias);
    dfx_builder_page(&b, "encoder.final_layer_norm");
    dfx_ref w = dfx_weight_ref(&b, "weight", 1, c->width);
    dfx_emit(&b, DFX_OP_RMSNORM, "out", (dfx_ref[DFX_OP_SLOTS]){y, x, w},
             &(dfx_op_params){.eps = c->eps});
    return dfx_builder_finish(&b, out);
}
