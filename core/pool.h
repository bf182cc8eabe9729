/* A pool of worker threads with one verb: run a function for every index of a range.
 *
 * Work is cut into indices by the caller, never by the number of threads, so results do not depend on it.
 * A pool can be told to cancel: indices not yet begun are skipped, and run returns DFX_E_CANCELLED. */
#ifndef DFX_CORE_POOL_H
#define DFX_CORE_POOL_H

#include "core/mem.h"

typedef struct dfx_pool dfx_pool;

/* `worker` is [0, n_threads): index of scratch memory that no other call uses at the same time. */
typedef void (*dfx_pool_fn)(void *ctx, int64_t index, int worker);

/* n_threads <= 0: one for every core this process may use. */
dfx_status dfx_pool_open(const dfx_sink *sink, int n_threads, dfx_pool **out);
void dfx_pool_close(dfx_pool *pool);
int dfx_pool_n_threads(const dfx_pool *pool);

/* fn(ctx, i, worker) for i in [0, n), in any order, on the workers and the caller; returns when all are done.
 * One run at a time; not from inside fn. DFX_E_CANCELLED when cancelled (said to nobody). */
dfx_status dfx_pool_run(dfx_pool *pool, int64_t n, dfx_pool_fn fn, void *ctx);

/* Polled before every index, from any worker; NULL turns it off. */
void dfx_pool_set_cancel(dfx_pool *pool, bool (*cancelled)(void *user), void *user);

#endif
