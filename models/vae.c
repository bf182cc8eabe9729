/* The autoencoder as programs, in little memory: a normalized map is never written. GroupNorm is statistics of the whole map,
 * then a convolution that applies them to what it reads; residuals are added where they lie, and the map that a narrowing
 * shortcut leaves lies in the one that it reads. So a resnet has two maps, its input and that between its convolutions, and
 * the largest pair (2C and C channels at full size) is what decoding takes. */
#include "models/vae.h"

#include <math.h>
#include <stdio.h>

static const float EPS = 1e-6f;

/* A feature map: [h*w, C] with its sides. */
typedef struct map {
    dfx_ref x;
    int64_t h, w;
} map;

typedef struct vae_ctx {
    dfx_builder b;
    const dfx_vae_config *c;
} vae_ctx;

static const dfx_conv_params THREE = {.k = 3, .stride = 1, .pad_lo = 1, .pad_hi = 1, .upsample = 1};

static dfx_ref conv_of(vae_ctx *v, map in, dfx_conv_params conv, dfx_conv_spec spec) {
    conv.h = in.h;
    conv.w = in.w;
    spec.x = in.x;
    spec.conv = conv;
    return dfx_conv2d(&v->b, &spec);
}

static map conv3(vae_ctx *v, map in, const char *name, int64_t n) {
    return (map){conv_of(v, in, THREE, (dfx_conv_spec){.name = name, .n = n}), in.h, in.w};
}

static map upsample(vae_ctx *v, map in, const char *name) {
    dfx_conv_params conv = {.k = 3, .stride = 1, .pad_lo = 1, .pad_hi = 1, .upsample = 2};
    dfx_ref x = conv_of(v, in, conv, (dfx_conv_spec){.name = name, .n = in.x.cols});
    return (map){x, 2 * in.h, 2 * in.w};
}

static map downsample(vae_ctx *v, map in, const char *name) {
    dfx_conv_params conv = {.k = 3, .stride = 2, .pad_lo = 0, .pad_hi = 1, .upsample = 1};
    dfx_ref x = conv_of(v, in, conv, (dfx_conv_spec){.name = name, .n = in.x.cols});
    return (map){x, in.h / 2, in.w / 2};
}

/* conv(silu(norm(in))), the convolution as `spec` says. */
static map norm_conv3(vae_ctx *v, map in, const char *norm, dfx_conv_spec spec) {
    spec.norm = dfx_groupnorm_stats(&v->b, in.x, norm, (int)v->c->n_groups, EPS);
    spec.act = DFX_ACT_SILU;
    return (map){conv_of(v, in, THREE, spec), in.h, in.w};
}

/* The 1x1 convolution of a resnet that changes the width: in place where that gets narrower. */
static dfx_ref narrow(vae_ctx *v, map in, const char *name, int64_t n) {
    dfx_conv_params conv = {.k = 1, .stride = 1, .upsample = 1};
    dfx_ref into = n < in.x.cols ? dfx_cols(in.x, 0, n) : (dfx_ref){0};
    return conv_of(v, in, conv, (dfx_conv_spec){.name = name, .n = n, .into = into});
}

/* conv2(silu(norm2(conv1(silu(norm1(x)))))) + shortcut(x), in the place of x or of the shortcut; `name` ends with a point. */
static map resnet(vae_ctx *v, map in, int64_t n, const char *name) {
    char norm1[96], conv1[96], norm2[96], conv2[96], shortcut[96];
    snprintf(norm1, sizeof(norm1), "%snorm1", name);
    snprintf(conv1, sizeof(conv1), "%sconv1", name);
    snprintf(norm2, sizeof(norm2), "%snorm2", name);
    snprintf(conv2, sizeof(conv2), "%sconv2", name);
    snprintf(shortcut, sizeof(shortcut), "%sconv_shortcut", name);
    map h = norm_conv3(v, in, norm1, (dfx_conv_spec){.name = conv1, .n = n});
    dfx_ref x = in.x.cols == n ? in.x : narrow(v, in, shortcut, n);
    return norm_conv3(v, h, norm2,
                      (dfx_conv_spec){.name = conv2, .n = n, .residual = x, .into = x});
}

/* Names of the attention's products; the oldest files have others. */
typedef struct attn_names {
    const char *q, *k, *v, *out;
} attn_names;

static map mid_attention(vae_ctx *v, map in) {
    static const attn_names usual = {"attentions.0.to_q", "attentions.0.to_k", "attentions.0.to_v",
                                     "attentions.0.to_out.0"};
    static const attn_names old = {"attentions.0.query", "attentions.0.key", "attentions.0.value",
                                   "attentions.0.proj_attn"};
    dfx_builder *b = &v->b;
    const attn_names *names =
        dfx_builder_has(b, "attentions.0.query.weight") && b->program.tensors ? &old : &usual;
    int64_t n = in.x.cols;
    dfx_ref norm =
        dfx_groupnorm(b, in.x, "attentions.0.group_norm", (int)v->c->n_groups, EPS, DFX_ACT_NONE);
    dfx_ref q = dfx_linear(b, &(dfx_linear_spec){.x = norm, .name = names->q, .n = n});
    dfx_ref k = dfx_linear(b, &(dfx_linear_spec){.x = norm, .name = names->k, .n = n});
    dfx_ref val = dfx_linear(b, &(dfx_linear_spec){.x = norm, .name = names->v, .n = n});
    dfx_ref a = dfx_attention(b, &(dfx_attention_spec){.q = q,
                                                       .k = k,
                                                       .v = val,
                                                       .n_heads = 1,
                                                       .scale = 1.0f / sqrtf((float)n),
                                                       .label = "attentions.0"});
    in.x = dfx_linear(b, &(dfx_linear_spec){.x = a, .name = names->out, .n = n, .residual = in.x});
    return in;
}

