/* The whole pipeline against diffusers' FluxPipeline on the CPU: from fixed noise and embeddings, from token ids, and in a session
 * from the prompt's text. Weights are those of tests/tiny.h. */
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/golden_pipeline.h"
#include "tests/tiny.h"
#include "tests/tok_support.h"

enum { C = 64, TEXT = 64, POOLED = 64, CLIP_TOKENS = 77, SHORTEST = 4 };

static void pipeline_of_dev_equals_diffusers(void **state) {
    golden_pipeline(*state, &GOLDEN_PIPE_CASES[0]);
}

static void pipeline_of_schnell_equals_diffusers(void **state) {
    golden_pipeline(*state, &GOLDEN_PIPE_CASES[1]);
}

/* Their batch of two is our two pictures. */
static void pipeline_of_each_picture_of_a_batch_equals_diffusers(void **state) {
    golden_pipeline(*state, &GOLDEN_PIPE_CASES[2]);
}

/* The others are drawn from their text, below. */
static void pipeline_of_token_ids_equals_diffusers(void **state) {
    for (size_t i = 0; i < GOLDEN_N_PIPE_CASES; i++)
        if (GOLDEN_PIPE_CASES[i].prompt)
            golden_pipeline_of_ids(*state, &GOLDEN_PIPE_CASES[i], i == SHORTEST);
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
    same_ids(&clip, picture_golden_ids(p, "clip_ids", CLIP_TOKENS), CLIP_TOKENS);
    same_ids(&t5, picture_golden_ids(p, "t5_ids", p->c->n_text), p->c->n_text);
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
    assert_int_equal(dfx_session_upload_sigmas(m, p->c->n_steps, 0), DFX_OK);
    run(m, DFX_PROGRAM_COND, 0,
        (void *[]){s->t5_out, pooled, s->sigmas, s->guidance, s->txt, s->mod});
    memcpy(s->x[0], picture_first_latents(p), (size_t)(p->Ti * C) * sizeof(float));
    for (int i = 0; i < p->c->n_steps; i++) {
        float *mod = (float *)s->mod + i * dfx_flux_mod_cols(&m->parts.configs.flux);
        run(m, DFX_PROGRAM_STEP, i,
            (void *[]){s->x[0], s->txt, mod, s->cos, s->sin, s->dt + i, s->v[0]});
        picture_check_step(p, i, s->v[0], s->x[0]);
    }
    run(m, DFX_PROGRAM_DECODE, 0, (void *[]){s->x[0], s->rgb});
    dfx_feed_end(m->session.feed);
    picture_check(p, s->rgb);
}

static void session_of_prompt_text_equals_diffusers(void **state) {
    model_rig *r = *state;
    char path[TMPDIR_PATH];
    if (!dfx_file_exists(tmpdir_join(r->dir, "dev/tokenizer/vocab.json", path)))
        skip();
    for (size_t i = 0; i < GOLDEN_N_PIPE_CASES; i++) {
        const pipe_case *c = &GOLDEN_PIPE_CASES[i];
        if (!c->prompt)
            continue;
        picture p = picture_begin(r, c);
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
