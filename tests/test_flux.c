/* The transformer against diffusers: both programs, every value between that they hold, and the facts at the top of
 * models/flux.h. Weights are those of tests/tiny.h. */
#include "models/flux.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model_rig.h"
#include "tests/tiny.h"

enum { D = 256, H = 2, E = 128, F = 4 * D, C = 64, TEXT = 64, POOLED = 64 };
static const double TOLERANCE = 1e-4;

typedef struct flux_case {
    const char *name, *folder;
    int64_t h, w, n_text, batch;
    bool taps; /* the golden file has the values between */
} flux_case;

static const flux_case CASES[] = {
    {"sq", "dev/transformer", 4, 4, 12, 1, true},
    {"ns", "dev/transformer", 3, 5, 7, 1, true},
    {"big", "dev/transformer", 8, 12, 33, 1, false},
    {"b2", "dev/transformer", 4, 4, 12, 2, false},
    {"schnell_sq", "schnell/transformer", 4, 4, 12, 1, true},
    {"schnell_ns", "schnell/transformer", 5, 2, 9, 1, false},
};

/* One case on its way: the model, and what goes in and out of its programs. */
typedef struct flux_run {
    model_rig *r;
    const flux_case *c;
    dfx_flux_config config;
    dfx_build_env env;
    int64_t Ti, Tt;
    float *cos, *sin, *txt, *mod, *x, *v;
} flux_run;

static const float *in(const flux_run *f, const char *name, int64_t n_a_row, int64_t row) {
    const float *all =
        mrig_golden(f->r, "flux", f->c->batch * n_a_row, "%s.in.%s", f->c->name, name);
    return all + row * n_a_row;
}

static const float *mid(const flux_run *f, const char *name, int64_t n) {
    return mrig_golden(f->r, "flux", n, "%s.mid.%s", f->c->name, name);
}

static flux_run begin(model_rig *r, const flux_case *c) {
    flux_run f = {.r = r, .c = c, .Ti = c->h * c->w, .Tt = c->n_text};
    dfx_bundle bundle = folder_bundle(r->dir->path);
    assert_int_equal(dfx_flux_config_load(&bundle, c->folder, &r->sink, &f.config), DFX_OK);
    f.env = mrig_env(r, mrig_open(r, c->folder, "diffusion_pytorch_model"));
    int64_t L = f.Ti + f.Tt;
    f.cos = mrig_floats(r, L * E / 2);
    f.sin = mrig_floats(r, L * E / 2);
    dfx_flux_rope(&f.config, f.Tt, c->h, c->w, f.cos, f.sin);
    f.txt = mrig_floats(r, f.Tt * D);
    f.mod = mrig_floats(r, dfx_flux_mod_cols(&f.config));
    f.x = mrig_floats(r, f.Ti * C);
    f.v = mrig_floats(r, f.Ti * C);
    return f;
}

static void run_cond(flux_run *f, int64_t row) {
    dfx_program program;
    float sigma = in(f, "timestep", 1, row)[0];
    float guidance = f->config.has_guidance ? in(f, "guidance", 1, row)[0] : 1e9f;
    assert_int_equal(dfx_flux_build_cond(&f->config, &f->env, f->Tt, 1, &program), DFX_OK);
    mrig_run(f->r, &program,
             (void *[]){(void *)in(f, "encoder_hidden_states", f->Tt * TEXT, row),
                        (void *)in(f, "pooled_projections", POOLED, row), &sigma, &guidance, f->txt,
                        f->mod});
    dfx_program_fini(&program);
}

static void run_step(flux_run *f, int64_t row, float dt) {
    dfx_program program;
    assert_int_equal(dfx_flux_build_step(&f->config, &f->env, f->Tt, f->Ti, &program), DFX_OK);
    memcpy(f->x, in(f, "hidden_states", f->Ti * C, row), (size_t)(f->Ti * C) * sizeof(float));
    mrig_run(f->r, &program, (void *[]){f->x, f->txt, f->mod, f->cos, f->sin, &dt, f->v});
    dfx_program_fini(&program);
}

/* y[t, d] = x[t, d] + gate[d] * z[t, d] over T rows of D. */
static const float *gated(const flux_run *f, const float *x, const float *gate, const float *z,
                          int64_t T) {
    float *y = mrig_floats(f->r, T * D);
    for (int64_t i = 0; i < T * D; i++)
        y[i] = x[i] + gate[i % D] * z[i];
    return y;
}

