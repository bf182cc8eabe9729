/* See mlp_blocks.h. */
#include "tests/mlp_blocks.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "tests/stfile.h"

enum { D = MLP_D, A = MLP_A, F = MLP_F, N = MLP_N };

typedef struct layer {
    const char *name, *type; /* of safetensors */
    bool is_scaled;
    int n, k;
} layer;

/* Codes of any bits but NaN's, scales about 2^-9, small biases of BF16; weights of other types are zeros. */
static size_t fill_layer(const layer *l, unsigned char *data, dfx_rng *rng) {
    size_t n_weights = (size_t)(l->n * l->k), at = n_weights * (strcmp(l->type, "BF16") ? 1 : 2);
    for (size_t i = 0; i < n_weights && l->is_scaled; i++) {
        unsigned char code = (unsigned char)(dfx_rng_u32(rng) >> 24);
        data[i] = (code & 0x7f) == 0x7f ? 0x7e : code;
    }
    for (int i = 0; i < l->n && l->is_scaled; i++, at += sizeof(float)) {
        float scale = 0x1p-9f * (1 + (float)(dfx_rng_u32(rng) >> 8) * 0x1p-24f);
        memcpy(data + at, &scale, sizeof(scale));
    }
    for (int i = 0; i < l->n; i++, at += sizeof(uint16_t)) {
        float value;
        dfx_rng_normal(rng, &value, 1);
        uint16_t bias = dfx_f32_to_bf16(value / 4);
        memcpy(data + at, &bias, sizeof(bias));
    }
    return at;
}

