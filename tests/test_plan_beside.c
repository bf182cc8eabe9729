/* Copies that slow the computing beside them: by hand, and against an event simulation that shares nothing with the planner. */
#include <math.h>
#include <stdlib.h>

#include "offload/planner_internal.h"
#include "tests/plan_random.h"
#include "tests/plan_replay.h"
#include "tests/plan_search.h"
#include "tests/tmpdir.h"

static plan_random question; /* too large for a stack */

/* ---- by hand ---- */

static double end_beside(double begin, double seconds, double share, const double (*copies)[2],
                         int n) {
    dfx_plan_computing c = {begin, seconds};
    for (int i = 0; i < n; i++)
        dfx_plan_compute_beside(&c, share, copies[i][0], copies[i][1]);
    return c.at + c.left;
}

/* A quarter longer while it is copied: 1 s of copying is 0.8 s of computing. */
static void plan_beside_counts_the_copies_it_meets(void **state) {
    static const double copies[][2] = {{-3, -1}, {2, 4}, {6, 20}, {30, 40}};
    /* From 0, 10 s: 2 alone, 1.6 until 4, 2 alone, and the last 4.4 take 5.5. */
    assert_true(fabs(end_beside(0, 10, 0.25, copies, 4) - 11.5) < 1e-12);
    /* From 3, 0.8 s: just the second half of a copy. From 3, 2 s: 1.2 are left at 4. */
    assert_true(fabs(end_beside(3, 0.8, 0.25, copies, 4) - 4) < 1e-12);
    assert_true(fabs(end_beside(3, 2, 0.25, copies, 4) - 5.2) < 1e-12);
    /* Between copies, after all of them, nothing at all, and copies that cost nothing. */
    assert_true(end_beside(4, 2, 0.25, copies, 4) == 6);
    assert_true(end_beside(50, 2, 0.25, copies, 4) == 52);
    assert_true(end_beside(7, 0, 0.25, copies, 4) == 7);
    assert_true(fabs(end_beside(0, 10, 0, copies, 4) - 10) < 1e-12);
}

/* Three pages of 100 MB over 10 GB/s: 10 ms each; every visit computes `seconds`, half as much again beside a copy. */
typedef struct three_pages {
    dfx_plan_problem problem;
    dfx_profile profile;
    dfx_plan_page pages[3];
    dfx_plan_stage stage;
    dfx_plan_region regions[3];
    dfx_plan plan;
} three_pages;

enum { PAGE = 100000000, N_REPEATS = 10 };

static void plan_three(three_pages *t, double seconds, uint32_t n_places, bool unified) {
    *t = (three_pages){.profile = {.link_bytes_per_s = 1e10,
                                   .disk_bytes_per_s = 1e9,
                                   .link_slows_compute = 0.5,
                                   .unified = unified},
                       .stage = {.name = "denoise", .n_regions = 3, .n_repeats = N_REPEATS}};
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
    recorder log;
    recorder_init(&log);
    assert_int_equal(dfx_plan_make(&t->problem, &log.sink, &t->plan), DFX_OK);
    recorder_fini(&log);
}

static void takes(double seconds, uint32_t n_places, bool unified, double step, double image,
                  dfx_limit limit) {
    three_pages t;
    plan_replay replay;
    plan_three(&t, seconds, n_places, unified);
    plan_replay_watch(&t.plan, &t.problem, true, &replay);
    assert_true(fabs(t.plan.step_seconds - step) < 1e-9);
    assert_true(fabs(t.plan.image_seconds - image) < 1e-9);
    assert_int_equal(t.plan.limit, limit);
    plan_replay_free(&replay);
    dfx_plan_fini(&t.plan);
}

