/* Products that make codes of their own values: which programs get them, in which order of ops, which keep QUANTIZE, and that
 * the CPU computes by them what the weights say. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "models/architecture.h"
#include "models/flux.h"
#include "tests/device_program.h"
#include "tests/mlp_blocks.h"

enum { T = MLP_T, D = MLP_D, A = MLP_A, F = MLP_F, N = MLP_N };

static void has_ops(const dfx_program *p, const dfx_op_kind *kinds, uint32_t n) {
    assert_int_equal(p->n_ops, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(p->ops[i].kind, kinds[i]);
    assert_int_equal(p->regions[p->n_regions - 1].end_op, n);
}

static void is_ref(dfx_ref got, uint32_t buf, int64_t rows, int64_t col0, int64_t cols) {
    assert_int_equal(got.buf, buf);
    assert_true(got.row0 == 0 && got.rows == rows && got.col0 == col0 && got.cols == cols);
}

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
        has_ops(&p, kinds, 4);
        const dfx_op *norm = &p.ops[0], *bound = &p.ops[1], *in = &p.ops[2], *down = &p.ops[3];
        is_ref(norm->r[DFX_NORM_Y_NORM], bound->r[DFX_BOUND_X_NORM].buf, 1, 0, T);
        is_ref(bound->r[DFX_BOUND_X_NORM], norm->r[DFX_NORM_Y_NORM].buf, 1, 0, T);
        is_ref(norm->r[DFX_NORM_Y_SCALE], in->r[DFX_LINEAR_X_SCALE].buf, 1, 0, T);
        is_ref(bound->r[DFX_BOUND_W_SCALE], in->r[DFX_LINEAR_SCALE].buf, 1, 0, F);
        assert_int_equal(bound->r[DFX_BOUND_B].buf, in->r[DFX_LINEAR_B].buf);
        assert_int_equal(bound->r[DFX_BOUND_B].buf == 0, no_bias);
        assert_float_equal(bound->p.scale, 1.07 * sqrt(D), 1e-5);
        assert_int_equal(bound->page_idx, 0);
        is_ref(in->r[DFX_LINEAR_Y_SCALE], bound->r[0].buf, 1, 0, T);
        is_ref(in->r[0], down->r[DFX_LINEAR_X].buf, T, 0, F);
        assert_int_equal(p.bufs[in->r[0].buf].dtype, DFX_DTYPE_F8_E4M3);
        assert_int_equal(in->p.act, DFX_ACT_GELU_TANH);
        is_ref(down->r[DFX_LINEAR_X_SCALE], bound->r[0].buf, 1, 0, T);
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
    has_ops(&p, kinds, 7);
    const dfx_op *norm = &p.ops[0], *first = &p.ops[2], *bound = &p.ops[3], *quantize = &p.ops[4],
                 *in = &p.ops[5], *out = &p.ops[6];
    is_ref(bound->r[DFX_BOUND_X_NORM], norm->r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    is_ref(quantize->r[DFX_QUANTIZE_X], first->r[0].buf, T, 0, A);
    is_ref(quantize->r[DFX_QUANTIZE_LEAST], bound->r[0].buf, 1, 0, T);
    is_ref(quantize->r[0], out->r[DFX_LINEAR_X].buf, T, 0, A);
    is_ref(in->r[0], out->r[DFX_LINEAR_X].buf, T, A, F);
    is_ref(out->r[DFX_LINEAR_X], in->r[0].buf, T, 0, A + F);
    is_ref(in->r[DFX_LINEAR_Y_SCALE], quantize->r[DFX_QUANTIZE_Y_SCALE].buf, 1, 0, T);
    is_ref(out->r[DFX_LINEAR_X_SCALE], quantize->r[DFX_QUANTIZE_Y_SCALE].buf, 1, 0, T);
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
    has_ops(&p, kinds, 7);
    is_ref(p.ops[1].r[DFX_BOUND_X_NORM], p.ops[0].r[DFX_NORM_Y_NORM].buf, 1, 0, T);
    is_ref(p.ops[4].r[DFX_BOUND_X_NORM], p.ops[0].r[DFX_NORM_Y_NORM].buf, 1, 0, T);
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

/* One for each MLP: of both streams of a 2-stream block, and of a 1-stream block, whose attention keeps QUANTIZE. */
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
        int n_bounds = 0, n_makers = 0, n_least = 0;
        dfx_program p;
        assert_int_equal(dfx_flux_build_step(&config, &env, 512, 4096, &p), DFX_OK);
        for (uint32_t k = 0; k < p.n_ops; k++) {
            const dfx_op *op = &p.ops[k];
            n_bounds += op->kind == DFX_OP_BOUND;
            n_makers += op->kind == DFX_OP_LINEAR && op->r[DFX_LINEAR_Y_SCALE].buf;
            n_least += op->kind == DFX_OP_QUANTIZE && op->r[DFX_QUANTIZE_LEAST].buf;
        }
        assert_int_equal(n_bounds, fp8 ? 2 * 19 + 38 : 0);
        assert_int_equal(n_makers, fp8 ? 2 * 19 + 38 : 0);
        assert_int_equal(n_least, fp8 ? 38 : 0);
        dfx_program_fini(&p);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static void fusing_survives_failing_allocations(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    size_t held_bytes = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_program p;
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(nth);
        status = mlp_build_joined(&env, T, MLP_AS_IT_IS, &p);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK)
            dfx_program_fini(&p);
        else
            assert_int_equal(status, DFX_E_NOFIT);
        assert_int_equal(dfx_mem_held_bytes(), held_bytes);
    }
    dfx_tensors_close(set);
}

