/* REL_DIFF: y = sum |a - b| / sum |b|. Rows are added up in strips of a fixed height, strips in their order: the same bits for
 * any number of threads. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>

enum { STRIP_ROWS = 16 };

typedef struct sums {
    double diff, size;
} sums;

typedef struct diff_job {
    const dfx_op_call *call;
    sums *strips; /* [n_strips], in shared scratch */
} diff_job;

static int64_t n_strips(const dfx_op_call *call) {
    return dfx_cpu_ceil_div(call->m[DFX_BIN_A].rows, STRIP_ROWS);
}

static DFX_CPU_CLONES void add_row(sums *to, const float *a, const float *b, int64_t n) {
    float diff[DFX_LANES] = {0}, size[DFX_LANES] = {0};
    int64_t whole = n / DFX_LANES * DFX_LANES;
    for (int64_t i = 0; i < whole; i += DFX_LANES)
        for (int lane = 0; lane < DFX_LANES; lane++) {
            diff[lane] += fabsf(a[i + lane] - b[i + lane]);
            size[lane] += fabsf(b[i + lane]);
        }
    for (int64_t i = whole; i < n; i++) {
        diff[i - whole] += fabsf(a[i] - b[i]);
        size[i - whole] += fabsf(b[i]);
    }
    for (int lane = 0; lane < DFX_LANES; lane++) {
        to->diff += (double)diff[lane];
        to->size += (double)size[lane];
    }
}

static void do_strip(void *ctx, int64_t index, int worker) {
    const diff_job *job = ctx;
    const dfx_mat *a = &job->call->m[DFX_BIN_A], *b = &job->call->m[DFX_BIN_B];
    sums strip = {0, 0};
    for (int64_t t = index * STRIP_ROWS; t < dfx_cpu_min((index + 1) * STRIP_ROWS, a->rows); t++)
        add_row(&strip, dfx_cpu_f32(a, t), dfx_cpu_f32(b, t), a->cols);
    job->strips[index] = strip;
}

dfx_cpu_scratch_need dfx_cpu_rel_diff_scratch(const dfx_op_call *call) {
    return (dfx_cpu_scratch_need){.shared_bytes = (size_t)n_strips(call) * sizeof(sums)};
}

dfx_status dfx_cpu_rel_diff(dfx_cpu *cpu, const dfx_op_call *call) {
    diff_job job = {.call = call, .strips = dfx_cpu_shared_scratch(cpu)};
    DFX_TRY(dfx_pool_run(cpu->pool, n_strips(call), do_strip, &job));
    sums all = {0, 0};
    for (int64_t i = 0; i < n_strips(call); i++) {
        all.diff += job.strips[i].diff;
        all.size += job.strips[i].size;
    }
    *dfx_cpu_f32(&call->m[0], 0) = (float)(all.diff / all.size);
    return DFX_OK;
}
