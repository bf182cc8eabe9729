/* BOUND: scales of codes from what their values may be at the most (kernels/ops.h).
 *     y[t] = x_norm[t] * (scale * max w_scale) + max |b| / 448, not below max x_norm * (scale * max v_scale) + max |v_b| / 448;
 *     whole: max x_norm for x_norm[t]
 * Bound: latency. Blocks are few, and each finds all that is greatest by itself: they are in the second level cache. */
#include "kernels/cuda/cuda_codes.cuh"

enum { ROWS = 1024 }; /* of a block, one a thread */
static_assert(ROWS == DFX_WARP * DFX_WARP, "a lane for each warp");

typedef struct bound_args {
    float *y;
    const float *x_norm;
    dfx_cuda_weights w_scale, b, v_scale, v_b, norms; /* norms: x_norm again */
    int64_t rows, cols, v_cols;                      /* v_cols: 0 where there is no v_scale */
    float scale;
    bool whole;
} bound_args;

/* The greatest of a thread's magnitudes of a row. */
static __device__ float greatest_of(const dfx_cuda_weights &m, int64_t cols) {
    float most = 0.0f;
#pragma unroll 2
    for (int64_t col = (int64_t)threadIdx.x * DFX_CHUNK; col < cols; col += ROWS * DFX_CHUNK) {
        float v[DFX_CHUNK];
        int n = cols - col < DFX_CHUNK ? (int)(cols - col) : DFX_CHUNK;
        dfx_cuda_load8(v, m, 0, col, n);
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            most = i < n ? dfx_cuda_greater(most, v[i]) : most;
    }
    return most;
}

/* Of the block, in every thread; NaN is greater than all numbers. */
template <int N> static __device__ void join_block(float (&most)[N], uint32_t (*warps)[DFX_WARP]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t of_warp = __reduce_max_sync(0xffffffffu, __float_as_uint(most[i]));
        if (threadIdx.x % DFX_WARP == 0)
            warps[i][threadIdx.x / DFX_WARP] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        most[i] = __uint_as_float(
            __reduce_max_sync(0xffffffffu, warps[i][threadIdx.x % DFX_WARP]));
}

static __device__ float bound_of(float norm, float scale, float w_scale, float b) {
    return __fadd_rn(__fmul_rn(norm, __fmul_rn(scale, w_scale)), __fdiv_rn(b, 448.0f));
}

static __global__ void __launch_bounds__(ROWS) bound_rows(bound_args a) {
    enum { W_SCALE, B, V_SCALE, V_B, NORMS, N };
    __shared__ uint32_t warps[N][DFX_WARP];
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x;
    float x_norm = row < a.rows ? a.x_norm[row] : 0.0f, most[N] = {};
    most[W_SCALE] = greatest_of(a.w_scale, a.cols);
    most[B] = greatest_of(a.b, a.cols);
    if (a.v_cols) {
        most[V_SCALE] = greatest_of(a.v_scale, a.v_cols);
        most[V_B] = greatest_of(a.v_b, a.v_cols);
    }
    if (a.v_cols || a.whole)
        most[NORMS] = greatest_of(a.norms, a.rows);
    join_block(most, warps);
    float bound = bound_of(a.whole ? most[NORMS] : x_norm, a.scale, most[W_SCALE], most[B]);
    if (a.v_cols)
        bound = dfx_cuda_greater(bound, bound_of(most[NORMS], a.scale, most[V_SCALE], most[V_B]));
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
    DFX_TRY(dfx_cuda_weights_of(cuda, "bound", &m[DFX_BOUND_V_SCALE], 0.0f, &a.v_scale));
    DFX_TRY(dfx_cuda_weights_of(cuda, "bound", &m[DFX_BOUND_V_B], 0.0f, &a.v_b));
    DFX_TRY(dfx_cuda_weights_of(cuda, "bound", &m[DFX_BOUND_X_NORM], 0.0f, &a.norms));
    a.v_cols = m[DFX_BOUND_V_SCALE].cols;
    a.rows = m[0].cols;
    a.cols = m[DFX_BOUND_W_SCALE].cols;
    a.scale = call->p.scale;
    a.whole = call->p.whole;
    bound_rows<<<(unsigned)dfx_cuda_ceil_div(a.rows, ROWS), ROWS, 0, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "bound");
}
