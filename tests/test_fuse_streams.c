/* Attention of two streams that makes codes by a bound of both streams' values (offload/fuse_streams.c): in which order ops come,
 * which blocks keep QUANTIZE, and that the CPU computes what the weights say. */
#include <math.h>
#include <string.h>

#include "tests/attended_seen.h"
#include "tests/mlp_trial.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, N = MLP_N, H = ATTENDED_H, E = ATTENDED_E };

/* What is not as in the block of FLUX. The first three have a bound, the others none. */
typedef enum twist {
    AS_IT_IS,
    NO_BIAS,      /* of the first stream's values */
    READ_IN_PART, /* the second stream's rows of it are not read at all */
    ONE_NORM,     /* of all rows, of which each stream has its own */
    ACT,          /* the second stream's values have an activation */
    CHANGED,      /* another op adds to the values */
    GIVEN,        /* another op writes those of the second stream */
    OTHER_PAGE,   /* another page comes before attention */
    READ_AFTER,   /* attention is read as values, too */
    N_TWISTS
} twist;

typedef struct block {
    dfx_builder *b;
    mlp_externs e;
    twist what;
    int64_t n_first;
    dfx_ref q, k, v;
} block;

static dfx_ref rows_of(const block *s, dfx_ref r, int stream) {
    return stream ? dfx_rows(r, s->n_first, r.rows - s->n_first) : dfx_rows(r, 0, s->n_first);
}

static void linear_into(const block *s, dfx_ref x, const char *name, dfx_ref into, dfx_act act,
                        bool no_bias) {
    dfx_linear(
        s->b,
        &(dfx_linear_spec){
            .x = x, .name = name, .n = into.cols, .act = act, .no_bias = no_bias, .into = into});
}

static dfx_ref norm_of(const block *s, dfx_ref x, bool is_other) {
    dfx_ref n = dfx_temp(s->b, x.rows, D);
    dfx_modulated_norm(s->b, n, x, is_other ? s->e.shift : s->e.scale,
                       is_other ? s->e.scale : s->e.shift, 1e-6f, "norm");
    return n;
}

static void stream(const block *s, dfx_ref n, int i) {
    static const char *const names[2][3] = {{"q", "k", "v"}, {"v", "q", "k"}};
    const dfx_ref v = rows_of(s, s->v, i);
    linear_into(s, n, names[i][0], rows_of(s, s->q, i), DFX_ACT_NONE, false);
    linear_into(s, n, names[i][1], rows_of(s, s->k, i), DFX_ACT_NONE, false);
    if (s->what == GIVEN && i)
        dfx_emit(s->b, DFX_OP_ACT, "other", (dfx_ref[DFX_OP_SLOTS]){v, rows_of(s, s->e.first, i)},
                 &(dfx_op_params){0});
    else
        linear_into(s, n, names[i][2], v, s->what == ACT && i ? DFX_ACT_SILU : DFX_ACT_NONE,
                    s->what == NO_BIAS && !i);
}

static void attend(const block *s, dfx_ref y) {
    const dfx_op_params heads = {.n_heads = H, .eps = 1e-6f},
                        softmax = {.n_heads = H, .scale = 1 / sqrtf(E)};
    dfx_builder *b = s->b;
    if (!b->env.attention_codes) {
        dfx_emit(b, DFX_OP_ATTENTION, "attention", (dfx_ref[DFX_OP_SLOTS]){y, s->q, s->k, s->v},
                 &softmax);
        return;
    }
    dfx_ref w = dfx_cols(s->e.scale, 0, E);
    dfx_attention_codes c = dfx_attention_codes_bufs(b, y.rows, y.rows, A, H);
    dfx_emit(b, DFX_OP_QK_CODES, "other",
             (dfx_ref[DFX_OP_SLOTS]){c.q, s->q, w, [DFX_QK_CODES_Y_SCALE] = c.q_scale}, &heads);
    dfx_emit(b, DFX_OP_KV_CENTER, "other", (dfx_ref[DFX_OP_SLOTS]){c.center, s->k, s->v, w},
             &heads);
    dfx_emit(b, DFX_OP_QK_CODES, "other",
             (dfx_ref[DFX_OP_SLOTS]){c.k, s->k, w, [DFX_QK_CODES_CENTER] = c.center}, &heads);
    dfx_emit(b, DFX_OP_V_CODES, "other", (dfx_ref[DFX_OP_SLOTS]){c.v, s->v, c.center}, &heads);
    dfx_emit(b, DFX_OP_ATTENTION_CODES, "attention",
             (dfx_ref[DFX_OP_SLOTS]){y, c.q, c.k, c.v, c.q_scale, c.center}, &softmax);
}

