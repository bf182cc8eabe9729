/* Attention that makes codes by a bound of its values (offload/fuse_bound.c): in which order ops come, which blocks keep QUANTIZE
 * for its columns, and that the CPU computes what the weights say. */
#include <math.h>
#include <string.h>

#include "tests/attended_block.h"
#include "tests/mlp_trial.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, F = MLP_F, H = ATTENDED_H, E = ATTENDED_E };

/* The last four ops, whatever made q, k and v; `values` is the values' product. */
static void has_one_scale(const dfx_program *p, const dfx_op *values) {
    const dfx_op *norm = &p->ops[0], *end = p->ops + p->n_ops;
    const dfx_op *bound = end - 4, *attention = end - 3, *in = end - 2, *out = end - 1;
    mlp_is_ref(bound->r[DFX_BOUND_X_NORM], norm->r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    assert_true(norm->r[DFX_NORM_Y_NORM].buf != 0);
    mlp_is_ref(bound->r[DFX_BOUND_W_SCALE], in->r[DFX_LINEAR_SCALE].buf, 1, 0, F);
    mlp_is_ref(bound->r[DFX_BOUND_B], in->r[DFX_LINEAR_B].buf, 1, 0, F);
    mlp_is_ref(bound->r[DFX_BOUND_V_SCALE], values->r[DFX_LINEAR_SCALE].buf, 1, 0, A);
    assert_true(dfx_ref_same(&bound->r[DFX_BOUND_V_B], &values->r[DFX_LINEAR_B]));
    assert_float_equal(bound->p.scale, 1.07 * sqrt(D), 1e-5);
    assert_int_equal(bound->page_idx, in->page_idx);
    mlp_is_ref(bound->r[0], bound->r[0].buf, 1, 0, T);
    mlp_is_ref(attention->r[dfx_op_y_scale_given(attention->kind)], bound->r[0].buf, 1, 0, T);
    mlp_is_ref(in->r[DFX_LINEAR_Y_SCALE], bound->r[0].buf, 1, 0, T);
    mlp_is_ref(out->r[DFX_LINEAR_X_SCALE], bound->r[0].buf, 1, 0, T);
    assert_int_equal(p->bufs[out->r[DFX_LINEAR_X].buf].dtype, DFX_DTYPE_F8_E4M3);
    mlp_is_ref(attention->r[0], out->r[DFX_LINEAR_X].buf, T, 0, A);
    mlp_is_ref(in->r[0], out->r[DFX_LINEAR_X].buf, T, A, F);
    mlp_is_ref(out->r[DFX_LINEAR_X], out->r[DFX_LINEAR_X].buf, T, 0, A + F);
    assert_int_equal(in->p.act, DFX_ACT_GELU_TANH);
    assert_int_equal(p->n_regions, 2);
    assert_int_equal(p->regions[1].first_op, p->n_ops - 1);
}

/* Values [T, A + F] of F32, 31360 bytes, are there no more. */
static void attended_block_has_one_bound_before_attention_and_no_quantize(void **state) {
    static const dfx_op_kind plain[] = {
        DFX_OP_LAYERNORM,   DFX_OP_LINEAR, DFX_OP_LINEAR,    DFX_OP_LINEAR, DFX_OP_QKNORM_ROPE,
        DFX_OP_QKNORM_ROPE, DFX_OP_BOUND,  DFX_OP_ATTENTION, DFX_OP_LINEAR, DFX_OP_LINEAR};
    static const dfx_op_kind codes[] = {DFX_OP_LAYERNORM,       DFX_OP_LINEAR,   DFX_OP_LINEAR,
                                        DFX_OP_LINEAR,          DFX_OP_QK_CODES, DFX_OP_KV_CENTER,
                                        DFX_OP_QK_CODES,        DFX_OP_V_CODES,  DFX_OP_BOUND,
                                        DFX_OP_ATTENTION_CODES, DFX_OP_LINEAR,   DFX_OP_LINEAR};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int i = 0; i < 4; i++) {
        dfx_program p;
        env.attention_codes = i % 2;
        attended_twist what = i / 2 ? ATTENDED_NO_BIAS : ATTENDED_AS_IT_IS;
        assert_int_equal(attended_build(&env, T, what, &p), DFX_OK);
        mlp_has_ops(&p, i % 2 ? codes : plain, i % 2 ? DFX_COUNT(codes) : DFX_COUNT(plain));
        has_one_scale(&p, &p.ops[3]);
        assert_int_equal(p.ops[3].r[DFX_LINEAR_B].buf == 0, i / 2);
        assert_true(p.act_bytes < T * (A + F) * 4);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* Its MLP alone has a bound, and the other columns have QUANTIZE, whose scale is not below that. */
static void keeps_quantize(const dfx_program *p, int what) {
    int n_bounds = 0, n_least = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const dfx_op *op = &p->ops[i];
        int given = dfx_op_y_scale_given(op->kind);
        if (op->kind == DFX_OP_BOUND) {
            n_bounds++;
            if (op->r[DFX_BOUND_V_SCALE].buf || op->r[DFX_BOUND_V_B].buf)
                fail_msg("case %d has a bound of values", what);
        }
        n_least += op->kind == DFX_OP_QUANTIZE && op->r[DFX_QUANTIZE_LEAST].buf;
        if (op->kind != DFX_OP_LINEAR && given && op->r[given].buf)
            fail_msg("case %d has attention that makes codes", what);
    }
    if (n_bounds != 1 || n_least != 1)
        fail_msg("case %d has %d bounds and %d of QUANTIZE with least", what, n_bounds, n_least);
}

static void attended_block_with_a_twist_quantizes_the_columns_of_attention(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int i = 2 * (ATTENDED_NO_BIAS + 1); i < 2 * ATTENDED_N_TWISTS; i++) {
        dfx_program p;
        env.attention_codes = i % 2;
        assert_int_equal(attended_build(&env, T, (attended_twist)(i / 2), &p), DFX_OK);
        keeps_quantize(&p, i / 2);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* Of int8, which has no bound; and with adapters beside all products. Values [T, A + F] go to memory. */
static void attended_block_without_bounds_has_no_scale_for_attention(void **state) {
    tmpdir *dir = *state;
    for (int i = 0; i < 8; i++) {
        dfx_program p;
        bool is_int8 = i / 2 % 2;
        const char *type = is_int8 ? "I8" : "F8_E4M3";
        dfx_tensors *set = mlp_open(dir, type, true, i / 4 ? type : "F8_E4M3", true);
        dfx_build_env env = mlp_env(dir, set);
        env.attention_codes = i % 2;
        env.adapter_rank = is_int8 ? 0 : DFX_ADAPTER_GRAIN;
        assert_int_equal(attended_build(&env, T, ATTENDED_AS_IT_IS, &p), DFX_OK);
        for (uint32_t k = 0; k < p.n_ops; k++) {
            const dfx_op *op = &p.ops[k];
            int given = dfx_op_y_scale_given(op->kind);
            assert_true(op->kind != DFX_OP_BOUND && (!given || !op->r[given].buf));
        }
        assert_true(p.act_bytes >= T * (A + F) * 4);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static dfx_status build_block(const dfx_build_env *env, dfx_program *p) {
    return attended_build(env, T, ATTENDED_AS_IT_IS, p);
}

static void fusing_attention_survives_failing_allocations(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    env.attention_codes = true;
    mlp_survives_failing_allocations(dir, &env, build_block);
    dfx_tensors_close(set);
}

/* ---- what they compute ---- */

/* A run, and what attention should make of its operands, [n_tokens, A]; `greatest` magnitude of its values. */
typedef struct attended_trial {
    mlp_trial r; /* first: the probe's */
    double q[T * A], k[T * A], v[T * A], want[T * A], greatest;
} attended_trial;

/* Softmax of scores over all keys; means of values, of one head. */
static void attend(attended_trial *a, int h) {
    int n = a->r.n_tokens;
    for (int t = 0; t < n; t++) {
        double p[T], max = -INFINITY, sum = 0;
        for (int s = 0; s < n; s++) {
            p[s] = 0;
            for (int i = h * E; i < (h + 1) * E; i++)
                p[s] += a->q[t * A + i] * a->k[s * A + i] / sqrt(E);
            max = fmax(max, p[s]);
        }
        for (int s = 0; s < n; s++)
            sum += p[s] = exp(p[s] - max);
        for (int i = h * E; i < (h + 1) * E; i++) {
            a->want[t * A + i] = 0;
            for (int s = 0; s < n; s++)
                a->want[t * A + i] += p[s] / sum * a->v[s * A + i];
        }
    }
}

static double at(const dfx_mat *m, int64_t row, int64_t col) {
    return (double)((const float *)m->ptr)[row * m->ld + col];
}

/* q, k and v as ATTENTION has them. */
static void read_values(attended_trial *a, const dfx_mat *m) {
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        a->q[i] = at(&m[DFX_ATTN_Q], i / A, i % A);
        a->k[i] = at(&m[DFX_ATTN_K], i / A, i % A);
        a->v[i] = at(&m[DFX_ATTN_V], i / A, i % A);
    }
}

/* What codes of ATTENTION_CODES stand for. */
static void decode_operands(attended_trial *a, const dfx_mat *m) {
    const dfx_mat *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    const dfx_mat *center = &m[DFX_ATTN_CENTER];
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        int t = i / A, c = i % A;
        uint8_t value = ((const uint8_t *)v->ptr)[c * v->ld + dfx_v_codes_place(t)];
        a->q[i] = ((const int8_t *)q->ptr)[t * q->ld + c] * at(&m[DFX_ATTN_Q_SCALE], t, c / E);
        a->k[i] = ((const int8_t *)k->ptr)[t * k->ld + c] * at(center, DFX_CENTER_KEY_SCALE, c);
        a->v[i] = (double)dfx_e4m3_to_f32(value) * at(center, DFX_CENTER_VALUE_SCALE, c) +
                  at(center, DFX_CENTER_VALUE, c);
    }
}

static void look(void *user, const dfx_op *op, const dfx_op_call *call) {
    attended_trial *a = user;
    mlp_look(&a->r, op, call);
    if (op->kind == DFX_OP_ATTENTION)
        read_values(a, call->m);
    else if (op->kind == DFX_OP_ATTENTION_CODES)
        decode_operands(a, call->m);
    else
        return;
    for (int i = 0; i < a->r.n_tokens * A; i++)
        a->greatest = fmax(a->greatest, fabs(a->v[i]));
    for (int h = 0; h < H; h++)
        attend(a, h);
}

/* Values are what the weights say of x, and no further out than 448 bounds of any row. Their codes are off by 1/16 of the way
 * from their mean, which is twice the greatest at most. */
static void check_values(const attended_trial *a, bool in_codes) {
    mlp_weights v = mlp_weights_read(&a->r, "v", A, D);
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double size, want = mlp_product_at(&v, &a->r.seen.x[i / A * D], i % A, &size);
        double off = (D + 16) * 0x1p-24 * size + (in_codes ? a->greatest / 8 : 0);
        assert_true(fabs(a->v[i] - want) <= off);
        for (int t = 0; t < a->r.n_tokens; t++)
            assert_true(fabs(want) < 448 * (double)a->r.seen.scales[t]);
    }
    mlp_weights_free(&v);
}

/* Codes stand for attention to half a step of the bound. Its weights are off by 2e-5 (test_cpu_attention.c). */
static void check_attention(const attended_trial *a) {
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double scale = (double)a->r.seen.scales[i / A], want = a->want[i];
        double off = mlp_half_step(want, scale) + 2e-5 * a->greatest;
        if (!(fabs(a->r.seen.first[i] - want) <= off))
            fail_msg("row %d column %d: got %g, want %g to %g", i / A, i % A, a->r.seen.first[i],
                     want, off);
    }
    assert_memory_equal(a->r.seen.scales, a->r.seen.bounds, (size_t)a->r.n_tokens * sizeof(float));
}

static void attended_block_computes_what_weights_say_to_half_a_step_of_its_bounds(void **state) {
    static const int counts[] = {1, 9, 64, T};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (size_t i = 0; i < 2 * DFX_COUNT(counts); i++) {
        attended_trial a = {.r = {.dir = dir, .set = set, .n_tokens = counts[i / 2]}};
        dfx_program p;
        env.attention_codes = i % 2;
        assert_int_equal(attended_build(&env, a.r.n_tokens, ATTENDED_AS_IT_IS, &p), DFX_OK);
        mlp_trial_run(&a.r, &p, look);
        mlp_check_mlp(&a.r);
        check_values(&a, i % 2);
        check_attention(&a);
        mlp_check_y(&a.r, "joined", A + F);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(attended_block_has_one_bound_before_attention_and_no_quantize),
        IN_TMPDIR(attended_block_with_a_twist_quantizes_the_columns_of_attention),
        IN_TMPDIR(attended_block_without_bounds_has_no_scale_for_attention),
        IN_TMPDIR(fusing_attention_survives_failing_allocations),
        IN_TMPDIR(attended_block_computes_what_weights_say_to_half_a_step_of_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
