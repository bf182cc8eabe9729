/* Sigmas against diffusers' FlowMatchEulerDiscreteScheduler: sizes and step counts of both models, Euler steps, refusals. */
#include "models/sigmas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/model_rig.h"
#include "tests/tok_support.h"

enum { STEPS_MAX = 64 };

/* They round the unshifted sigmas to f32 first, which is half an ulp of 1 away; the slope of the shift is at most e^mu. */
static double tolerance_of(double e_mu) {
    return (1 + e_mu) * 0x1p-24;
}

static dfx_sigma_config load(recorder *log, const char *variant) {
    char folder[64];
    dfx_sigma_config c;
    dfx_bundle bundle = folder_bundle("tests/golden");
    snprintf(folder, sizeof(folder), "tiny-%s/scheduler", variant);
    assert_int_equal(dfx_sigma_config_load(&bundle, folder, &log->sink, &c), DFX_OK);
    return c;
}

static void check_row(recorder *log, const json_t *row) {
    const char *variant = json_string_value(json_object_get(row, "variant"));
    int64_t n_image = json_integer_value(json_object_get(row, "tokens"));
    int n = (int)json_integer_value(json_object_get(row, "steps"));
    const json_t *wanted = json_object_get(row, "sigmas"),
                 *timesteps = json_object_get(row, "timesteps");
    dfx_sigma_config c = load(log, variant);
    float sigmas[STEPS_MAX + 1];
    assert_int_equal(json_array_size(wanted), n + 1);
    dfx_sigmas_make(&c, n_image, n, sigmas);
    double tolerance = tolerance_of(exp(json_number_value(json_object_get(row, "mu"))));
    for (int i = 0; i <= n; i++) {
        double want = json_number_value(json_array_get(wanted, (size_t)i));
        if (!(fabs((double)sigmas[i] - want) <= tolerance))
            fail_msg("%s, %lld tokens, %d steps: sigma %d is %.9g, wanted %.9g", variant,
                     (long long)n_image, n, i, (double)sigmas[i], want);
    }
    for (int i = 0; i < n; i++) {
        double want = json_number_value(json_array_get(timesteps, (size_t)i));
        assert_true(fabs(1000 * (double)sigmas[i] - want) <= 2000 * tolerance);
    }
}

static void sigmas_equal_diffusers_for_all_sizes_and_steps(void **state) {
    recorder log;
    (void)state;
    recorder_init(&log);
    json_t *root = golden_load("scheduler.json");
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 98);
    for (size_t i = 0; i < json_array_size(rows); i++)
        check_row(&log, json_array_get(rows, i));
    json_decref(root);
    recorder_fini(&log);
}

/* By hand, to six places: e^mu / (e^mu + 1/s - 1), mu = 0.65/3840 n + 0.5 - 256 * 0.65/3840. */
static void sigmas_of_dev_in_four_steps_are_as_by_hand(void **state) {
    static const struct {
        int64_t n_image;
        double sigmas[5];
    } rows[] = {
        {256, {1, .831824, .622459, .354661, 0}},  {1024, {1, .849235, .652489, .384945, 0}},
        {2304, {1, .874931, .699867, .437345, 0}}, {4096, {1, .904531, .759511, .512844, 0}},
        {3840, {1, .900723, .751507, .502014, 0}}, {16384, {1, .986986, .961948, .893917, 0}},
    };
    recorder log;
    (void)state;
    recorder_init(&log);
    dfx_sigma_config c = load(&log, "dev");
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        float sigmas[5];
        dfx_sigmas_make(&c, rows[i].n_image, 4, sigmas);
        for (int j = 0; j < 5; j++)
            assert_true(fabs((double)sigmas[j] - rows[i].sigmas[j]) <= 5.1e-7);
    }
    recorder_fini(&log);
}

/* mu is not clamped below 256 tokens: one token has mu = 0.65/3840 * (1 - 256) + 0.5 = 0.456836. */
static void sigmas_of_smallest_picture_follow_the_line(void **state) {
    recorder log;
    (void)state;
    recorder_init(&log);
    dfx_sigma_config c = load(&log, "dev");
    float sigmas[3];
    dfx_sigmas_make(&c, 1, 2, sigmas);
    assert_true(fabs((double)sigmas[1] - exp(0.456836) / (exp(0.456836) + 1)) <= 1e-6);
    recorder_fini(&log);
}

static void sigmas_of_schnell_do_not_depend_on_size(void **state) {
    static const float want[] = {1, 0.75f, 0.5f, 0.25f, 0};
    static const int64_t sizes[] = {1, 256, 4096, 16384};
    recorder log;
    (void)state;
    recorder_init(&log);
    dfx_sigma_config c = load(&log, "schnell");
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        float sigmas[5];
        dfx_sigmas_make(&c, sizes[i], 4, sigmas);
        assert_memory_equal(sigmas, want, sizeof(want));
    }
    recorder_fini(&log);
}

static void sigmas_of_one_step_are_one_and_zero(void **state) {
    static const char *const variants[] = {"dev", "schnell"};
    static const float want[] = {1, 0};
    recorder log;
    (void)state;
    recorder_init(&log);
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_sigma_config c = load(&log, variants[i]);
        float sigmas[2];
        dfx_sigmas_make(&c, 4096, 1, sigmas);
        assert_memory_equal(sigmas, want, sizeof(want));
    }
    recorder_fini(&log);
}

