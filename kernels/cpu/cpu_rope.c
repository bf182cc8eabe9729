/* RMSNorm of each head, then rotary position embedding on interleaved pairs: the two values of pair
 * m, 2m and 2m + 1, turn by angle m, the same for all heads. A head is normalised as a whole before
 * it is rotated. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>

enum { ROWS = 16 }; /* one index of work */

typedef struct rope_job {
    const dfx_op_call *call;
    dfx_cpu_norm_rope rope;
} rope_job;

static DFX_CPU_CLONES void scale_head(float *y, const float *x, float rstd, const float *w,
                                      int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * rstd * w[i];
}

static DFX_CPU_CLONES void rotate_head(float *x, const float *cos_row, const float *sin_row,
                                       int64_t n_pairs) {
    for (int64_t m = 0; m < n_pairs; m++) {
        float a = x[2 * m], b = x[2 * m + 1];
        x[2 * m] = a * cos_row[m] - b * sin_row[m];
        x[2 * m + 1] = b * cos_row[m] + a * sin_row[m];
    }
}

void dfx_cpu_norm_rope_head(float *y, const float *x, const dfx_cpu_norm_rope *p, int64_t t) {
    float rstd = 1.0f / sqrtf(dfx_cpu_dot(x, x, p->head) / (float)p->head + p->eps);
    scale_head(y, x, rstd, p->w, p->head);
    if (p->cos->ptr)
        rotate_head(y, dfx_cpu_f32(p->cos, t), dfx_cpu_f32(p->sin, t), p->head / 2);
}

dfx_cpu_norm_rope dfx_cpu_norm_rope_of(const dfx_cpu *cpu, const dfx_op_call *call, int w_slot) {
    const dfx_mat *w = &call->m[w_slot];
    return (dfx_cpu_norm_rope){.w = dfx_cpu_row(w, 0, dfx_cpu_shared_scratch(cpu)),
                               .cos = &call->m[w_slot + 1],
                               .sin = &call->m[w_slot + 2],
                               .head = w->cols,
                               .eps = call->p.eps};
}

static void do_rows(void *ctx, int64_t index, int worker) {
    const rope_job *job = ctx;
    const dfx_mat *x = &job->call->m[0];
    int64_t n = job->rope.head;
    for (int64_t t = index * ROWS; t < dfx_cpu_min((index + 1) * ROWS, x->rows); t++)
        for (int head = 0; head < job->call->p.n_heads; head++) {
            float *values = dfx_cpu_f32(x, t) + head * n;
            dfx_cpu_norm_rope_head(values, values, &job->rope, t);
        }
}

dfx_status dfx_cpu_qknorm_rope(dfx_cpu *cpu, const dfx_op_call *call) {
    rope_job job = {call, dfx_cpu_norm_rope_of(cpu, call, DFX_QKNORM_W)};
    return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(call->m[0].rows, ROWS), do_rows, &job);
}
