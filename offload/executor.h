/* Executor: one loop over a program's regions. It waits for the region's page, hands the ops to the backend with their
 * addresses, or launches what it has recorded of them, for one lane after the other, and gives the page back. Where pages come
 * from it does not know.
 *
 *   lane   one of several runs of a program that go side by side, so that a page is brought once for all of them. Each has
 *          externs, activations and recordings of its own, and no op sees more than one: a lane computes what it would alone.
 *
 *     dfx_executor ex = {.backend = be, .activations = block, .activation_bytes = bytes};
 *     DFX_TRY(dfx_executor_announce(be, &program));
 *     DFX_TRY(dfx_executor_run(&ex, &program, &recorded, &pages, externs)); */
#ifndef DFX_OFFLOAD_EXECUTOR_H
#define DFX_OFFLOAD_EXECUTOR_H

#include "kernels/backend.h"
#include "offload/program.h"
#include "offload/recorded.h"

/* Called after each op; addresses in `call` are of the device. For tests and traces. */
typedef void (*dfx_probe_fn)(void *user, const dfx_op *op, const dfx_op_call *call);

/* Who brings the pages of a run. Regions are counted from 0, in order; between pin and unpin the page stays at *base. */
typedef struct dfx_page_source {
    dfx_status (*pin)(void *self, uint32_t region, uint32_t page_idx, void **base);
    void (*unpin)(void *self, uint32_t region);
    void *self;
} dfx_page_source;

typedef struct dfx_executor {
    dfx_backend *backend; /* borrowed */
    const dfx_sink *sink;
    void *
        activations; /* borrowed; device address, DFX_ACT_ALIGN: program->act_bytes for each lane */
    size_t activation_bytes;
    void *
        adapters; /* borrowed; device address of the program's adapter block, DFX_ACT_ALIGN; NULL where it has none. The
                     * same one for all runs that share recordings */
    dfx_probe_fn probe; /* NULL: none. With one, ops are run one by one */
    void *probe_user;
    uint32_t n_recorded; /* regions, so far */
    uint64_t record_ns;  /* that it took */
    bool is_full;        /* the device had no memory for another: from then on, op by op */
} dfx_executor;

/* Announce every op of a program to the backend, so that no run allocates. After all programs are announced the workspace is
 * known: backend->vt->workspace_bytes. */
dfx_status dfx_executor_announce(dfx_backend *backend, const dfx_program *program);

typedef struct dfx_lane {
    void *const *
        externs; /* externs[i]: address of extern i on the device; NULL: takes no part, and keeps its place */
    dfx_recorded *recorded; /* the program's own in this lane; NULL: op by op */
} dfx_lane;

/* Run all ops. Errors: those of the pages and the backend; DFX_E_CANCELLED. */
dfx_status dfx_executor_run_lanes(dfx_executor *ex, const dfx_program *program,
                                  const dfx_page_source *pages, const dfx_lane *lanes,
                                  uint32_t n_lanes);

/* One lane. */
dfx_status dfx_executor_run(dfx_executor *ex, const dfx_program *program, dfx_recorded *recorded,
                            const dfx_page_source *pages, void *const *externs);

#endif
