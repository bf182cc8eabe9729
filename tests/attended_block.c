/* See attended_block.h. */
#include "tests/attended_block.h"

#include <math.h>

enum { D = MLP_D, A = MLP_A, F = MLP_F, N = MLP_N, H = ATTENDED_H, E = ATTENDED_E };

typedef struct block {
    dfx_builder *b;
    mlp_externs e;
    attended_twist what;
    dfx_ref n, q, k, v, head_weight, joined;
} block;

static const dfx_op_params HEADS = {.n_heads = H, .eps = 1e-6f};

static void emit(const block *s, dfx_op_kind kind, const dfx_ref *slots) {
    dfx_emit(s->b, kind, "other", slots, &HEADS);
}

static dfx_ref norm_of(const block *s) {
    dfx_ref n = dfx_temp(s->b, s->e.x.rows, D);
    dfx_modulated_norm(s->b, n, s->e.x, s->e.scale, s->e.shift, 1e-6f, "norm");
    return n;
}

static void open_page(const block *s, const char *name) {
    dfx_builder_page(s->b, "block/%s", name);
    dfx_builder_scope(s->b, "block");
}

/* Operands of the op that has just been emitted. */
static void add_adapter(const block *s, int64_t n_tokens) {
    dfx_builder *b = s->b;
    dfx_ref t = dfx_extern_buf(b, "t", n_tokens, DFX_ADAPTER_GRAIN, DFX_DTYPE_F32);
    dfx_ref u = dfx_extern_buf(b, "u", A, DFX_ADAPTER_GRAIN, DFX_DTYPE_F32);
    dfx_op *op = &b->program.ops[b->program.n_ops - 1];
    op->r[DFX_LINEAR_T] = t;
    op->r[DFX_LINEAR_U] = u;
}

/* A norm again, of another x, whose codes go where those of the first were. */
static void make_codes_anew(const block *s) {
    dfx_builder *b = s->b;
    const dfx_op *product = &b->program.ops[b->program.n_ops - 1];
    dfx_ref n = dfx_temp(b, s->n.rows, D), x = product->r[DFX_LINEAR_X],
            x_scale = product->r[DFX_LINEAR_X_SCALE];
    dfx_modulated_norm(b, n, s->e.x, s->e.shift, s->e.scale, 1e-6f, "norm");
    dfx_emit(b, DFX_OP_QUANTIZE, "other", (dfx_ref[DFX_OP_SLOTS]){x, n, x_scale}, NULL);
}

static dfx_ref values_of(const block *s) {
    int64_t n_tokens = s->n.rows;
    dfx_linear_spec v = {.x = s->n, .name = "v", .n = A, .no_bias = s->what == ATTENDED_NO_BIAS};
    if (s->what == ATTENDED_GIVEN)
        return s->e.first;
    if (s->what == ATTENDED_BESIDE) {
        dfx_ref both = dfx_temp(s->b, n_tokens, 2 * A), values = dfx_cols(both, 0, A);
        emit(s, DFX_OP_ACT, (dfx_ref[DFX_OP_SLOTS]){values, s->e.first});
        v.into = dfx_cols(both, A, A);
        dfx_linear(s->b, &v);
        return values;
    }
    if (s->what == ATTENDED_OTHER_NORM)
        v.x = norm_of(s);
    if (s->what == ATTENDED_ACT)
        v.act = DFX_ACT_SILU;
    if (s->what == ATTENDED_GATED)
        v.gate = dfx_extern_buf(s->b, "gate", 1, A, DFX_DTYPE_F32);
    if (s->what == ATTENDED_RESIDUAL)
        v.residual = dfx_extern_buf(s->b, "residual", n_tokens, A, DFX_DTYPE_F32);
    dfx_ref values = dfx_linear(s->b, &v);
    if (s->what == ATTENDED_ADAPTER)
        add_adapter(s, n_tokens);
    if (s->what == ATTENDED_CHANGED)
        dfx_add_to(s->b, values, s->e.first, "other");
    if (s->what == ATTENDED_CODES_ANEW)
        make_codes_anew(s);
    if (s->what == ATTENDED_OTHER_PAGE)
        open_page(s, "more");
    return values;
}

