/* Several pictures of one request: bit for bit those that are made alone, at any budget and from anywhere; made together where
 * pages are waited for, and then a page moves once for all of them; what was finished before a failure stays. The machine's
 * profile says that pages come slowly, or the bundled model would always be limited by computing. */
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/draw_rig.h"

enum { N = 5, N_STEPS = 4, FIRST_SEED = 31 };

typedef struct alone {
    dfx_image
        images[N]; /* of the seeds from FIRST_SEED on, each made alone, where every page stays */
    uint64_t most_bytes, least_bytes; /* of the budget: all stays, the least */
} alone;

static dfx_request usual_request(const draw_rig *r, int i) {
    dfx_request request = draw_request(r, FIRST_SEED + (uint64_t)i);
    request.steps = N_STEPS; /* no more go together than there are steps */
    return request;
}

static uint64_t least_budget(draw_rig *r) {
    static const char option[] = "--vram-budget ";
    draw_open(r, DRAW_SCENES, 1);
    dfx_request request = usual_request(r, 0);
    draw_fails(r, &request, DFX_E_NOFIT, option);
    return strtoull(strstr(r->log->messages[r->log->n_messages - 1].text, option) + strlen(option),
                    NULL, 10);
}

static alone make_alone(draw_rig *r) {
    alone a;
    draw_open(r, DRAW_SCENES, 0);
    for (int i = 0; i < N; i++) {
        dfx_request request = usual_request(r, i);
        a.images[i] = draw(r, &request);
    }
    a.most_bytes = a.images[0].peak_device_bytes;
    a.least_bytes = least_budget(r);
    return a;
}

static void free_images(dfx_image *images, int n) {
    for (int i = 0; i < n; i++)
        dfx_image_free(&images[i]);
}

static dfx_request open_slow(draw_rig *r, const char *offload, uint64_t budget_bytes) {
    r->offload = offload;
    draw_open(r, DRAW_SCENES, budget_bytes);
    r->model->profile.link_bytes_per_s = r->model->profile.disk_bytes_per_s = 1e6;
    return usual_request(r, 0);
}

/* Enough for all lanes there can be, and for no page more. */
static uint64_t budget_of_lanes(draw_rig *r, const alone *a) {
    dfx_request request = open_slow(r, "nvme", a->least_bytes);
    assert_int_equal(dfx_request_check(r->model, &request), DFX_OK);
    return a->least_bytes +
           (DFX_LANES_MAX - 1) * r->model->session.programs[DFX_PROGRAM_STEP].act_bytes;
}

