/* What stands before and beside BOUND on the CPU: norms of rows from LAYERNORM, and QUANTIZE that has a least scale, by the
 * formulas of kernels/ops.h in double. */
#include <math.h>
#include <string.h>

#include "tests/cpu_rig.h"

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 4;
}

/* ---- norms of rows ---- */

typedef enum affine { PLAIN, WEIGHT_BIAS, SCALE_SHIFT } affine;

static dfx_op_call norm_call(rig *r, int64_t rows, int64_t cols, affine kind, dfx_dtype codes) {
    dfx_op_call call = {.kind = DFX_OP_LAYERNORM, .p.eps = 0.25f};
    call.m[0] =
        (dfx_mat){rig_alloc(r, (size_t)(rows * wider(cols))), rows, cols, wider(cols), codes};
    call.m[DFX_NORM_X] = rig_random(r, rows, cols, wider(cols), 1);
    if (kind == WEIGHT_BIAS) {
        call.m[DFX_NORM_W] = rig_random_weight(r, DFX_DTYPE_BF16, 1, cols, 2);
        call.m[DFX_NORM_B] = rig_random_weight(r, DFX_DTYPE_F16, 1, cols, 3);
    }
    if (kind == SCALE_SHIFT) {
        call.m[DFX_NORM_SCALE] = rig_random(r, 1, cols, wider(cols), 4);
        call.m[DFX_NORM_SHIFT] = rig_random(r, 1, cols, wider(cols), 5);
    }
    call.m[DFX_NORM_Y_SCALE] = rig_poison(r, 1, rows, wider(rows));
    return call;
}

static double norm_wanted(const dfx_op_call *call, int64_t t) {
    const dfx_mat *m = call->m, *x = &m[DFX_NORM_X];
    double mean = 0, var = 0, sum = 0, n = (double)x->cols;
    for (int64_t i = 0; i < x->cols; i++)
        mean += rig_at(x, t, i) / n;
    for (int64_t i = 0; i < x->cols; i++)
        var += (rig_at(x, t, i) - mean) * (rig_at(x, t, i) - mean) / n;
    for (int64_t i = 0; i < x->cols; i++) {
        double y = (rig_at(x, t, i) - mean) / sqrt(var + (double)call->p.eps);
        y *= rig_or(&m[DFX_NORM_W], i, 1) * (1 + rig_or(&m[DFX_NORM_SCALE], i, 0));
        y += rig_or(&m[DFX_NORM_B], i, 0) + rig_or(&m[DFX_NORM_SHIFT], i, 0);
        sum += y * y;
    }
    return sqrt(sum);
}

/* Values are off by 8e-6 at most (test_cpu_norm.c), so that the norm is by no more than sqrt(D) times that, and by roundings of
 * its own sum of 16 lanes. Codes and scales are what they are without it. */
static void layernorm_norms_of_rows_equal_roots_of_double_sums(void **state) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {16, 16}, {17, 31}, {50, 129}, {2, 3072}};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes) * 6; i++) {
        int64_t rows = shapes[i / 6][0], cols = shapes[i / 6][1];
        dfx_dtype codes = i % 2 ? DFX_DTYPE_I8 : DFX_DTYPE_F8_E4M3;
        dfx_op_call call = norm_call(r, rows, cols, i / 2 % 3, codes);
        dfx_op_call plain = norm_call(r, rows, cols, i / 2 % 3, codes);
        call.m[DFX_NORM_Y_NORM] = rig_poison(r, 1, rows, wider(rows));
        rig_run(r, &call);
        rig_run(r, &plain);
        for (int64_t t = 0; t < rows; t++) {
            double want = norm_wanted(&call, t);
            double tolerance = 8e-6 * sqrt((double)cols) + want * (double)(cols / 16 + 8) * 0x1p-24;
            assert_true(fabs(rig_at(&call.m[DFX_NORM_Y_NORM], 0, t) - want) <= tolerance);
        }
        assert_true(isnan(((float *)call.m[DFX_NORM_Y_NORM].ptr)[rows]));
        assert_memory_equal(call.m[0].ptr, plain.m[0].ptr, (size_t)(rows * call.m[0].ld));
        assert_memory_equal(call.m[DFX_NORM_Y_SCALE].ptr, plain.m[DFX_NORM_Y_SCALE].ptr,
                            (size_t)rows * sizeof(float));
    }
}

