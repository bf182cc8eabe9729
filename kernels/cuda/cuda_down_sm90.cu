/* A product of codes with few columns (cuda_down.h) out of Hopper's instructions; empty elsewhere.
 *
 * A block makes 128 rows and up to 192 columns over a part of K. A warp asks TMA for stages, 128 of K each: codes in rows of
 * 128 bytes, and w as two tiles of 64. Two groups of four warps have 64 rows each: codes become BF16 in registers, from where
 * the tensor cores take them; w they read in shared memory. Bound: as cuda_down.cu's. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_down.h"
#include "kernels/cuda/cuda_down_codes.cuh"
#include "kernels/cuda/cuda_tensor_map.h"
#include "kernels/cuda/cuda_wgmma.cuh"

enum {
    HOPPER = 90,
    TILE_M = 128,
    STAGE_K = 128,
    STEP_K = 16,
    STEPS = STAGE_K / STEP_K,
    GROUP = 128,
    CONSUMERS = 2 * GROUP,
    THREADS = CONSUMERS + DFX_WARP,
    ROW_BYTES = 128,
    W_TILE_K = 64,
    X_BYTES = TILE_M * ROW_BYTES,
    SHARED_MOST = 224 * 1024,
    STAGES_MOST = 4,
    ALIGN = 1024,
};

static const char what[] = "linear, few columns";

template <bool FP8_, int N_> struct down_shape {
    static constexpr bool FP8 = FP8_;
    static constexpr int N = N_, W_BYTES = N * ROW_BYTES; /* of a tile */
    static constexpr int STAGE_BYTES = X_BYTES + 2 * W_BYTES;
    static constexpr int FITTING = (SHARED_MOST - ALIGN) / STAGE_BYTES;
    static constexpr int STAGES = FITTING < STAGES_MOST ? FITTING : STAGES_MOST;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 2 * STAGES * 8;
};

typedef struct down_args {
    CUtensorMap x, w;
    const float *xs;
    __nv_bfloat16 *y;
    int64_t ldy;
    float *parts; /* [n_parts, m, n], or NULL: y at once */
    int m, n, n_stages, n_parts;
} down_args;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Stages of the block's part, and a place in the ring after another. */
template <class S> struct down_ring {
    uint32_t shared;
    int stage;
    uint32_t parity;

    __device__ uint32_t at() const { return shared + stage * S::STAGE_BYTES; }
    __device__ uint32_t full() const { return shared + S::STAGES * S::STAGE_BYTES + stage * 8; }
    __device__ uint32_t empty() const { return full() + S::STAGES * 8; }
    __device__ void next() {
        if (++stage == S::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <class S>
static __device__ inline void fetch(const down_args &a, down_ring<S> ring, int first, int end) {
    int row = (int)blockIdx.x * TILE_M, col = (int)blockIdx.y * S::N;
    for (int k = first; k < end; k++, ring.next()) {
        dfx_sm90_wait_loop(ring.empty(), ring.parity ^ 1);
        dfx_sm90_arrive_expect(ring.full(), S::STAGE_BYTES);
        dfx_sm90_load(ring.at(), &a.x, ring.full(), k * STAGE_K, row);
        for (int i = 0; i < 2; i++)
            dfx_sm90_load(ring.at() + X_BYTES + i * S::W_BYTES, &a.w, ring.full(),
                          k * STAGE_K + i * W_TILE_K, col);
    }
}

/* Codes 2 (lane % 4) and the next of a step, and those 8 further, of one row. */
static __device__ inline uint32_t load_codes(uint32_t row_at, int step) {
    uint32_t low, high, lane = threadIdx.x % 4;
    uint32_t at = row_at + ((uint32_t)step ^ (row_at / ROW_BYTES % 8)) * 16 + lane * 2;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(low) : "r"(at));
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(high) : "r"(at + 8));
    return low | high << 16;
}

template <class S>
static __device__ inline void multiply(float (&sums)[S::N / 2], down_ring<S> ring, int n_stages) {
    int row = (int)threadIdx.x / DFX_WARP * 16 + (int)threadIdx.x % DFX_WARP / 4;
#pragma unroll
    for (int i = 0; i < S::N / 2; i++)
        sums[i] = 0.0f;
    for (int k = 0; k < n_stages; k++, ring.next()) {
        uint32_t operands[STEPS][4];
        dfx_sm90_wait_loop(ring.full(), ring.parity);
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t codes = load_codes(ring.at() + (row + half * 8) * ROW_BYTES, step);
                operands[step][half] = dfx_cuda_widen_codes<S::FP8>(codes, 0);
                operands[step][half + 2] = dfx_cuda_widen_codes<S::FP8>(codes, 1);
            }
        uint64_t w = dfx_sm90_operand(ring.at() + X_BYTES);
        dfx_sm90_products_begin();
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            dfx_sm90_product_of(sums, operands[step],
                                w + step / 4 * (S::W_BYTES / 16) + step % 4 * 2);
        dfx_sm90_products_commit();
        dfx_sm90_products_wait<0>();
        if (threadIdx.x % DFX_WARP == 0)
            dfx_sm90_arrive(ring.empty());
    }
}