static void same(const flux_run *f, const char *label, const float *want, int64_t T, int64_t cols) {
    mrig_same_output(f->r, label, want, T, cols, TOLERANCE);
}

/* Rows of h after a block, which its last op wrote. */
static void same_rows(const flux_run *f, const char *label, const char *golden, int64_t T) {
    same(f, label, mid(f, golden, T * D), T, D);
}

/* diffusers has one sinusoid layer for both, and the golden is of its last call: guidance, where there is one. */
static void check_cond(const flux_run *f) {
    bool guidance = f->config.has_guidance;
    same(f, guidance ? "time_text_embed.guidance_proj" : "time_text_embed.time_proj",
         mid(f, "time_proj", D), 1, D);
    same(f, "time_text_embed.timestep_embedder.linear_2", mid(f, "timestep_emb", D), 1, D);
    if (guidance)
        same(f, "time_text_embed.guidance_embedder.linear_2", mid(f, "guidance_emb", D), 1, D);
    same(f, "time_text_embed.text_embedder.linear_2", mid(f, "text_emb", D), 1, D);
    same(f, "time_text_embed.add_text", mid(f, "temb", D), 1, D);
    same_rows(f, "context_embedder", "txt_in", f->Tt);
}

/* Chunk k of a table of modulation: D columns. diffusers' norm1 returns gate_msa, shift_mlp, scale_mlp, gate_mlp as
 * .1 to .4; they are chunks 2 to 5. */
static void check_table(const flux_run *f) {
    static const char *const layers[] = {"norm1", "norm1_context"};
    for (size_t i = 0; i < DFX_COUNT(layers); i++)
        for (int k = 1; k <= 4; k++) {
            char label[64], golden[64];
            snprintf(label, sizeof(label), "transformer_blocks.0.%s.linear", layers[i]);
            snprintf(golden, sizeof(golden), "double0.%s.%d", layers[i], k);
            const op_output *y = mrig_output(f->r, label);
            assert_int_equal(y->cols, 6 * D);
            mrig_same(f->r, golden, y->values + (ptrdiff_t)(k + 1) * D, mid(f, golden, D), D,
                      TOLERANCE);
        }
    const op_output *y = mrig_output(f->r, "single_transformer_blocks.0.norm.linear");
    mrig_same(f->r, "single0.norm.1", y->values + (ptrdiff_t)2 * D, mid(f, "single0.norm.1", D), D,
              TOLERANCE);
}

/* The golden of an RMSNorm'd q or k is from before RoPE: rotate it with diffusers' tables, whose columns 2m and 2m + 1
 * are equal. */
static const float *rotated(const flux_run *f, const char *golden) {
    int64_t L = f->Ti + f->Tt;
    const float *x = mid(f, golden, f->Ti * D), *cos = mid(f, "rope.0", L * E),
                *sin = mid(f, "rope.1", L * E);
    float *y = mrig_floats(f->r, f->Ti * D);
    for (int64_t t = 0; t < f->Ti; t++)
        for (int64_t i = 0; i < D; i += 2) {
            const float *pair = x + t * D + i;
            int64_t at = (f->Tt + t) * E + i % E;
            y[t * D + i] = pair[0] * cos[at] - pair[1] * sin[at];
            y[t * D + i + 1] = pair[1] * cos[at] + pair[0] * sin[at];
        }
    return y;
}

static void check_double0_attention(const flux_run *f) {
    same_rows(f, "transformer_blocks.0.norm1", "double0.norm1.0", f->Ti);
    same_rows(f, "transformer_blocks.0.norm1_context", "double0.norm1_context.0", f->Tt);
    same_rows(f, "transformer_blocks.0.attn.to_q", "double0.to_q", f->Ti);
    same_rows(f, "transformer_blocks.0.attn.to_v", "double0.to_v", f->Ti);
    same(f, "transformer_blocks.0.attn.norm_q", rotated(f, "double0.norm_q"), f->Ti, D);
    same(f, "transformer_blocks.0.attn.norm_k", rotated(f, "double0.norm_k"), f->Ti, D);
    same_rows(f, "transformer_blocks.0.attn.norm_added_q", "double0.norm_added_q", f->Tt);
    same_rows(f, "transformer_blocks.0.attn.norm_added_k", "double0.norm_added_k", f->Tt);
}

