#include "models/flux_attention.h"

#include <math.h>
#include <stdio.h>

const float DFX_FLUX_EPS = 1e-6f;

static bool in_codes(const dfx_flux_attention *a) {
    return a->b->env.attention_codes;
}

static float scale_of(const dfx_flux_attention *a) {
    return 1.0f / sqrtf((float)a->config->head_size);
}

static dfx_op_params norm_params(const dfx_flux_attention *a) {
    return (dfx_op_params){.n_heads = (int)a->config->n_heads, .eps = DFX_FLUX_EPS};
}

dfx_flux_attention dfx_flux_attention_begin(dfx_builder *b, const dfx_flux_config *c,
                                            int64_t n_queries, int64_t n_tokens) {
    dfx_flux_attention a = {.b = b, .config = c};
    a.q = dfx_temp(b, n_queries, c->width);
    a.k = dfx_temp(b, n_tokens, c->width);
    a.v = dfx_temp(b, n_tokens, c->width);
    if (in_codes(&a))
        a.codes = dfx_attention_codes_bufs(b, n_queries, n_tokens, c->width, (int)c->n_heads);
    return a;
}

static dfx_ref of_rows(const dfx_flux_rows *rows, dfx_ref r) {
    return dfx_rows(r, rows->row0, rows->n_rows);
}

static dfx_ref norm_weight(const dfx_flux_attention *a, const char *name) {
    char weight[64];
    snprintf(weight, sizeof(weight), "%s.weight", name);
    return dfx_weight_ref(a->b, weight, 1, a->config->head_size);
}

/* In place. */
static void norm_rope(const dfx_flux_attention *a, const dfx_flux_rows *rows, dfx_ref x,
                      const char *name, dfx_ref w) {
    dfx_op_params p = norm_params(a);
    dfx_emit(a->b, DFX_OP_QKNORM_ROPE, name,
             (dfx_ref[DFX_OP_SLOTS]){of_rows(rows, x), w, rows->cos, rows->sin}, &p);
}

/* Codes of q with scales of their own, or of k by `center`. */
static void qk_codes(const dfx_flux_attention *a, const dfx_flux_rows *rows, dfx_ref codes,
                     dfx_ref x, const char *name, dfx_ref w, dfx_ref y_scale, dfx_ref center) {
    dfx_op_params p = norm_params(a);
    dfx_emit(a->b, DFX_OP_QK_CODES, name,
             (dfx_ref[DFX_OP_SLOTS]){of_rows(rows, codes), of_rows(rows, x), w, rows->cos,
                                     rows->sin, y_scale, center},
             &p);
}

void dfx_flux_attention_norm_q(dfx_flux_attention *a, const dfx_flux_rows *rows) {
    dfx_ref w = norm_weight(a, rows->norm_q), none = {0};
    if (in_codes(a))
        qk_codes(a, rows, a->codes.q, a->q, rows->norm_q, w, of_rows(rows, a->codes.q_scale), none);
    else
        norm_rope(a, rows, a->q, rows->norm_q, w);
}

void dfx_flux_attention_norm_k(dfx_flux_attention *a, const dfx_flux_rows *rows) {
    dfx_ref w = norm_weight(a, rows->norm_k);
    a->norm_k[a->n_rows] = w;
    a->rows[a->n_rows++] = *rows;
    if (!in_codes(a))
        norm_rope(a, rows, a->k, rows->norm_k, w);
}

static dfx_ref end_in_codes(dfx_flux_attention *a, dfx_ref into) {
    dfx_builder *b = a->b;
    const dfx_attention_codes *c = &a->codes;
    const dfx_flux_rows *image = &a->rows[a->n_rows - 1];
    dfx_op_params p = norm_params(a), softmax = {.n_heads = p.n_heads, .scale = scale_of(a)};
    dfx_ref y = into.buf ? into : dfx_temp(b, a->q.rows, a->q.cols), none = {0};
    bool has_text = a->n_rows > 1; /* as a stream of its own, which is not rotated */
    dfx_emit(b, DFX_OP_KV_CENTER, "attn.center",
             (dfx_ref[DFX_OP_SLOTS]){c->center, of_rows(image, a->k), of_rows(image, a->v),
                                     a->norm_k[a->n_rows - 1], image->cos, image->sin,
                                     has_text ? of_rows(&a->rows[0], a->k) : none,
                                     has_text ? a->norm_k[0] : none},
             &p);
    for (int i = 0; i < a->n_rows; i++)
        qk_codes(a, &a->rows[i], c->k, a->k, a->rows[i].norm_k, a->norm_k[i], none, c->center);
    dfx_emit(b, DFX_OP_V_CODES, "attn.v_codes", (dfx_ref[DFX_OP_SLOTS]){c->v, a->v, c->center},
             &(dfx_op_params){.n_heads = p.n_heads});
    dfx_emit(b, DFX_OP_ATTENTION_CODES, "attn",
             (dfx_ref[DFX_OP_SLOTS]){y, c->q, c->k, c->v, c->q_scale, c->center}, &softmax);
    return y;
}

dfx_ref dfx_flux_attention_end(dfx_flux_attention *a, dfx_ref into) {
    if (in_codes(a))
        return end_in_codes(a, into);
    return dfx_attention(a->b, &(dfx_attention_spec){.q = a->q,
                                                     .k = a->k,
                                                     .v = a->v,
                                                     .into = into,
                                                     .n_heads = (int)a->config->n_heads,
                                                     .scale = scale_of(a),
                                                     .label = "attn"});
}
