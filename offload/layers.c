/* The layers that every model is made of, as calls that emit one op each. Part of offload/builder.h. */
#include <stdio.h>

#include "offload/builder.h"

/* name + suffix, e.g. "attn.to_q" + ".weight"; local names are short string literals. */
static const char *with_suffix(char text[256], const char *name, const char *suffix) {
    snprintf(text, 256, "%s%s", name, suffix);
    return text;
}

static dfx_ref weight_of(dfx_builder *b, const char *name, int64_t rows, int64_t cols) {
    char text[256];
    return dfx_weight_ref(b, with_suffix(text, name, ".weight"), rows, cols);
}

static dfx_ref bias_of(dfx_builder *b, const char *name, int64_t cols) {
    char text[256];
    return dfx_weight_ref(b, with_suffix(text, name, ".bias"), 1, cols);
}

static dfx_ref or_temp(dfx_builder *b, dfx_ref into, int64_t rows, int64_t cols) {
    return into.buf ? into : dfx_temp(b, rows, cols);
}

static dfx_dtype dtype_of(const dfx_builder *b, dfx_ref r) {
    return b->program.bufs[r.buf].dtype;
}

/* The scale of the rows of `w` = name.weight, absent where there is none. A file whose types are not those of
 * quant/FORMAT.md is refused here, as a fault of the file. */
static dfx_ref scale_of(dfx_builder *b, const char *name, dfx_ref w, int64_t rows) {
    char text[256];
    with_suffix(text, name, ".weight_scale");
    if (b->status != DFX_OK)
        return (dfx_ref){0};
    dfx_dtype weight = dtype_of(b, w);
    bool coded = weight == DFX_DTYPE_I8 || weight == DFX_DTYPE_F8_E4M3;
    bool there = b->program.tensors ? dfx_builder_has(b, text) : coded;
    if (!there) {
        if (weight == DFX_DTYPE_I8)
            dfx_builder_fail(b, DFX_E_FORMAT,
                             "tensor %s%s.weight is I8 and %s%s is missing; pack the model again",
                             b->scope, name, b->scope, text);
        return (dfx_ref){0};
    }
    dfx_ref scale = dfx_weight_ref(b, text, 1, rows);
    if (b->status != DFX_OK)
        return (dfx_ref){0};
    if (dtype_of(b, scale) != DFX_DTYPE_F32 || !coded)
        dfx_builder_fail(b, DFX_E_FORMAT,
                         "tensor %s%s is %s beside a weight of %s; wanted F32 beside I8 or F8_E4M3",
                         b->scope, text, dfx_dtype_name(dtype_of(b, scale)),
                         dfx_dtype_name(weight));
    return scale;
}

typedef struct codes {
    dfx_ref x, scale;
} codes;

/* Those of some rows of c's. */
static codes codes_of_rows(const codes *c, int64_t row0, int64_t rows) {
    return (codes){dfx_rows(c->x, row0, rows), dfx_cols(c->scale, row0, rows)};
}

/* Those that an earlier product has had made of x, or of more rows, unless x has been written to since. */
static bool find_codes(const dfx_builder *b, const dfx_ref *x, dfx_dtype dtype, codes *out) {
    for (uint32_t i = b->program.n_ops; i-- > 0;) {
        const dfx_op *op = &b->program.ops[i];
        const dfx_ref *of = &op->r[DFX_QUANTIZE_X];
        if (op->kind == DFX_OP_QUANTIZE && dfx_ref_rows_of(x, of) &&
            dtype_of(b, op->r[0]) == dtype) {
            const codes all = {op->r[0], op->r[DFX_QUANTIZE_Y_SCALE]};
            *out = codes_of_rows(&all, x->row0 - of->row0, x->rows);
            return true;
        }
        if (op->r[0].buf == x->buf)
            break;
    }
    return false;
}

