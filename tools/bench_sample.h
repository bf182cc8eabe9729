/* One thing measured several times, and what is told of it: the median, and how far apart the runs were. */
#ifndef DFX_TOOLS_BENCH_SAMPLE_H
#define DFX_TOOLS_BENCH_SAMPLE_H

#include <jansson.h>
#include <stdint.h>

enum { DFX_BENCH_RUNS_MAX = 99 };

/* What a stretch of `bench machine` and `bench ops` takes, where one round of the work takes less. */
static const double DFX_BENCH_RUN_SECONDS = 0.12;

typedef struct dfx_bench_sample {
    double values[DFX_BENCH_RUNS_MAX];
    uint32_t n;
    double median, least, most; /* of the values so far */
} dfx_bench_sample;

/* n < DFX_BENCH_RUNS_MAX before. */
void dfx_bench_sample_add(dfx_bench_sample *sample, double value);

/* The values in their order; a new reference, NULL when out of memory. */
json_t *dfx_bench_sample_json(const dfx_bench_sample *sample);

/* From some moment on. */
double dfx_bench_seconds(void);

#endif
