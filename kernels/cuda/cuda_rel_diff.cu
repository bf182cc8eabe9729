/* How far a is from b.
 *
 *     REL_DIFF  y = sum |a - b| / sum |b|, over all of [T, D]
 *
 * a and b BF16, y F32. Bound: memory, 4*T*D bytes. Two launches: strips of rows, a block each, to a pair of sums; one block
 * joins the pairs in F64. Which values a thread adds, and in which order, follows from the shape alone: the same bits every
 * time. At 4096 x 3072 a thread adds 64 chunks of eight values in F32, which moves the sum of so many terms of one sign by at
 * most 2^-15 of itself. */
#include "kernels/cuda/cuda_device.cuh"

enum {
    STRIPS_MOST = 256, /* two column tiles of FLUX's width: twice as many blocks */
    ABREAST = 4        /* rows of a thread that are on their way at once */
};

typedef struct rel_diff {
    dfx_cuda_view a, b;
    dfx_cuda_tiling tiling;
    int64_t n_rows, strip_rows;
    unsigned n_strips;
    float2 *parts; /* [n_tiles * n_strips] of |a - b| and |b| */
} rel_diff;

static __device__ inline void add_chunk(float sums[2], uint4 a_word, uint4 b_word) {
    float a[DFX_CHUNK], b[DFX_CHUNK];
    dfx_cuda_unpack8(a, a_word);
    dfx_cuda_unpack8(b, b_word);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++) {
        sums[0] += fabsf(a[i] - b[i]);
        sums[1] += fabsf(b[i]);
    }
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS) sum_strips(rel_diff p) {
    __shared__ float scratch[2][DFX_CUDA_THREADS / DFX_WARP];
    dfx_cuda_place at = dfx_cuda_place_of(p.tiling);
    int64_t end = min((blockIdx.x + 1) * p.strip_rows, p.n_rows);
    float sums[2] = {};
    for (int64_t row0 = blockIdx.x * p.strip_rows + at.lane; at.n > 0 && row0 < end;
         row0 += ABREAST * p.tiling.lanes) {
        uint4 a[ABREAST] = {}, b[ABREAST] = {};
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (row0 + k * p.tiling.lanes < end) {
                a[k] = dfx_cuda_fetch8(p.a, row0 + k * p.tiling.lanes, at.col, at.n);
                b[k] = dfx_cuda_fetch8(p.b, row0 + k * p.tiling.lanes, at.col, at.n);
            }
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            add_chunk(sums, a[k], b[k]); /* zeros where there is no row */
    }
    float diff = dfx_cuda_block_sum(sums[0], scratch[0]),
          size = dfx_cuda_block_sum(sums[1], scratch[1]);
    if (threadIdx.x == 0)
        p.parts[blockIdx.y * gridDim.x + blockIdx.x] = make_float2(diff, size);
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    join_strips(float *y, const float2 *parts, int n_parts) {
    __shared__ double scratch[2][DFX_CUDA_THREADS / DFX_WARP];
    double sums[2] = {};
    for (int i = (int)threadIdx.x; i < n_parts; i += (int)blockDim.x) {
        sums[0] += (double)parts[i].x;
        sums[1] += (double)parts[i].y;
    }
    double diff = dfx_cuda_block_sum(sums[0], scratch[0]),
           size = dfx_cuda_block_sum(sums[1], scratch[1]);
    if (threadIdx.x == 0)
        *y = (float)(diff / size);
}

static rel_diff rel_diff_of(const dfx_op_call *call) {
    const dfx_mat *a = &call->m[DFX_BIN_A];
    rel_diff p = {};
    p.tiling = dfx_cuda_tiling_of(a->cols);
    p.n_rows = a->rows;
    p.strip_rows = dfx_cuda_ceil_div(a->rows, STRIPS_MOST);
    if (p.strip_rows < p.tiling.lanes)
        p.strip_rows = p.tiling.lanes;
    p.n_strips = (unsigned)dfx_cuda_ceil_div(a->rows, p.strip_rows);
    return p;
}

extern "C" size_t dfx_cuda_rel_diff_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    rel_diff p = rel_diff_of(call);
    return (size_t)p.n_strips * p.tiling.n_tiles * sizeof(float2);
}

extern "C" dfx_status dfx_cuda_rel_diff(dfx_cuda *cuda, const dfx_op_call *call) {
    rel_diff p = rel_diff_of(call);
    p.a = dfx_cuda_view_of(&call->m[DFX_BIN_A]);
    p.b = dfx_cuda_view_of(&call->m[DFX_BIN_B]);
    p.parts = (float2 *)cuda->workspace;
    dim3 blocks(p.n_strips, p.tiling.n_tiles);
    sum_strips<<<blocks, p.tiling.threads, 0, cuda->compute>>>(p);
    DFX_TRY(dfx_cuda_check(cuda, cudaGetLastError(), "rel_diff, strips"));
    join_strips<<<1, DFX_CUDA_THREADS, 0, cuda->compute>>>((float *)call->m[0].ptr, p.parts,
                                                           (int)(p.n_strips * p.tiling.n_tiles));
    return dfx_cuda_check(cuda, cudaGetLastError(), "rel_diff, sums");
}
