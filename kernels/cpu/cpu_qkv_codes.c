/* What ATTENTION_CODES reads: KV_CENTER, QK_CODES and V_CODES on the CPU.
 *
 * Sums over tokens are double, in the order of the tokens. Comparisons are written so that a value that is not a number
 * becomes the scale, and from there all that is computed with it. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

#include "quant/q_rows.h"

static const float INT8_TOP = 127.0f, E4M3_TOP = 448.0f;

enum { ROWS = 16 }; /* one index of work */

static int64_t head_size(const dfx_op_call *call) {
    return call->m[0].cols / call->p.n_heads;
}

static int64_t sample_step(const dfx_op_call *call) {
    return dfx_kv_sample_step(call->m[DFX_CENTER_K].rows);
}

static int64_t n_sampled(const dfx_op_call *call) {
    return dfx_cpu_ceil_div(call->m[DFX_CENTER_K].rows, sample_step(call));
}

static size_t floats_bytes(int64_t n) {
    return dfx_align_up((size_t)n * sizeof(float), 64);
}

/* Shared: the weight of a head's norm. Worker: a head of what is sampled; a head of one token. */
dfx_cpu_scratch_need dfx_cpu_qkv_codes_scratch(const dfx_op_call *call) {
    switch (call->kind) {
    case DFX_OP_KV_CENTER:
        return (dfx_cpu_scratch_need){.worker_bytes =
                                          floats_bytes(n_sampled(call) * head_size(call)),
                                      .shared_bytes = floats_bytes(head_size(call))};
    case DFX_OP_QK_CODES:
        return (dfx_cpu_scratch_need){.worker_bytes = floats_bytes(head_size(call)),
                                      .shared_bytes = floats_bytes(head_size(call))};
    default: /* V_CODES works in its operands */
        return (dfx_cpu_scratch_need){0};
    }
}

typedef struct codes_job {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
    dfx_cpu_norm_rope rope;
} codes_job;

/* ---- KV_CENTER: one index is one head ---- */

/* Mean of n values, `step` apart. */
static float mean_of(const float *x, int64_t n, int64_t step) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * step];
    return (float)(sum / (double)n);
}

/* The greatest |x - mean| of them, or of `greatest`. */
static float farthest(const float *x, int64_t n, int64_t step, float mean, float greatest) {
    for (int64_t i = 0; i < n; i++) {
        float diff = fabsf(x[i * step] - mean);
        greatest = diff > greatest || isnan(diff) ? diff : greatest;
    }
    return greatest;
}

static float scale_or_one(float scale) {
    return scale == 0 ? 1.0f : scale;
}

static void center_keys(const codes_job *job, int64_t first_col, float *keys) {
    const dfx_mat *y = &job->call->m[0], *k = &job->call->m[DFX_CENTER_K];
    int64_t n = n_sampled(job->call), head = job->rope.head;
    float *means = dfx_cpu_f32(y, DFX_CENTER_KEY) + first_col;
    float *scales = dfx_cpu_f32(y, DFX_CENTER_KEY_SCALE) + first_col, greatest = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = i * sample_step(job->call);
        dfx_cpu_norm_rope_head(keys + i * head, dfx_cpu_f32(k, t) + first_col, &job->rope, t);
    }
    for (int64_t c = 0; c < head; c++) {
        means[c] = mean_of(keys + c, n, head);
        greatest = farthest(keys + c, n, head, means[c], greatest);
    }
    for (int64_t c = 0; c < head; c++)
        scales[c] = greatest / DFX_KV_KEY_TOP;
}

/* Of one head: the scale is not below what the greatest of them wants. */
static void look_at_other_keys(void *ctx, int64_t index, int worker) {
    const codes_job *job = ctx;
    const dfx_mat *y = &job->call->m[0], *k = &job->call->m[DFX_CENTER_K2];
    int64_t head = job->rope.head, first_col = index * head;
    float *scales = dfx_cpu_f32(y, DFX_CENTER_KEY_SCALE) + first_col;
    float *key = dfx_cpu_worker_scratch(job->cpu, worker), greatest = 0;
    const float *means = dfx_cpu_f32(y, DFX_CENTER_KEY) + first_col;
    for (int64_t t = 0; t < k->rows; t++) {
        dfx_cpu_norm_rope_head(key, dfx_cpu_f32(k, t) + first_col, &job->rope, t);
        for (int64_t c = 0; c < head; c++)
            greatest = farthest(key + c, 1, 1, means[c], greatest);
    }
    greatest /= INT8_TOP;
    for (int64_t c = 0; c < head; c++)
        scales[c] = scales[c] >= greatest || isnan(scales[c]) ? scales[c] : greatest;
}

