/* See bench_copies.h. Copies go around a stretch that is larger than most caches, as pages do. */
#include "tools/bench_copies.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { N_PLACES = 4 };

dfx_status dfx_bench_copies_open(dfx_backend *be, dfx_bench_copies *out) {
    size_t bytes = (size_t)N_PLACES * DFX_BENCH_COPY_BYTES;
    *out = (dfx_bench_copies){.be = be, .bytes = DFX_BENCH_COPY_BYTES};
    DFX_TRY(be->vt->pinned_alloc(be, bytes, "bench", &out->pinned));
    DFX_TRY(be->vt->alloc(be, bytes, "bench", &out->device));
    memset(out->pinned.ptr, 1, bytes); /* pages of zeros may be one page of memory */
    return be->vt->upload(be, out->device.ptr, out->pinned.ptr, bytes);
}

void dfx_bench_copies_close(dfx_bench_copies *c) {
    if (c->next > 0)
        c->be->vt->copy_wait(c->be, c->next - 1);
    if (c->device.ptr)
        c->be->vt->free(c->be, &c->device);
    if (c->pinned.ptr)
        c->be->vt->pinned_free(c->be, &c->pinned);
    *c = (dfx_bench_copies){0};
}

/* A copy ahead, as pages are. */
dfx_status dfx_bench_copies_round(void *user, uint64_t idx) {
    dfx_bench_copies *c = user;
    size_t off = idx % N_PLACES * DFX_BENCH_COPY_BYTES;
    uint32_t copy = c->next++;
    DFX_TRY(c->be->vt->copy_begin(c->be, copy, DFX_NO_MARK, (char *)c->device.ptr + off,
                                  (char *)c->pinned.ptr + off, c->bytes));
    return copy == 0 ? DFX_OK : c->be->vt->copy_wait(c->be, copy - 1);
}

/* ---- beside work */

typedef struct copier {
    dfx_bench_copies *copies;
    atomic_bool stop;
    dfx_status status;
    double rate;
} copier;

/* When round n > 0 is over, n copies have ended. The clock begins with the end of the first, and sees at least one. */
static dfx_status copy_until_stopped(copier *c) {
    double began = 0, ended = 0;
    uint64_t n = 0;
    for (; n < 3 || !atomic_load(&c->stop); n++) {
        DFX_TRY(dfx_bench_copies_round(c->copies, n));
        ended = dfx_bench_seconds();
        began = n <= 1 ? ended : began;
    }
    c->rate = (double)(n - 2) * (double)c->copies->bytes / (ended - began);
    return DFX_OK;
}

static void *copy_thread(void *user) {
    copier *c = user;
    c->status = copy_until_stopped(c);
    return NULL;
}

dfx_status dfx_bench_beside_copies(const dfx_bench_timer *timer, const dfx_bench_work *work,
                                   dfx_bench_copies *copies, const dfx_sink *sink,
                                   dfx_bench_sample *seconds, double *rate) {
    copier c = {.copies = copies};
    pthread_t thread;
    if (pthread_create(&thread, NULL, copy_thread, &c) != 0)
        return dfx_fail(sink, DFX_E_NOFIT, "no thread to copy beside the work; end other programs");
    dfx_status status = dfx_bench_time(timer, work, seconds);
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    *rate = c.rate;
    return status == DFX_OK ? c.status : status;
}
