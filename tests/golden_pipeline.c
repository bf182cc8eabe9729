/* See golden_pipeline.h. */
#include "tests/golden_pipeline.h"

#include <stdio.h>
#include <string.h>

#include "models/clip.h"
#include "models/image.h"
#include "models/t5.h"

enum { C = 64, Z = 16, TEXT = 64, POOLED = 64, RGB = 3, CLIP_TOKENS = 77 };
/* Relative; the sampler amplifies what the steps leave: 5e-4 is a tenth of what bf16 differs by. */
static const double TOLERANCE = 5e-4;

/* The second prompt is this, twelve times. */
#define CAFE "caf\xC3\xA9 \xF0\x9F\x90\xB1, it's 8k "

const pipe_case GOLDEN_PIPE_CASES[GOLDEN_N_PIPE_CASES] = {
    {"pipeline", "dev", "dev", 12, 16, 32, 1, 4, 3.5f, NULL},
    {"pipeline", "schnell", "schnell", 16, 8, 24, 1, 4, 0, NULL},
    {"pipeline", "dev_b2", "dev", 8, 8, 16, 2, 2, 2.0f, NULL},
    {"e2e", "e2e0", "dev", 12, 16, 64, 1, 4, 3.5f, "A cat holding a sign that says hello world"},
    {"e2e", "e2e1", "schnell", 8, 8, 48, 1, 2, 0,
     CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE},
    {"e2e", "e2e2", "dev", 8, 10, 512, 1, 3, 2.5f, ""},
};

const float *picture_golden(const picture *p, const char *what, int64_t n) {
    const float *all = mrig_golden(p->r, p->c->file, p->c->batch * n, "%s.%s", p->c->name, what);
    return all + p->row * n;
}

/* The variant's folder: dev or schnell. */
static const char *model_folder(const picture *p, char path[TMPDIR_PATH]) {
    return tmpdir_join(p->r->dir, p->c->variant, path);
}

/* What the programs of one of its folders are built from. */
static dfx_build_env part(const picture *p, const char *folder, const char *stem) {
    char path[TMPDIR_PATH];
    snprintf(path, sizeof(path), "%s/%s", p->c->variant, folder);
    return mrig_env(p->r, mrig_open(p->r, path, stem));
}

picture picture_begin(model_rig *r, const pipe_case *c) {
    picture p = {.r = r, .c = c, .Ti = c->h / 2 * (c->w / 2)};
    char path[TMPDIR_PATH];
    dfx_sigma_config sigmas;
    dfx_bundle bundle = folder_bundle(model_folder(&p, path));
    assert_int_equal(dfx_flux_config_load(&bundle, "transformer", &r->sink, &p.flux), DFX_OK);
    assert_int_equal(dfx_vae_config_load(&bundle, "vae", &r->sink, &p.vae), DFX_OK);
    assert_int_equal(dfx_sigma_config_load(&bundle, "scheduler", &r->sink, &sigmas), DFX_OK);
    p.env = part(&p, "transformer", "diffusion_pytorch_model");
    p.vae_env = part(&p, "vae", "diffusion_pytorch_model");
    dfx_sigmas_make(&sigmas, p.Ti, c->n_steps, p.sigmas);
    const float *want = mrig_golden(r, c->file, c->n_steps + 1, "%s.sigmas", c->name);
    mrig_same(r, "sigmas", p.sigmas, want, c->n_steps + 1, 1e-7);
    return p;
}

static float *make_table(picture *p, const float *text, const float *pooled, float *txt) {
    float *mod = mrig_floats(p->r, p->c->n_steps * dfx_flux_mod_cols(&p->flux));
    float guidance = p->c->guidance;
    dfx_program program;
    assert_int_equal(dfx_flux_build_cond(&p->flux, &p->env, p->c->n_text, p->c->n_steps, &program),
                     DFX_OK);
    mrig_run(p->r, &program,
             (void *[]){(void *)text, (void *)pooled, p->sigmas, &guidance, txt, mod});
    dfx_program_fini(&program);
    return mod;
}

void picture_check_step(const picture *p, int step, const float *v, const float *x) {
    char name[16];
    snprintf(name, sizeof(name), "v%d", step);
    mrig_same(p->r, name, v, picture_golden(p, name, p->Ti * C), p->Ti * C, TOLERANCE);
    snprintf(name, sizeof(name), "x%d", step + 1);
    mrig_same(p->r, name, x, picture_golden(p, name, p->Ti * C), p->Ti * C, TOLERANCE);
}

float *picture_first_latents(const picture *p) {
    const float *noise = picture_golden(p, "in.noise", Z * p->c->h * p->c->w);
    return mrig_pack(p->r, noise, Z, p->c->h, p->c->w, 0, 1);
}

/* Latents of the last step. */
static float *denoise(picture *p, const float *text, const float *pooled) {
    const pipe_case *c = p->c;
    int64_t n = (c->n_text + p->Ti) * (p->flux.head_size / 2);
    float *cos = mrig_floats(p->r, n), *sin = mrig_floats(p->r, n),
          *txt = mrig_floats(p->r, c->n_text * p->flux.width), *v = mrig_floats(p->r, p->Ti * C);
    float *mod = make_table(p, text, pooled, txt), *x = picture_first_latents(p);
    dfx_program program;
    dfx_flux_rope(&p->flux, c->n_text, c->h / 2, c->w / 2, cos, sin);
    assert_int_equal(dfx_flux_build_step(&p->flux, &p->env, c->n_text, p->Ti, &program), DFX_OK);
    for (int i = 0; i < c->n_steps; i++) {
        float dt = p->sigmas[i + 1] - p->sigmas[i];
        mrig_run(p->r, &program,
                 (void *[]){x, txt, mod + i * dfx_flux_mod_cols(&p->flux), cos, sin, &dt, v});
        picture_check_step(p, i, v, x);
    }
    dfx_program_fini(&program);
    return x;
}

