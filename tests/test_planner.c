/* The planner against arithmetic by hand, an exhaustive search, and a replay of its plans: thousands of random questions. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/plan_random.h"
#include "tests/plan_replay.h"
#include "tests/plan_search.h"
#include "tests/tmpdir.h"

static plan_random question; /* too large for a stack */

static dfx_plan plan_for(const dfx_plan_problem *problem) {
    recorder log;
    recorder_init(&log);
    dfx_plan plan = {0};
    assert_int_equal(dfx_plan_make(problem, &log.sink, &plan), DFX_OK);
    said_nothing(&log, DFX_ERROR);
    recorder_fini(&log);
    return plan;
}

static double steady_seconds(const dfx_plan *plan, const dfx_plan_problem *problem,
                             uint32_t stage) {
    plan_replay replay;
    plan_replay_watch(plan, problem, true, &replay);
    double seconds = plan_replay_steady(&replay, plan, problem, stage);
    plan_replay_free(&replay);
    return seconds;
}

/* ---- by hand ---- */

/* Three pages of 100 MB over 10 GB/s: 10 ms each; every visit computes `seconds`. */
typedef struct three_pages {
    dfx_plan_problem problem;
    dfx_profile profile;
    dfx_plan_page pages[3];
    dfx_plan_stage stage;
    dfx_plan_region regions[3];
} three_pages;

enum { PAGE = 100000000 }; /* a multiple of the planner's 256 */

static void three_init(three_pages *t, double seconds, uint32_t n_places) {
    *t = (three_pages){.profile = {.link_bytes_per_s = 1e10, .disk_bytes_per_s = 1e9},
                       .stage = {.name = "denoise", .n_regions = 3, .n_repeats = 10}};
    for (uint32_t i = 0; i < 3; i++) {
        t->pages[i] = (dfx_plan_page){.name = "page", .bytes = PAGE, .disk_bytes = PAGE};
        t->regions[i] = (dfx_plan_region){.page_idx = i, .seconds = seconds};
    }
    t->stage.regions = t->regions;
    t->problem = (dfx_plan_problem){.pages = t->pages,
                                    .stages = &t->stage,
                                    .n_pages = 3,
                                    .n_stages = 1,
                                    .budget_bytes = (uint64_t)n_places * PAGE,
                                    .ram_budget_bytes = 1ull << 40,
                                    .profile = &t->profile};
}

static void step_is(double seconds, uint32_t n_places, dfx_offload offload, double want,
                    dfx_limit limit) {
    three_pages t;
    three_init(&t, seconds, n_places);
    t.problem.offload = offload;
    dfx_plan plan = plan_for(&t.problem);
    assert_true(fabs(plan.step_seconds - want) < 1e-9);
    assert_true(fabs(steady_seconds(&plan, &t.problem, 0) - want) < 1e-9);
    assert_int_equal(plan.limit, limit);
    dfx_plan_fini(&plan);
}

static void planner_three_pages_take_the_time_worked_by_hand(void **state) {
    /* One place: transfer and visit take turns, 3 x (10 + 20) ms. Two: transfers hide behind visits. */
    step_is(0.020, 1, DFX_OFFLOAD_AUTO, 0.090, DFX_LIMIT_COMPUTE);
    step_is(0.020, 2, DFX_OFFLOAD_AUTO, 0.060, DFX_LIMIT_COMPUTE);
    step_is(0.020, 3, DFX_OFFLOAD_NONE, 0.060, DFX_LIMIT_COMPUTE);
    /* 1 ms to compute. One place: 3 x (10 + 1). Two: one page stays, and the two others take turns in the other place
     * while the first computes: 2 x (10 + 1); all three through two places would keep the link busy for 30. */
    step_is(0.001, 1, DFX_OFFLOAD_AUTO, 0.033, DFX_LIMIT_LINK);
    step_is(0.001, 2, DFX_OFFLOAD_AUTO, 0.022, DFX_LIMIT_LINK);
    step_is(0.001, 3, DFX_OFFLOAD_AUTO, 0.003, DFX_LIMIT_COMPUTE);
    /* From a disk of 1 GB/s, 100 ms a page, read ahead into staging: two pages a step when one stays. */
    step_is(0.001, 1, DFX_OFFLOAD_NVME, 0.300, DFX_LIMIT_DISK);
    step_is(0.001, 2, DFX_OFFLOAD_NVME, 0.200, DFX_LIMIT_DISK);
}

