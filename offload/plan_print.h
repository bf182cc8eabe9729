/* A plan as text: for people, and for tests that compare plans as text. The same plan gives the same text everywhere. */
#ifndef DFX_OFFLOAD_PLAN_PRINT_H
#define DFX_OFFLOAD_PLAN_PRINT_H

#include "offload/planner.h"

/* How a page comes to its visits in a stage: '#' permanent, '+' stays for the stage, 'o' streams from pinned memory,
 * '.' streams from the disk (on unified memory straight to its place). */
char dfx_plan_page_mark(const dfx_plan *plan, const dfx_plan_problem *problem, uint32_t stage_idx,
                        uint32_t page_idx);

/* "computing", "the link", "the disk" */
const char *dfx_plan_limit_text(dfx_limit limit);

/* Several lines. *out is owned by the caller (dfx_free). */
dfx_status dfx_plan_print(const dfx_plan *plan, const dfx_plan_problem *problem,
                          const dfx_sink *sink, char **out);

#endif
