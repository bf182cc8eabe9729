#include "tests/plan_random.h"

#include <string.h>

uint64_t plan_random_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

/* [low, high], both included. */
static uint64_t between(uint64_t *s, uint64_t low, uint64_t high) {
    return low + (plan_random_next(s) >> 11) % (high - low + 1);
}

static double real(uint64_t *s, double low, double high) {
    return low + (high - low) * (double)(plan_random_next(s) >> 11) * 0x1p-53;
}

static bool chance(uint64_t *s, uint32_t percent) {
    return between(s, 1, 100) <= percent;
}

uint64_t plan_aligned(uint64_t bytes) {
    return (bytes + 255) & ~(uint64_t)255;
}

static uint64_t largest_page(const dfx_plan_problem *p, uint32_t stage) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < p->stages[stage].n_regions; i++) {
        const dfx_plan_page *page = &p->pages[p->stages[stage].regions[i].page_idx];
        uint64_t bytes = page->keep ? 0 : plan_aligned(page->bytes);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

uint64_t plan_least_bytes(const dfx_plan_problem *p) {
    uint64_t least = 0, kept = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        kept += p->pages[i].keep ? plan_aligned(p->pages[i].bytes) : 0;
    for (uint32_t s = 0; s < p->n_stages; s++) {
        uint64_t need = plan_aligned(p->stages[s].activation_bytes) + largest_page(p, s);
        least = need > least ? need : least;
    }
    return p->workspace_bytes + plan_aligned(p->state_bytes) + kept + least;
}

uint64_t plan_everything_bytes(const dfx_plan_problem *p) {
    uint64_t pages = 0, activations = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        pages += plan_aligned(p->pages[i].bytes);
    for (uint32_t s = 0; s < p->n_stages; s++) {
        uint64_t bytes = plan_aligned(p->stages[s].activation_bytes);
        activations = bytes > activations ? bytes : activations;
    }
    return p->workspace_bytes + plan_aligned(p->state_bytes) + activations + pages;
}

/* Bytes as of an image model, in one, two or many sizes; on the disk as they are, or compressed. */
static void draw_pages(plan_random *r, uint64_t *s, uint32_t first, uint32_t n) {
    uint64_t sizes[2] = {between(s, 1000, 200 << 20), between(s, 1000, 200 << 20)};
    uint64_t way = between(s, 0, 2);
    bool compressed = chance(s, 20);
    for (uint32_t i = first; i < first + n; i++) {
        uint64_t bytes = way == 2 ? between(s, 1, 200 << 20) : sizes[way && chance(s, 50)];
        r->pages[i] = (dfx_plan_page){
            .name = "page", .bytes = bytes, .disk_bytes = compressed ? bytes - bytes / 4 : bytes};
    }
}

/* Its own pages in order; now and then one of them again, or one of another stage. */
static void draw_stage(plan_random *r, uint64_t *s, uint32_t stage, const plan_random_kind *kind) {
    bool main = stage == r->main;
    uint32_t n = (uint32_t)between(s, 1, main ? kind->main_regions_max : 6),
             first = r->problem.n_pages;
    draw_pages(r, s, first, n);
    r->problem.n_pages += n;
    double scale = real(s, 0.1, 3); /* computing over transferring */
    for (uint32_t i = first; main && kind->keeps && i < first + n; i++)
        r->pages[i].keep = chance(s, 30);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = first + i;
        if (!kind->no_twice && chance(s, 5))
            page = (uint32_t)between(s, 0, first + i);
        r->regions[stage][i] = (dfx_plan_region){
            .page_idx = page,
            .seconds = chance(s, 5) ? 0
                                    : scale * real(s, 0.2, 1.8) * (double)r->pages[page].bytes /
                                          r->profile.link_bytes_per_s};
    }
    r->stages[stage] = (dfx_plan_stage){
        .name = main ? "denoise" : "other",
        .regions = r->regions[stage],
        .n_regions = n,
        .n_repeats = main ? (uint32_t)between(s, kind->repeats_min, kind->repeats_max) : 1,
        .activation_bytes = between(s, 0, 400 << 20)};
}

static void draw_budgets(plan_random *r, uint64_t *s, const plan_random_kind *kind) {
    dfx_plan_problem *p = &r->problem;
    uint64_t least = plan_least_bytes(p), all = plan_everything_bytes(p), largest = 0, sum = 0;
    p->budget_bytes = chance(s, 5) ? least : chance(s, 5) ? all : between(s, least, all + all / 16);
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t bytes = p->pages[i].bytes + 4096;
        largest = bytes > largest ? bytes : largest;
        sum += bytes;
    }
    p->ram_budget_bytes = kind->scarce_ram ? between(s, largest, sum + sum / 8) : 1ull << 60;
}

void plan_random_make(plan_random *r, uint64_t seed, const plan_random_kind *kind) {
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1, *s = &state;
    *r = (plan_random){0};
    r->profile = (dfx_profile){.name = "random",
                               .unified = kind->unified,
                               .link_bytes_per_s = real(s, 5e9, 60e9),
                               .link_latency_s = real(s, 0, 20e-6),
                               .disk_bytes_per_s = real(s, 1e9, 10e9),
                               .disk_latency_s = real(s, 0, 200e-6),
                               .disk_queue_depth = 32};
    r->problem = (dfx_plan_problem){.pages = r->pages,
                                    .stages = r->stages,
                                    .n_stages = kind->only_main ? 1 : (uint32_t)between(s, 1, 4),
                                    .workspace_bytes = between(s, 0, 600 << 20),
                                    .state_bytes = between(s, 0, 50 << 20),
                                    .offload = kind->offload,
                                    .profile = &r->profile};
    r->main = (uint32_t)between(s, 0, r->problem.n_stages - 1);
    for (uint32_t stage = 0; stage < r->problem.n_stages; stage++)
        draw_stage(r, s, stage, kind);
    draw_budgets(r, s, kind);
}
