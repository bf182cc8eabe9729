/* LayerNorm, RMSNorm and GroupNorm.
 *
 * Two passes, mean first, then the variance of the differences: one pass over squares cancels when
 * the mean is large. A row's sums are f32 with DFX_LANES accumulators. GroupNorm adds up millions
 * of values, so its sums are double: one partial sum for each block of pixels and group, joined in
 * the order of the blocks.
 *
 * Before the rows are cut up, weights are widened into shared scratch as `mul` and `add`, so that
 * every norm ends in y = (x - mean) * rstd * mul + add. An output may be its own input: each value
 * is read before it is written. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, PIXELS = 256 }; /* one index of work */

static size_t floats_bytes(int64_t n) {
    return dfx_align_up((size_t)n * sizeof(float), 64);
}

static int64_t n_pixel_blocks(const dfx_op_call *call) {
    return (call->m[DFX_NORM_X].rows + PIXELS - 1) / PIXELS;
}

static size_t partials_bytes(const dfx_op_call *call) {
    return dfx_align_up((size_t)n_pixel_blocks(call) * (size_t)call->p.n_groups * sizeof(double),
                        64);
}

dfx_cpu_scratch_need dfx_cpu_norm_scratch(const dfx_op_call *call) {
    size_t row_bytes = floats_bytes(call->m[0].cols);
    size_t codes_bytes = dfx_op_is_codes(call, 0) ? row_bytes : 0; /* a row that becomes codes */
    switch (call->kind) {
    case DFX_OP_LAYERNORM: /* mul, add */
        return (dfx_cpu_scratch_need){.worker_bytes = codes_bytes, .shared_bytes = 2 * row_bytes};
    case DFX_OP_RMSNORM: /* mul */
        return (dfx_cpu_scratch_need){.worker_bytes = codes_bytes, .shared_bytes = row_bytes};
    case DFX_OP_QKNORM_ROPE: /* the weight of one head */
        return (dfx_cpu_scratch_need){.shared_bytes = floats_bytes(call->m[DFX_QKNORM_W].cols)};
    case DFX_OP_GROUPNORM: /* partial sums, mean, mul, add; sums of the channels for each worker */
    case DFX_OP_GROUPNORM_STATS: /* the same, but for what is its output */
        return (dfx_cpu_scratch_need){
            .worker_bytes = dfx_align_up((size_t)call->m[0].cols * sizeof(double), 64),
            .shared_bytes =
                partials_bytes(call) + (call->kind == DFX_OP_GROUPNORM ? 3 * row_bytes : 0),
        };
    default:
        return (dfx_cpu_scratch_need){0};
    }
}

/* ---- sums of a row ---- */

static inline float join_lanes(float lane[DFX_LANES]) {
    for (int step = DFX_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            lane[i] += lane[i + step];
    return lane[0];
}

static DFX_CPU_CLONES float sum(const float *x, int64_t n) {
    float lane[DFX_LANES] = {0};
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int j = 0; j < DFX_LANES; j++)
            lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += x[i + j];
    return join_lanes(lane);
}

static DFX_CPU_CLONES float sum_sq_diff(const float *x, float mean, int64_t n) {
    float lane[DFX_LANES] = {0};
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int j = 0; j < DFX_LANES; j++)
            lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int j = 0; i + j < n; j++)
        lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    return join_lanes(lane);
}

/* ---- rows ---- */

static DFX_CPU_CLONES void scale_row(float *y, const float *x, float mean, float rstd,
                                     const float *mul, const float *add, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * rstd * mul[i] + add[i];
}

static DFX_CPU_CLONES void scale_row_rms(float *y, const float *x, float rstd, const float *mul,
                                         int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * rstd * mul[i];
}

typedef struct row_job {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
    const float *mul, *add; /* in shared scratch */
} row_job;

static int64_t n_row_blocks(const dfx_op_call *call) {
    return (call->m[0].rows + ROWS - 1) / ROWS;
}

static int64_t end_of_rows(const dfx_op_call *call, int64_t index) {
    int64_t end = (index + 1) * ROWS;
    return end < call->m[0].rows ? end : call->m[0].rows;
}

