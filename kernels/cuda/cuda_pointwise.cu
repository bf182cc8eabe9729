/* Ops that treat every value alike, and the sinusoid of times and guidance.
 *
 *     ACT       y = act(x)             4*T*D bytes
 *     ACT_MUL   y = act(a) * b         6*T*D; to codes: cuda_quant.cu
 *     ADD       y = a + b              6*T*D; 4*T*D where b is one row
 *     AXPY      y = x + s * d          6*T*D; s is read on the device, so that a captured run may be given another one
 *     SINUSOID  y[n] = [cos(a f_0..), sin(a f_0..)], a = 1000 t[n], f_i = exp(-ln(10000) i / (D/2))
 *
 * All BF16 but s and t, which are F32. An output may be any of its inputs: a thread reads its values before it writes them.
 * Bound: memory, as above. A thread has one chunk of eight values: that is two or three 16-byte accesses, and 2048 threads
 * of a multiprocessor have 32 KiB or more in flight. */
#include "kernels/cuda/cuda_device.cuh"

/* y = op(a, b) value by value; b is not there for ACT. */
typedef struct pointwise {
    dfx_cuda_view y, a, b;
    dfx_cuda_tiling tiling;
    int64_t n_rows;
    dfx_act act;
    const float *s;
} pointwise;

template <dfx_op_kind KIND>
static __global__ void __launch_bounds__(DFX_CUDA_THREADS) map_values(pointwise p) {
    dfx_cuda_place at = dfx_cuda_place_of(p.tiling);
    int64_t row = (int64_t)blockIdx.x * p.tiling.lanes + at.lane;
    if (at.n <= 0 || row >= p.n_rows)
        return;
    uint4 a_word = dfx_cuda_fetch8(p.a, row, at.col, at.n), b_word = {};
    if (KIND != DFX_OP_ACT)
        b_word = dfx_cuda_fetch8(p.b, row, at.col, at.n);
    float a[DFX_CHUNK], b[DFX_CHUNK], s = KIND == DFX_OP_AXPY ? *p.s : 0.0f;
    dfx_cuda_unpack8(a, a_word);
    dfx_cuda_unpack8(b, b_word);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++) {
        if (KIND == DFX_OP_ACT)
            a[i] = dfx_cuda_act(p.act, a[i]);
        else if (KIND == DFX_OP_ACT_MUL)
            a[i] = dfx_cuda_act(p.act, a[i]) * b[i];
        else if (KIND == DFX_OP_ADD)
            a[i] += b[i];
        else
            a[i] += s * b[i];
    }
    dfx_cuda_store8(p.y, row, at.col, at.n, a);
}

template <dfx_op_kind KIND> static dfx_status run(const dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    pointwise p = {};
    p.y = dfx_cuda_view_of(&m[0]);
    p.a = dfx_cuda_view_of(&m[DFX_BIN_A]);
    if (KIND != DFX_OP_ACT)
        p.b = dfx_cuda_view_of(&m[DFX_BIN_B]);
    p.tiling = dfx_cuda_tiling_of(m[0].cols);
    p.n_rows = m[0].rows;
    p.act = call->p.act;
    p.s = (const float *)m[DFX_BIN_S].ptr;
    dim3 blocks = dfx_cuda_blocks(p.tiling, p.n_rows, 1);
    map_values<KIND><<<blocks, p.tiling.threads, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), dfx_op_info_of(KIND)->name);
}

extern "C" dfx_status dfx_cuda_act(dfx_cuda *cuda, const dfx_op_call *call) {
    return run<DFX_OP_ACT>(cuda, call);
}

extern "C" dfx_status dfx_cuda_act_mul(dfx_cuda *cuda, const dfx_op_call *call) {
    return dfx_op_is_codes(call, 0) ? dfx_cuda_act_mul_codes(cuda, call)
                                    : run<DFX_OP_ACT_MUL>(cuda, call);
}

extern "C" dfx_status dfx_cuda_add(dfx_cuda *cuda, const dfx_op_call *call) {
    return run<DFX_OP_ADD>(cuda, call);
}

extern "C" dfx_status dfx_cuda_axpy(dfx_cuda *cuda, const dfx_op_call *call) {
    return run<DFX_OP_AXPY>(cuda, call);
}

/* Each step is rounded to f32, as the models were trained: at a = 30000 one rounding of the product moves the angle by a
 * thousandth. A row or two of 256 values, once a step: the double exp costs nothing. */
static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    sinusoid(dfx_cuda_view y, const float *t, int64_t half) {
    int64_t row = blockIdx.x, i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= half)
        return;
    float exponent = -9.210340371976184f * (float)i / (float)half; /* -ln(10000) i / half */
    float angle = 1000.0f * t[row] * (float)exp((double)exponent);
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    __nv_bfloat16 *dst = y.ptr + row * y.ld;
    dst[i] = __float2bfloat16_rn(cosine);
    dst[half + i] = __float2bfloat16_rn(sine);
}

extern "C" dfx_status dfx_cuda_sinusoid(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    int64_t half = y->cols / 2;
    dim3 blocks((unsigned)y->rows, (unsigned)dfx_cuda_ceil_div(half, DFX_CUDA_THREADS));
    sinusoid<<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(dfx_cuda_view_of(y),
                                                             (const float *)call->m[1].ptr, half);
    return dfx_cuda_check(cuda, cudaGetLastError(), "sinusoid");
}
