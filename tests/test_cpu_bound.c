/* BOUND on the CPU: the formula of kernels/ops.h in double, values worked by hand, and the promise itself: no value of the product
 * is beyond 448 bounds. */
#include <math.h>
#include <string.h>

#include "tests/cpu_rig.h"

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 4;
}

static dfx_op_call bound_call(rig *r, dfx_mat x_norm, dfx_mat w_scale, dfx_mat b, float scale) {
    dfx_op_call call = {.kind = DFX_OP_BOUND, .p.scale = scale};
    call.m[0] = rig_poison(r, 1, x_norm.cols, wider(x_norm.cols));
    call.m[DFX_BOUND_X_NORM] = x_norm;
    call.m[DFX_BOUND_W_SCALE] = w_scale;
    call.m[DFX_BOUND_B] = b;
    return call;
}

/* Of values whose means shall have the scales too; none: without a bias. */
static dfx_op_call bound_of_values(rig *r, const dfx_op_call *alone, dfx_mat v_scale, dfx_mat v_b) {
    dfx_op_call call = *alone;
    call.m[0] = rig_poison(r, 1, alone->m[0].cols, alone->m[0].ld);
    call.m[DFX_BOUND_V_SCALE] = v_scale;
    call.m[DFX_BOUND_V_B] = v_b;
    return call;
}

static dfx_mat row_of(rig *r, int64_t n, const float *values) {
    return rig_values(r, 1, n, wider(n), values);
}

static dfx_mat one_weight(rig *r, dfx_dtype dtype, float value) {
    return rig_weight(r, dtype, 1, 1, &value);
}

/* 2.5 times a greatest scale of 2 is 5 a norm; a greatest bias of 896 is 2 codes of 448. */
static void bound_of_norms_is_that_worked_by_hand(void **state) {
    rig *r = *state;
    dfx_mat norms = row_of(r, 4, (const float[]){3, 0, 0x1p-110f, 1}), none = {0};
    dfx_mat w_scale = rig_weight(r, DFX_DTYPE_F32, 1, 3, (const float[]){0.5f, -2, 1});
    dfx_mat b = rig_weight(r, DFX_DTYPE_BF16, 1, 3, (const float[]){1, -896, 0.5f});
    dfx_mat zeros = rig_weight(r, DFX_DTYPE_F32, 1, 3, (const float[]){0, -0.0f, 0});
    dfx_op_call call = bound_call(r, norms, w_scale, b, 2.5f);
    rig_run(r, &call);
    rig_same(&call.m[0], (const float[]){17, 2, 2, 7}, 0);
    call = bound_call(r, norms, w_scale, none, 2.5f);
    rig_run(r, &call);
    rig_same(&call.m[0], (const float[]){15, 1, 1, 5}, 0);
    call = bound_call(r, norms, w_scale, zeros, 2.5f);
    rig_run(r, &call);
    rig_same(&call.m[0], (const float[]){15, 1, 1, 5}, 0);
}

/* Bounds are 17, 2, 2 and 7 without values, as above. 2.5 times 0.5 is 1.25 a norm, of which the greatest is 3; 2240 is 5 codes
 * of 448. */
static void bound_of_values_is_that_worked_by_hand(void **state) {
    rig *r = *state;
    dfx_mat norms = row_of(r, 4, (const float[]){3, 0, 0x1p-110f, 1}), none = {0};
    dfx_mat v_scale = rig_weight(r, DFX_DTYPE_F32, 1, 2, (const float[]){-0.5f, 0.25f});
    dfx_mat v_b = rig_weight(r, DFX_DTYPE_BF16, 1, 2, (const float[]){1, -2240});
    dfx_mat four = rig_weight(r, DFX_DTYPE_F32, 1, 2, (const float[]){1, 4});
    dfx_mat zeros = rig_weight(r, DFX_DTYPE_F32, 1, 2, (const float[]){0, -0.0f});
    const struct {
        dfx_mat v_scale, v_b;
        float want[4];
    } cases[] = {{v_scale, none, {17, 3.75f, 3.75f, 7}},
                 {v_scale, v_b, {17, 8.75f, 8.75f, 8.75f}},
                 {four, none, {30, 30, 30, 30}},
                 {four, v_b, {35, 35, 35, 35}},
                 {zeros, v_b, {17, 5, 5, 7}},
                 {zeros, zeros, {17, 2, 2, 7}},
                 {zeros, none, {17, 2, 2, 7}}};
    dfx_op_call alone = bound_call(r, norms, one_weight(r, DFX_DTYPE_F32, -2),
                                   one_weight(r, DFX_DTYPE_BF16, -896), 2.5f);
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        dfx_op_call call = bound_of_values(r, &alone, cases[i].v_scale, cases[i].v_b);
        rig_run(r, &call);
        rig_same(&call.m[0], cases[i].want, 0);
    }
}

