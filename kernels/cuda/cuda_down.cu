/* A product with few columns (cuda_down.h), by mma.sync, for every device from sm_80 on.
 *
 * A block makes 128 rows and up to 128 columns over a part of K, which passes through a ring of stages in shared memory, 64 of
 * K each. Codes become BF16, which is exact, in registers, on their way to the tensor cores. A lane takes eight adjacent values
 * of K of a row and of a column at once, and products of 16 take four of them and then the other four: which place of a product
 * a value of K has does not matter, so long as it is the same in both.
 *   Bound: memory, once each for x, w and y; w comes from the second level cache for every 128 rows.
 *   Parts of K: as many as give most multiprocessors a block. A second kernel adds them, in their order. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_down.h"
#include "kernels/cuda/cuda_down_codes.cuh"
#include "kernels/cuda/cuda_mma.cuh"

enum {
    TILE_M = 128,
    STAGE_K = 64, /* values */
    STEP_K = 32,
    THREADS = 256,
    WARPS = THREADS / DFX_WARP,
    WARP_N = 32,
    CHUNK_BYTES = 16,
    X_ROW_BYTES = STAGE_K,
    X_BYTES = TILE_M * X_ROW_BYTES,
    W_ROW_BYTES = STAGE_K * 2,
    SHARED_MOST = 96 * 1024, /* of a block of sm_86 and later */
    STAGES_MOST = 6,
    PARTS_MOST = 16,
    PART_K = 384, /* at the least */
    TILE_N_MOST = 128,
};

static const char what[] = "linear, few columns";

/* What one compiled kernel does. */
template <bool FP8_, int N_> struct down_shape {
    static constexpr bool FP8 = FP8_;
    static constexpr int N = N_, WARPS_N = N / WARP_N, WARPS_M = WARPS / WARPS_N;
    static constexpr int WARP_M = TILE_M / WARPS_M, BLOCKS_M = WARP_M / 16, BLOCKS_N = WARP_N / 8;
    static constexpr int STAGE_BYTES = X_BYTES + N * W_ROW_BYTES;
    static constexpr int FITTING = SHARED_MOST / STAGE_BYTES;
    static constexpr int STAGES = FITTING < STAGES_MOST ? FITTING : STAGES_MOST;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES;
    static constexpr int BLOCKS = N == TILE_N_MOST ? 1 : 2; /* of a multiprocessor: registers */
};

typedef struct down_args {
    const char *x, *w;
    uint32_t ldx, ldw; /* with 64 bits offsets take registers that sums want */
    const float *xs;
    __nv_bfloat16 *y;
    int64_t ldy;
    float *parts; /* [n_parts, m, ld_parts], or NULL: y at once */
    int ld_parts, n_parts;
    int m, n, k;
} down_args;

/* ---- values ---- */

/* Byte offset of a chunk of a row, such that what a warp reads at once meets no bank twice. */
static __device__ inline uint32_t w_place(int row, int chunk) {
    return (uint32_t)(row * W_ROW_BYTES + (chunk ^ row % 2 * 4) * CHUNK_BYTES);
}

static __device__ inline uint32_t x_place(int row, int chunk) {
    return (uint32_t)(row * X_ROW_BYTES + (chunk ^ row / 2 % 2 * 2) * CHUNK_BYTES);
}

/* The lane's eight values of a row of x, in pairs. */
template <bool FP8>
static __device__ inline void load_x(uint32_t (&pairs)[4], const char *x, int row, int step) {
    int lane = (int)threadIdx.x % 4;
    uint2 codes = *(const uint2 *)(x + x_place(row, step * 2 + lane / 2) + lane % 2 * 8);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        pairs[i] = dfx_cuda_widen_codes<FP8>(codes.x, i);
        pairs[2 + i] = dfx_cuda_widen_codes<FP8>(codes.y, i);
    }
}

/* ---- fetching ---- */