static void planner_one_page_streams_or_stays(void **state) {
    dfx_profile profile = {.link_bytes_per_s = 1e9, .disk_bytes_per_s = 1e9};
    dfx_plan_page page = {.name = "page", .bytes = 1000, .disk_bytes = 1000};
    dfx_plan_region region = {.page_idx = 0, .seconds = 1};
    dfx_plan_stage stage = {.name = "denoise", .regions = &region, .n_regions = 1, .n_repeats = 3};
    dfx_plan_problem problem = {.pages = &page,
                                .stages = &stage,
                                .n_pages = 1,
                                .n_stages = 1,
                                .budget_bytes = 1024, /* 1000 up to a border of 256 */
                                .ram_budget_bytes = 1 << 20,
                                .profile = &profile};
    dfx_plan plan = plan_for(&problem);
    assert_int_equal(plan.peak_bytes, 1024);
    assert_int_equal(plan.n_visits, 3);
    assert_int_equal(plan.n_transfers, 1);
    assert_true(plan.permanent[0] && plan.transfers[0].once);
    assert_true(plan.image_seconds == 3);
    assert_true(fabs(plan.cold_image_seconds - 3.000002) < 1e-12); /* read, then copied */
    dfx_plan_fini(&plan);
    problem.state_bytes = 1;
    problem.budget_bytes = 1024 + 256;
    plan = plan_for(&problem);
    assert_int_equal(plan.visits[2].off, 256);
    assert_int_equal(plan.owners[0].bytes, 256); /* state */
    dfx_plan_fini(&plan);
}

static void planner_huge_budget_keeps_everything(void **state) {
    plan_random_kind kind = {.main_regions_max = 9, .repeats_min = 2, .repeats_max = 8};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        plan_random_make(&question, seed, &kind);
        question.problem.budget_bytes = UINT64_MAX / 2;
        dfx_plan plan = plan_for(&question.problem);
        double compute = 0;
        for (uint32_t v = 0; v < plan.n_visits; v++)
            compute += plan.visits[v].seconds;
        for (uint32_t t = 0; t < plan.n_transfers; t++)
            assert_true(plan.transfers[t].once);
        assert_int_equal(plan.peak_bytes, plan_everything_bytes(&question.problem));
        assert_int_equal(plan.streamed_bytes_per_step, 0);
        assert_int_equal(plan.n_slots, 0);
        assert_true(fabs(plan.image_seconds - compute) <= 1e-9 * compute);
        dfx_plan_fini(&plan);
    }
}

/* One place for the page: it stays for both visits, or comes for each. */
static void planner_page_twice_in_a_stage_has_one_place(void **state) {
    three_pages t;
    three_init(&t, 0.001, 2);
    t.regions[2].page_idx = 0;
    t.problem.n_pages = 2;
    dfx_plan plan = plan_for(&t.problem);
    assert_int_equal(plan.n_resident, 2);
    assert_true(fabs(plan.step_seconds - 0.003) < 1e-12);
    assert_int_equal(plan.peak_bytes, 2 * PAGE);
    dfx_plan_fini(&plan);
    t.problem.budget_bytes = PAGE;
    plan = plan_for(&t.problem);
    assert_int_equal(plan.n_transfers, 30);
    assert_true(fabs(plan.step_seconds - 0.033) < 1e-9);
    dfx_plan_fini(&plan);
}

/* ---- random questions ---- */

