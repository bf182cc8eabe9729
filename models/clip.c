#include "models/clip.h"

#include <math.h>
#include <string.h>

#include "models/config.h"

static dfx_status read_config(const json_t *json, const char *path, const dfx_sink *sink,
                              void *out) {
    dfx_clip_config *c = out;
    const char *act;
    double eps = 1e-5;
    DFX_TRY(dfx_json_int(json, path, "hidden_size", 1, 1 << 16, sink, &c->width));
    DFX_TRY(dfx_json_int(json, path, "num_hidden_layers", 1, 1024, sink, &c->n_layers));
    DFX_TRY(dfx_json_int(json, path, "num_attention_heads", 1, 1024, sink, &c->n_heads));
    DFX_TRY(dfx_json_int(json, path, "intermediate_size", 1, 1 << 20, sink, &c->mlp_width));
    DFX_TRY(dfx_json_int(json, path, "max_position_embeddings", 1, 1 << 16, sink, &c->n_positions));
    DFX_TRY(dfx_json_int(json, path, "vocab_size", 1, 1 << 24, sink, &c->n_vocab));
    DFX_TRY(dfx_json_str(json, path, "hidden_act", sink, &act));
    if (dfx_json_has(json, "layer_norm_eps"))
        DFX_TRY(dfx_json_real(json, path, "layer_norm_eps", sink, &eps));
    c->eps = (float)eps;
    if (strcmp(act, "quick_gelu") != 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: hidden_act: wanted \"quick_gelu\", found \"%s\"",
                        path, act);
    if (c->width % c->n_heads != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: hidden_size %lld is not a multiple of num_attention_heads %lld", path,
                        (long long)c->width, (long long)c->n_heads);
    return DFX_OK;
}

dfx_status dfx_clip_config_load(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                                dfx_clip_config *out) {
    return dfx_config_load(bundle, folder, "config.json", read_config, sink, out);
}

/* x += out_proj(attention(LN1(x)));  x += fc2(quick_gelu(fc1(LN2(x)))) */
static void build_layer(dfx_builder *b, const dfx_clip_config *c, dfx_ref x) {
    dfx_ref n = dfx_layernorm(b, x, "layer_norm1", c->eps);
    dfx_ref q =
        dfx_linear(b, &(dfx_linear_spec){.x = n, .name = "self_attn.q_proj", .n = c->width});
    dfx_ref k =
        dfx_linear(b, &(dfx_linear_spec){.x = n, .name = "self_attn.k_proj", .n = c->width});
    dfx_ref v =
        dfx_linear(b, &(dfx_linear_spec){.x = n, .name = "self_attn.v_proj", .n = c->width});
    float scale = 1.0f / sqrtf((float)(c->width / c->n_heads));
    dfx_ref a = dfx_attention(b, &(dfx_attention_spec){.q = q,
                                                       .k = k,
                                                       .v = v,
                                                       .n_heads = (int)c->n_heads,
                                                       .scale = scale,
                                                       .causal = true,
                                                       .label = "self_attn"});
    dfx_linear(b,
               &(dfx_linear_spec){
                   .x = a, .name = "self_attn.out_proj", .n = c->width, .residual = x, .into = x});
    n = dfx_layernorm(b, x, "layer_norm2", c->eps);
    dfx_ref f =
        dfx_linear(b, &(dfx_linear_spec){
                          .x = n, .name = "mlp.fc1", .n = c->mlp_width, .act = DFX_ACT_QUICK_GELU});
    dfx_linear(
        b, &(dfx_linear_spec){.x = f, .name = "mlp.fc2", .n = c->width, .residual = x, .into = x});
}

dfx_status dfx_clip_build_table(const dfx_clip_config *c, const dfx_build_env *env,
                                dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "clip_table", "text_encoder", env);
    dfx_builder_page(&b, "text_model.embeddings");
    dfx_weight_ref(&b, "token_embedding.weight", c->n_vocab, c->width);
    dfx_weight_ref(&b, "position_embedding.weight", c->n_positions, c->width);
    return dfx_builder_finish(&b, out);
}

dfx_status dfx_clip_build(const dfx_clip_config *c, const dfx_build_env *env, int64_t n_tokens,
                          dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "clip", "text_encoder", env);
    dfx_ref x = dfx_extern_buf(&b, "x", n_tokens, c->width, env->act_dtype);
    dfx_ref y = dfx_extern_buf(&b, "out", n_tokens, c->width, env->act_dtype);
    for (int64_t i = 0; i < c->n_layers; i++) {
        dfx_builder_page(&b, "text_model.encoder.layers.%d", (int)i);
        build_layer(&b, c, x);
    }
    dfx_builder_page(&b, "text_model.final_layer_norm");
    dfx_ref w = dfx_weight_ref(&b, "weight", 1, c->width);
    dfx_ref bias = dfx_weight_ref(&b, "bias", 1, c->width);
    dfx_emit(&b, DFX_OP_LAYERNORM, "out", (dfx_ref[DFX_OP_SLOTS]){y, x, w, bias},
             &(dfx_op_params){.eps = c->eps});
    return dfx_builder_finish(&b, out);
}
