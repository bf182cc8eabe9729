/* exp, the activations, dot products and row widening of the CPU backend, against double precision of the C library
 * and the goldens of torch. */
#include "kernels/cpu/cpu_internal.h"
#include "tests/cpu_rig.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Distance of two floats in steps of the wanted value. */
static double ulps(float got, double want) {
    double step = fmax(ldexp(1, ilogb(fmax(fabs(want), FLT_MIN)) - 23), 0x1p-149);
    return fabs((double)got - want) / step;
}

static void exp_from_minus_105_to_0_within_2_ulp(void **state) {
    enum { N = 4096 };
    static float x[N], e[N];
    double worst = 0, sum = 0;
    for (int part = 0; part < 105; part++) {
        x[0] = 0;
        for (int i = 1; i < N; i++)
            x[i] = -(float)part - (float)i / N;
        memcpy(e, x, sizeof(x));
        float got_sum = dfx_cpu_exp_sub_max(e, N);
        sum = 0;
        for (int i = 0; i < N; i++) {
            double off = ulps(e[i], exp((double)x[i]));
            worst = fmax(worst, off);
            if (off > 2)
                fail_msg("exp(%.9g) = %.9g is %.2f ulp off", (double)x[i], (double)e[i], off);
            sum += (double)e[i];
        }
        assert_true(fabs((double)got_sum - sum) <= sum * 1e-5);
    }
    print_message("           worst %.2f ulp\n", worst);
}

static void exp_of_extremes_is_their_limit(void **state) {
    float x[] = {5, -INFINITY, -1e30f, -200, -99, 5};
    float sum = dfx_cpu_exp_sub_max(x, 6);
    assert_true(x[0] == 1 && x[5] == 1);
    assert_true(x[1] == 0 && x[2] == 0 && x[3] == 0);
    assert_true(ulps(x[4], exp(-104.0)) <= 1); /* the last step before 0 */
    assert_true(sum == 2);
    float lone = -3e38f;
    assert_true(dfx_cpu_exp_sub_max(&lone, 1) == 1 && lone == 1);
}

static void exp_of_nan_is_nan_and_so_is_the_sum(void **state) {
    for (int at = 0; at < 40; at += 13) {
        float x[40] = {0};
        x[at] = NAN;
        assert_true(isnan(dfx_cpu_exp_sub_max(x, 40)));
        for (int i = 0; i < 40; i++)
            assert_true(i == at ? isnan(x[i]) : x[i] == 1);
    }
}

static double act_of(dfx_act act, double x) {
    switch (act) {
    case DFX_ACT_SILU:
        return x / (1 + exp(-x));
    case DFX_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case DFX_ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case DFX_ACT_NONE:
        break;
    }
    return x;
}

/* torch computes in f32 too: a few roundings of values up to 12 on either side. */
static void act_golden_is_met(void **state) {
    rig *r = *state;
    static const struct {
        dfx_act act;
        const char *name;
    } cases[] = {{DFX_ACT_SILU, "act.silu"},
                 {DFX_ACT_GELU_TANH, "act.gelu_tanh"},
                 {DFX_ACT_QUICK_GELU, "act.quick_gelu"}};
    const float *x = rig_golden(r, "misc", "act.x", 257);
    for (size_t c = 0; c < DFX_COUNT(cases); c++) {
        const float *want = rig_golden(r, "misc", cases[c].name, 257);
        float got[257];
        memcpy(got, x, sizeof(got));
        dfx_cpu_act(cases[c].act, got, 257);
        for (int i = 0; i < 257; i++) {
            double allowed = 1e-6 * fmax(fabs((double)want[i]), 0.5);
            if (!(fabs((double)got[i] - (double)want[i]) <= allowed))
                fail_msg("%s(%.9g) = %.9g, want %.9g", cases[c].name, (double)x[i], (double)got[i],
                         (double)want[i]);
        }
    }
}

/* Relative, also where the result is tiny; exp(-g) of a rounded g near 80 is off by 80 half ulps. */
static void act_keeps_relative_accuracy_near_0_and_far_out(void **state) {
    static const float at[] = {0x1p-140f, 1e-30f, 1e-10f, 1e-5f, 1e-3f, 0.1f, 1, 3, 5, 20, 1000};
    static const dfx_act acts[] = {DFX_ACT_SILU, DFX_ACT_GELU_TANH, DFX_ACT_QUICK_GELU};
    for (size_t a = 0; a < DFX_COUNT(acts); a++)
        for (size_t i = 0; i < DFX_COUNT(at); i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x = (float)sign * at[i], got = x;
                dfx_cpu_act(acts[a], &got, 1);
                double want = act_of(acts[a], (double)x);
                if (!(fabs((double)got - want) <= 6e-6 * fabs(want) + 0x1p-148))
                    fail_msg("act %d of %.9g: got %.9g, want %.9g", acts[a], (double)x, (double)got,
                             want);
            }
}