/* x with the rows above and below it that the same op has written. */
static dfx_ref with_its_rows(const dfx_builder *b, dfx_ref x) {
    for (uint32_t i = b->program.n_ops; i-- > 0;) {
        const dfx_ref *y = &b->program.ops[i].r[0];
        if (y->buf == x.buf)
            return dfx_ref_rows_of(&x, y) ? *y : x;
    }
    return x;
}

/* Made for all rows that x was written with: the op that wrote it may make them itself, and others may want the rest. */
static codes codes_of(dfx_builder *b, dfx_ref x, dfx_dtype dtype, const char *name) {
    codes found;
    if (b->status != DFX_OK || find_codes(b, &x, dtype, &found))
        return b->status == DFX_OK ? found : (codes){0};
    dfx_ref all = with_its_rows(b, x);
    const codes made = {dfx_temp_of(b, all.rows, all.cols, dtype),
                        dfx_temp_of(b, 1, all.rows, DFX_DTYPE_F32)};
    dfx_emit(b, DFX_OP_QUANTIZE, name, (dfx_ref[DFX_OP_SLOTS]){made.x, all, made.scale}, NULL);
    return codes_of_rows(&made, x.row0 - all.row0, x.rows);
}

void dfx_linear_weights(dfx_builder *b, const char *name, int64_t n, int64_t k) {
    scale_of(b, name, weight_of(b, name, n, k), n);
    bias_of(b, name, n);
}

dfx_ref dfx_linear(dfx_builder *b, const dfx_linear_spec *s) {
    dfx_ref w = weight_of(b, s->name, s->n, s->x.cols);
    dfx_ref scale = scale_of(b, s->name, w, s->n);
    dfx_ref bias = s->no_bias ? (dfx_ref){0} : bias_of(b, s->name, s->n);
    dfx_ref y = or_temp(b, s->into, s->x.rows, s->n);
    bool weight_only = b->env.weight_only && scale.buf && dtype_of(b, w) == DFX_DTYPE_I8;
    codes x = {.x = s->x};
    if (scale.buf && !weight_only)
        x = codes_of(b, s->x, dtype_of(b, w), s->name);
    dfx_adapter_refs adapter = dfx_adapter_place(
        b, &(dfx_adapter_spec){
               .x = x.x, .x_scale = x.scale, .w = w, .scale = scale, .name = s->name, .n = s->n});
    dfx_emit(b, DFX_OP_LINEAR, s->name,
             (dfx_ref[DFX_OP_SLOTS]){y, x.x, w, bias, s->gate, s->residual, adapter.scale, x.scale,
                                     adapter.t, adapter.u},
             &(dfx_op_params){.act = s->act, .weight_only = weight_only});
    return y;
}

dfx_ref dfx_layernorm(dfx_builder *b, dfx_ref x, const char *name, float eps) {
    dfx_ref y = dfx_temp(b, x.rows, x.cols);
    dfx_ref w = weight_of(b, name, 1, x.cols), bias = bias_of(b, name, x.cols);
    dfx_emit(b, DFX_OP_LAYERNORM, name, (dfx_ref[DFX_OP_SLOTS]){y, x, w, bias},
             &(dfx_op_params){.eps = eps});
    return y;
}

dfx_ref dfx_rmsnorm(dfx_builder *b, dfx_ref x, const char *name, float eps) {
    dfx_ref y = dfx_temp(b, x.rows, x.cols);
    dfx_ref w = weight_of(b, name, 1, x.cols);
    dfx_emit(b, DFX_OP_RMSNORM, name, (dfx_ref[DFX_OP_SLOTS]){y, x, w},
             &(dfx_op_params){.eps = eps});
    return y;
}

void dfx_modulated_norm(dfx_builder *b, dfx_ref into, dfx_ref x, dfx_ref scale, dfx_ref shift,
                        float eps, const char *label) {
    dfx_emit(b, DFX_OP_LAYERNORM, label,
             (dfx_ref[DFX_OP_SLOTS]){
                 [0] = into, [DFX_NORM_X] = x, [DFX_NORM_SCALE] = scale, [DFX_NORM_SHIFT] = shift},
             &(dfx_op_params){.eps = eps});
}

