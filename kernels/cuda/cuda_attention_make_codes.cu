/* Codes for ATTENTION_CODES, of heads of 128: QK_CODES and V_CODES.
 *
 *     QK_CODES  z = RMSNorm and RoPE of x, in f32;  queries: scale[t,h] = max_e |z| / 127, y = nearest(z / scale);
 *               keys: y = nearest((z - center[0]) / center[3]), within +-127
 *     V_CODES   y[c, place(t)] = e4m3((v[t,c] - center[1,c]) / center[2,c])
 *
 * x v [T,H*128] BF16; center [4,H*128] F32; y [T,H*128] I8, and [H*128, round_up(T,16)] E4M3.
 *   Bound: memory, 3*T*H*128 bytes each. */
#include "kernels/cuda/cuda_attention_codes.cuh"
#include "kernels/cuda/cuda_codes.cuh"

/* ---- QK_CODES: as in cuda_rope.cu 16 lanes have a head, a thread the same chunk of HEADS heads, blockIdx.x is the token. */

enum { HEADS = 3 };

typedef struct qk_codes {
    dfx_cuda_view x;
    dfx_cuda_rope how;
    uint8_t *y;
    int64_t ldy;
    float *y_scale; /* of queries */
    int64_t ld_y_scale;
    const float *center; /* of keys */
    int64_t ld_center;
    int n_heads;
} qk_codes;

/* Of x * w, turned: the head's norm is the same number for all of them, and so goes into what codes are made by. */
static __device__ void store_query(const qk_codes &p, int64_t token, int head, int at,
                                   const float v[DFX_CHUNK], float most, float rstd) {
    const float tiny = 0x1p-100f, too_large = 0x1p+100f;
    float absmax = most * rstd, reciprocal;
    bool in_range = absmax < too_large, zeros = absmax < tiny;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(most));
    float by = in_range && !zeros ? 127.0f * reciprocal : 0.0f;
    uint2 codes = make_uint2(dfx_cuda_nearest4_i8(v, by), dfx_cuda_nearest4_i8(v + 4, by));
    *(uint2 *)(p.y + token * p.ldy + head * HEAD + at) = in_range ? codes : make_uint2(0, 0);
    if (at == 0)
        p.y_scale[token * p.ld_y_scale + head] = !in_range ? __int_as_float(0x7fc00000)
                                                 : zeros   ? 1.0f
                                                           : absmax * (1.0f / 127.0f);
}

static __device__ void store_key(const qk_codes &p, int64_t token, int head, int at,
                                 const float v[DFX_CHUNK], float rstd) {
    int64_t col = (int64_t)head * HEAD + at;
    float mean[DFX_CHUNK], codes[DFX_CHUNK];
    dfx_cuda_load8(mean, p.center + DFX_CENTER_KEY * p.ld_center + col, DFX_CHUNK, true);
    float inverse = __frcp_rn(p.center[DFX_CENTER_KEY_SCALE * p.ld_center + col]);
    float by = rstd * inverse;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        codes[i] = fminf(fmaxf(fmaf(v[i], by, -mean[i] * inverse), -127.0f), 127.0f);
    *(uint2 *)(p.y + token * p.ldy + col) =
        make_uint2(dfx_cuda_nearest4_i8(codes, 1.0f), dfx_cuda_nearest4_i8(codes + 4, 1.0f));
}

template <bool QUERIES>
static __global__ void __launch_bounds__(DFX_CUDA_THREADS) make_qk_codes(qk_codes p) {
    int64_t token = blockIdx.x;
    int n_teams = (int)blockDim.x / HEAD_LANES, at = (int)threadIdx.x % HEAD_LANES * DFX_CHUNK;
    int head0 = (int)blockIdx.y * HEADS * n_teams + (int)threadIdx.x / HEAD_LANES;
    uint4 words[HEADS] = {}; /* zeros beyond the heads, where all take part in the shuffles */
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        int head = head0 + h * n_teams;
        if (head < p.n_heads)
            words[h] = dfx_cuda_fetch8(p.x, token, (int64_t)head * HEAD + at, DFX_CHUNK);
    }
    dfx_cuda_turn turn;
    dfx_cuda_load_turn(&turn, p.how, token, at, DFX_CHUNK);
    float v[HEADS][DFX_CHUNK], squares[HEADS], most[HEADS] = {};
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        dfx_cuda_unpack8(v[h], words[h]);
        squares[h] = dfx_cuda_sum_of_squares(v[h]);
        dfx_cuda_scale_and_rotate(v[h], 1.0f, turn, p.how.cos);
#pragma unroll
        for (int i = 0; QUERIES && i < DFX_CHUNK; i++)
            most[h] = dfx_cuda_greater(most[h], v[h][i]);
    }
#pragma unroll
    for (int step = HEAD_LANES / 2; step > 0; step /= 2)
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], step);
            if (QUERIES)
                most[h] =
                    dfx_cuda_greater(most[h], __shfl_xor_sync(0xffffffffu, most[h], step));
        }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        int head = head0 + h * n_teams;
        float rstd = rsqrtf(squares[h] * (1.0f / HEAD) + p.how.eps);
        if (head >= p.n_heads)
            break;
        if (QUERIES)
            store_query(p, token, head, at, v[h], most[h], rstd);
        else
            store_key(p, token, head, at, v[h], rstd);
    }
}

