/* T5's table of relative positions, widened from where it lies to one value for each head and distance. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>

enum { DISTANCES = 64, HEADS = 64 }; /* distances an index; heads on the stack */

/* Half of the buckets for keys after the query, half for the others. Of each half, the first half
 * for one distance each, the rest in logarithmic steps up to max_distance (Raffel et al. 2020,
 * section 2.1). Logarithms in f32, as T5 was trained. */
static int64_t bucket_of(int64_t distance, int n_buckets, int max_distance) {
    int64_t half = n_buckets / 2, n_exact = half / 2;
    int64_t first = distance > 0 ? half : 0, n = distance < 0 ? -distance : distance;
    if (n < n_exact)
        return first + n;
    float whole = (float)log((double)max_distance / (double)n_exact);
    float part = (float)log((double)((float)n / (float)n_exact));
    int64_t step = n_exact + (int64_t)(part / whole * (float)(half - n_exact));
    return first + (step < half ? step : half - 1);
}

static void rel_bias_distances(void *ctx, int64_t index, int worker) {
    const dfx_op_call *call = ctx;
    const dfx_mat *y = &call->m[0], *table = &call->m[1];
    int64_t n_tokens = (y->cols + 1) / 2;
    float buf[HEADS];
    for (int64_t i = index * DISTANCES; i < (index + 1) * DISTANCES && i < y->cols; i++) {
        int64_t row = bucket_of(i - (n_tokens - 1), call->p.n_buckets, call->p.max_distance);
        for (int64_t h0 = 0; h0 < y->rows; h0 += HEADS) {
            dfx_mat part = *table;
            part.ptr = (char *)table->ptr + (size_t)h0 * dfx_dtype_bytes(table->dtype);
            part.cols = y->rows - h0 < HEADS ? y->rows - h0 : HEADS;
            const float *values = dfx_cpu_row(&part, row, buf);
            for (int64_t h = 0; h < part.cols; h++)
                dfx_cpu_f32(y, h0 + h)[i] = values[h];
        }
    }
}

dfx_status dfx_cpu_rel_bias(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, (call->m[0].cols + DISTANCES - 1) / DISTANCES,
                        rel_bias_distances, (void *)call);
}
