/* Copies of pages from pinned memory to a device, alone. */
#ifndef DFX_TOOLS_BENCH_LINK_H
#define DFX_TOOLS_BENCH_LINK_H

#include "tools/bench_copies.h"

/* rate: bytes a second of large copies; latency: seconds of a small one. Errors: DFX_E_DEVICE, DFX_E_CANCELLED. */
dfx_status dfx_bench_link_run(const dfx_bench_timer *timer, dfx_bench_copies *copies,
                              dfx_bench_sample *rate, dfx_bench_sample *latency);

#endif
