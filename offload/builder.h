/* Builder: how a model writes its program. Calls append ops and return the ref of their result.
 *
 *     dfx_builder b;
 *     dfx_builder_init(&b, "clip", "text_encoder", env);
 *     dfx_ref x = dfx_extern_buf(&b, "x", 77, 768, DFX_DTYPE_F32);
 *     dfx_builder_page(&b, "text_model.encoder.layers.%d", i);
 *     dfx_ref q = dfx_linear(&b, &(dfx_linear_spec){.x = n, .name = "self_attn.q_proj", .n = 768});
 *     DFX_TRY(dfx_builder_finish(&b, &program));
 *
 * Errors stick: after the first one (told once) every call is a no-op that returns an absent ref, and finish returns the
 * status. Weight names are the page's name, a point, and the local name; shapes are checked against the checkpoint at once. */
#ifndef DFX_OFFLOAD_BUILDER_H
#define DFX_OFFLOAD_BUILDER_H

#include "offload/program.h"
#include "quant/q_policy.h"

/* Where a program's weights come from, and what it will run in. Models take it through to the builder. */
typedef struct dfx_build_env {
    const dfx_tensors
        *tensors; /* borrowed until the program ends; NULL: from the architecture alone */
    const dfx_q_policy
        *like; /* with tensors NULL: the formats that weights of BF16 would have; NULL: BF16 */
    bool weight_only; /* int8 weights with scales are multiplied without quantizing x */
    int64_t
        adapter_rank; /* every linear layer has a place for an adapter of this rank; a multiple of DFX_ADAPTER_GRAIN, 0: none */
    bool attention_codes; /* attention of the denoiser in 8 bits */
    bool adapter_scales;  /* with adapter_rank: adapters may rescale rows of quantized weights */
    dfx_dtype act_dtype;
    const dfx_sink *sink;
} dfx_build_env;

typedef struct dfx_builder {
    dfx_program program; /* under construction */
    dfx_build_env env;
    const dfx_sink *sink;
    const char *component; /* folder of the tensors, for messages and for the policy */
    dfx_status status;
    uint32_t page_idx; /* current, or DFX_NO_PAGE */
    const char *scope; /* prefix of weight names: "" or with a trailing point */
    bool keeps_pages;
    /* growing arrays, moved to the arena at finish */
    size_t cap_bufs, cap_weights, cap_pages, cap_ops, cap_externs, cap_adapters;
} dfx_builder;

void dfx_builder_init(dfx_builder *b, const char *name, const char *component,
                      const dfx_build_env *env);

/* Lays out pages and activations. On success *out is the caller's (dfx_program_fini); on failure nothing is kept. */
dfx_status dfx_builder_finish(dfx_builder *b, dfx_program *out);

/* Weights from here on belong to a new page of this name, which with a point is also their prefix. */
void dfx_builder_page(dfx_builder *b, const char *fmt, ...) DFX_PRINTF(2, 3);

/* The same page, another prefix ("" for none). */
void dfx_builder_scope(dfx_builder *b, const char *fmt, ...) DFX_PRINTF(2, 3);

/* Pages from here on shall always be on the device, once they have come: something uses them that is not in the timetable. */
void dfx_builder_keep_pages(dfx_builder *b);

/* Is the tensor scope + name in the checkpoint? True when there is none. */
bool dfx_builder_has(const dfx_builder *b, const char *name);

/* Say a fault of the model and make it stick. */
void dfx_builder_fail(dfx_builder *b, dfx_status status, const char *fmt, ...) DFX_PRINTF(3, 4);

/* Buffers. Externs are numbered from 0 in the order of these calls: the order of the bindings. */
dfx_ref dfx_extern_buf(dfx_builder *b, const char *name, int64_t rows, int64_t cols,
                       dfx_dtype dtype);
dfx_ref dfx_temp(dfx_builder *b, int64_t rows, int64_t cols);
dfx_ref dfx_temp_of(dfx_builder *b, int64_t rows, int64_t cols, dfx_dtype dtype);
dfx_ref dfx_adapter_buf(dfx_builder *b, int64_t rows, int64_t cols, dfx_dtype dtype);
/* A weight seen as [rows, cols]; the tensor's shape must multiply to that, with its first dimension `rows` unless rows is 1. */
dfx_ref dfx_weight_ref(dfx_builder *b, const char *name, int64_t rows, int64_t cols);

/* Rectangles of a ref. */
dfx_ref dfx_rows(dfx_ref r, int64_t row0, int64_t rows);
dfx_ref dfx_cols(dfx_ref r, int64_t col0, int64_t cols);

