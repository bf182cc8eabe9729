/* The choice: which pages of the repeating stage stay, and how many slots the others stream through.
 *
 * Candidates are (set of streamed regions, slots). Their family depends on the pages, times and rates alone, never on the
 * budget; the budget only rules out those that do not fit. So more budget can never be slower. Up to EXHAUSTIVE_MAX regions
 * every set is a candidate; beyond that the sets are evenly spread ones, the same share of all pages, or one share of the
 * small and another of the large.
 *
 * What copies cost the computing beside them (link_slows_compute) is in what is promised, not in the choice: of equal
 * candidates the one that streams least is taken anyway, and to stream a little less through fewer slots would gain
 * microseconds in a step and lose what bears a slower transfer. The promise may so rise with the budget by a part of that
 * cost: where a candidate that fits now bears more and streams more. */
#include "offload/planner_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    EXHAUSTIVE_MAX = 10,
    N_SLOT_COUNTS = 7,
    N_LEVELS = 96,
    N_CLASS_LEVELS = 32,
    N_PHASES = 3,
    N_CLASSES_MAX = 4
};

/* Of two equally fast candidates the one that bears slower transfers better is chosen: measured rates waver. */
static const double SLOWNESS = 1.25;

static const uint32_t SLOT_COUNTS[N_SLOT_COUNTS] = {1, 2, 3, 4, 5, 6, 8};

static uint64_t stage_bytes(const dfx_plan_problem *p, uint32_t stage) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->stages[stage].n_regions; i++)
        bytes += dfx_plan_align(p->pages[p->stages[stage].regions[i].page_idx].bytes);
    return bytes;
}

uint32_t dfx_plan_main_stage(const dfx_plan_problem *p) {
    uint32_t main = 0;
    for (uint32_t s = 1; s < p->n_stages; s++) {
        uint32_t repeats = p->stages[s].n_repeats, most = p->stages[main].n_repeats;
        if (repeats > most || (repeats == most && stage_bytes(p, s) > stage_bytes(p, main)))
            main = s;
    }
    return main;
}

uint64_t dfx_plan_kept_bytes(const dfx_plan_problem *p) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        bytes += p->pages[i].keep ? dfx_plan_align(p->pages[i].bytes) : 0;
    return bytes;
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

/* What decides between candidates, in this order. */
typedef struct score {
    double seconds;
    double slow_seconds; /* when transfers are slower than planned: how much it can bear */
    uint64_t streamed;
    uint32_t n_slots;
} score;

/* The search over one stage. */
typedef struct search {
    const dfx_plan_problem *problem;
    const dfx_plan_stage *stage;
    uint32_t n;
    uint64_t room;                /* for residents and slots, beside pages that must stay */
    uint64_t tier_room;           /* of pinned memory, beside staging */
    uint64_t staging_bytes;       /* of one buffer, at the most */
    uint64_t largest_elsewhere;   /* pinned bytes of a page that is not of this stage */
    uint64_t *bytes, *host_bytes; /* [n] of region i's page; arrays owned */
    uint32_t *first;              /* [n] first region with the same page */
    double *seconds;              /* [n] */
    double *link_s, *disk_s;      /* [n] of one transfer */
    double *candidate_s;          /* [n] on the disk, of the candidate at hand */
    bool *stays, *best_stays, *tried, *in_ram, *keep; /* [n] */
    dfx_plan_cycle cycle;                             /* the candidate at hand */
    double compute_s;
    score best;
    uint64_t best_slot_bytes;
    bool found;
} search;

/* Can all streamed pages be in pinned memory, beside good staging for the largest of the others? */
static bool tier_holds_all(const search *s) {
    uint64_t tier = 0, largest = s->largest_elsewhere;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->tried[i])
            tier += s->host_bytes[i];
        else if (s->stays[i] && s->host_bytes[i] > largest)
            largest = s->host_bytes[i];
    }
    return tier + DFX_PLAN_STAGING_GOOD * largest <= s->problem->ram_budget_bytes;
}

/* Which streamed pages come from the disk, and through how many staging buffers: as plan_host.c will decide. */
static void candidate_transfers(search *s) {
    const dfx_plan_problem *p = s->problem;
    uint64_t tier = 0;
    s->cycle = (dfx_plan_cycle){
        .link_s = s->link_s, .seconds = s->seconds, .stays = s->stays, .n = s->n, .slowness = 1};
    if (p->profile->unified || p->offload == DFX_OFFLOAD_RAM)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        s->tried[i] = !s->stays[i] && s->first[i] == i;
        s->in_ram[i] = false;
    }
    if (p->offload == DFX_OFFLOAD_AUTO) {
        if (tier_holds_all(s))
            return;
        tier = dfx_plan_spread(s->host_bytes, s->tried, s->n, s->tier_room, s->in_ram);
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->candidate_s[i] = s->stays[i] || s->in_ram[s->first[i]] ? 0 : s->disk_s[i];
    s->cycle.disk_s = s->candidate_s;
    s->cycle.n_staging = dfx_plan_n_staging(p, tier, s->staging_bytes);
    if (tier > 0 && s->cycle.n_staging > DFX_PLAN_STAGING_GOOD)
        s->cycle.n_staging = DFX_PLAN_STAGING_GOOD; /* other stages' pages may take the third */
}

