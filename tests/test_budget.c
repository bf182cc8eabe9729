/* Pictures inside a memory budget: from everything on the device down to the least, whatever the pages come from, the same
 * bytes; what the ledger shows is what was planned, and so is what is read and copied. Too little is refused with the number
 * that would do, and a refused request leaves the model as it was. */
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "tests/draw_rig.h"

/* The number behind `option` in the last error. */
static uint64_t wanted(const draw_rig *r, const char *option) {
    const char *at = NULL;
    for (size_t i = 0; i < r->log->n_messages; i++)
        if (r->log->messages[i].level == DFX_ERROR)
            at = strstr(r->log->messages[i].text, option);
    assert_non_null(at);
    return strtoull(at + strlen(option), NULL, 10);
}

/* The least budget of device memory, from the refusal of one byte. */
static uint64_t least_budget(draw_rig *r, const dfx_request *request) {
    draw_open(r, DRAW_SCENES, 1);
    draw_fails(r, request, DFX_E_NOFIT, "its largest page of weights");
    uint64_t least = wanted(r, "--vram-budget ");
    assert_true(least > 1);
    return least;
}

/* The same of pinned memory, under this budget of the device. */
static uint64_t least_ram(draw_rig *r, const dfx_request *request, uint64_t budget_bytes) {
    r->ram_budget_bytes = 1;
    draw_open(r, DRAW_SCENES, budget_bytes);
    draw_fails(r, request, DFX_E_NOFIT, "--ram-budget");
    r->ram_budget_bytes = 0;
    uint64_t least = wanted(r, "--ram-budget ");
    assert_true(least > 1);
    return least;
}

/* The usual picture, without a budget: every page stays. */
static dfx_image draw_unbounded(draw_rig *r, dfx_request *request) {
    draw_open(r, DRAW_SCENES, 0);
    *request = draw_request(r, 21);
    return draw(r, request);
}

/* Bytes that a picture should move whose first stage is `first`: of the transfers, those that bring what some visit from
 * there on uses. On the CPU every one is a copy. Reads: all but permanent pages that are there, and of the RAM tier each
 * page once in the life of a session. */
typedef struct moved {
    uint64_t read_bytes, copied_bytes;
} moved;

static uint32_t bringer(const dfx_plan *plan, uint32_t visit) {
    uint32_t found = UINT32_MAX;
    for (uint32_t k = 0; k < plan->n_transfers; k++)
        if (plan->transfers[k].for_visit <= visit &&
            plan->transfers[k].page_idx == plan->visits[visit].page_idx)
            found = k;
    assert_true(found != UINT32_MAX);
    return found;
}

/* The session has been built for more steps, perhaps. */
static moved planned(const dfx_model *m, int first, int n_steps, bool is_first_picture) {
    const dfx_plan *plan = &m->session.plan;
    uint32_t skip_from = plan->stage_first_visit[DFX_PLAN_DENOISE] +
                         (uint32_t)n_steps * m->session.trace.stages[DFX_PLAN_DENOISE].n_regions;
    bool *needed = calloc(plan->n_transfers + 1, sizeof(bool)),
         *loaded = calloc(plan->n_pages, sizeof(bool));
    assert_true(needed && loaded);
    moved sum = {0};
    for (uint32_t v = plan->stage_first_visit[first]; v < plan->n_visits; v++)
        needed[bringer(plan, v)] |= v < skip_from || v >= plan->stage_first_visit[DFX_PLAN_DECODE];
    for (uint32_t k = 0; k < plan->n_transfers; k++) {
        const dfx_transfer *t = &plan->transfers[k];
        if (!needed[k] || (t->once && !is_first_picture))
            continue;
        uint64_t bytes = dfx_packed_page_at(m->packed, m->session.page_idx[t->page_idx])->bytes;
        bool in_ram = plan->in_ram[t->page_idx];
        sum.copied_bytes += bytes;
        if (!in_ram || (is_first_picture && !loaded[t->page_idx]))
            sum.read_bytes += bytes;
        loaded[t->page_idx] = true;
    }
    free(needed);
    free(loaded);
    return sum;
}

/* early_bytes: what may have come early and found no room beside the plan. */
static void moved_as_planned(const dfx_image *image, moved want, uint64_t early_bytes) {
    assert_in_range(image->read_bytes, want.read_bytes, want.read_bytes + early_bytes);
    assert_int_equal(image->copied_bytes, want.copied_bytes);
}

/* What is held at the most for these bytes: beside them programs and the plan itself, some hundred kilobytes; and an eighth
 * of all, by which mimalloc may round a block up. Sanitized builds do not round. */
static uint64_t held_at_most(uint64_t bytes) {
    uint64_t most = bytes + (1 << 20);
#ifndef DFX_SANITIZED
    most += most / 8;
#endif
    return most;
}

