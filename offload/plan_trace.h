/* From programs to the planner's question: pages, regions in the order of execution, and how long each computes. */
#ifndef DFX_OFFLOAD_PLAN_TRACE_H
#define DFX_OFFLOAD_PLAN_TRACE_H

#include "offload/plan.h"
#include "offload/program.h"

/* One program of a stage. A stage of a plan is one or more of them, run one after the other, n_repeats times. A visit computes for
 * all lanes of its program, which have activations of their own side by side. */
typedef struct dfx_trace_program {
    const dfx_program *program; /* borrowed */
    const char *stage;          /* string literal; neighbours of one name are one stage */
    uint32_t n_repeats;         /* of the stage */
    uint32_t n_lanes;
} dfx_trace_program;

/* Pages of program i are numbered from first_page[i]; regions point at them. Owns what it points to. */
typedef struct dfx_trace {
    dfx_arena memory;
    dfx_plan_page *pages;
    dfx_plan_stage *stages;
    uint32_t *first_page; /* [n_programs] */
    uint32_t n_pages, n_stages;
} dfx_trace;

dfx_status dfx_trace_make(const dfx_trace_program *programs, size_t n_programs,
                          const dfx_profile *profile, const dfx_sink *sink, dfx_trace *out);
void dfx_trace_fini(dfx_trace *trace); /* zeroed trace is fine */

/* Modelled seconds of an op on a machine: the longer of arithmetic and bytes, and the launch. */
double dfx_trace_op_seconds(const dfx_op_call *call, const dfx_profile *profile);

#endif