static void sizes_add_up(const dfx_plan *plan, const dfx_plan_problem *p) {
    uint64_t owners = 0, extent = 0;
    for (uint32_t i = 0; i < plan->n_owners; i++)
        owners += plan->owners[i].bytes;
    for (uint32_t t = 0; t < plan->n_transfers; t++) {
        const dfx_transfer *x = &plan->transfers[t];
        uint64_t end = x->off + p->pages[x->page_idx].bytes;
        assert_int_equal(x->off % 256, 0);
        extent = end > extent ? end : extent;
    }
    assert_true(plan->peak_bytes <= p->budget_bytes);
    assert_true(plan->peak_bytes == plan->arena_bytes + p->workspace_bytes);
    assert_true(owners == plan->peak_bytes);
    assert_true(extent <= plan->arena_bytes);
    for (uint32_t i = 0; i < p->n_pages; i++)
        assert_true(plan->permanent[i] || !p->pages[i].keep);
    assert_true(plan->least_budget_bytes == plan_least_bytes(p) || p->offload == DFX_OFFLOAD_NONE);
}

static void host_adds_up(const dfx_plan *plan, const dfx_plan_problem *p) {
    uint64_t tier = 0;
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t bytes =
            p->pages[i].bytes > p->pages[i].disk_bytes ? p->pages[i].bytes : p->pages[i].disk_bytes;
        tier += plan->in_ram[i] ? (bytes + 4095) / 4096 * 4096 : 0;
        assert_false(plan->in_ram[i] && plan->permanent[i]);
        assert_false(plan->in_ram[i] && p->offload == DFX_OFFLOAD_NVME);
    }
    assert_true(plan->host_bytes == tier + plan->n_staging * plan->staging_bytes);
    assert_true(plan->host_bytes <= p->ram_budget_bytes);
    assert_true(!p->profile->unified || plan->host_bytes == 0);
}

/* Returns how far the steady step of the simulated picture is from the plan's promise, as a part of it. */
static double plan_and_watch(const plan_random_kind *kind, uint64_t seed) {
    plan_random_make(&question, seed, kind);
    const dfx_plan_problem *p = &question.problem;
    dfx_plan plan = plan_for(p);
    plan_replay replay;
    sizes_add_up(&plan, p);
    host_adds_up(&plan, p);
    plan_replay_watch(&plan, p, false, &replay);
    assert_true(fabs(replay.seconds - plan.cold_image_seconds) <= 1e-9 * replay.seconds);
    plan_replay_free(&replay);
    plan_replay_watch(&plan, p, true, &replay);
    assert_true(fabs(replay.seconds - plan.image_seconds) <= 1e-9 * replay.seconds);
    double steady = plan_replay_steady(&replay, &plan, p, question.main), sum = 0;
    plan_replay_free(&replay);
    for (uint32_t s = 0; s < p->n_stages; s++)
        sum += plan.stage_seconds[s];
    assert_true(fabs(sum - plan.image_seconds) <= 1e-9 * sum);
    double off = plan.step_seconds > 0 ? steady / plan.step_seconds - 1 : 0;
    dfx_plan_fini(&plan);
    return off;
}

/* All seeds keep the promise from below; at the most `n_loose` of them are faster than promised. */
static void watch_many(const plan_random_kind *kind, uint64_t n_seeds, uint32_t n_loose) {
    uint32_t loose = 0;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        double off = plan_and_watch(kind, seed);
        if (off > 0.002)
            fail_msg("seed %" PRIu64 ": a step is %.1f %% slower than planned", seed, 100 * off);
        loose += off < -0.002;
    }
    if (loose > n_loose)
        fail_msg("%u of %" PRIu64 " plans are faster than planned", loose, n_seeds);
}

static void planner_pages_in_memory_play_as_planned(void **state) {
    watch_many(
        &(plan_random_kind){
            .main_regions_max = 9, .repeats_min = 8, .repeats_max = 24, .offload = DFX_OFFLOAD_RAM},
        1500, 0);
    watch_many(&(plan_random_kind){.main_regions_max = 40,
                                   .repeats_min = 12,
                                   .repeats_max = 20,
                                   .offload = DFX_OFFLOAD_RAM},
               150, 0);
}

static void planner_pages_on_disk_play_as_planned(void **state) {
    watch_many(&(plan_random_kind){.main_regions_max = 9,
                                   .repeats_min = 8,
                                   .repeats_max = 24,
                                   .offload = DFX_OFFLOAD_NVME,
                                   .scarce_ram = true},
               800, 8);
}

