/* Places and timetable.
 *
 *   arena:  state | low part: activations of the stage, then its slots and residents | permanent pages
 *
 * The low part is as large as its fullest stage. Permanent are the residents of the main stage that find room above it, first
 * in order of use, so that a picture's first step finds them, and pages of other stages where room is left; the others are
 * brought anew when their stage comes.
 * A transfer may begin when the last visit that touched any byte of its place has ended: `spans` remembers, for every byte
 * below the permanent pages, which visit that was. */
#include "offload/planner_internal.h"

#include <string.h>

/* Bytes [begin, end) were last touched by `visit`. Spans are sorted, adjacent and cover all bytes. */
typedef struct span {
    uint64_t begin, end;
    uint32_t visit;
} span;

typedef struct layout {
    const dfx_plan_problem *p;
    const dfx_plan_choice *choice;
    const dfx_sink *sink;
    dfx_plan *plan;
    uint32_t main;
    uint64_t state_bytes, low_bytes, permanent_bytes;
    uint64_t *place; /* [n_pages] of residents; owned by the plan's arena */
    span *spans;     /* owned */
    size_t n_spans, cap_spans;
    size_t cap_visits, cap_transfers;
    dfx_visit *visits;       /* owned while growing */
    dfx_transfer *transfers; /* owned while growing */
} layout;

static uint64_t page_bytes(const layout *l, uint32_t page_idx) {
    return dfx_plan_align(l->p->pages[page_idx].bytes);
}

static uint64_t activation_bytes(const layout *l, uint32_t stage) {
    return dfx_plan_align(l->p->stages[stage].activation_bytes);
}

/* ---- spans ---- */

static dfx_status span_insert(layout *l, size_t at, span s) {
    DFX_TRY(dfx_grow(l->sink, l->n_spans + 1, sizeof(span), "planner", &l->cap_spans,
                     (void **)&l->spans));
    memmove(&l->spans[at + 1], &l->spans[at], (l->n_spans - at) * sizeof(span));
    l->spans[at] = s;
    l->n_spans++;
    return DFX_OK;
}

/* Make `off` a border between two spans; *at: the span that begins there. */
static dfx_status span_split(layout *l, uint64_t off, size_t *at) {
    size_t i = 0;
    while (i < l->n_spans && l->spans[i].end <= off)
        i++;
    if (i < l->n_spans && l->spans[i].begin < off) {
        span upper = {off, l->spans[i].end, l->spans[i].visit};
        l->spans[i].end = off;
        DFX_TRY(span_insert(l, ++i, upper));
    }
    *at = i;
    return DFX_OK;
}

static dfx_status touch(layout *l, uint64_t off, uint64_t bytes, uint32_t visit) {
    size_t first, last;
    if (!bytes)
        return DFX_OK;
    DFX_TRY(span_split(l, off, &first));
    DFX_TRY(span_split(l, off + bytes, &last));
    l->spans[first] = (span){off, off + bytes, visit};
    memmove(&l->spans[first + 1], &l->spans[last], (l->n_spans - last) * sizeof(span));
    l->n_spans -= last - first - 1;
    return DFX_OK;
}

/* The latest visit that touched any of these bytes. */
static uint32_t last_touch(const layout *l, uint64_t off, uint64_t bytes) {
    uint32_t latest = DFX_NO_VISIT;
    for (size_t i = 0; i < l->n_spans; i++) {
        const span *s = &l->spans[i];
        if (s->begin < off + bytes && off < s->end && s->visit != DFX_NO_VISIT &&
            (latest == DFX_NO_VISIT || s->visit > latest))
            latest = s->visit;
    }
    return latest;
}

/* ---- places ---- */

