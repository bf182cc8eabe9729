/* How many pictures go together, for FLUX.1-dev itself, which is built without tensors: as many as gain by it and fit, and the plan
 * for them is one that plays. */
#include <math.h>

#include "models/architecture.h"
#include "models/picture_plan.h"
#include "tests/plan_replay.h"
#include "tests/tmpdir.h"

enum { STEPS = 28 };

typedef struct lanes_plan {
    dfx_profile profile;
    dfx_picture_plan picture;
    recorder log;
    dfx_status status;
} lanes_plan;

typedef struct lanes_case {
    const char *profile;
    uint64_t budget_bytes;
    dfx_offload offload;
    int n_steps, n_pictures;
} lanes_case;

static void plan_lanes(lanes_plan *f, const lanes_case *c) {
    dfx_q_policy policy = {.target = DFX_Q_INT8, .kept = DFX_Q_STORED};
    dfx_build_env env[DFX_N_COMPONENTS];
    recorder_init(&f->log);
    assert_int_equal(dfx_profile_load(c->profile, &f->log.sink, &f->profile), DFX_OK);
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        env[i] =
            (dfx_build_env){.like = &policy, .act_dtype = DFX_DTYPE_BF16, .sink = &f->log.sink};
    dfx_picture_question question = {.configs = &dfx_architecture_find("flux-dev")->configs,
                                     .env = env,
                                     .shape = {.width = 1024,
                                               .height = 1024,
                                               .n_text = 512,
                                               .n_steps = c->n_steps,
                                               .n_pictures = c->n_pictures},
                                     .profile = &f->profile,
                                     .budget_bytes = c->budget_bytes,
                                     .ram_budget_bytes = 64ull << 30,
                                     .offload = c->offload};
    f->status = dfx_picture_plan_make(&question, &f->log.sink, &f->picture);
}

static void plan_free(lanes_plan *f) {
    dfx_picture_plan_fini(&f->picture);
    recorder_fini(&f->log);
}

static int together(const lanes_plan *f) {
    return (int)f->picture.problem.n_together;
}

/* Behind text and conditioning, of n_pictures in groups. */
static double seconds_of(const lanes_plan *f, int n_pictures) {
    const double *seconds = f->picture.plan.stage_seconds;
    int n_groups = (n_pictures + together(f) - 1) / together(f);
    return n_groups * (seconds[DFX_PLAN_DENOISE] + seconds[DFX_PLAN_DECODE]);
}

static double computing_seconds(const lanes_plan *f) {
    double seconds = 0;
    for (int s = DFX_PLAN_DENOISE; s <= DFX_PLAN_DECODE; s++) {
        const dfx_plan_stage *stage = &f->picture.trace.stages[s];
        for (uint32_t i = 0; i < stage->n_regions; i++)
            seconds += stage->n_repeats * stage->regions[i].seconds;
    }
    return seconds;
}

/* Worked by hand. In 4 GiB 5.03 GiB, 5.40 GB, have to come for each step, at 6.3 GB/s: 0.86 s, where a 4090 computes for 0.25 s.
 * Three lanes compute for 0.74 s; four for 0.99 s, about as long as the 6.3 GB need that do not stay beside their activations. */
static void lanes_of_slow_pages_reach_the_time_of_computing(void **state) {
    lanes_case c = {.profile = "rtx4090",
                    .budget_bytes = 4ull << 30,
                    .offload = DFX_OFFLOAD_NVME,
                    .n_steps = STEPS,
                    .n_pictures = 1};
    lanes_plan one, more;
    plan_lanes(&one, &c);
    double alone = seconds_of(&one, 1), computing = computing_seconds(&one);
    assert_int_equal(together(&one), 1);
    assert_int_equal(one.picture.plan.limit, DFX_LIMIT_DISK);
    assert_true(alone > 3 * computing);
    c.n_pictures = 8;
    plan_lanes(&more, &c);
    assert_int_equal(together(&more), 4);
    assert_true(fabs(computing_seconds(&more) / (4 * computing) - 1) < 1e-9);
    assert_true(seconds_of(&more, 8) < 8 * computing * 1.02);
    plan_free(&one);
    plan_free(&more);
}

/* Where every page stays, or the link keeps up, a second lane would only take memory. */
static void lanes_are_one_where_nothing_is_waited_for(void **state) {
    static const lanes_case cases[] = {
        {"rtx4090", 24ull << 30, DFX_OFFLOAD_NONE, STEPS, 8},
        {"rtx4090", 12ull << 30, DFX_OFFLOAD_AUTO, STEPS, 8},
        {"rtx4090", 6ull << 30, DFX_OFFLOAD_RAM, STEPS, 8},
        {"h200", 8ull << 30, DFX_OFFLOAD_RAM, STEPS, 1000},
    };
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        lanes_plan f;
        plan_lanes(&f, &cases[i]);
        assert_int_equal(f.status, DFX_OK);
        assert_int_equal(together(&f), 1);
        plan_free(&f);
    }
}

