/* Pictures with a timeline: the same bytes as without; every track has what it should, against what the picture itself tells;
 * a file that cannot be written is told before the work, and costs no picture later. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/timeline.h"
#include "tests/draw_rig.h"

/* The least budget, so that pages stream, and each from disk. */
static uint64_t least_budget(draw_rig *r) {
    draw_open(r, DRAW_SCENES, 1);
    dfx_request request = draw_request(r, 5);
    draw_fails(r, &request, DFX_E_NOFIT, "--vram-budget");
    const char *at = strstr(r->log->messages[r->log->n_messages - 1].text, "--vram-budget ");
    assert_non_null(at);
    return strtoull(at + strlen("--vram-budget "), NULL, 10);
}

static json_t *read_trace(const draw_rig *r) {
    json_error_t error;
    json_t *root = json_load_file(r->trace, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    return root;
}

/* Of the spans of a track, those of this name or, for NULL, all. */
typedef struct sum {
    uint32_t n;
    double seconds;
    uint64_t bytes;
} sum;

static sum sum_of(json_t *root, dfx_track track, const char *name) {
    json_t *event;
    size_t i;
    sum s = {0};
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0 ||
            json_integer_value(json_object_get(event, "tid")) != track + 1 ||
            (name && strcmp(json_string_value(json_object_get(event, "name")), name) != 0))
            continue;
        s.n++;
        s.seconds += 1e-6 * json_number_value(json_object_get(event, "dur"));
        s.bytes +=
            (uint64_t)json_integer_value(json_object_get(json_object_get(event, "args"), "bytes"));
    }
    return s;
}

static double stages_of(const dfx_image *image) {
    double seconds = 0;
    for (int i = 0; i < DFX_N_STAGES; i++)
        seconds += image->stage_seconds[i];
    return seconds;
}

static void trace_of_streamed_pictures_has_every_track(void **state) {
    static const char *const parts[] = {"text",   "cond",   "denoise", "step 1",
                                        "step 2", "decode", "prepare"};
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    uint64_t least = least_budget(r);
    r->offload = "nvme";
    draw_open(r, DRAW_SCENES, least);
    dfx_request request = draw_request(r, 5);
    dfx_image want = draw(r, &request);
    r->trace = tmpdir_join(r->dir, "run.json", path);
    draw_open(r, DRAW_SCENES, least);
    dfx_image first = draw(r, &request);
    draw_same(&want, &first);
    json_t *root = read_trace(r);
    for (size_t i = 0; i < DFX_COUNT(parts); i++)
        assert_int_equal(sum_of(root, DFX_TRACK_HOST, parts[i]).n, 1);
    assert_true(sum_of(root, DFX_TRACK_DISK, NULL).bytes == first.read_bytes);
    assert_true(sum_of(root, DFX_TRACK_COPY, NULL).bytes == first.copied_bytes);
    sum stall = sum_of(root, DFX_TRACK_STALL, NULL),
        compute = sum_of(root, DFX_TRACK_COMPUTE, NULL);
    assert_true(stall.n > 0 && stall.seconds <= stages_of(&first));
    assert_true(compute.n > 2 * 4 && compute.seconds <= stages_of(&first));
    assert_true(sum_of(root, DFX_TRACK_COMPUTE, "step/transformer_blocks.0/ff").n == 2);
    json_decref(root);
    /* The second picture is added; text and modulation are still there. */
    request.seed = 6;
    dfx_image second = draw(r, &request);
    root = read_trace(r);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "text").n, 1);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "step 2").n, 2);
    assert_true(sum_of(root, DFX_TRACK_COPY, NULL).bytes ==
                first.copied_bytes + second.copied_bytes);
    json_decref(root);
    dfx_image_free(&want);
    dfx_image_free(&first);
    dfx_image_free(&second);
}

/* Waits are of pins, which lie in stages; on the timeline small ones are left out. */
static void trace_and_picture_tell_of_the_same_waits(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    uint64_t least = least_budget(r);
    r->offload = "nvme";
    r->trace = tmpdir_join(r->dir, "run.json", path);
    draw_open(r, DRAW_SCENES, least);
    dfx_request request = draw_request(r, 5);
    dfx_image image = draw(r, &request);
    json_t *root = read_trace(r);
    sum stall = sum_of(root, DFX_TRACK_STALL, NULL);
    uint32_t n_visits = stall.n + sum_of(root, DFX_TRACK_COMPUTE, NULL).n;
    assert_true(image.disk_wait_seconds + image.link_wait_seconds <= image.wait_seconds + 1e-6);
    assert_true(image.disk_wait_seconds + image.link_wait_seconds > 0);
    assert_true(stall.seconds > image.wait_seconds - 20e-6 * n_visits);
    json_decref(root);
    dfx_image_free(&image);
}