static void batch(draw_rig *r, const dfx_request *request, int n, dfx_image *out) {
    recorder_clear(r->log);
    dfx_status status = dfx_generate_batch(r->model, request, n, out);
    said_nothing(r->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
}

static void same_as_alone(const alone *a, const dfx_image *images, int n) {
    for (int i = 0; i < n; i++) {
        assert_true(images[i].seed == FIRST_SEED + (uint64_t)i);
        draw_same(&a->images[i], &images[i]);
        assert_string_equal(images[i].json, a->images[i].json);
    }
}

static void batch_at_any_budget_and_offload_gives_pictures_made_alone(void **state) {
    static const char *const offloads[] = {"auto", "ram", "nvme"};
    enum { N_BUDGETS = 5 };
    draw_rig *r = *state;
    alone a = make_alone(r);
    int most_lanes = 0, least_lanes = DFX_LANES_MAX;
    for (size_t o = 0; o < DFX_COUNT(offloads); o++)
        for (int i = 0; i < N_BUDGETS; i++) {
            uint64_t budget =
                a.most_bytes - (a.most_bytes - a.least_bytes) * (uint64_t)i / (N_BUDGETS - 1);
            dfx_image images[N];
            dfx_request request = open_slow(r, offloads[o], budget);
            batch(r, &request, N, images);
            same_as_alone(&a, images, N);
            const dfx_session *ses = &r->model->session;
            assert_true(ses->plan.peak_bytes <= budget);
            for (int k = 0; k < N; k++)
                assert_int_equal(images[k].peak_device_bytes, ses->plan.peak_bytes);
            if (ses->shape.n_lanes > most_lanes)
                most_lanes = ses->shape.n_lanes;
            if (ses->shape.n_lanes < least_lanes)
                least_lanes = ses->shape.n_lanes;
            free_images(images, N);
        }
    assert_int_equal(least_lanes, 1); /* all stays */
    assert_in_range(most_lanes, 3, N);
    free_images(a.images, N);
}

/* Groups that are full, and not; of fewer steps than the session can make. */
static void batch_of_any_size_and_steps_in_one_session(void **state) {
    draw_rig *r = *state;
    alone a = make_alone(r), fewer = a;
    draw_open(r, DRAW_SCENES, 0);
    for (int i = 0; i < N; i++) {
        dfx_request request = usual_request(r, i);
        request.steps = N_STEPS - 1;
        fewer.images[i] = draw(r, &request);
    }
    dfx_request request = open_slow(r, "nvme", budget_of_lanes(r, &a));
    dfx_image images[N];
    batch(r, &request, N, images);
    const dfx_feed *feed = r->model->session.feed;
    int n_lanes = r->model->session.shape.n_lanes;
    assert_in_range(n_lanes, 3, N - 1); /* so that five are no multiple */
    free_images(images, N);
    for (int n = 1; n <= N; n++)
        for (int less = 0; less < 2; less++) {
            request.steps = N_STEPS - less;
            batch(r, &request, n, images);
            same_as_alone(less ? &fewer : &a, images, n);
            free_images(images, n);
            assert_ptr_equal(r->model->session.feed, feed);
        }
    free_images(a.images, N);
    free_images(fewer.images, N);
}

/* Bytes of a repetition's transfers: those of pages that do not stay. */
static uint64_t streamed_bytes(const dfx_session *ses, int stage) {
    uint64_t bytes = 0;
    const dfx_plan_stage *s = &ses->trace.stages[stage];
    for (uint32_t i = 0; i < s->n_regions; i++) {
        uint32_t page = s->regions[i].page_idx;
        bool stays =
            stage == DFX_PLAN_DENOISE ? ses->plan.resident[page] : ses->plan.permanent[page];
        bytes += stays ? 0 : ses->trace.pages[page].bytes;
    }
    return bytes;
}

static uint64_t copied_by(const dfx_image *images, int n) {
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += images[i].copied_bytes;
    return bytes;
}

/* The denoiser's pages, most of what moves, once for all; the decoder's once for each. */
static void batch_moves_the_pages_of_one_picture(void **state) {
    enum { TOGETHER = 3 };
    draw_rig *r = *state;
    alone a = make_alone(r);
    dfx_image one, images[TOGETHER];
    dfx_request request = open_slow(r, "nvme", budget_of_lanes(r, &a));
    batch(r, &request, TOGETHER, images);
    const dfx_session *ses = &r->model->session;
    assert_int_equal(ses->shape.n_lanes, TOGETHER);
    free_images(images, TOGETHER);
    batch(r, &request, TOGETHER, images); /* the text is there, and what stays for good */
    one = draw(r, &request);
    uint64_t decoder = streamed_bytes(ses, DFX_PLAN_DECODE);
    assert_true(one.copied_bytes >= N_STEPS * streamed_bytes(ses, DFX_PLAN_DENOISE) + decoder);
    assert_true(copied_by(images, TOGETHER) == one.copied_bytes + (TOGETHER - 1) * decoder);
    assert_true(copied_by(images, TOGETHER) < one.copied_bytes * 5 / 4);
    for (int i = 1; i < TOGETHER; i++) /* equal shares, but for what comes early for the next one */
        assert_in_range(images[i].copied_bytes, images[0].copied_bytes - 2 * decoder,
                        images[0].copied_bytes + 2 * decoder);
    free_images(images, TOGETHER);
    dfx_image_free(&one);
    free_images(a.images, N);
}

/* Text is encoded for the first group alone, and its pictures share it. */
static void batch_encodes_the_text_once(void **state) {
    draw_rig *r = *state;
    alone a = make_alone(r);
    dfx_image images[N];
    dfx_request request = open_slow(r, "nvme", budget_of_lanes(r, &a));
    batch(r, &request, N, images);
    int n_lanes = r->model->session.shape.n_lanes, n_groups = (N + n_lanes - 1) / n_lanes;
    for (int i = 0; i < N; i++) {
        bool in_first = i < N / n_groups;
        assert_true(in_first == (images[i].stage_seconds[DFX_STAGE_TEXT] > 0));
        assert_true(images[i].stage_seconds[DFX_STAGE_DENOISE] > 0);
        assert_true(images[i].stage_seconds[DFX_STAGE_DECODE] > 0);
        assert_true(images[i].seconds >= images[i].stage_seconds[DFX_STAGE_DENOISE]);
    }
    assert_int_equal(n_groups, 2);
    free_images(images, N);
    free_images(a.images, N);
}

/* What the caller is told, in order, and where it stops the call. */
typedef struct watcher {
    dfx_stage stage; /* when this has begun for this picture, cancel */
    int picture;
    int refuse; /* the made call that says DFX_E_IO; -1: none */
    bool take;  /* each picture is freed as it comes */
    bool stopped;
    uint64_t seeds[N];
    int n_made;
    dfx_progress last;
} watcher;

static void on_progress(void *user, const dfx_progress *p) {
    watcher *w = user;
    assert_int_equal(p->n_pictures, N);
    assert_in_range(p->n_together, 1, N - p->picture);
    assert_true(p->picture >= w->last.picture || p->stage < w->last.stage);
    if (p->stage == DFX_STAGE_DECODE) {
        assert_int_equal(p->n_together, 1);
        assert_int_equal(p->picture + p->step,
                         w->n_made + p->step); /* handed out before the next */
    }
    w->stopped |= p->stage == w->stage && p->picture == w->picture;
    w->last = *p;
}

static bool is_cancelled(void *user) {
    return ((watcher *)user)->stopped;
}

static dfx_status on_made(void *user, dfx_image *image) {
    watcher *w = user;
    assert_non_null(image->rgb);
    assert_non_null(image->parameters);
    if (w->n_made == w->refuse)
        return DFX_E_IO;
    w->seeds[w->n_made++] = image->seed;
    if (w->take)
        dfx_image_free(image);
    return DFX_OK;
}

static watcher watch(dfx_request *request, watcher *w) {
    request->progress = on_progress;
    request->cancelled = is_cancelled;
    request->made = on_made;
    request->user = w;
    return (watcher){.picture = -1, .refuse = -1};
}

static void no_more_than(const dfx_image *images, int n_made) {
    for (int i = n_made; i < N; i++) {
        assert_null(images[i].rgb);
        assert_null(images[i].parameters);
        assert_null(images[i].json);
        assert_int_equal(images[i].width, 0);
    }
}

static void batch_hands_out_each_picture_when_it_is_made(void **state) {
    draw_rig *r = *state;
    alone a = make_alone(r);
    dfx_image images[N];
    for (int take = 0; take < 2; take++) {
        watcher w;
        dfx_request request = open_slow(r, "nvme", budget_of_lanes(r, &a));
        w = watch(&request, &w);
        w.take = take;
        batch(r, &request, N, images);
        assert_int_equal(w.n_made, N);
        for (int i = 0; i < N; i++)
            assert_true(w.seeds[i] == FIRST_SEED + (uint64_t)i);
        if (take)
            no_more_than(images, 0);
        else
            same_as_alone(&a, images, N);
        free_images(images, N);
    }
    free_images(a.images, N);
}

/* At each stage of each group; the model then makes the same pictures as ever. */
static void batch_cancelled_keeps_what_is_made(void **state) {
    static const struct {
        dfx_stage stage;
        int picture, n_made;
    } rows[] = {{DFX_STAGE_TEXT, 0, 0},   {DFX_STAGE_DENOISE, 0, 0}, {DFX_STAGE_DECODE, 0, 0},
                {DFX_STAGE_DECODE, 1, 1}, {DFX_STAGE_DENOISE, 2, 2}, {DFX_STAGE_DECODE, 2, 2},
                {DFX_STAGE_DECODE, 4, 4}};
    draw_rig *r = *state;
    alone a = make_alone(r);
    uint64_t budget = budget_of_lanes(r, &a);
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        dfx_image images[N];
        watcher w;
        dfx_request usual = open_slow(r, "nvme", budget), request = usual;
        w = watch(&request, &w);
        w.stage = rows[i].stage;
        w.picture = rows[i].picture;
        assert_int_equal(dfx_generate_batch(r->model, &request, N, images), DFX_E_CANCELLED);
        said_nothing(r->log, DFX_ERROR);
        assert_int_equal(w.n_made, rows[i].n_made);
        same_as_alone(&a, images, w.n_made);
        no_more_than(images, w.n_made);
        free_images(images, w.n_made);
        batch(r, &usual, N, images);
        same_as_alone(&a, images, N);
        free_images(images, N);
    }
    free_images(a.images, N);
}

