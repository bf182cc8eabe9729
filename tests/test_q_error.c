/* Error sums and outlier flags, against hand arithmetic. */
#include "tests/tmpdir.h"

#include <math.h>

#include "core/rng.h"
#include "quant/q_error.h"

enum { COLS = 3072 };

static dfx_q_rows f32_rows(const float *src, int64_t n_rows, int64_t cols) {
    return (dfx_q_rows){"w", DFX_DTYPE_F32, src, 0, n_rows, cols};
}

static dfx_q_error measured(dfx_qformat format, const float *src, int64_t n_rows, int64_t cols) {
    static uint8_t codes[4 * COLS * 4];
    static float scales[4];
    dfx_q_rows rows = f32_rows(src, n_rows, cols);
    dfx_q_error error = {0};
    assert_int_equal(dfx_q_encode_rows(&rows, format, codes, scales, NULL), DFX_OK);
    assert_true(dfx_q_error_rows(&error, &rows, format, codes, scales));
    return error;
}

/* Source 3, 4, 1; decoded 3, 4.5, 0: the squares lost are 0, 0.25, 1, and those of the source 9,
 * 16, 1. */
static void error_of_given_codes_is_the_hand_sum(void **state) {
    static const float w[] = {3.0f, 4.0f, 1.0f};
    static const int8_t codes[] = {2, 3, 0};
    static const float scale = 1.5f;
    dfx_q_rows rows = f32_rows(w, 1, 3);
    dfx_q_error error = {0};
    assert_true(dfx_q_error_rows(&error, &rows, DFX_Q_INT8, codes, &scale));
    assert_true(error.error_sq == 0.25 + 1.0 && error.source_sq == 26.0);
    assert_true(error.n_values == 3 && error.n_rows == 1 && error.n_outlier_rows == 0);
    assert_true(fabs(dfx_q_error_relative(&error) - 0.21926450482675733) < 1e-15);
    assert_true(fabs(dfx_q_error_snr_db(&error) - 13.180633349627615) < 1e-12);
}

/* Through the vector body and its tail, and over more than one piece: 1 lost in each of 1030
 * values. */
static void error_counts_every_value_once(void **state) {
    enum { N = 1030 };
    float w[N], scale = 1.0f;
    int8_t codes[N];
    for (int i = 0; i < N; i++) {
        w[i] = 4.0f;
        codes[i] = i % 2 ? 5 : 3;
    }
    dfx_q_rows rows = f32_rows(w, 1, N);
    dfx_q_error error = {0};
    assert_true(dfx_q_error_rows(&error, &rows, DFX_Q_INT8, codes, &scale));
    assert_true(error.error_sq == 1030.0 && error.source_sq == 16480.0);
    assert_true(fabs(dfx_q_error_relative(&error) - 0.25) < 1e-15);
}

static void error_adds_over_runs_of_rows(void **state) {
    static float w[3 * COLS];
    dfx_rng rng;
    dfx_rng_seed(&rng, 3);
    dfx_rng_normal(&rng, w, 3 * COLS);
    dfx_q_error whole = measured(DFX_Q_INT8, w, 3, COLS), sum = {0};
    for (int row = 0; row < 3; row++) {
        dfx_q_error one = measured(DFX_Q_INT8, w + row * COLS, 1, COLS);
        dfx_q_error_add(&sum, &one);
    }
    assert_true(sum.error_sq == whole.error_sq && sum.source_sq == whole.source_sq);
    assert_true(sum.n_values == 3 * COLS && sum.n_rows == 3 && whole.n_rows == 3);
}

/* Rounding to steps of s loses s^2/12 on average; a Gaussian row of 3072 has absmax 3 to 4.5
 * sigma, and 10 log10(12 * 127^2 / absmax^2) is 43.3 to 39.8 dB. */
static void int8_of_gaussian_weights_keeps_forty_decibel(void **state) {
    static float w[COLS];
    dfx_rng rng;
    dfx_rng_seed(&rng, 5);
    dfx_rng_normal(&rng, w, COLS);
    dfx_q_error error = measured(DFX_Q_INT8, w, 1, COLS);
    assert_in_range((uintmax_t)(dfx_q_error_snr_db(&error) * 10), 395, 435);
    assert_int_equal(error.n_outlier_rows, 0);
}