/* One stream's residual sums in block 0: x + gate_msa * attn, then + gate_mlp * ff. */
static void check_double0_sums(const flux_run *f, bool image) {
    int64_t T = image ? f->Ti : f->Tt;
    const float *x = mid(f, image ? "img_in" : "txt_in", T * D);
    const float *attn = mid(f, image ? "double0.attn.0" : "double0.attn.1", T * D);
    const float *ff = mid(f, image ? "double0.ff" : "double0.ff_context", T * D);
    const float *gate1 = mid(f, image ? "double0.norm1.1" : "double0.norm1_context.1", D);
    const float *gate2 = mid(f, image ? "double0.norm1.4" : "double0.norm1_context.4", D);
    x = gated(f, x, gate1, attn, T);
    same(f, image ? "transformer_blocks.0.attn.to_out.0" : "transformer_blocks.0.attn.to_add_out",
         x, T, D);
    x = gated(f, x, gate2, ff, T);
    same(f, image ? "transformer_blocks.0.ff.net.2" : "transformer_blocks.0.ff_context.net.2", x, T,
         D);
}

static const float *gelu(const flux_run *f, const float *x, int64_t n) {
    float *y = mrig_floats(f->r, n);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i], inner = sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v);
        y[i] = (float)(0.5 * v * (1 + tanh(inner)));
    }
    return y;
}

/* Text rows, then image rows. */
static const float *joined(const flux_run *f, const char *text, const char *image) {
    float *y = mrig_floats(f->r, (f->Ti + f->Tt) * D);
    memcpy(y, mid(f, text, f->Tt * D), (size_t)(f->Tt * D) * sizeof(*y));
    memcpy(y + f->Tt * D, mid(f, image, f->Ti * D), (size_t)(f->Ti * D) * sizeof(*y));
    return y;
}

static void check_single0(const flux_run *f) {
    int64_t L = f->Ti + f->Tt;
    same_rows(f, "single_transformer_blocks.0.norm", "single0.norm.0", L);
    same_rows(f, "single_transformer_blocks.0.attn", "single0.attn", L);
    same(f, "single_transformer_blocks.0.proj_mlp", mid(f, "single0.act_mlp", L * F), L, F);
    same(f, "single_transformer_blocks.0.proj_mlp",
         gelu(f, mid(f, "single0.proj_mlp", L * F), L * F), L, F);
    const float *h = joined(f, "double.1.0", "double.1.1"), *gate = mid(f, "single0.norm.1", D);
    same(f, "single_transformer_blocks.0.proj_out",
         gated(f, h, gate, mid(f, "single0.proj_out", L * D), L), L, D);
}

static void check_blocks(const flux_run *f) {
    int64_t L = f->Ti + f->Tt;
    for (int i = 0; i < 2; i++) {
        char label[64], text[32], image[32];
        snprintf(text, sizeof(text), "double.%d.0", i);
        snprintf(image, sizeof(image), "double.%d.1", i);
        snprintf(label, sizeof(label), "transformer_blocks.%d.ff_context.net.2", i);
        same_rows(f, label, text, f->Tt);
        snprintf(label, sizeof(label), "transformer_blocks.%d.ff.net.2", i);
        same_rows(f, label, image, f->Ti);
        snprintf(text, sizeof(text), "single.%d.0", i);
        snprintf(image, sizeof(image), "single.%d.1", i);
        snprintf(label, sizeof(label), "single_transformer_blocks.%d.proj_out", i);
        same(f, label, joined(f, text, image), L, D);
    }
}

static void check_step(const flux_run *f) {
    same_rows(f, "x_embedder", "img_in", f->Ti);
    check_double0_attention(f);
    check_double0_sums(f, true);
    check_double0_sums(f, false);
    check_single0(f);
    check_blocks(f);
    same_rows(f, "norm_out", "norm_out", f->Ti);
}

