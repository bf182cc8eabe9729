/* LINEAR on the CPU with quantized weights: codes of W, a scale for each row of W, and, but for weight_only, x
 * quantized too, a scale for each row of x (quant/FORMAT.md). Scales factor out of the sums over K, so products see
 * codes alone and the epilogue has the scales.
 *
 * weight_only: codes are widened to f32, which is exact, and multiplied with x as it is.
 * fp8: x is quantized, unless it is codes, and its codes widened once, into shared scratch; products of codes in f32. So
 * are those of codes with W that has no scale.
 * int8: products in integers, cpu_linear_int8.c.
 * In all three a row of y depends on no other row of x; for M <= 64 not even through the shape of the product. */
#include "kernels/cpu/cpu_linear_tile.h"
#include "quant/q_rows.h"

enum { ROWS_AN_INDEX = 8 };

/* Shared scratch: widened codes of x [M, K] | scales of its rows [M]. Worker scratch, that of the products at another
 * time: codes of one row [K]. */
static dfx_cpu_scratch_need wide_scratch(const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    dfx_cpu_scratch_need need = dfx_cpu_linear_scratch(call);
    if (need.worker_bytes < (size_t)x->cols)
        need.worker_bytes = (size_t)x->cols;
    need.shared_bytes =
        (dfx_cpu_floats(x->rows * x->cols) + dfx_cpu_floats(x->rows)) * sizeof(float);
    return need;
}

typedef struct wide_rows {
    const dfx_cpu *cpu;
    const dfx_mat *x;
    bool is_codes;
    float *wide, *scales;
} wide_rows;

static void widen_rows(void *ctx, int64_t index, int worker) {
    const wide_rows *q = ctx;
    uint8_t *codes = dfx_cpu_worker_scratch(q->cpu, worker);
    int64_t first = index * ROWS_AN_INDEX, width = q->x->cols;
    int64_t end = dfx_cpu_min(first + ROWS_AN_INDEX, q->x->rows);
    for (int64_t m = first; m < end; m++) {
        if (q->is_codes)
            codes = (uint8_t *)q->x->ptr + m * q->x->ld;
        else
            q->scales[m] = dfx_q_token_fp8(dfx_cpu_f32(q->x, m), width, codes);
        dfx_to_f32(q->is_codes ? q->x->dtype : DFX_DTYPE_F8_E4M3, codes, q->wide + m * width,
                   (size_t)width);
    }
}

static dfx_status linear_wide(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    float *wide = dfx_cpu_shared_scratch(cpu);
    wide_rows q = {cpu, x, dfx_op_is_codes(call, DFX_LINEAR_X), wide,
                   wide + dfx_cpu_floats(x->rows * x->cols)};
    if (q.is_codes)
        q.scales = call->m[DFX_LINEAR_X_SCALE].ptr;
    DFX_TRY(dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(x->rows, ROWS_AN_INDEX), widen_rows, &q));
    dfx_mat codes = {wide, x->rows, x->cols, x->cols, DFX_DTYPE_F32};
    return dfx_cpu_linear_products(cpu, call, &codes, q.scales);
}

dfx_cpu_scratch_need dfx_cpu_linear_q_scratch(const dfx_op_call *call) {
    if (call->p.weight_only)
        return dfx_cpu_linear_scratch(call);
    if (call->m[DFX_LINEAR_W].dtype == DFX_DTYPE_I8)
        return dfx_cpu_linear_int8_scratch(call);
    return wide_scratch(call);
}

dfx_status dfx_cpu_linear_q(dfx_cpu *cpu, const dfx_op_call *call) {
    if (call->p.weight_only)
        return dfx_cpu_linear_products(cpu, call, &call->m[DFX_LINEAR_X], NULL);
    if (call->m[DFX_LINEAR_W].dtype == DFX_DTYPE_I8)
        return dfx_cpu_linear_int8(cpu, call);
    return linear_wide(cpu, call);
}