static dfx_status build_streams(const dfx_build_env *env, int64_t n_tokens, int64_t n_first,
                                twist what, dfx_program *out) {
    dfx_builder b;
    block s = {.b = &b, .e = mlp_begin(&b, env, n_tokens), .what = what, .n_first = n_first};
    dfx_builder_page(&b, "block/attn");
    dfx_builder_scope(&b, "block");
    s.q = dfx_temp(&b, n_tokens, A);
    s.k = dfx_temp(&b, n_tokens, A);
    s.v = dfx_temp(&b, n_tokens, A);
    dfx_ref y = dfx_temp(&b, n_tokens, A), all = {0};
    if (what == ONE_NORM)
        all = norm_of(&s, s.e.x, false);
    for (int i = 0; i < 2; i++)
        stream(&s, all.buf ? rows_of(&s, all, i) : norm_of(&s, rows_of(&s, s.e.x, i), i), i);
    if (what == CHANGED)
        dfx_add_to(&b, s.v, s.e.first, "other");
    if (what == OTHER_PAGE) {
        dfx_builder_page(&b, "block/more");
        dfx_builder_scope(&b, "block");
        linear_into(&s, s.e.x, "in", dfx_temp(&b, n_tokens, MLP_F), DFX_ACT_NONE, false);
    }
    attend(&s, y);
    if (what == READ_AFTER)
        dfx_add_to(&b, s.e.first, y, "other");
    for (int i = 0; i < (what == READ_IN_PART ? 1 : 2); i++)
        linear_into(&s, rows_of(&s, y, i), "out", rows_of(&s, s.e.y, i), DFX_ACT_NONE, false);
    return dfx_builder_finish(&b, out);
}

static bool is_rows(dfx_ref r, dfx_ref of, int64_t col0, int64_t cols) {
    return r.buf == of.buf && r.row0 == 0 && r.rows == 1 && r.col0 == col0 && r.cols == cols;
}

/* The last four ops, whatever made q, k and v; `values` are the products of both streams' values. */
static void has_one_scale(const dfx_program *p, const dfx_op *norms[2], const dfx_op *values[2],
                          int64_t n_first) {
    const dfx_op *end = p->ops + p->n_ops, *bound = end - 4, *attention = end - 3, *outs = end - 2;
    int given = dfx_op_y_scale_given(attention->kind);
    dfx_ref scale = bound->r[0], x_norm = bound->r[DFX_BOUND_X_NORM];
    assert_true(bound->kind == DFX_OP_BOUND && bound->p.whole);
    assert_float_equal(bound->p.scale, 1.07 * sqrt(D), 1e-5);
    assert_true(is_rows(x_norm, x_norm, 0, T) && is_rows(scale, scale, 0, T));
    assert_true(is_rows(norms[0]->r[DFX_NORM_Y_NORM], x_norm, 0, n_first));
    assert_true(is_rows(norms[1]->r[DFX_NORM_Y_NORM], x_norm, n_first, T - n_first));
    assert_true(dfx_ref_same(&bound->r[DFX_BOUND_W_SCALE], &values[0]->r[DFX_LINEAR_SCALE]) &&
                dfx_ref_same(&bound->r[DFX_BOUND_B], &values[0]->r[DFX_LINEAR_B]) &&
                dfx_ref_same(&bound->r[DFX_BOUND_V_SCALE], &values[1]->r[DFX_LINEAR_SCALE]) &&
                dfx_ref_same(&bound->r[DFX_BOUND_V_B], &values[1]->r[DFX_LINEAR_B]));
    assert_true(attention->r[given].buf && dfx_ref_same(&attention->r[given], &scale));
    assert_int_equal(p->bufs[attention->r[0].buf].dtype, DFX_DTYPE_F8_E4M3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(outs[i].r[DFX_LINEAR_X].buf, attention->r[0].buf);
        assert_true(is_rows(outs[i].r[DFX_LINEAR_X_SCALE], scale, i ? n_first : 0,
                            i ? T - n_first : n_first));
    }
    assert_int_equal(p->n_regions, 1);
}

