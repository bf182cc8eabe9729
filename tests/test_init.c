/* Image to image and inpainting: against diffusers' pipelines (tests/golden/make_init.py), and what must hold of every picture:
 * the same bits in every budget, session and batch; a mask that keeps keeps; what is nonsense is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/draw_rig.h"
#include "tests/model_rig.h"
#include "tests/tiny.h"

enum { SIDE = 32, STEPS = 4, WIDTH = 80, HEIGHT = 64, CHANNELS = 64 };
static const double TOLERANCE = 5e-4; /* as in tests/golden_pipeline.c */

/* A picture of value (5 x + 3 y + 80 c + x y / 16) mod 256, and a mask. Freed by the test. */
typedef struct source {
    uint8_t *rgb, *mask;
    int width, height;
} source;

static source make_source(int width, int height) {
    source s = {.rgb = malloc((size_t)width * height * 3),
                .mask = malloc((size_t)width * height),
                .width = width,
                .height = height};
    assert_true(s.rgb && s.mask);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                s.rgb[(y * width + x) * 3 + c] = (uint8_t)(5 * x + 3 * y + 80 * c + x * y / 16);
    return s;
}

static void free_source(source *s) {
    free(s->rgb);
    free(s->mask);
}

static void fill_mask(source *s, int left, int top, int right, int bottom, uint8_t value) {
    for (int y = top; y < bottom; y++)
        memset(s->mask + y * s->width + left, value, (size_t)(right - left));
}

static void mask_all(source *s, uint8_t value) {
    fill_mask(s, 0, 0, s->width, s->height, value);
}

static void begin_with(dfx_request *request, const source *s, bool masked, double strength) {
    request->init_rgb = s->rgb;
    request->init_width = s->width;
    request->init_height = s->height;
    request->mask = masked ? s->mask : NULL;
    request->strength = strength;
}

static dfx_request request_with(const draw_rig *r, const source *s, bool masked, double strength) {
    dfx_request request = draw_request(r, 7);
    request.steps = STEPS;
    begin_with(&request, s, masked, strength);
    return request;
}

/* Against diffusers. */

static void steps_that_strength_leaves_are_those_of_diffusers(void **state) {
    enum { ROWS = 8 * 20 };
    const float *rows = mrig_golden(*state, "init", ROWS * 3, "steps");
    for (int i = 0; i < ROWS; i++, rows += 3)
        if (dfx_init_first_step(rows[1] / 100.0, (int)rows[0]) != (int)rows[2])
            fail_msg("%g steps, strength 0.%02g: first step %d, wanted %g", rows[0], rows[1],
                     dfx_init_first_step(rows[1] / 100.0, (int)rows[0]), rows[2]);
}

/* Values on both sides of 128, edges off the latents' grid. */
static void golden_mask(source *s) {
    mask_all(s, 127);
    fill_mask(s, 11, 5, 62, 43, 128);
    fill_mask(s, 24, 20, 40, 36, 0);
}

static void draw_golden(model_rig *r, dfx_model *m, const char *name, dfx_request *request) {
    enum { N = WIDTH / 16 * (HEIGHT / 16) * CHANNELS, PIXELS = WIDTH * HEIGHT * 3 };
    dfx_image image;
    assert_int_equal(dfx_generate(m, request, &image), DFX_OK);
    mrig_same(r, "z", m->session.init.z, mrig_golden(r, "init", N, "z"), N, 1e-4);
    int n_made = request->steps - dfx_request_first_step(request);
    mrig_same(r, name, m->session.state.x[0], mrig_golden(r, "init", N, "%s.x%d", name, n_made), N,
              TOLERANCE);
    mrig_same_pixels(image.rgb, mrig_golden(r, "init", PIXELS, "%s.image_u8", name), PIXELS);
    dfx_image_free(&image);
}

static void pictures_from_a_picture_equal_those_of_diffusers(void **state) {
    model_rig *r = *state;
    char path[TMPDIR_PATH];
    if (!dfx_file_exists(tmpdir_join(r->dir, "dev/tokenizer/vocab.json", path)))
        skip();
    dfx_model *m;
    dfx_open_options options = {.model_path = tmpdir_join(r->dir, "dev", path),
                                .device = DFX_DEVICE_CPU,
                                .n_threads = 2,
                                .sink = r->sink};
    assert_int_equal(dfx_model_open(&options, &m), DFX_OK);
    source s = make_source(WIDTH, HEIGHT);
    golden_mask(&s);
    dfx_request request;
    dfx_request_init(m, &request);
    request.prompt = "A cat holding a sign that says hello world";
    request.width = WIDTH;
    request.height = HEIGHT;
    request.text_length = 64;
    request.guidance = 3.5f;
    request.seed = 1234;
    request.steps = 5;
    begin_with(&request, &s, false, 0.6);
    draw_golden(r, m, "img2img", &request);
    request.steps = 4;
    begin_with(&request, &s, true, 0.85);
    draw_golden(r, m, "inpaint", &request);
    free_source(&s);
    dfx_model_close(m);
}

