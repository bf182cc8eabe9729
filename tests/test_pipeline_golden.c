/* The whole pipeline against diffusers' FluxPipeline: fixed noise and embeddings, or token ids, or the prompt's text; the
 * velocity and the latents of every step, the picture. Weights are those of tests/tiny.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/image.h"
#include "models/model.h"
#include "tests/model_rig.h"
#include "tests/tiny.h"
#include "tests/tok_support.h"

enum { C = 64, Z = 16, TEXT = 64, POOLED = 64, RGB = 3, CLIP_TOKENS = 77, STEPS_MAX = 4 };
/* Relative; the sampler amplifies what the steps leave: 5e-4 is a tenth of what bf16 differs by. */
static const double TOLERANCE = 5e-4;

typedef struct pipe_case {
    const char *file, *name, *variant;
    int64_t h, w; /* latents */
    int64_t n_text, batch;
    int n_steps;
    float guidance;
    const char *prompt; /* NULL: embeddings only */
} pipe_case;

/* The second prompt is this, twelve times. */
#define CAFE "caf\xC3\xA9 \xF0\x9F\x90\xB1, it's 8k "

static const pipe_case CASES[] = {
    {"pipeline", "dev", "dev", 12, 16, 32, 1, 4, 3.5f, NULL},
    {"pipeline", "schnell", "schnell", 16, 8, 24, 1, 4, 0, NULL},
    {"pipeline", "dev_b2", "dev", 8, 8, 16, 2, 2, 2.0f, NULL},
    {"e2e", "e2e0", "dev", 12, 16, 64, 1, 4, 3.5f, "A cat holding a sign that says hello world"},
    {"e2e", "e2e1", "schnell", 8, 8, 48, 1, 2, 0,
     CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE CAFE},
    {"e2e", "e2e2", "dev", 8, 10, 512, 1, 3, 2.5f, ""},
};

enum { SHORTEST = 4 };

/* One picture of a case. */
typedef struct picture {
    model_rig *r;
    const pipe_case *c;
    int64_t row, Ti;
    dfx_flux_config flux;
    dfx_vae_config vae;
    dfx_build_env env, vae_env;
    float sigmas[STEPS_MAX + 1];
} picture;

