/* Pictures through the public calls: the same bytes whatever came before, cancelling, refusals, damaged weights. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/draw_rig.h"
#include "tests/tiny.h"

static void generate_twice_gives_same_bytes(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 7);
    dfx_image first = draw(r, &request), again = draw(r, &request);
    draw_same(&first, &again);
    dfx_image_free(&again);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image other_model = draw(r, &request);
    draw_same(&first, &other_model);
    dfx_image_free(&other_model);
    dfx_image_free(&first);
}

/* What the text encoders and the table left behind is used again, and must not show. */
static void generate_second_seed_equals_that_seed_alone(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request one = draw_request(r, 1), two = draw_request(r, 2);
    dfx_image first = draw(r, &one), after = draw(r, &two);
    assert_true(after.stage_seconds[DFX_STAGE_TEXT] == 0);
    draw_differ(&first, &after);
    draw_open(r, DRAW_SCENES, 0);
    dfx_image alone = draw(r, &two);
    assert_true(alone.stage_seconds[DFX_STAGE_TEXT] > 0);
    draw_same(&after, &alone);
    dfx_image_free(&first);
    dfx_image_free(&after);
    dfx_image_free(&alone);
}

static void generate_after_other_prompt_and_size_equals_fresh(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = draw_request(r, 3), other = usual, wide = usual, longer = usual;
    other.prompt = "a green triangle";
    wide.width = 64;
    longer.text_length = 8;
    dfx_image fresh = draw(r, &usual);
    dfx_request *between[] = {&other, &wide, &longer};
    for (size_t i = 0; i < DFX_COUNT(between); i++) {
        dfx_image changed = draw(r, between[i]), again = draw(r, &usual);
        if (changed.width == fresh.width)
            draw_differ(&fresh, &changed);
        draw_same(&fresh, &again);
        dfx_image_free(&changed);
        dfx_image_free(&again);
    }
    dfx_image_free(&fresh);
}

static void generate_with_one_thread_equals_two_threads(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 5);
    request.width = 48;
    dfx_image two = draw(r, &request);
    r->n_threads = 1;
    draw_open(r, DRAW_SCENES, 0);
    dfx_image one = draw(r, &request);
    draw_same(&one, &two);
    dfx_image_free(&one);
    dfx_image_free(&two);
}

/* Of a seed the low 32 bits count, as in torch. */
static void generate_uses_low_bits_of_seed(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request low = draw_request(r, 9), high = draw_request(r, 9 + (UINT64_C(5) << 32));
    dfx_image a = draw(r, &low), b = draw(r, &high);
    draw_same(&a, &b);
    dfx_image_free(&a);
    dfx_image_free(&b);
}

/* Looking at another size plans it, and leaves what is there: neither text nor weights come again. */
static void look_at_other_requests_leaves_the_session(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = draw_request(r, 3), wide = usual, long_text = usual;
    wide.width = 64;
    long_text.text_length = 100000;
    dfx_image want = draw(r, &usual);
    assert_int_equal(dfx_request_look(r->model, &usual, 1), DFX_OK);
    assert_int_equal(dfx_request_look(r->model, &wide, 1), DFX_OK);
    assert_int_equal(dfx_request_look(r->model, &wide, 1), DFX_OK); /* from what was found out */
    assert_int_equal(dfx_request_look(r->model, &long_text, 1), DFX_E_USAGE);
    assert_int_equal(dfx_request_look(r->model, &usual, 0), DFX_E_USAGE);
    dfx_image after = draw(r, &usual);
    draw_same(&want, &after);
    assert_true(after.stage_seconds[DFX_STAGE_TEXT] == 0);
    assert_true(after.read_bytes < want.read_bytes);
    dfx_image_free(&want);
    dfx_image_free(&after);
}