/* The picture itself was made, and is the caller's. */
static void batch_ends_with_what_the_caller_says_of_a_picture(void **state) {
    draw_rig *r = *state;
    alone a = make_alone(r);
    uint64_t budget = budget_of_lanes(r, &a);
    for (int refuse = 0; refuse < N; refuse++) {
        dfx_image images[N];
        watcher w;
        dfx_request request = open_slow(r, "nvme", budget);
        w = watch(&request, &w);
        w.refuse = refuse;
        assert_int_equal(dfx_generate_batch(r->model, &request, N, images), DFX_E_IO);
        assert_int_equal(w.n_made, refuse);
        same_as_alone(&a, images, refuse + 1);
        no_more_than(images, refuse + 1);
        free_images(images, refuse + 1);
    }
    free_images(a.images, N);
}

static void batch_of_no_picture_is_refused(void **state) {
    draw_rig *r = *state;
    draw_open(r, DRAW_SCENES, 0);
    dfx_request request = draw_request(r, 1);
    for (int n = -1; n <= 0; n++) {
        recorder_clear(r->log);
        assert_int_equal(dfx_request_check_batch(r->model, &request, n), DFX_E_USAGE);
        said_error(r->log, "pictures: wanted at least 1");
        assert_int_equal(dfx_generate_batch(r->model, &request, n, NULL), DFX_E_USAGE);
    }
}