static void attention_in_codes(const block *s, dfx_ref into) {
    dfx_attention_codes c = dfx_attention_codes_bufs(s->b, s->n.rows, s->n.rows, A, H);
    dfx_ref q = dfx_rows(c.q, 0, into.rows), q_scale = dfx_rows(c.q_scale, 0, into.rows);
    emit(s, DFX_OP_QK_CODES,
         (dfx_ref[DFX_OP_SLOTS]){c.q, s->q, s->head_weight, [DFX_QK_CODES_Y_SCALE] = c.q_scale});
    emit(s, DFX_OP_KV_CENTER, (dfx_ref[DFX_OP_SLOTS]){c.center, s->k, s->v, s->head_weight});
    emit(s, DFX_OP_QK_CODES,
         (dfx_ref[DFX_OP_SLOTS]){c.k, s->k, s->head_weight, [DFX_QK_CODES_CENTER] = c.center});
    emit(s, DFX_OP_V_CODES, (dfx_ref[DFX_OP_SLOTS]){c.v, s->v, c.center});
    dfx_emit(s->b, DFX_OP_ATTENTION_CODES, "attention",
             (dfx_ref[DFX_OP_SLOTS]){into, q, c.k, c.v, q_scale, c.center},
             &(dfx_op_params){.n_heads = H, .scale = 1 / sqrtf(E)});
}

static void attention(const block *s, dfx_ref into) {
    emit(s, DFX_OP_QKNORM_ROPE, (dfx_ref[DFX_OP_SLOTS]){s->q, s->head_weight});
    emit(s, DFX_OP_QKNORM_ROPE, (dfx_ref[DFX_OP_SLOTS]){s->k, s->head_weight});
    dfx_attention(s->b, &(dfx_attention_spec){.q = dfx_rows(s->q, 0, into.rows),
                                              .k = s->k,
                                              .v = s->v,
                                              .into = into,
                                              .n_heads = H,
                                              .scale = 1 / sqrtf(E),
                                              .label = "attention"});
}

static void write_first(const block *s) {
    dfx_ref first = dfx_cols(s->joined, s->what == ATTENDED_AFTER_GAP ? MLP_GAP : 0, A);
    dfx_ref into = first;
    if (s->what == ATTENDED_HALF_OF_ROWS)
        into.rows /= 2;
    if (s->what == ATTENDED_WRITTEN_BEFORE)
        emit(s, DFX_OP_ACT, (dfx_ref[DFX_OP_SLOTS]){first, s->e.first});
    if (s->b->env.attention_codes)
        attention_in_codes(s, into);
    else
        attention(s, into);
    if (s->what == ATTENDED_WRITTEN_AFTER)
        emit(s, DFX_OP_ACT, (dfx_ref[DFX_OP_SLOTS]){first, s->e.first});
}

dfx_status attended_build(const dfx_build_env *env, int64_t n_tokens, attended_twist what,
                          dfx_program *out) {
    dfx_builder b;
    block s = {.b = &b, .e = mlp_begin(&b, env, n_tokens), .what = what};
    bool is_wide = what == ATTENDED_GAP || what == ATTENDED_AFTER_GAP;
    int64_t before = A + (is_wide ? MLP_GAP : 0);
    open_page(&s, "in");
    s.head_weight = dfx_cols(s.e.scale, 0, E);
    s.joined = dfx_temp(&b, n_tokens, before + F);
    s.n = norm_of(&s);
    s.q = dfx_linear(&b, &(dfx_linear_spec){.x = s.n, .name = "q", .n = A});
    s.k = dfx_linear(&b, &(dfx_linear_spec){.x = s.n, .name = "k", .n = A});
    s.v = values_of(&s);
    write_first(&s);
    dfx_linear(&b, &(dfx_linear_spec){.x = s.n,
                                      .name = "in",
                                      .n = F,
                                      .act = DFX_ACT_GELU_TANH,
                                      .into = dfx_cols(s.joined, before, F)});
    open_page(&s, "out");
    dfx_linear(&b, &(dfx_linear_spec){
                       .x = s.joined, .name = is_wide ? "wide" : "joined", .n = N, .into = s.e.y});
    return dfx_builder_finish(&b, out);
}