static void center_values(const codes_job *job, int64_t first_col) {
    const dfx_mat *y = &job->call->m[0], *v = &job->call->m[DFX_CENTER_V];
    int64_t n = n_sampled(job->call), step = sample_step(job->call) * v->ld;
    for (int64_t c = first_col; c < first_col + job->rope.head; c++) {
        const float *values = dfx_cpu_f32(v, 0) + c;
        float mean = mean_of(values, n, step);
        float greatest = farthest(values, n, step, mean, 0);
        dfx_cpu_f32(y, DFX_CENTER_VALUE)[c] = mean;
        dfx_cpu_f32(y, DFX_CENTER_VALUE_SCALE)[c] =
            scale_or_one(DFX_KV_VALUE_ROOM * greatest / E4M3_TOP);
    }
}

static void center_head(void *ctx, int64_t index, int worker) {
    const codes_job *job = ctx;
    center_keys(job, index * job->rope.head, dfx_cpu_worker_scratch(job->cpu, worker));
    center_values(job, index * job->rope.head);
}

dfx_status dfx_cpu_kv_center(dfx_cpu *cpu, const dfx_op_call *call) {
    codes_job job = {cpu, call, dfx_cpu_norm_rope_of(cpu, call, DFX_CENTER_W)};
    float *scales = dfx_cpu_f32(&call->m[0], DFX_CENTER_KEY_SCALE);
    DFX_TRY(dfx_pool_run(cpu->pool, call->p.n_heads, center_head, &job));
    if (call->m[DFX_CENTER_K2].ptr) {
        job.rope = dfx_cpu_norm_rope_of(cpu, call, DFX_CENTER_W2);
        DFX_TRY(dfx_pool_run(cpu->pool, call->p.n_heads, look_at_other_keys, &job));
    }
    for (int64_t c = 0; c < call->m[0].cols; c++)
        scales[c] = scale_or_one(scales[c]);
    return DFX_OK;
}

/* ---- QK_CODES: one index is ROWS tokens ---- */

static void key_codes(const float *z, const float *mean, const float *scale, int64_t n,
                      int8_t *codes) {
    for (int64_t c = 0; c < n; c++) {
        float steps = (z[c] - mean[c]) / scale[c];
        codes[c] = (int8_t)lrintf(fminf(fmaxf(steps, -INT8_TOP), INT8_TOP));
    }
}

static void qk_codes_rows(void *ctx, int64_t index, int worker) {
    const codes_job *job = ctx;
    const dfx_mat *m = job->call->m, *center = &m[DFX_QK_CODES_CENTER];
    float *z = dfx_cpu_worker_scratch(job->cpu, worker);
    int64_t head = job->rope.head;
    for (int64_t t = index * ROWS; t < dfx_cpu_min((index + 1) * ROWS, m[0].rows); t++)
        for (int h = 0; h < job->call->p.n_heads; h++) {
            int64_t col = h * head;
            int8_t *codes = (int8_t *)m[0].ptr + t * m[0].ld + col;
            dfx_cpu_norm_rope_head(z, dfx_cpu_f32(&m[DFX_QK_CODES_X], t) + col, &job->rope, t);
            if (center->ptr)
                key_codes(z, dfx_cpu_f32(center, DFX_CENTER_KEY) + col,
                          dfx_cpu_f32(center, DFX_CENTER_KEY_SCALE) + col, head, codes);
            else
                dfx_cpu_f32(&m[DFX_QK_CODES_Y_SCALE], t)[h] = dfx_q_token_int8(z, head, codes);
        }
}

dfx_status dfx_cpu_qk_codes(dfx_cpu *cpu, const dfx_op_call *call) {
    codes_job job = {cpu, call, dfx_cpu_norm_rope_of(cpu, call, DFX_QK_CODES_W)};
    return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(call->m[0].rows, ROWS), qk_codes_rows, &job);
}

/* ---- V_CODES: one index is the tokens whose places are among themselves ---- */

static void v_codes_tokens(void *ctx, int64_t index, int worker) {
    const dfx_op_call *call = ctx;
    const dfx_mat *y = &call->m[0], *v = &call->m[DFX_V_CODES_V];
    const dfx_mat *center = &call->m[DFX_V_CODES_CENTER];
    const float *means = dfx_cpu_f32(center, DFX_CENTER_VALUE);
    const float *scales = dfx_cpu_f32(center, DFX_CENTER_VALUE_SCALE);
    int64_t first = index * DFX_V_CODES_GRAIN;
    for (int64_t t = first; t < first + DFX_V_CODES_GRAIN; t++) {
        uint8_t *codes = (uint8_t *)y->ptr + dfx_v_codes_place(t);
        for (int64_t c = 0; c < v->cols; c++)
            codes[c * y->ld] =
                t < v->rows ? dfx_f32_to_e4m3((dfx_cpu_f32(v, t)[c] - means[c]) / scales[c]) : 0;
    }
}

dfx_status dfx_cpu_v_codes(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, call->m[0].cols / DFX_V_CODES_GRAIN, v_codes_tokens,
                        (void *)call);
}
