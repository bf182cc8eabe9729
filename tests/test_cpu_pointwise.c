/* Activations, sums, the Euler step and the sinusoid: numbers of torch and diffusers, and plain f32
 * arithmetic, which has one right answer. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <stdio.h>

enum { T = 37, D = 301 }; /* neither a multiple of the rows of an index nor of a vector */

static void check_act(rig *r, dfx_act act, const char *name) {
    dfx_op_call call = {.kind = DFX_OP_ACT, .p.act = act};
    call.m[DFX_BIN_A] = rig_values(r, 1, 257, 260, rig_golden(r, "misc", "act.x", 257));
    call.m[0] = rig_poison(r, 1, 257, 264);
    rig_run(r, &call);
    /* |y| <= 8 and a few roundings of 2^-24 */
    rig_same(&call.m[0], rig_golden(r, "misc", name, 257), 2e-6);
    call.m[0] = call.m[DFX_BIN_A];
    rig_run(r, &call);
    rig_same(&call.m[0], rig_golden(r, "misc", name, 257), 2e-6);
}

static void act_equals_torch_in_and_out_of_place(void **state) {
    check_act(*state, DFX_ACT_SILU, "act.silu");
    check_act(*state, DFX_ACT_GELU_TANH, "act.gelu_tanh");
    check_act(*state, DFX_ACT_QUICK_GELU, "act.quick_gelu");
    check_act(*state, DFX_ACT_NONE, "act.x");
}

static void act_of_many_rows_reaches_every_value(void **state) {
    rig *r = *state;
    dfx_op_call call = {.kind = DFX_OP_ACT, .p.act = DFX_ACT_SILU};
    call.m[DFX_BIN_A] = rig_random(r, T, D, D + 3, 1);
    call.m[0] = rig_poison(r, T, D, D + 7);
    float *want = rig_alloc(r, T * D * sizeof(*want));
    for (int t = 0; t < T; t++)
        for (int i = 0; i < D; i++) {
            double x = rig_at(&call.m[DFX_BIN_A], t, i);
            want[t * D + i] = (float)(x / (1 + exp(-x)));
        }
    rig_run(r, &call);
    rig_same(&call.m[0], want, 1e-6);
}

/* y apart from a and b, y = a, y = b. */
static void act_mul_equals_formula_however_y_aliases(void **state) {
    rig *r = *state;
    for (int alias = 0; alias <= 2; alias++) {
        dfx_op_call call = {.kind = DFX_OP_ACT_MUL, .p.act = DFX_ACT_SILU};
        call.m[DFX_BIN_A] = rig_random(r, T, D, D + 3, 2);
        call.m[DFX_BIN_B] = rig_random(r, T, D, D + 7, 3);
        float *want = rig_alloc(r, T * D * sizeof(*want));
        for (int t = 0; t < T; t++)
            for (int i = 0; i < D; i++) {
                double a = rig_at(&call.m[DFX_BIN_A], t, i);
                want[t * D + i] = (float)(a / (1 + exp(-a)) * rig_at(&call.m[DFX_BIN_B], t, i));
            }
        call.m[0] = alias ? call.m[alias] : rig_poison(r, T, D, D + 3);
        rig_run(r, &call);
        rig_same(&call.m[0], want, 2e-6);
    }
}

