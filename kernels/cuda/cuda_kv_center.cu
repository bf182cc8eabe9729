/* KV_CENTER, of heads of 128: what codes of keys and values are made with, from a sample of the tokens: every n-th, n of
 * dfx_kv_sample_step.
 *
 *     key = RMSNorm and RoPE of k;  y[0] = mean(key);  y[1] = mean(v);  y[2] = 16 max|v - y[1]| / 448, by columns;
 *     y[3] = max|key - y[0]| / 64 over all columns of a head, no less than max|key2 - y[0]| / 127 of all tokens of k2;
 *     1 where a scale would be 0
 *
 * k v [T,H*128] k2 [T2,H*128] BF16; y [4,H*128] F32.   Bound: latency.
 *
 * A block has the keys of a head, or its values; 16 lanes a token. It reads once: what is furthest from the mean is the least
 * or the greatest value of the column. Order of the sums depends on shapes alone. */
#include "kernels/cuda/cuda_attention_codes.cuh"

enum {
    THREADS = 512,
    TEAMS = THREADS / HEAD_LANES,
    WARPS = THREADS / DFX_WARP,
};

typedef struct sample {
    dfx_cuda_view x;
    dfx_cuda_rope how; /* of keys */
    int n, step;       /* tokens from one to the next */
} sample;

typedef struct kv_center {
    sample k, v, k2; /* k2.n 0: none */
    float *y;
    int64_t ldy;
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

/* What a thread has of tokens that are in flight together. */
template <bool TURNS> struct tokens {
    static constexpr int N = TURNS ? 3 : 6, N_ANGLES = TURNS ? N : 1;
    float v[N][DFX_CHUNK], cos[N_ANGLES][DFX_ROPE_PAIRS], sin[N_ANGLES][DFX_ROPE_PAIRS];
};

/* Tokens of a head's keys, which 16 adjacent lanes have, become what QKNORM_ROPE makes of them. All lanes take part. */
template <bool TURNS>
static __device__ void norm_and_rotate(tokens<TURNS> &t, const dfx_cuda_turn &turn,
                                       const dfx_cuda_rope &how) {
    constexpr int N = tokens<TURNS>::N;
    float squares[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        squares[i] = dfx_cuda_sum_of_squares(t.v[i]);
#pragma unroll
    for (int step = HEAD_LANES / 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < N; i++)
            squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], step);
#pragma unroll
    for (int i = 0; i < N; i++) {
        dfx_cuda_turn own = turn;
        if (TURNS) {
            memcpy(own.cos, t.cos[i], sizeof(own.cos));
            memcpy(own.sin, t.sin[i], sizeof(own.sin));
        }
        dfx_cuda_scale_and_rotate(t.v[i], rsqrtf(squares[i] / (float)HEAD + how.eps), own,
                                  TURNS && how.cos);
    }
}

/* All that some tokens want of memory is asked for at once. */
template <bool KEYS, bool TURNS>
static __device__ void look_at(column (&columns)[DFX_CHUNK], const sample &s, int head, int at) {
    constexpr int N = tokens<TURNS>::N;
    int64_t col = (int64_t)head * HEAD + at;
    dfx_cuda_turn turn = {};
    if (KEYS)
        dfx_cuda_load8(turn.w, s.how.w, 0, at, DFX_CHUNK);
    for (int first = 0; first < s.n; first += N * TEAMS) {
        tokens<TURNS> t = {};
        uint4 words[N] = {};
        int place = first + (int)threadIdx.x / HEAD_LANES;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int64_t token = (int64_t)(place + i * TEAMS) * s.step;
            if (place + i * TEAMS >= s.n)
                break;
            words[i] = dfx_cuda_fetch8(s.x, token, col, DFX_CHUNK);
            if (TURNS && s.how.cos) {
                dfx_cuda_load_angles(t.cos[i], s.how.cos + token * s.how.ld_cos + at / 2,
                                     DFX_ROPE_PAIRS, s.how.angles_aligned);
                dfx_cuda_load_angles(t.sin[i], s.how.sin + token * s.how.ld_sin + at / 2,
                                     DFX_ROPE_PAIRS, s.how.angles_aligned);
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            dfx_cuda_unpack8(t.v[i], words[i]);
        if (KEYS)
            norm_and_rotate(t, turn, s.how);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int c = 0; c < DFX_CHUNK; c++)
                if (place + i * TEAMS < s.n)
                    join(&columns[c], {t.v[i][c], t.v[i][c], t.v[i][c]});
    }
}