/* Any op, operands in slot order. Label: for traces; the scope is put before it. */
void dfx_emit(dfx_builder *b, dfx_op_kind kind, const char *label, const dfx_ref *slots,
              const dfx_op_params *p);

/* y = residual + gate * act(x W^T + b), W = name.weight [n, x.cols], b = name.bias. `into` absent: a new temp.
 * Where the checkpoint has name.weight_scale [n], F32, W is codes, and the op is quantized (kernels/ops.h): x becomes codes
 * first, once for all products that read it until it is written again. In the page: weight, scale, bias. */
typedef struct dfx_linear_spec {
    dfx_ref x;
    const char *name;
    int64_t n;
    bool no_bias;
    dfx_act act;
    dfx_ref gate, residual, into;
} dfx_linear_spec;
dfx_ref dfx_linear(dfx_builder *b, const dfx_linear_spec *spec);

/* The same weights get their place in the page now, since files have them in an order that need not be the ops'. */
void dfx_linear_weights(dfx_builder *b, const char *name, int64_t n, int64_t k);

/* The place of an adapter beside a product of x [M, k], or of its codes, with n rows of weights; absent refs where the env wants
 * none. What computes t is emitted. */
typedef struct dfx_adapter_spec {
    dfx_ref x, x_scale; /* x_scale absent: x is no codes */
    dfx_ref w, scale;   /* of the layer; scale absent: it has none */
    const char *name;   /* of the layer, local */
    int64_t n;
} dfx_adapter_spec;
typedef struct dfx_adapter_refs {
    dfx_ref t, u,
        scale; /* scale: what the layer is computed with, the page's or one in the adapter block */
} dfx_adapter_refs;
dfx_adapter_refs dfx_adapter_place(dfx_builder *b, const dfx_adapter_spec *spec);

/* Note one; its layer gets the scope put before it. */
void dfx_builder_adapter(dfx_builder *b, const dfx_adapter *adapter);

/* LayerNorm or RMSNorm with weights: name.weight, name.bias. */
dfx_ref dfx_layernorm(dfx_builder *b, dfx_ref x, const char *name, float eps);
dfx_ref dfx_rmsnorm(dfx_builder *b, dfx_ref x, const char *name, float eps);

/* LN(x) * (1 + scale) + shift into `into`. */
void dfx_modulated_norm(dfx_builder *b, dfx_ref into, dfx_ref x, dfx_ref scale, dfx_ref shift,
                        float eps, const char *label);

typedef struct dfx_attention_spec {
    dfx_ref q, k, v, bias, into; /* into absent: a new temp */
    int n_heads;
    float scale;
    bool causal;
    const char *label;
} dfx_attention_spec;
dfx_ref dfx_attention(dfx_builder *b, const dfx_attention_spec *spec);

/* What ATTENTION_CODES reads, as new temps of its types, for the ops that make it. */
typedef struct dfx_attention_codes {
    dfx_ref q, q_scale, k, v, center;
} dfx_attention_codes;
dfx_attention_codes dfx_attention_codes_bufs(dfx_builder *b, int64_t n_queries, int64_t n_tokens,
                                             int64_t width, int n_heads);

/* a + b2 (b2 may have one row), in place of a. */
void dfx_add_to(dfx_builder *b, dfx_ref a, dfx_ref b2, const char *label);
/* act(x) into a new temp. */
dfx_ref dfx_activate(dfx_builder *b, dfx_ref x, dfx_act act, const char *label);

/* GroupNorm name.weight, name.bias then act, into a new temp. */
dfx_ref dfx_groupnorm(dfx_builder *b, dfx_ref x, const char *name, int n_groups, float eps,
                      dfx_act act);

/* The same for a convolution to apply: coefficients of each channel. */
dfx_ref dfx_groupnorm_stats(dfx_builder *b, dfx_ref x, const char *name, int n_groups, float eps);

/* Convolution name.weight [n, C, k, k], name.bias; residual absent or [ho*wo, n]; norm absent or of dfx_groupnorm_stats,
 * and act after it. `into` absent: a new temp. */
typedef struct dfx_conv_spec {
    dfx_ref x, norm;
    const char *name;
    int64_t n;
    dfx_conv_params conv;
    dfx_act act;
    dfx_ref residual, into;
} dfx_conv_spec;
dfx_ref dfx_conv2d(dfx_builder *b, const dfx_conv_spec *spec);

#endif
