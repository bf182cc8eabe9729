/* The host's side of a plan: which pages are kept in pinned memory, and the staging buffers for the others. */
#include "offload/planner_internal.h"

#include <inttypes.h>
#include <string.h>

typedef struct host {
    const dfx_plan_problem *p;
    const dfx_sink *sink;
    dfx_plan *plan;
    uint64_t *bytes; /* [n_pages] pinned size */
    bool *every_step,
        *each_picture; /* [n_pages]: brought in each step of the main stage, or once in each picture */
} host;

uint64_t dfx_plan_host_bytes(const dfx_plan_page *page) {
    uint64_t bytes = page->disk_bytes > page->bytes ? page->disk_bytes : page->bytes;
    return (bytes + DFX_PLAN_HOST_ALIGN - 1) / DFX_PLAN_HOST_ALIGN * DFX_PLAN_HOST_ALIGN;
}

uint64_t dfx_plan_tier_room(const dfx_plan_problem *p) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t bytes = dfx_plan_host_bytes(&p->pages[i]);
        largest = bytes > largest ? bytes : largest;
    }
    uint64_t staging = DFX_PLAN_STAGING_GOOD * largest;
    return p->ram_budget_bytes > staging ? p->ram_budget_bytes - staging : 0;
}

uint32_t dfx_plan_n_staging(const dfx_plan_problem *p, uint64_t tier, uint64_t one) {
    uint32_t n = DFX_PLAN_STAGING_MAX;
    while (n > 1 && tier + n * one > p->ram_budget_bytes)
        n--;
    return n;
}

uint64_t dfx_plan_staging_most(uint64_t page_bytes, uint64_t ram_budget_bytes) {
    dfx_plan_problem p = {.ram_budget_bytes = ram_budget_bytes};
    uint64_t one = dfx_plan_host_bytes(&(dfx_plan_page){.bytes = page_bytes});
    return dfx_plan_n_staging(&p, 0, one) * one;
}

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

static void keep_wanted(host *h) {
    for (uint32_t i = 0; i < h->p->n_pages; i++)
        h->plan->in_ram[i] = h->every_step[i] || h->each_picture[i];
}

/* An even share, in the order of use, of the pages that every step brings. *room: less what they take. */
static dfx_status keep_share(host *h, uint64_t *room) {
    const dfx_plan_stage *stage = &h->p->stages[dfx_plan_main_stage(h->p)];
    uint32_t n = stage->n_regions;
    uint64_t *bytes;
    bool *wanted, *kept;
    DFX_TRY(dfx_arena_alloc(&h->plan->memory, h->sink, n * sizeof(*bytes), (void **)&bytes));
    DFX_TRY(
        dfx_arena_alloc(&h->plan->memory, h->sink, 2 * (size_t)n * sizeof(bool), (void **)&wanted));
    kept = wanted + n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = stage->regions[i].page_idx, first = 0;
        while (stage->regions[first].page_idx != page)
            first++;
        bytes[i] = h->bytes[page];
        wanted[i] = h->every_step[page] && first == i;
    }
    *room -= dfx_plan_spread(bytes, wanted, n, *room, kept);
    for (uint32_t i = 0; i < n; i++)
        h->plan->in_ram[stage->regions[i].page_idx] |= kept[i];
    return DFX_OK;
}

/* As far as the budget goes beside staging: first what every step brings, then the rest. */
static dfx_status keep_some(host *h) {
    const dfx_plan_problem *p = h->p;
    dfx_plan *plan = h->plan;
    memcpy(plan->in_ram, h->every_step, p->n_pages * sizeof(bool));
    uint64_t staging = DFX_PLAN_STAGING_GOOD * largest_staged(h), room = dfx_plan_tier_room(p),
             every_step = sum_of(h, h->every_step);
    if (every_step + staging <= p->ram_budget_bytes) {
        room = p->ram_budget_bytes - staging - every_step;
    } else {
        memset(plan->in_ram, 0, p->n_pages * sizeof(bool));
        DFX_TRY(keep_share(h, &room));
    }
    for (uint32_t i = 0; i < p->n_pages; i++)
        if (h->each_picture[i] && h->bytes[i] <= room) {
            plan->in_ram[i] = true;
            room -= h->bytes[i];
        }
    return DFX_OK;
}

static dfx_status choose(host *h) {
    const dfx_plan_problem *p = h->p;
    uint64_t budget = p->ram_budget_bytes;
    if (p->offload == DFX_OFFLOAD_NVME || p->profile->unified)
        return DFX_OK;
    keep_wanted(h);
    uint64_t tier = sum_of(h, h->plan->in_ram), staged = largest_staged(h);
    if (p->offload == DFX_OFFLOAD_RAM)
        return tier + staged <= budget ? DFX_OK
                                       : refuse(h, tier + staged,
                                                "with --offload ram every page that does not stay "
                                                "on the device is kept in pinned memory");
    return tier + DFX_PLAN_STAGING_GOOD * staged <= budget ? DFX_OK : keep_some(h);
}

static dfx_status size_staging(host *h) {
    const dfx_plan_problem *p = h->p;
    dfx_plan *plan = h->plan;
    uint64_t tier = sum_of(h, plan->in_ram), one = largest_staged(h);
    bool needed = !p->profile->unified && one > 0;
    plan->host_bytes = tier;
    if (!needed)
        return DFX_OK;
    uint32_t n = dfx_plan_n_staging(p, tier, one);
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
    for (uint32_t i = 0; i < p->n_pages; i++)
        h.bytes[i] = dfx_plan_host_bytes(&p->pages[i]);
    classify(&h);
    DFX_TRY(choose(&h));
    return size_staging(&h);
}
