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
#include "kernels/cuda/cuda_device.cuh"

enum {
    PAIRS = DFX_CHUNK / 2,
    HEADS = 3,
    TEAM_MOST = DFX_WARP,
    USUAL_TEAM = 16, /* of heads of 128 values, 16-byte aligned, which the compiler knows */
};

typedef struct rope {
    dfx_cuda_view x;
    dfx_cuda_weights w;
    const float *cos, *sin; /* NULL: no rotation */
    int64_t ld_cos, ld_sin;
    int n_heads, head_size, team; /* lanes of a head */
    bool angles_aligned;          /* every row of cos and sin begins at 16 bytes */
    float eps;
} rope;

static __device__ void load_angles(float v[PAIRS], const float *src, int n, bool aligned) {
    if (aligned && n >= PAIRS) {
        float4 word = *(const float4 *)src;
        v[0] = word.x, v[1] = word.y, v[2] = word.z, v[3] = word.w;
    } else {
#pragma unroll
        for (int m = 0; m < PAIRS; m++)
            v[m] = m < n ? src[m] : 0.0f;
    }
}

/* Of one place of a token's heads, `at` to `at` + n. */
typedef struct turn {
    float w[DFX_CHUNK], cos[PAIRS], sin[PAIRS];
} turn;

static __device__ void load_turn(turn *turn, const rope &p, int64_t token, int at, int n) {
    dfx_cuda_load8(turn->w, p.w, 0, at, n);
    if (!p.cos)
        return;
    load_angles(turn->cos, p.cos + token * p.ld_cos + at / 2, n / 2, p.angles_aligned);
    load_angles(turn->sin, p.sin + token * p.ld_sin + at / 2, n / 2, p.angles_aligned);
}

static __device__ void scale_and_rotate(float v[DFX_CHUNK], float rstd, const turn &turn,
                                        bool has_angles) {
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = v[i] * rstd * turn.w[i];
    if (!has_angles)
        return;
#pragma unroll
    for (int m = 0; m < PAIRS; m++) {
        float a = v[2 * m], b = v[2 * m + 1];
        v[2 * m] = a * turn.cos[m] - b * turn.sin[m];
        v[2 * m + 1] = b * turn.cos[m] + a * turn.sin[m];
    }
}

static __device__ float sum_of_squares(const float v[DFX_CHUNK]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        sum += v[i] * v[i];
    return sum;
}

/* blockIdx.y is blocks of heads of one token, so that nothing 64-bit is divided. */
template <bool USUAL>
static __global__ void __launch_bounds__(DFX_CUDA_THREADS) rotate_heads(rope p) {
    if (USUAL) {
        p.team = USUAL_TEAM;
        p.head_size = USUAL_TEAM * DFX_CHUNK;
        p.x.aligned = p.angles_aligned = p.w.aligned = true;
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
    turn turn;
    load_turn(&turn, p, token, at, p.head_size - at);
    float v[HEADS][DFX_CHUNK], squares[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        dfx_cuda_unpack8(v[h], words[h]);
        squares[h] = sum_of_squares(v[h]);
    }
#pragma unroll
    for (int step = p.team / 2; step > 0; step /= 2)
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], step);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float rstd = rsqrtf(squares[h] / (float)p.head_size + p.eps);
        int64_t col = (int64_t)(head0 + h * n_teams) * p.head_size + at;
        scale_and_rotate(v[h], rstd, turn, p.cos);
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
        squares += sum_of_squares(v);
    }
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    float rstd = rsqrtf(squares / (float)p.head_size + p.eps);
    for (int at = begin; at < p.head_size; at += span) {
        turn turn;
        load_turn(&turn, p, token, at, p.head_size - at);
        dfx_cuda_load8(v, p.x, token, col + at, p.head_size - at);
        scale_and_rotate(v, rstd, turn, p.cos);
        dfx_cuda_store8(p.x, token, col + at, p.head_size - at, v);
    }
}

static bool is_usual(const rope &p) {
    return p.head_size == USUAL_TEAM * DFX_CHUNK && p.x.aligned && (p.angles_aligned || !p.cos) &&
           p.w.aligned;
}

static bool angles_aligned(const dfx_mat *m) {
    return (uintptr_t)m->ptr % 16 == 0 && m->ld % PAIRS == 0;
}

extern "C" dfx_status dfx_cuda_qknorm_rope(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[0], *cos_mat = &call->m[DFX_QKNORM_COS],
                  *sin_mat = &call->m[DFX_QKNORM_SIN];
    int64_t head_size = x->cols / call->p.n_heads;
    if (cos_mat->ptr && (cos_mat->dtype != DFX_DTYPE_F32 || sin_mat->dtype != DFX_DTYPE_F32))
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op qknorm_rope wants cos and sin of F32, found %s and %s",
                        dfx_dtype_name(cos_mat->dtype), dfx_dtype_name(sin_mat->dtype));
    rope p = {};
    p.x = dfx_cuda_view_of(x);
    p.x.aligned = p.x.aligned && head_size % DFX_CHUNK == 0;
    DFX_TRY(dfx_cuda_weights_of(cuda, "qknorm_rope", &call->m[DFX_QKNORM_W], 0.0f, &p.w));
    p.cos = (const float *)cos_mat->ptr;
    p.sin = (const float *)sin_mat->ptr;
    p.ld_cos = cos_mat->ld;
    p.ld_sin = sin_mat->ld;
    p.angles_aligned = angles_aligned(cos_mat) && angles_aligned(sin_mat);
    p.n_heads = call->p.n_heads;
    p.head_size = (int)head_size;
    p.eps = call->p.eps;
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