static const float *golden(const picture *p, const char *what, int64_t n) {
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

static picture begin(model_rig *r, const pipe_case *c) {
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

static void check_step(const picture *p, int step, const float *v, const float *x) {
    char name[16];
    snprintf(name, sizeof(name), "v%d", step);
    mrig_same(p->r, name, v, golden(p, name, p->Ti * C), p->Ti * C, TOLERANCE);
    snprintf(name, sizeof(name), "x%d", step + 1);
    mrig_same(p->r, name, x, golden(p, name, p->Ti * C), p->Ti * C, TOLERANCE);
}

static float *first_latents(const picture *p) {
    const float *noise = golden(p, "in.noise", Z * p->c->h * p->c->w);
    return mrig_pack(p->r, noise, Z, p->c->h, p->c->w, 0, 1);
}

/* Latents of the last step. */
static float *denoise(picture *p, const float *text, const float *pooled) {
    const pipe_case *c = p->c;
    int64_t n = (c->n_text + p->Ti) * (p->flux.head_size / 2);
    float *cos = mrig_floats(p->r, n), *sin = mrig_floats(p->r, n),
          *txt = mrig_floats(p->r, c->n_text * p->flux.width), *v = mrig_floats(p->r, p->Ti * C);
    float *mod = make_table(p, text, pooled, txt), *x = first_latents(p);
    dfx_program program;
    dfx_flux_rope(&p->flux, c->n_text, c->h / 2, c->w / 2, cos, sin);
    assert_int_equal(dfx_flux_build_step(&p->flux, &p->env, c->n_text, p->Ti, &program), DFX_OK);
    for (int i = 0; i < c->n_steps; i++) {
        float dt = p->sigmas[i + 1] - p->sigmas[i];
        mrig_run(p->r, &program,
                 (void *[]){x, txt, mod + i * dfx_flux_mod_cols(&p->flux), cos, sin, &dt, v});
        check_step(p, i, v, x);
    }
    dfx_program_fini(&program);
    return x;
}

static void check_picture(const picture *p, const float *rgb) {
    int64_t n = RGB * p->c->h * 8 * p->c->w * 8;
    mrig_same(p->r, "image", rgb, mrig_channels_last(p->r, golden(p, "image", n), RGB, n / RGB), n,
              TOLERANCE);
    dfx_image image = {.width = (int)p->c->w * 8, .height = (int)p->c->h * 8};
    assert_int_equal(dfx_image_pixels(&image, rgb, &p->r->sink), DFX_OK);
    mrig_same_pixels(image.rgb, golden(p, "image_u8", n), (size_t)n);
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
    mrig_same_output(p->r, "unpack", mrig_channels_last(p->r, golden(p, "vae_in", Z * n_z), Z, n_z),
                     n_z, Z, TOLERANCE);
    check_picture(p, rgb);
}

/* Velocities, latents and picture of case i. */
static void draw_from_embeddings(model_rig *r, size_t i) {
    const pipe_case *c = &CASES[i];
    picture p = begin(r, c);
    for (p.row = 0; p.row < c->batch; p.row++)
        decode(&p, denoise(&p, golden(&p, "in.prompt_embeds", c->n_text * TEXT),
                           golden(&p, "in.pooled", POOLED)));
}

static void pipeline_of_dev_equals_diffusers(void **state) {
    draw_from_embeddings(*state, 0);
}

static void pipeline_of_schnell_equals_diffusers(void **state) {
    draw_from_embeddings(*state, 1);
}

/* Their batch of two is our two pictures. */
static void pipeline_of_each_picture_of_a_batch_equals_diffusers(void **state) {
    draw_from_embeddings(*state, 2);
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

static int32_t *golden_ids(const picture *p, const char *what, int64_t n) {
    char name[32];
    snprintf(name, sizeof(name), "%s.%s", p->c->name, what);
    return mrig_golden_ids(p->r, p->c->file, n, name);
}

static void pipeline_of_token_ids_equals_diffusers(void **state) {
    model_rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(CASES); i++) {
        const pipe_case *c = &CASES[i];
        if (!c->prompt)
            continue;
        picture p = begin(r, c);
        int32_t *ids = golden_ids(&p, "clip_ids", CLIP_TOKENS);
        float *hidden = run_clip(&p, ids);
        int64_t n = CLIP_TOKENS * POOLED;
        mrig_same(r, "clip_hidden", hidden, golden(&p, "clip_hidden", n), n, 1e-5);
        const float *pooled = pooled_of(hidden, ids);
        mrig_same(r, "pooled", pooled, golden(&p, "in.pooled", POOLED), POOLED, 1e-5);
        float *text = run_t5(&p, golden_ids(&p, "t5_ids", c->n_text));
        n = c->n_text * TEXT;
        mrig_same(r, "prompt_embeds", text, golden(&p, "in.prompt_embeds", n), n, 1e-5);
        if (i == SHORTEST) /* the others are drawn from their text, below */
            decode(&p, denoise(&p, text, pooled));
    }
}

static void same_ids(const dfx_tokens *got, const int32_t *want, int64_t n) {
    assert_memory_equal(got->ids, want, (size_t)n * sizeof(*want));
}

static void upload_embedded(const picture *p, const dfx_program *tables, bool with_position,
                            const dfx_tokens *tokens, int64_t n, int64_t width, void *dst) {
    const float *x = mrig_embed(p->r, tables, with_position, tokens->ids, n, width);
    memcpy(dst, x, (size_t)(n * width) * sizeof(*x));
}

/* What the model's own tokenizers make of the prompt, embedded, to the device. Returns the pooled row. */
static int64_t upload_tokens(const picture *p, dfx_model *m) {
    dfx_tokens clip, t5;
    size_t bytes = strlen(p->c->prompt);
    dfx_state *s = &m->session.state;
    assert_int_equal(
        dfx_tok_clip_encode(m->parts.tok_clip, p->c->prompt, bytes, CLIP_TOKENS, &m->sink, &clip),
        DFX_OK);
    assert_int_equal(dfx_tok_t5_encode(m->parts.tok_t5, p->c->prompt, bytes, (size_t)p->c->n_text,
                                       &m->sink, &t5),
                     DFX_OK);
    same_ids(&clip, golden_ids(p, "clip_ids", CLIP_TOKENS), CLIP_TOKENS);
    same_ids(&t5, golden_ids(p, "t5_ids", p->c->n_text), p->c->n_text);
    upload_embedded(p, &m->clip_table, true, &clip, CLIP_TOKENS, POOLED, s->clip_x);
    upload_embedded(p, &m->t5_table, false, &t5, p->c->n_text, TEXT, s->t5_x);
    int64_t row = 0;
    while (clip.ids[row] != clip.ids[CLIP_TOKENS - 1])
        row++;
    dfx_tokens_free(&clip);
    dfx_tokens_free(&t5);
    return row;
}

static void run(dfx_model *m, dfx_program_id id, int step, void *const *externs) {
    assert_int_equal(dfx_session_run(m, id, step, externs), DFX_OK);
}

/* The five programs as the session holds them, in its own memory, with pages from its feed. */
static void draw_in_session(const picture *p, dfx_model *m) {
    dfx_state *s = &m->session.state;
    float *pooled = (float *)s->clip_out + upload_tokens(p, m) * POOLED;
    assert_int_equal(dfx_feed_begin(m->session.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
    run(m, DFX_PROGRAM_CLIP, 0, (void *[]){s->clip_x, s->clip_out});
    run(m, DFX_PROGRAM_T5, 0, (void *[]){s->t5_x, s->t5_out});
    *s->guidance = p->c->guidance;
    assert_int_equal(dfx_session_upload_sigmas(m, p->c->n_steps), DFX_OK);
    run(m, DFX_PROGRAM_COND, 0,
        (void *[]){s->t5_out, pooled, s->sigmas, s->guidance, s->txt, s->mod});
    memcpy(s->x[0], first_latents(p), (size_t)(p->Ti * C) * sizeof(float));
    for (int i = 0; i < p->c->n_steps; i++) {
        float *mod = (float *)s->mod + i * dfx_flux_mod_cols(&m->parts.configs.flux);
        run(m, DFX_PROGRAM_STEP, i,
            (void *[]){s->x[0], s->txt, mod, s->cos, s->sin, s->dt + i, s->v[0]});
        check_step(p, i, s->v[0], s->x[0]);
    }
    run(m, DFX_PROGRAM_DECODE, 0, (void *[]){s->x[0], s->rgb});
    dfx_feed_end(m->session.feed);
    check_picture(p, s->rgb);
}

static void session_of_prompt_text_equals_diffusers(void **state) {
    model_rig *r = *state;
    char path[TMPDIR_PATH];
    if (!dfx_file_exists(tmpdir_join(r->dir, "dev/tokenizer/vocab.json", path)))
        skip();
    for (size_t i = 0; i < DFX_COUNT(CASES); i++) {
        const pipe_case *c = &CASES[i];
        if (!c->prompt)
            continue;
        picture p = begin(r, c);
        dfx_model *m;
        dfx_open_options options = {.model_path = tmpdir_join(r->dir, c->variant, path),
                                    .device = DFX_DEVICE_CPU,
                                    .n_threads = 2,
                                    .sink = r->sink};
        assert_int_equal(dfx_model_open(&options, &m), DFX_OK);
        dfx_shape shape = {.width = c->w * 8,
                           .height = c->h * 8,
                           .n_text = c->n_text,
                           .n_steps = c->n_steps,
                           .n_pictures = 1};
        assert_int_equal(dfx_session_begin(m, &shape), DFX_OK);
        draw_in_session(&p, m);
        dfx_model_close(m);
    }
}

static int write_models(void **state) {
    if (tmpdir_setup(state) != 0)
        return -1;
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    setenv("XDG_CACHE_HOME", tmpdir_join(dir, "cache", path), 1);
    static const char *const names[] = {[TINY_DEV] = "dev", [TINY_SCHNELL] = "schnell"};
    for (int i = TINY_DEV; i <= TINY_SCHNELL; i++) {
        tmpdir_mkdir(dir, names[i]);
        tmpdir_join(dir, names[i], path);
        if (tiny_write_model(path, (tiny_variant)i) != DFX_OK)
            return -1;
        tiny_link_tokenizers(path);
    }
    return 0;
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(pipeline_of_dev_equals_diffusers),
        WITH_MRIG(pipeline_of_schnell_equals_diffusers),
        WITH_MRIG(pipeline_of_each_picture_of_a_batch_equals_diffusers),
        WITH_MRIG(pipeline_of_token_ids_equals_diffusers),
        WITH_MRIG(session_of_prompt_text_equals_diffusers),
    };
    return cmocka_run_group_tests(tests, write_models, tmpdir_teardown);
}
