/* Pictures whose denoiser has its attention in 8 bits: close to those in 16, said in the picture, and the same bits at every
 * budget, from anywhere, in any company, with LoRAs and with steps that are reused. That the ops are right is for
 * test_cpu_attention_codes.c to say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/draw_rig.h"
#include "tools/psnr.c"

#define PEFT "tests/golden/lora/peft.safetensors"

/* Sanitizers make it slow: pictures and texts are smaller than the model's own there. */
#ifdef DFX_SANITIZED
enum { SIDE = 96, TEXT_LENGTH = 40 };
#else
enum { SIDE = 256, TEXT_LENGTH = 0 }; /* 0: the model's own */
#endif

enum { N = 4, REUSE_STEPS = 6 };

/* In words that the model knows; of others it makes what a rounding decides. */
static const char *const CAPTIONS[] = {
    "a small blue cube on the left and a big yellow house on the right, in the desert",
    "a red ball on a green hill under a night sky",
    "at night, a purple mushroom next to a teal tree, in the snow, with the moon",
};

static void open_in(draw_rig *r, int attention_bits, uint64_t budget_bytes) {
    r->attention_bits = attention_bits;
    draw_open(r, DRAW_SCENES, budget_bytes);
}

static dfx_image draw_caption(draw_rig *r, int attention_bits, size_t caption) {
    open_in(r, attention_bits, 0);
    dfx_request request;
    dfx_request_init(r->model, &request);
    request.prompt = CAPTIONS[caption];
    request.width = request.height = SIDE;
    if (TEXT_LENGTH > 0)
        request.text_length = TEXT_LENGTH;
    request.seed = 40 + caption;
    return draw(r, &request);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* And not the same: codes are in use. */
static void pictures_in_8_bits_are_close_to_those_in_16(void **state) {
    draw_rig *r = *state;
    double db[DFX_COUNT(CAPTIONS)];
    for (size_t i = 0; i < DFX_COUNT(CAPTIONS); i++) {
        dfx_image want = draw_caption(r, 16, i), got = draw_caption(r, 8, i);
        draw_differ(&want, &got);
        db[i] = dfx_psnr(want.rgb, got.rgb, want.width, want.height);
        print_message("\"%s\": PSNR %.1f dB\n", CAPTIONS[i], db[i]);
        dfx_image_free(&want);
        dfx_image_free(&got);
    }
    qsort(db, DFX_COUNT(db), sizeof(*db), by_size);
    assert_true(db[0] >= 25);
    assert_true(db[DFX_COUNT(db) / 2] >= 35);
}

static void picture_says_attention_bits_where_they_are_8(void **state) {
    draw_rig *r = *state;
    open_in(r, 0, 0);
    dfx_request request = draw_request(r, 3);
    dfx_image usual = draw(r, &request);
    open_in(r, 16, 0);
    dfx_image sixteen = draw(r, &request);
    draw_same(&usual, &sixteen);
    assert_string_equal(usual.json, sixteen.json);
    assert_string_equal(usual.parameters, sixteen.parameters);
    assert_int_equal(usual.attention_bits, 16);
    assert_null(strstr(usual.json, "attention"));
    assert_null(strstr(usual.parameters, "Attention"));
    open_in(r, 8, 0);
    dfx_image eight = draw(r, &request);
    assert_int_equal(eight.attention_bits, 8);
    assert_non_null(strstr(eight.parameters, ", Attention bits: 8, "));
    json_t *json = json_loads(eight.json, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "attention_bits")), 8);
    json_decref(json);
    dfx_image_free(&usual);
    dfx_image_free(&sixteen);
    dfx_image_free(&eight);
}

static void open_with_other_attention_bits_is_refused(void **state) {
    draw_rig *r = *state;
    static const int bits[] = {-8, 1, 4, 32};
    for (size_t i = 0; i < DFX_COUNT(bits); i++) {
        char words[64];
        snprintf(words, sizeof(words), "attention bits: wanted 16 or 8, found %d", bits[i]);
        r->attention_bits = bits[i];
        draw_open_fails(r, DRAW_SCENES, DFX_E_USAGE, words);
    }
}

/* As the refusal names it. */
static uint64_t least_budget(draw_rig *r, const dfx_request *request) {
    static const char option[] = "--vram-budget ";
    open_in(r, 8, 1);
    draw_fails(r, request, DFX_E_NOFIT, option);
    return strtoull(strstr(r->log->messages[r->log->n_messages - 1].text, option) + strlen(option),
                    NULL, 10);
}