/* What does not fit is told, with the budget that check would tell. */
static void look_at_what_does_not_fit_is_refused(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    draw_open(r, DRAW_SCENES, 1);
    request = draw_request(r, 3);
    assert_int_equal(dfx_request_look(r->model, &request, 1), DFX_E_NOFIT);
    said_error(r->log, "--vram-budget ");
    size_t n = r->log->n_messages;
    assert_int_equal(dfx_request_check(r->model, &request), DFX_E_NOFIT);
    assert_string_equal(r->log->messages[n].text, r->log->messages[n - 1].text);
}

/* Cancels when a stage has begun. */
typedef struct stopper {
    int stage; /* -1: before anything */
    bool stop;
    bool seen[DFX_N_STAGES];
} stopper;

static void on_progress(void *user, const dfx_progress *p) {
    stopper *s = user;
    s->seen[p->stage] = true;
    if ((int)p->stage == s->stage)
        s->stop = true;
}

static bool is_cancelled(void *user) {
    return ((stopper *)user)->stop;
}

static void generate_cancelled_at_any_stage_leaves_model_usable(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = draw_request(r, 11);
    dfx_image want = draw(r, &usual);
    for (int stage = -1; stage < DFX_N_STAGES; stage++) {
        if (stage == DFX_STAGE_ENCODE) /* of an init picture: tests/test_init.c */
            continue;
        stopper s = {.stage = stage, .stop = stage < 0};
        dfx_request request = usual;
        request.progress = on_progress;
        request.cancelled = is_cancelled;
        request.user = &s;
        draw_open(r, DRAW_SCENES, 0);
        dfx_image image = {0};
        assert_int_equal(dfx_generate(r->model, &request, &image), DFX_E_CANCELLED);
        assert_null(image.rgb);
        for (int later = stage + 1; stage >= 0 && later < DFX_N_STAGES; later++)
            assert_false(s.seen[later]);
        said_nothing(r->log, DFX_ERROR);
        dfx_image again = draw(r, &usual);
        draw_same(&want, &again);
        dfx_image_free(&again);
    }
    dfx_image_free(&want);
}

static void generate_reports_every_stage(void **state) {
    draw_rig *r = *state;
    stopper s = {.stage = -2};
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    request.progress = on_progress;
    request.cancelled = is_cancelled;
    request.user = &s;
    dfx_image image = draw(r, &request);
    for (int i = 0; i < DFX_N_STAGES; i++)
        assert_true(s.seen[i] == (i != DFX_STAGE_ENCODE) &&
                    (image.stage_seconds[i] > 0) == s.seen[i]);
    assert_true(image.width == 32 && image.height == 32 && image.steps == 2 && image.seed == 1);
    assert_non_null(strstr(image.parameters, DRAW_PROMPT "\nSteps: 2, "));
    dfx_image_free(&image);
}

/* The bundled model has no guidance embedder. */
static void generate_without_guidance_embedder_ignores_guidance(void **state) {
    static const float values[] = {0, 1, 30};
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_model_info info;
    dfx_model_describe(r->model, &info);
    assert_false(info.has_guidance);
    dfx_request request = draw_request(r, 13);
    dfx_image want = draw(r, &request);
    assert_true(want.guidance == 0);
    for (size_t i = 0; i < DFX_COUNT(values); i++) {
        request.guidance = values[i];
        draw_open(r, DRAW_SCENES, 0);
        dfx_image image = draw(r, &request);
        draw_same(&want, &image);
        dfx_image_free(&image);
    }
    dfx_image_free(&want);
}

/* A changed field of a good request, and what the one sentence says. */
typedef struct refusal {
    dfx_request request;
    const char *words;
} refusal;

