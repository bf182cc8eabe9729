/* Unit tests of the progress line's text. Compiled in, as in test_args.c. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <string.h>

#include "tools/progress.c"

static const dfx_progress five_of_sixteen = {
    .stage = DFX_STAGE_DENOISE, .step = 5, .n_steps = 16, .stage_seconds = 10};

static void progress_in_a_stage_tells_step_speed_and_rest(void **state) {
    char text[DFX_PROGRESS_BYTES];
    int len = dfx_progress_text(&five_of_sixteen, 200, text);
    assert_string_equal(text, "denoise 5/16  2.00 s/step  22.0 s left"); /* 11 steps of 10/5 s */
    assert_int_equal(len, strlen(text));
}

static void progress_of_a_batch_tells_the_picture(void **state) {
    char text[DFX_PROGRESS_BYTES];
    dfx_progress second = five_of_sixteen;
    second.picture = 1;
    second.n_together = 1;
    second.n_pictures = 4;
    dfx_progress_text(&second, 200, text);
    assert_memory_equal(text, "2/4  denoise 5/16", strlen("2/4  denoise 5/16"));
}

static void progress_of_pictures_that_go_together_tells_first_and_last(void **state) {
    char text[DFX_PROGRESS_BYTES];
    dfx_progress together = five_of_sixteen;
    together.picture = 4;
    together.n_together = 4;
    together.n_pictures = 8;
    dfx_progress_text(&together, 200, text);
    assert_string_equal(text, "5-8/8  denoise 5/16  2.00 s/step  22.0 s left");
}

static void progress_tells_reused_steps(void **state) {
    char text[DFX_PROGRESS_BYTES];
    dfx_progress reused = five_of_sixteen;
    reused.n_reused = 2;
    dfx_progress_text(&reused, 200, text);
    assert_string_equal(text, "denoise 5/16 (2 reused)  2.00 s/step  22.0 s left");
}

static void progress_at_the_start_divides_by_nothing(void **state) {
    char text[DFX_PROGRESS_BYTES];
    dfx_progress start = {.stage = DFX_STAGE_DENOISE, .n_steps = 16};
    dfx_progress_text(&start, 200, text);
    assert_string_equal(text, "denoise 0/16");
}

static void progress_at_the_end_tells_the_seconds(void **state) {
    char text[DFX_PROGRESS_BYTES];
    dfx_progress end = {.stage = DFX_STAGE_DENOISE, .step = 16, .n_steps = 16, .stage_seconds = 32};
    dfx_progress_text(&end, 200, text);
    assert_string_equal(text, "denoise 16/16  2.00 s/step  32.0 s");
}

static void progress_is_never_wider_than_the_screen(void **state) {
    dfx_progress late = five_of_sixteen;
    late.picture = 991;
    late.n_together = 8;
    late.n_pictures = 1000;
    for (int columns = 0; columns < 80; columns++) {
        char text[DFX_PROGRESS_BYTES];
        int len = dfx_progress_text(&late, columns, text);
        assert_true(len <= columns);
        assert_int_equal(len, strlen(text));
    }
}

static void seconds_get_the_unit_of_their_size(void **state) {
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0.00 s"},         {0.824, "0.82 s"},     {12.34, "12.3 s"},
                 {245, "4 min 05 s"},   {3720, "1 h 02 min"},  {-1, "0.00 s"},
                 {59.97, "1 min 00 s"}, {3599.7, "1 h 00 min"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[DFX_PROGRESS_SECONDS_BYTES];
        assert_string_equal(dfx_progress_seconds(cases[i].seconds, text), cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_in_a_stage_tells_step_speed_and_rest),
        cmocka_unit_test(progress_of_a_batch_tells_the_picture),
        cmocka_unit_test(progress_of_pictures_that_go_together_tells_first_and_last),
        cmocka_unit_test(progress_tells_reused_steps),
        cmocka_unit_test(progress_at_the_start_divides_by_nothing),
        cmocka_unit_test(progress_at_the_end_tells_the_seconds),
        cmocka_unit_test(progress_is_never_wider_than_the_screen),
        cmocka_unit_test(seconds_get_the_unit_of_their_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
