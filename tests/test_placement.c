/* Placement: who keeps, who gives back, who streams, and the smallest budget, by hand arithmetic. */
#include "offload/placement.h"

#include <string.h>

#include "tests/tmpdir.h"

/* Fixed 100 + 20 + 3. Stages of 50, 10 and 400 with largest pages of 30, 10 and 40: all 460, largest page 40. */
static const dfx_fixed_need FIXED = {
    .activation_bytes = 100, .state_bytes = 20, .workspace_bytes = 3};
enum { N = 3, FIXED_BYTES = 123, ALL_BYTES = 460, LARGEST_STAGE = 400, LARGEST_PAGE = 40 };

static dfx_status place(recorder *log, size_t budget_bytes, dfx_stage_need stages[N],
                        size_t *peak) {
    const dfx_stage_need needs[N] = {
        {.name = "the text", .page_bytes = 50, .page_bytes_max = 30},
        {.name = "the table", .page_bytes = 10, .page_bytes_max = 10},
        {.name = "the denoiser", .page_bytes = LARGEST_STAGE, .page_bytes_max = LARGEST_PAGE},
    };
    memcpy(stages, needs, sizeof(needs));
    recorder_clear(log);
    return dfx_placement_make(stages, N, &FIXED, budget_bytes, &log->sink, peak);
}

static void placement_keeps_all_when_all_fit(void **state) {
    tmpdir *dir = *state;
    static const size_t budgets[] = {FIXED_BYTES + ALL_BYTES, SIZE_MAX};
    for (size_t i = 0; i < DFX_COUNT(budgets); i++) {
        dfx_stage_need stages[N];
        size_t peak = 0;
        assert_int_equal(place(&dir->log, budgets[i], stages, &peak), DFX_OK);
        assert_int_equal(peak, FIXED_BYTES + ALL_BYTES);
        for (int s = 0; s < N; s++)
            assert_true(stages[s].residency == DFX_KEEP && !stages[s].drop_after);
        assert_int_equal(dir->log.n_messages, 0);
    }
}

static void placement_gives_back_when_each_fits_alone(void **state) {
    tmpdir *dir = *state;
    static const size_t budgets[] = {FIXED_BYTES + ALL_BYTES - 1, FIXED_BYTES + LARGEST_STAGE};
    for (size_t i = 0; i < DFX_COUNT(budgets); i++) {
        dfx_stage_need stages[N];
        size_t peak = 0;
        assert_int_equal(place(&dir->log, budgets[i], stages, &peak), DFX_OK);
        assert_int_equal(peak, FIXED_BYTES + LARGEST_STAGE);
        for (int s = 0; s < N; s++)
            assert_true(stages[s].residency == DFX_KEEP && stages[s].drop_after);
        said_nothing(&dir->log, DFX_INFO);
    }
}

/* 123 + 60: the text and the table are kept while they run, the denoiser streams through 40. */
static void placement_streams_only_what_is_too_large(void **state) {
    tmpdir *dir = *state;
    dfx_stage_need stages[N];
    size_t peak = 0;
    assert_int_equal(place(&dir->log, FIXED_BYTES + 60, stages, &peak), DFX_OK);
    assert_int_equal(peak, FIXED_BYTES + 50);
    assert_true(stages[0].residency == DFX_KEEP && stages[1].residency == DFX_KEEP);
    assert_true(stages[2].residency == DFX_STREAM);
    for (int s = 0; s < N; s++)
        assert_true(stages[s].drop_after);
    assert_int_equal(recorder_count(&dir->log, DFX_INFO), 1);
    said_words(&dir->log, DFX_INFO, "the denoiser");
}

static void placement_at_the_least_streams_all_but_the_smallest(void **state) {
    tmpdir *dir = *state;
    dfx_stage_need stages[N];
    size_t peak = 0;
    assert_int_equal(place(&dir->log, FIXED_BYTES + LARGEST_PAGE, stages, &peak), DFX_OK);
    assert_int_equal(peak, FIXED_BYTES + LARGEST_PAGE);
    assert_true(stages[0].residency == DFX_STREAM && stages[1].residency == DFX_KEEP &&
                stages[2].residency == DFX_STREAM);
}

static void placement_below_the_least_names_owners_and_the_least(void **state) {
    tmpdir *dir = *state;
    static const size_t budgets[] = {FIXED_BYTES + LARGEST_PAGE - 1, FIXED_BYTES, FIXED_BYTES - 1,
                                     1, 0};
    for (size_t i = 0; i < DFX_COUNT(budgets); i++) {
        dfx_stage_need stages[N];
        size_t peak = 0;
        assert_int_equal(place(&dir->log, budgets[i], stages, &peak), DFX_E_NOFIT);
        said_error(&dir->log, "--vram-budget 163)");
        said_error(&dir->log, "activations 100 bytes");
        said_error(&dir->log, "state 20 bytes");
        said_error(&dir->log, "workspace 3 bytes");
        said_error(&dir->log, "largest page of weights 40 bytes");
    }
}

/* Whatever the budget, the peak is within it, more budget never streams more, and the number in a refusal would do. */
static void placement_peak_is_within_every_budget(void **state) {
    tmpdir *dir = *state;
    int streams_before = N;
    for (size_t budget = 0; budget < 700; budget++) {
        dfx_stage_need stages[N];
        size_t peak = 0;
        if (place(&dir->log, budget, stages, &peak) != DFX_OK) {
            assert_true(budget < FIXED_BYTES + LARGEST_PAGE);
            continue;
        }
        int streams = 0;
        for (int s = 0; s < N; s++)
            streams += stages[s].residency == DFX_STREAM;
        assert_true(budget >= FIXED_BYTES + LARGEST_PAGE && peak <= budget);
        assert_true(streams <= streams_before);
        streams_before = streams;
    }
    assert_int_equal(streams_before, 0);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(placement_keeps_all_when_all_fit),
        IN_TMPDIR(placement_gives_back_when_each_fits_alone),
        IN_TMPDIR(placement_streams_only_what_is_too_large),
        IN_TMPDIR(placement_at_the_least_streams_all_but_the_smallest),
        IN_TMPDIR(placement_below_the_least_names_owners_and_the_least),
        IN_TMPDIR(placement_peak_is_within_every_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