static void layernorm_rows(void *ctx, int64_t index, int worker) {
    const row_job *job = ctx;
    const dfx_op_call *call = job->call;
    float *norms = call->m[DFX_NORM_Y_NORM].ptr;
    int64_t n = call->m[0].cols;
    for (int64_t t = index * ROWS; t < end_of_rows(call, index); t++) {
        const float *x = dfx_cpu_f32(&call->m[DFX_NORM_X], t);
        float mean = sum(x, n) / (float)n;
        float var = sum_sq_diff(x, mean, n) / (float)n;
        float rstd = 1.0f / sqrtf(var + call->p.eps);
        float *row = dfx_cpu_row_out(job->cpu, call, t, worker);
        scale_row(row, x, mean, rstd, job->mul, job->add, n);
        if (norms)
            norms[t] = sqrtf(dfx_cpu_dot(row, row, n));
        dfx_cpu_row_done(call, t, row);
    }
}

/* The first row of an operand into dst, widened. */
static void widen(const dfx_mat *m, float *dst) {
    const float *row = dfx_cpu_row(m, 0, dst);
    if (row != dst)
        memcpy(dst, row, (size_t)m->cols * sizeof(*dst));
}

static void fill(float *dst, float value, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        dst[i] = value;
}

dfx_status dfx_cpu_layernorm(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *w = &call->m[DFX_NORM_W], *b = &call->m[DFX_NORM_B];
    const dfx_mat *scale = &call->m[DFX_NORM_SCALE], *shift = &call->m[DFX_NORM_SHIFT];
    int64_t n = call->m[0].cols;
    float *mul = dfx_cpu_shared_scratch(cpu);
    float *add = mul + floats_bytes(n) / sizeof(float);

    if (scale->ptr)
        for (int64_t i = 0; i < n; i++)
            mul[i] = 1.0f + dfx_cpu_f32(scale, 0)[i];
    else if (w->ptr)
        widen(w, mul);
    else
        fill(mul, 1.0f, n);

    if (shift->ptr)
        memcpy(add, shift->ptr, (size_t)n * sizeof(*add));
    else if (b->ptr)
        widen(b, add);
    else
        fill(add, 0.0f, n);

    row_job job = {.cpu = cpu, .call = call, .mul = mul, .add = add};
    return dfx_pool_run(cpu->pool, n_row_blocks(call), layernorm_rows, &job);
}

static void rmsnorm_rows(void *ctx, int64_t index, int worker) {
    const row_job *job = ctx;
    const dfx_op_call *call = job->call;
    int64_t n = call->m[0].cols;
    for (int64_t t = index * ROWS; t < end_of_rows(call, index); t++) {
        const float *x = dfx_cpu_f32(&call->m[DFX_NORM_X], t);
        float rstd = 1.0f / sqrtf(dfx_cpu_dot(x, x, n) / (float)n + call->p.eps);
        float *row = dfx_cpu_row_out(job->cpu, call, t, worker);
        scale_row_rms(row, x, rstd, job->mul, n);
        dfx_cpu_row_done(call, t, row);
    }
}

dfx_status dfx_cpu_rmsnorm(dfx_cpu *cpu, const dfx_op_call *call) {
    float *mul = dfx_cpu_shared_scratch(cpu);
    widen(&call->m[DFX_NORM_W], mul);
    row_job job = {.cpu = cpu, .call = call, .mul = mul};
    return dfx_pool_run(cpu->pool, n_row_blocks(call), rmsnorm_rows, &job);
}

/* ---- groups of channels ---- */

typedef struct group_job {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
    float *mean, *mul, *add; /* [C], in shared scratch or the output; mul holds rstd * w */
    double *partials;        /* [pixel blocks, G], in shared scratch */
} group_job;

static DFX_CPU_CLONES void add_diffs(double *acc, const float *x, const float *mean, int64_t n) {
    for (int64_t c = 0; c < n; c++)
        acc[c] += (double)(x[c] - mean[c]);
}

static DFX_CPU_CLONES void add_sq_diffs(double *acc, const float *x, const float *mean, int64_t n) {
    for (int64_t c = 0; c < n; c++) {
        double diff = (double)(x[c] - mean[c]);
        acc[c] += diff * diff;
    }
}

typedef void (*add_fn)(double *acc, const float *x, const float *mean, int64_t n);

static int64_t end_of_pixels(const dfx_op_call *call, int64_t index) {
    int64_t end = (index + 1) * PIXELS, n_pixels = call->m[DFX_NORM_X].rows;
    return end < n_pixels ? end : n_pixels;
}

