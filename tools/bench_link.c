#include "tools/bench_link.h"

enum { LATENCY_BYTES = 4096 };

static dfx_status measure(const dfx_bench_timer *timer, dfx_bench_copies *copies, size_t bytes,
                          dfx_bench_sample *seconds) {
    dfx_bench_work work = {dfx_bench_copies_round, copies, copies->device.ptr};
    copies->bytes = bytes;
    dfx_status status = dfx_bench_time(timer, &work, seconds);
    copies->bytes = DFX_BENCH_COPY_BYTES;
    return status;
}

dfx_status dfx_bench_link_run(const dfx_bench_timer *timer, dfx_bench_copies *copies,
                              dfx_bench_sample *rate, dfx_bench_sample *latency) {
    dfx_bench_sample seconds = {0};
    DFX_TRY(measure(timer, copies, DFX_BENCH_COPY_BYTES, &seconds));
    *rate = dfx_bench_rate_of(&seconds, DFX_BENCH_COPY_BYTES);
    return measure(timer, copies, LATENCY_BYTES, latency);
}
