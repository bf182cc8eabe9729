/* Ops that treat every value alike, and the sinusoid of times and guidance. An output may be one of
 * the inputs: each value is read before it is written. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, CHUNK = 256 }; /* rows in one index of work; values in a buffer on the stack */

/* out: of the output, or where codes will be made of it. */
typedef void (*row_fn)(const dfx_op_call *call, int64_t row, float *out);

typedef struct row_job {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
    row_fn do_row;
} row_job;

static void do_rows(void *ctx, int64_t index, int worker) {
    const row_job *job = ctx;
    for (int64_t t = index * ROWS; t < (index + 1) * ROWS && t < job->call->m[0].rows; t++) {
        float *out = dfx_cpu_row_out(job->cpu, job->call, t, worker);
        job->do_row(job->call, t, out);
        dfx_cpu_row_done(job->call, t, out);
    }
}

static dfx_status run_rows(dfx_cpu *cpu, const dfx_op_call *call, row_fn do_row) {
    row_job job = {.cpu = cpu, .call = call, .do_row = do_row};
    return dfx_pool_run(cpu->pool, (call->m[0].rows + ROWS - 1) / ROWS, do_rows, &job);
}

static void act_row(const dfx_op_call *call, int64_t t, float *y) {
    const float *x = dfx_cpu_f32(&call->m[DFX_BIN_A], t);
    int64_t n_cols = call->m[0].cols;
    if (y != x)
        memcpy(y, x, (size_t)n_cols * sizeof(*y));
    dfx_cpu_act(call->p.act, y, n_cols);
}

dfx_status dfx_cpu_act_op(dfx_cpu *cpu, const dfx_op_call *call) {
    return run_rows(cpu, call, act_row);
}

static DFX_CPU_CLONES void mul_values(float *y, const float *a, const float *b, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

/* Through a buffer, because y may be b, which the activation must not overwrite. */
static void act_mul_row(const dfx_op_call *call, int64_t t, float *y) {
    const float *a = dfx_cpu_f32(&call->m[DFX_BIN_A], t);
    const float *b = dfx_cpu_f32(&call->m[DFX_BIN_B], t);
    float buf[CHUNK];
    int64_t n_cols = call->m[0].cols;
    for (int64_t at = 0; at < n_cols; at += CHUNK) {
        int64_t n = n_cols - at < CHUNK ? n_cols - at : CHUNK;
        memcpy(buf, a + at, (size_t)n * sizeof(*buf));
        dfx_cpu_act(call->p.act, buf, n);
        mul_values(y + at, buf, b + at, n);
    }
}

dfx_cpu_scratch_need dfx_cpu_act_mul_scratch(const dfx_op_call *call) {
    size_t row_bytes = (size_t)call->m[0].cols * sizeof(float);
    return (dfx_cpu_scratch_need){.worker_bytes = dfx_op_is_codes(call, 0) ? row_bytes : 0};
}

dfx_status dfx_cpu_act_mul(dfx_cpu *cpu, const dfx_op_call *call) {
    return run_rows(cpu, call, act_mul_row);
}

static DFX_CPU_CLONES void add_values(float *y, const float *a, const float *b, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void add_row(const dfx_op_call *call, int64_t t, float *y) {
    const dfx_mat *b = &call->m[DFX_BIN_B];
    add_values(y, dfx_cpu_f32(&call->m[DFX_BIN_A], t), dfx_cpu_f32(b, b->rows == 1 ? 0 : t),
               call->m[0].cols);
}

dfx_status dfx_cpu_add(dfx_cpu *cpu, const dfx_op_call *call) {
    return run_rows(cpu, call, add_row);
}

static DFX_CPU_CLONES void axpy_values(float *y, const float *x, float s, const float *d,
                                       int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + s * d[i];
}

static void axpy_row(const dfx_op_call *call, int64_t t, float *y) {
    axpy_values(y, dfx_cpu_f32(&call->m[DFX_BIN_A], t), *dfx_cpu_f32(&call->m[DFX_BIN_S], 0),
                dfx_cpu_f32(&call->m[DFX_BIN_B], t), call->m[0].cols);
}

dfx_status dfx_cpu_axpy(dfx_cpu *cpu, const dfx_op_call *call) {
    return run_rows(cpu, call, axpy_row);
}

/* Each step is rounded to f32, as the models were trained: at a = 30000 one rounding of the product
 * moves the angle by a thousandth. */
static void sinusoid_row(const dfx_op_call *call, int64_t row, float *y) {
    float a = 1000.0f * dfx_cpu_f32(&call->m[1], 0)[row];
    int64_t half = call->m[0].cols / 2;
    for (int64_t i = 0; i < half; i++) {
        float exponent = -9.210340371976184f * (float)i / (float)half; /* -ln(10000) i / half */
        float angle = a * (float)exp((double)exponent);
        y[i] = (float)cos((double)angle);
        y[half + i] = (float)sin((double)angle);
    }
}

dfx_status dfx_cpu_sinusoid(dfx_cpu *cpu, const dfx_op_call *call) {
    return run_rows(cpu, call, sinusoid_row);
}