/* Memory of pages that are being read before there is a plan. */
static uint64_t early_bytes(const dfx_model *m) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < dfx_packed_n_pages(m->packed); p++)
        bytes += dfx_tier_page_at(m->tier, p)->mem.bytes;
    return bytes;
}

/* Two pictures within the budgets: the same bytes as `want`, and all numbers those of the plan; what is really held, too. */
static void same_within(draw_rig *r, const dfx_request *request, const dfx_image *want,
                        uint64_t budget_bytes) {
    draw_open(r, DRAW_SCENES, budget_bytes);
    size_t held = dfx_mem_held_bytes() - early_bytes(r->model);
    dfx_image image = draw(r, request);
    held = dfx_mem_held_bytes() - held;
    const dfx_plan *plan = &r->model->session.plan;
    assert_true(plan->peak_bytes <= budget_bytes);
    assert_true(r->ram_budget_bytes == 0 || plan->host_bytes <= r->ram_budget_bytes);
    assert_int_equal(image.peak_device_bytes, plan->peak_bytes);
    assert_in_range(held, plan->peak_bytes, held_at_most(plan->peak_bytes + plan->host_bytes));
    moved_as_planned(&image, planned(r->model, DFX_PLAN_TEXT, image.steps, true),
                     r->ram_budget_bytes);
    draw_same(want, &image);
    dfx_image_free(&image);
    image = draw(r, request); /* the text is there */
    assert_int_equal(image.peak_device_bytes, plan->peak_bytes);
    moved_as_planned(&image, planned(r->model, DFX_PLAN_DENOISE, image.steps, false), 0);
    draw_same(want, &image);
    dfx_image_free(&image);
}

enum { N_BUDGETS = 5 };

/* From `most` down to `least`, both included. */
static uint64_t nth_budget(uint64_t most, uint64_t least, int i) {
    return most - (most - least) * (uint64_t)i / (N_BUDGETS - 1);
}

static void budgets_of_any_size_and_offload_give_same_bytes(void **state) {
    static const char *const offloads[] = {"auto", "ram", "nvme"};
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t most = want.peak_device_bytes, least = least_budget(r, &request);
    assert_true(least < most / 2);
    for (size_t o = 0; o < DFX_COUNT(offloads); o++)
        for (int i = 0; i < N_BUDGETS; i++) {
            r->offload = offloads[o];
            same_within(r, &request, &want, nth_budget(most, least, i));
        }
    dfx_image_free(&want);
}

/* A session serves pictures of fewer steps than it was made for, with the bytes of one that was made for them. */
static void steps_of_one_session_give_the_bytes_of_their_own(void **state) {
    static const int steps[] = {3, 1, 4, 2};
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want[DFX_COUNT(steps)], unbounded = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    for (size_t i = 0; i < DFX_COUNT(steps); i++) {
        draw_open(r, DRAW_SCENES, least);
        request.steps = steps[i];
        want[i] = draw(r, &request);
    }
    draw_open(r, DRAW_SCENES, least);
    for (size_t i = 0; i < DFX_COUNT(steps); i++) {
        request.steps = steps[i];
        dfx_image image = draw(r, &request);
        draw_same(&want[i], &image);
        dfx_image_free(&image);
    }
    for (size_t i = 0; i < DFX_COUNT(steps); i++)
        dfx_image_free(&want[i]);
    dfx_image_free(&unbounded);
}

/* What stays never moves again; what streams is read for each use unless pinned memory has it. */
static void budgets_decide_what_a_second_picture_moves(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request), again = draw(r, &request);
    assert_true(want.read_bytes > 0 && want.copied_bytes == want.read_bytes);
    assert_true(again.read_bytes == 0 && again.copied_bytes == 0);
    uint64_t least = least_budget(r, &request);
    r->offload = "ram";
    draw_open(r, DRAW_SCENES, least);
    dfx_image ram = draw(r, &request), ram_again = draw(r, &request);
    assert_true(ram.copied_bytes > want.copied_bytes); /* the denoiser twice */
    assert_true(ram.read_bytes == want.read_bytes);
    assert_true(ram_again.read_bytes == 0 && ram_again.copied_bytes > 0);
    r->offload = "nvme";
    draw_open(r, DRAW_SCENES, least);
    dfx_image nvme = draw(r, &request), nvme_again = draw(r, &request);
    assert_true(nvme.copied_bytes == ram.copied_bytes && nvme.read_bytes == ram.copied_bytes);
    assert_true(nvme_again.read_bytes == ram_again.copied_bytes);
    dfx_image *images[] = {&want, &again, &ram, &ram_again, &nvme, &nvme_again};
    for (size_t i = 0; i < DFX_COUNT(images); i++) {
        draw_same(&want, images[i]);
        if (i > 0)
            dfx_image_free(images[i]);
    }
    dfx_image_free(&want);
}

