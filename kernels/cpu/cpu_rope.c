/* RMSNorm of each head, then rotary position embedding on interleaved pairs: the two values of pair
 * m, 2m and 2m + 1, turn by angle m, the same for all heads. In place; a head is normalised as a
 * whole before it is rotated. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>

enum { ROWS = 16 }; /* one index of work */

typedef struct rope_job {
    const dfx_op_call *call;
    const float *w; /* [E] */
} rope_job;

static DFX_CPU_CLONES void scale_head(float *x, float rstd, const float *w, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * rstd * w[i];
}

static DFX_CPU_CLONES void rotate_head(float *x, const float *cos_row, const float *sin_row,
                                       int64_t n_pairs) {
    for (int64_t m = 0; m < n_pairs; m++) {
        float a = x[2 * m], b = x[2 * m + 1];
        x[2 * m] = a * cos_row[m] - b * sin_row[m];
        x[2 * m + 1] = b * cos_row[m] + a * sin_row[m];
    }
}

static void do_rows(void *ctx, int64_t index, int worker) {
    const rope_job *job = ctx;
    const dfx_op_call *call = job->call;
    const dfx_mat *cos_mat = &call->m[DFX_QKNORM_COS], *sin_mat = &call->m[DFX_QKNORM_SIN];
    int64_t n = call->m[DFX_QKNORM_W].cols;
    for (int64_t t = index * ROWS; t < (index + 1) * ROWS && t < call->m[0].rows; t++) {
        for (int head = 0; head < call->p.n_heads; head++) {
            float *x = dfx_cpu_f32(&call->m[0], t) + head * n;
            float rstd = 1.0f / sqrtf(dfx_cpu_dot(x, x, n) / (float)n + call->p.eps);
            scale_head(x, rstd, job->w, n);
            if (cos_mat->ptr)
                rotate_head(x, dfx_cpu_f32(cos_mat, t), dfx_cpu_f32(sin_mat, t), n / 2);
        }
    }
}

dfx_status dfx_cpu_qknorm_rope(dfx_cpu *cpu, const dfx_op_call *call) {
    rope_job job = {
        .call = call,
        .w = dfx_cpu_row(&call->m[DFX_QKNORM_W], 0, dfx_cpu_shared_scratch(cpu)),
    };
    return dfx_pool_run(cpu->pool, (call->m[0].rows + ROWS - 1) / ROWS, do_rows, &job);
}