dfx_ref dfx_attention(dfx_builder *b, const dfx_attention_spec *s) {
    dfx_ref y = or_temp(b, s->into, s->q.rows, s->q.cols);
    dfx_emit(b, DFX_OP_ATTENTION, s->label, (dfx_ref[DFX_OP_SLOTS]){y, s->q, s->k, s->v, s->bias},
             &(dfx_op_params){.n_heads = s->n_heads, .scale = s->scale, .causal = s->causal});
    return y;
}

dfx_attention_codes dfx_attention_codes_bufs(dfx_builder *b, int64_t n_queries, int64_t n_tokens,
                                             int64_t width, int n_heads) {
    dfx_attention_codes c;
    c.q = dfx_temp_of(b, n_queries, width, DFX_DTYPE_I8);
    c.q_scale = dfx_temp_of(b, n_queries, n_heads, DFX_DTYPE_F32);
    c.k = dfx_temp_of(b, n_tokens, width, DFX_DTYPE_I8);
    c.v = dfx_temp_of(b, width, dfx_v_codes_cols(n_tokens), DFX_DTYPE_F8_E4M3);
    c.center = dfx_temp_of(b, DFX_CENTER_ROWS, width, DFX_DTYPE_F32);
    return c;
}

void dfx_add_to(dfx_builder *b, dfx_ref a, dfx_ref b2, const char *label) {
    dfx_emit(b, DFX_OP_ADD, label, (dfx_ref[DFX_OP_SLOTS]){a, a, b2}, NULL);
}

dfx_ref dfx_activate(dfx_builder *b, dfx_ref x, dfx_act act, const char *label) {
    dfx_ref y = dfx_temp(b, x.rows, x.cols);
    dfx_emit(b, DFX_OP_ACT, label, (dfx_ref[DFX_OP_SLOTS]){y, x}, &(dfx_op_params){.act = act});
    return y;
}

dfx_ref dfx_groupnorm(dfx_builder *b, dfx_ref x, const char *name, int n_groups, float eps,
                      dfx_act act) {
    dfx_ref y = dfx_temp(b, x.rows, x.cols);
    dfx_ref w = weight_of(b, name, 1, x.cols), bias = bias_of(b, name, x.cols);
    dfx_emit(b, DFX_OP_GROUPNORM, name, (dfx_ref[DFX_OP_SLOTS]){y, x, w, bias},
             &(dfx_op_params){.n_groups = n_groups, .eps = eps, .act = act});
    return y;
}

dfx_ref dfx_groupnorm_stats(dfx_builder *b, dfx_ref x, const char *name, int n_groups, float eps) {
    dfx_ref norm = dfx_temp_of(b, 3, x.cols, DFX_DTYPE_F32);
    dfx_ref w = weight_of(b, name, 1, x.cols), bias = bias_of(b, name, x.cols);
    dfx_emit(b, DFX_OP_GROUPNORM_STATS, name, (dfx_ref[DFX_OP_SLOTS]){norm, x, w, bias},
             &(dfx_op_params){.n_groups = n_groups, .eps = eps});
    return norm;
}

dfx_ref dfx_conv2d(dfx_builder *b, const dfx_conv_spec *s) {
    const dfx_conv_params *c = &s->conv;
    int64_t ho = (c->h * c->upsample + c->pad_lo + c->pad_hi - c->k) / c->stride + 1;
    int64_t wo = (c->w * c->upsample + c->pad_lo + c->pad_hi - c->k) / c->stride + 1;
    dfx_ref w = weight_of(b, s->name, s->n, s->x.cols * c->k * c->k);
    dfx_ref bias = bias_of(b, s->name, s->n);
    dfx_ref y = or_temp(b, s->into, ho * wo, s->n);
    dfx_emit(b, DFX_OP_CONV2D, s->name,
             (dfx_ref[DFX_OP_SLOTS]){y, s->x, w, bias, s->residual, s->norm},
             &(dfx_op_params){.act = s->act, .conv = *c});
    return y;
}