template <class S>
static __device__ inline void end_tile(const down_args &a, const float (&sums)[S::N / 2]) {
    int lane = (int)threadIdx.x % DFX_WARP;
    int row = (int)blockIdx.x * TILE_M + (int)threadIdx.x / DFX_WARP * 16 + lane / 4;
    int col = (int)blockIdx.y * S::N + lane % 4 * 2;
    float *parts = a.parts + (int64_t)blockIdx.z * a.m * a.n;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        if (row >= a.m)
            return;
        float xs = a.xs[row];
#pragma unroll
        for (int j = 0; j < S::N / 8; j++) {
            float v0 = sums[j * 4 + half * 2], v1 = sums[j * 4 + half * 2 + 1];
            if (col + j * 8 >= a.n)
                continue;
            if (a.parts)
                *(float2 *)(parts + (int64_t)row * a.n + col + j * 8) = make_float2(v0, v1);
            else
                *(__nv_bfloat162 *)(a.y + row * a.ldy + col + j * 8) =
                    __floats2bfloat162_rn(v0 * xs, v1 * xs);
        }
    }
}

#endif

/* Rows, columns and parts of K are blockIdx's. */
template <class S>
static __global__ void __launch_bounds__(THREADS)
    down_product_sm90(const __grid_constant__ down_args a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGN) char shared[];
    down_ring<S> ring = {dfx_sm90_address(shared), 0, 0};
    if (threadIdx.x == 0) {
        down_ring<S> each = ring;
        for (int i = 0; i < S::STAGES; i++, each.next()) {
            dfx_sm90_barrier_init(each.full(), 1);
            dfx_sm90_barrier_init(each.empty(), CONSUMERS / DFX_WARP);
        }
        dfx_sm90_barrier_publish();
    }
    __syncthreads();
    int part = (int)blockIdx.z, first = a.n_stages * part / a.n_parts;
    int end = a.n_stages * (part + 1) / a.n_parts;
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS)
            fetch(a, ring, first, end);
    } else {
        float sums[S::N / 2];
        multiply<S>(sums, ring, end - first);
        end_tile<S>(a, sums);
    }
#endif
}

/* ---- launching ---- */

static dfx_status make_map(const dfx_cuda *cuda, CUtensorMapDataType type, const void *ptr,
                           int64_t rows, int64_t cols, int64_t ld_bytes, int box_rows, int box_cols,
                           CUtensorMap *out) {
    dfx_cuda_encode_fn encode;
    cuuint64_t extents[] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[] = {(cuuint64_t)ld_bytes};
    cuuint32_t box[] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, steps[] = {1, 1};
    DFX_TRY(dfx_cuda_find_encode(cuda, what, &encode));
    CUresult result = encode(out, type, 2, (void *)ptr, extents, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: %s: a matrix of %lld x %lld with rows %lld bytes apart has no map "
                    "(error %d of the driver)",
                    what, (long long)rows, (long long)cols, (long long)ld_bytes, (int)result);
}

template <class S> static dfx_status launch(dfx_cuda *cuda, const dfx_cuda_down *p, int n_parts) {
    down_args a = {};
    DFX_TRY(make_map(cuda, CU_TENSOR_MAP_DATA_TYPE_UINT8, p->x, p->m, p->k, p->ldx, TILE_M, STAGE_K,
                     &a.x));
    DFX_TRY(make_map(cuda, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, p->w, p->n, p->k, p->ldw, S::N,
                     W_TILE_K, &a.w));
    a.xs = p->xs;
    a.y = (__nv_bfloat16 *)p->y.ptr;
    a.ldy = p->y.ld;
    a.parts = n_parts == 1 ? NULL : (float *)cuda->workspace;
    a.m = (int)p->m;
    a.n = (int)p->n;
    a.n_stages = (int)dfx_cuda_ceil_div(p->k, STAGE_K);
    a.n_parts = n_parts;
    auto kernel = down_product_sm90<S>;
    DFX_TRY(dfx_cuda_check(
        cuda,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES),
        what));
    dim3 blocks((unsigned)dfx_cuda_ceil_div(a.m, TILE_M), (unsigned)dfx_cuda_ceil_div(a.n, S::N),
                (unsigned)n_parts);
    kernel<<<blocks, THREADS, S::SHARED_BYTES, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), what);
}

template <bool FP8>
static dfx_status launch_cols(dfx_cuda *cuda, const dfx_cuda_down *p, int n_parts) {
    switch (dfx_cuda_down_sm90_cols(p->n)) {
    case 32:
        return launch<down_shape<FP8, 32>>(cuda, p, n_parts);
    case 64:
        return launch<down_shape<FP8, 64>>(cuda, p, n_parts);
    case 128:
        return launch<down_shape<FP8, 128>>(cuda, p, n_parts);
    default:
        return launch<down_shape<FP8, 192>>(cuda, p, n_parts);
    }
}

/* A kernel without a body, as code for other targets has it, needs hardly a register. */
extern "C" bool dfx_cuda_down_sm90_fits(const dfx_cuda *cuda) {
    cudaFuncAttributes attributes;
    auto kernel = down_product_sm90<down_shape<false, 128>>;
    return cuda->sm == HOPPER && cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
           attributes.numRegs > 64;
}

extern "C" int dfx_cuda_down_sm90_cols(int64_t n) {
    return n <= 32 ? 32 : n <= 64 ? 64 : n <= 128 ? 128 : 192;
}

extern "C" dfx_status dfx_cuda_down_sm90_run(dfx_cuda *cuda, const dfx_cuda_down *p, int n_parts) {
    return p->in == DFX_DTYPE_I8 ? launch_cols<false>(cuda, p, n_parts)
                                 : launch_cols<true>(cuda, p, n_parts);
}