static void trace_takes_what_the_caller_did_until_close(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    r->trace = tmpdir_join(r->dir, "run.json", path);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 5);
    dfx_image image = draw(r, &request);
    dfx_model_span(r->model, "my \"own\" part", dfx_clock_ns());
    json_t *root = read_trace(r);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "my \"own\" part").n, 0);
    json_decref(root);
    dfx_model_close(r->model);
    r->model = NULL;
    root = read_trace(r);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "my \"own\" part").n, 1);
    json_decref(root);
    dfx_image_free(&image);
}

static void span_without_a_trace_does_nothing(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_model_span(r->model, "nothing", dfx_clock_ns());
    assert_int_equal(tmpdir_count_entries(r->dir, "."), 0);
}

static bool is_cancelled(void *user) {
    return true;
}

/* What there is of a picture that was given up is there to be looked at. */
static void trace_of_a_cancelled_picture_is_written(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    r->trace = tmpdir_join(r->dir, "run.json", path);
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 5);
    request.cancelled = is_cancelled;
    dfx_image image;
    assert_int_equal(dfx_generate(r->model, &request, &image), DFX_E_CANCELLED);
    json_t *root = read_trace(r);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "prepare").n, 1);
    assert_int_equal(sum_of(root, DFX_TRACK_HOST, "decode").n, 0);
    json_decref(root);
}

/* Before the model is even packed. */
static void open_with_a_trace_that_cannot_be_written_does_nothing(void **state) {
    static const char *const names[] = {"none/run.json", "folder", "cache/"};
    draw_rig *r = *state;
    char path[TMPDIR_PATH], cache[TMPDIR_PATH];
    tmpdir_mkdir(r->dir, "folder");
    tmpdir_mkdir(r->dir, "cache");
    assert_int_equal(setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "cache", cache), 1), 0);
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        r->trace = tmpdir_join(r->dir, names[i], path);
        draw_open_fails(r, DRAW_SCENES, DFX_E_IO, "cannot create");
    }
    assert_int_equal(tmpdir_count_entries(r->dir, "cache"), 0);
    assert_int_equal(tmpdir_count_entries(r->dir, "."), 2);
}

/* What is there under the name stays until there is something better. */
static void open_with_a_trace_leaves_the_old_file(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    size_t bytes;
    tmpdir_write_text(r->dir, "run.json", "old");
    r->trace = tmpdir_join(r->dir, "run.json", path);
    draw_open(r, DRAW_SCENES, 0);
    dfx_model_close(r->model);
    r->model = NULL;
    char *text = tmpdir_slurp(r->dir, "run.json", &bytes);
    assert_string_equal(text, "old");
    assert_int_equal(tmpdir_count_entries(r->dir, "."), 1);
    free(text);
}

static void picture_is_made_when_its_trace_is_lost(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH], folder[TMPDIR_PATH];
    tmpdir_mkdir(r->dir, "folder");
    r->trace = tmpdir_join(r->dir, "folder/run.json", path);
    draw_open(r, DRAW_SCENES, 0);
    assert_int_equal(rmdir(tmpdir_join(r->dir, "folder", folder)), 0);
    dfx_request request = draw_request(r, 5);
    dfx_image image = draw(r, &request);
    assert_non_null(image.rgb);
    said_words(r->log, DFX_WARN, "folder/run.json: cannot create");
    dfx_image_free(&image);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(trace_of_streamed_pictures_has_every_track),
        WITH_DRAW_RIG(trace_and_picture_tell_of_the_same_waits),
        WITH_DRAW_RIG(trace_takes_what_the_caller_did_until_close),
        WITH_DRAW_RIG(span_without_a_trace_does_nothing),
        WITH_DRAW_RIG(trace_of_a_cancelled_picture_is_written),
        WITH_DRAW_RIG(open_with_a_trace_that_cannot_be_written_does_nothing),
        WITH_DRAW_RIG(open_with_a_trace_leaves_the_old_file),
        WITH_DRAW_RIG(picture_is_made_when_its_trace_is_lost),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