/* What has no bound must not look as if it had one; other rows are as they were. */
static void layernorm_norm_of_a_row_that_is_not_finite_is_nan(void **state) {
    enum { T = 20, D = 40 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(bad); i++) {
        dfx_op_call call = norm_call(r, T, D, SCALE_SHIFT, DFX_DTYPE_F8_E4M3);
        call.m[DFX_NORM_Y_NORM] = rig_poison(r, 1, T, T);
        ((float *)call.m[DFX_NORM_X].ptr)[17 * call.m[DFX_NORM_X].ld + 3] = bad[i];
        rig_run(r, &call);
        for (int t = 0; t < T; t++)
            assert_int_equal(isnan(rig_at(&call.m[DFX_NORM_Y_NORM], 0, t)), t == 17);
    }
}

/* ---- least scales ---- */

enum { BESIDE = 16, NOT_OURS = 0x5a };

/* What row t has: a least below its own scale, one above, the very same; values of zeros, NaN among them, a least of NaN. */
enum { BELOW, ABOVE, EQUAL, ZEROS, A_NAN, NO_LEAST, N_ROW_KINDS };

static void fill_row(float *x, int64_t n, int64_t t, float *least) {
    float top = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf(x[i]));
    *least = top / 448;
    switch (t % N_ROW_KINDS) {
    case BELOW:
        *least *= 0.3f;
        break;
    case ABOVE:
        *least *= 37;
        break;
    case ZEROS:
        memset(x, 0, (size_t)n * sizeof(*x));
        break;
    case A_NAN:
        x[n / 2] = NAN;
        break;
    case NO_LEAST:
        *least = NAN;
        break;
    default: /* EQUAL */
        break;
    }
}

/* Codes go to the middle of wider rows. Expected ones are made by the conversion of core, from x and the scale. */
static void quantize_with_least_multiplies_by_one_over_the_greater_scale(void **state) {
    enum { T = 26, D = 77, LD = 80 + 2 * BESIDE };
    rig *r = *state;
    uint8_t *wide = rig_alloc(r, T * LD + BESIDE);
    memset(wide, NOT_OURS, T * LD + BESIDE);
    dfx_op_call call = {.kind = DFX_OP_QUANTIZE};
    call.m[0] = (dfx_mat){wide + BESIDE, T, D, LD, DFX_DTYPE_F8_E4M3};
    call.m[DFX_QUANTIZE_X] = rig_random(r, T, D, 80, 1);
    call.m[DFX_QUANTIZE_Y_SCALE] = rig_poison(r, 1, T, T + 2);
    call.m[DFX_QUANTIZE_LEAST] = rig_poison(r, 1, T, T + 2);
    float *x = call.m[DFX_QUANTIZE_X].ptr, *least = call.m[DFX_QUANTIZE_LEAST].ptr;
    for (int64_t t = 0; t < T; t++)
        fill_row(x + t * 80, D, t, &least[t]);
    rig_run(r, &call);
    for (int64_t t = 0; t < T; t++) {
        bool is_nan = t % N_ROW_KINDS == A_NAN || t % N_ROW_KINDS == NO_LEAST;
        float scale = ((float *)call.m[DFX_QUANTIZE_Y_SCALE].ptr)[t], top = 0;
        const uint8_t *codes = wide + t * LD + BESIDE;
        for (int64_t i = 0; i < D && !is_nan; i++)
            top = fmaxf(top, fabsf(x[t * 80 + i]));
        assert_true(is_nan ? isnan(scale) : scale == fmaxf(top / 448, least[t]));
        for (int64_t i = 0; i < D; i++)
            assert_int_equal(codes[i], is_nan ? 0 : dfx_f32_to_e4m3(x[t * 80 + i] * (1 / scale)));
        for (int64_t i = 1; i <= BESIDE; i++)
            assert_true(codes[-i] == NOT_OURS && codes[D + i - 1] == NOT_OURS);
    }
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(layernorm_norms_of_rows_equal_roots_of_double_sums),
        WITH_RIG(layernorm_norm_of_a_row_that_is_not_finite_is_nan),
        WITH_RIG(quantize_with_least_multiplies_by_one_over_the_greater_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