/* The greatest norm, 3, is each row's: 17 without a second product, whose values have 2.5 * 4 * 3 = 30 and 5 codes of 448. */
static void bound_of_all_rows_is_that_worked_by_hand(void **state) {
    rig *r = *state;
    dfx_mat norms = row_of(r, 4, (const float[]){1, 0, 3, 0x1p-110f});
    dfx_op_call alone = bound_call(r, norms, one_weight(r, DFX_DTYPE_F32, -2),
                                   one_weight(r, DFX_DTYPE_BF16, -896), 2.5f);
    alone.p.whole = true;
    rig_run(r, &alone);
    rig_same(&alone.m[0], (const float[]){17, 17, 17, 17}, 0);
    dfx_op_call call = bound_of_values(r, &alone, one_weight(r, DFX_DTYPE_F32, 4),
                                       one_weight(r, DFX_DTYPE_F32, 2240));
    rig_run(r, &call);
    rig_same(&call.m[0], (const float[]){35, 35, 35, 35}, 0);
}

/* A greatest norm of 1 and weights of rows that are next to nothing, so that values alone are left. */
static void bound_of_values_has_the_range_of_other_bounds(void **state) {
    rig *r = *state;
    const float highest = nextafterf(0x1p100f, 0);
    const float scales[][2] = {{0x1p-100f, 0x1p-100f},
                               {nextafterf(0x1p-100f, 0), 1},
                               {0, 1},
                               {highest, highest},
                               {0x1p100f, NAN},
                               {0x1p127f, NAN}};
    dfx_mat norms = row_of(r, 3, (const float[]){0, 1, 0.5f}), none = {0};
    dfx_op_call alone = bound_call(r, norms, one_weight(r, DFX_DTYPE_F32, 0x1p-149f), none, 1);
    for (size_t i = 0; i < DFX_COUNT(scales); i++) {
        dfx_op_call call =
            bound_of_values(r, &alone, one_weight(r, DFX_DTYPE_F32, scales[i][0]), none);
        rig_run(r, &call);
        for (int t = 0; t < 3; t++) {
            float got = ((float *)call.m[0].ptr)[t];
            assert_true(isnan(scales[i][1]) ? isnan(got) : got == scales[i][1]);
        }
    }
}

/* Bounds are the norms themselves here. */
static void bound_below_2_to_minus_100_is_1_and_from_2_to_100_on_is_nan(void **state) {
    rig *r = *state;
    const float below = nextafterf(0x1p-100f, 0), highest = nextafterf(0x1p100f, 0);
    const float norms[] = {0x1p-100f, below,    0x1p-149f, 0,   highest,
                           0x1p100f,  0x1p127f, INFINITY,  NAN, 1};
    const float want[] = {0x1p-100f, 1, 1, 1, highest, NAN, NAN, NAN, NAN, 1};
    dfx_mat one = rig_weight(r, DFX_DTYPE_F32, 1, 1, (const float[]){1}), none = {0};
    dfx_op_call call = bound_call(r, row_of(r, 10, norms), one, none, 1);
    rig_run(r, &call);
    for (int t = 0; t < 10; t++) {
        double got = rig_at(&call.m[0], 0, t);
        assert_true(isnan(want[t]) ? isnan(got) : got == (double)want[t]);
    }
    /* 448 * 2^-101 is below with a norm of 0, and 448 * 2^-100 is not. */
    for (int i = 0; i < 2; i++) {
        float b = -448 * (i ? 0x1p-100f : 0x1p-101f);
        call = bound_call(r, row_of(r, 1, (const float[]){0}), one,
                          rig_weight(r, DFX_DTYPE_BF16, 1, 1, &b), 1);
        rig_run(r, &call);
        assert_true(rig_at(&call.m[0], 0, 0) == (i ? 0x1p-100 : 1));
    }
}