static void plan_beside_three_pages_take_the_time_worked_by_hand(void **state) {
    /* 20 ms to compute, two places: a copy of 10 beside each visit, in which 6.667 are done; the other 13.333 alone. So a visit
     * takes 23.333. The first waits for its page, 10, and the last has no copy beside it: 10 + 29 x 23.333 + 20. */
    takes(0.020, 2, false, 0.070, 0.010 + 29 * 0.070 / 3 + 0.020, DFX_LIMIT_COMPUTE);
    /* One place: copies and visits take turns. All stays: there are no copies. */
    takes(0.020, 1, false, 0.090, 0.900, DFX_LIMIT_COMPUTE);
    takes(0.020, 3, false, 0.060, 0.600, DFX_LIMIT_COMPUTE);
    /* 1 ms to compute, one page stays, two take turns in the other place: 2 x (10 + 1); the visit of the one that stays takes 1.5
     * instead of 1 beside a copy of 10. Whether it begins or ends a picture, the last copy has been made by then. */
    three_pages t;
    plan_three(&t, 0.001, 2, false);
    assert_true(fabs(t.plan.step_seconds - 0.022) < 1e-9);
    assert_int_equal(t.plan.limit, DFX_LIMIT_LINK);
    dfx_plan_fini(&t.plan);
    /* Unified memory: 100 ms to read a page to its place, and 200 to compute; no link is passed. */
    takes(0.200, 2, true, 0.600, 0.100 + 30 * 0.200, DFX_LIMIT_COMPUTE);
}

/* 6 ms to compute, 10 to copy: alone the link would be the longer one at 30 ms a step, and is where all three stream through two
 * places; but 9 ms take 13.5 beside copies, and the link still hides them. At 8 ms, 24 beside 30: 30 of copies do 20, the
 * other 4 are computed alone: 34. */
static void plan_beside_limit_is_what_takes_longest(void **state) {
    static const double copies[3] = {0.010, 0.010, 0.010}, six[3] = {0.006, 0.006, 0.006},
                        eight[3] = {0.008, 0.008, 0.008};
    static const bool stays[3] = {false, false, false};
    assert_true(fabs(dfx_plan_cycle_seconds(copies, six, stays, 3, 2, 0.5) - 0.030) < 1e-9);
    assert_true(fabs(dfx_plan_cycle_seconds(copies, eight, stays, 3, 2, 0.5) - 0.034) < 1e-9);
    assert_true(fabs(dfx_plan_cycle_seconds(copies, eight, stays, 3, 2, 0) - 0.030) < 1e-9);
}

/* ---- random questions ---- */

/* Time goes from event to event: a copy or a visit ends. What is left of the visit goes down at 1 / (1 + share) while a copy is
 * made. Mean of a repetition in the last half. */
static double from_event_to_event(const plan_rhythm *r, double share, uint32_t n_repeats) {
    double now = 0, half = 0, copy_left = 0, visit_left = 0;
    size_t n_visits = 0, n_all = (size_t)n_repeats * r->n, n_begun = 0, n_copied = 0, n_used = 0;
    uint32_t source = 0; /* region of the next copy */
    bool copying = false, computing = false;
    while (n_visits < n_all) {
        uint32_t i = (uint32_t)(n_visits % r->n);
        bool any = false;
        for (uint32_t k = 0; k < r->n; k++)
            any |= !r->stays[k];
        if (!copying && any && n_begun < n_used + r->n_slots) {
            while (r->stays[source])
                source = (source + 1) % r->n;
            copy_left = r->link_s[source];
            source = (source + 1) % r->n;
            copying = true;
            n_begun++;
        }
        if (!computing && (r->stays[i] || n_copied > n_used)) {
            visit_left = r->seconds[i];
            computing = true;
        }
        double slower = copying ? 1 + share : 1, step = copying ? copy_left : visit_left * slower;
        if (computing && visit_left * slower < step)
            step = visit_left * slower;
        bool copied = copying && step >= copy_left;
        bool computed = computing && step >= visit_left * slower;
        now += step;
        copy_left -= step;
        visit_left -= step / slower;
        if (copied) {
            copying = false;
            n_copied++;
        }
        if (computed) {
            computing = false;
            n_used += !r->stays[i];
            n_visits++;
            if (n_visits == n_all / 2)
                half = now;
        }
    }
    return (now - half) / (n_repeats - n_repeats / 2);
}