/* A session that one lane is right for, since all stays, is kept for any number of pictures; another is built anew once. */
static void batch_keeps_a_session_that_does(void **state) {
    draw_rig *r = *state;
    alone a = make_alone(r);
    uint64_t budgets[] = {0, budget_of_lanes(r, &a)};
    for (size_t i = 0; i < DFX_COUNT(budgets); i++) {
        dfx_request request = open_slow(r, "nvme", budgets[i]);
        assert_int_equal(dfx_request_check(r->model, &request), DFX_OK);
        assert_int_equal(r->model->session.shape.n_lanes, 1);
        assert_int_equal(dfx_request_check_batch(r->model, &request, N), DFX_OK);
        assert_int_equal(r->model->session.shape.n_lanes > 1, i == 1);
        int n_lanes = r->model->session.shape.n_lanes;
        for (int n = 1; n < N; n++) {
            assert_int_equal(dfx_request_check_batch(r->model, &request, n), DFX_OK);
            assert_int_equal(r->model->session.shape.n_lanes, n_lanes);
        }
    }
    free_images(a.images, N);
}

/* One whose values are not finite stops the others, which are nobody's. */
static void batch_with_huge_weights_says_numeric(void **state) {
    draw_rig *r = *state;
    const char *path = draw_copy(r);
    draw_poke(r, "transformer/diffusion_pytorch_model.safetensors", "proj_out.weight",
              DRAW_BF16_MAX, 256);
    draw_open(r, path, 0);
    dfx_image images[N];
    dfx_request request = draw_request(r, 1);
    recorder_clear(r->log);
    assert_int_equal(dfx_generate_batch(r->model, &request, N, images), DFX_E_NUMERIC);
    said_error(r->log, "after step 1 of 2");
    no_more_than(images, 0);
}

/* An allocation fails in the middle: with fewer lanes, or not at all, but never with other pictures or a leak. */
static void batch_survives_failing_allocations(void **state) {
    enum { FEW = 3 };
    draw_rig *r = *state;
    alone a = make_alone(r);
    uint64_t budget = budget_of_lanes(r, &a), n_faults = 0;
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK || n_faults < 10; nth += 1 + nth / 2) {
        dfx_image images[N] = {0};
        dfx_request request = open_slow(r, "nvme", budget);
        dfx_mem_fail_nth(nth);
        status = dfx_generate_batch(r->model, &request, FEW, images);
        dfx_mem_fail_nth(0);
        n_faults += status != DFX_OK;
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        for (int i = 0; i < FEW; i++)
            if (images[i].rgb)
                draw_same(&a.images[i], &images[i]);
        free_images(images, FEW);
        batch(r, &request, FEW, images);
        same_as_alone(&a, images, FEW);
        free_images(images, FEW);
    }
    free_images(a.images, N);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(batch_at_any_budget_and_offload_gives_pictures_made_alone),
        WITH_DRAW_RIG(batch_of_any_size_and_steps_in_one_session),
        WITH_DRAW_RIG(batch_moves_the_pages_of_one_picture),
        WITH_DRAW_RIG(batch_encodes_the_text_once),
        WITH_DRAW_RIG(batch_hands_out_each_picture_when_it_is_made),
        WITH_DRAW_RIG(batch_cancelled_keeps_what_is_made),
        WITH_DRAW_RIG(batch_ends_with_what_the_caller_says_of_a_picture),
        WITH_DRAW_RIG(batch_of_no_picture_is_refused),
        WITH_DRAW_RIG(batch_keeps_a_session_that_does),
        WITH_DRAW_RIG(batch_with_huge_weights_says_numeric),
        WITH_DRAW_RIG(batch_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
