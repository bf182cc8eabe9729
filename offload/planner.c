/* The choice: which pages of the repeating stage stay, and how many slots the others stream through.
 *
 * Candidates are (set of streamed regions, slots). Their family depends on the pages, times and rates alone, never on the
 * budget; the budget only rules out those that do not fit. So more budget can never be slower. Up to EXHAUSTIVE_MAX regions
 * every set is a candidate; beyond that the sets are evenly spread ones: walking once through the step, a page is streamed
 * whenever the bytes that the link could have brought since the last one pay for it. */
#include "offload/planner_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    EXHAUSTIVE_MAX = 10,
    N_SLOT_COUNTS = 7,
    N_LEVELS = 96,
    N_PHASES = 3,
    N_CLASSES_MAX = 4,
    WARM_CYCLES = 4,
    TIMED_CYCLES = 8
};

static const uint32_t SLOT_COUNTS[N_SLOT_COUNTS] = {1, 2, 3, 4, 5, 6, 8};

uint32_t dfx_plan_main_stage(const dfx_plan_problem *p) {
    uint32_t main = 0;
    for (uint32_t s = 1; s < p->n_stages; s++)
        if (p->stages[s].n_repeats > p->stages[main].n_repeats)
            main = s;
    return main;
}

double dfx_plan_cycle_seconds(const double *transfer_s, const double *seconds, const bool *stays,
                              uint32_t n, uint32_t n_slots) {
    double freed[64] = {
        0}; /* freed[g % n_slots]: when the visit that used this slot last has ended */
    double now = 0, link = 0, timed_from = 0;
    uint64_t g = 0;
    n_slots = n_slots < 1 ? 1 : n_slots > DFX_COUNT(freed) ? (uint32_t)DFX_COUNT(freed) : n_slots;
    for (int cycle = 0; cycle < WARM_CYCLES + TIMED_CYCLES; cycle++) {
        if (cycle == WARM_CYCLES)
            timed_from = now;
        for (uint32_t i = 0; i < n; i++) {
            if (!stays[i]) {
                double *slot = &freed[g++ % n_slots];
                link = fmax(link, *slot) + transfer_s[i];
                now = fmax(now, link) + seconds[i];
                *slot = now;
            } else {
                now += seconds[i];
            }
        }
    }
    return (now - timed_from) / TIMED_CYCLES;
}