static void plan_beside_cycle_equals_event_simulation(void **state) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t draws = seed;
        plan_rhythm r = {.n = 1 + (uint32_t)(plan_random_next(&draws) >> 40) % 12};
        double share = (double)(plan_random_next(&draws) >> 11) * 0x1p-53;
        uint32_t n_streamed = 0;
        for (uint32_t i = 0; i < r.n; i++) {
            r.link_s[i] = 1e-3 * (double)(1 + (plan_random_next(&draws) >> 20) % 100);
            r.seconds[i] =
                1e-3 * (double)((plan_random_next(&draws) >> 20) % (seed % 3 ? 100 : 300));
            r.stays[i] = (plan_random_next(&draws) >> 20) % 3 == 0;
            n_streamed += !r.stays[i];
        }
        for (r.n_slots = n_streamed ? 1 : 0; r.n_slots <= n_streamed; r.n_slots++) {
            double want = from_event_to_event(&r, share, 1000);
            double got =
                dfx_plan_cycle_seconds(r.link_s, r.seconds, r.stays, r.n, r.n_slots, share);
            if (fabs(got - want) > 2e-3 * want + 1e-12)
                fail_msg("seed %d, %u slots: %.9f s, simulated %.9f s", (int)seed, r.n_slots, got,
                         want);
        }
    }
}

/* Whole pictures: the promise holds, and it is never below that of copies which cost nothing, nor above what all copies cost. */
static void plan_beside_pictures_play_as_planned(void **state) {
    for (uint64_t seed = 1; seed <= 600; seed++) {
        plan_random_kind kind = {.main_regions_max = seed % 6 ? 9 : 40,
                                 .repeats_min = 12,
                                 .repeats_max = 24,
                                 .only_main = seed % 2,
                                 .offload = seed % 3 ? DFX_OFFLOAD_RAM : DFX_OFFLOAD_NVME};
        dfx_plan plan, free_copies;
        plan_replay replay;
        plan_random_make(&question, seed, &kind);
        assert_int_equal(dfx_plan_make(&question.problem, NULL, &free_copies), DFX_OK);
        double share = question.profile.link_slows_compute = 0.01 * (double)(seed % 50);
        assert_int_equal(dfx_plan_make(&question.problem, NULL, &plan), DFX_OK);
        assert_int_equal(plan.n_transfers, free_copies.n_transfers);
        assert_true(plan.peak_bytes == free_copies.peak_bytes);
        for (uint32_t t = 0; t < plan.n_transfers; t++) /* the same places at the same time */
            assert_memory_equal(&plan.transfers[t], &free_copies.transfers[t],
                                sizeof(*plan.transfers));
        for (int warm = 0; warm < 2; warm++) {
            plan_replay_watch(&plan, &question.problem, warm, &replay);
            double wanted = warm ? plan.image_seconds : plan.cold_image_seconds;
            assert_true(fabs(replay.seconds - wanted) <= 1e-9 * wanted);
            double steady = plan_replay_steady(&replay, &plan, &question.problem, question.main);
            bool alone = question.problem.n_stages == 1; /* copies of the next stage begin early */
            if (warm && alone && steady > 1.002 * plan.step_seconds)
                fail_msg("seed %d: a step is %.2f %% slower than planned", (int)seed,
                         100 * (steady / plan.step_seconds - 1));
            plan_replay_free(&replay);
        }
        assert_true(plan.step_seconds >= free_copies.step_seconds * (1 - 1e-9));
        assert_true(plan.step_seconds <= free_copies.step_seconds * (1 + share) * (1 + 1e-9));
        dfx_plan_fini(&plan);
        dfx_plan_fini(&free_copies);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_beside_counts_the_copies_it_meets),
        cmocka_unit_test(plan_beside_three_pages_take_the_time_worked_by_hand),
        cmocka_unit_test(plan_beside_limit_is_what_takes_longest),
        cmocka_unit_test(plan_beside_cycle_equals_event_simulation),
        cmocka_unit_test(plan_beside_pictures_play_as_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