/* The search sets good staging aside although, rarely, no page will need it: then steps are faster than promised. */
static void planner_pages_in_memory_and_on_disk_play_as_planned(void **state) {
    watch_many(
        &(plan_random_kind){
            .main_regions_max = 9, .repeats_min = 8, .repeats_max = 24, .scarce_ram = true},
        1500, 8);
    watch_many(
        &(plan_random_kind){
            .main_regions_max = 40, .repeats_min = 12, .repeats_max = 20, .scarce_ram = true},
        100, 2);
}

static void planner_unified_memory_plays_as_planned(void **state) {
    watch_many(
        &(plan_random_kind){
            .main_regions_max = 9, .repeats_min = 8, .repeats_max = 24, .unified = true},
        800, 0);
}

/* At any budget, the least one too: they are permanent, the others play as planned, and all adds up. */
static void planner_pages_that_must_stay_are_permanent(void **state) {
    watch_many(&(plan_random_kind){.main_regions_max = 9,
                                   .repeats_min = 8,
                                   .repeats_max = 24,
                                   .offload = DFX_OFFLOAD_RAM,
                                   .keeps = true},
               500, 0);
    watch_many(&(plan_random_kind){.main_regions_max = 40,
                                   .repeats_min = 12,
                                   .repeats_max = 20,
                                   .scarce_ram = true,
                                   .keeps = true},
               100, 2);
}

static void planner_more_budget_is_never_slower(void **state) {
    for (uint64_t seed = 1; seed <= 150; seed++) {
        plan_random_kind kind = {.main_regions_max = seed % 5 ? 9 : 30,
                                 .keeps = seed % 4 == 0,
                                 .repeats_min = 2,
                                 .repeats_max = 3,
                                 .offload = seed % 2 ? DFX_OFFLOAD_RAM : DFX_OFFLOAD_NVME};
        plan_random_make(&question, seed, &kind);
        uint64_t least = plan_least_bytes(&question.problem),
                 all = plan_everything_bytes(&question.problem);
        double before = INFINITY;
        for (uint32_t part = 0; part <= 16; part++) {
            question.problem.budget_bytes = least + (all - least) / 16 * part;
            dfx_plan plan = plan_for(&question.problem);
            assert_true(plan.step_seconds <= before * (1 + 1e-12));
            before = plan.step_seconds;
            dfx_plan_fini(&plan);
        }
    }
}

static void planner_least_budget_is_least(void **state) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        plan_random_kind kind = {
            .main_regions_max = 9, .repeats_min = 1, .repeats_max = 4, .keeps = seed % 4 == 0};
        plan_random_make(&question, seed, &kind);
        dfx_plan plan = plan_for(&question.problem);
        uint64_t least = plan.least_budget_bytes;
        dfx_plan_fini(&plan);
        question.problem.budget_bytes = least;
        plan = plan_for(&question.problem);
        assert_true(plan.peak_bytes == least);
        dfx_plan_fini(&plan);
        question.problem.budget_bytes = least - 1;
        recorder log;
        char words[64];
        recorder_init(&log);
        snprintf(words, sizeof(words), "--vram-budget %" PRIu64 ")", least);
        assert_int_equal(dfx_plan_make(&question.problem, &log.sink, &plan), DFX_E_NOFIT);
        said_error(&log, words);
        recorder_fini(&log);
    }
}

/* ---- against a search ---- */

static void planner_cycle_equals_event_simulation(void **state) {
    for (uint64_t seed = 1; seed <= 400; seed++) {
        plan_random_kind kind = {
            .main_regions_max = 12, .repeats_min = 1, .repeats_max = 1, .only_main = true};
        plan_random_make(&question, seed, &kind);
        plan_rhythm r = {.n = question.stages[0].n_regions};
        uint64_t draws = seed;
        uint32_t n_streamed = 0;
        for (uint32_t i = 0; i < r.n; i++) {
            r.link_s[i] = 1e-3 * (double)(1 + plan_random_next(&draws) % 100);
            r.seconds[i] = 1e-3 * (double)(plan_random_next(&draws) % (seed % 3 ? 100 : 300));
            r.stays[i] = plan_random_next(&draws) % 3 == 0;
            n_streamed += !r.stays[i];
        }
        for (r.n_slots = n_streamed ? 1 : 0; r.n_slots <= n_streamed; r.n_slots++) {
            double want = plan_rhythm_seconds(&r, PLAN_SEARCH_REPEATS),
                   got = dfx_plan_cycle_seconds(r.link_s, r.seconds, r.stays, r.n, r.n_slots, 0);
            if (fabs(got - want) > 1e-3 * want + 1e-12)
                fail_msg("seed %" PRIu64 ", %u slots: %.9f s, simulated %.9f s", seed, r.n_slots,
                         got, want);
        }
    }
}