/* The file's shift of 3 plays no part while use_dynamic_shifting is on; without it, s -> 3 s / (1 + 2 s). */
static void sigmas_use_shift_only_without_dynamic_shifting(void **state) {
    recorder log;
    (void)state;
    recorder_init(&log);
    dfx_sigma_config c = load(&log, "dev");
    float with_three[3], with_nine[3];
    assert_true(c.dynamic && c.shift == 3);
    dfx_sigmas_make(&c, 1024, 2, with_three);
    c.shift = 9;
    dfx_sigmas_make(&c, 1024, 2, with_nine);
    assert_memory_equal(with_three, with_nine, sizeof(with_nine));
    c = (dfx_sigma_config){.shift = 3, .base_tokens = 256, .max_tokens = 4096};
    dfx_sigmas_make(&c, 1024, 2, with_three);
    assert_true(with_three[1] == 0.75f);
    recorder_fini(&log);
}

/* x + (sigma' - sigma) v, four times: the AXPY op with our differences. */
static void euler_steps_equal_diffusers(void **state) {
    static const char *const variants[] = {"dev", "schnell"};
    enum { ROWS = 12, COLS = 64, N = ROWS * COLS };
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_sigma_config c = load(&r->log, variants[i]);
        float sigmas[5];
        char name[32];
        dfx_sigmas_make(&c, 1024, 4, sigmas);
        snprintf(name, sizeof(name), "%s.in.x0", variants[i]);
        dfx_mat x = rig_values(r, ROWS, COLS, COLS, rig_golden(r, "scheduler_steps", name, N));
        for (int step = 0; step < 4; step++) {
            float dt = sigmas[step + 1] - sigmas[step];
            dfx_op_call call = {.kind = DFX_OP_AXPY};
            snprintf(name, sizeof(name), "%s.in.v%d", variants[i], step);
            call.m[0] = call.m[DFX_BIN_A] = x;
            call.m[DFX_BIN_B] =
                rig_values(r, ROWS, COLS, COLS, rig_golden(r, "scheduler_steps", name, N));
            call.m[DFX_BIN_S] = (dfx_mat){&dt, 1, 1, 1, DFX_DTYPE_F32};
            rig_run(r, &call);
            snprintf(name, sizeof(name), "%s.x%d", variants[i], step + 1);
            rig_same(&x, rig_golden(r, "scheduler_steps", name, N), 1e-6);
        }
    }
}

static void config_is_refused(void **state, const char *text, const char *words) {
    tmpdir *dir = *state;
    dfx_sigma_config c;
    dfx_bundle bundle = folder_bundle(dir->path);
    tmpdir_write_text(dir, "scheduler_config.json", text);
    assert_int_equal(dfx_sigma_config_load(&bundle, "", &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, words);
}

#define CLASS "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\""

static void sigmas_of_another_class_are_refused(void **state) {
    config_is_refused(state, "{\"_class_name\": \"DDIMScheduler\"}", "DDIMScheduler");
}

static void sigmas_with_karras_are_refused(void **state) {
    config_is_refused(state, CLASS ", \"use_karras_sigmas\": true}", "use_karras_sigmas");
}

static void sigmas_with_terminal_shift_are_refused(void **state) {
    config_is_refused(state, CLASS ", \"shift_terminal\": 0.02}", "shift_terminal");
}

static void sigmas_with_linear_time_shift_are_refused(void **state) {
    config_is_refused(state, CLASS ", \"time_shift_type\": \"linear\"}", "linear");
}

static void sigmas_with_shift_zero_are_refused(void **state) {
    config_is_refused(state, CLASS ", \"shift\": 0}", "shift above 0");
}

static void sigmas_with_crossed_token_counts_are_refused(void **state) {
    config_is_refused(state, CLASS ", \"base_image_seq_len\": 4096, \"max_image_seq_len\": 256}",
                      "base_image_seq_len");
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigmas_equal_diffusers_for_all_sizes_and_steps),
        cmocka_unit_test(sigmas_of_dev_in_four_steps_are_as_by_hand),
        cmocka_unit_test(sigmas_of_smallest_picture_follow_the_line),
        cmocka_unit_test(sigmas_of_schnell_do_not_depend_on_size),
        cmocka_unit_test(sigmas_of_one_step_are_one_and_zero),
        cmocka_unit_test(sigmas_use_shift_only_without_dynamic_shifting),
        cmocka_unit_test_setup_teardown(euler_steps_equal_diffusers, rig_setup, rig_teardown),
        IN_TMPDIR(sigmas_of_another_class_are_refused),
        IN_TMPDIR(sigmas_with_karras_are_refused),
        IN_TMPDIR(sigmas_with_terminal_shift_are_refused),
        IN_TMPDIR(sigmas_with_linear_time_shift_are_refused),
        IN_TMPDIR(sigmas_with_shift_zero_are_refused),
        IN_TMPDIR(sigmas_with_crossed_token_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