static void bound_of_weights_that_are_not_finite_is_nan(void **state) {
    enum { N = 300 };
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const int places[] = {0, 255, 256, N - 1};
    rig *r = *state;
    dfx_mat norms = row_of(r, 3, (const float[]){0, 1, 5});
    for (size_t i = 0; i < DFX_COUNT(bad) * DFX_COUNT(places) * 2; i++) {
        float w_scale[N], b[N];
        for (int n = 0; n < N; n++)
            w_scale[n] = b[n] = (float)(n % 7) + 1;
        (i % 2 ? w_scale : b)[places[i / 2 % 4]] = bad[i / 8];
        dfx_op_call call = bound_call(r, norms, rig_weight(r, DFX_DTYPE_F32, 1, N, w_scale),
                                      rig_weight(r, DFX_DTYPE_BF16, 1, N, b), 1);
        rig_run(r, &call);
        for (int t = 0; t < 3; t++)
            assert_true(isnan(rig_at(&call.m[0], 0, t)));
    }
}

/* A mean may have some of any token. */
static void bound_of_values_that_are_not_finite_is_nan_for_all_tokens(void **state) {
    enum { M = 300, N = 299 };
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const int places[] = {0, 255, 256, N - 1};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(bad) * DFX_COUNT(places) * 3; i++) {
        float norms[M], v_scale[N], v_b[N];
        for (int n = 0; n < M; n++)
            norms[n] = (float)(n % 5);
        for (int n = 0; n < N; n++)
            v_scale[n] = v_b[n] = (float)(n % 7) + 1;
        (i % 3 == 0 ? norms : i % 3 == 1 ? v_scale : v_b)[places[i / 3 % 4]] = bad[i / 12];
        dfx_op_call alone = bound_call(r, row_of(r, M, norms), one_weight(r, DFX_DTYPE_F32, 1),
                                       one_weight(r, DFX_DTYPE_F32, 1), 1);
        dfx_op_call call = bound_of_values(r, &alone, rig_weight(r, DFX_DTYPE_F32, 1, N, v_scale),
                                           rig_weight(r, DFX_DTYPE_BF16, 1, N, v_b));
        rig_run(r, &call);
        for (int t = 0; t < M; t++)
            assert_true(isnan(rig_at(&call.m[0], 0, t)));
    }
}

/* The greatest magnitude of a row, 0 where there is none. */
static double greatest(const dfx_mat *row) {
    double most = 0;
    for (int64_t c = 0; c < row->cols; c++)
        most = fmax(most, fabs(rig_at(row, 0, c)));
    return most;
}

/* Two products, a sum and a quotient: four roundings. */
static void bound_of_values_of_any_shape_and_bias_equals_formula(void **state) {
    static const int64_t shapes[][2] = {{1, 1}, {5, 255}, {300, 256}, {33, 257}, {700, 3001}};
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F8_E4M3,
                                       DFX_N_DTYPES /* none */};
    rig *r = *state;
    int n_of_values = 0, n_own = 0;
    for (size_t i = 0; i < DFX_COUNT(shapes) * DFX_COUNT(dtypes); i++) {
        int64_t n_tokens = shapes[i / 4][0], n = shapes[i / 4][1];
        dfx_dtype dtype = dtypes[i % 4];
        dfx_mat norms = rig_random(r, 1, n_tokens, wider(n_tokens), 1 + i), v_b = {0};
        for (int64_t t = 0; t < n_tokens; t++)
            ((float *)norms.ptr)[t] = fabsf(((float *)norms.ptr)[t]) * 50;
        dfx_mat v_scale = rig_random_weight(r, DFX_DTYPE_F32, 1, n, 40 + i);
        if (dtype != DFX_N_DTYPES)
            v_b = rig_random_weight(r, dtype, 1, n, 80 + i);
        dfx_op_call alone = bound_call(r, norms, one_weight(r, DFX_DTYPE_F32, 5),
                                       one_weight(r, DFX_DTYPE_BF16, 3), 0.375f);
        dfx_op_call call = bound_of_values(r, &alone, v_scale, v_b);
        rig_run(r, &call);
        double least = greatest(&norms) * (0.375 * greatest(&v_scale)) + greatest(&v_b) / 448;
        for (int64_t t = 0; t < n_tokens; t++) {
            double own = rig_at(&norms, 0, t) * (0.375 * 5) + 3.0 / 448, want = fmax(own, least);
            assert_true(fabs(rig_at(&call.m[0], 0, t) - want) <= 4 * 0x1p-24 * want);
            n_of_values += own < least;
            n_own += own > least;
        }
    }
    assert_true(n_of_values > 100 && n_own > 100);
}

