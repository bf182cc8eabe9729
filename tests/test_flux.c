/* The transformer: its goldens on the CPU, and the facts at the top of models/flux.h. */
#include "tests/golden_lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 256, E = 128, C = 64, TEXT = 64, POOLED = 64 };

static void flux_every_case_equals_diffusers(void **state) {
    for (size_t i = 0; i < GOLDEN_N_FLUX_CASES; i++)
        golden_flux(*state, &GOLDEN_FLUX_CASES[i]);
}

static void flux_with_loras_equals_diffusers_and_peft(void **state) {
    for (size_t i = 0; i < GOLDEN_N_LORA_CASES; i++)
        golden_lora(*state, &GOLDEN_LORA_CASES[i]);
}

/* diffusers' tables have every value twice, for 2m and 2m + 1. Its angles are f32 products; ours are rounded once, at the
 * end, so the difference grows with the position: 255 * 2^-24 at the most. */
static void same_rope(const float *cos, const float *sin, int64_t token, const float *want_cos,
                      const float *want_sin, int64_t row, double tolerance) {
    for (int64_t m = 0; m < E / 2; m++)
        for (int64_t twice = 0; twice < 2; twice++) {
            int64_t at = row * E + 2 * m + twice;
            assert_true(fabs((double)cos[token * E / 2 + m] - (double)want_cos[at]) <= tolerance);
            assert_true(fabs((double)sin[token * E / 2 + m] - (double)want_sin[at]) <= tolerance);
        }
}

static void flux_rope_equals_diffusers_for_text_and_image(void **state) {
    model_rig *r = *state;
    for (size_t i = 0; i < GOLDEN_N_FLUX_CASES; i++) {
        if (!GOLDEN_FLUX_CASES[i].taps)
            continue;
        flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[i]);
        int64_t L = f.Ti + f.Tt;
        const float *cos = flux_mid(&f, "rope.0", L * E), *sin = flux_mid(&f, "rope.1", L * E);
        for (int64_t t = 0; t < L; t++)
            same_rope(f.cos, f.sin, t, cos, sin, t, 1e-6);
    }
}

/* Positions up to 255, which bf16 would round. */
static void flux_rope_is_right_far_from_the_corner(void **state) {
    model_rig *r = *state;
    static const int64_t pos[] = {0, 1, 2, 7, 31, 63, 64, 127, 255};
    enum { SIDE = 256, N = (int)DFX_COUNT(pos) };
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[0]);
    float *cos = mrig_floats(r, (int64_t)SIDE * SIDE * E / 2),
          *sin = mrig_floats(r, (int64_t)SIDE * SIDE * E / 2);
    dfx_flux_rope(&f.config, 0, SIDE, SIDE, cos, sin);
    const float *want_cos = mrig_golden(r, "misc", (int64_t)N * N * E, "rope.far.cos");
    const float *want_sin = mrig_golden(r, "misc", (int64_t)N * N * E, "rope.far.sin");
    for (int64_t y = 0; y < N; y++)
        for (int64_t x = 0; x < N; x++)
            same_rope(cos, sin, pos[y] * SIDE + pos[x], want_cos, want_sin, y * N + x, 2e-5);
}

static void flux_step_moves_latents_by_dt_times_velocity(void **state) {
    model_rig *r = *state;
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[1]);
    const float dt = -0.375f;
    flux_run_cond(&f, 0);
    flux_run_step(&f, 0, dt);
    const float *x = flux_in(&f, "hidden_states", f.Ti * C, 0);
    for (int64_t i = 0; i < f.Ti * C; i++)
        assert_true(fabs((double)f.x[i] - ((double)x[i] + (double)dt * (double)f.v[i])) <= 1e-6);
}

/* Pages of bf16, as stored: a row of the table does not depend on how many rows are made with it. */
static void flux_table_of_all_steps_equals_tables_of_one_step(void **state) {
    model_rig *r = *state;
    static float sigmas[] = {1, 0.90453f, 0.75951f, 0.75f, 0.512844f, 0.25f, 0.001f};
    enum { N = (int)DFX_COUNT(sigmas) };
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[0]);
    int64_t cols = dfx_flux_mod_cols(&f.config);
    float guidance = 3.5f, *all = mrig_floats(r, N * cols);
    void *text = (void *)flux_in(&f, "encoder_hidden_states", f.Tt * TEXT, 0),
         *pooled = (void *)flux_in(&f, "pooled_projections", POOLED, 0);
    dfx_program many, one;
    assert_int_equal(dfx_flux_build_cond(&f.config, &f.env, f.Tt, N, &many), DFX_OK);
    assert_int_equal(dfx_flux_build_cond(&f.config, &f.env, f.Tt, 1, &one), DFX_OK);
    assert_int_equal(many.weights[0].dtype, DFX_DTYPE_BF16);
    mrig_run(r, &many, (void *[]){text, pooled, sigmas, &guidance, f.txt, all});
    for (int i = 0; i < N; i++) {
        mrig_run(r, &one, (void *[]){text, pooled, &sigmas[i], &guidance, f.txt, f.mod});
        assert_memory_equal(f.mod, all + i * cols, (size_t)cols * sizeof(*all));
    }
    dfx_program_fini(&many);
    dfx_program_fini(&one);
}

