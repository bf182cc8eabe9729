/* BOUND: scales of codes from what their values may be at the most (kernels/ops.h).
 *     y[t] = x_norm[t] * (scale * max w_scale) + max |b| / 448
 * Bound: latency. Blocks are few, and each finds the two greatest by itself: they are in the second level cache. */
#include "kernels/cuda/cuda_codes.cuh"

enum { ROWS = 1024 }; /* of a block, one a thread */
static_assert(ROWS == DFX_WARP * DFX_WARP, "a lane for each warp");

typedef struct bound_args {
    float *y;
    const float *x_norm;
    dfx_cuda_weights w_scale, b;
    int64_t rows, cols;
    float scale;
} bound_args;

/* The greater of `most` and all magnitudes of a chunk. */
static __device__ float greatest_of(float most, const dfx_cuda_weights &m, int64_t col, int n) {
    float v[DFX_CHUNK];
    dfx_cuda_load8(v, m, 0, col, n);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        most = i < n ? dfx_cuda_greater(most, v[i]) : most;
    return most;
}

/* The greatest of the block's, in every thread; NaN is greater than all numbers. */
static __device__ float greatest_of_block(const uint32_t *warps) {
    return __uint_as_float(
        __reduce_max_sync(0xffffffffu, warps[threadIdx.x % DFX_WARP]));
}

static __global__ void __launch_bounds__(ROWS) bound_rows(bound_args a) {
    __shared__ uint32_t warps[2][DFX_WARP];
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x;
    float x_norm = row < a.rows ? a.x_norm[row] : 0.0f, w_scale = 0.0f, b = 0.0f;
#pragma unroll 2
    for (int64_t col = (int64_t)threadIdx.x * DFX_CHUNK; col < a.cols; col += ROWS * DFX_CHUNK) {
        int n = a.cols - col < DFX_CHUNK ? (int)(a.cols - col) : DFX_CHUNK;
        w_scale = greatest_of(w_scale, a.w_scale, col, n);
        b = greatest_of(b, a.b, col, n);
    }
    uint32_t of_warp[] = {__reduce_max_sync(0xffffffffu, __float_as_uint(w_scale)),
                          __reduce_max_sync(0xffffffffu, __float_as_uint(b))};
    if (threadIdx.x % DFX_WARP < 2)
        warps[threadIdx.x % DFX_WARP][threadIdx.x / DFX_WARP] = of_warp[threadIdx.x % DFX_WARP];
    __syncthreads();
    float slope = __fmul_rn(a.scale, greatest_of_block(warps[0]));
    float offset = __fdiv_rn(greatest_of_block(warps[1]), 448.0f);
    float bound = __fadd_rn(__fmul_rn(x_norm, slope), offset);
    if (row < a.rows)
        a.y[row] = bound < 0x1p-100f   ? 1.0f
                   : bound < 0x1p+100f ? bound
                                       : __int_as_float(0x7fc00000);
}

extern "C" dfx_status dfx_cuda_bound(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    bound_args a = {};
    a.y = (float *)m[0].ptr;
    a.x_norm = (const float *)m[DFX_BOUND_X_NORM].ptr;
    DFX_TRY(dfx_cuda_weights_of(cuda, "bound", &m[DFX_BOUND_W_SCALE], 0.0f, &a.w_scale));
    DFX_TRY(dfx_cuda_weights_of(cuda, "bound", &m[DFX_BOUND_B], 0.0f, &a.b));
    a.rows = m[0].cols;
    a.cols = m[DFX_BOUND_W_SCALE].cols;
    a.scale = call->p.scale;
    bound_rows<<<(unsigned)dfx_cuda_ceil_div(a.rows, ROWS), ROWS, 0, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "bound");
}
