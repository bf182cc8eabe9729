/* Step reuse: without it, and with a threshold that nothing is below, the same picture; steps that are reused are those that
 * they must be and move no page; the same bits from anywhere, in any company. Pictures of 32 x 32, so that the denoiser and not
 * the decoder is what a small budget is short of. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/bf16_device.h"
#include "tests/draw_rig.h"
#include "tests/lora_file.h"

enum { N = 5, N_STEPS = 8, FIRST_SEED = 31 };

/* Nothing is below; all is below; some is, at FIRST_SEED other steps than at the seeds after it. */
static const float NEVER = 1e-30f, ALWAYS = 1e9f, SOMETIMES = 0.3f;

static dfx_request usual_request(const draw_rig *r, int i, float reuse) {
    dfx_request request = draw_request(r, FIRST_SEED + (uint64_t)i);
    request.steps = N_STEPS;
    request.reuse = reuse;
    return request;
}

/* As the refusal names it. */
static uint64_t least_budget(draw_rig *r, float reuse) {
    static const char option[] = "--vram-budget ";
    draw_open(r, DRAW_SCENES, 1);
    dfx_request request = usual_request(r, 0, reuse);
    draw_fails(r, &request, DFX_E_NOFIT, option);
    return strtoull(strstr(r->log->messages[r->log->n_messages - 1].text, option) + strlen(option),
                    NULL, 10);
}

static void free_images(dfx_image *images, int n) {
    for (int i = 0; i < n; i++)
        dfx_image_free(&images[i]);
}

/* Text of the PNG too. */
static void same_file(const dfx_image *a, const dfx_image *b) {
    draw_same(a, b);
    assert_string_equal(a->json, b->json);
    assert_string_equal(a->parameters, b->parameters);
}

static void reuse_of_nothing_is_the_full_picture(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = usual_request(r, 0, 0);
    dfx_image full = draw(r, &request);
    assert_false(r->model->session.shape.reuses);
    request.reuse = NEVER;
    dfx_image never = draw(r, &request);
    assert_true(r->model->session.shape.reuses);
    assert_int_equal(never.n_reused, 0);
    draw_same(&full, &never);
    assert_non_null(strstr(never.parameters, "Reuse: 1e-30, Reused steps: 0, "));
    const dfx_feed *feed = r->model->session.feed;
    request.reuse = 0;
    dfx_image again = draw(r, &request); /* in the session that could */
    assert_ptr_equal(r->model->session.feed, feed);
    same_file(&full, &again);
    assert_null(strstr(again.json, "reuse"));
    dfx_image_free(&full);
    dfx_image_free(&never);
    dfx_image_free(&again);
}

/* The first and the last step are whole, and after three that are not another one is. In one session. */
static void reuse_of_everything_reuses_all_but_the_forced_steps(void **state) {
    static const int rows[][2] = {{9, 6}, {1, 0}, {2, 0}, {3, 1}, {4, 2},
                                  {5, 3}, {6, 3}, {7, 4}, {8, 5}, {16, 11}};
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        dfx_request request = usual_request(r, 0, 0);
        request.steps = rows[i][0];
        dfx_image full = draw(r, &request);
        request.reuse = ALWAYS;
        dfx_image image = draw(r, &request), again = draw(r, &request);
        assert_int_equal(image.n_reused, rows[i][1]);
        same_file(&image, &again);
        if (image.n_reused > 0)
            draw_differ(&full, &image);
        else
            draw_same(&full, &image);
        dfx_image_free(&full);
        dfx_image_free(&image);
        dfx_image_free(&again);
    }
}

typedef struct told {
    int n_reports, n_reused;
} told;

static void on_progress(void *user, const dfx_progress *p) {
    told *t = user;
    if (p->stage != DFX_STAGE_DENOISE) {
        assert_int_equal(p->n_reused, 0);
        return;
    }
    assert_in_range(p->n_reused, t->n_reused, t->n_reused + 1);
    t->n_reports++;
    t->n_reused = p->n_reused;
}

static void reuse_is_told_in_progress_and_picture(void **state) {
    draw_rig *r = *state;
    told t = {0};
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = usual_request(r, 0, SOMETIMES);
    request.progress = on_progress;
    request.user = &t;
    dfx_image image = draw(r, &request);
    assert_int_equal(t.n_reports, N_STEPS + 1);
    assert_int_equal(t.n_reused, image.n_reused);
    assert_in_range(image.n_reused, 1, 4); /* fewer than at ALWAYS */
    json_t *json = json_loads(image.json, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "reused_steps")), image.n_reused);
    assert_true(fabs(json_real_value(json_object_get(json, "reuse")) - 0.3) < 1e-6);
    json_decref(json);
    dfx_image_free(&image);
}

