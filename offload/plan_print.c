#include "offload/plan_print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "offload/planner_internal.h"

enum { MARKS_IN_A_LINE = 60 };

static const char MARKS[] = {'#', '+', 'o', '.'};

/* Text that grows; the first failure sticks. */
typedef struct printer {
    const dfx_plan *plan;
    const dfx_plan_problem *p;
    const dfx_sink *sink;
    dfx_status status;
    char *text; /* owned */
    size_t used, cap;
} printer;

__attribute__((format(printf, 2, 3))) static void print(printer *to, const char *fmt, ...) {
    char line[512];
    va_list list;
    va_start(list, fmt);
    vsnprintf(line, sizeof(line), fmt, list);
    va_end(list);
    size_t len = strlen(line);
    if (to->status == DFX_OK)
        to->status =
            dfx_grow(to->sink, to->used + len + 1, 1, "plan", &to->cap, (void **)&to->text);
    if (to->status != DFX_OK)
        return;
    memcpy(to->text + to->used, line, len + 1);
    to->used += len;
}

char dfx_plan_page_mark(const dfx_plan *plan, const dfx_plan_problem *p, uint32_t stage_idx,
                        uint32_t page_idx) {
    if (plan->permanent[page_idx])
        return '#';
    if (stage_idx == dfx_plan_main_stage(p) && plan->resident[page_idx])
        return '+';
    return plan->in_ram[page_idx] ? 'o' : '.';
}

const char *dfx_plan_limit_text(dfx_limit limit) {
    static const char *const texts[] = {[DFX_LIMIT_COMPUTE] = "computing",
                                        [DFX_LIMIT_LINK] = "the link",
                                        [DFX_LIMIT_DISK] = "the disk"};
    return texts[limit];
}

static void print_memory(printer *to) {
    char a[DFX_BYTES_TEXT], b[DFX_BYTES_TEXT];
    const dfx_plan *plan = to->plan;
    print(to, "memory of %s\n", to->p->profile->name);
    print(to, "  %12s  budget; the least is %s\n", dfx_bytes_text(to->p->budget_bytes, a),
          dfx_bytes_text(plan->least_budget_bytes, b));
    print(to, "  %12s  peak\n", dfx_bytes_text(plan->peak_bytes, a));
    for (uint32_t i = 0; i < plan->n_owners; i++)
        print(to, "  %12s    %s\n", dfx_bytes_text(plan->owners[i].bytes, a), plan->owners[i].name);
    print(to, "  %12s  pinned on the host\n", dfx_bytes_text(plan->host_bytes, a));
    if (plan->n_staging)
        print(to, "  %12s    staging, %" PRIu32 " x %s\n",
              dfx_bytes_text(plan->n_staging * plan->staging_bytes, a), plan->n_staging,
              dfx_bytes_text(plan->staging_bytes, b));
}

/* Visits of one repetition by how their page comes, and where the stage's transfers lie in the timetable. */
static void print_stage(printer *to, uint32_t s) {
    const dfx_plan *plan = to->plan;
    const dfx_plan_stage *stage = &to->p->stages[s];
    char act[DFX_BYTES_TEXT];
    uint32_t n[DFX_COUNT(MARKS)] = {0}, transfers = 0;
    for (uint32_t i = 0; i < stage->n_regions; i++) {
        char mark = dfx_plan_page_mark(plan, to->p, s, stage->regions[i].page_idx);
        n[(const char *)memchr(MARKS, mark, sizeof(MARKS)) - MARKS]++;
    }
    for (uint32_t t = 0; t < plan->n_transfers; t++)
        transfers += plan->visits[plan->transfers[t].for_visit].stage_idx == s;
    print(to, "  %-8s %4" PRIu32 " x %-4" PRIu32 " %11s", stage->name, stage->n_repeats,
          stage->n_regions, dfx_bytes_text(stage->activation_bytes, act));
    for (size_t i = 0; i < DFX_COUNT(MARKS); i++)
        print(to, " %7" PRIu32, n[i]);
    print(to, " %10" PRIu32 " %10.4f s\n", transfers, plan->stage_seconds[s]);
}

static void print_marks(printer *to, uint32_t s) {
    const dfx_plan_stage *stage = &to->p->stages[s];
    for (uint32_t i = 0; i < stage->n_regions; i++) {
        if (i % MARKS_IN_A_LINE == 0)
            print(to, "%s  %-8s  ", i ? "\n" : "", i ? "" : stage->name);
        print(to, "%c", dfx_plan_page_mark(to->plan, to->p, s, stage->regions[i].page_idx));
    }
    print(to, "\n");
}

static void print_step(printer *to) {
    char a[DFX_BYTES_TEXT], b[DFX_BYTES_TEXT];
    const dfx_plan *plan = to->plan;
    const dfx_plan_stage *stage = &to->p->stages[dfx_plan_main_stage(to->p)];
    print(to, "a repetition of %s\n", stage->name);
    print(to, "  %.4f s, limited by %s\n", plan->step_seconds, dfx_plan_limit_text(plan->limit));
    if (plan->n_slots == 0)
        print(to, "  all %" PRIu32 " pages stay\n", plan->n_resident);
    else
        print(to, "  %" PRIu32 " pages stay; %s a time stream through %" PRIu32 " slot%s of %s\n",
              plan->n_resident, dfx_bytes_text(plan->streamed_bytes_per_step, a), plan->n_slots,
              plan->n_slots == 1 ? "" : "s", dfx_bytes_text(plan->slot_bytes, b));
}

static void print_seconds(printer *to) {
    const dfx_plan *plan = to->plan;
    uint32_t n = to->p->n_together;
    if (n > 1)
        print(to, "%" PRIu32 " pictures together: %.4f s, %.4f s each; the first ones %.4f s\n", n,
              plan->image_seconds, plan->image_seconds / n, plan->cold_image_seconds);
    else
        print(to, "a picture: %.4f s; the first one %.4f s\n", plan->image_seconds,
              plan->cold_image_seconds);
}

dfx_status dfx_plan_print(const dfx_plan *plan, const dfx_plan_problem *problem,
                          const dfx_sink *sink, char **out) {
    printer to = {.plan = plan, .p = problem, .sink = sink};
    print_memory(&to);
    print(&to, "stages  times x visits activations       #       +       o       .  transfers    "
               "seconds\n");
    for (uint32_t s = 0; s < problem->n_stages; s++)
        print_stage(&to, s);
    print_step(&to);
    print(&to, "pages: # permanent, + stays for the stage, o streams from RAM, . from the disk\n");
    for (uint32_t s = 0; s < problem->n_stages; s++)
        print_marks(&to, s);
    print_seconds(&to);
    if (to.status == DFX_OK)
        *out = to.text;
    else
        dfx_free(to.text);
    return to.status;
}
