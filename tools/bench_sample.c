#include "tools/bench_sample.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double dfx_bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void dfx_bench_sample_add(dfx_bench_sample *s, double value) {
    double sorted[DFX_BENCH_RUNS_MAX];
    s->values[s->n++] = value;
    memcpy(sorted, s->values, s->n * sizeof(*sorted));
    qsort(sorted, s->n, sizeof(*sorted), compare);
    s->median = (sorted[(s->n - 1) / 2] + sorted[s->n / 2]) / 2;
    s->least = sorted[0];
    s->most = sorted[s->n - 1];
}

json_t *dfx_bench_sample_json(const dfx_bench_sample *s) {
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < s->n; i++)
        if (json_array_append_new(array, json_real(s->values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}
