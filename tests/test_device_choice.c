/* Which device a model is opened on, and how one that is not there is refused. */
#include <unistd.h>

#include "tests/draw_rig.h"

static void refused(draw_rig *r, dfx_device_choice device, int index, dfx_status status,
                    const char *words) {
    dfx_open_options options = {
        .model_path = DRAW_SCENES, .device = device, .device_index = index, .sink = r->log->sink};
    dfx_model *model = NULL;
    recorder_clear(r->log);
    assert_int_equal(dfx_model_open(&options, &model), status);
    assert_null(model);
    said_error(r->log, words);
}

static bool has_driver(void) {
    return access("/dev/nvidiactl", F_OK) == 0;
}

/* Without a device, and without the CUDA part: one sentence that names the way out. */
static void open_on_cuda_without_a_device_is_refused(void **state) {
    if (has_driver())
        skip();
    refused(*state, DFX_DEVICE_CUDA, 0, DFX_E_DEVICE, "--device cpu");
}

/* More than any machine has, and less than none. What is there is counted, where it can be. */
static void open_on_cuda_device_that_is_not_there_is_refused(void **state) {
    bool counts = has_driver();
    refused(*state, DFX_DEVICE_CUDA, 1000, DFX_E_DEVICE,
            counts ? "wanted device 1000, found " : "--device cpu");
    refused(*state, DFX_DEVICE_CUDA, -1, DFX_E_DEVICE,
            counts ? "wanted device -1, found " : "--device cpu");
}

/* Another device than what was asked for is no answer. */
static void open_with_index_beside_another_device_is_refused(void **state) {
    refused(*state, DFX_DEVICE_AUTO, 1, DFX_E_USAGE, "device index: wanted 0, found 1");
    refused(*state, DFX_DEVICE_CPU, -1, DFX_E_USAGE, "device index: wanted 0, found -1");
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(open_on_cuda_without_a_device_is_refused),
        WITH_DRAW_RIG(open_on_cuda_device_that_is_not_there_is_refused),
        WITH_DRAW_RIG(open_with_index_beside_another_device_is_refused),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