static void streams_have_one_bound_before_attention_and_no_quantize(void **state) {
    static const dfx_op_kind plain[] = {DFX_OP_LAYERNORM, DFX_OP_LINEAR,    DFX_OP_LINEAR,
                                        DFX_OP_LINEAR,    DFX_OP_LAYERNORM, DFX_OP_LINEAR,
                                        DFX_OP_LINEAR,    DFX_OP_LINEAR,    DFX_OP_BOUND,
                                        DFX_OP_ATTENTION, DFX_OP_LINEAR,    DFX_OP_LINEAR};
    static const dfx_op_kind codes[] = {
        DFX_OP_LAYERNORM, DFX_OP_LINEAR,          DFX_OP_LINEAR,   DFX_OP_LINEAR,
        DFX_OP_LAYERNORM, DFX_OP_LINEAR,          DFX_OP_LINEAR,   DFX_OP_LINEAR,
        DFX_OP_QK_CODES,  DFX_OP_KV_CENTER,       DFX_OP_QK_CODES, DFX_OP_V_CODES,
        DFX_OP_BOUND,     DFX_OP_ATTENTION_CODES, DFX_OP_LINEAR,   DFX_OP_LINEAR};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int i = 0; i < 4; i++) {
        dfx_program p;
        env.attention_codes = i % 2;
        assert_int_equal(build_streams(&env, T, 9, i / 2 ? NO_BIAS : AS_IT_IS, &p), DFX_OK);
        mlp_has_ops(&p, i % 2 ? codes : plain, i % 2 ? DFX_COUNT(codes) : DFX_COUNT(plain));
        has_one_scale(&p, (const dfx_op *[]){&p.ops[0], &p.ops[4]},
                      (const dfx_op *[]){&p.ops[3], &p.ops[7]}, 9);
        assert_int_equal(p.ops[3].r[DFX_LINEAR_B].buf == 0, i / 2);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

static void has_no_bound(const dfx_program *p, int what) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const dfx_op *op = &p->ops[i];
        int given = dfx_op_y_scale_given(op->kind);
        if (op->kind == DFX_OP_BOUND || (given && op->r[given].buf) ||
            (op->kind == DFX_OP_LAYERNORM && op->r[DFX_NORM_Y_NORM].buf))
            fail_msg("case %d has a bound at op %u", what, i);
    }
}

