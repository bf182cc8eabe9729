/* A program on a device with everything it needs beside it: all pages there, weights and inputs made up. Its ops can be run
 * as the executor runs them, or one by one. The values are noise like that of weights, of a size that keeps every result
 * finite: some processors take longer, or less power, for numbers that nobody computes with. */
#ifndef DFX_TOOLS_BENCH_PROGRAM_H
#define DFX_TOOLS_BENCH_PROGRAM_H

#include "offload/executor.h"

typedef struct dfx_bench_program {
    const dfx_program *program; /* borrowed */
    dfx_executor executor;
    dfx_recorded recorded;
    dfx_mem activations, pages, inputs; /* owned; device */
    void **externs;                     /* owned; [n_externs] */
    size_t *page_off;                   /* owned; [n_pages], in pages */
    dfx_op_call *calls;                 /* owned; [n_ops]: with addresses */
    uint32_t n_calls;
} dfx_bench_program;

/* One at a time on a backend. Runs the program once. Close it, whatever this returns.
 * Errors: DFX_E_NOFIT, DFX_E_DEVICE, DFX_E_CANCELLED. */
dfx_status dfx_bench_program_open(dfx_backend *backend, const dfx_program *program,
                                  const dfx_sink *sink, dfx_bench_program *out);
void dfx_bench_program_close(dfx_bench_program *bench); /* zeroed is fine */

/* All ops, by the executor; queued on a GPU. */
dfx_status dfx_bench_program_run(dfx_bench_program *bench);

#endif