/* What plan_search needs of a question with one stage. */
static double best_by_search(const dfx_plan_problem *p) {
    static double disk_s[PLAN_SEARCH_REGIONS];
    uint64_t bytes[PLAN_SEARCH_REGIONS];
    plan_rhythm r = {.n = p->stages[0].n_regions, .n_staging = 3};
    for (uint32_t i = 0; i < r.n; i++) {
        const dfx_plan_page *page = &p->pages[p->stages[0].regions[i].page_idx];
        bytes[i] = plan_aligned(page->bytes);
        r.seconds[i] = p->stages[0].regions[i].seconds;
        r.link_s[i] =
            p->profile->link_latency_s + (double)page->bytes / p->profile->link_bytes_per_s;
        disk_s[i] =
            p->profile->disk_latency_s + (double)page->disk_bytes / p->profile->disk_bytes_per_s;
    }
    r.disk_s = p->offload == DFX_OFFLOAD_NVME ? disk_s : NULL;
    return plan_search_best(&r, bytes,
                            p->budget_bytes - p->workspace_bytes - plan_aligned(p->state_bytes) -
                                plan_aligned(p->stages[0].activation_bytes),
                            48);
}

static void planner_is_within_3_percent_of_the_best(void **state) {
    for (uint64_t seed = 1; seed <= 240; seed++) {
        plan_random_kind kind = {.main_regions_max = seed % 8 ? 7 : 9,
                                 .repeats_min = 8,
                                 .repeats_max = 8,
                                 .only_main = true,
                                 .no_twice = true,
                                 .offload = seed % 3 ? DFX_OFFLOAD_RAM : DFX_OFFLOAD_NVME};
        plan_random_make(&question, seed, &kind);
        dfx_plan plan = plan_for(&question.problem);
        double best = best_by_search(&question.problem);
        if (plan.step_seconds > 1.03 * best || plan.step_seconds < 0.97 * best)
            fail_msg("seed %" PRIu64 ": %.6f s a step, the search finds %.6f s", seed,
                     plan.step_seconds, best);
        dfx_plan_fini(&plan);
    }
}

/* ---- refusals ---- */

static uint64_t number_after(const recorder *log, const char *words) {
    const char *at = strstr(log->messages[log->n_messages - 1].text, words);
    uint64_t number = 0;
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(words), "%" SCNu64, &number), 1);
    return number;
}

static void planner_offload_none_below_everything_is_refused(void **state) {
    plan_random_kind kind = {.main_regions_max = 9, .repeats_min = 2, .repeats_max = 2};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        recorder log;
        dfx_plan plan = {0};
        recorder_init(&log);
        plan_random_make(&question, seed, &kind);
        question.problem.offload = DFX_OFFLOAD_NONE;
        uint64_t all = plan_everything_bytes(&question.problem);
        question.problem.budget_bytes = all - 1;
        assert_int_equal(dfx_plan_make(&question.problem, &log.sink, &plan), DFX_E_NOFIT);
        said_error(&log, "--offload none");
        assert_true(number_after(&log, "--vram-budget ") == all);
        question.problem.budget_bytes = all;
        plan = plan_for(&question.problem);
        assert_true(plan.peak_bytes == all && plan.least_budget_bytes == all);
        dfx_plan_fini(&plan);
        recorder_fini(&log);
    }
}

