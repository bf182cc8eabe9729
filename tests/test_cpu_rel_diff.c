/* REL_DIFF: values worked by hand, and sums of many in double. */
#include <math.h>

#include "tests/cpu_rig.h"

static float rel_diff(rig *r, dfx_mat a, dfx_mat b) {
    dfx_op_call call = {.kind = DFX_OP_REL_DIFF};
    call.m[0] = rig_poison(r, 1, 1, 4);
    call.m[DFX_BIN_A] = a;
    call.m[DFX_BIN_B] = b;
    rig_run(r, &call);
    return *(float *)call.m[0].ptr;
}

/* |1-2| + |-4+2| + |0-0| + |3-3| + |5+3| + |7-7| = 11 over 2 + 2 + 0 + 3 + 3 + 7 = 17. */
static void rel_diff_is_that_worked_by_hand(void **state) {
    static const float a[] = {1, -4, 0, 3, 5, 7}, b[] = {2, -2, 0, 3, -3, 7};
    rig *r = *state;
    assert_true(rel_diff(r, rig_values(r, 2, 3, 4, a), rig_values(r, 2, 3, 8, b)) ==
                (float)(11.0 / 17.0));
}

static void rel_diff_of_the_same_values_is_zero(void **state) {
    rig *r = *state;
    dfx_mat a = rig_random(r, 50, 37, 40, 3);
    assert_true(rel_diff(r, a, a) == 0);
}

static void rel_diff_from_zeros_is_not_finite(void **state) {
    static const float zeros[4] = {0}, some[] = {0, 1, 0, 0};
    rig *r = *state;
    dfx_mat b = rig_values(r, 2, 2, 4, zeros);
    assert_true(isinf(rel_diff(r, rig_values(r, 2, 2, 4, some), b)));
    assert_true(isnan(rel_diff(r, rig_values(r, 2, 2, 4, zeros), b)));
}

/* 160 x 2000 values: sums in f32 of at most 125 terms of one sign, so 125 roundings of 2^-24 at the most, and the last. */
static void rel_diff_of_many_is_their_sum(void **state) {
    enum { ROWS = 160, COLS = 2000 };
    rig *r = *state;
    dfx_mat a = rig_random(r, ROWS, COLS, COLS, 1), b = rig_random(r, ROWS, COLS, COLS + 4, 2);
    double diff = 0, size = 0;
    for (int64_t t = 0; t < ROWS; t++)
        for (int64_t i = 0; i < COLS; i++) {
            diff += fabs(rig_at(&a, t, i) - rig_at(&b, t, i));
            size += fabs(rig_at(&b, t, i));
        }
    assert_true(fabs((double)rel_diff(r, a, b) - diff / size) <= 2 * 126 * 0x1p-24 * diff / size);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(rel_diff_is_that_worked_by_hand),
        WITH_RIG(rel_diff_of_the_same_values_is_zero),
        WITH_RIG(rel_diff_from_zeros_is_not_finite),
        WITH_RIG(rel_diff_of_many_is_their_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
