/* Pictures inside a memory budget: what was planned is enough, less streams and changes no byte, too little is refused with
 * the number that would do; a refused request leaves the model as it was. */
#include <stdlib.h>
#include <string.h>

#include "tests/draw_rig.h"

/* The number of bytes in "--vram-budget 12345" of the last error. */
static uint64_t wanted_budget(const draw_rig *r) {
    const char *at = NULL;
    for (size_t i = 0; i < r->log->n_messages; i++)
        if (r->log->messages[i].level == DFX_ERROR)
            at = strstr(r->log->messages[i].text, "--vram-budget ");
    assert_non_null(at);
    return strtoull(at + strlen("--vram-budget "), NULL, 10);
}

static uint64_t least_budget(draw_rig *r, const dfx_request *request) {
    draw_open(r, DRAW_SCENES, 1);
    draw_fails(r, request, DFX_E_NOFIT, "--vram-budget");
    uint64_t least = wanted_budget(r);
    assert_true(least > 1);
    return least;
}

/* The usual picture and its peak, without a budget. */
static dfx_image draw_unbounded(draw_rig *r, dfx_request *request) {
    draw_open(r, DRAW_SCENES, 0);
    *request = draw_request(r, 21);
    return draw(r, request);
}

static void same_within(draw_rig *r, const dfx_request *request, const dfx_image *want,
                        uint64_t budget_bytes) {
    draw_open(r, DRAW_SCENES, budget_bytes);
    dfx_image image = draw(r, request);
    assert_true(image.peak_device_bytes > 0 && image.peak_device_bytes <= budget_bytes);
    draw_same(want, &image);
    dfx_image_free(&image);
}

static void budget_of_the_peak_is_enough(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    same_within(r, &request, &want, want.peak_device_bytes);
    dfx_image again = draw(r, &request); /* everything is kept: nothing is read again */
    assert_true(again.stage_seconds[DFX_STAGE_LOAD] == 0);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

/* One byte below the peak gives stages' weights back; half way down the denoiser streams; the least streams everything. */
static void budget_below_the_peak_gives_same_bytes(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t peak = want.peak_device_bytes, least = least_budget(r, &request);
    assert_true(least < peak);
    same_within(r, &request, &want, peak - 1);
    said_nothing(r->log, DFX_INFO);
    same_within(r, &request, &want, least + (peak - least) / 4);
    draw_open(r, DRAW_SCENES, least);
    assert_int_equal(dfx_request_check(r->model, &request), DFX_OK);
    said_words(r->log, DFX_INFO, "page by page");
    same_within(r, &request, &want, least);
    dfx_image again = draw(r, &request);
    draw_same(&want, &again);
    assert_true(again.peak_device_bytes <= least);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

static void budget_one_byte_below_the_least_is_refused_naming_it(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    draw_open(r, DRAW_SCENES, least - 1);
    draw_fails(r, &request, DFX_E_NOFIT, "largest page of weights");
    assert_true(wanted_budget(r) == least);
    same_within(r, &request, &want, least);
    dfx_image_free(&want);
}

/* A picture that is too large for the budget, then the usual one in the same process. */
static void budget_refusal_leaves_model_usable(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    draw_open(r, DRAW_SCENES, least);
    dfx_request large = request;
    large.width = large.height = 2048;
    draw_fails(r, &large, DFX_E_NOFIT, "--vram-budget");
    assert_true(wanted_budget(r) > least);
    dfx_image again = draw(r, &request);
    draw_same(&want, &again);
    assert_true(again.peak_device_bytes <= least);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

/* After a larger picture the budget is still kept, and its number still right. */
static void budget_is_kept_after_a_larger_picture(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    dfx_request large = request;
    large.width = 128;
    large.height = 64;
    large.steps = 1;
    uint64_t least = least_budget(r, &large);
    draw_open(r, DRAW_SCENES, least);
    dfx_image first = draw(r, &large);
    assert_true(first.peak_device_bytes <= least);
    dfx_image again = draw(r, &request);
    draw_same(&want, &again);
    assert_true(again.peak_device_bytes <= least);
    dfx_image_free(&first);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(budget_of_the_peak_is_enough),
        WITH_DRAW_RIG(budget_below_the_peak_gives_same_bytes),
        WITH_DRAW_RIG(budget_one_byte_below_the_least_is_refused_naming_it),
        WITH_DRAW_RIG(budget_refusal_leaves_model_usable),
        WITH_DRAW_RIG(budget_is_kept_after_a_larger_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
