/* Attention that makes codes by a bound of its values (offload/fuse_bound.c): in which order ops come, which blocks keep QUANTIZE
 * for its columns, and that the CPU computes what the weights say. */
#include <math.h>
#include <string.h>

#include "tests/attended_block.h"
#include "tests/attended_seen.h"
#include "tests/mlp_trial.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, F = MLP_F };

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

/* A run, and what attention has seen. */
typedef struct attended_trial {
    mlp_trial r; /* first: the probe's */
    attended_seen seen;
} attended_trial;

static void look(void *user, const dfx_op *op, const dfx_op_call *call) {
    attended_trial *a = user;
    mlp_look(&a->r, op, call);
    attended_look(&a->seen, call);
}

/* Values are what the weights say of x, and no further out than 448 bounds of any row. Their codes are off by 1/16 of the way
 * from their mean, which is twice the greatest at most. */
static void check_values(const attended_trial *a, bool in_codes) {
    mlp_weights v = mlp_weights_read(&a->r, "v", A, D);
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double size, want = mlp_product_at(&v, &a->r.seen.x[i / A * D], i % A, &size);
        double off = (D + 16) * 0x1p-24 * size + (in_codes ? a->seen.greatest / 8 : 0);
        assert_true(fabs(a->seen.v[i] - want) <= off);
        for (int t = 0; t < a->r.n_tokens; t++)
            assert_true(fabs(want) < 448 * (double)a->r.seen.scales[t]);
    }
    mlp_weights_free(&v);
}

/* Codes stand for attention to half a step of the bound. Its weights are off by 2e-5 (test_cpu_attention.c). */
static void check_attention(const attended_trial *a) {
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double scale = (double)a->r.seen.scales[i / A], want = a->seen.want[i];
        double off = mlp_half_step(want, scale) + 2e-5 * a->seen.greatest;
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
