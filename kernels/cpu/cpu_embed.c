/* Lookups: token embeddings, and T5's table of relative positions. Rows of a table are widened
 * straight from where they lie; a table is never widened as a whole. */
#include "kernels/cpu/cpu_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ROWS = 16, DISTANCES = 64, HEADS = 64 }; /* ids and distances an index; heads on the stack */

typedef struct embed_job {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
} embed_job;

dfx_cpu_scratch_need dfx_cpu_embed_scratch(const dfx_op_call *call) {
    if (call->m[DFX_EMBED_POS].rows == 0) /* addresses may not be known yet */
        return (dfx_cpu_scratch_need){0};
    size_t row_bytes = (size_t)call->m[0].cols * sizeof(float);
    return (dfx_cpu_scratch_need){.worker_bytes = dfx_align_up(row_bytes, 64)};
}

static void embed_rows(void *ctx, int64_t index, int worker) {
    const embed_job *job = ctx;
    const dfx_mat *y_mat = &job->call->m[0], *pos_mat = &job->call->m[DFX_EMBED_POS];
    const int32_t *ids = job->call->m[DFX_EMBED_IDS].ptr;
    for (int64_t t = index * ROWS; t < (index + 1) * ROWS && t < y_mat->rows; t++) {
        float *y = dfx_cpu_f32(y_mat, t);
        const float *token = dfx_cpu_row(&job->call->m[DFX_EMBED_TABLE], ids[t], y);
        if (token != y)
            memcpy(y, token, (size_t)y_mat->cols * sizeof(*y));
        if (!pos_mat->ptr)
            continue;
        const float *pos = dfx_cpu_row(pos_mat, t, dfx_cpu_worker_scratch(job->cpu, worker));
        for (int64_t i = 0; i < y_mat->cols; i++)
            y[i] += pos[i];
    }
}

dfx_status dfx_cpu_embed(dfx_cpu *cpu, const dfx_op_call *call) {
    const int32_t *ids = call->m[DFX_EMBED_IDS].ptr;
    int64_t n_rows = call->m[DFX_EMBED_TABLE].rows;
    for (int64_t t = 0; t < call->m[0].rows; t++)
        if (ids[t] < 0 || ids[t] >= n_rows)
            return dfx_fail(cpu->base.sink, DFX_E_INTERNAL,
                            "embed: token %" PRId64 " has id %" PRId32
                            ", the table holds 0 to %" PRId64
                            "; ids must be checked where the tokenizer is opened",
                            t, ids[t], n_rows - 1);
    embed_job job = {.cpu = cpu, .call = call};
    return dfx_pool_run(cpu->pool, (call->m[0].rows + ROWS - 1) / ROWS, embed_rows, &job);
}

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
