/* QUANTIZE on the CPU, and the end of ops whose output may be codes: rows of activations become codes with a scale each. */
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
    int64_t first = index * ROWS_AN_INDEX, end = dfx_cpu_min(first + ROWS_AN_INDEX, y->rows);
    for (int64_t t = first; t < end; t++)
        scales[t] =
            dfx_cpu_quantize_row(y->dtype, dfx_cpu_f32(x, t), y->cols, (char *)y->ptr + t * y->ld);
}

dfx_status dfx_cpu_quantize(dfx_cpu *cpu, const dfx_op_call *call) {
    return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(call->m[0].rows, ROWS_AN_INDEX), quantize_rows,
                        (void *)call);
}