/* The number in the sentence is enough, one byte less is not. */
static void ram_budget_named_is_least(dfx_offload offload) {
    plan_random_kind kind = {
        .main_regions_max = 9, .repeats_min = 2, .repeats_max = 2, .offload = offload};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        recorder log;
        dfx_plan plan = {0};
        recorder_init(&log);
        plan_random_make(&question, seed, &kind);
        question.problem.ram_budget_bytes = 1;
        assert_int_equal(dfx_plan_make(&question.problem, &log.sink, &plan), DFX_E_NOFIT);
        said_error(&log, "does not fit the RAM budget");
        uint64_t least = number_after(&log, "--ram-budget ");
        question.problem.ram_budget_bytes = least - 1;
        assert_int_equal(dfx_plan_make(&question.problem, &log.sink, &plan), DFX_E_NOFIT);
        question.problem.ram_budget_bytes = least;
        plan = plan_for(&question.problem);
        host_adds_up(&plan, &question.problem);
        dfx_plan_fini(&plan);
        recorder_fini(&log);
    }
}

static void planner_ram_budget_too_small_names_the_least(void **state) {
    ram_budget_named_is_least(DFX_OFFLOAD_RAM);
    ram_budget_named_is_least(DFX_OFFLOAD_NVME);
    ram_budget_named_is_least(DFX_OFFLOAD_AUTO);
}

static void planner_question_without_sense_is_refused(void **state) {
    recorder log;
    dfx_plan plan;
    three_pages t;
    recorder_init(&log);
    three_init(&t, 1, 3);
    t.regions[1].page_idx = 3;
    assert_int_equal(dfx_plan_make(&t.problem, &log.sink, &plan), DFX_E_INTERNAL);
    said_error(&log, "stage denoise, region 1");
    recorder_clear(&log);
    three_init(&t, 1, 3);
    t.pages[2].bytes = 0;
    assert_int_equal(dfx_plan_make(&t.problem, &log.sink, &plan), DFX_E_INTERNAL);
    said_error(&log, "region 2");
    recorder_clear(&log);
    three_init(&t, 1, 3);
    t.stage.n_repeats = 0;
    assert_int_equal(dfx_plan_make(&t.problem, &log.sink, &plan), DFX_E_INTERNAL);
    said_error(&log, "stage denoise");
    recorder_clear(&log);
    t.problem.n_stages = 0;
    assert_int_equal(dfx_plan_make(&t.problem, &log.sink, &plan), DFX_E_INTERNAL);
    said_error(&log, "at least one stage");
    recorder_fini(&log);
}

static void planner_failing_allocation_leaks_nothing(void **state) {
    plan_random_kind kind = {
        .main_regions_max = 9, .repeats_min = 4, .repeats_max = 4, .scarce_ram = true};
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 0;
    plan_random_make(&question, 5, &kind);
    while (status != DFX_OK) {
        dfx_plan plan = {0};
        dfx_mem_fail_nth(++nth);
        status = dfx_plan_make(&question.problem, NULL, &plan);
        dfx_mem_fail_nth(0);
        dfx_plan_fini(&plan);
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        assert_true(dfx_mem_held_bytes() == held);
    }
    assert_true(nth > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planner_three_pages_take_the_time_worked_by_hand),
        cmocka_unit_test(planner_one_page_streams_or_stays),
        cmocka_unit_test(planner_huge_budget_keeps_everything),
        cmocka_unit_test(planner_page_twice_in_a_stage_has_one_place),
        cmocka_unit_test(planner_pages_in_memory_play_as_planned),
        cmocka_unit_test(planner_pages_on_disk_play_as_planned),
        cmocka_unit_test(planner_pages_in_memory_and_on_disk_play_as_planned),
        cmocka_unit_test(planner_unified_memory_plays_as_planned),
        cmocka_unit_test(planner_pages_that_must_stay_are_permanent),
        cmocka_unit_test(planner_more_budget_is_never_slower),
        cmocka_unit_test(planner_least_budget_is_least),
        cmocka_unit_test(planner_cycle_equals_event_simulation),
        cmocka_unit_test(planner_is_within_3_percent_of_the_best),
        cmocka_unit_test(planner_offload_none_below_everything_is_refused),
        cmocka_unit_test(planner_ram_budget_too_small_names_the_least),
        cmocka_unit_test(planner_question_without_sense_is_refused),
        cmocka_unit_test(planner_failing_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