static void act_of_extremes_is_their_limit(void **state) {
    static const dfx_act acts[] = {DFX_ACT_SILU, DFX_ACT_GELU_TANH, DFX_ACT_QUICK_GELU};
    for (size_t a = 0; a < DFX_COUNT(acts); a++) {
        float x[] = {0, 1e30f, -1e30f, INFINITY, NAN, 3e38f, -3e38f};
        dfx_cpu_act(acts[a], x, 7);
        assert_true(x[0] == 0 && x[1] == 1e30f && x[2] == 0 && x[3] == INFINITY);
        assert_true(isnan(x[4]) && x[5] == 3e38f && x[6] == 0);
    }
    float same[] = {-1, NAN, 2};
    dfx_cpu_act(DFX_ACT_NONE, same, 3);
    assert_true(same[0] == -1 && isnan(same[1]) && same[2] == 2);
}

static void act_of_value_does_not_depend_on_its_place(void **state) {
    static const dfx_act acts[] = {DFX_ACT_SILU, DFX_ACT_GELU_TANH, DFX_ACT_QUICK_GELU};
    for (size_t a = 0; a < DFX_COUNT(acts); a++) {
        float many[67], one = -0.7f;
        for (int i = 0; i < 67; i++)
            many[i] = one;
        dfx_cpu_act(acts[a], &one, 1);
        dfx_cpu_act(acts[a], many, 67);
        for (int i = 0; i < 67; i++)
            assert_memory_equal(&many[i], &one, sizeof(one));
    }
}

/* 1^2 + ... + n^2 = n (n + 1) (2 n + 1) / 6, exact in f32 below 2^24. */
static void dot_of_small_integers_is_exact(void **state) {
    float x[300];
    for (int i = 0; i < 300; i++)
        x[i] = (float)(i + 1);
    for (int n = 0; n <= 300; n++)
        assert_true((double)dfx_cpu_dot(x, x, n) == (double)n * (n + 1) * (2 * n + 1) / 6);
}

/* Lanes 0 and 8 are the first to be joined: 2^24 + 1 is lost there, where one accumulator would lose the 1 too, but
 * lanes 1 and 9 keep theirs; then (2^24) + (1 + 1). */
static void dot_joins_lanes_in_the_written_order(void **state) {
    float a[DFX_LANES] = {0}, ones[DFX_LANES];
    for (int i = 0; i < DFX_LANES; i++)
        ones[i] = 1;
    a[0] = 0x1p24f;
    a[8] = 1;
    a[1] = a[9] = 1;
    assert_true(dfx_cpu_dot(a, ones, DFX_LANES) == 0x1p24f + 2);
    a[9] = 0;
    assert_true(dfx_cpu_dot(a, ones, DFX_LANES) == 0x1p24f);
}

static void row_aligned_f32_is_not_copied(void **state) {
    rig *r = *state;
    dfx_mat m = rig_random(r, 3, 5, 8, 1);
    float buf[5];
    assert_ptr_equal(dfx_cpu_row(&m, 2, buf), (float *)m.ptr + 16);
}

static void row_of_any_type_and_address_is_widened(void **state) {
    rig *r = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F16,
                                       DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E5M2};
    static const float values[] = {1, -2, 0.5f, 3, 4, -0.25f, 7, 8}; /* exact in all */
    for (size_t d = 0; d < DFX_COUNT(dtypes); d++) {
        dfx_mat m = rig_weight(r, dtypes[d], 2, 4, values);
        float buf[4] = {0};
        assert_memory_equal(dfx_cpu_row(&m, 1, buf), values + 4, sizeof(buf));
        dfx_mat part = dfx_cpu_row_part(&m, 1, 1, 2);
        assert_memory_equal(dfx_cpu_row(&part, 0, buf), values + 5, 2 * sizeof(float));
    }
    dfx_mat none = {0};
    assert_null(dfx_cpu_row_part(&none, 0, 4, 2).ptr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_from_minus_105_to_0_within_2_ulp),
        cmocka_unit_test(exp_of_extremes_is_their_limit),
        cmocka_unit_test(exp_of_nan_is_nan_and_so_is_the_sum),
        cmocka_unit_test_setup_teardown(act_golden_is_met, rig_setup, rig_teardown),
        cmocka_unit_test(act_keeps_relative_accuracy_near_0_and_far_out),
        cmocka_unit_test(act_of_extremes_is_their_limit),
        cmocka_unit_test(act_of_value_does_not_depend_on_its_place),
        cmocka_unit_test(dot_of_small_integers_is_exact),
        cmocka_unit_test(dot_joins_lanes_in_the_written_order),
        cmocka_unit_test_setup_teardown(row_aligned_f32_is_not_copied, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(row_of_any_type_and_address_is_widened, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
