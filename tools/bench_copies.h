/* Copies of pages from pinned memory to a device, one after the other, as the page feed makes them. */
#ifndef DFX_TOOLS_BENCH_COPIES_H
#define DFX_TOOLS_BENCH_COPIES_H

#include "tools/bench_timer.h"

enum { DFX_BENCH_COPY_BYTES = 64 << 20 };

typedef struct dfx_bench_copies {
    dfx_backend *be;        /* borrowed */
    dfx_mem pinned, device; /* owned */
    size_t bytes;           /* of one; at most DFX_BENCH_COPY_BYTES, which it begins as */
    uint32_t next;          /* number of the next copy */
} dfx_bench_copies;

/* Close it, whatever this returns. Errors: DFX_E_NOFIT, DFX_E_DEVICE. */
dfx_status dfx_bench_copies_open(dfx_backend *be, dfx_bench_copies *out);
void dfx_bench_copies_close(dfx_bench_copies *copies); /* zeroed is fine */

/* A round (bench_timer.h): begins a copy, and waits for the one before. Any thread, but one at a time. */
dfx_status dfx_bench_copies_round(void *copies, uint64_t idx);

/* dfx_bench_time while another thread copies without a pause. *rate: bytes a second that it copied meanwhile. */
dfx_status dfx_bench_beside_copies(const dfx_bench_timer *timer, const dfx_bench_work *work,
                                   dfx_bench_copies *copies, const dfx_sink *sink,
                                   dfx_bench_sample *seconds, double *rate);

#endif
