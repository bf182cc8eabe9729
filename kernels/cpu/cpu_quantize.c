/* QUANTIZE and BOUND on the CPU, and the end of ops whose output may be codes: rows of activations become codes with a scale
 * each. */
#include <math.h>

#include "kernels/cpu/cpu_internal.h"
#include "quant/q_rows.h"

enum { ROWS_AN_INDEX = 8 };

float dfx_cpu_quantize_row(dfx_dtype to, const float *x, int64_t n, void *codes) {
    return to == DFX_DTYPE_I8 ? dfx_q_token_int8(x, n, codes) : dfx_q_token_fp8(x, n, codes);
}

float *dfx_cpu_row_out(const dfx_cpu *cpu, const dfx_op_call *call, int64_t t, int worker) {
    return dfx_op_is_codes(call, 0) ? dfx_cpu_worker_scratch(cpu, worker)
                                    : dfx_cpu_f32(&call->m[0], t);
}

void dfx_cpu_row_done(const dfx_op_call *call, int64_t t, const float *row) {
    const dfx_mat *y = &call->m[0];
    if (!dfx_op_is_codes(call, 0))
        return;
    float *scales = call->m[dfx_op_y_scale(call->kind)].ptr;
    scales[t] = dfx_cpu_quantize_row(y->dtype, row, y->cols, (char *)y->ptr + t * y->ld);
}

static void quantize_rows(void *ctx, int64_t index, int worker) {
    const dfx_op_call *call = ctx;
    const dfx_mat *y = &call->m[0], *x = &call->m[DFX_QUANTIZE_X];
    float *scales = call->m[DFX_QUANTIZE_Y_SCALE].ptr;
    const float *least = call->m[DFX_QUANTIZE_LEAST].ptr;
    int64_t first = index * ROWS_AN_INDEX, end = dfx_cpu_min(first + ROWS_AN_INDEX, y->rows);
    for (int64_t t = first; t < end; t++) {
        uint8_t *codes = (uint8_t *)y->ptr + t * y->ld;
        const float *row = dfx_cpu_f32(x, t);
        scales[t] = least ? dfx_q_token_fp8_least(row, y->cols, least[t], codes)
                          : dfx_cpu_quantize_row(y->dtype, row, y->cols, codes);
    }
}

dfx_status dfx_cpu_quantize(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(call->m[0].rows, ROWS_AN_INDEX), quantize_rows,
                        (void *)call);
}

void dfx_cpu_codes_by_scales(const dfx_mat *y, const dfx_mat *y_scale, int64_t row0, int64_t rows,
                             int64_t col, int64_t cols, const float *values) {
    const float *scales = y_scale->ptr;
    for (int64_t i = 0; i < rows; i++)
        dfx_q_token_fp8_scaled(values + i * cols, cols, scales[row0 + i],
                               (uint8_t *)y->ptr + (row0 + i) * y->ld + col);
}

/* The greatest magnitude in a row of any type; NaN if there is one, 0 where the operand is left out. */
static float greatest(const dfx_mat *row) {
    float most = 0, wide[256];
    for (int64_t at = 0; row->ptr && at < row->cols; at += (int64_t)DFX_COUNT(wide)) {
        int64_t n = dfx_cpu_min((int64_t)DFX_COUNT(wide), row->cols - at);
        dfx_mat part = dfx_cpu_row_part(row, 0, at, n);
        const float *values = dfx_cpu_row(&part, 0, wide);
        for (int64_t i = 0; i < n; i++)
            most = isnan(most) || fabsf(values[i]) <= most ? most : fabsf(values[i]);
    }
    return most;
}

dfx_status dfx_cpu_bound(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *y = &m[0];
    const float *x_norm = m[DFX_BOUND_X_NORM].ptr;
    float *out = y->ptr, scale = call->p.scale, least = 0, norm = greatest(&m[DFX_BOUND_X_NORM]);
    float slope = scale * greatest(&m[DFX_BOUND_W_SCALE]), offset = greatest(&m[DFX_BOUND_B]) / 448;
    if (m[DFX_BOUND_V_SCALE].ptr)
        least =
            norm * (scale * greatest(&m[DFX_BOUND_V_SCALE])) + greatest(&m[DFX_BOUND_V_B]) / 448;
    for (int64_t t = 0; t < y->cols; t++) {
        float bound = (call->p.whole ? norm : x_norm[t]) * slope + offset;
        bound = bound >= least ? bound : isnan(bound) ? bound : least;
        out[t] = bound < 0x1p-100f ? 1 : bound < 0x1p100f ? bound : NAN;
    }
    return DFX_OK;
}