/* `rows` rows of a stage, zeros beyond the matrix. row, k_bytes: where it begins. */
template <int ROW_BYTES, int ROWS, class Place>
static __device__ inline void fetch_rows(uint32_t to, const char *src, uint32_t ld, int row,
                                         int row_end, int k_bytes, int k_end, Place place) {
    constexpr int chunks = ROW_BYTES / CHUNK_BYTES;
#pragma unroll
    for (int first = 0; first < ROWS; first += THREADS / chunks) {
        int local = first + (int)threadIdx.x / chunks, chunk = (int)threadIdx.x % chunks;
        int at = k_bytes + chunk * CHUNK_BYTES;
        if (ROWS % (THREADS / chunks) == 0 || local < ROWS)
            dfx_cuda_copy_async(to + place(local, chunk),
                                src + ((uint32_t)(row + local) * ld + (uint32_t)at),
                                row + local < row_end && at < k_end);
    }
}

template <class S>
static __device__ inline void fetch_stage(const down_args &a, uint32_t to, int row, int col,
                                          int stage) {
    fetch_rows<X_ROW_BYTES, TILE_M>(to, a.x, a.ldx, row, a.m, stage * X_ROW_BYTES, a.k, x_place);
    fetch_rows<W_ROW_BYTES, S::N>(to + X_BYTES, a.w, a.ldw, col, a.n, stage * W_ROW_BYTES, a.k * 2,
                                  w_place);
}

/* ---- multiplying ---- */

template <class S> struct down_sums { float of[S::BLOCKS_M][S::BLOCKS_N][4]; };

template <class S>
static __device__ inline void multiply_stage(down_sums<S> &sums, const char *x, const char *w) {
    int warp = (int)threadIdx.x / DFX_WARP, group = (int)threadIdx.x % DFX_WARP / 4;
    int row = warp % S::WARPS_M * S::WARP_M + group, col = warp / S::WARPS_M * WARP_N + group;
#pragma unroll
    for (int step = 0; step < STAGE_K / STEP_K; step++) {
        uint32_t w_pairs[S::BLOCKS_N][4];
#pragma unroll
        for (int j = 0; j < S::BLOCKS_N; j++) {
            uint4 word =
                *(const uint4 *)(w + w_place(col + j * 8, step * 4 + (int)threadIdx.x % 4));
            memcpy(w_pairs[j], &word, sizeof(word));
        }
#pragma unroll
        for (int i = 0; i < S::BLOCKS_M; i++) {
            uint32_t upper[4], lower[4];
            load_x<S::FP8>(upper, x, row + i * 16, step);
            load_x<S::FP8>(lower, x, row + i * 16 + 8, step);
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
                const uint32_t operand[4] = {upper[half], lower[half], upper[half + 1],
                                             lower[half + 1]};
#pragma unroll
                for (int j = 0; j < S::BLOCKS_N; j++)
                    dfx_cuda_multiply_add(sums.of[i][j], operand, w_pairs[j][half],
                                          w_pairs[j][half + 1]);
            }
        }
    }
}

/* Stages [first, end) of K. */
template <class S>
static __device__ inline void multiply(const down_args &a, down_sums<S> &sums, char *shared,
                                       int row, int col, int first, int end) {
    uint32_t ring = dfx_cuda_shared_address(shared);
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (first + i < end)
            fetch_stage<S>(a, ring + i * S::STAGE_BYTES, row, col, first + i);
        dfx_cuda_end_group();
    }
    int at = 0, free_at = S::STAGES - 1;
    for (int k = first; k < end; k++) {
        dfx_cuda_wait_groups<S::STAGES - 2>();
        __syncthreads(); /* and everyone has read the stage before, whose place is free */
        if (k + S::STAGES - 1 < end)
            fetch_stage<S>(a, ring + free_at * S::STAGE_BYTES, row, col, k + S::STAGES - 1);
        dfx_cuda_end_group();
        const char *stage = shared + at * S::STAGE_BYTES;
        multiply_stage<S>(sums, stage, stage + X_BYTES);
        free_at = at;
        at = at + 1 == S::STAGES ? 0 : at + 1;
    }
}

