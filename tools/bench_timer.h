/* How every benchmark of a device is timed: rounds of some work, as many as make a stretch that a clock can tell, and one
 * wait at the end. Backends may run behind the caller's back, so a stretch ends with a download, which waits for all of it. */
#ifndef DFX_TOOLS_BENCH_TIMER_H
#define DFX_TOOLS_BENCH_TIMER_H

#include "kernels/backend.h"
#include "tools/bench_sample.h"

typedef struct dfx_bench_timer {
    dfx_backend *be;
    bool (*cancelled)(void *user);
    uint32_t n_runs;
    double run_seconds; /* of a stretch, where a round takes less */
    /* How long the work goes on before it is timed, until its clocks are those that it can keep: a GPU at its power limit
     * slows down within half a second or so. */
    double settle_seconds;
} dfx_bench_timer;

/* A round is the least that is timed. */
typedef struct dfx_bench_work {
    dfx_status (*round)(void *user, uint64_t idx);
    void *user;
    const void *written; /* on the device, at least 16 bytes, by a round */
} dfx_bench_work;

/* Seconds of a round, n_runs times, after a warm-up; stretches follow each other without a pause. Errors: those of the rounds; DFX_E_CANCELLED. */
dfx_status dfx_bench_time(const dfx_bench_timer *timer, const dfx_bench_work *work,
                          dfx_bench_sample *seconds);

/* What a round does, in bytes or operations, a second. */
dfx_bench_sample dfx_bench_rate_of(const dfx_bench_sample *seconds, double work);

/* The clocks of now, right after the work, into what was described before it: an idle device runs slower. */
void dfx_bench_clocks(const dfx_backend *be, dfx_device_facts *facts);

#endif
