/* What kernels of attention on Hopper do with the rows of a group of four warps: 64, which lie as wgmma leaves them. A lane has
 * parts of two rows, row_of_thread() and 8 further, which it shares with three others. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_ROWS_CUH
#define DFX_KERNELS_CUDA_ATTENTION_ROWS_CUH

#include <cuda_bf16.h>
#include <math_constants.h>

#include "kernels/cuda/cuda_wgmma.cuh"

typedef __nv_bfloat16 bf16;

enum {
    GROUP = 128, /* threads */
    ROWS = 64,   /* queries of a group */
};
static const float LOG2E = 1.4426950408889634f; /* exp(x) = exp2(x LOG2E), one instruction */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

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