/* ---- what they compute ---- */

/* What the ops made, decoded; read by a probe. */
typedef struct made {
    double x[T * D], first[T * A], mlp[T * F];
    float bounds[T], scales[T]; /* scales: of first and mlp */
} made;

static void decode(const dfx_mat *codes, const dfx_mat *scales, double *values) {
    for (int64_t i = 0; i < codes->rows * codes->cols; i++) {
        int64_t t = i / codes->cols;
        uint8_t code = ((const uint8_t *)codes->ptr)[t * codes->ld + i % codes->cols];
        values[i] = (double)dfx_e4m3_to_f32(code) * (double)((const float *)scales->ptr)[t];
    }
}

static void look(void *user, const dfx_op *op, const dfx_op_call *call) {
    made *seen = user;
    const dfx_mat *m = call->m;
    if (op->kind == DFX_OP_LAYERNORM)
        decode(&m[0], &m[DFX_NORM_Y_SCALE], seen->x);
    if (op->kind == DFX_OP_BOUND)
        memcpy(seen->bounds, m[0].ptr, (size_t)m[0].cols * sizeof(float));
    if (op->kind == DFX_OP_QUANTIZE)
        decode(&m[0], &m[DFX_QUANTIZE_Y_SCALE], seen->first);
    if (op->kind == DFX_OP_LINEAR && m[DFX_LINEAR_Y_SCALE].ptr) {
        decode(&m[0], &m[DFX_LINEAR_Y_SCALE], seen->mlp);
        memcpy(seen->scales, m[DFX_LINEAR_Y_SCALE].ptr, (size_t)m[0].rows * sizeof(float));
    }
}

/* A layer's weights as they are, code times scale, and its bias. */
typedef struct weights {
    float *w, *b; /* [n, k], [n] */
} weights;

static float *read_f32(tmpdir *dir, const dfx_tensors *set, const char *of, const char *name,
                       size_t n) {
    char full[64];
    snprintf(full, sizeof(full), "block.%s.%s", of, name);
    const dfx_tensor *tensor = dfx_tensors_find(set, full);
    float *values = malloc(n * sizeof(*values));
    if (!tensor || !values || tensor->n_elements != n)
        fail_msg("%s is not there", full);
    assert_int_equal(dfx_tensors_read_f32(set, tensor, &dir->log.sink, values), DFX_OK);
    return values;
}

static weights read_weights(tmpdir *dir, const dfx_tensors *set, const char *of, int n, int k) {
    weights l = {read_f32(dir, set, of, "weight", (size_t)(n * k)),
                 read_f32(dir, set, of, "bias", (size_t)n)};
    float *scales = read_f32(dir, set, of, "weight_scale", (size_t)n);
    for (int i = 0; i < n * k; i++)
        l.w[i] *= scales[i / k];
    free(scales);
    return l;
}

static void free_weights(weights *l) {
    free(l->w);
    free(l->b);
}