/* -1, 0, 1: a is less than, about, more than b. */
static int compare(double a, double b) {
    return a < b * (1 - 1e-9) ? -1 : a > b * (1 + 1e-9);
}

static bool better(const score *a, const score *b) {
    int by_time = compare(a->seconds, b->seconds);
    if (by_time == 0)
        by_time = compare(a->slow_seconds, b->slow_seconds);
    if (by_time != 0)
        return by_time < 0;
    return a->streamed != b->streamed ? a->streamed < b->streamed : a->n_slots < b->n_slots;
}

/* The score of the candidate in s->cycle by `seconds`, its bound or its play; slow only where it can matter. */
static score score_by(search *s, double (*seconds)(const dfx_plan_cycle *), uint64_t streamed) {
    dfx_plan_cycle slow = s->cycle;
    slow.slowness = SLOWNESS;
    score a = {.seconds = seconds(&s->cycle), .streamed = streamed, .n_slots = s->cycle.n_slots};
    bool behind = s->found && compare(a.seconds, s->best.seconds) > 0;
    a.slow_seconds = behind ? INFINITY : seconds(&slow);
    return a;
}

/* Of the best candidate, with what its copies cost the computing beside them. */
static double promised_seconds(search *s) {
    if (s->best.n_slots == 0)
        return s->best.seconds;
    memcpy(s->stays, s->best_stays, s->n * sizeof(bool));
    candidate_transfers(s);
    s->cycle.n_slots = s->best.n_slots;
    s->cycle.link_slows_compute = dfx_plan_share(s->problem->profile);
    return dfx_plan_cycle_run(&s->cycle);
}