/* Pictures of one session at the least budget, where pages stream: what is moved for one that reuses steps is what is moved for a
 * full one, less the streamed pages of those steps, to the byte. */
static void reuse_moves_no_page_for_reused_steps(void **state) {
    static const char *const offloads[] = {"ram", "nvme"};
    static const float thresholds[] = {0, NEVER, SOMETIMES, ALWAYS};
    draw_rig *r = *state;
    uint64_t least = least_budget(r, ALWAYS);
    for (size_t o = 0; o < DFX_COUNT(offloads); o++) {
        r->offload = offloads[o];
        draw_open(r, DRAW_SCENES, least);
        dfx_request request = usual_request(r, 0, ALWAYS);
        dfx_image cold = draw(r, &request), full = {0};
        const dfx_plan *plan = &r->model->session.plan;
        uint64_t streamed = plan->streamed_bytes_per_step;
        assert_true(streamed > 0);
        assert_int_equal(plan->peak_bytes, least);
        for (size_t i = 0; i < DFX_COUNT(thresholds); i++) {
            request.reuse = thresholds[i];
            dfx_image image = draw(r, &request);
            uint64_t spared = (uint64_t)image.n_reused * streamed;
            if (i == 0)
                full = image;
            assert_int_equal(image.copied_bytes + spared, full.copied_bytes);
            assert_int_equal(image.read_bytes + (o == 1 ? spared : 0), full.read_bytes);
            assert_int_equal(image.peak_device_bytes, least);
            if (thresholds[i] == ALWAYS) {
                assert_int_equal(image.n_reused, 5);
                same_file(&cold, &image);
            }
            if (i > 0)
                dfx_image_free(&image);
        }
        assert_true(full.copied_bytes >= N_STEPS * streamed);
        assert_true(o == 0 || full.read_bytes >= N_STEPS * streamed);
        dfx_image_free(&cold);
        dfx_image_free(&full);
    }
}

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* What every step runs is always there; the residuals are in the state, and the refusal's number is right. */
static void reuse_plans_pages_that_stay_and_buffers(void **state) {
    static const char *const kept[] = {"/x_embedder", "/transformer_blocks.0/attn",
                                       "/transformer_blocks.0/ff",
                                       "/transformer_blocks.0/ff_context", "step/proj_out"};
    draw_rig *r = *state;
    uint64_t least = least_budget(r, ALWAYS);
    draw_open(r, DRAW_SCENES, least);
    dfx_request request = usual_request(r, 0, ALWAYS);
    assert_int_equal(dfx_request_check(r->model, &request), DFX_OK);
    const dfx_session *ses = &r->model->session;
    size_t n_kept = 0, n_found = 0;
    for (uint32_t i = 0; i < ses->trace.n_pages; i++) {
        n_kept += ses->trace.pages[i].keep;
        for (size_t k = 0; k < DFX_COUNT(kept); k++)
            if (ends_with(ses->trace.pages[i].name, kept[k])) {
                assert_true(ses->trace.pages[i].keep && ses->plan.permanent[i]);
                n_found++;
            }
    }
    assert_int_equal(n_found, DFX_COUNT(kept));
    assert_int_equal(n_kept, DFX_COUNT(kept));
    assert_int_equal(r->model->budget.used_bytes, least);
    /* 4 tokens of text, 2 x 2 of the picture; F32. h, and three residuals of the picture's; minus and diff to a border each. */
    const dfx_configs *c = &r->model->parts.configs;
    dfx_shape plain = ses->shape;
    dfx_state unused;
    plain.reuses = false;
    size_t with = dfx_picture_state(c, &ses->shape, DFX_DTYPE_F32, ses->programs, NULL, &unused),
           without = dfx_picture_state(c, &plain, DFX_DTYPE_F32, ses->programs, NULL, &unused);
    assert_int_equal(with - without, ((4 + 4) + 3 * 4) * (size_t)c->flux.width * 4 + 2 * 256);
    draw_open(r, DRAW_SCENES, least - 1);
    draw_fails(r, &request, DFX_E_NOFIT, "pages that must stay, and the largest other one");
}

