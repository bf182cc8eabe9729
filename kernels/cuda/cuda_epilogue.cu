/* From sums to y, where cuBLASLt cannot do it itself:
 *     y[m,n] = r[m,n] + gate[n] * act(sums[m,n] * row_scales[m] * scale[n] + low[m,n] + b[n])
 * from the left, or its codes; parts that a call leaves out are skipped. The sum comes first because two scales may have a product that f32
 * cannot hold. Bound: memory, 6 bytes a value, 8 with r, 4 more with
 * sums of t u^T (low); sums that were just written are still in the second level cache. */
#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_linear.h"

/* A thread holds what belongs to its columns for so many rows. */
enum { ROWS_A_THREAD = 4 };

typedef struct end_args {
    dfx_cuda_end end;
    dfx_cuda_tiling tiling;
    dfx_cuda_view y, r, gate;
    dfx_cuda_weights b, scale;
    dfx_act act;
    uint8_t *codes; /* instead of y, or NULL; rows of codes_ld */
    int64_t codes_ld;
    const float *y_scales;
} end_args;

template <typename Sum> static __global__ void end_rows(end_args a) {
    dfx_cuda_place at = dfx_cuda_place_of(a.tiling);
    if (at.n <= 0)
        return;
    int64_t col = a.end.n0 + at.col;
    float b[DFX_CHUNK], gate[DFX_CHUNK], scale[DFX_CHUNK], sums[DFX_CHUNK], r[DFX_CHUNK];
    dfx_cuda_load8(b, a.b, 0, col, at.n);
    dfx_cuda_load8(scale, a.scale, 0, col, at.n);
    if (a.gate.ptr)
        dfx_cuda_load8(gate, a.gate, 0, col, at.n);
    int64_t row = (int64_t)blockIdx.x * a.tiling.lanes * ROWS_A_THREAD + at.lane;
    for (int i = 0; i < ROWS_A_THREAD && row < a.end.mb; i++, row += a.tiling.lanes) {
        int64_t y_row = a.end.m0 + row;
        const int4 *src = (const int4 *)((const Sum *)a.end.sums + row * a.end.ld + at.col);
        int4 words[2] = {src[0], src[1]};
        Sum raw[DFX_CHUNK];
        memcpy(raw, words, sizeof(raw));
        float low[DFX_CHUNK];
        if (a.end.low)
            dfx_cuda_load8(low, a.end.low + row * a.end.ld + at.col, DFX_CHUNK, true);
        float row_scale = a.end.row_scales ? a.end.row_scales[row] : 1.0f;
        if (a.r.ptr)
            dfx_cuda_load8(r, a.r, y_row, col, at.n);
#pragma unroll
        for (int k = 0; k < DFX_CHUNK; k++) {
            float v = __fmul_rn(__fmul_rn((float)raw[k], row_scale), scale[k]);
            v = a.end.low ? __fadd_rn(v, low[k]) : v;
            sums[k] = __fadd_rn(v, b[k]);
        }
        dfx_cuda_act8(a.act, sums);
#pragma unroll
        for (int k = 0; k < DFX_CHUNK; k++) {
            float v = a.gate.ptr ? __fmul_rn(sums[k], gate[k]) : sums[k];
            sums[k] = a.r.ptr ? __fadd_rn(r[k], v) : v;
        }
        if (a.codes)
            dfx_cuda_store_codes<true>(a.codes + y_row * a.codes_ld + col, at.n, sums,
                                       dfx_cuda_codes_by(a.y_scales[y_row]));
        else
            dfx_cuda_store8(a.y, y_row, col, at.n, sums);
    }
}

extern "C" dfx_status dfx_cuda_epilogue(dfx_cuda *cuda, const dfx_op_call *call,
                                        const dfx_cuda_end *end) {
    const dfx_mat *m = call->m;
    end_args a = {};
    a.end = *end;
    a.tiling = dfx_cuda_tiling_of(end->nb);
    a.y = dfx_cuda_view_of(&m[0]);
    if (dfx_op_is_codes(call, 0)) {
        a.codes = (uint8_t *)m[0].ptr;
        a.codes_ld = m[0].ld;
        a.y_scales = (const float *)m[DFX_LINEAR_Y_SCALE].ptr;
    }
    a.r = dfx_cuda_view_of(&m[DFX_LINEAR_R]);
    a.gate = dfx_cuda_view_of(&m[DFX_LINEAR_GATE]);
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &m[DFX_LINEAR_B], 0.0f, &a.b));
    DFX_TRY(dfx_cuda_weights_of(cuda, "linear", &m[DFX_LINEAR_SCALE], 0.0f, &a.scale));
    if (!m[DFX_LINEAR_SCALE].ptr)
        a.scale.base = 1.0f;
    a.act = call->p.act;
    dim3 blocks = dfx_cuda_blocks(a.tiling, end->mb, ROWS_A_THREAD);
    if (end->exact)
        end_rows<int32_t><<<blocks, a.tiling.threads, 0, cuda->compute>>>(a);
    else
        end_rows<float><<<blocks, a.tiling.threads, 0, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "linear, epilogue");
}

extern "C" cudaError_t dfx_cuda_kernels_check(void) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, end_rows<float>);
}