extern "C" dfx_status dfx_cuda_qk_codes(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0], *y_scale = &call->m[DFX_QK_CODES_Y_SCALE],
                  *center = &call->m[DFX_QK_CODES_CENTER];
    DFX_TRY(want_heads_of_128(cuda, call, "qk_codes", &call->m[DFX_QK_CODES_X], center));
    DFX_TRY(want_aligned_codes(cuda, "qk_codes", y));
    qk_codes p = {};
    p.x = dfx_cuda_view_of(&call->m[DFX_QK_CODES_X]);
    DFX_TRY(dfx_cuda_rope_of(cuda, "qk_codes", call, DFX_QK_CODES_W, &p.how));
    p.y = (uint8_t *)y->ptr;
    p.ldy = y->ld;
    p.y_scale = (float *)y_scale->ptr;
    p.ld_y_scale = y_scale->ld;
    p.center = (const float *)center->ptr;
    p.ld_center = center->ld;
    p.n_heads = call->p.n_heads;
    int64_t n_lanes = dfx_cuda_ceil_div(p.n_heads, HEADS) * HEAD_LANES;
    int64_t n_warps = dfx_cuda_ceil_div(n_lanes, DFX_WARP);
    int64_t n_blocks = dfx_cuda_ceil_div(n_warps, DFX_CUDA_THREADS / DFX_WARP);
    dim3 blocks((unsigned)y->rows, (unsigned)n_blocks);
    unsigned block = (unsigned)(dfx_cuda_ceil_div(n_warps, n_blocks) * DFX_WARP);
    auto kernel = p.y_scale ? make_qk_codes<true> : make_qk_codes<false>;
    kernel<<<blocks, block, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "qk_codes");
}

/* ---- V_CODES: a block transposes TOKENS tokens of COLUMNS columns. A thread has one chunk of the four tokens whose codes
 * are adjacent, so it writes words; rows of the tile are an odd number of words apart, for the banks' sake. */

enum {
    TOKENS = 128,
    COLUMNS = 64,
    WORDS = TOKENS / 4, /* of a row of the tile */
    PITCH = WORDS + 1,
    CHUNKS = COLUMNS / DFX_CHUNK,
    V_THREADS = CHUNKS * WORDS,
};

typedef struct v_codes {
    dfx_cuda_view v;
    uint8_t *y;
    int64_t ldy;
    const float *center;
    int64_t ld_center;
    int64_t n_tokens, n_columns; /* of v; of y: tokens to a multiple of 16 */
} v_codes;

/* Words `word` of eight rows of the tile: tokens 8 b + 2 q + c of 16 stand at 4 q + 2 b + c. */
static __device__ void encode_four_tokens(uint32_t words[DFX_CHUNK], const v_codes &p,
                                          int64_t token0, int64_t col) {
    uint4 raw[4];
    bool there[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t token = token0 + i / 2 * 8 + i % 2;
        there[i] = token < p.n_tokens;
        raw[i] = dfx_cuda_fetch8(p.v, token, col, there[i] ? DFX_CHUNK : 0);
    }
    float mean[DFX_CHUNK], inverse[DFX_CHUNK], v[4][DFX_CHUNK];
    dfx_cuda_load8(mean, p.center + DFX_CENTER_VALUE * p.ld_center + col, DFX_CHUNK, true);
    dfx_cuda_load8(inverse, p.center + DFX_CENTER_VALUE_SCALE * p.ld_center + col, DFX_CHUNK, true);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        inverse[i] = 1.0f / inverse[i];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        dfx_cuda_unpack8(v[i], raw[i]);
#pragma unroll
        for (int c = 0; c < DFX_CHUNK; c++)
            v[i][c] = there[i] ? (v[i][c] - mean[c]) * inverse[c] : 0.0f;
    }
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++) {
        const float four[4] = {v[0][c], v[1][c], v[2][c], v[3][c]};
        words[c] = dfx_cuda_codes4<true>(four, 1.0f);
    }
}

static __global__ void __launch_bounds__(V_THREADS) make_v_codes(v_codes p) {
    __shared__ uint32_t tile[COLUMNS * PITCH];
    int64_t token0 = (int64_t)blockIdx.x * TOKENS, col0 = (int64_t)blockIdx.y * COLUMNS;
    int chunk = (int)threadIdx.x % CHUNKS, word = (int)threadIdx.x / CHUNKS;
    uint32_t words[DFX_CHUNK];
    encode_four_tokens(words, p, token0 + word / 4 * 16 + word % 4 * 2, col0 + chunk * DFX_CHUNK);
#pragma unroll
    for (int c = 0; c < DFX_CHUNK; c++)
        tile[(chunk * DFX_CHUNK + c) * PITCH + word] = words[c];
    __syncthreads();
    const int quads = WORDS / 4; /* of a row: 16 bytes each */
    for (int i = (int)threadIdx.x; i < COLUMNS * quads; i += V_THREADS) {
        int row = i / quads, quad = i % quads;
        const uint32_t *from = tile + row * PITCH + quad * 4;
        if (token0 + quad * 16 < p.n_columns)
            *(uint4 *)(p.y + (col0 + row) * p.ldy + token0 + quad * 16) =
                make_uint4(from[0], from[1], from[2], from[3]);
    }
}

extern "C" dfx_status dfx_cuda_v_codes(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0], *v = &call->m[DFX_V_CODES_V],
                  *center = &call->m[DFX_V_CODES_CENTER];
    DFX_TRY(want_heads_of_128(cuda, call, "v_codes", v, center));
    DFX_TRY(want_aligned_codes(cuda, "v_codes", y));
    v_codes p = {};
    p.v = dfx_cuda_view_of(v);
    p.y = (uint8_t *)y->ptr;
    p.ldy = y->ld;
    p.center = (const float *)center->ptr;
    p.ld_center = center->ld;
    p.n_tokens = v->rows;
    p.n_columns = y->cols;
    dim3 blocks((unsigned)dfx_cuda_ceil_div(v->rows, TOKENS), (unsigned)(v->cols / COLUMNS));
    make_v_codes<<<blocks, V_THREADS, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "v_codes");
}
