/* See golden_flux.h. */
#include "tests/golden_flux.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/tiny.h"

enum { D = 256, H = 2, E = 128, F = 4 * D, C = 64, TEXT = 64, POOLED = 64 };
static const double TOLERANCE = 1e-4;

const flux_case GOLDEN_FLUX_CASES[GOLDEN_N_FLUX_CASES] = {
    {"sq", "dev/transformer", 4, 4, 12, 1, true, NULL, NULL},
    {"ns", "dev/transformer", 3, 5, 7, 1, true, NULL, NULL},
    {"big", "dev/transformer", 8, 12, 33, 1, false, NULL, NULL},
    {"b2", "dev/transformer", 4, 4, 12, 2, false, NULL, NULL},
    {"schnell_sq", "schnell/transformer", 4, 4, 12, 1, true, NULL, NULL},
    {"schnell_ns", "schnell/transformer", 5, 2, 9, 1, false, NULL, NULL},
};

const float *flux_in(const flux_run *f, const char *name, int64_t n_a_row, int64_t row) {
    const flux_case *c = f->c;
    int64_t n = c->batch * n_a_row;
    const float *all = c->file ? mrig_golden(f->r, c->file, n, "%s.%s", c->inputs, name)
                               : mrig_golden(f->r, "flux", n, "%s.in.%s", c->name, name);
    return all + row * n_a_row;
}

const float *flux_mid(const flux_run *f, const char *name, int64_t n) {
    return mrig_golden(f->r, "flux", n, "%s.mid.%s", f->c->name, name);
}

flux_run flux_begin(model_rig *r, const flux_case *c) {
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

void flux_run_cond(flux_run *f, int64_t row) {
    dfx_program program;
    float sigma = flux_in(f, "timestep", 1, row)[0];
    float guidance = f->config.has_guidance ? flux_in(f, "guidance", 1, row)[0] : 1e9f;
    assert_int_equal(dfx_flux_build_cond(&f->config, &f->env, f->Tt, 1, &program), DFX_OK);
    mrig_run(f->r, &program,
             (void *[]){(void *)flux_in(f, "encoder_hidden_states", f->Tt * TEXT, row),
                        (void *)flux_in(f, "pooled_projections", POOLED, row), &sigma, &guidance,
                        f->txt, f->mod});
    dfx_program_fini(&program);
}

void flux_run_step(flux_run *f, int64_t row, float dt) {
    dfx_program program;
    assert_int_equal(dfx_flux_build_step(&f->config, &f->env, f->Tt, f->Ti, &program), DFX_OK);
    memcpy(f->x, flux_in(f, "hidden_states", f->Ti * C, row), (size_t)(f->Ti * C) * sizeof(float));
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
    same(f, label, flux_mid(f, golden, T * D), T, D);
}

/* diffusers has one sinusoid layer for both, and the golden is of its last call: guidance, where there is one. */
static void check_cond(const flux_run *f) {
    bool guidance = f->config.has_guidance;
    same(f, guidance ? "time_text_embed.guidance_proj" : "time_text_embed.time_proj",
         flux_mid(f, "time_proj", D), 1, D);
    same(f, "time_text_embed.timestep_embedder.linear_2", flux_mid(f, "timestep_emb", D), 1, D);
    if (guidance)
        same(f, "time_text_embed.guidance_embedder.linear_2", flux_mid(f, "guidance_emb", D), 1, D);
    same(f, "time_text_embed.text_embedder.linear_2", flux_mid(f, "text_emb", D), 1, D);
    same(f, "time_text_embed.add_text", flux_mid(f, "temb", D), 1, D);
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
            mrig_same(f->r, golden, y->values + (ptrdiff_t)(k + 1) * D, flux_mid(f, golden, D), D,
                      TOLERANCE);
        }
    const op_output *y = mrig_output(f->r, "single_transformer_blocks.0.norm.linear");
    mrig_same(f->r, "single0.norm.1", y->values + (ptrdiff_t)2 * D,
              flux_mid(f, "single0.norm.1", D), D, TOLERANCE);
}

/* The golden of an RMSNorm'd q or k is from before RoPE: rotate it with diffusers' tables, whose columns 2m and 2m + 1
 * are equal. */
static const float *rotated(const flux_run *f, const char *golden) {
    int64_t L = f->Ti + f->Tt;
    const float *x = flux_mid(f, golden, f->Ti * D), *cos = flux_mid(f, "rope.0", L * E),
                *sin = flux_mid(f, "rope.1", L * E);
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
    const float *x = flux_mid(f, image ? "img_in" : "txt_in", T * D);
    const float *attn = flux_mid(f, image ? "double0.attn.0" : "double0.attn.1", T * D);
    const float *ff = flux_mid(f, image ? "double0.ff" : "double0.ff_context", T * D);
    const float *gate1 = flux_mid(f, image ? "double0.norm1.1" : "double0.norm1_context.1", D);
    const float *gate2 = flux_mid(f, image ? "double0.norm1.4" : "double0.norm1_context.4", D);
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
    memcpy(y, flux_mid(f, text, f->Tt * D), (size_t)(f->Tt * D) * sizeof(*y));
    memcpy(y + f->Tt * D, flux_mid(f, image, f->Ti * D), (size_t)(f->Ti * D) * sizeof(*y));
    return y;
}

static void check_single0(const flux_run *f) {
    int64_t L = f->Ti + f->Tt;
    same_rows(f, "single_transformer_blocks.0.norm", "single0.norm.0", L);
    same_rows(f, "single_transformer_blocks.0.attn", "single0.attn", L);
    same(f, "single_transformer_blocks.0.proj_mlp", flux_mid(f, "single0.act_mlp", L * F), L, F);
    same(f, "single_transformer_blocks.0.proj_mlp",
         gelu(f, flux_mid(f, "single0.proj_mlp", L * F), L * F), L, F);
    const float *h = joined(f, "double.1.0", "double.1.1"),
                *gate = flux_mid(f, "single0.norm.1", D);
    same(f, "single_transformer_blocks.0.proj_out",
         gated(f, h, gate, flux_mid(f, "single0.proj_out", L * D), L), L, D);
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
        if (i + 1 < f->config.n_single)
            same(f, label, joined(f, text, image), L, D);
        else /* the text's rows are nobody's any more */
            same_rows(f, label, image, f->Ti);
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

void golden_flux(model_rig *r, const flux_case *c) {
    flux_run f = flux_begin(r, c);
    for (int64_t row = 0; row < c->batch; row++) {
        flux_run_cond(&f, row);
        if (c->taps) {
            check_cond(&f);
            check_table(&f);
        }
        flux_run_step(&f, row, 0);
        if (c->taps)
            check_step(&f);
        const float *want = mrig_golden(r, "flux", c->batch * f.Ti * C, "%s.out", c->name);
        mrig_same(r, c->name, f.v, want + row * f.Ti * C, f.Ti * C, TOLERANCE);
    }
}

int golden_flux_setup(void **state) {
    char path[TMPDIR_PATH];
    if (tmpdir_setup(state) != 0)
        return -1;
    tmpdir *dir = *state;
    tmpdir_mkdir(dir, "dev");
    tmpdir_mkdir(dir, "schnell");
    bool ok =
        tiny_write_component(tmpdir_join(dir, "dev", path), TINY_DEV, "transformer") == DFX_OK;
    ok = tiny_write_component(tmpdir_join(dir, "schnell", path), TINY_SCHNELL, "transformer") ==
             DFX_OK &&
         ok;
    return ok ? 0 : -1;
}
