/* See bench_link.h. Copies go around a stretch that is larger than most caches, as pages do. */
#include "tools/bench_link.h"

#include <string.h>

enum { N_PLACES = 4 };

typedef struct copies {
    dfx_backend *be;
    dfx_mem pinned, device;
    size_t bytes;  /* of one */
    uint32_t next; /* number of the next copy */
} copies;

/* A copy ahead, as pages are: each round waits for the copy of the one before. */
static dfx_status copy_round(void *user, uint64_t idx) {
    copies *c = user;
    size_t off = idx % N_PLACES * DFX_BENCH_LINK_BYTES;
    uint32_t copy = c->next++;
    DFX_TRY(c->be->vt->copy_begin(c->be, copy, DFX_NO_MARK, (char *)c->device.ptr + off,
                                  (char *)c->pinned.ptr + off, c->bytes));
    return copy == 0 ? DFX_OK : c->be->vt->copy_wait(c->be, copy - 1);
}

static dfx_status measure(const dfx_bench_timer *timer, copies *c, size_t bytes,
                          dfx_bench_sample *seconds) {
    dfx_bench_work work = {copy_round, c, c->device.ptr};
    c->bytes = bytes;
    return dfx_bench_time(timer, &work, seconds);
}

dfx_status dfx_bench_link_run(const dfx_bench_timer *timer, dfx_bench_sample *rate,
                              dfx_bench_sample *latency) {
    const dfx_backend_vtable *vt = timer->be->vt;
    size_t bytes = (size_t)N_PLACES * DFX_BENCH_LINK_BYTES;
    copies c = {.be = timer->be};
    dfx_bench_sample seconds = {0};
    dfx_status status;
    DFX_TRY_OUT(status, vt->pinned_alloc(c.be, bytes, "bench", &c.pinned));
    DFX_TRY_OUT(status, vt->alloc(c.be, bytes, "bench", &c.device));
    memset(c.pinned.ptr, 1, bytes); /* pages of zeros may be one page of memory */
    DFX_TRY_OUT(status, vt->upload(c.be, c.device.ptr, c.pinned.ptr, bytes));
    DFX_TRY_OUT(status, measure(timer, &c, DFX_BENCH_LINK_BYTES, &seconds));
    *rate = dfx_bench_rate_of(&seconds, DFX_BENCH_LINK_BYTES);
    DFX_TRY_OUT(status, measure(timer, &c, DFX_BENCH_LATENCY_BYTES, latency));
out:
    if (c.next > 0)
        vt->copy_wait(c.be, c.next - 1);
    if (c.device.ptr)
        vt->free(c.be, &c.device);
    if (c.pinned.ptr)
        vt->pinned_free(c.be, &c.pinned);
    return status;
}