uint64_t dfx_plan_spread(const uint64_t *bytes, const bool *wanted, uint32_t n, uint64_t keep_bytes,
                         bool *kept) {
    uint64_t all = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        all += wanted[i] ? bytes[i] : 0;
    double share = all ? fmin(1.0, (double)keep_bytes / (double)all) : 0, credit = 0.5 * share;
    for (uint32_t i = 0; i < n; i++) {
        if (!wanted[i])
            continue;
        credit += share;
        kept[i] = credit >= 1.0 - 1e-9 && sum + bytes[i] <= keep_bytes;
        if (kept[i]) {
            credit -= 1.0;
            sum += bytes[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) /* what rounding left over */
        if (wanted[i] && !kept[i] && sum + bytes[i] <= keep_bytes) {
            kept[i] = true;
            sum += bytes[i];
        }
    return sum;
}

/* The search over one stage. */
typedef struct search {
    const dfx_plan_problem *problem;
    const dfx_plan_stage *stage;
    uint32_t n;
    uint64_t room;           /* for residents and slots */
    uint64_t *bytes;         /* [n] aligned, of region i's page; arrays owned */
    double *seconds;         /* [n] */
    double *link_s, *disk_s; /* [n] of one transfer */
    double *transfer_s;      /* [n] of the candidate at hand */
    bool *stays, *best_stays, *streams, *in_ram;
    double compute_s;
    double best_s;
    uint64_t best_streamed;
    uint32_t best_slots;
    uint64_t best_slot_bytes;
    bool found;
} search;

/* The longer of link and disk, for a candidate whose streamed pages share the RAM budget. */
static void candidate_transfers(search *s) {
    const dfx_plan_problem *p = s->problem;
    bool all_ram = p->offload == DFX_OFFLOAD_RAM && !p->profile->unified,
         none_ram = p->offload == DFX_OFFLOAD_NVME;
    for (uint32_t i = 0; i < s->n; i++)
        s->streams[i] = !s->stays[i];
    memset(s->in_ram, 0, s->n * sizeof(bool));
    if (!all_ram && !none_ram && !p->profile->unified)
        dfx_plan_spread(s->bytes, s->streams, s->n, p->ram_budget_bytes, s->in_ram);
    for (uint32_t i = 0; i < s->n; i++)
        s->transfer_s[i] =
            all_ram || s->in_ram[i] ? s->link_s[i] : fmax(s->link_s[i], s->disk_s[i]);
}

static bool better(const search *s, double seconds, uint64_t streamed, uint32_t n_slots) {
    if (!s->found || seconds < s->best_s * (1 - 1e-9))
        return true;
    if (seconds > s->best_s * (1 + 1e-9))
        return false;
    return streamed != s->best_streamed ? streamed < s->best_streamed : n_slots < s->best_slots;
}

/* Try the set in s->stays with every number of slots that fits. */
static void try_set(search *s) {
    uint64_t held = 0, slot = 0, streamed = 0;
    uint32_t n_streamed = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->stays[i]) {
            held += s->bytes[i];
            continue;
        }
        n_streamed++;
        streamed += s->bytes[i];
        slot = s->bytes[i] > slot ? s->bytes[i] : slot;
    }
    if (held > s->room || (n_streamed && slot > s->room - held))
        return;
    candidate_transfers(s);
    double bound = 0;
    for (uint32_t i = 0; i < s->n; i++)
        bound += s->stays[i] ? 0 : s->transfer_s[i];
    bound = fmax(bound, s->compute_s);
    if (s->found && bound > s->best_s * (1 + 1e-9))
        return;
    for (int k = 0; k < N_SLOT_COUNTS; k++) {
        uint32_t n_slots = n_streamed ? SLOT_COUNTS[k] : 0;
        if (n_slots > n_streamed || n_slots * slot > s->room - held || (n_slots == 0 && k > 0))
            break;
        double seconds = dfx_plan_cycle_seconds(s->transfer_s, s->seconds, s->stays, s->n, n_slots);
        if (!better(s, seconds, streamed, n_slots))
            continue;
        s->found = true;
        s->best_s = seconds;
        s->best_streamed = streamed;
        s->best_slots = n_slots;
        s->best_slot_bytes = slot;
        memcpy(s->best_stays, s->stays, s->n * sizeof(bool));
    }
}

static void try_every_set(search *s) {
    for (uint32_t set = 0; set < 1u << s->n; set++) {
        for (uint32_t i = 0; i < s->n; i++)
            s->stays[i] = !(set >> i & 1);
        try_set(s);
    }
}

/* Stream `level` of the eligible bytes, evenly by time; eligible: pages of low .. high bytes. */
static void spread_set(search *s, double level, double phase, uint64_t low, uint64_t high) {
    double all = 0, credit = 0;
    for (uint32_t i = 0; i < s->n; i++)
        all += s->bytes[i] >= low && s->bytes[i] <= high ? (double)s->bytes[i] : 0;
    double per_second = s->compute_s > 0 ? level * all / s->compute_s : 0;
    for (uint32_t i = 0; i < s->n; i++) {
        bool eligible = s->bytes[i] >= low && s->bytes[i] <= high;
        credit += s->compute_s > 0 ? per_second * s->seconds[i] : level * all / s->n;
        s->stays[i] = !(eligible && credit >= phase * (double)s->bytes[i]);
        if (!s->stays[i])
            credit -= (double)s->bytes[i];
    }
}

/* The distinct page sizes, thinned to a few borders. */
static uint32_t size_borders(const search *s, uint64_t borders[N_CLASSES_MAX]) {
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        low = s->bytes[i] < low ? s->bytes[i] : low;
        high = s->bytes[i] > high ? s->bytes[i] : high;
    }
    uint32_t n = 0;
    for (uint64_t border = low; n < N_CLASSES_MAX;
         border = low + (high - low) * (n + 1) / N_CLASSES_MAX) {
        borders[n++] = border;
        if (high == low)
            break;
    }
    borders[n - 1] = high;
    return n;
}

