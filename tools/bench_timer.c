#include "tools/bench_timer.h"

#include <math.h>

static dfx_status stretch(const dfx_bench_timer *t, const dfx_bench_work *w, uint64_t n,
                          double *seconds) {
    unsigned char end[16];
    double began = dfx_bench_seconds();
    for (uint64_t i = 0; i < n; i++)
        DFX_TRY(w->round(w->user, i));
    DFX_TRY(t->be->vt->download(t->be, end, w->written, sizeof(end)));
    *seconds = dfx_bench_seconds() - began;
    return t->cancelled(NULL) ? DFX_E_CANCELLED : DFX_OK;
}

dfx_status dfx_bench_time(const dfx_bench_timer *t, const dfx_bench_work *w,
                          dfx_bench_sample *out) {
    double seconds;
    uint64_t n = 1;
    double began = dfx_bench_seconds();
    DFX_TRY(stretch(t, w, 1, &seconds)); /* touches memory, wakes threads */
    if (seconds < t->run_seconds)
        DFX_TRY(stretch(t, w, 1, &seconds));
    while (seconds < t->run_seconds / 2 && n < UINT32_MAX) { /* a short stretch tells little */
        double more = seconds > 0 ? t->run_seconds / seconds : 2;
        n = (uint64_t)ceil((double)n * fmin(fmax(more, 2), 100));
        DFX_TRY(stretch(t, w, n, &seconds));
    }
    while (dfx_bench_seconds() - began < t->settle_seconds)
        DFX_TRY(stretch(t, w, n, &seconds));
    for (uint32_t i = 0; i < t->n_runs; i++) {
        DFX_TRY(stretch(t, w, n, &seconds));
        dfx_bench_sample_add(out, seconds / (double)n);
    }
    return DFX_OK;
}

dfx_bench_sample dfx_bench_rate_of(const dfx_bench_sample *seconds, double work) {
    dfx_bench_sample rate = {0};
    for (uint32_t i = 0; i < seconds->n; i++)
        dfx_bench_sample_add(&rate, work / seconds->values[i]);
    return rate;
}

void dfx_bench_clocks(const dfx_backend *be, dfx_device_facts *facts) {
    dfx_device_facts now;
    be->vt->describe(be, &now);
    facts->core_mhz = now.core_mhz;
    facts->memory_mhz = now.memory_mhz;
}
