/* Pictures of the bundled model with 8-bit weights: close to those of its own weights, and as repeatable as they are, within
 * the least memory too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/draw_rig.h"
#include "tools/psnr.c"

/* Sanitizers make 8-bit products slow, so pictures and texts are smaller than the model's own there. */
#ifdef DFX_SANITIZED
enum { SIDE = 64, TEXT_LENGTH = 40 };
#else
enum { SIDE = 256, TEXT_LENGTH = 0 }; /* 0: the model's own */
#endif
enum { STEPS = 16 };
static const double LEAST_DB = 25;

static const dfx_qformat FORMATS[] = {DFX_Q_INT8, DFX_Q_FP8, DFX_Q_INT8WO};

/* In the words that the model knows: of others it makes what a rounding decides. */
static const char *const CAPTIONS[] = {
    "a small blue cube on the left and a big yellow house on the right, in the desert",
    "a red ball on a green hill under a night sky",
    "at night, a purple mushroom next to a teal tree, in the snow, with the moon",
};

static dfx_request request_of(const draw_rig *r, size_t caption) {
    dfx_request request;
    dfx_request_init(r->model, &request);
    request.prompt = CAPTIONS[caption];
    request.width = request.height = SIDE;
    request.steps = STEPS;
    if (TEXT_LENGTH > 0)
        request.text_length = TEXT_LENGTH;
    request.seed = 40 + caption;
    return request;
}

static void draw_all(draw_rig *r, const char *path, uint64_t budget_bytes,
                     dfx_image images[DFX_COUNT(CAPTIONS)]) {
    draw_open(r, path, budget_bytes);
    for (size_t i = 0; i < DFX_COUNT(CAPTIONS); i++) {
        dfx_request request = request_of(r, i);
        images[i] = draw(r, &request);
    }
}

static void free_all(dfx_image images[DFX_COUNT(CAPTIONS)]) {
    for (size_t i = 0; i < DFX_COUNT(CAPTIONS); i++)
        dfx_image_free(&images[i]);
}

/* And not the same: the codes are in use. */
static void quant_pictures_are_close_to_those_of_stored_weights(void **state) {
    draw_rig *r = *state;
    dfx_image want[DFX_COUNT(CAPTIONS)], got[DFX_COUNT(CAPTIONS)];
    draw_all(r, DRAW_SCENES, 0, want);
    for (size_t f = 0; f < DFX_COUNT(FORMATS); f++) {
        char path[TMPDIR_PATH];
        draw_all(r, draw_pack(r, "packed.safetensors", FORMATS[f], false, path), 0, got);
        assert_int_equal(dfx_packed_quant(r->model->packed), FORMATS[f]);
        for (size_t i = 0; i < DFX_COUNT(CAPTIONS); i++) {
            double db = dfx_psnr(want[i].rgb, got[i].rgb, want[i].width, want[i].height);
            print_message("%s, \"%s\": PSNR %.1f dB\n", dfx_q_name(FORMATS[f]), CAPTIONS[i], db);
            assert_true(db >= LEAST_DB);
            draw_differ(&want[i], &got[i]);
        }
        free_all(got);
    }
    free_all(want);
}

static uint64_t least_budget(draw_rig *r, const char *path, dfx_request *request) {
    draw_open(r, path, 1);
    *request = draw_request(r, 5);
    draw_fails(r, request, DFX_E_NOFIT, "--vram-budget");
    const char *at = strstr(r->log->messages[r->log->n_messages - 1].text, "--vram-budget ");
    assert_non_null(at);
    return strtoull(at + strlen("--vram-budget "), NULL, 10);
}

/* Twice, with other threads, and streamed through the least memory. */
static void quant_pictures_repeat_within_the_least_budget(void **state) {
    static const char *const offloads[] = {"auto", "nvme"};
    draw_rig *r = *state;
    for (size_t f = 0; f < DFX_COUNT(FORMATS); f++) {
        char path[TMPDIR_PATH];
        dfx_request request;
        draw_pack(r, "packed.safetensors", FORMATS[f], false, path);
        uint64_t least = least_budget(r, path, &request);
        draw_open(r, path, 0);
        dfx_image want = draw(r, &request), again = draw(r, &request);
        draw_same(&want, &again);
        assert_true(want.peak_device_bytes > least);
        dfx_image_free(&again);
        for (size_t i = 0; i < DFX_COUNT(offloads); i++) {
            r->offload = offloads[i];
            r->n_threads = 1 + (int)i;
            draw_open(r, path, least);
            dfx_image image = draw(r, &request);
            assert_true(image.peak_device_bytes <= least); /* one thread wants less scratch */
            draw_same(&want, &image);
            dfx_image_free(&image);
        }
        r->offload = NULL;
        dfx_image_free(&want);
    }
}

/* From the folder, packed into the cache as it is opened. */
static void quant_of_options_is_that_of_the_packed_file(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    draw_open(r, draw_pack(r, "packed.safetensors", DFX_Q_INT8, false, path), 0);
    dfx_request request = draw_request(r, 5);
    dfx_image want = draw(r, &request);
    r->quant = "int8";
    draw_open(r, DRAW_SCENES, 0);
    dfx_image image = draw(r, &request);
    draw_same(&want, &image);
    dfx_image_free(&image);
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(quant_pictures_are_close_to_those_of_stored_weights),
        WITH_DRAW_RIG(quant_pictures_repeat_within_the_least_budget),
        WITH_DRAW_RIG(quant_of_options_is_that_of_the_packed_file),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