static void try_spread_sets(search *s) {
    static const double phases[N_PHASES] = {0.25, 0.5, 1.0};
    uint64_t borders[N_CLASSES_MAX];
    uint32_t n_borders = size_borders(s, borders);
    memset(s->stays, 1, s->n * sizeof(bool));
    try_set(s);
    memset(s->stays, 0, s->n * sizeof(bool));
    try_set(s);
    for (uint32_t c = 0; c < n_borders; c++)
        for (int level = 1; level <= N_LEVELS; level++)
            for (int phase = 0; phase < N_PHASES; phase++) {
                spread_set(s, (double)level / N_LEVELS, phases[phase], 0, borders[c]);
                try_set(s);
                spread_set(s, (double)level / N_LEVELS, phases[phase], borders[c], UINT64_MAX);
                try_set(s);
            }
}

static void search_fini(search *s) {
    dfx_free(s->bytes);
    dfx_free(s->seconds);
    dfx_free(s->stays);
    *s = (search){0};
}

static dfx_status search_init(search *s, const dfx_plan_problem *p, const dfx_sink *sink) {
    const dfx_plan_stage *stage = &p->stages[dfx_plan_main_stage(p)];
    const dfx_profile *f = p->profile;
    uint32_t n = stage->n_regions;
    uint64_t fixed = p->workspace_bytes + dfx_plan_align(p->state_bytes) +
                     dfx_plan_align(stage->activation_bytes);
    *s = (search){.problem = p, .stage = stage, .n = n, .room = p->budget_bytes - fixed};
    dfx_status status;
    DFX_TRY_OUT(status, dfx_new_array(sink, n, "planner", &s->bytes));
    DFX_TRY_OUT(status, dfx_new_array(sink, 4 * (size_t)n, "planner", &s->seconds));
    DFX_TRY_OUT(status, dfx_new_array(sink, 4 * (size_t)n, "planner", &s->stays));
    s->link_s = s->seconds + n;
    s->disk_s = s->link_s + n;
    s->transfer_s = s->disk_s + n;
    s->best_stays = s->stays + n;
    s->streams = s->best_stays + n;
    s->in_ram = s->streams + n;
    for (uint32_t i = 0; i < n; i++) {
        const dfx_plan_page *page = &p->pages[stage->regions[i].page_idx];
        s->bytes[i] = dfx_plan_align(page->bytes);
        s->seconds[i] = stage->regions[i].seconds;
        s->compute_s += s->seconds[i];
        s->link_s[i] =
            f->unified ? 0 : f->link_latency_s + (double)page->bytes / f->link_bytes_per_s;
        s->disk_s[i] = f->disk_latency_s + (double)page->disk_bytes / f->disk_bytes_per_s;
    }
out:
    if (status != DFX_OK)
        search_fini(s);
    return status;
}

/* Where a byte is needed at the least: the fullest stage with its largest page alone. */
static uint64_t least_budget(const dfx_plan_problem *p, uint32_t *fullest) {
    uint64_t least = 0;
    for (uint32_t s = 0; s < p->n_stages; s++) {
        uint64_t page = 0;
        for (uint32_t i = 0; i < p->stages[s].n_regions; i++) {
            uint64_t bytes = dfx_plan_align(p->pages[p->stages[s].regions[i].page_idx].bytes);
            page = bytes > page ? bytes : page;
        }
        uint64_t need = dfx_plan_align(p->stages[s].activation_bytes) + page;
        if (need >= least) {
            least = need;
            *fullest = s;
        }
    }
    return p->workspace_bytes + dfx_plan_align(p->state_bytes) + least;
}

static uint64_t everything_bytes(const dfx_plan_problem *p) {
    uint64_t pages = 0, activations = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        pages += dfx_plan_align(p->pages[i].bytes);
    for (uint32_t s = 0; s < p->n_stages; s++)
        if (dfx_plan_align(p->stages[s].activation_bytes) > activations)
            activations = dfx_plan_align(p->stages[s].activation_bytes);
    return p->workspace_bytes + dfx_plan_align(p->state_bytes) + activations + pages;
}