/* Two products, a sum and a quotient: four roundings. */
static void bound_of_any_shape_and_bias_equals_formula(void **state) {
    static const int64_t shapes[][2] = {{1, 1}, {5, 255}, {300, 256}, {33, 257}, {2, 3001}};
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F16,
                                       DFX_DTYPE_F8_E4M3, DFX_N_DTYPES /* none */};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes) * DFX_COUNT(dtypes); i++) {
        int64_t n_tokens = shapes[i / 5][0], n = shapes[i / 5][1];
        dfx_dtype dtype = dtypes[i % 5];
        dfx_mat norms = rig_random(r, 1, n_tokens, wider(n_tokens), 1), b = {0};
        for (int64_t t = 0; t < n_tokens; t++)
            ((float *)norms.ptr)[t] = fabsf(((float *)norms.ptr)[t]) * 50;
        dfx_mat w_scale = rig_random_weight(r, DFX_DTYPE_F32, 1, n, 2 + i);
        if (dtype != DFX_N_DTYPES)
            b = rig_random_weight(r, dtype, 1, n, 40 + i);
        double slope = 0, offset = 0;
        for (int64_t c = 0; c < n; c++) {
            slope = fmax(slope, 0.375 * fabs(rig_at(&w_scale, 0, c)));
            offset = b.ptr ? fmax(offset, fabs(rig_at(&b, 0, c)) / 448) : 0;
        }
        dfx_op_call call = bound_call(r, norms, w_scale, b, 0.375f);
        rig_run(r, &call);
        for (int64_t t = 0; t < n_tokens; t++) {
            double want = rig_at(&norms, 0, t) * slope + offset;
            assert_true(fabs(rig_at(&call.m[0], 0, t) - want) <= 4 * 0x1p-24 * want);
        }
    }
}

/* ---- the promise ---- */

/* A product x W^T + b with W of fp8. */
typedef struct product {
    dfx_mat x, w, w_scale, b, y; /* y: what LINEAR makes of it, in codes of x */
} product;

static void multiply(rig *r, product *p) {
    dfx_op_call call = {.kind = DFX_OP_LINEAR};
    p->y = call.m[0] = rig_poison(r, p->x.rows, p->w.rows, wider(p->w.rows));
    call.m[DFX_LINEAR_X] = p->x;
    call.m[DFX_LINEAR_W] = p->w;
    call.m[DFX_LINEAR_SCALE] = p->w_scale;
    call.m[DFX_LINEAR_B] = p->b;
    rig_run(r, &call);
}

static dfx_mat norms_of(rig *r, const dfx_mat *x) {
    float *norms = rig_alloc(r, (size_t)x->rows * sizeof(*norms));
    for (int64_t t = 0; t < x->rows; t++) {
        double sum = 0;
        for (int64_t k = 0; k < x->cols; k++)
            sum += rig_at(x, t, k) * rig_at(x, t, k);
        norms[t] = (float)sqrt(sum);
    }
    return row_of(r, x->rows, norms);
}

/* [1, rows of x]. */
static dfx_mat bounds_of(rig *r, const product *p) {
    dfx_op_call call =
        bound_call(r, norms_of(r, &p->x), p->w_scale, p->b, dfx_bound_scale(p->w.cols));
    rig_run(r, &call);
    return call.m[0];
}

/* The same where p makes values, beside another product that is next to nothing. */
static dfx_mat bounds_of_means(rig *r, const product *p) {
    dfx_mat none = {0};
    dfx_op_call alone = bound_call(r, norms_of(r, &p->x), one_weight(r, DFX_DTYPE_F32, 0x1p-80f),
                                   none, dfx_bound_scale(p->w.cols));
    dfx_op_call call = bound_of_values(r, &alone, p->w_scale, p->b);
    rig_run(r, &call);
    return call.m[0];
}