static void generate_refuses_bad_requests_and_goes_on(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = draw_request(r, 17);
    dfx_image want = draw(r, &usual);
    refusal refusals[] = {
        {usual, "width: wanted a whole number from 16"},
        {usual, "width"},
        {usual, "height"},
        {usual, "height: wanted a whole number from 16 to 16384, found 1000000"},
        {usual, "4096x4096"},
        {usual, "steps: wanted a whole number from 1 to 1000, found 0"},
        {usual, "steps"},
        {usual, "steps"},
        {usual, "text length"},
        {usual, "text length"},
        {usual, "guidance"},
        {usual, "guidance"},
        {usual, "guidance"},
        {usual, "prompt"},
    };
    refusals[0].request.width = 15;
    refusals[1].request.width = INT_MAX;
    refusals[2].request.height = -64;
    refusals[3].request.height = 1000000;
    refusals[4].request.width = refusals[4].request.height = 16384;
    refusals[5].request.steps = 0;
    refusals[6].request.steps = -1;
    refusals[7].request.steps = 1001;
    refusals[8].request.text_length = 0;
    refusals[9].request.text_length = 1 << 20;
    refusals[10].request.guidance = NAN;
    refusals[11].request.guidance = INFINITY;
    refusals[12].request.guidance = -1;
    refusals[13].request.prompt = NULL;
    for (size_t i = 0; i < DFX_COUNT(refusals); i++) {
        recorder_clear(r->log);
        assert_int_equal(dfx_request_check(r->model, &refusals[i].request), DFX_E_USAGE);
        said_error(r->log, refusals[i].words);
        draw_fails(r, &refusals[i].request, DFX_E_USAGE, refusals[i].words);
    }
    dfx_image again = draw(r, &usual);
    draw_same(&want, &again);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

/* One token; one row of tokens; a side that is no multiple of 16. */
static void generate_draws_smallest_and_narrow_pictures(void **state) {
    static const int sizes[][4] = {
        {16, 16, 16, 16}, {16, 128, 16, 128}, {128, 16, 128, 16}, {31, 47, 16, 32}};
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        dfx_request request = draw_request(r, 1);
        request.width = sizes[i][0];
        request.height = sizes[i][1];
        request.steps = 1;
        dfx_image image = draw(r, &request);
        assert_true(image.width == sizes[i][2] && image.height == sizes[i][3]);
        assert_int_equal(recorder_has(r->log, DFX_WARN, "rounded down"), i == 3);
        dfx_image_free(&image);
    }
}

static void generate_with_longest_prompt_cuts_and_warns(void **state) {
    draw_rig *r = *state;
    char text[2000] = "";
    for (int i = 0; i < 100; i++)
        strcat(text, "red circle ");
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    request.prompt = text;
    dfx_image image = draw(r, &request);
    said_words(r->log, DFX_WARN, "longer than 4 tokens");
    dfx_image_free(&image);
}

/* Weights are finite, or packing refuses them; a row of the largest of them makes sums that are not. */
static void generate_with_huge_weights_says_numeric(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_poke(r, "transformer/diffusion_pytorch_model.safetensors", "proj_out.weight",
              DRAW_BF16_MAX, 256);
    draw_open(r, path, 0);
    dfx_request request = draw_request(r, 1);
    draw_fails(r, &request, DFX_E_NUMERIC, "after step 1 of 2");
    draw_fails(r, &request, DFX_E_NUMERIC, "after step 1 of 2");
}

static void generate_with_huge_weights_in_decoder_says_numeric(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_poke(r, "vae/diffusion_pytorch_model.safetensors", "decoder.conv_in.weight", DRAW_BF16_MAX,
              144);
    draw_open(r, path, 0);
    dfx_request request = draw_request(r, 1);
    draw_fails(r, &request, DFX_E_NUMERIC, "the decoder");
}

static void generate_with_huge_weights_in_text_encoder_says_numeric(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_poke(r, "text_encoder_2/model.safetensors", "encoder.final_layer_norm.weight",
              DRAW_BF16_MAX, 128);
    draw_open(r, path, 0);
    dfx_request request = draw_request(r, 1);
    draw_fails(r, &request, DFX_E_NUMERIC, "not finite");
}

