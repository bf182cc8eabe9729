/* KV_CENTER, of heads of 128: what codes of keys and values are made with, from a sample of the tokens: every n-th, n of
 * dfx_kv_sample_step.
 *
 *     key = RMSNorm and RoPE of k;  y[0] = mean(key);  y[1] = mean(v);  y[2] = 16 max|v - y[1]| / 448, by columns;
 *     y[3] = max|key - y[0]| / 64 over all columns of a head;  1 where a scale would be 0
 *
 * k v [T,H*128] BF16; y [4,H*128] F32.   Bound: latency.
 *
 * A block has the keys of a head, or its values; 16 lanes a token. It reads once: what is furthest from the mean is the least
 * or the greatest value of the column. Order of the sums depends on shapes alone. */
#include "kernels/cuda/cuda_attention_codes.cuh"

enum {
    THREADS = 512,
    TEAMS = THREADS / HEAD_LANES,
    WARPS = THREADS / DFX_WARP,
    AHEAD = 4, /* tokens of a thread that are in flight together */
};

typedef struct kv_center {
    dfx_cuda_view k, v;
    dfx_cuda_rope how;
    float *y;
    int64_t ldy;
    int n_samples, step; /* tokens from one to the next */
} kv_center;

/* Of one column. */
typedef struct column {
    float sum, low, high;
} column;

static __device__ void join(column *a, const column &b) {
    a->sum += b.sum;
    a->low = fminf(a->low, b.low);
    a->high = fmaxf(a->high, b.high);
}

template <bool KEYS>
static __device__ void look_at(column columns[DFX_CHUNK], const kv_center &p, int head, int at) {
    const dfx_cuda_view &x = KEYS ? p.k : p.v;
    int64_t col = (int64_t)head * HEAD + at;
    for (int first = 0; first < p.n_samples; first += AHEAD * TEAMS) {
        float v[AHEAD][DFX_CHUNK];
        uint4 words[AHEAD];
        int sample = first + (int)threadIdx.x / HEAD_LANES;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            bool there = sample + i * TEAMS < p.n_samples;
            int64_t token = (int64_t)(sample + i * TEAMS) * p.step;
            words[i] = dfx_cuda_fetch8(x, token, col, there ? DFX_CHUNK : 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            bool there = sample + i * TEAMS < p.n_samples;
            int64_t token = there ? (int64_t)(sample + i * TEAMS) * p.step : 0;
            float one[1][DFX_CHUNK];
            dfx_cuda_unpack8(one[0], words[i]);
            if (KEYS) {
                dfx_cuda_turn turn;
                dfx_cuda_load_turn(&turn, p.how, token, at, DFX_CHUNK);
                norm_and_rotate(one, turn, p.how);
            }
            memcpy(v[i], one[0], sizeof(v[i]));
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int c = 0; c < DFX_CHUNK; c++)
                if (sample + i * TEAMS < p.n_samples)
                    join(&columns[c], {v[i][c], v[i][c], v[i][c]});
    }
}

/* The greatest of the first HEAD threads' values, NaN if one is: of bits as integers, where NaN stands above all. */
static __device__ float greatest_of_head(float value, uint32_t *scratch) {
    if (threadIdx.x < HEAD) {
        uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(value));
        if (threadIdx.x % DFX_WARP == 0)
            scratch[threadIdx.x / DFX_WARP] = most;
    }
    __syncthreads();
    uint32_t most = scratch[0];
    for (int warp = 1; warp < HEAD / DFX_WARP; warp++)
        most = max(most, scratch[warp]);
    return __uint_as_float(most);
}

static __global__ void __launch_bounds__(THREADS) find_center(kv_center p) {
    __shared__ column parts[WARPS][HEAD];
    __shared__ uint32_t scratch[HEAD / DFX_WARP];
    bool keys = blockIdx.y == 0;
    int head = (int)blockIdx.x, at = (int)threadIdx.x % HEAD_LANES * DFX_CHUNK;
    column columns[DFX_CHUNK];
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++)
        columns[c] = {0.0f, __int_as_float(0x7f800000), __int_as_float((int)0xff800000)};
    if (keys)
        look_at<true>(columns, p, head, at);
    else
        look_at<false>(columns, p, head, at);
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++) {
        column other;
        other.sum = __shfl_xor_sync(0xffffffffu, columns[c].sum, HEAD_LANES);
        other.low = __shfl_xor_sync(0xffffffffu, columns[c].low, HEAD_LANES);
        other.high = __shfl_xor_sync(0xffffffffu, columns[c].high, HEAD_LANES);
        join(&columns[c], other);
        if (threadIdx.x % DFX_WARP < HEAD_LANES)
            parts[threadIdx.x / DFX_WARP][at + c] = columns[c];
    }
    __syncthreads();
    float mean = 0.0f, furthest = 0.0f;
    if (threadIdx.x < HEAD) {
        column all = parts[0][threadIdx.x];
        for (int warp = 1; warp < WARPS; warp++)
            join(&all, parts[warp][threadIdx.x]);
        mean = all.sum / (float)p.n_samples;
        furthest = fmaxf(fabsf(all.low - mean), fabsf(all.high - mean));
        if (mean != mean)
            furthest = mean;
    }
    float scale = keys ? greatest_of_head(furthest, scratch) / DFX_KV_KEY_TOP
                       : DFX_KV_VALUE_ROOM * furthest / 448.0f;
    if (threadIdx.x < HEAD) {
        float *y = p.y + (int64_t)head * HEAD + threadIdx.x;
        y[(keys ? DFX_CENTER_KEY : DFX_CENTER_VALUE) * p.ldy] = mean;
        y[(keys ? DFX_CENTER_KEY_SCALE : DFX_CENTER_VALUE_SCALE) * p.ldy] =
            scale == 0.0f ? 1.0f : scale;
    }
}

extern "C" dfx_status dfx_cuda_kv_center(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0], *k = &call->m[DFX_CENTER_K];
    DFX_TRY(want_heads_of_128(cuda, call, "kv_center", k, y));
    kv_center p = {};
    p.k = dfx_cuda_view_of(k);
    p.v = dfx_cuda_view_of(&call->m[DFX_CENTER_V]);
    DFX_TRY(dfx_cuda_rope_of(cuda, "kv_center", call, DFX_CENTER_W, &p.how));
    p.y = (float *)y->ptr;
    p.ldy = y->ld;
    p.step = (int)dfx_kv_sample_step(k->rows);
    p.n_samples = (int)dfx_cuda_ceil_div(k->rows, p.step);
    dim3 blocks((unsigned)call->p.n_heads, 2);
    find_center<<<blocks, THREADS, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "kv_center");
}
