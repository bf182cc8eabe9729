/* Placement: which stages keep their weights, which give them back, and which read them page by page. Pure arithmetic,
 * before the first op: a run that cannot keep its budget says so here, with the smallest budget that would do. */
#ifndef DFX_OFFLOAD_PLACEMENT_H
#define DFX_OFFLOAD_PLACEMENT_H

#include "core/budget.h"
#include "offload/pager.h"

/* One stage: programs that run one after the other between two drops. */
typedef struct dfx_stage_need {
    const char *name;        /* string literal */
    size_t page_bytes;       /* of all its pages */
    size_t page_bytes_max;   /* of its largest page */
    dfx_residency residency; /* out */
    bool drop_after;         /* out: give the pages back when the stage has ended */
} dfx_stage_need;

/* What stays for the whole run: activation block, state (externs), workspace of the backend. */
typedef struct dfx_fixed_need {
    size_t activation_bytes, state_bytes, workspace_bytes;
} dfx_fixed_need;

/* Fills the out fields. First that fits: every stage keeps; every stage keeps while it runs; the stages that are too large
 * stream. Errors: DFX_E_NOFIT with owners and the smallest budget. *peak_bytes: what the run will hold at the most. */
dfx_status dfx_placement_make(dfx_stage_need *stages, size_t n_stages, const dfx_fixed_need *fixed,
                              size_t budget_bytes, const dfx_sink *sink, size_t *peak_bytes);

#endif