static void flux_without_guidance_embedder_ignores_guidance(void **state) {
    model_rig *r = *state;
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[4]);
    assert_false(f.config.has_guidance);
    float sigma = 1, zero = 0, nan_value = NAN,
          *other = mrig_floats(r, dfx_flux_mod_cols(&f.config));
    void *text = (void *)flux_in(&f, "encoder_hidden_states", f.Tt * TEXT, 0),
         *pooled = (void *)flux_in(&f, "pooled_projections", POOLED, 0);
    dfx_program program;
    assert_int_equal(dfx_flux_build_cond(&f.config, &f.env, f.Tt, 1, &program), DFX_OK);
    mrig_run(r, &program, (void *[]){text, pooled, &sigma, &zero, f.txt, f.mod});
    mrig_run(r, &program, (void *[]){text, pooled, &sigma, &nan_value, f.txt, other});
    assert_memory_equal(f.mod, other, (size_t)dfx_flux_mod_cols(&f.config) * sizeof(*other));
    dfx_program_fini(&program);
}

/* Blocks are cut into the parts that move by themselves; weights are named after the block alone. */
static void flux_step_pages_are_parts_of_blocks(void **state) {
    static const char *const want[] = {"x_embedder",
                                       "transformer_blocks.0/attn",
                                       "transformer_blocks.0/ff",
                                       "transformer_blocks.0/ff_context",
                                       "transformer_blocks.1/attn",
                                       "transformer_blocks.1/ff",
                                       "transformer_blocks.1/ff_context",
                                       "single_transformer_blocks.0/in",
                                       "single_transformer_blocks.0/out",
                                       "single_transformer_blocks.1/in",
                                       "single_transformer_blocks.1/out",
                                       "proj_out"};
    model_rig *r = *state;
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[0]);
    dfx_program p;
    assert_int_equal(dfx_flux_build_step(&f.config, &f.env, f.Tt, f.Ti, &p), DFX_OK);
    assert_int_equal(p.n_pages, DFX_COUNT(want));
    for (size_t i = 0; i < DFX_COUNT(want); i++)
        assert_string_equal(p.pages[i].name, want[i]);
    const dfx_page *out = &p.pages[8];
    assert_int_equal(out->n_weights, 2);
    assert_string_equal(p.weights[out->first_weight].name,
                        "single_transformer_blocks.0.proj_out.weight");
    assert_int_equal(out->bytes, (5 * D * D + D) * 2); /* bf16, both multiples of 64 bytes */
    dfx_program_fini(&p);
}

/* Keys and values are of all tokens; all else in the last block is of the picture's, which are the only ones that leave it. */
static void flux_last_block_is_of_the_picture(void **state) {
    model_rig *r = *state;
    flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[0]);
    int64_t L = f.Tt + f.Ti;
    const struct {
        const char *label;
        int64_t rows[2]; /* in the last block but one, and in the last */
    } wanted[] = {{"norm", {L, L}},       {"attn.to_q", {L, f.Ti}}, {"attn.to_k", {L, L}},
                  {"attn.to_v", {L, L}},  {"attn", {L, f.Ti}},      {"proj_mlp", {L, f.Ti}},
                  {"proj_out", {L, f.Ti}}};
    dfx_program p;
    assert_int_equal(dfx_flux_build_step(&f.config, &f.env, f.Tt, f.Ti, &p), DFX_OK);
    for (size_t i = 0; i < 2 * DFX_COUNT(wanted); i++) {
        char label[64];
        int n = 0;
        snprintf(label, sizeof(label), "single_transformer_blocks.%d.%s", (int)i % 2,
                 wanted[i / 2].label);
        for (uint32_t k = 0; k < p.n_ops; k++)
            if (strcmp(p.ops[k].label, label) == 0) {
                assert_int_equal(p.ops[k].r[0].rows, wanted[i / 2].rows[i % 2]);
                n++;
            }
        assert_int_equal(n, 1);
    }
    dfx_program_fini(&p);
}

/* Where the other blocks' part of the same step is added in their place, the velocity is diffusers' all the same; the first block
 * differs by nothing then, and by twice its own size from what it takes away. x moves by dt * v both times. */