static dfx_status refuse(const dfx_plan_problem *p, const dfx_sink *sink, uint64_t need,
                         uint32_t fullest, const char *why) {
    char have[DFX_BYTES_TEXT], work[DFX_BYTES_TEXT], state[DFX_BYTES_TEXT], act[DFX_BYTES_TEXT],
        page[DFX_BYTES_TEXT], want[DFX_BYTES_TEXT];
    const dfx_plan_stage *stage = &p->stages[fullest];
    uint64_t fixed = p->workspace_bytes + dfx_plan_align(p->state_bytes) +
                     dfx_plan_align(stage->activation_bytes);
    return dfx_fail(sink, DFX_E_NOFIT,
                    "does not fit the budget of %s (%" PRIu64
                    " bytes): workspace %s, state %s, activations of stage %s %s, "
                    "%s %s; give at least %s (--vram-budget %" PRIu64 "), or choose a smaller size",
                    dfx_bytes_text(p->budget_bytes, have), p->budget_bytes,
                    dfx_bytes_text(p->workspace_bytes, work), dfx_bytes_text(p->state_bytes, state),
                    stage->name, dfx_bytes_text(stage->activation_bytes, act), why,
                    dfx_bytes_text(need - fixed, page), dfx_bytes_text(need, want), need);
}

/* Which of the three is the longest in a steady step. */
static void note_limit(const dfx_plan_problem *p, const search *s, dfx_plan *plan) {
    double link = 0, disk = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t page = s->stage->regions[i].page_idx;
        if (s->best_stays[i])
            continue;
        link += s->link_s[i];
        disk += plan->in_ram[page] ? 0 : s->disk_s[i];
        plan->streamed_bytes_per_step += p->pages[page].bytes;
    }
    plan->limit = disk > link && disk > s->compute_s ? DFX_LIMIT_DISK
                  : link > s->compute_s              ? DFX_LIMIT_LINK
                                                     : DFX_LIMIT_COMPUTE;
}

static void note_seconds(const dfx_plan_problem *p, dfx_plan *plan, double *visit_end) {
    plan->cold_image_seconds = dfx_plan_simulate(plan, p, false, NULL, NULL);
    plan->image_seconds = dfx_plan_simulate(plan, p, true, visit_end, NULL);
    double begin = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        uint32_t end = plan->stage_first_visit[s + 1];
        double now = end ? visit_end[end - 1] : 0;
        plan->stage_seconds[s] = now - begin;
        begin = now;
    }
}

static dfx_status make(const dfx_plan_problem *p, search *s, const dfx_sink *sink, dfx_plan *plan) {
    dfx_plan_choice choice = {.all_permanent = everything_bytes(p) <= p->budget_bytes};
    if (choice.all_permanent) {
        memset(s->best_stays, 1, s->n * sizeof(bool));
        s->best_s = s->compute_s;
    } else if (s->n <= EXHAUSTIVE_MAX) {
        try_every_set(s);
    } else {
        try_spread_sets(s);
    }
    choice.stays = s->best_stays;
    choice.n_slots = s->best_slots;
    choice.slot_bytes = s->best_slot_bytes;
    DFX_TRY(dfx_plan_lay_out(p, &choice, sink, plan));
    DFX_TRY(dfx_plan_host(p, sink, plan));
    plan->step_seconds = s->best_s;
    note_limit(p, s, plan);
    double *visit_end;
    DFX_TRY(dfx_new_array(sink, plan->n_visits, "planner", &visit_end));
    note_seconds(p, plan, visit_end);
    dfx_free(visit_end);
    return DFX_OK;
}

dfx_status dfx_plan_make(const dfx_plan_problem *p, const dfx_sink *sink, dfx_plan *out) {
    uint32_t fullest = 0;
    uint64_t least = least_budget(p, &fullest);
    if (p->budget_bytes < least)
        return refuse(p, sink, least, fullest, "its largest page of weights");
    if (p->offload == DFX_OFFLOAD_NONE && p->budget_bytes < everything_bytes(p))
        return refuse(p, sink, everything_bytes(p), fullest, "with --offload none all weights");
    search s;
    DFX_TRY(search_init(&s, p, sink));
    dfx_plan plan = {.least_budget_bytes =
                         p->offload == DFX_OFFLOAD_NONE ? everything_bytes(p) : least};
    dfx_arena_init(&plan.memory, "plan");
    dfx_status status = make(p, &s, sink, &plan);
    search_fini(&s);
    if (status == DFX_OK)
        *out = plan;
    else
        dfx_plan_fini(&plan);
    return status;
}