static __device__ void clear(column (&columns)[DFX_CHUNK]) {
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++)
        columns[c] = {0.0f, __int_as_float(0x7f800000), __int_as_float((int)0xff800000)};
}

/* What all threads have of column threadIdx.x of the head. */
static __device__ column join_all(const column (&own)[DFX_CHUNK], column (&parts)[WARPS][HEAD],
                                  int at) {
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++) {
        column both = own[c], other;
        other.sum = __shfl_xor_sync(0xffffffffu, both.sum, HEAD_LANES);
        other.low = __shfl_xor_sync(0xffffffffu, both.low, HEAD_LANES);
        other.high = __shfl_xor_sync(0xffffffffu, both.high, HEAD_LANES);
        join(&both, other);
        if (threadIdx.x % DFX_WARP < HEAD_LANES)
            parts[threadIdx.x / DFX_WARP][at + c] = both;
    }
    __syncthreads();
    column all = parts[0][threadIdx.x % HEAD];
    for (int warp = 1; warp < WARPS; warp++)
        join(&all, parts[warp][threadIdx.x % HEAD]);
    __syncthreads();
    return all;
}

static __device__ float farthest(const column &c, float mean) {
    return mean != mean ? mean : fmaxf(fabsf(c.low - mean), fabsf(c.high - mean));
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
    clear(columns);
    if (keys)
        look_at<true, true>(columns, p.k, head, at);
    else
        look_at<false, false>(columns, p.v, head, at);
    const column all = join_all(columns, parts, at);
    float mean = all.sum / (float)p.k.n, scale;
    if (keys) {
        scale = farthest(all, mean) / DFX_KV_KEY_TOP;
        if (p.k2.n) {
            clear(columns);
            look_at<true, false>(columns, p.k2, head, at);
            const column others = join_all(columns, parts, at);
            scale = fmaxf(scale, farthest(others, mean) / 127.0f);
            if (others.sum != others.sum) /* least and greatest pass NaN by */
                scale = others.sum;
        }
        scale = greatest_of_head(scale, scratch);
    } else {
        scale = DFX_KV_VALUE_ROOM * farthest(all, mean) / 448.0f;
    }
    if (threadIdx.x < HEAD) {
        float *y = p.y + (int64_t)head * HEAD + threadIdx.x;
        y[(keys ? DFX_CENTER_KEY : DFX_CENTER_VALUE) * p.ldy] = mean;
        y[(keys ? DFX_CENTER_KEY_SCALE : DFX_CENTER_VALUE_SCALE) * p.ldy] =
            scale == 0.0f ? 1.0f : scale;
    }
}

static sample sample_of(const dfx_mat *x, int64_t step) {
    sample s = {};
    s.x = dfx_cuda_view_of(x);
    s.step = (int)step;
    s.n = (int)dfx_cuda_ceil_div(x->rows, step);
    return s;
}

extern "C" dfx_status dfx_cuda_kv_center(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0], *k = &call->m[DFX_CENTER_K];
    DFX_TRY(want_heads_of_128(cuda, call, "kv_center", k, y));
    kv_center p = {};
    int64_t step = dfx_kv_sample_step(k->rows);
    p.k = sample_of(k, step);
    p.v = sample_of(&call->m[DFX_CENTER_V], step);
    DFX_TRY(dfx_cuda_rope_of(cuda, "kv_center", call, DFX_CENTER_W, &p.k.how));
    if (call->m[DFX_CENTER_K2].ptr) {
        p.k2 = sample_of(&call->m[DFX_CENTER_K2], 1);
        DFX_TRY(dfx_cuda_rope_of(cuda, "kv_center", call, DFX_CENTER_W2, &p.k2.how));
    }
    p.y = (float *)y->ptr;
    p.ldy = y->ld;
    dim3 blocks((unsigned)call->p.n_heads, 2);
    find_center<<<blocks, THREADS, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "kv_center");
}