void picture_check(const picture *p, const float *rgb) {
    int64_t n = RGB * p->c->h * 8 * p->c->w * 8;
    mrig_same(p->r, "image", rgb,
              mrig_channels_last(p->r, picture_golden(p, "image", n), RGB, n / RGB), n, TOLERANCE);
    if (!mrig_is_f32(p->r))
        return;
    dfx_image image = {.width = (int)p->c->w * 8, .height = (int)p->c->h * 8};
    assert_int_equal(dfx_image_pixels(&image, rgb, &p->r->sink), DFX_OK);
    mrig_same_pixels(image.rgb, picture_golden(p, "image_u8", n), (size_t)n);
    dfx_image_free(&image);
}

static void decode(const picture *p, float *x) {
    int64_t n_z = p->c->h * p->c->w;
    float *rgb = mrig_floats(p->r, RGB * n_z * 64);
    dfx_program program;
    assert_int_equal(dfx_vae_build_decoder(&p->vae, &p->vae_env, p->c->h, p->c->w, &program),
                     DFX_OK);
    mrig_run(p->r, &program, (void *[]){x, rgb});
    dfx_program_fini(&program);
    mrig_same_output(p->r, "unpack",
                     mrig_channels_last(p->r, picture_golden(p, "vae_in", Z * n_z), Z, n_z), n_z, Z,
                     TOLERANCE);
    picture_check(p, rgb);
}

void golden_pipeline(model_rig *r, const pipe_case *c) {
    picture p = picture_begin(r, c);
    for (p.row = 0; p.row < c->batch; p.row++)
        decode(&p, denoise(&p, picture_golden(&p, "in.prompt_embeds", c->n_text * TEXT),
                           picture_golden(&p, "in.pooled", POOLED)));
}

/* The row of the first end token, which pads as well. */
static const float *pooled_of(const float *hidden, const int32_t *ids) {
    int64_t row = 0;
    while (ids[row] != ids[CLIP_TOKENS - 1])
        row++;
    return hidden + row * POOLED;
}

static float *run_clip(picture *p, const int32_t *ids) {
    char path[TMPDIR_PATH];
    dfx_clip_config c;
    dfx_program table, program;
    float *out = mrig_floats(p->r, CLIP_TOKENS * POOLED);
    dfx_bundle bundle = folder_bundle(model_folder(p, path));
    dfx_build_env env = part(p, "text_encoder", "model");
    assert_int_equal(dfx_clip_config_load(&bundle, "text_encoder", &p->r->sink, &c), DFX_OK);
    assert_int_equal(dfx_clip_build_table(&c, &env, &table), DFX_OK);
    assert_int_equal(dfx_clip_build(&c, &env, CLIP_TOKENS, &program), DFX_OK);
    float *x = mrig_embed(p->r, &table, true, ids, CLIP_TOKENS, POOLED);
    mrig_run(p->r, &program, (void *[]){x, out});
    dfx_program_fini(&table);
    dfx_program_fini(&program);
    return out;
}

static float *run_t5(picture *p, const int32_t *ids) {
    char path[TMPDIR_PATH];
    dfx_t5_config c;
    dfx_program table, program;
    float *out = mrig_floats(p->r, p->c->n_text * TEXT);
    dfx_bundle bundle = folder_bundle(model_folder(p, path));
    dfx_build_env env = part(p, "text_encoder_2", "model");
    assert_int_equal(dfx_t5_config_load(&bundle, "text_encoder_2", &p->r->sink, &c), DFX_OK);
    assert_int_equal(dfx_t5_build_table(&c, &env, &table), DFX_OK);
    assert_int_equal(dfx_t5_build(&c, &env, p->c->n_text, &program), DFX_OK);
    float *x = mrig_embed(p->r, &table, false, ids, p->c->n_text, TEXT);
    mrig_run(p->r, &program, (void *[]){x, out});
    dfx_program_fini(&table);
    dfx_program_fini(&program);
    return out;
}

int32_t *picture_golden_ids(const picture *p, const char *what, int64_t n) {
    char name[32];
    snprintf(name, sizeof(name), "%s.%s", p->c->name, what);
    return mrig_golden_ids(p->r, p->c->file, n, name);
}

void golden_pipeline_of_ids(model_rig *r, const pipe_case *c, bool draw) {
    picture p = picture_begin(r, c);
    int32_t *ids = picture_golden_ids(&p, "clip_ids", CLIP_TOKENS);
    float *hidden = run_clip(&p, ids);
    int64_t n = CLIP_TOKENS * POOLED;
    mrig_same(r, "clip_hidden", hidden, picture_golden(&p, "clip_hidden", n), n, 1e-5);
    const float *pooled = pooled_of(hidden, ids);
    mrig_same(r, "pooled", pooled, picture_golden(&p, "in.pooled", POOLED), POOLED, 1e-5);
    float *text = run_t5(&p, picture_golden_ids(&p, "t5_ids", c->n_text));
    n = c->n_text * TEXT;
    mrig_same(r, "prompt_embeds", text, picture_golden(&p, "in.prompt_embeds", n), n, 1e-5);
    if (draw)
        decode(&p, denoise(&p, text, pooled));
}