/* ---- ending ---- */

static __device__ inline void store_y(const down_args &a, int row, int col, float v0, float v1) {
    float xs = a.xs[row];
    *(__nv_bfloat162 *)(a.y + row * a.ldy + col) = __floats2bfloat162_rn(v0 * xs, v1 * xs);
}

template <class S>
static __device__ inline void end_tile(const down_args &a, const down_sums<S> &sums, int row,
                                       int col) {
    int warp = (int)threadIdx.x / DFX_WARP, lane = (int)threadIdx.x % DFX_WARP;
    row += warp % S::WARPS_M * S::WARP_M + lane / 4;
    col += warp / S::WARPS_M * WARP_N + lane % 4 * 2;
    float *parts = a.parts + (int64_t)blockIdx.z * a.m * a.ld_parts;
#pragma unroll
    for (int i = 0; i < S::BLOCKS_M * 2; i++)
#pragma unroll
        for (int j = 0; j < S::BLOCKS_N; j++) {
            const float *pair = sums.of[i / 2][j] + i % 2 * 2;
            int to_row = row + i * 8, to_col = col + j * 8;
            if (to_row >= a.m || to_col >= a.n)
                continue;
            if (a.parts)
                *(float2 *)(parts + (int64_t)to_row * a.ld_parts + to_col) =
                    make_float2(pair[0], pair[1]);
            else
                store_y(a, to_row, to_col, pair[0], pair[1]);
        }
}

/* ---- the kernels ---- */

/* Rows, columns and parts of K are blockIdx's. */
template <class S>
static __global__ void __launch_bounds__(THREADS, S::BLOCKS)
    down_product(const __grid_constant__ down_args a) {
    extern __shared__ __align__(128) char shared[];
    int n_stages = (a.k + STAGE_K - 1) / STAGE_K, part = (int)blockIdx.z;
    int row = (int)blockIdx.x * TILE_M, col = (int)blockIdx.y * S::N;
    down_sums<S> sums = {};
    multiply<S>(a, sums, shared, row, col, n_stages * part / a.n_parts,
                n_stages * (part + 1) / a.n_parts);
    end_tile<S>(a, sums, row, col);
}

/* A thread four columns. */
static __global__ void __launch_bounds__(THREADS) join_parts(const __grid_constant__ down_args a) {
    int quads = a.n / 4, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int row = i / quads, col = i % quads * 4;
    if (row >= a.m)
        return;
    const float *part = a.parts + (int64_t)row * a.ld_parts + col;
    float4 sum = *(const float4 *)part;
    for (int k = 1; k < a.n_parts; k++) {
        part += (int64_t)a.m * a.ld_parts;
        float4 more = *(const float4 *)part;
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
    }
    store_y(a, row, col, sum.x, sum.y);
    store_y(a, row, col + 2, sum.z, sum.w);
}

/* ---- launching ---- */

static int tile_cols(int64_t n) {
    return n <= 32 ? 32 : n <= 64 ? 64 : TILE_N_MOST;
}

/* As many as give every multiprocessor its blocks, one or two. */
static int parts_of(const dfx_cuda *cuda, const dfx_cuda_down *p) {
    bool hopper = dfx_cuda_down_sm90_fits(cuda);
    int cols = hopper ? dfx_cuda_down_sm90_cols(p->n) : tile_cols(p->n);
    int64_t places = cuda->n_multiprocessors * (cols >= TILE_N_MOST ? 1 : 2);
    int64_t n_tiles = dfx_cuda_ceil_div(p->m, TILE_M) * dfx_cuda_ceil_div(p->n, cols);
    int64_t wanted = places / n_tiles, most = p->k / PART_K;
    most = most < PARTS_MOST ? most : PARTS_MOST;
    wanted = wanted < most ? wanted : most;
    return wanted < 1 ? 1 : (int)wanted;
}

