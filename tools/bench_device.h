/* What a backend reaches: copies of pages to it, and the ops that a plan's seconds are made of. Backends may run behind the
 * caller's back, so every timed stretch ends with a download, which waits for all of it. */
#ifndef DFX_TOOLS_BENCH_DEVICE_H
#define DFX_TOOLS_BENCH_DEVICE_H

#include "kernels/backend.h"
#include "tools/bench_sample.h"

enum { DFX_BENCH_NOTE_BYTES = 128 };

typedef struct dfx_bench_rate {
    dfx_bench_sample sample;
    char note[DFX_BENCH_NOTE_BYTES]; /* with what it was measured */
} dfx_bench_rate;

typedef struct dfx_bench_device {
    dfx_bench_rate link, link_latency;                      /* bytes a second; seconds of a copy */
    dfx_bench_rate memory;                                  /* bytes a second */
    dfx_bench_rate bf16_product, int8_product, fp8_product; /* operations a second */
    dfx_bench_rate attention;
    dfx_bench_rate launch; /* seconds of an op */
} dfx_bench_device;

/* Each of them n_runs times, about DFX_BENCH_RUN_SECONDS long, after a warm-up. Wants about 1 GiB of memory.
 * Errors: DFX_E_NOFIT, DFX_E_DEVICE, DFX_E_CANCELLED. */
dfx_status dfx_bench_device_run(dfx_backend *be, uint32_t n_runs, bool (*cancelled)(void *user),
                                const dfx_sink *sink, dfx_bench_device *out);

#endif
