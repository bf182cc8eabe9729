/* Rows of values become codes with one scale a row, bit for bit as quant/FORMAT.md says:
 *     absmax = max |x[k]|;  scale = absmax / top;  inverse = top / absmax;  code[k] = nearest(x[k] * inverse)
 * A row is a block's. Its greatest magnitude is NaN where a value is; across threads it is taken of the bits as integers,
 * where NaN stands above infinity and infinity above all numbers, so one comparison tells a row that has no codes. */
#ifndef DFX_KERNELS_CUDA_CODES_CUH
#define DFX_KERNELS_CUDA_CODES_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/cuda_device.cuh"

/* What a row's codes are made with. */
typedef struct dfx_cuda_row_codes {
    float scale, inverse;
    bool in_range; /* else the scale is NaN and the codes are 0 */
} dfx_cuda_row_codes;

/* The greater of `most` and |value|, NaN if either is. */
static __device__ inline float dfx_cuda_greater(float most, float value) {
    float greater;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(most), "f"(fabsf(value)));
    return greater;
}

template <bool FP8> static __device__ inline dfx_cuda_row_codes dfx_cuda_codes_below(float absmax) {
    const float tiny = 0x1p-100f, too_large = 0x1p+100f, top = FP8 ? 448.0f : 127.0f;
    dfx_cuda_row_codes row;
    row.in_range = absmax < too_large;
    row.scale = !row.in_range   ? __int_as_float(0x7fc00000)
                : absmax < tiny ? 1.0f
                                : __fdiv_rn(absmax, top);
    row.inverse = absmax < tiny ? 0.0f : __fdiv_rn(top, absmax);
    return row;
}

/* most: dfx_cuda_greater over what the thread has seen; scratch: a word for each warp of the block. */
template <bool FP8>
static __device__ inline dfx_cuda_row_codes dfx_cuda_row_codes_of(float most, uint32_t *scratch) {
    int n_warps = (int)blockDim.x / DFX_WARP, lane = (int)threadIdx.x % DFX_WARP;
    uint32_t greatest = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
    if (n_warps > 1) {
        if (lane == 0)
            scratch[threadIdx.x / DFX_WARP] = greatest;
        __syncthreads();
        greatest = __reduce_max_sync(0xffffffffu, lane < n_warps ? scratch[lane] : 0);
    }
    return dfx_cuda_codes_below<FP8>(__uint_as_float(greatest));
}

/* By a scale that is given, whatever the row has. */
static __device__ inline dfx_cuda_row_codes dfx_cuda_codes_by(float scale) {
    return {scale, __frcp_rn(scale), scale == scale};
}

/* The same row with a scale that is not below `least`, by whose reciprocal its codes are made then. */
static __device__ inline dfx_cuda_row_codes dfx_cuda_codes_at_least(dfx_cuda_row_codes row,
                                                                    float least) {
    bool zeros = row.in_range && row.inverse == 0.0f;
    return dfx_cuda_codes_by(dfx_cuda_greater(zeros ? 0.0f : row.scale, least));
}

static __device__ inline uint32_t dfx_cuda_lowest_bytes(const uint32_t bits[4]) {
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040),
                       0x5410);
}

/* Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the lowest bits, in two's complement; a
 * conversion has a fraction of the rate of an addition. */
static __device__ inline uint32_t dfx_cuda_codes4_i8(const float v[4], float inverse) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), 0x1.8p23f));
    return dfx_cuda_lowest_bytes(bits);
}

/* The same with one rounding instead of two: what is nearest to the product itself. */
static __device__ inline uint32_t dfx_cuda_nearest4_i8(const float v[4], float by) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = __float_as_uint(fmaf(v[i], by, 0x1.8p23f));
    return dfx_cuda_lowest_bytes(bits);
}

static __device__ inline uint32_t dfx_cuda_codes2_fp8(const float v[2], float inverse) {
    float2 products = make_float2(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse));
    return __nv_cvt_float2_to_fp8x2(products, __NV_SATFINITE, __NV_E4M3);
}

template <bool FP8>
static __device__ inline uint32_t dfx_cuda_codes4(const float v[4], float inverse) {
    if (!FP8)
        return dfx_cuda_codes4_i8(v, inverse);
    return dfx_cuda_codes2_fp8(v, inverse) | dfx_cuda_codes2_fp8(v + 2, inverse) << 16;
}

/* Eight codes, of which the first n go to dst. */
template <bool FP8>
static __device__ inline void dfx_cuda_store_codes(uint8_t *dst, int n, const float v[DFX_CHUNK],
                                                   const dfx_cuda_row_codes &row) {
    uint2 word =
        make_uint2(dfx_cuda_codes4<FP8>(v, row.inverse), dfx_cuda_codes4<FP8>(v + 4, row.inverse));
    if (!row.in_range)
        word = make_uint2(0, 0);
    if (n >= DFX_CHUNK && (uintptr_t)dst % sizeof(word) == 0) {
        *(uint2 *)dst = word;
        return;
    }
    uint8_t codes[DFX_CHUNK];
    memcpy(codes, &word, sizeof(codes));
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        if (i < n)
            dst[i] = codes[i];
}

#endif