template <class S> static dfx_status launch(dfx_cuda *cuda, const down_args *a) {
    auto kernel = down_product<S>;
    DFX_TRY(dfx_cuda_check(
        cuda,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES),
        what));
    dim3 blocks((unsigned)dfx_cuda_ceil_div(a->m, TILE_M), (unsigned)dfx_cuda_ceil_div(a->n, S::N),
                (unsigned)a->n_parts);
    kernel<<<blocks, THREADS, S::SHARED_BYTES, cuda->compute>>>(*a);
    return dfx_cuda_check(cuda, cudaGetLastError(), what);
}

template <bool FP8> static dfx_status launch_cols(dfx_cuda *cuda, const down_args *a) {
    switch (tile_cols(a->n)) {
    case 32:
        return launch<down_shape<FP8, 32>>(cuda, a);
    case 64:
        return launch<down_shape<FP8, 64>>(cuda, a);
    default:
        return launch<down_shape<FP8, TILE_N_MOST>>(cuda, a);
    }
}

extern "C" bool dfx_cuda_down_fits(const dfx_cuda_down *p) {
    enum { MOST = 1 << 22 };
    bool in = p->in == DFX_DTYPE_I8 || p->in == DFX_DTYPE_F8_E4M3;
    uint64_t places = (uint64_t)(uintptr_t)p->x | (uint64_t)(uintptr_t)p->w |
                      (uint64_t)(uintptr_t)p->y.ptr | (uint64_t)p->ldx | (uint64_t)p->ldw |
                      (uint64_t)p->y.ld * 2;
    return in && places % CHUNK_BYTES == 0 && p->y.dtype == DFX_DTYPE_BF16 && p->m >= 1 &&
           p->n >= DFX_CHUNK && p->n % DFX_CHUNK == 0 && p->n <= DFX_CUDA_DOWN_COLS && p->k >= 16 &&
           p->k % 16 == 0 && p->m < MOST && p->k < MOST && p->m * p->ldx <= UINT32_MAX &&
           p->n * p->ldw <= UINT32_MAX;
}

extern "C" size_t dfx_cuda_down_workspace(const dfx_cuda *cuda, const dfx_cuda_down *p) {
    int n_parts = parts_of(cuda, p);
    return n_parts == 1 ? 0 : (size_t)(n_parts * p->m * p->n) * sizeof(float);
}

extern "C" dfx_status dfx_cuda_down_run(dfx_cuda *cuda, const dfx_cuda_down *p) {
    down_args a = {};
    a.x = (const char *)p->x;
    a.w = (const char *)p->w;
    a.ldx = (uint32_t)p->ldx;
    a.ldw = (uint32_t)p->ldw;
    a.xs = p->xs;
    a.y = (__nv_bfloat16 *)p->y.ptr;
    a.ldy = p->y.ld;
    a.m = (int)p->m;
    a.n = (int)p->n;
    a.k = (int)p->k;
    a.n_parts = parts_of(cuda, p);
    a.ld_parts = a.n;
    a.parts = a.n_parts == 1 ? NULL : (float *)cuda->workspace;
    bool hopper = dfx_cuda_down_sm90_fits(cuda);
    dfx_cuda_note(cuda, hopper ? "wgmma" : "mma.sync");
    DFX_TRY(hopper                  ? dfx_cuda_down_sm90_run(cuda, p, a.n_parts)
            : p->in == DFX_DTYPE_I8 ? launch_cols<false>(cuda, &a)
                                    : launch_cols<true>(cuda, &a));
    if (a.n_parts == 1)
        return DFX_OK;
    join_parts<<<(unsigned)dfx_cuda_ceil_div(p->m * p->n / 4, THREADS), THREADS, 0,
                 cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), what);
}
