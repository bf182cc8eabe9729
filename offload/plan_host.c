/* The host's side of a plan: which pages are kept in pinned memory, and the staging buffers for the others. */
#include "offload/planner_internal.h"

#include <inttypes.h>
#include <string.h>

enum { STAGING_MOST = 3, STAGING_LEAST = 2 };

typedef struct host {
    const dfx_plan_problem *p;
    const dfx_sink *sink;
    dfx_plan *plan;
    uint64_t *bytes; /* [n_pages] pinned size */
    bool *every_step,
        *each_picture; /* [n_pages]: brought in each step of the main stage, or once in each picture */
} host;

/* Staging is for what is not in the RAM tier: permanent pages too, which pass through it once. */
static uint64_t largest_staged(const host *h) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < h->p->n_pages; i++)
        if (!h->plan->in_ram[i] && h->bytes[i] > largest)
            largest = h->bytes[i];
    return largest;
}

static void classify(host *h) {
    uint32_t main = dfx_plan_main_stage(h->p);
    for (uint32_t i = 0; i < h->plan->n_transfers; i++) {
        const dfx_transfer *t = &h->plan->transfers[i];
        if (t->once)
            continue;
        bool streams =
            h->plan->visits[t->for_visit].stage_idx == main && !h->plan->resident[t->page_idx];
        h->every_step[t->page_idx] |= streams;
        h->each_picture[t->page_idx] |= !streams;
    }
    for (uint32_t i = 0; i < h->p->n_pages; i++)
        h->each_picture[i] &= !h->every_step[i];
}

static uint64_t sum_of(const host *h, const bool *which) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < h->p->n_pages; i++)
        sum += which[i] ? h->bytes[i] : 0;
    return sum;
}

static dfx_status refuse(const host *h, uint64_t need, const char *why) {
    char have[DFX_BYTES_TEXT], want[DFX_BYTES_TEXT];
    return dfx_fail(
        h->sink, DFX_E_NOFIT,
        "does not fit the RAM budget of %s: %s; give at least %s (--ram-budget %" PRIu64 ")",
        dfx_bytes_text(h->p->ram_budget_bytes, have), why, dfx_bytes_text(need, want), need);
}

/* Pages of the RAM tier under the budget less the staging that the rest may need. */
static dfx_status choose(host *h) {
    const dfx_plan_problem *p = h->p;
    dfx_plan *plan = h->plan;
    uint64_t wanted = sum_of(h, h->every_step) + sum_of(h, h->each_picture);
    uint64_t staging = STAGING_LEAST * largest_staged(h), budget = p->ram_budget_bytes;
    if (p->offload == DFX_OFFLOAD_NVME || p->profile->unified)
        return DFX_OK;
    if (p->offload == DFX_OFFLOAD_RAM && wanted > budget)
        return refuse(h, wanted,
                      "with --offload ram every page that does not stay on the device is kept in "
                      "pinned memory");
    bool all = wanted <= budget;
    if (all) {
        for (uint32_t i = 0; i < p->n_pages; i++)
            plan->in_ram[i] = h->every_step[i] || h->each_picture[i];
        if (p->offload == DFX_OFFLOAD_RAM || wanted + STAGING_LEAST * largest_staged(h) <= budget)
            return DFX_OK;
        memset(plan->in_ram, 0, p->n_pages * sizeof(bool));
    }
    uint64_t room = budget > staging ? budget - staging : 0;
    room -= dfx_plan_spread(h->bytes, h->every_step, p->n_pages, room, plan->in_ram);
    for (uint32_t i = 0; i < p->n_pages; i++)
        if (h->each_picture[i] && h->bytes[i] <= room) {
            plan->in_ram[i] = true;
            room -= h->bytes[i];
        }
    return DFX_OK;
}

static dfx_status size_staging(host *h) {
    const dfx_plan_problem *p = h->p;
    dfx_plan *plan = h->plan;
    uint64_t tier = sum_of(h, plan->in_ram), one = largest_staged(h);
    bool needed = !p->profile->unified && one > 0;
    plan->host_bytes = tier;
    if (!needed)
        return DFX_OK;
    uint32_t n = STAGING_MOST;
    while (n > 1 && tier + n * one > p->ram_budget_bytes)
        n--;
    if (tier + n * one > p->ram_budget_bytes)
        return refuse(h, tier + n * one, "a page on its way from the disk needs a staging buffer");
    plan->n_staging = n;
    plan->staging_bytes = one;
    plan->host_bytes = tier + n * one;
    return DFX_OK;
}

dfx_status dfx_plan_host(const dfx_plan_problem *p, const dfx_sink *sink, dfx_plan *plan) {
    host h = {.p = p, .sink = sink, .plan = plan};
    DFX_TRY(dfx_arena_alloc(&plan->memory, sink, p->n_pages * sizeof(uint64_t), (void **)&h.bytes));
    DFX_TRY(
        dfx_arena_alloc(&plan->memory, sink, p->n_pages * sizeof(bool), (void **)&h.every_step));
    DFX_TRY(
        dfx_arena_alloc(&plan->memory, sink, p->n_pages * sizeof(bool), (void **)&h.each_picture));
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t stored =
            p->pages[i].disk_bytes > p->pages[i].bytes ? p->pages[i].disk_bytes : p->pages[i].bytes;
        h.bytes[i] = dfx_plan_host_align(stored);
    }
    classify(&h);
    DFX_TRY(choose(&h));
    return size_staging(&h);
}