/* What must hold. */

static void strength_of_one_is_text_to_image(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = request_with(r, &s, false, 1), plain = request;
    plain.init_rgb = NULL;
    dfx_image want = draw(r, &plain), got = draw(r, &request);
    draw_same(&want, &got);
    assert_null(strstr(want.parameters, "Denoising"));
    assert_null(strstr(want.json, "strength"));
    assert_non_null(strstr(got.parameters, ", Denoising strength: 1, Init image hash: "));
    assert_non_null(strstr(got.json, "\"strength\":1.0,\"init\":\"xxh3:"));
    assert_non_null(strstr(got.json, "\"mask\":false"));
    dfx_image_free(&want);
    dfx_image_free(&got);
    free_source(&s);
}

static void white_mask_changes_nothing(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    mask_all(&s, 128);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request plain = request_with(r, &s, false, 0.6), masked = request_with(r, &s, true, 0.6);
    dfx_image want = draw(r, &plain), got = draw(r, &masked);
    draw_same(&want, &got);
    assert_non_null(strstr(got.parameters, ", Mask: yes, "));
    dfx_image_free(&want);
    dfx_image_free(&got);
    free_source(&s);
}

static void black_mask_leaves_the_latents_of_the_picture(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    mask_all(&s, 127);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = request_with(r, &s, true, 1);
    dfx_image image = draw(r, &request);
    assert_memory_equal(r->model->session.state.x[0], r->model->session.init.z,
                        SIDE / 16 * (SIDE / 16) * CHANNELS * sizeof(float));
    dfx_image_free(&image);
    free_source(&s);
}

/* The right half is painted: of every token in the left column what it was, of those in the right one nothing. */
static void half_a_mask_keeps_half_of_the_latents(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    mask_all(&s, 0);
    fill_mask(&s, SIDE / 2, 0, SIDE, SIDE, 255);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = request_with(r, &s, true, 1);
    dfx_image image = draw(r, &request);
    const float *x = r->model->session.state.x[0], *z = r->model->session.init.z;
    for (int i = 0; i < SIDE / 16 * (SIDE / 16) * CHANNELS; i++)
        assert_true((x[i] == z[i]) == (i / CHANNELS % 2 == 0));
    dfx_image_free(&image);
    free_source(&s);
}

/* Steps that do without most blocks: a mask that keeps nothing changes nothing there either, one that keeps all keeps all. */
static void masks_hold_beside_reuse(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request plain = request_with(r, &s, false, 1);
    plain.reuse = 1000;
    dfx_request masked = plain;
    masked.mask = s.mask;
    mask_all(&s, 255);
    dfx_image want = draw(r, &plain), got = draw(r, &masked);
    assert_in_range(want.n_reused, 1, STEPS - 2);
    assert_int_equal(got.n_reused, want.n_reused);
    draw_same(&want, &got);
    dfx_image_free(&got);
    mask_all(&s, 0);
    got = draw(r, &masked);
    assert_memory_equal(r->model->session.state.x[0], r->model->session.init.z,
                        SIDE / 16 * (SIDE / 16) * CHANNELS * sizeof(float));
    dfx_image_free(&got);
    dfx_image_free(&want);
    free_source(&s);
}

/* The number behind --vram-budget in the refusal of one byte. */
static uint64_t least_budget(draw_rig *r, const dfx_request *request) {
    static const char option[] = "--vram-budget ";
    draw_open(r, DRAW_SCENES, 1);
    draw_fails(r, request, DFX_E_NOFIT, option);
    for (size_t i = 0; i < r->log->n_messages; i++)
        if (r->log->messages[i].level == DFX_ERROR)
            return strtoull(strstr(r->log->messages[i].text, option) + sizeof(option) - 1, NULL,
                            10);
    return 0;
}

static void every_budget_gives_the_same_picture(void **state) {
    static const char *const offloads[] = {"ram", "nvme"};
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    mask_all(&s, 0);
    fill_mask(&s, 0, SIDE / 2, SIDE, SIDE, 255);
    for (int masked = 0; masked < 2; masked++) {
        r->offload = NULL;
        draw_open(r, DRAW_SCENES, 0);
        dfx_request request = request_with(r, &s, masked, 0.7);
        dfx_image want = draw(r, &request);
        uint64_t least = least_budget(r, &request), most = want.peak_device_bytes;
        assert_true(least < most);
        uint64_t budgets[] = {least, (least + most) / 2, most};
        for (size_t i = 0; i < DFX_COUNT(budgets); i++) {
            r->offload = offloads[i % 2];
            draw_open(r, DRAW_SCENES, budgets[i]);
            dfx_image image = draw(r, &request);
            draw_same(&want, &image);
            assert_int_equal(image.peak_device_bytes, r->model->session.plan.peak_bytes);
            assert_true(image.peak_device_bytes <= budgets[i]);
            dfx_image_free(&image);
        }
        dfx_image_free(&want);
    }
    free_source(&s);
}