static map mid_block(vae_ctx *v, map x) {
    int64_t n = x.x.cols;
    x = resnet(v, x, n, "resnets.0.");
    if (v->c->mid_attention)
        x = mid_attention(v, x);
    return resnet(v, x, n, "resnets.1.");
}

static map block_resnets(vae_ctx *v, map x, int64_t n, int64_t n_resnets) {
    for (int64_t i = 0; i < n_resnets; i++) {
        char name[32];
        snprintf(name, sizeof(name), "resnets.%d.", (int)i);
        x = resnet(v, x, n, name);
    }
    return x;
}

/* A page of weights that are named after `scope`. */
static map open_page(vae_ctx *v, const char *page, const char *scope, map x) {
    dfx_builder_page(&v->b, "%s", page);
    dfx_builder_scope(&v->b, "%s", scope);
    return x;
}

/* A 1x1 convolution outside encoder and decoder that FLUX's own file lacks. */
static dfx_ref conv1(vae_ctx *v, dfx_ref x, const char *name, int64_t n) {
    dfx_builder_page(&v->b, "%s", name);
    dfx_builder_scope(&v->b, "%s", "");
    return dfx_linear(&v->b, &(dfx_linear_spec){.x = x, .name = name, .n = n});
}

dfx_status dfx_vae_build_decoder(const dfx_vae_config *c, const dfx_build_env *env, int64_t h,
                                 int64_t w, dfx_program *out) {
    vae_ctx v = {.c = c};
    int64_t Z = c->latent_channels, factor = dfx_vae_factor(c);
    int top = c->n_levels - 1;
    dfx_builder_init(&v.b, "decode", "vae", env);
    dfx_ref tokens = dfx_extern_buf(&v.b, "x", h / 2 * (w / 2), 4 * Z, env->act_dtype);
    dfx_ref rgb = dfx_extern_buf(&v.b, "rgb", h * factor * w * factor, 3, env->act_dtype);
    map x = {dfx_temp(&v.b, h * w, Z), h, w};
    dfx_emit(&v.b, DFX_OP_UNPACK, "unpack", (dfx_ref[DFX_OP_SLOTS]){x.x, tokens},
             &(dfx_op_params){.h = h, .w = w, .mul = 1.0f / c->scaling, .add = c->shift});
    if (c->post_quant_conv)
        x.x = conv1(&v, x.x, "post_quant_conv", Z);
    x = conv3(&v, open_page(&v, "decoder/in", "decoder", x), "conv_in", c->channels[top]);
    x = mid_block(&v, open_page(&v, "decoder.mid_block", "decoder.mid_block", x));
    for (int i = 0; i <= top; i++) {
        dfx_builder_page(&v.b, "decoder.up_blocks.%d", i);
        x = block_resnets(&v, x, c->channels[top - i], c->layers_per_block + 1);
        if (i < top)
            x = upsample(&v, x, "upsamplers.0.conv");
    }
    norm_conv3(&v, open_page(&v, "decoder/out", "decoder", x), "conv_norm_out",
               (dfx_conv_spec){.name = "conv_out", .n = 3, .into = rgb});
    return dfx_builder_finish(&v.b, out);
}

dfx_status dfx_vae_build_encoder(const dfx_vae_config *c, const dfx_build_env *env, int64_t h,
                                 int64_t w, dfx_program *out) {
    vae_ctx v = {.c = c};
    int64_t Z = c->latent_channels, factor = dfx_vae_factor(c);
    int top = c->n_levels - 1;
    dfx_builder_init(&v.b, "encode", "vae", env);
    dfx_ref rgb = dfx_extern_buf(&v.b, "rgb", h * factor * w * factor, 3, env->act_dtype);
    dfx_ref moments = dfx_extern_buf(&v.b, "moments", h * w, 2 * Z, env->act_dtype);
    dfx_ref tokens = dfx_extern_buf(&v.b, "x", h / 2 * (w / 2), 4 * Z, env->act_dtype);
    map x = {rgb, h * factor, w * factor};
    x = conv3(&v, open_page(&v, "encoder/in", "encoder", x), "conv_in", c->channels[0]);
    for (int i = 0; i <= top; i++) {
        dfx_builder_page(&v.b, "encoder.down_blocks.%d", i);
        x = block_resnets(&v, x, c->channels[i], c->layers_per_block);
        if (i < top)
            x = downsample(&v, x, "downsamplers.0.conv");
    }
    x = mid_block(&v, open_page(&v, "encoder.mid_block", "encoder.mid_block", x));
    dfx_ref into = c->quant_conv ? (dfx_ref){0} : moments;
    x = norm_conv3(&v, open_page(&v, "encoder/out", "encoder", x), "conv_norm_out",
                   (dfx_conv_spec){.name = "conv_out", .n = 2 * Z, .into = into});
    if (c->quant_conv) {
        dfx_ref m = conv1(&v, x.x, "quant_conv", 2 * Z);
        dfx_emit(&v.b, DFX_OP_ACT, "moments", (dfx_ref[DFX_OP_SLOTS]){moments, m}, NULL);
    }
    dfx_emit(&v.b, DFX_OP_PACK, "pack", (dfx_ref[DFX_OP_SLOTS]){tokens, moments},
             &(dfx_op_params){.h = h, .w = w, .mul = c->scaling, .add = c->shift});
    return dfx_builder_finish(&v.b, out);
}
