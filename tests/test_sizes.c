/* Pictures of several sizes in one process, and the first one: what is read when, how often, and that nobody sees it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/model.h"
#include "tests/draw_rig.h"

enum { HANG_SECONDS = 180, N_SIZES = 5 };

/* From the least to a larger one, and back. */
static const int widths[N_SIZES] = {32, 64, 48, 32, 64};

static dfx_request request_of(const draw_rig *r, int width) {
    dfx_request request = draw_request(r, 31);
    request.width = width;
    return request;
}

/* With which the widest fits, and no page stays that need not. */
static uint64_t least_budget(draw_rig *r) {
    static const char option[] = "--vram-budget ";
    draw_open(r, DRAW_SCENES, 1);
    dfx_request request = request_of(r, 64);
    draw_fails(r, &request, DFX_E_NOFIT, option);
    const char *at = strstr(r->log->messages[r->log->n_messages - 1].text, option);
    assert_non_null(at);
    return strtoull(at + strlen(option), NULL, 10);
}

/* Of the packed file: what the session's plan keeps in RAM. *all, *lacking: bytes of its pages, and of those not in `there`. */
static void note_kept(const dfx_model *m, const bool *there, bool *kept, uint64_t *lacking) {
    const dfx_session *ses = &m->session;
    memset(kept, 0, dfx_packed_n_pages(m->packed) * sizeof(bool));
    *lacking = 0;
    for (uint32_t p = 0; p < ses->plan.n_pages; p++) {
        uint32_t idx = ses->page_idx[p];
        kept[idx] = ses->plan.in_ram[p];
        if (!kept[idx] || !there[idx])
            *lacking += dfx_packed_page_at(m->packed, idx)->stored_bytes;
    }
}

/* With --offload ram each page is read once for a plan: unless the tier has it from another one. */
static void another_size_reads_what_is_not_in_ram(void **state) {
    draw_rig *r = *state;
    dfx_image fresh[N_SIZES];
    uint64_t budget = least_budget(r), lacking, first_bytes = 0;
    r->offload = "ram";
    for (int i = 0; i < N_SIZES; i++) {
        draw_open(r, DRAW_SCENES, budget);
        dfx_request request = request_of(r, widths[i]);
        fresh[i] = draw(r, &request);
    }
    draw_open(r, DRAW_SCENES, budget);
    size_t n = dfx_packed_n_pages(r->model->packed);
    bool *there = calloc(n, sizeof(bool)), *kept = calloc(n, sizeof(bool));
    assert_true(there && kept);
    for (int i = 0; i < N_SIZES; i++) {
        dfx_request request = request_of(r, widths[i]);
        dfx_image image = draw(r, &request);
        note_kept(r->model, there, kept, &lacking);
        memcpy(there, kept, n * sizeof(bool));
        assert_int_equal(image.read_bytes, lacking);
        assert_true(i == 0 || image.read_bytes < first_bytes / 2);
        first_bytes = i == 0 ? image.read_bytes : first_bytes;
        draw_same(&fresh[i], &image);
        dfx_image_free(&image);
        dfx_image_free(&fresh[i]);
    }
    free(there);
    free(kept);
}

/* The same bytes wherever pages come from. */
static void sizes_of_any_offload_give_the_bytes_of_a_fresh_process(void **state) {
    static const char *const offloads[] = {"auto", "ram", "nvme"};
    draw_rig *r = *state;
    uint64_t budget = least_budget(r);
    for (int i = 0; i < 2; i++) {
        r->offload = NULL;
        draw_open(r, DRAW_SCENES, 0);
        dfx_request request = request_of(r, widths[i]);
        dfx_image fresh = draw(r, &request);
        for (size_t o = 0; o < DFX_COUNT(offloads); o++) {
            r->offload = offloads[o];
            draw_open(r, DRAW_SCENES, budget + (o == 0 ? budget / 4 : 0));
            dfx_request other = request_of(r, widths[1 - i]);
            dfx_image first = draw(r, &other), second = draw(r, &request);
            draw_same(&fresh, &second);
            dfx_image_free(&first);
            dfx_image_free(&second);
        }
        dfx_image_free(&fresh);
    }
}

/* Nobody has asked for a picture yet. The bytes are those of the picture that is asked for then. */
static void reading_begins_with_the_model(void **state) {
    static const char *const offloads[] = {"auto", "nvme"};
    draw_rig *r = *state;
    char trace[TMPDIR_PATH], path[TMPDIR_PATH];
    draw_pack(r, "model.safetensors", DFX_Q_STORED, false, path);
    r->trace = tmpdir_join(r->dir, "run.json", trace);
    for (size_t o = 0; o < DFX_COUNT(offloads); o++) {
        r->offload = offloads[o];
        draw_open(r, path, 0);
        while (dfx_timeline_n_spans(r->model->timeline) == 0)
            usleep(1000); /* alarm() ends the test should it never begin */
        assert_false(r->model->session.ready);
        assert_true(dfx_timeline_total_ns(r->model->timeline, DFX_TRACK_DISK) > 0);
        dfx_request request = request_of(r, 32);
        dfx_image image = draw(r, &request);
        uint64_t n_bytes = 0;
        for (uint32_t p = 0; p < r->model->session.plan.n_pages; p++)
            n_bytes += dfx_packed_page_at(r->model->packed, r->model->session.page_idx[p])->bytes;
        assert_int_equal(image.read_bytes, n_bytes); /* all stay: each is read once */
        dfx_image_free(&image);
    }
}

/* It stops when it is told to, wherever it is. */
static void model_is_closed_while_it_is_read(void **state) {
    draw_rig *r = *state;
    char path[TMPDIR_PATH];
    draw_pack(r, "model.safetensors", DFX_Q_STORED, false, path);
    size_t held = dfx_mem_held_bytes();
    for (useconds_t us = 0; us < 3000; us += 300) {
        draw_open(r, path, 0);
        usleep(us);
        dfx_model_close(r->model);
        r->model = NULL;
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(another_size_reads_what_is_not_in_ram),
        WITH_DRAW_RIG(sizes_of_any_offload_give_the_bytes_of_a_fresh_process),
        WITH_DRAW_RIG(reading_begins_with_the_model),
        WITH_DRAW_RIG(model_is_closed_while_it_is_read),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