/* Any codes but NaN; row 3 is all +-448 with a scale of 40 times the others', and row 0 of x has its signs. Other rows of x are
 * random, one of them with a value that stands out. */
static product random_product(rig *r, int64_t m, int64_t n, int64_t k, uint64_t seed) {
    product p = {.x = rig_random(r, m, k, wider(k), seed)};
    const float *dice = rig_random(r, n, k, wider(k), seed + 1).ptr;
    uint8_t *codes = rig_alloc(r, (size_t)(n * k));
    float *scales = rig_random(r, 1, n, wider(n), seed + 2).ptr, *x = p.x.ptr;
    for (int64_t i = 0; i < n * k; i++) {
        uint8_t code = (uint8_t)((dice[i / k * wider(k) + i % k] + 2) * 64);
        codes[i] = i / k == 3 ? 0x7e | (code & 0x80) : (code & 0x7f) == 0x7f ? 0x7e : code;
    }
    for (int64_t i = 0; i < n; i++)
        scales[i] = (1.5f + scales[i] / 2) * (i == 3 ? 40 : 1) / 1024;
    for (int64_t i = 0; i < k; i++)
        x[i] = codes[3 * k + i] & 0x80 ? -1.7f : 1.7f;
    x[wider(k) + k / 2] = 300;
    p.w = (dfx_mat){codes, n, k, k, DFX_DTYPE_F8_E4M3};
    p.w_scale = rig_weight(r, DFX_DTYPE_F32, 1, n, scales);
    p.b = rig_random_weight(r, DFX_DTYPE_BF16, 1, n, seed + 3);
    return p;
}

/* x W^T + b of the weights. */
static double value_at(const product *p, int64_t t, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < p->w.cols; k++)
        sum += rig_at(&p->x, t, k) * rig_at(&p->w, n, k);
    return sum * rig_at(&p->w_scale, 0, n) + rig_or(&p->b, n, 0);
}

enum { M = 9, N = 40, N_PRODUCTS = 10 };

/* [M, N] of five depths, with and without b. */
static product product_of(rig *r, size_t i) {
    static const int64_t depths[N_PRODUCTS / 2] = {1, 2, 19, 256, 3072};
    product p = random_product(r, M, N, depths[i / 2], 10 * i + 1);
    if (i % 2)
        p.b = (dfx_mat){0};
    multiply(r, &p);
    return p;
}

static void bound_times_448_is_not_below_any_value_of_the_product(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < N_PRODUCTS; i++) {
        product p = product_of(r, i);
        dfx_mat bounds = bounds_of(r, &p);
        for (int64_t t = 0; t < M; t++)
            for (int64_t n = 0; n < N; n++) {
                double most = 448 * rig_at(&bounds, 0, t);
                assert_true(fabs(value_at(&p, t, n)) <= most);
                assert_true(fabs(rig_at(&p.y, t, n)) <= most);
            }
    }
}

/* As attention makes them of its values, of 2 heads. */
static dfx_mat means_of(rig *r, const product *p) {
    int64_t m = p->y.rows, n = p->y.cols;
    dfx_op_call call = {.kind = DFX_OP_ATTENTION, .p = {.n_heads = 2, .scale = 1}};
    call.m[0] = rig_poison(r, m, n, wider(n));
    call.m[DFX_ATTN_Q] = rig_random(r, m, n, wider(n), 1);
    call.m[DFX_ATTN_K] = rig_random(r, m, n, wider(n), 2);
    call.m[DFX_ATTN_V] = p->y;
    rig_run(r, &call);
    return call.m[0];
}

/* Means are no further out than the rows that they are of, each of which is such a mean. Row 1 of x has a norm of 300, and the
 * bounds of all rows have room for it. */
static void bound_times_448_of_any_row_is_not_below_any_mean_of_values(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < N_PRODUCTS; i++) {
        product p = product_of(r, i);
        dfx_mat bounds = bounds_of_means(r, &p), means = means_of(r, &p);
        double least = INFINITY;
        for (int64_t t = 0; t < M; t++)
            least = fmin(least, 448 * rig_at(&bounds, 0, t));
        for (int64_t j = 0; j < M * N; j++) {
            int64_t t = j / N, n = j % N;
            assert_true(fabs(value_at(&p, t, n)) <= least);
            assert_true(fabs(rig_at(&p.y, t, n)) <= least);
            assert_true(fabs(rig_at(&means, t, n)) <= least);
        }
    }
}

