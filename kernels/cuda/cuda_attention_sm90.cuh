/* What attention on Hopper in 16 and in 8 bits shares: heads of 128, tiles of queries, who takes which, and how outputs leave
 * registers. A block is a producer and two groups of four warps, each of which has 64 queries. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_SM90_CUH
#define DFX_KERNELS_CUDA_ATTENTION_SM90_CUH

#include <cuda_bf16.h>
#include <math_constants.h>

#include "kernels/cuda/cuda_wgmma.cuh"

typedef __nv_bfloat16 bf16;

enum {
    E = 128,
    GROUPS = 2,
    GROUP = 128, /* threads */
    ROWS = 64,   /* queries of a group */
    QUERIES = GROUPS * ROWS,
    THREADS = (1 + GROUPS) * GROUP,
    /* Registers a thread after the start: 65536 of a multiprocessor are 168 for each of 384. */
    PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 240,
};
static const float LOG2E = 1.4426950408889634f; /* exp(x) = exp2(x LOG2E), one instruction */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The tiles of queries of a block: first, first + gridDim.x, ... */
struct course {
    int n_row_tiles, n_key_tiles, n_tiles;
    __device__ course(int n_queries, int n_keys, int n_heads, int keys_a_tile)
        : n_row_tiles((n_queries + QUERIES - 1) / QUERIES),
          n_key_tiles((n_keys + keys_a_tile - 1) / keys_a_tile), n_tiles(n_row_tiles * n_heads) {}
    __device__ int head(int tile) const { return tile / n_row_tiles; }
    __device__ int query(int tile) const { return tile % n_row_tiles * QUERIES; }
};

__device__ static inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ static inline uint32_t pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* The sum over the four lanes that share a row. */
__device__ static inline float sum_of_row(float part) {
    part += __shfl_xor_sync(0xffffffff, part, 1);
    return part + __shfl_xor_sync(0xffffffff, part, 2);
}

/* Of a thread's first row, counted from that of its group; the second is 8 further. */
__device__ static inline int row_of_thread() {
    return (int)threadIdx.x % GROUP / 32 * 16 + (int)threadIdx.x % 32 / 4;
}

__device__ static inline void release(uint32_t empty) {
    if (threadIdx.x % 32 == 0)
        dfx_sm90_arrive(empty);
}
#endif

#endif