/* Try the set in s->stays with every number of slots that fits. A page that comes back in a repetition has one place. */
static void try_set(search *s) {
    uint64_t held = 0, slot = 0, streamed = 0;
    uint32_t n_streamed = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        bool again = s->first[i] != i;
        s->stays[i] = s->keep[i] || s->stays[s->first[i]];
        if (s->stays[i]) {
            held += again || s->keep[i] ? 0 : s->bytes[i];
            continue;
        }
        n_streamed++;
        streamed += s->bytes[i];
        slot = s->bytes[i] > slot ? s->bytes[i] : slot;
    }
    if (held > s->room || (n_streamed && slot > s->room - held))
        return;
    candidate_transfers(s);
    score bound = score_by(s, dfx_plan_cycle_bound, streamed);
    for (int k = 0; k < N_SLOT_COUNTS; k++) {
        uint32_t n_slots = n_streamed ? SLOT_COUNTS[k] : 0;
        if (n_slots > n_streamed || n_slots * slot > s->room - held || (n_slots == 0 && k > 0))
            break;
        s->cycle.n_slots = bound.n_slots = n_slots;
        if (s->found && !better(&bound, &s->best)) /* nor with more slots */
            break;
        score now = score_by(s, dfx_plan_cycle_run, streamed);
        if (s->found && !better(&now, &s->best))
            continue;
        s->found = true;
        s->best = now;
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

/* Walk once through the step and stream a page whenever the bytes that the link could have brought since the last one of its
 * class, at an even rate, pay for `phase` of it. Classes: pages of up to `border` bytes and larger ones; joint: one class.
 * levels: how much of the bytes of each class is streamed. */
static void spread_set(search *s, const double levels[2], double phase, uint64_t border,
                       bool joint) {
    double all[2] = {0}, credit[2] = {0};
    for (uint32_t i = 0; i < s->n; i++)
        all[s->bytes[i] > border] += s->keep[i] ? 0 : (double)s->bytes[i];
    for (uint32_t i = 0; i < s->n; i++) {
        int large = s->bytes[i] > border;
        double share = s->compute_s > 0 ? s->seconds[i] / s->compute_s : 1.0 / s->n;
        for (int c = 0; c < 2; c++)
            credit[joint ? 0 : c] += share * levels[c] * all[c];
        double *own = &credit[joint ? 0 : large];
        s->stays[i] = s->keep[i] || !(levels[large] > 0 && *own >= phase * (double)s->bytes[i]);
        *own -= s->stays[i] ? 0 : (double)s->bytes[i];
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

/* One class in fine steps, the other one not at all or as much; then both in coarse steps. */
static void try_spread_classes(search *s, uint64_t border, double phase) {
    for (int level = 1; level <= N_LEVELS; level++)
        for (int classes = 1; classes <= 3; classes++) {
            double x = (double)level / N_LEVELS,
                   levels[2] = {classes & 1 ? x : 0, classes & 2 ? x : 0};
            spread_set(s, levels, phase, border, true);
            try_set(s);
        }
    for (int low = 1; low <= N_CLASS_LEVELS; low++)
        for (int high = 1; high <= N_CLASS_LEVELS; high++) {
            double levels[2] = {(double)low / N_CLASS_LEVELS, (double)high / N_CLASS_LEVELS};
            spread_set(s, levels, phase, border, false);
            try_set(s);
        }
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
        for (int phase = 0; phase < N_PHASES; phase++)
            try_spread_classes(s, borders[c], phases[phase]);
}

static void search_fini(search *s) {
    dfx_free(s->bytes);
    dfx_free(s->first);
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
    *s = (search){.problem = p,
                  .stage = stage,
                  .n = n,
                  .room = p->budget_bytes - fixed - dfx_plan_kept_bytes(p),
                  .tier_room = dfx_plan_tier_room(p)};
    dfx_status status;
    DFX_TRY_OUT(status, dfx_new_array(sink, 2 * (size_t)n, "planner", &s->bytes));
    DFX_TRY_OUT(status, dfx_new_array(sink, n, "planner", &s->first));
    DFX_TRY_OUT(status, dfx_new_array(sink, 4 * (size_t)n, "planner", &s->seconds));
    DFX_TRY_OUT(status, dfx_new_array(sink, 5 * (size_t)n, "planner", &s->stays));
    s->host_bytes = s->bytes + n;
    s->link_s = s->seconds + n;
    s->disk_s = s->link_s + n;
    s->candidate_s = s->disk_s + n;
    s->best_stays = s->stays + n;
    s->tried = s->best_stays + n;
    s->in_ram = s->tried + n;
    s->keep = s->in_ram + n;
    for (uint32_t i = 0; i < n; i++) {
        const dfx_plan_page *page = &p->pages[stage->regions[i].page_idx];
        s->bytes[i] = dfx_plan_align(page->bytes);
        s->host_bytes[i] = dfx_plan_host_bytes(page);
        s->seconds[i] = stage->regions[i].seconds;
        s->keep[i] = page->keep;
        s->compute_s += s->seconds[i];
        s->disk_s[i] = f->disk_latency_s + (double)page->disk_bytes / f->disk_bytes_per_s;
        s->link_s[i] = f->unified ? s->disk_s[i] /* read to its place: one transfer as well */
                                  : f->link_latency_s + (double)page->bytes / f->link_bytes_per_s;
        while (stage->regions[s->first[i]].page_idx != stage->regions[i].page_idx)
            s->first[i]++;
    }
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t bytes = dfx_plan_host_bytes(&p->pages[i]);
        uint32_t at = 0;
        while (at < n && stage->regions[at].page_idx != i)
            at++;
        s->staging_bytes = bytes > s->staging_bytes ? bytes : s->staging_bytes;
        if (at == n && bytes > s->largest_elsewhere)
            s->largest_elsewhere = bytes;
    }
out:
    if (status != DFX_OK)
        search_fini(s);
    return status;
}

/* Where a byte is needed at the least: the fullest stage with its largest page alone, beside pages that must stay. */
static uint64_t least_budget(const dfx_plan_problem *p, uint32_t *fullest) {
    uint64_t least = 0;
    for (uint32_t s = 0; s < p->n_stages; s++) {
        uint64_t page = 0;
        for (uint32_t i = 0; i < p->stages[s].n_regions; i++) {
            const dfx_plan_page *one = &p->pages[p->stages[s].regions[i].page_idx];
            uint64_t bytes = one->keep ? 0 : dfx_plan_align(one->bytes);
            page = bytes > page ? bytes : page;
        }
        uint64_t need = dfx_plan_align(p->stages[s].activation_bytes) + page;
        if (need >= least) {
            least = need;
            *fullest = s;
        }
    }
    return p->workspace_bytes + dfx_plan_align(p->state_bytes) + dfx_plan_kept_bytes(p) + least;
}

/* All pages beside the largest activations. */
static uint64_t everything_bytes(const dfx_plan_problem *p, uint32_t *fullest) {
    uint64_t pages = 0, activations = 0;
    for (uint32_t i = 0; i < p->n_pages; i++)
        pages += dfx_plan_align(p->pages[i].bytes);
    for (uint32_t s = 0; s < p->n_stages; s++)
        if (dfx_plan_align(p->stages[s].activation_bytes) >= activations) {
            activations = dfx_plan_align(p->stages[s].activation_bytes);
            *fullest = s;
        }
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
    bool unified = p->profile->unified;
    double link = 0, disk = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t page = s->stage->regions[i].page_idx;
        if (s->best_stays[i])
            continue;
        link += unified ? 0 : s->link_s[i];
        disk += plan->in_ram[page] ? 0 : s->disk_s[i];
        plan->streamed_bytes_per_step += p->pages[page].bytes;
    }
    double share = dfx_plan_share(p->profile), compute = s->compute_s + share / (1 + share) * link;
    plan->limit = disk > link && disk > compute ? DFX_LIMIT_DISK
                  : link > compute              ? DFX_LIMIT_LINK
                                                : DFX_LIMIT_COMPUTE;
}

static dfx_status note_seconds(const dfx_plan_problem *p, const dfx_sink *sink, dfx_plan *plan) {
    size_t n_visits = plan->n_visits, n_transfers = plan->n_transfers;
    double *seconds, begin = 0;
    DFX_TRY(dfx_new_array(sink, n_visits + 2 * n_transfers, "planner", &seconds));
    dfx_plan_times times = {seconds, seconds + n_visits, seconds + n_visits + n_transfers};
    plan->cold_image_seconds = dfx_plan_simulate(plan, p, false, &times);
    plan->image_seconds = dfx_plan_simulate(plan, p, true, &times);
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        uint32_t end = plan->stage_first_visit[s + 1];
        double now = end ? times.visit_end[end - 1] : 0;
        plan->stage_seconds[s] = now - begin;
        begin = now;
    }
    dfx_free(seconds);
    return DFX_OK;
}