static void batch_makes_what_each_seed_makes_alone(void **state) {
    enum { N = 3 };
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    mask_all(&s, 0);
    fill_mask(&s, 0, 0, SIDE / 2, SIDE, 255);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = request_with(r, &s, true, 0.8);
    dfx_image alone[N], together[N];
    for (int i = 0; i < N; i++) {
        dfx_request one = request;
        one.seed += (uint64_t)i;
        alone[i] = draw(r, &one);
    }
    r->offload = "nvme";
    draw_open(r, DRAW_SCENES, least_budget(r, &request) + (2 << 20));
    r->model->profile.link_bytes_per_s = r->model->profile.disk_bytes_per_s = 1e6;
    assert_int_equal(dfx_generate_batch(r->model, &request, N, together), DFX_OK);
    assert_int_equal(r->model->session.shape.n_lanes, N);
    for (int i = 0; i < N; i++) {
        draw_same(&alone[i], &together[i]);
        dfx_image_free(&alone[i]);
        dfx_image_free(&together[i]);
    }
    free_source(&s);
}

/* Other pictures, strengths, prompts and no picture at all between two of the same: what is kept must not show. */
static void what_came_between_does_not_show(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE), other = make_source(SIDE + 9, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = request_with(r, &s, false, 0.6), picture = usual, strength = usual,
                prompt = usual, plain = usual, masked = usual, longer = usual;
    begin_with(&picture, &other, false, 0.6);
    strength.strength = 0.9;
    prompt.prompt = "a green triangle";
    plain.init_rgb = NULL;
    mask_all(&s, 0);
    masked.mask = s.mask;
    longer.steps = 6; /* as many are made: the last four of six */
    dfx_image want = draw(r, &usual);
    assert_true(want.stage_seconds[DFX_STAGE_ENCODE] > 0);
    dfx_image again = draw(r, &usual);
    assert_true(again.stage_seconds[DFX_STAGE_ENCODE] == 0);
    draw_same(&want, &again);
    dfx_image_free(&again);
    const dfx_request *between[] = {&picture, &strength, &prompt, &plain, &masked, &longer};
    for (size_t i = 0; i < DFX_COUNT(between); i++) {
        dfx_image changed = draw(r, between[i]);
        draw_differ(&want, &changed);
        again = draw(r, &usual);
        draw_same(&want, &again);
        dfx_image_free(&changed);
        dfx_image_free(&again);
    }
    dfx_image_free(&want);
    free_source(&s);
    free_source(&other);
}

static void plan_of_text_to_image_has_no_encoder(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = request_with(r, &s, false, 0.6), plain = request;
    plain.init_rgb = NULL;
    const dfx_session *ses = &r->model->session;
    assert_int_equal(dfx_request_check(r->model, &plain), DFX_OK);
    assert_int_equal(ses->trace.n_stages, 4);
    assert_int_equal(ses->programs[DFX_PROGRAM_ENCODE].n_ops, 0);
    assert_null(ses->state.init_x);
    assert_int_equal(dfx_request_check(r->model, &request), DFX_OK);
    assert_int_equal(ses->trace.n_stages, 5);
    assert_string_equal(ses->trace.stages[dfx_picture_stage(&ses->shape, DFX_PROGRAM_ENCODE)].name,
                        "encode");
    free_source(&s);
}

static void on_progress(void *user, const dfx_progress *p) {
    *(bool *)user |= p->stage == DFX_STAGE_ENCODE;
}

static bool is_cancelled(void *user) {
    return *(bool *)user;
}

static void cancelled_while_encoding_leaves_the_model_usable(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request usual = request_with(r, &s, false, 0.6), request = usual;
    dfx_image want = draw(r, &usual), image = {0};
    bool encoding = false;
    request.progress = on_progress;
    request.cancelled = is_cancelled;
    request.user = &encoding;
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(dfx_generate(r->model, &request, &image), DFX_E_CANCELLED);
    assert_true(encoding);
    dfx_image again = draw(r, &usual);
    draw_same(&want, &again);
    dfx_image_free(&want);
    dfx_image_free(&again);
    free_source(&s);
}