static uint64_t largest_page(const layout *l, uint32_t stage) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < l->p->stages[stage].n_regions; i++) {
        uint32_t page = l->p->stages[stage].regions[i].page_idx;
        uint64_t bytes = l->p->pages[page].keep ? 0 : page_bytes(l, page);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static uint64_t main_fixed(const layout *l) {
    return activation_bytes(l, l->main) + l->choice->n_slots * l->choice->slot_bytes;
}

/* The low part: the main stage's activations and slots, and for every other stage its activations with up to three slots,
 * fewer when they would not leave room for what must stay. */
static void size_low_part(layout *l, uint64_t room) {
    l->low_bytes = main_fixed(l);
    for (uint32_t slots = 3; slots >= 1; slots--) {
        uint64_t need = main_fixed(l);
        for (uint32_t s = 0; s < l->p->n_stages; s++) {
            if (s == l->main)
                continue;
            uint32_t n = l->p->stages[s].n_regions < slots ? l->p->stages[s].n_regions : slots;
            uint64_t bytes = activation_bytes(l, s) + n * largest_page(l, s);
            need = bytes > need ? bytes : need;
        }
        l->low_bytes = need;
        if (need <= room)
            return;
    }
}

static void place_permanent(layout *l, uint32_t page) {
    l->plan->resident[page] = l->plan->permanent[page] = true;
    l->place[page] = l->permanent_bytes;
    l->permanent_bytes += page_bytes(l, page);
}

/* What must stay. */
static void place_kept(layout *l) {
    for (uint32_t page = 0; page < l->plan->n_pages; page++)
        if (l->p->pages[page].keep)
            place_permanent(l, page);
}

/* Residents of the main stage: permanent while there is room above the low part, else in it. */
static void place_residents(layout *l, uint64_t room) {
    const dfx_plan_stage *stage = &l->p->stages[l->main];
    uint64_t low_used = main_fixed(l), above = room - l->low_bytes;
    for (uint32_t i = 0; i < stage->n_regions; i++) {
        uint32_t page = stage->regions[i].page_idx;
        if (!l->choice->stays[i] || l->plan->resident[page])
            continue;
        if (l->permanent_bytes + page_bytes(l, page) <= above) {
            place_permanent(l, page);
        } else {
            l->plan->resident[page] = true;
            l->place[page] = l->state_bytes + low_used;
            low_used += page_bytes(l, page);
        }
    }
    if (low_used > l->low_bytes)
        l->low_bytes = low_used;
}

/* Pages of the other stages take what room is left above, so that no picture after the first brings them again. */
static void place_others(layout *l, uint64_t room) {
    for (uint32_t s = 0; s < l->p->n_stages; s++)
        for (uint32_t i = 0; i < l->p->stages[s].n_regions; i++) {
            uint32_t page = l->p->stages[s].regions[i].page_idx;
            uint64_t used = l->low_bytes + l->permanent_bytes;
            if (s == l->main || l->plan->resident[page] || page_bytes(l, page) > room - used)
                continue;
            place_permanent(l, page);
        }
}

/* Permanent pages were placed from 0: they stand above the low part, which has its size now. */
static void raise_permanent(layout *l) {
    for (uint32_t page = 0; page < l->plan->n_pages; page++)
        if (l->plan->permanent[page])
            l->place[page] += l->state_bytes + l->low_bytes;
}

static void place_everything(layout *l) {
    for (uint32_t s = 0; s < l->p->n_stages; s++)
        if (activation_bytes(l, s) > l->low_bytes)
            l->low_bytes = activation_bytes(l, s);
    for (uint32_t page = 0; page < l->plan->n_pages; page++) {
        l->plan->resident[page] = l->plan->permanent[page] = true;
        l->place[page] = l->state_bytes + l->low_bytes + l->permanent_bytes;
        l->permanent_bytes += page_bytes(l, page);
    }
}

/* ---- timetable ---- */

static dfx_status add_transfer(layout *l, uint32_t page, uint32_t visit, uint64_t off, bool once) {
    dfx_plan *plan = l->plan;
    DFX_TRY(dfx_grow(l->sink, plan->n_transfers + 1, sizeof(dfx_transfer), "planner",
                     &l->cap_transfers, (void **)&l->transfers));
    uint32_t after = once ? DFX_NO_VISIT : last_touch(l, off, page_bytes(l, page));
    l->transfers[plan->n_transfers++] = (dfx_transfer){
        .page_idx = page, .after_visit = after, .for_visit = visit, .once = once, .off = off};
    return DFX_OK;
}

/* Slots of a stage: where they begin, how many, how large; a running number picks the next. */
typedef struct ring {
    uint64_t begin, slot_bytes;
    uint32_t n_slots;
    uint64_t next;
} ring;

static ring stage_ring(const layout *l, uint32_t stage) {
    uint64_t begin = l->state_bytes + activation_bytes(l, stage), slot = largest_page(l, stage);
    if (stage == l->main)
        return (ring){
            .begin = begin, .slot_bytes = l->choice->slot_bytes, .n_slots = l->choice->n_slots};
    uint64_t n = slot ? (l->state_bytes + l->low_bytes - begin) / slot : 0;
    return (ring){.begin = begin, .slot_bytes = slot, .n_slots = (uint32_t)(n > 64 ? 64 : n)};
}

/* One visit, and the transfer that it needs. `placed[page]`: a resident that has come in this picture already. */
static dfx_status add_visit(layout *l, uint32_t stage, const dfx_plan_region *region, ring *r,
                            bool *placed) {
    dfx_plan *plan = l->plan;
    uint32_t page = region->page_idx, visit = plan->n_visits;
    uint64_t off = l->place[page];
    bool stays = plan->permanent[page] || (stage == l->main && plan->resident[page]);
    if (!stays) {
        off = r->begin + r->next++ % r->n_slots * r->slot_bytes;
        DFX_TRY(add_transfer(l, page, visit, off, false));
    } else if (!placed[page]) {
        DFX_TRY(add_transfer(l, page, visit, off, plan->permanent[page]));
        placed[page] = true;
    }
    DFX_TRY(dfx_grow(l->sink, visit + 1, sizeof(dfx_visit), "planner", &l->cap_visits,
                     (void **)&l->visits));
    l->visits[visit] =
        (dfx_visit){.page_idx = page, .stage_idx = stage, .off = off, .seconds = region->seconds};
    plan->n_visits++;
    DFX_TRY(touch(l, l->state_bytes, activation_bytes(l, stage), visit));
    return plan->permanent[page] ? DFX_OK : touch(l, off, page_bytes(l, page), visit);
}

static dfx_status make_timetable(layout *l) {
    dfx_plan *plan = l->plan;
    bool *placed;
    DFX_TRY(
        dfx_arena_alloc(&plan->memory, l->sink, plan->n_pages * sizeof(bool), (void **)&placed));
    DFX_TRY(span_insert(l, 0, (span){0, l->state_bytes + l->low_bytes, DFX_NO_VISIT}));
    for (uint32_t s = 0; s < l->p->n_stages; s++) {
        const dfx_plan_stage *stage = &l->p->stages[s];
        ring r = stage_ring(l, s);
        plan->stage_first_visit[s] = plan->n_visits;
        for (uint32_t repeat = 0; repeat < stage->n_repeats; repeat++)
            for (uint32_t i = 0; i < stage->n_regions; i++)
                DFX_TRY(add_visit(l, s, &stage->regions[i], &r, placed));
    }
    plan->stage_first_visit[l->p->n_stages] = plan->n_visits;
    return DFX_OK;
}

/* Move a growing array into the plan. */
static dfx_status settle(layout *l, const void *array, size_t bytes, void **out) {
    DFX_TRY(dfx_arena_alloc(&l->plan->memory, l->sink, bytes, out));
    if (bytes)
        memcpy(*out, array, bytes);
    return DFX_OK;
}

static void add_owner(dfx_plan *plan, const char *name, uint64_t bytes) {
    if (bytes)
        plan->owners[plan->n_owners++] = (dfx_plan_owner){name, bytes};
}

static void note_sizes(layout *l) {
    dfx_plan *plan = l->plan;
    const dfx_plan_stage *stage = &l->p->stages[l->main];
    uint64_t activations = 0;
    plan->n_slots = l->choice->n_slots;
    plan->slot_bytes = l->choice->slot_bytes;
    plan->arena_bytes = l->state_bytes + l->low_bytes + l->permanent_bytes;
    plan->peak_bytes = plan->arena_bytes + l->p->workspace_bytes;
    for (uint32_t s = 0; s < l->p->n_stages; s++)
        activations = activation_bytes(l, s) > activations ? activation_bytes(l, s) : activations;
    for (uint32_t i = 0; i < stage->n_regions; i++) {
        uint32_t page = stage->regions[i].page_idx, first = 0;
        while (stage->regions[first].page_idx != page)
            first++;
        plan->n_resident += first == i && plan->resident[page];
    }
    add_owner(plan, "driver", l->p->driver_bytes);
    add_owner(plan, "workspace", l->p->workspace_bytes - l->p->driver_bytes);
    add_owner(plan, "state", l->state_bytes - l->p->adapter_bytes);
    add_owner(plan, "LoRA adapters", l->p->adapter_bytes);
    add_owner(plan, "activations", activations);
    add_owner(plan, "slots and pages of a stage", l->low_bytes - activations);
    add_owner(plan, "permanent pages", l->permanent_bytes);
}

static dfx_status lay_out(layout *l) {
    dfx_plan *plan = l->plan;
    const dfx_plan_problem *p = l->p;
    uint64_t room = p->budget_bytes - p->workspace_bytes - l->state_bytes;
    DFX_TRY(
        dfx_arena_alloc(&plan->memory, l->sink, p->n_pages * sizeof(uint64_t), (void **)&l->place));
    DFX_TRY(dfx_arena_alloc(&plan->memory, l->sink, p->n_pages * sizeof(bool),
                            (void **)&plan->resident));
    DFX_TRY(dfx_arena_alloc(&plan->memory, l->sink, p->n_pages * sizeof(bool),
                            (void **)&plan->permanent));
    DFX_TRY(
        dfx_arena_alloc(&plan->memory, l->sink, p->n_pages * sizeof(bool), (void **)&plan->in_ram));
    DFX_TRY(dfx_arena_alloc(&plan->memory, l->sink, p->n_stages * sizeof(double),
                            (void **)&plan->stage_seconds));
    DFX_TRY(dfx_arena_alloc(&plan->memory, l->sink, (p->n_stages + 1) * sizeof(uint32_t),
                            (void **)&plan->stage_first_visit));
    if (l->choice->all_permanent) {
        place_everything(l);
    } else {
        place_kept(l);
        size_low_part(l, room - l->permanent_bytes);
        place_residents(l, room);
        place_others(l, room);
        raise_permanent(l);
    }
    DFX_TRY(make_timetable(l));
    DFX_TRY(settle(l, l->visits, plan->n_visits * sizeof(dfx_visit), (void **)&plan->visits));
    DFX_TRY(settle(l, l->transfers, plan->n_transfers * sizeof(dfx_transfer),
                   (void **)&plan->transfers));
    note_sizes(l);
    return DFX_OK;
}

dfx_status dfx_plan_lay_out(const dfx_plan_problem *problem, const dfx_plan_choice *choice,
                            const dfx_sink *sink, dfx_plan *plan) {
    plan->n_pages = problem->n_pages;
    plan->n_stages = problem->n_stages;
    layout l = {.p = problem,
                .choice = choice,
                .sink = sink,
                .plan = plan,
                .main = dfx_plan_main_stage(problem),
                .state_bytes = dfx_plan_align(problem->state_bytes)};
    dfx_status status = lay_out(&l);
    dfx_free(l.spans);
    dfx_free(l.visits);
    dfx_free(l.transfers);
    return status;
}
