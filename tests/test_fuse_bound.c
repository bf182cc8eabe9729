/* Products that make codes of their own values: which programs get them, in which order of ops, which keep QUANTIZE, and that
 * the CPU computes by them what the weights say. */
#include <math.h>

#include "models/architecture.h"
#include "models/flux.h"
#include "tests/mlp_trial.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, F = MLP_F };

/* Values [T, F] of F32 would take 26880 bytes. */
static void plain_block_has_a_product_that_makes_codes_by_a_bound(void **state) {
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_BOUND, DFX_OP_LINEAR,
                                        DFX_OP_LINEAR};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int no_bias = 0; no_bias < 2; no_bias++) {
        dfx_program p;
        assert_int_equal(mlp_build_plain(&env, T, 1, no_bias, &p), DFX_OK);
        mlp_has_ops(&p, kinds, 4);
        const dfx_op *norm = &p.ops[0], *bound = &p.ops[1], *in = &p.ops[2], *down = &p.ops[3];
        mlp_is_ref(norm->r[DFX_NORM_Y_NORM], bound->r[DFX_BOUND_X_NORM].buf, 1, 0, T);
        mlp_is_ref(bound->r[DFX_BOUND_X_NORM], norm->r[DFX_NORM_Y_NORM].buf, 1, 0, T);
        mlp_is_ref(norm->r[DFX_NORM_Y_SCALE], in->r[DFX_LINEAR_X_SCALE].buf, 1, 0, T);
        mlp_is_ref(bound->r[DFX_BOUND_W_SCALE], in->r[DFX_LINEAR_SCALE].buf, 1, 0, F);
        assert_int_equal(bound->r[DFX_BOUND_B].buf, in->r[DFX_LINEAR_B].buf);
        assert_int_equal(bound->r[DFX_BOUND_B].buf == 0, no_bias);
        assert_float_equal(bound->p.scale, 1.07 * sqrt(D), 1e-5);
        assert_int_equal(bound->page_idx, 0);
        mlp_is_ref(in->r[DFX_LINEAR_Y_SCALE], bound->r[0].buf, 1, 0, T);
        mlp_is_ref(in->r[0], down->r[DFX_LINEAR_X].buf, T, 0, F);
        assert_int_equal(p.bufs[in->r[0].buf].dtype, DFX_DTYPE_F8_E4M3);
        assert_int_equal(in->p.act, DFX_ACT_GELU_TANH);
        mlp_is_ref(down->r[DFX_LINEAR_X_SCALE], bound->r[0].buf, 1, 0, T);
        assert_int_equal(down->r[DFX_LINEAR_Y_SCALE].buf, 0);
        assert_true(p.act_bytes < T * F * 4);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* Values [T, A + F] of F32 would take 31360 bytes; [T, A] of them, 4480, are left. */
static void joined_block_quantizes_other_columns_before_the_product(void **state) {
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_LINEAR, DFX_OP_ACT,   DFX_OP_BOUND,
                                        DFX_OP_QUANTIZE,  DFX_OP_LINEAR, DFX_OP_LINEAR};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    dfx_program p, kept;
    assert_int_equal(mlp_build_joined(&env, T, MLP_AS_IT_IS, &p), DFX_OK);
    mlp_has_ops(&p, kinds, 7);
    const dfx_op *norm = &p.ops[0], *first = &p.ops[2], *bound = &p.ops[3], *quantize = &p.ops[4],
                 *in = &p.ops[5], *out = &p.ops[6];
    mlp_is_ref(bound->r[DFX_BOUND_X_NORM], norm->r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    mlp_is_ref(quantize->r[DFX_QUANTIZE_X], first->r[0].buf, T, 0, A);
    mlp_is_ref(quantize->r[DFX_QUANTIZE_LEAST], bound->r[0].buf, 1, 0, T);
    mlp_is_ref(quantize->r[0], out->r[DFX_LINEAR_X].buf, T, 0, A);
    mlp_is_ref(in->r[0], out->r[DFX_LINEAR_X].buf, T, A, F);
    mlp_is_ref(out->r[DFX_LINEAR_X], in->r[0].buf, T, 0, A + F);
    mlp_is_ref(in->r[DFX_LINEAR_Y_SCALE], quantize->r[DFX_QUANTIZE_Y_SCALE].buf, 1, 0, T);
    mlp_is_ref(out->r[DFX_LINEAR_X_SCALE], quantize->r[DFX_QUANTIZE_Y_SCALE].buf, 1, 0, T);
    assert_int_not_equal(bound->r[0].buf, quantize->r[DFX_QUANTIZE_Y_SCALE].buf);
    assert_true(p.bufs[first->r[0].buf].cols == A && p.bufs[first->r[0].buf].bytes == T * A * 4);
    assert_int_equal(p.n_regions, 2);
    assert_true(p.regions[0].end_op == 6 && p.regions[1].first_op == 6);
    assert_int_equal(bound->page_idx, in->page_idx);
    assert_int_equal(mlp_build_joined(&env, T, MLP_SILU, &kept), DFX_OK);
    assert_true(kept.act_bytes >= T * (A + F) * 4 && p.act_bytes < T * (A + F) * 4);
    dfx_program_fini(&kept);
    dfx_program_fini(&p);
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* They share codes of x, and the norms of its rows. */
static void two_products_of_one_norm_have_a_bound_each(void **state) {
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_BOUND, DFX_OP_LINEAR,
                                        DFX_OP_LINEAR,    DFX_OP_BOUND, DFX_OP_LINEAR,
                                        DFX_OP_LINEAR};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    dfx_program p;
    assert_int_equal(mlp_build_plain(&env, T, 2, false, &p), DFX_OK);
    mlp_has_ops(&p, kinds, 7);
    mlp_is_ref(p.ops[1].r[DFX_BOUND_X_NORM], p.ops[0].r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    mlp_is_ref(p.ops[4].r[DFX_BOUND_X_NORM], p.ops[0].r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    assert_int_not_equal(p.ops[1].r[0].buf, p.ops[4].r[0].buf);
    dfx_program_fini(&p);
    dfx_tensors_close(set);
}

static void has_no_bound(const dfx_program *p, int what) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const dfx_op *op = &p->ops[i];
        if (op->kind == DFX_OP_BOUND ||
            (op->kind == DFX_OP_LINEAR && op->r[DFX_LINEAR_Y_SCALE].buf) ||
            (op->kind == DFX_OP_LAYERNORM && op->r[DFX_NORM_Y_NORM].buf) ||
            (op->kind == DFX_OP_QUANTIZE && op->r[DFX_QUANTIZE_LEAST].buf))
            fail_msg("case %d has a bound at op %u", what, i);
    }
}

static void joined_block_with_a_twist_keeps_its_values(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int what = MLP_AS_IT_IS + 1; what < MLP_N_TWISTS; what++) {
        dfx_program p;
        assert_int_equal(mlp_build_joined(&env, T, (mlp_twist)what, &p), DFX_OK);
        has_no_bound(&p, what);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* W without scales has no bound, and without codes of x no use for one; int8 has no room at the top. */
static void blocks_of_other_formats_keep_their_values(void **state) {
    static const struct {
        const char *in;
        bool in_scaled;
        const char *out;
        bool out_scaled;
    } files[] = {{"I8", true, "I8", true},
                 {"F8_E4M3", true, "I8", true},
                 {"I8", true, "F8_E4M3", true},
                 {"F8_E4M3", true, "BF16", false},
                 {"BF16", false, "F8_E4M3", true},
                 {"F8_E4M3", false, "F8_E4M3", false},
                 {"F8_E4M3", false, "F8_E4M3", true},
                 {"F8_E4M3", true, "F8_E4M3", false}};
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(files); i++) {
        dfx_tensors *set =
            mlp_open(dir, files[i].in, files[i].in_scaled, files[i].out, files[i].out_scaled);
        dfx_build_env env = mlp_env(dir, set);
        dfx_program p;
        assert_int_equal(mlp_build_plain(&env, T, 1, false, &p), DFX_OK);
        has_no_bound(&p, (int)i);
        dfx_program_fini(&p);
        assert_int_equal(mlp_build_joined(&env, T, MLP_AS_IT_IS, &p), DFX_OK);
        has_no_bound(&p, (int)i);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
}

/* What they add is in no bound. */
static void blocks_with_adapters_keep_their_values(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    dfx_program p;
    env.adapter_rank = DFX_ADAPTER_GRAIN;
    assert_int_equal(mlp_build_plain(&env, T, 1, false, &p), DFX_OK);
    has_no_bound(&p, 0);
    dfx_program_fini(&p);
    assert_int_equal(mlp_build_joined(&env, T, MLP_AS_IT_IS, &p), DFX_OK);
    has_no_bound(&p, 1);
    dfx_program_fini(&p);
    dfx_tensors_close(set);
}

/* One for each MLP and for attention of a 2-stream block, and one for both in a 1-stream block; but
 * for the last block, whose MLP has not the rows that attention's values are from. */
static void flux_step_has_a_bound_for_each_mlp_in_fp8_alone(void **state) {
    tmpdir *dir = *state;
    const dfx_flux_config config = dfx_architecture_find("flux-dev")->configs.flux;
    for (int i = 0; i < 4; i++) {
        bool fp8 = i < 2;
        dfx_q_policy policy = {.target = fp8 ? DFX_Q_FP8 : DFX_Q_INT8, .kept = DFX_Q_STORED};
        dfx_build_env env = {.like = &policy,
                             .attention_codes = i % 2,
                             .act_dtype = DFX_DTYPE_BF16,
                             .sink = &dir->log.sink};
        int n_bounds = 0, n_makers = 0, n_least = 0, n_attended = 0, n_of_values = 0;
        dfx_program p;
        assert_int_equal(dfx_flux_build_step(&config, &env, 512, 4096, &p), DFX_OK);
        for (uint32_t k = 0; k < p.n_ops; k++) {
            const dfx_op *op = &p.ops[k];
            n_bounds += op->kind == DFX_OP_BOUND;
            n_makers += op->kind == DFX_OP_LINEAR && op->r[DFX_LINEAR_Y_SCALE].buf;
            n_least += op->kind == DFX_OP_QUANTIZE && op->r[DFX_QUANTIZE_LEAST].buf;
            n_of_values += op->kind == DFX_OP_BOUND && op->r[DFX_BOUND_V_SCALE].buf &&
                           op->r[DFX_BOUND_V_B].buf;
            n_attended += op->kind == (i % 2 ? DFX_OP_ATTENTION_CODES : DFX_OP_ATTENTION) &&
                          op->r[dfx_op_y_scale_given(op->kind)].buf;
        }
        assert_int_equal(n_bounds, fp8 ? 3 * 19 + 38 : 0);
        assert_int_equal(n_makers, fp8 ? 2 * 19 + 38 : 0);
        assert_int_equal(n_attended, fp8 ? 19 + 37 : 0);
        assert_int_equal(n_of_values, fp8 ? 19 + 37 : 0);
        assert_int_equal(n_least, fp8 ? 1 : 0);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static dfx_status build_block(const dfx_build_env *env, dfx_program *p) {
    return mlp_build_joined(env, T, MLP_AS_IT_IS, p);
}

static void fusing_survives_failing_allocations(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    mlp_survives_failing_allocations(dir, &env, build_block);
    dfx_tensors_close(set);
}

/* ---- what they compute ---- */

static void plain_block_computes_what_weights_say_to_half_a_step_of_its_bounds(void **state) {
    static const int counts[] = {1, 9, 64, T};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (size_t i = 0; i < DFX_COUNT(counts); i++) {
        mlp_trial r = {.dir = dir, .set = set, .n_tokens = counts[i]};
        dfx_program p;
        assert_int_equal(mlp_build_plain(&env, r.n_tokens, 1, false, &p), DFX_OK);
        mlp_trial_run(&r, &p, mlp_look);
        mlp_check_mlp(&r);
        mlp_check_y(&r, "down", F);
        assert_memory_equal(r.seen.scales, r.seen.bounds, (size_t)r.n_tokens * sizeof(float));
        dfx_program_fini(&p);
    }
    dfx_tensors_close(set);
}

/* The greater of the bound and what the other columns need is the scale of both. */
static void check_first(const mlp_trial *r) {
    int n_own = 0;
    for (int t = 0; t < r->n_tokens; t++) {
        float top = 0;
        for (int i = 0; i < A; i++)
            top = fmaxf(top, fabsf(r->first[t * A + i]));
        assert_true(r->seen.scales[t] == fmaxf(top / 448, r->seen.bounds[t]));
        n_own += r->seen.scales[t] > r->seen.bounds[t];
        for (int i = 0; i < A; i++) {
            double want = (double)r->first[t * A + i];
            assert_true(fabs(r->seen.first[t * A + i] - want) <=
                        mlp_half_step(want, (double)r->seen.scales[t]));
        }
    }
    assert_true(r->n_tokens < 5 || (n_own >= r->n_tokens / 5 && n_own <= r->n_tokens / 2));
}

static void joined_block_computes_what_weights_say_to_half_a_step_of_its_scales(void **state) {
    static const int counts[] = {1, 9, 64, T};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (size_t i = 0; i < DFX_COUNT(counts); i++) {
        mlp_trial r = {.dir = dir, .set = set, .n_tokens = counts[i]};
        dfx_program p;
        assert_int_equal(mlp_build_joined(&env, r.n_tokens, MLP_AS_IT_IS, &p), DFX_OK);
        mlp_trial_run(&r, &p, mlp_look);
        mlp_check_mlp(&r);
        check_first(&r);
        mlp_check_y(&r, "joined", A + F);
        dfx_program_fini(&p);
    }
    dfx_tensors_close(set);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(plain_block_has_a_product_that_makes_codes_by_a_bound),
        IN_TMPDIR(joined_block_quantizes_other_columns_before_the_product),
        IN_TMPDIR(two_products_of_one_norm_have_a_bound_each),
        IN_TMPDIR(joined_block_with_a_twist_keeps_its_values),
        IN_TMPDIR(blocks_of_other_formats_keep_their_values),
        IN_TMPDIR(blocks_with_adapters_keep_their_values),
        IN_TMPDIR(flux_step_has_a_bound_for_each_mlp_in_fp8_alone),
        IN_TMPDIR(fusing_survives_failing_allocations),
        IN_TMPDIR(plain_block_computes_what_weights_say_to_half_a_step_of_its_bounds),
        IN_TMPDIR(joined_block_computes_what_weights_say_to_half_a_step_of_its_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