static void nonsense_is_refused_by_name(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    draw_open(r, DRAW_SCENES, 0);
    static const double strengths[] = {0, -0.5, 1.01, NAN, INFINITY};
    for (size_t i = 0; i < DFX_COUNT(strengths); i++) {
        dfx_request request = request_with(r, &s, false, strengths[i]);
        draw_fails(r, &request, DFX_E_USAGE, "strength: wanted a number above 0");
    }
    dfx_request faint = request_with(r, &s, false, 1e-18);
    draw_fails(r, &faint, DFX_E_USAGE, "leaves none");
    dfx_request alone = request_with(r, &s, true, 0.6);
    alone.init_rgb = NULL;
    draw_fails(r, &alone, DFX_E_USAGE, "mask: wanted an init picture");
    dfx_request flat = request_with(r, &s, false, 0.6);
    flat.init_height = 0;
    draw_fails(r, &flat, DFX_E_USAGE, "height of the init picture");
    flat.init_height = flat.init_width = 1 << 15;
    draw_fails(r, &flat, DFX_E_USAGE, "2^28 pixels");
    free_source(&s);
}

static void lose_encoder(json_t *header, size_t data_bytes) {
    json_t *tensor = json_object_get(header, "encoder.conv_in.weight");
    assert_non_null(tensor);
    json_object_set(header, "somewhere.else", tensor);
    json_object_del(header, "encoder.conv_in.weight");
}

static void model_without_encoder_says_so_and_draws_text(void **state) {
    draw_rig *r = *state;
    source s = make_source(SIDE, SIDE);
    const char *path = draw_copy(r);
    draw_edit_header(r, "vae/diffusion_pytorch_model.safetensors", lose_encoder, 0);
    draw_open(r, path, 0);
    dfx_request request = request_with(r, &s, false, 0.6), plain = request;
    draw_fails(r, &request, DFX_E_FORMAT, "needs the VAE's encoder");
    plain.init_rgb = NULL;
    dfx_image image = draw(r, &plain);
    dfx_image_free(&image);
    free_source(&s);
}

/* The bundled model's size is 256 x 256. */
static void size_is_that_of_the_picture(void **state) {
    static const struct {
        int init_width, init_height, width, height, want_width, want_height;
    } rows[] = {
        {256, 256, 0, 0, 256, 256}, {1024, 1024, 0, 0, 256, 256}, {512, 128, 0, 0, 512, 128},
        {100, 60, 0, 0, 96, 64},    {4000, 3000, 0, 0, 288, 224}, {5, 3000, 0, 0, 16, 3008},
        {1, 1, 0, 0, 16, 16},       {640, 480, 320, 0, 320, 240}, {640, 480, 0, 96, 128, 96},
        {640, 480, 64, 64, 64, 64},
    };
    draw_rig *r = *state;
    source s = make_source(1, 1);
    draw_open(r, DRAW_SCENES, 0);
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        dfx_request request = request_with(r, &s, false, 0.6);
        request.init_width = rows[i].init_width;
        request.init_height = rows[i].init_height;
        request.width = rows[i].width;
        request.height = rows[i].height;
        dfx_request_size_of_init(r->model, &request);
        assert_int_equal(request.width, rows[i].want_width);
        assert_int_equal(request.height, rows[i].want_height);
    }
    free_source(&s);
}

static int write_model(void **state) {
    char path[TMPDIR_PATH];
    if (draw_cache_setup(state) != 0)
        return -1;
    tmpdir_mkdir(*state, "dev");
    tmpdir_join(*state, "dev", path);
    if (tiny_write_model(path, TINY_DEV) != DFX_OK)
        return -1;
    tiny_link_tokenizers(path);
    return 0;
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(steps_that_strength_leaves_are_those_of_diffusers),
        WITH_MRIG(pictures_from_a_picture_equal_those_of_diffusers),
        WITH_RIG(strength_of_one_is_text_to_image),
        WITH_RIG(white_mask_changes_nothing),
        WITH_RIG(black_mask_leaves_the_latents_of_the_picture),
        WITH_RIG(half_a_mask_keeps_half_of_the_latents),
        WITH_RIG(masks_hold_beside_reuse),
        WITH_RIG(every_budget_gives_the_same_picture),
        WITH_RIG(batch_makes_what_each_seed_makes_alone),
        WITH_RIG(what_came_between_does_not_show),
        WITH_RIG(plan_of_text_to_image_has_no_encoder),
        WITH_RIG(cancelled_while_encoding_leaves_the_model_usable),
        WITH_RIG(nonsense_is_refused_by_name),
        WITH_RIG(model_without_encoder_says_so_and_draws_text),
        WITH_RIG(size_is_that_of_the_picture),
    };
    return cmocka_run_group_tests(tests, write_model, tmpdir_teardown);
}
