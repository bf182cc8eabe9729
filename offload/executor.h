/* Executor: one loop over a program's ops. It pins the page of each region, hands the ops to the backend with their
 * addresses, and unpins. It owns the activation block, which all programs share, and the state buffers that outlive them. */
#ifndef DFX_OFFLOAD_EXECUTOR_H
#define DFX_OFFLOAD_EXECUTOR_H

#include "core/budget.h"
#include "kernels/backend.h"
#include "offload/pager.h"
#include "offload/program.h"

/* Called after each op; addresses in `call` are of the device. For tests and traces. */
typedef void (*dfx_probe_fn)(void *user, const dfx_op *op, const dfx_op_call *call);

typedef struct dfx_executor {
    dfx_backend *backend; /* borrowed */
    dfx_budget *budget;   /* borrowed */
    const dfx_sink *sink;
    dfx_mem activations; /* owned */
    dfx_probe_fn probe;  /* NULL: none */
    void *probe_user;
} dfx_executor;

void dfx_executor_init(dfx_executor *ex, dfx_backend *backend, dfx_budget *budget,
                       const dfx_sink *sink);
void dfx_executor_fini(dfx_executor *ex);

/* Announce every op of a program to the backend. After all programs are announced the workspace is known:
 * backend->vt->workspace_bytes. */
dfx_status dfx_executor_announce(dfx_executor *ex, const dfx_program *program);

/* The activation block, at least `bytes`; frees a smaller one. */
dfx_status dfx_executor_reserve(dfx_executor *ex, size_t bytes);

/* Memory for externs that live across programs, counted as "state". */
dfx_status dfx_executor_state_alloc(dfx_executor *ex, size_t bytes, dfx_mem *out);
void dfx_executor_state_free(dfx_executor *ex, dfx_mem *mem);

/* Run all ops. externs[i]: address of extern i on the device, DFX_ACT_ALIGN or row aligned; the block must be reserved.
 * Errors: those of pager and backend; DFX_E_CANCELLED. */
dfx_status dfx_executor_run(dfx_executor *ex, dfx_pager *pager, void *const *externs);

#endif
