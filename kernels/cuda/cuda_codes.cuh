/* Rows of values become codes with one scale a row, bit for bit as quant/FORMAT.md says:
 *     absmax = max |x[k]|;  scale = absmax / top;  inverse = top / absmax;  code[k] = nearest(x[k] * inverse)
 * A row is a block's. The greatest magnitude is taken of the bits as integers, where NaN stands above infinity and infinity
 * above all numbers, so one comparison tells a row that has no codes. */
#ifndef DFX_KERNELS_CUDA_CODES_CUH
#define DFX_KERNELS_CUDA_CODES_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/cuda_device.cuh"

/* What a row's codes are made with. */
typedef struct dfx_cuda_row_codes {
    float scale, inverse;
    bool in_range; /* else the scale is NaN and the codes are 0 */
} dfx_cuda_row_codes;

static __device__ inline uint32_t dfx_cuda_magnitude(float value) {
    return __float_as_uint(value) & 0x7fffffffu;
}

/* greatest: dfx_cuda_magnitude of what the thread has seen; scratch: a word for each warp of the block. */
template <bool FP8>
static __device__ inline dfx_cuda_row_codes dfx_cuda_row_codes_of(uint32_t greatest,
                                                                  uint32_t *scratch) {
    const float tiny = 0x1p-100f, too_large = 0x1p+100f, top = FP8 ? 448.0f : 127.0f;
    int n_warps = (int)blockDim.x / DFX_WARP;
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
    if (threadIdx.x % DFX_WARP == 0)
        scratch[threadIdx.x / DFX_WARP] = greatest;
    __syncthreads();
    for (int warp = 0; warp < n_warps; warp++)
        greatest = max(greatest, scratch[warp]);
    float absmax = __uint_as_float(greatest);
    dfx_cuda_row_codes row;
    row.in_range = absmax < too_large;
    row.scale = !row.in_range   ? __int_as_float(0x7fc00000)
                : absmax < tiny ? 1.0f
                                : __fdiv_rn(absmax, top);
    row.inverse = absmax < tiny ? 0.0f : __fdiv_rn(top, absmax);
    return row;
}

/* Eight codes, of which the first n go to dst. */
template <bool FP8>
static __device__ inline void dfx_cuda_store_codes(uint8_t *dst, int n, const float v[DFX_CHUNK],
                                                   const dfx_cuda_row_codes &row) {
    uint8_t codes[DFX_CHUNK];
    uint2 word;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++) {
        float product = row.in_range ? __fmul_rn(v[i], row.inverse) : 0.0f;
        codes[i] = FP8 ? (uint8_t)__nv_cvt_float_to_fp8(product, __NV_SATFINITE, __NV_E4M3)
                       : (uint8_t)(int8_t)__float2int_rn(product);
    }
    memcpy(&word, codes, sizeof(word));
    if (n >= DFX_CHUNK && (uintptr_t)dst % sizeof(word) == 0) {
        *(uint2 *)dst = word;
        return;
    }
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        if (i < n)
            dst[i] = codes[i];
}

#endif