/* The worst there is: rows of W of +-448 alone, x in their direction, and rounded away from zero by 1/17 in all columns but
 * the one that its scale is from. 272.02 is just beyond the middle of 256 and 288. Codes of x have the sum
 * 448 + 1023 * 288 = 295072. */
static void bound_of_x_along_a_row_of_448_is_nearly_reached_and_not_passed(void **state) {
    enum { K = 1024 };
    rig *r = *state;
    float x[2 * K], w[3 * K], scales[3] = {0x1p-9f, 0x1p-9f, 0x1p-9f};
    for (int k = 0; k < K; k++) {
        x[k] = k ? 272.02f : 448;
        x[K + k] = -x[k];
        w[k] = 448;
        w[K + k] = -448;
        w[2 * K + k] = 0;
    }
    product p = {.x = rig_values(r, 2, K, K, x),
                 .w = rig_weight(r, DFX_DTYPE_F8_E4M3, 3, K, w),
                 .w_scale = rig_weight(r, DFX_DTYPE_F32, 1, 3, scales)};
    multiply(r, &p);
    dfx_mat bounds = bounds_of(r, &p);
    const double top = 295072.0 * 448 * 0x1p-9;
    assert_true(fabs(rig_at(&p.y, 0, 0) - top) <= K * 0x1p-24 * top);
    for (int t = 0; t < 2; t++)
        assert_true(top < 448 * rig_at(&bounds, 0, t) && top > 0.98 * 448 * rig_at(&bounds, 0, t));
    dfx_mat of_means = bounds_of_means(r, &p);
    for (int t = 0; t < 2; t++)
        assert_true(rig_at(&of_means, 0, t) == rig_at(&bounds, 0, t));
    dfx_op_call call = {.kind = DFX_OP_LINEAR};
    call.m[0] = (dfx_mat){rig_alloc(r, 32), 2, 3, 16, DFX_DTYPE_F8_E4M3};
    call.m[DFX_LINEAR_X] = p.x;
    call.m[DFX_LINEAR_W] = p.w;
    call.m[DFX_LINEAR_SCALE] = p.w_scale;
    call.m[DFX_LINEAR_Y_SCALE] = bounds;
    rig_run(r, &call);
    const uint8_t *codes = call.m[0].ptr;
    assert_memory_equal(codes, ((uint8_t[]){0x7e, 0xfe, 0x00}), 3);
    assert_memory_equal(codes + 16, ((uint8_t[]){0xfe, 0x7e, 0x00}), 3);
}

/* Root of K, and 7/100 more, of which 1/16 and little else is needed. */
static void bound_scale_is_root_of_columns_and_room_for_codes_of_x(void **state) {
    static const int64_t roots[] = {1, 4, 32, 64, 111, 128};
    for (size_t i = 0; i < DFX_COUNT(roots); i++)
        assert_float_equal(dfx_bound_scale(roots[i] * roots[i]), 1.07 * (double)roots[i],
                           1e-6 * (double)roots[i]);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(bound_of_norms_is_that_worked_by_hand),
        WITH_RIG(bound_below_2_to_minus_100_is_1_and_from_2_to_100_on_is_nan),
        WITH_RIG(bound_of_values_is_that_worked_by_hand),
        WITH_RIG(bound_of_all_rows_is_that_worked_by_hand),
        WITH_RIG(bound_of_values_has_the_range_of_other_bounds),
        WITH_RIG(bound_of_values_that_are_not_finite_is_nan_for_all_tokens),
        WITH_RIG(bound_of_values_of_any_shape_and_bias_equals_formula),
        WITH_RIG(bound_of_weights_that_are_not_finite_is_nan),
        WITH_RIG(bound_of_any_shape_and_bias_equals_formula),
        WITH_RIG(bound_times_448_is_not_below_any_value_of_the_product),
        WITH_RIG(bound_times_448_of_any_row_is_not_below_any_mean_of_values),
        WITH_RIG(bound_of_x_along_a_row_of_448_is_nearly_reached_and_not_passed),
        cmocka_unit_test(bound_scale_is_root_of_columns_and_room_for_codes_of_x),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