/* x W^T + b of one row and one column; *size is the sum of magnitudes. */
static double product_at(const weights *l, int k, const double *x, int n, double *size) {
    double sum = (double)l->b[n];
    *size = fabs(sum);
    for (int i = 0; i < k; i++) {
        sum += x[i] * (double)l->w[n * k + i];
        *size += fabs(x[i] * (double)l->w[n * k + i]);
    }
    return sum;
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* Half of the distance between neighbours, of values that have this scale; 2^-15 for the roundings of scale and inverse. */
static double half_step(double value, double scale) {
    return fmax(fabs(value) / 16, scale * 0x1p-10) * (1 + 0x1p-15);
}

/* One run on the CPU. `first` has rows of all sizes: under a bound, above it, and of zeros. */
typedef struct trial {
    tmpdir *dir;
    const dfx_tensors *set;
    int n_tokens;
    float first[T * A], y[T * N];
    made seen;
} trial;

static void run(trial *r, const dfx_program *p) {
    static float values[T * D];
    dfx_backend *backend;
    device_program d;
    dfx_rng rng;
    dfx_rng_seed(&rng, 11);
    assert_int_equal(
        dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 2}, &r->dir->log.sink, &backend),
        DFX_OK);
    device_program_open(&d, backend, p, &r->dir->log.sink);
    dfx_rng_normal(&rng, values, T * D);
    device_program_put(&d, MLP_X, values);
    dfx_rng_normal(&rng, values, 2 * D);
    device_program_put(&d, MLP_SCALE, values);
    device_program_put(&d, MLP_SHIFT, values + D);
    dfx_rng_normal(&rng, r->first, T * A);
    for (int i = 0; i < T * A; i++)
        r->first[i] *= i / A % 5 == 4 ? 0 : ldexpf(1, i / A % 5 * 6 - 8);
    device_program_put(&d, MLP_FIRST, r->first);
    device_program_run(&d, NULL, look, &r->seen);
    device_program_get(&d, MLP_Y, r->y);
    device_program_close(&d);
    backend->vt->close(backend);
}

/* Codes of the product stand for what the weights say of its x, to half a step of their scale; none is at its end. Its f32 sums
 * are off by D + 16 roundings of the magnitudes at most, and GELU's slope is below 1.2. */
static void check_mlp(const trial *r) {
    weights in = read_weights(r->dir, r->set, "in", F, D);
    for (int i = 0; i < r->n_tokens * F; i++) {
        int t = i / F;
        double size, scale = (double)r->seen.scales[t];
        double want = gelu(product_at(&in, D, &r->seen.x[t * D], i % F, &size));
        double off = half_step(want, scale) + 1.2 * (D + 16) * 0x1p-24 * size;
        assert_true(fabs(want) < 448 * scale);
        if (!(fabs(r->seen.mlp[i] - want) <= off))
            fail_msg("row %d column %d: got %g, want %g to %g", t, i % F, r->seen.mlp[i], want,
                     off);
    }
    free_weights(&in);
}

/* What reads the codes finds them, with their scales: `columns` values a row. */
static void check_y(const trial *r, const char *of, int columns) {
    weights out = read_weights(r->dir, r->set, of, N, columns);
    for (int i = 0; i < r->n_tokens * N; i++) {
        double row[A + F], size;
        int t = i / N, n_first = columns - F;
        memcpy(row, &r->seen.first[t * A], (size_t)n_first * sizeof(*row));
        memcpy(row + n_first, &r->seen.mlp[t * F], F * sizeof(*row));
        double want = product_at(&out, columns, row, i % N, &size);
        assert_true(fabs((double)r->y[i] - want) <= (A + F + 16) * 0x1p-24 * size);
    }
    free_weights(&out);
}

static trial begin_trial(tmpdir *dir, const dfx_tensors *set, int n_tokens) {
    return (trial){.dir = dir, .set = set, .n_tokens = n_tokens};
}

static void plain_block_computes_what_weights_say_to_half_a_step_of_its_bounds(void **state) {
    static const int counts[] = {1, 9, 64, T};
    tmpdir *dir = *state;
    dfx_tensors *set = mlp_open_fp8(dir);
    dfx_build_env env = mlp_env(dir, set);
    for (size_t i = 0; i < DFX_COUNT(counts); i++) {
        trial r = begin_trial(dir, set, counts[i]);
        dfx_program p;
        assert_int_equal(mlp_build_plain(&env, r.n_tokens, 1, false, &p), DFX_OK);
        run(&r, &p);
        check_mlp(&r);
        check_y(&r, "down", F);
        assert_memory_equal(r.seen.scales, r.seen.bounds, (size_t)r.n_tokens * sizeof(float));
        dfx_program_fini(&p);
    }
    dfx_tensors_close(set);
}

/* The greater of the bound and what the other columns need is the scale of both. */
static void check_first(const trial *r) {
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
                        half_step(want, (double)r->seen.scales[t]));
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
        trial r = begin_trial(dir, set, counts[i]);
        dfx_program p;
        assert_int_equal(mlp_build_joined(&env, r.n_tokens, MLP_AS_IT_IS, &p), DFX_OK);
        run(&r, &p);
        check_mlp(&r);
        check_first(&r);
        check_y(&r, "joined", A + F);
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