/* Down to one staging buffer, and a share of the pages beside it. */
static void ram_budgets_of_any_size_give_same_bytes(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t most = want.peak_device_bytes, least = least_budget(r, &request);
    static const struct {
        const char *offload;
        int budget;
    } rows[] = {{"auto", N_BUDGETS / 2}, {"auto", N_BUDGETS - 1}, {"nvme", N_BUDGETS - 1}};
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        uint64_t budget = nth_budget(most, least, rows[i].budget);
        r->offload = rows[i].offload;
        uint64_t ram = least_ram(r, &request, budget);
        for (uint64_t times = 1; times <= 6; times += 5) {
            r->ram_budget_bytes = times * ram;
            same_within(r, &request, &want, budget);
        }
        r->ram_budget_bytes = ram - 1;
        draw_open(r, DRAW_SCENES, budget);
        draw_fails(r, &request, DFX_E_NOFIT, "--ram-budget");
        assert_true(wanted(r, "--ram-budget ") == ram);
        r->ram_budget_bytes = 0;
    }
    dfx_image_free(&want);
}

/* "ram" wants all that does not stay in pinned memory, and says how much that is. */
static void ram_budget_of_offload_ram_is_refused_naming_the_least(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    r->offload = "ram";
    uint64_t ram = least_ram(r, &request, least);
    r->ram_budget_bytes = ram - 1;
    draw_open(r, DRAW_SCENES, least);
    draw_fails(r, &request, DFX_E_NOFIT, "with --offload ram");
    r->ram_budget_bytes = ram;
    same_within(r, &request, &want, least);
    dfx_image_free(&want);
}

static void budget_one_byte_below_the_least_is_refused_naming_it(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    draw_open(r, DRAW_SCENES, least - 1);
    draw_fails(r, &request, DFX_E_NOFIT, "its largest page of weights");
    assert_true(wanted(r, "--vram-budget ") == least);
    same_within(r, &request, &want, least);
    dfx_image_free(&want);
}

/* Where everything must stay, the peak without a budget is the least. */
static void budget_of_offload_none_is_that_of_everything(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    r->offload = "none";
    draw_open(r, DRAW_SCENES, want.peak_device_bytes - 1);
    draw_fails(r, &request, DFX_E_NOFIT, "with --offload none all weights");
    assert_true(wanted(r, "--vram-budget ") == want.peak_device_bytes);
    same_within(r, &request, &want, want.peak_device_bytes);
    dfx_image_free(&want);
}

static void open_with_unknown_offload_is_refused(void **state) {
    draw_rig *r = *state;
    r->offload = "disk";
    draw_open_fails(r, DRAW_SCENES, DFX_E_USAGE, "wanted auto, ram, nvme or none, found \"disk\"");
}

/* A picture that is too large for the budget, then the usual one in the same process. */
static void budget_refusal_leaves_model_usable(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    uint64_t least = least_budget(r, &request);
    draw_open(r, DRAW_SCENES, least);
    dfx_request large = request;
    large.width = large.height = 2048;
    for (int i = 0; i < 2; i++) {
        draw_fails(r, &large, DFX_E_NOFIT, "--vram-budget");
        assert_true(wanted(r, "--vram-budget ") > least);
        dfx_image again = draw(r, &request);
        draw_same(&want, &again);
        assert_true(again.peak_device_bytes <= least);
        dfx_image_free(&again);
    }
    dfx_image_free(&want);
}

/* After a larger picture the budget is still kept, and its number still right. */
static void budget_is_kept_after_a_larger_picture(void **state) {
    draw_rig *r = *state;
    dfx_request request;
    dfx_image want = draw_unbounded(r, &request);
    dfx_request large = request;
    large.width = 128;
    large.height = 64;
    large.steps = 1;
    uint64_t least = least_budget(r, &large);
    draw_open(r, DRAW_SCENES, least);
    dfx_image first = draw(r, &large);
    assert_int_equal(first.peak_device_bytes, least);
    dfx_image again = draw(r, &request);
    draw_same(&want, &again);
    assert_true(again.peak_device_bytes <= least);
    dfx_image_free(&first);
    dfx_image_free(&again);
    dfx_image_free(&want);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(budgets_of_any_size_and_offload_give_same_bytes),
        WITH_DRAW_RIG(budgets_decide_what_a_second_picture_moves),
        WITH_DRAW_RIG(steps_of_one_session_give_the_bytes_of_their_own),
        WITH_DRAW_RIG(ram_budgets_of_any_size_give_same_bytes),
        WITH_DRAW_RIG(ram_budget_of_offload_ram_is_refused_naming_the_least),
        WITH_DRAW_RIG(budget_one_byte_below_the_least_is_refused_naming_it),
        WITH_DRAW_RIG(budget_of_offload_none_is_that_of_everything),
        WITH_DRAW_RIG(open_with_unknown_offload_is_refused),
        WITH_DRAW_RIG(budget_refusal_leaves_model_usable),
        WITH_DRAW_RIG(budget_is_kept_after_a_larger_picture),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