/* Never slower than one after the other, never more than there are, within the budget, whose least is that of one picture. */
static void lanes_pay_and_fit_at_any_budget(void **state) {
    static const char *const profiles[] = {"rtx4090", "rtx3060", "orin"};
    static const int counts[] = {2, 3, 5, 8, 9};
    for (size_t i = 0; i < DFX_COUNT(profiles); i++)
        for (uint64_t gib = 2; gib <= 8; gib += 2) {
            lanes_case c = {.profile = profiles[i],
                            .budget_bytes = gib << 30,
                            .offload = DFX_OFFLOAD_NVME,
                            .n_steps = STEPS,
                            .n_pictures = 1};
            lanes_plan one;
            plan_lanes(&one, &c);
            for (size_t k = 0; k < DFX_COUNT(counts); k++) {
                lanes_plan f;
                c.n_pictures = counts[k];
                plan_lanes(&f, &c);
                assert_int_equal(f.status, DFX_OK);
                assert_in_range(together(&f), 1, c.n_pictures < 8 ? c.n_pictures : 8);
                assert_true(f.picture.plan.peak_bytes <= c.budget_bytes);
                assert_int_equal(f.picture.plan.least_budget_bytes,
                                 one.picture.plan.least_budget_bytes);
                assert_true(seconds_of(&f, counts[k]) <=
                            counts[k] * seconds_of(&one, 1) * 1.000001);
                assert_true(together(&f) == 1 ||
                            seconds_of(&f, counts[k]) < counts[k] * seconds_of(&one, 1) * 0.98);
                plan_free(&f);
            }
            plan_free(&one);
        }
}

/* At the least budget the decoder's 768 MiB of activations hold two blocks of the denoiser's 257 MiB and its largest page of 72.
 * What the second lane adds is its latents and velocity: 4096 x 64 in bf16 each, 1 MiB. */
static void lanes_at_the_least_budget_lie_where_the_decoder_will(void **state) {
    for (int mib = 0; mib <= 1; mib++) {
        lanes_case c = {.profile = "rtx4090",
                        .budget_bytes = 8ull << 30,
                        .offload = DFX_OFFLOAD_NVME,
                        .n_steps = STEPS,
                        .n_pictures = 4};
        lanes_plan f;
        plan_lanes(&f, &c);
        c.budget_bytes = f.picture.plan.least_budget_bytes + ((uint64_t)mib << 20);
        plan_free(&f);
        plan_lanes(&f, &c);
        assert_int_equal(f.status, DFX_OK);
        assert_int_equal(f.picture.plan.peak_bytes, c.budget_bytes);
        assert_int_equal(together(&f), 1 + mib);
        plan_free(&f);
    }
}

/* The decoder is planned once for each lane, and must not repeat more than the denoiser. */
static void lanes_are_not_more_than_steps(void **state) {
    for (int steps = 1; steps <= 4; steps++) {
        lanes_case c = {.profile = "rtx4090",
                        .budget_bytes = 4ull << 30,
                        .offload = DFX_OFFLOAD_NVME,
                        .n_steps = steps,
                        .n_pictures = 8};
        lanes_plan f;
        plan_lanes(&f, &c);
        assert_int_equal(f.status, DFX_OK);
        assert_int_equal(together(&f), steps);
        plan_free(&f);
    }
}

static void lanes_plans_play_as_planned(void **state) {
    static const lanes_case cases[] = {
        {"rtx4090", 3ull << 30, DFX_OFFLOAD_RAM, STEPS, 4},
        {"rtx4090", 4ull << 30, DFX_OFFLOAD_NVME, STEPS, 4},
        {"rtx3060", 6ull << 30, DFX_OFFLOAD_NVME, 4, 8},
        {"orin", 4ull << 30, DFX_OFFLOAD_NVME, STEPS, 8},
    };
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        lanes_plan f;
        plan_replay replay;
        plan_lanes(&f, &cases[i]);
        assert_int_equal(f.status, DFX_OK);
        plan_replay_watch(&f.picture.plan, &f.picture.problem, true, &replay);
        assert_true(fabs(replay.seconds / f.picture.plan.image_seconds - 1) < 1e-9);
        plan_replay_free(&replay);
        plan_free(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_slow_pages_reach_the_time_of_computing),
        cmocka_unit_test(lanes_are_one_where_nothing_is_waited_for),
        cmocka_unit_test(lanes_pay_and_fit_at_any_budget),
        cmocka_unit_test(lanes_at_the_least_budget_lie_where_the_decoder_will),
        cmocka_unit_test(lanes_are_not_more_than_steps),
        cmocka_unit_test(lanes_plans_play_as_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