static void reuse_at_any_budget_and_offload_gives_same_bytes(void **state) {
    static const char *const offloads[] = {"auto", "ram", "nvme"};
    enum { N_BUDGETS = 5 };
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = usual_request(r, 0, SOMETIMES);
    dfx_image want = draw(r, &request);
    uint64_t most = want.peak_device_bytes, least = least_budget(r, SOMETIMES);
    assert_true(most > least);
    for (size_t o = 0; o < DFX_COUNT(offloads); o++)
        for (int i = 0; i < N_BUDGETS; i++) {
            uint64_t budget = least + (most - least) * (uint64_t)i / (N_BUDGETS - 1);
            r->offload = offloads[o];
            draw_open(r, DRAW_SCENES, budget);
            for (int twice = 0; twice < 2; twice++) {
                dfx_image image = draw(r, &request);
                same_file(&want, &image);
                assert_true(image.peak_device_bytes <= budget);
                assert_int_equal(image.peak_device_bytes, r->model->session.plan.peak_bytes);
                dfx_image_free(&image);
            }
        }
    dfx_image_free(&want);
}

/* Lanes decide by themselves: every picture of a batch is the one that its seed gives alone, with as many reused steps, though
 * one takes all blocks in steps in which another one does not. */
static void reuse_in_lanes_gives_pictures_made_alone(void **state) {
    static const float thresholds[] = {SOMETIMES, ALWAYS};
    draw_rig *r = *state;
    for (size_t t = 0; t < DFX_COUNT(thresholds); t++) {
        dfx_image alone[N], images[N];
        r->offload = "nvme";
        uint64_t least = least_budget(r, thresholds[t]);
        draw_open(r, DRAW_SCENES, 0);
        int n_reused = 0;
        for (int i = 0; i < N; i++) {
            dfx_request request = usual_request(r, i, thresholds[t]);
            alone[i] = draw(r, &request);
            n_reused += alone[i].n_reused;
        }
        assert_true(n_reused > 0);
        draw_open(r, DRAW_SCENES, least * 3 / 2);
        r->model->profile.link_bytes_per_s = r->model->profile.disk_bytes_per_s = 1e6;
        for (int again = 0; again < 2; again++) {
            dfx_request request = usual_request(r, 0, thresholds[t]);
            recorder_clear(r->log);
            assert_int_equal(dfx_generate_batch(r->model, &request, N, images), DFX_OK);
            assert_in_range(r->model->session.shape.n_lanes, 2, N);
            for (int i = 0; i < N; i++) {
                same_file(&alone[i], &images[i]);
                assert_int_equal(alone[i].n_reused, images[i].n_reused);
            }
            free_images(images, N);
        }
        free_images(alone, N);
    }
}

/* ---- a device that tells when its visits were made */

enum { VISITS_MAX = 4096 };
static struct {
    dfx_times at[VISITS_MAX];
    bool is_new[VISITS_MAX]; /* its times have not been taken since */
    int n_begun, n_taken;
    bool
        overtaken; /* a visit was made again before its times were taken, or they were taken twice */
    double seconds;
} device;

static dfx_status device_mark_begin(dfx_backend *be, uint32_t visit) {
    assert_in_range(visit, 0, VISITS_MAX - 1);
    device.overtaken |= device.is_new[visit];
    device.at[visit].begin_ns = (int64_t)dfx_clock_ns();
    device.is_new[visit] = true;
    device.n_begun++;
    return DFX_OK;
}

static dfx_status device_mark(dfx_backend *be, uint32_t visit) {
    device.at[visit].end_ns = (int64_t)dfx_clock_ns();
    return DFX_OK;
}

static dfx_status device_visit_times(dfx_backend *be, uint32_t visit, dfx_times *out) {
    device.overtaken |= !device.is_new[visit];
    device.is_new[visit] = false;
    device.n_taken++;
    *out = device.at[visit];
    device.seconds += 1e-9 * (double)(out->end_ns - out->begin_ns);
    return DFX_OK;
}

/* Every region that was run is booked once, in reused steps too, though they take the visits of a repetition to come. */
static void reuse_books_the_time_of_every_step(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    static dfx_backend_vtable vt; /* outlives a test that fails */
    const dfx_backend_vtable *usual = r->model->backend->vt;
    vt = *usual;
    vt.mark_begin = device_mark_begin;
    vt.mark = device_mark;
    vt.visit_times = device_visit_times;
    r->model->backend->vt = &vt;
    static const float thresholds[] = {NEVER, SOMETIMES, ALWAYS};
    int n_regions = 0;
    for (size_t i = 0; i < DFX_COUNT(thresholds); i++) {
        memset(&device, 0, sizeof(device));
        dfx_request request = usual_request(r, 0, thresholds[i]);
        dfx_image image = draw(r, &request), again = draw(r, &request);
        const dfx_session *ses = &r->model->session;
        assert_false(device.overtaken);
        assert_int_equal(device.n_begun, device.n_taken);
        assert_true(fabs(image.compute_seconds + again.compute_seconds - device.seconds) < 1e-6);
        int n_rest = (int)ses->programs[DFX_PROGRAM_REST].n_regions;
        assert_true(n_rest > 1);
        if (i == 0)
            n_regions = device.n_begun;
        else if (i == 1) /* the first picture of the session has encoded its text */
            n_regions -= (int)(ses->trace.stages[DFX_PLAN_TEXT].n_regions +
                               ses->trace.stages[DFX_PLAN_COND].n_regions);
        if (i > 0)
            assert_int_equal(device.n_begun, n_regions - 2 * image.n_reused * (n_rest - 1));
        dfx_image_free(&image);
        dfx_image_free(&again);
    }
    r->model->backend->vt = usual;
}