/* Between the least budget and what all pages take, from memory and from the file. */
static void same_at_any_budget(draw_rig *r, const dfx_request *request) {
    static const char *const offloads[] = {"auto", "nvme"};
    open_in(r, 8, 0);
    dfx_image want = draw(r, request);
    uint64_t least = least_budget(r, request), most = want.peak_device_bytes;
    assert_true(most > least);
    for (size_t o = 0; o < DFX_COUNT(offloads); o++)
        for (int half = 0; half < 2; half++) {
            r->offload = offloads[o];
            open_in(r, 8, least + (most - least) / 2 * (uint64_t)half);
            dfx_image image = draw(r, request);
            draw_same(&want, &image);
            assert_string_equal(want.json, image.json);
            dfx_image_free(&image);
        }
    r->offload = NULL;
    dfx_image_free(&want);
}

static void picture_in_8_bits_is_the_same_at_any_budget(void **state) {
    draw_rig *r = *state;
    open_in(r, 8, 0);
    dfx_request request = draw_request(r, 7);
    request.width = 48; /* 6 tokens and 4 of text: no multiple of anything */
    same_at_any_budget(r, &request);
}

static void picture_in_8_bits_with_lora_is_the_same_at_any_budget(void **state) {
    draw_rig *r = *state;
    r->lora_max_rank = 4;
    r->lora_max = 1;
    open_in(r, 8, 0);
    dfx_request request = draw_request(r, 7);
    dfx_image plain = draw(r, &request);
    request.loras = &(dfx_lora_use){PEFT, 1};
    request.n_loras = 1;
    dfx_image with = draw(r, &request);
    draw_differ(&plain, &with);
    dfx_image_free(&plain);
    dfx_image_free(&with);
    same_at_any_budget(r, &request);
}

/* In parts a step is the same step: with a threshold that nothing is below, the same bits. */
static void picture_in_8_bits_reuses_steps(void **state) {
    static const float thresholds[] = {0, 1e-30f, 1e9f};
    draw_rig *r = *state;
    dfx_image images[3];
    open_in(r, 8, 0);
    dfx_request request = draw_request(r, 9);
    request.steps = REUSE_STEPS;
    for (int i = 0; i < 3; i++) {
        request.reuse = thresholds[i];
        images[i] = draw(r, &request);
    }
    draw_same(&images[0], &images[1]);
    draw_differ(&images[0], &images[2]);
    assert_int_equal(images[2].n_reused, 3);
    for (int i = 0; i < 3; i++)
        dfx_image_free(&images[i]);
    same_at_any_budget(r, &request);
}

/* Where weights are waited for, several pictures are made together. */
static void pictures_in_8_bits_made_together_are_those_made_alone(void **state) {
    draw_rig *r = *state;
    dfx_image alone[N], images[N];
    open_in(r, 8, 0);
    for (int i = 0; i < N; i++) {
        dfx_request request = draw_request(r, 20 + (uint64_t)i);
        alone[i] = draw(r, &request);
    }
    dfx_request request = draw_request(r, 20);
    uint64_t least = least_budget(r, &request);
    r->offload = "nvme";
    open_in(r, 8, least * 3 / 2);
    r->model->profile.link_bytes_per_s = r->model->profile.disk_bytes_per_s = 1e6;
    assert_int_equal(dfx_generate_batch(r->model, &request, N, images), DFX_OK);
    assert_in_range(r->model->session.shape.n_lanes, 2, N);
    for (int i = 0; i < N; i++) {
        draw_same(&alone[i], &images[i]);
        assert_string_equal(alone[i].json, images[i].json);
        dfx_image_free(&alone[i]);
        dfx_image_free(&images[i]);
    }
}

#define DRAWS(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        DRAWS(pictures_in_8_bits_are_close_to_those_in_16),
        DRAWS(picture_says_attention_bits_where_they_are_8),
        DRAWS(open_with_other_attention_bits_is_refused),
        DRAWS(picture_in_8_bits_is_the_same_at_any_budget),
        DRAWS(picture_in_8_bits_with_lora_is_the_same_at_any_budget),
        DRAWS(picture_in_8_bits_reuses_steps),
        DRAWS(pictures_in_8_bits_made_together_are_those_made_alone),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