static dfx_status make(const dfx_plan_problem *p, search *s, const dfx_sink *sink, dfx_plan *plan) {
    uint32_t fullest;
    dfx_plan_choice choice = {.all_permanent = everything_bytes(p, &fullest) <= p->budget_bytes};
    if (choice.all_permanent) {
        memset(s->best_stays, 1, s->n * sizeof(bool));
        s->best.seconds = s->compute_s;
    } else if (s->n <= EXHAUSTIVE_MAX) {
        try_every_set(s);
    } else {
        try_spread_sets(s);
    }
    choice.stays = s->best_stays;
    choice.n_slots = s->best.n_slots;
    choice.slot_bytes = s->best_slot_bytes;
    DFX_TRY(dfx_plan_lay_out(p, &choice, sink, plan));
    DFX_TRY(dfx_plan_host(p, sink, plan));
    plan->step_seconds = promised_seconds(s);
    note_limit(p, s, plan);
    return note_seconds(p, sink, plan);
}

/* Every stage does something, and every page it names is there and has a size. */
static dfx_status check(const dfx_plan_problem *p, const dfx_sink *sink) {
    if (p->n_stages == 0)
        return dfx_fail(sink, DFX_E_INTERNAL, "planner: wanted at least one stage, found none");
    for (uint32_t s = 0; s < p->n_stages; s++) {
        const dfx_plan_stage *stage = &p->stages[s];
        if (stage->n_regions == 0 || stage->n_repeats == 0)
            return dfx_fail(sink, DFX_E_INTERNAL,
                            "planner: stage %s: wanted regions and repetitions, found %" PRIu32
                            " and %" PRIu32,
                            stage->name, stage->n_regions, stage->n_repeats);
        for (uint32_t i = 0; i < stage->n_regions; i++)
            if (stage->regions[i].page_idx >= p->n_pages ||
                p->pages[stage->regions[i].page_idx].bytes == 0)
                return dfx_fail(sink, DFX_E_INTERNAL,
                                "planner: stage %s, region %" PRIu32 ": wanted one of %" PRIu32
                                " pages, with bytes in it, found page "
                                "%" PRIu32,
                                stage->name, i, p->n_pages, stage->regions[i].page_idx);
    }
    return DFX_OK;
}

dfx_status dfx_plan_make(const dfx_plan_problem *p, const dfx_sink *sink, dfx_plan *out) {
    uint32_t fullest = 0;
    bool none = p->offload == DFX_OFFLOAD_NONE;
    DFX_TRY(check(p, sink));
    uint64_t least = none ? everything_bytes(p, &fullest) : least_budget(p, &fullest);
    if (p->budget_bytes < least)
        return refuse(p, sink, least, fullest,
                      none                     ? "with --offload none all weights"
                      : dfx_plan_kept_bytes(p) ? "pages that must stay, and the largest other one"
                                               : "its largest page of weights");
    search s;
    DFX_TRY(search_init(&s, p, sink));
    dfx_plan plan = {.least_budget_bytes = least};
    dfx_arena_init(&plan.memory, "plan");
    dfx_status status = make(p, &s, sink, &plan);
    search_fini(&s);
    if (status == DFX_OK)
        *out = plan;
    else
        dfx_plan_fini(&plan);
    return status;
}