/* ---- LoRAs */

static double sum_of_block(const dfx_session *ses, dfx_program_id id) {
    const float *values = ses->state.adapters[id];
    double sum = 0;
    for (size_t i = 0; i < ses->programs[id].adapter_bytes / sizeof(float); i++)
        sum += fabs((double)values[i]);
    return sum;
}

/* A LoRA of the first block and others, and one of the final layer, which both endings of a step have. */
static void reuse_beside_loras_keeps_them_in_every_part(void **state) {
    static const float down[256] = {0.5f, -0.25f}, up[64] = {0.125f};
    draw_rig *r = *state;
    static lora_file file; /* too large for a stack */
    char path[TMPDIR_PATH];
    lora_file_begin(&file);
    lora_file_pair(&file, "transformer.proj_out", 1, 256, down, 64, up);
    lora_file_write(&file, r->dir, "last.safetensors");
    const dfx_lora_use use[] = {{"tests/golden/lora/peft.safetensors", 1},
                                {tmpdir_join(r->dir, "last.safetensors", path), 1}};
    r->lora_max_rank = 4;
    r->lora_max = 2;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = usual_request(r, 0, 0);
    dfx_image plain = draw(r, &request);
    request.loras = use;
    request.n_loras = 2;
    dfx_image full = draw(r, &request);
    draw_differ(&plain, &full);
    request.reuse = NEVER;
    dfx_image parts = draw(r, &request);
    draw_same(&full, &parts);
    request.loras = &use[1];
    request.n_loras = 1;
    request.reuse = ALWAYS;
    dfx_image reused = draw(r, &request);
    assert_int_equal(reused.n_reused, 5);
    const dfx_session *ses = &r->model->session;
    assert_true(sum_of_block(ses, DFX_PROGRAM_STEP) == 0);
    assert_true(sum_of_block(ses, DFX_PROGRAM_REST) > 0);
    assert_true(sum_of_block(ses, DFX_PROGRAM_REST) == sum_of_block(ses, DFX_PROGRAM_REUSED));
    request.n_loras = 0;
    dfx_image without = draw(r, &request);
    draw_differ(&without, &reused);
    dfx_image *all[] = {&plain, &full, &parts, &reused, &without};
    for (size_t i = 0; i < DFX_COUNT(all); i++)
        dfx_image_free(all[i]);
}

/* ---- a device that records, with activations in BF16 */

static void open_recording(draw_rig *r, uint64_t budget_bytes) {
    draw_open(r, DRAW_SCENES, budget_bytes);
    r->model->backend->vt->close(r->model->backend);
    r->model->backend = NULL;
    assert_int_equal(bf16_device_open(r->n_threads, &r->model->sink, &r->model->backend), DFX_OK);
}

/* Recorded parts hold addresses: of a page in every place that it is found in, of each lane. Twice, so that what was recorded for
 * one picture is replayed for the next; alone and together. */
static void reuse_of_recorded_parts_gives_same_bytes(void **state) {
    static const char option[] = "--vram-budget ";
    draw_rig *r = *state;
    dfx_image want[N], images[N];
    open_recording(r, 0);
    dfx_request request = usual_request(r, 0, 0);
    dfx_image full = draw(r, &request);
    request.reuse = NEVER;
    dfx_image never = draw(r, &request);
    draw_same(&full, &never);
    for (int i = 0; i < N; i++) {
        request = usual_request(r, i, SOMETIMES);
        want[i] = draw(r, &request);
    }
    assert_true(want[0].n_reused > 0);
    assert_true(r->model->session.executor.n_recorded > 0);
    r->offload = "nvme";
    open_recording(r, 1);
    draw_fails(r, &request, DFX_E_NOFIT, option);
    const char *refusal = r->log->messages[r->log->n_messages - 1].text;
    uint64_t least = strtoull(strstr(refusal, option) + strlen(option), NULL, 10);
    for (int lanes = 0; lanes < 2; lanes++) {
        open_recording(r, lanes ? least * 3 / 2 : least);
        r->model->profile.link_bytes_per_s = r->model->profile.disk_bytes_per_s = 1e6;
        for (int again = 0; again < 2; again++) {
            request = usual_request(r, 0, SOMETIMES);
            assert_int_equal(dfx_generate_batch(r->model, &request, lanes ? N : 1, images), DFX_OK);
            assert_int_equal(r->model->session.shape.n_lanes > 1, lanes);
            for (int i = 0; i < (lanes ? N : 1); i++)
                same_file(&want[i], &images[i]);
            free_images(images, lanes ? N : 1);
        }
    }
    free_images(want, N);
    dfx_image_free(&full);
    dfx_image_free(&never);
}