static void check_add(rig *r, int64_t b_rows, bool in_place) {
    dfx_op_call call = {.kind = DFX_OP_ADD};
    call.m[DFX_BIN_A] = rig_random(r, T, D, D + 3, 4);
    call.m[DFX_BIN_B] = rig_random(r, b_rows, D, D + 7, 5);
    float *want = rig_alloc(r, T * D * sizeof(*want));
    for (int t = 0; t < T; t++)
        for (int i = 0; i < D; i++)
            want[t * D + i] = (float)(rig_at(&call.m[DFX_BIN_A], t, i) +
                                      rig_at(&call.m[DFX_BIN_B], b_rows == 1 ? 0 : t, i));
    call.m[0] = in_place ? call.m[DFX_BIN_A] : rig_poison(r, T, D, D + 3);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

static void add_is_exact_for_rows_and_one_row(void **state) {
    check_add(*state, T, false);
    check_add(*state, T, true);
    check_add(*state, 1, false);
    check_add(*state, 1, true);
}

/* schnell, 4 steps: sigma falls by a quarter each step, a number that f32 holds, so the step has
 * one right answer. */
static void axpy_equals_euler_steps_of_diffusers(void **state) {
    rig *r = *state;
    float s[1] = {-0.25f};
    for (int step = 0; step < 4; step++) {
        char x_name[32], v_name[32], y_name[32];
        snprintf(x_name, sizeof(x_name), step ? "schnell.x%d" : "schnell.in.x%d", step);
        snprintf(v_name, sizeof(v_name), "schnell.in.v%d", step);
        snprintf(y_name, sizeof(y_name), "schnell.x%d", step + 1);
        dfx_op_call call = {.kind = DFX_OP_AXPY};
        call.m[DFX_BIN_A] =
            rig_values(r, 12, 64, 68, rig_golden(r, "scheduler_steps", x_name, 12 * 64));
        call.m[DFX_BIN_B] =
            rig_values(r, 12, 64, 64, rig_golden(r, "scheduler_steps", v_name, 12 * 64));
        call.m[DFX_BIN_S] = rig_values(r, 1, 1, 4, s);
        call.m[0] = step % 2 ? call.m[DFX_BIN_A] : rig_poison(r, 12, 64, 72);
        rig_run(r, &call);
        rig_same(&call.m[0], rig_golden(r, "scheduler_steps", y_name, 12 * 64), 0);
    }
}

/* The stored inputs are 1000 t; those whose t = a / 1000 in f32 comes back as a are the ones asked
 * for. torch's exp may be one unit beside ours, 2^-23 f in a frequency f < 1, which moves an angle
 * by 1000 t 2^-23 at the most. */
static void sinusoid_equals_diffusers(void **state) {
    rig *r = *state;
    enum { N = 11, WIDTH = 256 };
    const float *a = rig_golden(r, "misc", "sinusoid.in_times_1000", N);
    const float *want = rig_golden(r, "misc", "sinusoid.out", N * WIDTH);
    int n_same = 0;
    for (int n = 0; n < N; n++) {
        float t[1] = {a[n] / 1000.0f};
        if (t[0] * 1000.0f != a[n])
            continue;
        n_same++;
        dfx_op_call call = {.kind = DFX_OP_SINUSOID};
        call.m[1] = rig_values(r, 1, 1, 4, t);
        call.m[0] = rig_poison(r, 1, WIDTH, WIDTH + 4);
        rig_run(r, &call);
        rig_same(&call.m[0], want + n * WIDTH, 2e-7 + (double)a[n] * 0x1p-23);
    }
    assert_true(n_same >= 8);
}

static void sinusoid_of_several_times_fills_every_row(void **state) {
    rig *r = *state;
    enum { N = 35, WIDTH = 6 };
    float t[N], want[N * WIDTH];
    for (int n = 0; n < N; n++) {
        t[n] = (float)n / 1024.0f;
        for (int i = 0; i < WIDTH / 2; i++) {
            double angle = 1000.0 * n / 1024.0 * pow(10000, -i / (WIDTH / 2.0));
            want[n * WIDTH + i] = (float)cos(angle);
            want[n * WIDTH + WIDTH / 2 + i] = (float)sin(angle);
        }
    }
    dfx_op_call call = {.kind = DFX_OP_SINUSOID};
    call.m[1] = rig_values(r, 1, N, 36, t);
    call.m[0] = rig_poison(r, N, WIDTH, 8);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 1e-5); /* angles below 34, 4 units of 2^-24 */
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(act_equals_torch_in_and_out_of_place),
        WITH_RIG(act_of_many_rows_reaches_every_value),
        WITH_RIG(act_mul_equals_formula_however_y_aliases),
        WITH_RIG(add_is_exact_for_rows_and_one_row),
        WITH_RIG(axpy_equals_euler_steps_of_diffusers),
        WITH_RIG(sinusoid_equals_diffusers),
        WITH_RIG(sinusoid_of_several_times_fills_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