static void say(char text[4096], const layer *l, const char *suffix, const char *type, int k,
                size_t from, size_t to) {
    char shape[32];
    size_t used = strlen(text);
    snprintf(shape, sizeof(shape), k ? "%d,%d" : "%d", l->n, k);
    snprintf(text + used, 4096 - used,
             "%s\"block.%s.%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             used > 1 ? "," : "", l->name, suffix, type, shape, from, to);
}

static dfx_tensors *open_layers(tmpdir *dir, const layer *layers, size_t n_layers) {
    static unsigned char data[1 << 16];
    char header[4096] = "{";
    size_t at = 0;
    dfx_rng rng;
    dfx_rng_seed(&rng, 7);
    memset(data, 0, sizeof(data));
    for (size_t i = 0; i < n_layers; i++) {
        const layer *l = &layers[i];
        size_t end = at + fill_layer(l, data + at, &rng), bias = end - 2 * (size_t)l->n,
               scale = bias - (l->is_scaled ? 4 * (size_t)l->n : 0);
        assert_true(end <= sizeof(data));
        say(header, l, "weight", l->type, l->k, at, scale);
        if (l->is_scaled)
            say(header, l, "weight_scale", "F32", 0, scale, bias);
        say(header, l, "bias", "BF16", 0, bias, end);
        at = end;
    }
    strcat(header, "}");
    return stfile_accepts_header(dir, header, data, at);
}

dfx_tensors *mlp_open(tmpdir *dir, const char *in, bool in_is_scaled, const char *out,
                      bool out_is_scaled) {
    const layer layers[] = {{"in", in, in_is_scaled, F, D},
                            {"q", in, in_is_scaled, A, D},
                            {"down", out, out_is_scaled, N, F},
                            {"joined", out, out_is_scaled, N, A + F},
                            {"k", in, in_is_scaled, A, D},
                            {"v", in, in_is_scaled, A, D},
                            {"wide", out, out_is_scaled, N, MLP_GAP + A + F},
                            {"out", out, out_is_scaled, N, A}};
    return open_layers(dir, layers, DFX_COUNT(layers));
}

dfx_tensors *mlp_open_fp8(tmpdir *dir) {
    return mlp_open(dir, "F8_E4M3", true, "F8_E4M3", true);
}

dfx_build_env mlp_env(tmpdir *dir, const dfx_tensors *tensors) {
    return (dfx_build_env){.tensors = tensors, .act_dtype = DFX_DTYPE_F32, .sink = &dir->log.sink};
}

mlp_externs mlp_begin(dfx_builder *b, const dfx_build_env *env, int64_t n_tokens) {
    mlp_externs e;
    dfx_builder_init(b, "test", "folder", env);
    e.x = dfx_extern_buf(b, "x", n_tokens, D, DFX_DTYPE_F32);
    e.scale = dfx_extern_buf(b, "scale", 1, D, DFX_DTYPE_F32);
    e.shift = dfx_extern_buf(b, "shift", 1, D, DFX_DTYPE_F32);
    e.first = dfx_extern_buf(b, "first", n_tokens, A, DFX_DTYPE_F32);
    e.y = dfx_extern_buf(b, "y", n_tokens, N, DFX_DTYPE_F32);
    return e;
}

static void emit(dfx_builder *b, dfx_op_kind kind, dfx_ref y, dfx_ref a, dfx_ref c) {
    dfx_emit(b, kind, "other", (dfx_ref[DFX_OP_SLOTS]){y, a, c},
             &(dfx_op_params){.n_heads = kind == DFX_OP_QKNORM_ROPE, .eps = 1e-6f});
}

static dfx_ref norm_of(dfx_builder *b, const mlp_externs *e, dfx_ref x, mlp_twist what) {
    if (what == MLP_OF_X)
        return x;
    dfx_ref n = dfx_temp(b, x.rows, D), row = e->scale;
    if (what == MLP_OF_RMSNORM)
        emit(b, DFX_OP_RMSNORM, n, x, row);
    else
        dfx_modulated_norm(b, n, x, e->scale, e->shift, 1e-6f, "norm");
    return n;
}

dfx_status mlp_build_plain(const dfx_build_env *env, int64_t n_tokens, int times, bool no_bias,
                           dfx_program *out) {
    dfx_builder b;
    mlp_externs e = mlp_begin(&b, env, n_tokens);
    dfx_builder_page(&b, "block");
    dfx_linear_spec in = {.x = norm_of(&b, &e, e.x, MLP_AS_IT_IS),
                          .name = "in",
                          .n = F,
                          .act = DFX_ACT_GELU_TANH,
                          .no_bias = no_bias};
    for (int i = 0; i < times; i++) {
        dfx_ref f = dfx_linear(&b, &in);
        dfx_linear(&b, &(dfx_linear_spec){.x = f, .name = "down", .n = N, .into = e.y});
    }
    return dfx_builder_finish(&b, out);
}

/* The joined buffer, its columns that `in` writes, and those that something else does. */
typedef struct parts {
    dfx_ref all, mlp, first;
} parts;

static parts parts_of(dfx_builder *b, int64_t n_tokens, mlp_twist what) {
    dfx_ref all = what == MLP_OUTSIDE ? dfx_extern_buf(b, "all", n_tokens, A + F, DFX_DTYPE_F32)
                                      : dfx_temp(b, n_tokens, A + F);
    parts p = {all, dfx_cols(all, A, F), dfx_cols(all, 0, A)};
    if (what == MLP_AT_LEFT)
        p = (parts){.all = all, .mlp = dfx_cols(all, 0, F)};
    if (what == MLP_OVER_OTHERS)
        p.first = dfx_cols(all, 1, A);
    return p;
}

static dfx_act act_of(mlp_twist what) {
    switch (what) {
    case MLP_SILU:
        return DFX_ACT_SILU;
    case MLP_QUICK_GELU:
        return DFX_ACT_QUICK_GELU;
    case MLP_NO_ACT:
        return DFX_ACT_NONE;
    default:
        return DFX_ACT_GELU_TANH;
    }
}

static void emit_first(dfx_builder *b, const mlp_externs *e, const parts *p, mlp_twist what) {
    dfx_ref none = {0};
    if (p->first.buf)
        emit(b, DFX_OP_ACT, p->first, e->first, none);
    if (what == MLP_READ_BEFORE)
        emit(b, DFX_OP_ADD, p->first, p->first, e->first);
    if (what == MLP_IN_PLACE_BEFORE)
        emit(b, DFX_OP_QKNORM_ROPE, p->first, dfx_cols(e->scale, 0, A), none);
}

/* Norm, what else reads it, what else writes the joined buffer, and gelu(in(n)). */
static void emit_writers(dfx_builder *b, const mlp_externs *e, const parts *p, mlp_twist what) {
    dfx_linear_spec in = {.name = "in", .n = F, .act = act_of(what), .into = p->mlp};
    dfx_ref x = e->x;
    if (what == MLP_HALF_OF_ROWS) {
        x = dfx_rows(x, 0, x.rows / 2);
        in.into = dfx_rows(in.into, 0, x.rows);
    }
    if (what == MLP_GATED)
        in.gate = dfx_extern_buf(b, "gate", 1, F, DFX_DTYPE_F32);
    if (what == MLP_RESIDUAL)
        in.residual = dfx_extern_buf(b, "residual", x.rows, F, DFX_DTYPE_F32);
    in.x = norm_of(b, e, x, what);
    dfx_linear(b, &(dfx_linear_spec){.x = in.x, .name = "q", .n = A});
    emit_first(b, e, p, what);
    dfx_linear(b, &in);
}

static void emit_readers(dfx_builder *b, const mlp_externs *e, const parts *p, mlp_twist what) {
    dfx_linear_spec out = {.x = p->all, .name = "joined", .n = N, .into = e->y};
    dfx_linear_spec down = {.x = p->mlp, .name = "down", .n = N, .into = e->y};
    if (what == MLP_READ_AFTER)
        emit(b, DFX_OP_ACT, e->first, p->first, (dfx_ref){0});
    if (what == MLP_READ_BY_NORM) {
        out.x = dfx_temp(b, p->all.rows, A + F);
        emit(b, DFX_OP_LAYERNORM, out.x, p->all, (dfx_ref){0});
    }
    if (what == MLP_READ_ROWS) {
        out.x = dfx_rows(out.x, 0, out.x.rows / 2);
        out.into = dfx_rows(out.into, 0, out.x.rows);
    }
    if (what != MLP_READ_MLP)
        dfx_linear(b, &out);
    if (what == MLP_READ_MLP || what == MLP_READ_IN_PARTS)
        dfx_linear(b, &down);
}

dfx_status mlp_build_joined(const dfx_build_env *env, int64_t n_tokens, mlp_twist what,
                            dfx_program *out) {
    dfx_builder b;
    mlp_externs e = mlp_begin(&b, env, n_tokens);
    dfx_builder_page(&b, "block/in");
    dfx_builder_scope(&b, "block");
    parts p = parts_of(&b, n_tokens, what);
    emit_writers(&b, &e, &p, what);
    dfx_builder_page(&b, "block/out");
    dfx_builder_scope(&b, "block");
    emit_readers(&b, &e, &p, what);
    return dfx_builder_finish(&b, out);
}

void mlp_has_ops(const dfx_program *p, const dfx_op_kind *kinds, uint32_t n) {
    assert_int_equal(p->n_ops, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(p->ops[i].kind, kinds[i]);
    assert_int_equal(p->regions[p->n_regions - 1].end_op, n);
}

void mlp_is_ref(dfx_ref got, uint32_t buf, int64_t rows, int64_t col0, int64_t cols) {
    assert_int_equal(got.buf, buf);
    assert_true(got.row0 == 0 && got.rows == rows && got.col0 == col0 && got.cols == cols);
}

void mlp_survives_failing_allocations(tmpdir *dir, const dfx_build_env *env, mlp_build_fn build) {
    size_t held_bytes = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_program p;
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(nth);
        status = build(env, &p);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK)
            dfx_program_fini(&p);
        else
            assert_int_equal(status, DFX_E_NOFIT);
        assert_int_equal(dfx_mem_held_bytes(), held_bytes);
    }
}
