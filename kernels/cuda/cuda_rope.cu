/* RMSNorm of each head, then rotary position embedding on interleaved pairs, in place.
 *
 *     z[e] = x[t,h,e] * rsqrt(mean_e(x^2) + eps) * w[e]
 *     x[t,h,2m] = z[2m] * cos[t,m] - z[2m+1] * sin[t,m];   x[t,h,2m+1] = z[2m+1] * cos[t,m] + z[2m] * sin[t,m]
 *
 * x [T,H*E] BF16; w [E]; cos sin [T,E/2] F32, or none.   Bound: memory, 4*T*H*E bytes; cos and sin are read by
 * all heads of a token and come from L2.
 *
 * A head belongs to a team: adjacent lanes of a warp, the power of two that has a lane for each chunk of eight values. Its
 * sum is then a few shuffles. A thread has the same chunk of HEADS heads, all of whose loads are in flight together with those
 * of w, cos and sin, which serve them all. A head of more than 256 values has a whole warp, which goes over it twice. */
#include "kernels/cuda/cuda_rope.cuh"

enum {
    HEADS = 3,
    TEAM_MOST = DFX_WARP,
    USUAL_TEAM = 16, /* of heads of 128 values, 16-byte aligned, which the compiler knows */
};

typedef struct rope {
    dfx_cuda_view x;
    dfx_cuda_rope how;
    int n_heads, head_size, team; /* lanes of a head */
} rope;

/* blockIdx.y is blocks of heads of one token, so that nothing 64-bit is divided. */
template <bool USUAL>
static __global__ void __launch_bounds__(DFX_CUDA_THREADS) rotate_heads(rope p) {
    if (USUAL) {
        p.team = USUAL_TEAM;
        p.head_size = USUAL_TEAM * DFX_CHUNK;
        p.x.aligned = p.how.angles_aligned = p.how.w.aligned = true;
    }
    int64_t token = blockIdx.x;
    int n_teams = (int)blockDim.x / p.team, at = (int)threadIdx.x % p.team * DFX_CHUNK;
    int head0 = (int)blockIdx.y * HEADS * n_teams + (int)threadIdx.x / p.team;
    int n[HEADS]; /* 0 beyond the heads, but all take part in the shuffles */
    uint4 words[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        int head = head0 + h * n_teams;
        n[h] = head < p.n_heads ? p.head_size - at : 0;
        words[h] = dfx_cuda_fetch8(p.x, token, (int64_t)head * p.head_size + at, n[h]);
    }
    dfx_cuda_turn turn;
    dfx_cuda_load_turn(&turn, p.how, token, at, p.head_size - at);
    float v[HEADS][DFX_CHUNK], squares[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        dfx_cuda_unpack8(v[h], words[h]);
        squares[h] = dfx_cuda_sum_of_squares(v[h]);
    }
#pragma unroll
    for (int step = p.team / 2; step > 0; step /= 2)
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], step);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float rstd = rsqrtf(squares[h] / (float)p.head_size + p.how.eps);
        int64_t col = (int64_t)(head0 + h * n_teams) * p.head_size + at;
        dfx_cuda_scale_and_rotate(v[h], rstd, turn, p.how.cos);
        if (n[h] > 0)
            dfx_cuda_store8(p.x, token, col, n[h], v[h]);
    }
}

/* blockIdx.y is the head, blockDim one warp. */
static __global__ void __launch_bounds__(DFX_WARP) rotate_long_heads(rope p) {
    int64_t token = blockIdx.x, col = (int64_t)blockIdx.y * p.head_size;
    int begin = (int)threadIdx.x * DFX_CHUNK, span = DFX_WARP * DFX_CHUNK;
    float v[DFX_CHUNK], squares = 0.0f;
    for (int at = begin; at < p.head_size; at += span) {
        dfx_cuda_load8(v, p.x, token, col + at, p.head_size - at);
        squares += dfx_cuda_sum_of_squares(v);
    }
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    float rstd = rsqrtf(squares / (float)p.head_size + p.how.eps);
    for (int at = begin; at < p.head_size; at += span) {
        dfx_cuda_turn turn;
        dfx_cuda_load_turn(&turn, p.how, token, at, p.head_size - at);
        dfx_cuda_load8(v, p.x, token, col + at, p.head_size - at);
        dfx_cuda_scale_and_rotate(v, rstd, turn, p.how.cos);
        dfx_cuda_store8(p.x, token, col + at, p.head_size - at, v);
    }
}

static bool is_usual(const rope &p) {
    return p.head_size == USUAL_TEAM * DFX_CHUNK && p.x.aligned &&
           (p.how.angles_aligned || !p.how.cos) && p.how.w.aligned;
}

extern "C" dfx_status dfx_cuda_qknorm_rope(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[0];
    int64_t head_size = x->cols / call->p.n_heads;
    rope p = {};
    p.x = dfx_cuda_view_of(x);
    p.x.aligned = p.x.aligned && head_size % DFX_CHUNK == 0;
    DFX_TRY(dfx_cuda_rope_of(cuda, "qknorm_rope", call, DFX_QKNORM_W, &p.how));
    p.n_heads = call->p.n_heads;
    p.head_size = (int)head_size;
    p.team = 1;
    while (p.team * DFX_CHUNK < head_size && p.team < TEAM_MOST)
        p.team *= 2;
    if (p.team * DFX_CHUNK < head_size) {
        dim3 blocks((unsigned)x->rows, (unsigned)p.n_heads);
        rotate_long_heads<<<blocks, DFX_WARP, 0, cuda->compute>>>(p);
    } else {
        int64_t n_lanes = dfx_cuda_ceil_div(p.n_heads, HEADS) * p.team;
        int64_t n_warps = dfx_cuda_ceil_div(n_lanes, DFX_WARP);
        int64_t n_blocks = dfx_cuda_ceil_div(n_warps, DFX_CUDA_THREADS / DFX_WARP);
        dim3 blocks((unsigned)x->rows, (unsigned)n_blocks);
        unsigned block = (unsigned)(dfx_cuda_ceil_div(n_warps, n_blocks) * DFX_WARP);
        auto kernel = is_usual(p) ? rotate_heads<true> : rotate_heads<false>;
        kernel<<<blocks, block, 0, cuda->compute>>>(p);
    }
    return dfx_cuda_check(cuda, cudaGetLastError(), "qknorm_rope");
}