/* Cancels when a step is reported. */
typedef struct stopper {
    int step;
    bool stop;
} stopper;

static void stop_at(void *user, const dfx_progress *p) {
    stopper *s = user;
    s->stop |= p->stage == DFX_STAGE_DENOISE && p->step == s->step;
}

static bool is_cancelled(void *user) {
    return ((stopper *)user)->stop;
}

/* In every step, whole or reused; the next pictures of the session are the usual ones. */
static void reuse_cancelled_at_any_step_leaves_session_usable(void **state) {
    draw_rig *r = *state;
    r->offload = "nvme";
    uint64_t least = least_budget(r, ALWAYS);
    draw_open(r, DRAW_SCENES, least);
    dfx_request usual = usual_request(r, 0, ALWAYS), full = usual_request(r, 0, 0);
    dfx_image want = draw(r, &usual), want_full = draw(r, &full);
    for (int step = 0; step < N_STEPS; step++) {
        stopper s = {.step = step};
        dfx_request request = usual;
        dfx_image image = {0};
        request.progress = stop_at;
        request.cancelled = is_cancelled;
        request.user = &s;
        recorder_clear(r->log);
        assert_int_equal(dfx_generate(r->model, &request, &image), DFX_E_CANCELLED);
        said_nothing(r->log, DFX_ERROR);
        dfx_image after = draw(r, step % 2 ? &full : &usual);
        same_file(step % 2 ? &want_full : &want, &after);
        dfx_image_free(&after);
    }
    dfx_image_free(&want);
    dfx_image_free(&want_full);
}

static void reuse_that_is_no_threshold_is_refused(void **state) {
    static const float bad[] = {-0.1f, NAN, INFINITY};
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    for (size_t i = 0; i < DFX_COUNT(bad); i++) {
        dfx_request request = usual_request(r, 0, bad[i]);
        draw_fails(r, &request, DFX_E_USAGE, "reuse: wanted a number from 0 up");
    }
}

static void reuse_survives_failing_allocations(void **state) {
    draw_rig *r = *state;
    r->offload = "nvme";
    uint64_t least = least_budget(r, ALWAYS), n_faults = 0;
    draw_open(r, DRAW_SCENES, least);
    dfx_request request = usual_request(r, 0, ALWAYS);
    dfx_image want = draw(r, &request);
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK || n_faults < 10; nth += 1 + nth / 4) {
        dfx_image image = {0};
        draw_open(r, DRAW_SCENES, least);
        dfx_mem_fail_nth(nth);
        status = dfx_generate(r->model, &request, &image);
        dfx_mem_fail_nth(0);
        n_faults += status != DFX_OK;
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        if (status != DFX_OK)
            image = draw(r, &request);
        same_file(&want, &image);
        dfx_image_free(&image);
    }
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(reuse_of_nothing_is_the_full_picture),
        WITH_DRAW_RIG(reuse_of_everything_reuses_all_but_the_forced_steps),
        WITH_DRAW_RIG(reuse_is_told_in_progress_and_picture),
        WITH_DRAW_RIG(reuse_moves_no_page_for_reused_steps),
        WITH_DRAW_RIG(reuse_plans_pages_that_stay_and_buffers),
        WITH_DRAW_RIG(reuse_at_any_budget_and_offload_gives_same_bytes),
        WITH_DRAW_RIG(reuse_in_lanes_gives_pictures_made_alone),
        WITH_DRAW_RIG(reuse_beside_loras_keeps_them_in_every_part),
        WITH_DRAW_RIG(reuse_of_recorded_parts_gives_same_bytes),
        WITH_DRAW_RIG(reuse_books_the_time_of_every_step),
        WITH_DRAW_RIG(reuse_cancelled_at_any_step_leaves_session_usable),
        WITH_DRAW_RIG(reuse_that_is_no_threshold_is_refused),
        WITH_DRAW_RIG(reuse_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