/* A model of FLUX.1 dev's kind with the real vocabularies: guidance counts, and 0 is a value like others. */
static void generate_of_dev_follows_guidance(void **state) {
    draw_rig *r = *state;
    if (!tiny_link_tokenizers(r->dir->path))
        skip();
    assert_int_equal(tiny_write_model(r->dir->path, TINY_DEV), DFX_OK);
    draw_open(r, r->dir->path, 0);
    dfx_model_info info;
    dfx_model_describe(r->model, &info);
    assert_string_equal(info.kind, "FLUX.1 dev");
    assert_true(info.has_guidance && info.steps == 28 && info.text_length == 512);
    dfx_request usual = draw_request(r, 1), zero = usual;
    assert_true(usual.guidance == 3.5f);
    zero.guidance = 0;
    dfx_image a = draw(r, &usual), b = draw(r, &zero), again = draw(r, &usual);
    draw_differ(&a, &b);
    draw_same(&a, &again);
    assert_true(a.guidance == 3.5f && b.guidance == 0);
    dfx_image_free(&a);
    dfx_image_free(&b);
    dfx_image_free(&again);
}

/* Says yes at the nth question after a stage has begun. */
typedef struct late_stopper {
    bool begun;
    int n_polls, nth;
} late_stopper;

static void on_begin(void *user, const dfx_progress *p) {
    ((late_stopper *)user)->begun |= p->stage == DFX_STAGE_TEXT;
}

static bool is_nth(void *user) {
    late_stopper *s = user;
    return s->begun && ++s->n_polls >= s->nth;
}

/* Half a table of another guidance is no table of the one before. */
static void generate_of_dev_cancelled_in_table_makes_it_anew(void **state) {
    draw_rig *r = *state;
    if (!tiny_link_tokenizers(r->dir->path))
        skip();
    assert_int_equal(tiny_write_model(r->dir->path, TINY_DEV), DFX_OK);
    draw_open(r, r->dir->path, 0);
    dfx_request usual = draw_request(r, 1);
    usual.width = usual.height = 16;
    usual.steps = 1;
    dfx_image want = draw(r, &usual);
    dfx_status status = DFX_E_CANCELLED;
    int n_cancelled = 0;
    for (int nth = 1; status != DFX_OK; nth += 1 + nth / 3, n_cancelled++) {
        late_stopper s = {.nth = nth};
        dfx_request other = usual;
        dfx_image image = {0};
        other.guidance = 9;
        other.progress = on_begin;
        other.cancelled = is_nth;
        other.user = &s;
        status = dfx_generate(r->model, &other, &image);
        assert_true(status == DFX_OK || status == DFX_E_CANCELLED);
        dfx_image_free(&image);
        dfx_image again = draw(r, &usual);
        draw_same(&want, &again);
        dfx_image_free(&again);
    }
    assert_true(n_cancelled > 3);
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(generate_twice_gives_same_bytes),
        WITH_DRAW_RIG(generate_second_seed_equals_that_seed_alone),
        WITH_DRAW_RIG(generate_after_other_prompt_and_size_equals_fresh),
        WITH_DRAW_RIG(generate_with_one_thread_equals_two_threads),
        WITH_DRAW_RIG(generate_uses_low_bits_of_seed),
        WITH_DRAW_RIG(look_at_other_requests_leaves_the_session),
        WITH_DRAW_RIG(look_at_what_does_not_fit_is_refused),
        WITH_DRAW_RIG(generate_cancelled_at_any_stage_leaves_model_usable),
        WITH_DRAW_RIG(generate_reports_every_stage),
        WITH_DRAW_RIG(generate_without_guidance_embedder_ignores_guidance),
        WITH_DRAW_RIG(generate_refuses_bad_requests_and_goes_on),
        WITH_DRAW_RIG(generate_draws_smallest_and_narrow_pictures),
        WITH_DRAW_RIG(generate_with_longest_prompt_cuts_and_warns),
        WITH_DRAW_RIG(generate_with_huge_weights_says_numeric),
        WITH_DRAW_RIG(generate_with_huge_weights_in_decoder_says_numeric),
        WITH_DRAW_RIG(generate_with_huge_weights_in_text_encoder_says_numeric),
        WITH_DRAW_RIG(generate_of_dev_follows_guidance),
        WITH_DRAW_RIG(generate_of_dev_cancelled_in_table_makes_it_anew),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