static void outlier_row_is_flagged_once_ordinary_weights_vanish(void **state) {
    static float w[3 * COLS];
    for (int i = 0; i < 3 * COLS; i++)
        w[i] = i % 2 ? 0.01f : -0.01f;
    w[7] = 100.0f;      /* row 0: mean 0.0426, step 0.787 */
    w[2 * COLS] = 1.0f; /* row 2: mean 0.0103, step 0.00787: ordinary weights are +-1 */
    assert_int_equal(measured(DFX_Q_INT8, w, 3, COLS).n_outlier_rows, 1);
    assert_int_equal(measured(DFX_Q_INT8WO, w, 3, COLS).n_outlier_rows, 1);
    w[2 * COLS] = 1.4f; /* mean 0.01045, step 0.01102 */
    assert_int_equal(measured(DFX_Q_INT8, w, 3, COLS).n_outlier_rows, 2);
}

static void several_outliers_do_not_hide_each_other(void **state) {
    static float w[COLS];
    for (int i = 0; i < COLS; i++)
        w[i] = i % 300 ? 0.01f : 100.0f;
    assert_int_equal(measured(DFX_Q_INT8, w, 1, COLS).n_outlier_rows, 1);
}

static void row_of_one_value_among_zeros_is_no_outlier(void **state) {
    static float w[COLS];
    w[9] = 5.0f;
    dfx_q_error error = measured(DFX_Q_INT8, w, 1, COLS);
    assert_int_equal(error.n_outlier_rows, 0);
    assert_true(dfx_q_error_snr_db(&error) >
                140.0); /* 127 * (5/127) misses 5 by a rounding at most */
}

static void fp8_rows_are_not_flagged(void **state) {
    static float w[COLS];
    for (int i = 0; i < COLS; i++)
        w[i] = 0.01f;
    w[0] = 100.0f;
    assert_int_equal(measured(DFX_Q_FP8, w, 1, COLS).n_outlier_rows, 0);
}

static void nothing_lost_is_infinite_decibel(void **state) {
    static const float zeros[8], exact[] = {1.0f, -2.0f, 0.5f, 0.0f};
    dfx_q_error of_zeros = measured(DFX_Q_INT8, zeros, 1, 8);
    dfx_q_error of_bf16 = measured(DFX_Q_BF16, exact, 1, 4);
    assert_true(dfx_q_error_relative(&of_zeros) == 0.0 && dfx_q_error_relative(&of_bf16) == 0.0);
    assert_true(isinf(dfx_q_error_snr_db(&of_zeros)) && isinf(dfx_q_error_snr_db(&of_bf16)));
    assert_int_equal(of_zeros.n_outlier_rows, 0);
}

static void stored_and_packed_tensors_are_not_measured(void **state) {
    static const float w[8];
    dfx_q_rows rows = f32_rows(w, 1, 8);
    dfx_q_error error = {0};
    assert_false(dfx_q_error_rows(&error, &rows, DFX_Q_STORED, w, NULL));
    rows.dtype = DFX_DTYPE_F4;
    assert_false(dfx_q_error_rows(&error, &rows, DFX_Q_F32, w, NULL));
    assert_int_equal(error.n_values, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_of_given_codes_is_the_hand_sum),
        cmocka_unit_test(error_counts_every_value_once),
        cmocka_unit_test(error_adds_over_runs_of_rows),
        cmocka_unit_test(int8_of_gaussian_weights_keeps_forty_decibel),
        cmocka_unit_test(outlier_row_is_flagged_once_ordinary_weights_vanish),
        cmocka_unit_test(several_outliers_do_not_hide_each_other),
        cmocka_unit_test(row_of_one_value_among_zeros_is_no_outlier),
        cmocka_unit_test(fp8_rows_are_not_flagged),
        cmocka_unit_test(nothing_lost_is_infinite_decibel),
        cmocka_unit_test(stored_and_packed_tensors_are_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