static void streams_with_a_twist_quantize_what_attention_made(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (int i = 2 * READ_IN_PART; i < 2 * N_TWISTS; i++) {
        dfx_program p;
        env.attention_codes = i % 2;
        assert_int_equal(build_streams(&env, T, 9, (twist)(i / 2), &p), DFX_OK);
        if (i / 2 == READ_IN_PART) /* rows that nobody reads do no harm */
            assert_int_equal(p.ops[p.n_ops - 3].kind, DFX_OP_BOUND);
        else
            has_no_bound(&p, i / 2);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

/* Of int8, whose codes have no room at the top, or what reads them; and with adapters beside all products. */
static void streams_without_bounds_quantize_what_attention_made(void **state) {
    tmpdir *dir = *state;
    for (int i = 0; i < 4; i++) {
        dfx_program p;
        dfx_tensors *set =
            mlp_open(dir, i == 1 ? "I8" : "F8_E4M3", true, i == 2 ? "I8" : "F8_E4M3", true);
        dfx_build_env env = mlp_env(dir, set);
        env.adapter_rank = i == 3 ? DFX_ADAPTER_GRAIN : 0;
        assert_int_equal(build_streams(&env, T, 9, AS_IT_IS, &p), DFX_OK);
        if (i)
            has_no_bound(&p, i);
        else
            assert_int_equal(p.ops[p.n_ops - 4].kind, DFX_OP_BOUND);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static dfx_status build_block(const dfx_build_env *env, dfx_program *p) {
    return build_streams(env, T, 9, AS_IT_IS, p);
}

static void fusing_streams_survives_failing_allocations(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    mlp_survives_failing_allocations(dir, &env, build_block);
    dfx_tensors_close(set);
}

/* ---- what they compute ---- */

typedef struct trial {
    mlp_trial r; /* first: the probe's */
    attended_seen seen;
    int n_first, n_normed; /* rows of the first stream, and of those whose codes were seen so far */
    double x[T * D];
} trial;

static void look(void *user, const dfx_op *op, const dfx_op_call *call) {
    trial *a = user;
    mlp_look(&a->r, op, call);
    attended_look(&a->seen, call);
    if (op->kind != DFX_OP_LAYERNORM)
        return;
    memcpy(&a->x[a->n_normed * D], a->r.seen.x, (size_t)(call->m[0].rows * D) * sizeof(double));
    a->n_normed += (int)call->m[0].rows;
}

/* Values are what the weights say of x, and no further out than 448 bounds, which are all one. Their codes are off by 1/16 of the
 * way from their mean, which is twice the greatest at most. */
static void check_values(const trial *a, bool in_codes) {
    mlp_weights w[2] = {mlp_weights_read(&a->r, "v", A, D), mlp_weights_read(&a->r, "k", A, D)};
    assert_int_equal(a->n_normed, a->r.n_tokens);
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double size, want = mlp_product_at(&w[i / A >= a->n_first], &a->x[i / A * D], i % A, &size);
        double off = (D + 16) * 0x1p-24 * size + (in_codes ? a->seen.greatest / 8 : 0);
        assert_true(fabs(a->seen.v[i] - want) <= off);
        assert_true(fabs(want) < 448 * (double)a->r.seen.bounds[0]);
    }
    for (int t = 0; t < a->r.n_tokens; t++)
        assert_true(a->r.seen.bounds[t] == a->r.seen.bounds[0]);
    for (int i = 0; i < 2; i++)
        mlp_weights_free(&w[i]);
}

/* Codes stand for attention to half a step of the bound, and products have found them. Attention's weights are off by 2e-5
 * (test_cpu_attention.c). */
static void check_attention(const trial *a) {
    mlp_weights out = mlp_weights_read(&a->r, "out", N, A);
    double scale = (double)a->r.seen.bounds[0], size;
    for (int i = 0; i < a->r.n_tokens * A; i++) {
        double want = a->seen.want[i];
        double off = mlp_half_step(want, scale) + 2e-5 * a->seen.greatest;
        if (!(fabs(a->r.seen.first[i] - want) <= off))
            fail_msg("row %d column %d: got %g, want %g to %g", i / A, i % A, a->r.seen.first[i],
                     want, off);
    }
    for (int i = 0; i < a->r.n_tokens * N; i++) {
        double want = mlp_product_at(&out, &a->r.seen.first[i / N * A], i % N, &size);
        assert_true(fabs((double)a->r.y[i] - want) <= (A + 16) * 0x1p-24 * size);
    }
    mlp_weights_free(&out);
}

static void streams_compute_what_weights_say_to_half_a_step_of_their_bound(void **state) {
    static const int counts[][2] = {{2, 1}, {9, 4}, {65, 64}, {T, 9}};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (size_t i = 0; i < 2 * DFX_COUNT(counts); i++) {
        trial a = {.r = {.dir = dir, .set = set, .n_tokens = counts[i / 2][0]},
                   .n_first = counts[i / 2][1]};
        dfx_program p;
        env.attention_codes = i % 2;
        assert_int_equal(build_streams(&env, a.r.n_tokens, a.n_first, AS_IT_IS, &p), DFX_OK);
        mlp_trial_run(&a.r, &p, look);
        check_values(&a, i % 2);
        check_attention(&a);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_tensors_close(set);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(streams_have_one_bound_before_attention_and_no_quantize),
        IN_TMPDIR(streams_with_a_twist_quantize_what_attention_made),
        IN_TMPDIR(streams_without_bounds_quantize_what_attention_made),
        IN_TMPDIR(fusing_streams_survives_failing_allocations),
        IN_TMPDIR(streams_compute_what_weights_say_to_half_a_step_of_their_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