/* partials[index, g] = sum of add_pixel over the block's pixels and the group's channels. */
static void reduce_block(const group_job *job, int64_t index, int worker, add_fn add_pixel) {
    const dfx_op_call *call = job->call;
    int64_t n_channels = call->m[0].cols, n_groups = call->p.n_groups;
    int64_t width = n_channels / n_groups;
    double *acc = dfx_cpu_worker_scratch(job->cpu, worker);
    memset(acc, 0, (size_t)n_channels * sizeof(*acc));
    for (int64_t p = index * PIXELS; p < end_of_pixels(call, index); p++)
        add_pixel(acc, dfx_cpu_f32(&call->m[DFX_NORM_X], p), job->mean, n_channels);
    for (int64_t g = 0; g < n_groups; g++) {
        double total = 0;
        for (int64_t c = g * width; c < (g + 1) * width; c++)
            total += acc[c];
        job->partials[index * n_groups + g] = total;
    }
}

static void sum_block(void *ctx, int64_t index, int worker) {
    reduce_block(ctx, index, worker, add_diffs);
}

static void sum_sq_block(void *ctx, int64_t index, int worker) {
    reduce_block(ctx, index, worker, add_sq_diffs);
}

static double group_average(const group_job *job, int64_t group) {
    const dfx_op_call *call = job->call;
    double total = 0;
    for (int64_t block = 0; block < n_pixel_blocks(call); block++)
        total += job->partials[block * call->p.n_groups + group];
    return total /
           ((double)call->m[DFX_NORM_X].rows * (double)(call->m[0].cols / call->p.n_groups));
}

static DFX_CPU_CLONES void scale_pixel(float *y, const float *x, const float *mean,
                                       const float *mul, const float *add, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; c++)
        y[c] = (x[c] - mean[c]) * mul[c] + add[c];
}

void dfx_cpu_norm_pixel(float *y, const float *x, const float *mean, const float *mul,
                        const float *add, dfx_act act, int64_t n) {
    scale_pixel(y, x, mean, mul, add, n);
    dfx_cpu_act(act, y, n);
}

static void scale_block(void *ctx, int64_t index, int worker) {
    const group_job *job = ctx;
    const dfx_op_call *call = job->call;
    for (int64_t p = index * PIXELS; p < end_of_pixels(call, index); p++)
        dfx_cpu_norm_pixel(dfx_cpu_f32(&call->m[0], p), dfx_cpu_f32(&call->m[DFX_NORM_X], p),
                           job->mean, job->mul, job->add, call->p.act, call->m[0].cols);
}

/* Fill mean, mul and add. */
static dfx_status find_coefficients(dfx_cpu *cpu, group_job *job) {
    const dfx_op_call *call = job->call;
    int64_t n_channels = call->m[0].cols, width = n_channels / call->p.n_groups;
    fill(job->mean, 0.0f, n_channels); /* the first pass sums x - 0 */
    widen(&call->m[DFX_NORM_W], job->mul);
    widen(&call->m[DFX_NORM_B], job->add);

    DFX_TRY(dfx_pool_run(cpu->pool, n_pixel_blocks(call), sum_block, job));
    for (int64_t c = 0; c < n_channels; c += width)
        fill(job->mean + c, (float)group_average(job, c / width), width);

    DFX_TRY(dfx_pool_run(cpu->pool, n_pixel_blocks(call), sum_sq_block, job));
    for (int64_t g = 0; g < call->p.n_groups; g++) {
        float rstd = (float)(1.0 / sqrt(group_average(job, g) + (double)call->p.eps));
        for (int64_t c = g * width; c < (g + 1) * width; c++)
            job->mul[c] *= rstd;
    }
    return DFX_OK;
}

dfx_status dfx_cpu_groupnorm(dfx_cpu *cpu, const dfx_op_call *call) {
    size_t stride = floats_bytes(call->m[0].cols) / sizeof(float);
    double *partials = dfx_cpu_shared_scratch(cpu);
    float *coefficients = (float *)(void *)((char *)partials + partials_bytes(call));
    group_job job = {.cpu = cpu,
                     .call = call,
                     .mean = coefficients,
                     .mul = coefficients + stride,
                     .add = coefficients + 2 * stride,
                     .partials = partials};
    DFX_TRY(find_coefficients(cpu, &job));
    return dfx_pool_run(cpu->pool, n_pixel_blocks(call), scale_block, &job);
}

dfx_status dfx_cpu_groupnorm_stats(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    group_job job = {.cpu = cpu,
                     .call = call,
                     .mean = dfx_cpu_f32(y, 0),
                     .mul = dfx_cpu_f32(y, 1),
                     .add = dfx_cpu_f32(y, 2),
                     .partials = dfx_cpu_shared_scratch(cpu)};
    return find_coefficients(cpu, &job);
}