static void flux_every_case_equals_diffusers(void **state) {
    model_rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(CASES); i++) {
        const flux_case *c = &CASES[i];
        flux_run f = begin(r, c);
        for (int64_t row = 0; row < c->batch; row++) {
            run_cond(&f, row);
            if (c->taps) {
                check_cond(&f);
                check_table(&f);
            }
            run_step(&f, row, 0);
            if (c->taps)
                check_step(&f);
            const float *want = mrig_golden(r, "flux", c->batch * f.Ti * C, "%s.out", c->name);
            mrig_same(r, c->name, f.v, want + row * f.Ti * C, f.Ti * C, TOLERANCE);
        }
    }
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
    for (size_t i = 0; i < DFX_COUNT(CASES); i++) {
        if (!CASES[i].taps)
            continue;
        flux_run f = begin(r, &CASES[i]);
        int64_t L = f.Ti + f.Tt;
        const float *cos = mid(&f, "rope.0", L * E), *sin = mid(&f, "rope.1", L * E);
        for (int64_t t = 0; t < L; t++)
            same_rope(f.cos, f.sin, t, cos, sin, t, 1e-6);
    }
}

/* Positions up to 255, which bf16 would round. */
static void flux_rope_is_right_far_from_the_corner(void **state) {
    model_rig *r = *state;
    static const int64_t pos[] = {0, 1, 2, 7, 31, 63, 64, 127, 255};
    enum { SIDE = 256, N = (int)DFX_COUNT(pos) };
    flux_run f = begin(r, &CASES[0]);
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
    flux_run f = begin(r, &CASES[1]);
    const float dt = -0.375f;
    run_cond(&f, 0);
    run_step(&f, 0, dt);
    const float *x = in(&f, "hidden_states", f.Ti * C, 0);
    for (int64_t i = 0; i < f.Ti * C; i++)
        assert_true(fabs((double)f.x[i] - ((double)x[i] + (double)dt * (double)f.v[i])) <= 1e-6);
}

/* Pages of bf16, as stored: a row of the table does not depend on how many rows are made with it. */
static void flux_table_of_all_steps_equals_tables_of_one_step(void **state) {
    model_rig *r = *state;
    static float sigmas[] = {1, 0.90453f, 0.75951f, 0.75f, 0.512844f, 0.25f, 0.001f};
    enum { N = (int)DFX_COUNT(sigmas) };
    flux_run f = begin(r, &CASES[0]);
    int64_t cols = dfx_flux_mod_cols(&f.config);
    float guidance = 3.5f, *all = mrig_floats(r, N * cols);
    void *text = (void *)in(&f, "encoder_hidden_states", f.Tt * TEXT, 0),
         *pooled = (void *)in(&f, "pooled_projections", POOLED, 0);
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
    flux_run f = begin(r, &CASES[4]);
    assert_false(f.config.has_guidance);
    float sigma = 1, zero = 0, nan_value = NAN,
          *other = mrig_floats(r, dfx_flux_mod_cols(&f.config));
    void *text = (void *)in(&f, "encoder_hidden_states", f.Tt * TEXT, 0),
         *pooled = (void *)in(&f, "pooled_projections", POOLED, 0);
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
    flux_run f = begin(r, &CASES[0]);
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
    config_is_refused(state, "\"patch_size\": 1", "\"patch_size\": 1, \"quantization_config\": {}",
                      "quantized");
}

static int write_models(void **state) {
    if (tmpdir_setup(state) != 0)
        return -1;
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    tmpdir_mkdir(dir, "dev");
    tmpdir_mkdir(dir, "schnell");
    bool ok =
        tiny_write_component(tmpdir_join(dir, "dev", path), TINY_DEV, "transformer") == DFX_OK;
    ok = tiny_write_component(tmpdir_join(dir, "schnell", path), TINY_SCHNELL, "transformer") ==
             DFX_OK &&
         ok;
    return ok ? 0 : -1;
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)
#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(flux_every_case_equals_diffusers),
        WITH_MRIG(flux_rope_equals_diffusers_for_text_and_image),
        WITH_MRIG(flux_rope_is_right_far_from_the_corner),
        WITH_MRIG(flux_step_moves_latents_by_dt_times_velocity),
        WITH_MRIG(flux_table_of_all_steps_equals_tables_of_one_step),
        WITH_MRIG(flux_without_guidance_embedder_ignores_guidance),
        WITH_MRIG(flux_step_pages_are_parts_of_blocks),
        IN_TMPDIR(flux_config_of_fill_is_refused),
        IN_TMPDIR(flux_config_with_odd_axes_is_refused),
        IN_TMPDIR(flux_config_of_quantized_folder_is_refused),
    };
    return cmocka_run_group_tests(tests, write_models, tmpdir_teardown);
}
