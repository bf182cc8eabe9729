/* Workers sleep on a condition between runs; within a run they take indices from one atomic counter. The
 * caller works too, as worker 0. */
#include "core/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 256 };

typedef struct worker {
    dfx_pool *pool;
    int idx; /* the caller is 0 */
    pthread_t thread;
} worker;

struct dfx_pool {
    int n_threads; /* the caller included */
    int n_started;
    worker *workers; /* owned; [n_threads], the caller's is not used */
    pthread_mutex_t lock;
    pthread_cond_t work_ready, work_done;
    uint64_t run_idx; /* under lock; a new value is a new run */
    int n_busy;       /* under lock; workers that have not finished this run */
    bool closing;     /* under lock */
    dfx_pool_fn fn;
    void *ctx;
    int64_t n;
    atomic_llong next;
    atomic_bool skipped;
    bool (*cancelled)(void *user);
    void *cancel_user; /* borrowed */
};

static void take_indices(dfx_pool *pool, int worker_idx) {
    for (;;) {
        int64_t i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->n)
            return;
        if (pool->cancelled && pool->cancelled(pool->cancel_user)) {
            atomic_store(&pool->skipped, true);
            return;
        }
        pool->fn(pool->ctx, i, worker_idx);
    }
}

static void *worker_main(void *raw) {
    const worker *w = raw;
    dfx_pool *pool = w->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->run_idx == seen && !pool->closing)
            pthread_cond_wait(&pool->work_ready, &pool->lock);
        if (pool->closing)
            break;
        seen = pool->run_idx;
        pthread_mutex_unlock(&pool->lock);
        take_indices(pool, w->idx);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_busy == 0)
            pthread_cond_signal(&pool->work_done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int usable_cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n;
}

dfx_status dfx_pool_open(const dfx_sink *sink, int n_threads, dfx_pool **out) {
    dfx_pool *pool;
    DFX_TRY(dfx_new(sink, "pool", &pool));
    pool->n_threads = n_threads > 0 ? n_threads : usable_cores();
    if (pool->n_threads > MAX_THREADS)
        pool->n_threads = MAX_THREADS;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_ready, NULL);
    pthread_cond_init(&pool->work_done, NULL);
    dfx_status status = dfx_new_array(sink, (size_t)pool->n_threads, "pool", &pool->workers);
    for (int i = 1; status == DFX_OK && i < pool->n_threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .idx = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            status = dfx_fail(sink, DFX_E_NOFIT,
                              "could not start worker thread %d of %d; use fewer --threads", i,
                              pool->n_threads);
            break;
        }
        pool->n_started++;
    }
    if (status != DFX_OK) {
        dfx_pool_close(pool);
        return status;
    }
    *out = pool;
    return DFX_OK;
}

void dfx_pool_close(dfx_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->work_done);
    pthread_cond_destroy(&pool->work_ready);
    pthread_mutex_destroy(&pool->lock);
    dfx_free(pool->workers);
    dfx_free(pool);
}

int dfx_pool_n_threads(const dfx_pool *pool) {
    return pool->n_threads;
}

dfx_status dfx_pool_run(dfx_pool *pool, int64_t n, dfx_pool_fn fn, void *ctx) {
    pool->fn = fn;
    pool->ctx = ctx;
    pool->n = n;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->skipped, false);
    bool share = n > 1 && pool->n_started > 0;
    if (share) {
        pthread_mutex_lock(&pool->lock);
        pool->n_busy = pool->n_started;
        pool->run_idx++;
        pthread_cond_broadcast(&pool->work_ready);
        pthread_mutex_unlock(&pool->lock);
    }
    take_indices(pool, 0);
    if (share) {
        pthread_mutex_lock(&pool->lock);
        while (pool->n_busy > 0)
            pthread_cond_wait(&pool->work_done, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    return atomic_load(&pool->skipped) ? DFX_E_CANCELLED : DFX_OK;
}

void dfx_pool_set_cancel(dfx_pool *pool, bool (*cancelled)(void *user), void *user) {
    pool->cancelled = cancelled;
    pool->cancel_user = user;
}
