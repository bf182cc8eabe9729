/* What a backend reaches: copies of pages to it, the start of an op, and whole FLUX blocks in each number format, alone and
 * beside copies, from which the rates of a profile are made. On a GPU blocks are timed as they are in the course of a step: at
 * the clocks that it keeps. */
#ifndef DFX_TOOLS_BENCH_DEVICE_H
#define DFX_TOOLS_BENCH_DEVICE_H

#include "tools/bench_blocks.h"

enum { DFX_BENCH_NOTE_BYTES = 128, DFX_BENCH_FORMATS = 3 };

/* bf16, int8, fp8 */
extern const dfx_qformat dfx_bench_formats[DFX_BENCH_FORMATS];

typedef struct dfx_bench_device {
    dfx_bench_sample link, link_latency; /* bytes a second; seconds of a copy */
    dfx_bench_sample launch;             /* seconds of an op that does next to nothing */
    int n_formats;                       /* 2 where there is no fp8 */
    dfx_bench_blocks large[DFX_BENCH_FORMATS], small[DFX_BENCH_FORMATS];
} dfx_bench_device;

/* Each of them n_runs times, after a warm-up. On a GPU it wants about 2 GiB of it. Close it,
 * whatever this returns. Errors: DFX_E_NOFIT, DFX_E_DEVICE, DFX_E_CANCELLED. */
dfx_status dfx_bench_device_run(dfx_backend *be, const dfx_device_facts *facts, uint32_t n_runs,
                                bool (*cancelled)(void *user), const dfx_sink *sink,
                                dfx_bench_device *out);
void dfx_bench_device_close(dfx_bench_device *device); /* zeroed is fine */

/* The rates into a profile: those of the large size; the small one shows how good they are. */
void dfx_bench_device_fit(const dfx_bench_device *device, dfx_profile *profile);

#endif