static void flux_step_in_parts_equals_diffusers(void **state) {
    model_rig *r = *state;
    enum { TAKE_AWAY = 2 };
    for (size_t i = 0; i < GOLDEN_N_FLUX_CASES; i++) {
        flux_run f = flux_begin(r, &GOLDEN_FLUX_CASES[i]);
        int64_t n = f.Ti * C, n_image = f.Ti * D;
        float dt = -0.375f, minus = -1, diff = NAN, *h = mrig_floats(r, (f.Tt + f.Ti) * D),
              *first = mrig_floats(r, n_image), *last = mrig_floats(r, n_image),
              *rest = mrig_floats(r, n_image), *whole = mrig_floats(r, n);
        void *externs[DFX_PART_EXTERNS] = {f.x, f.txt, f.mod, f.cos, f.sin,  &dt,  f.v,
                                           h,   first, last,  rest,  &minus, &diff};
        const float *x = flux_in(&f, "hidden_states", n, 0),
                    *want = mrig_golden(r, "flux", f.c->batch * n, "%s.out", f.c->name);
        dfx_program parts[3];
        for (int p = 0; p < 3; p++)
            assert_int_equal(
                dfx_flux_build_part(&f.config, &f.env, f.Tt, f.Ti, (dfx_flux_part)p, &parts[p]),
                DFX_OK);
        flux_run_cond(&f, 0);
        flux_run_step(&f, 0, dt);
        memcpy(whole, f.v, (size_t)n * sizeof(*whole));
        for (int turn = 0; turn <= TAKE_AWAY; turn++) {
            memcpy(f.x, x, (size_t)n * sizeof(*x));
            for (int64_t k = 0; turn == TAKE_AWAY && k < n_image; k++)
                last[k] = -last[k];
            mrig_run(r, &parts[DFX_FLUX_FIRST], externs);
            if (turn > 0)
                assert_true(fabsf(diff - (turn == TAKE_AWAY ? 2.0f : 0.0f)) <= 1e-6f);
            mrig_run(r, &parts[turn == 0 ? DFX_FLUX_REST : DFX_FLUX_REUSED], externs);
            if (turn == 0)
                assert_memory_equal(f.v, whole, (size_t)n * sizeof(*whole));
            mrig_same(r, "velocity", f.v, want, n, 1e-5);
            for (int64_t k = 0; k < n; k++)
                assert_true(fabs((double)f.x[k] - ((double)x[k] + (double)dt * (double)f.v[k])) <=
                            1e-6);
        }
        for (int p = 0; p < 3; p++)
            dfx_program_fini(&parts[p]);
    }
}

/* config.json of the tiny model with one piece of its text replaced. */
static void config_is_refused(void **state, const char *old, const char *new_text,
                              const char *words) {
    tmpdir *dir = *state;
    FILE *stream = fopen("tests/golden/tiny-dev/transformer/config.json", "r");
    assert_non_null(stream);
    char text[4096] = "", changed[8192];
    assert_true(fread(text, 1, sizeof(text) - 1, stream) > 0);
    fclose(stream);
    char *at = strstr(text, old);
    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, new_text,
             at + strlen(old));
    tmpdir_write_text(dir, "config.json", changed);
    dfx_flux_config c;
    dfx_bundle bundle = folder_bundle(dir->path);
    assert_int_equal(dfx_flux_config_load(&bundle, "", &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, words);
}

static void flux_config_of_fill_is_refused(void **state) {
    config_is_refused(state, "\"out_channels\": null", "\"out_channels\": 16", "Fill");
}

static void flux_config_with_odd_axes_is_refused(void **state) {
    config_is_refused(state, "16,", "14,", "axes_dims_rope");
}

static void flux_config_of_quantized_folder_is_refused(void **state) {
    config_is_refused(state, "\"patch_size\": 1",
                      "\"patch_size\": 1, \"quantization_config\": {\"quant_method\": \"quanto\"}",
                      "quant_method: wanted bitsandbytes, found quanto");
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)
#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(flux_every_case_equals_diffusers),
        WITH_MRIG(flux_with_loras_equals_diffusers_and_peft),
        WITH_MRIG(flux_rope_equals_diffusers_for_text_and_image),
        WITH_MRIG(flux_rope_is_right_far_from_the_corner),
        WITH_MRIG(flux_step_moves_latents_by_dt_times_velocity),
        WITH_MRIG(flux_table_of_all_steps_equals_tables_of_one_step),
        WITH_MRIG(flux_without_guidance_embedder_ignores_guidance),
        WITH_MRIG(flux_step_in_parts_equals_diffusers),
        WITH_MRIG(flux_step_pages_are_parts_of_blocks),
        WITH_MRIG(flux_last_block_is_of_the_picture),
        IN_TMPDIR(flux_config_of_fill_is_refused),
        IN_TMPDIR(flux_config_with_odd_axes_is_refused),
        IN_TMPDIR(flux_config_of_quantized_folder_is_refused),
    };
    return cmocka_run_group_tests(tests, golden_flux_setup, tmpdir_teardown);
}
