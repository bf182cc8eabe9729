/* Rows of activations become codes with one scale a row, bit for bit as quant/FORMAT.md says:
 *     absmax = max |x[k]|;  scale = absmax / top;  inverse = top / absmax;  code[k] = nearest(x[k] * inverse)
 * Bound: memory, 3 bytes a value; the second look at a row finds it in the first level cache.
 *
 * A block a row. The greatest magnitude is taken of the bits as integers, where NaN stands above infinity and infinity
 * above all numbers, so one comparison tells a row that has no codes. */
#include <cuda_fp8.h>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_linear.h"

/* Below the first a row counts as zeros, from the second on it has no codes. */
#define TINY 0x1p-100f
#define TOO_LARGE 0x1p+100f

typedef struct quant_args {
    dfx_cuda_view x;
    int64_t row0, rows, cols;
    uint8_t *codes;
    int64_t ld;
    float *scales;
} quant_args;

static __device__ inline float block_absmax(float value, uint32_t *scratch) {
    uint32_t bits = __float_as_uint(value);
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    if (threadIdx.x % DFX_WARP == 0)
        scratch[threadIdx.x / DFX_WARP] = bits;
    __syncthreads();
    for (int warp = 0; warp < DFX_CUDA_THREADS / DFX_WARP; warp++)
        bits = max(bits, scratch[warp]);
    return __uint_as_float(bits);
}

/* Eight codes as one word of 8 bytes. */
template <bool FP8>
static __device__ inline uint2 codes_of(const float v[DFX_CHUNK], float inverse) {
    uint8_t codes[DFX_CHUNK];
    uint2 word;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++) {
        float product = __fmul_rn(v[i], inverse);
        codes[i] = FP8 ? (uint8_t)__nv_cvt_float_to_fp8(product, __NV_SATFINITE, __NV_E4M3)
                       : (uint8_t)(int8_t)__float2int_rn(product);
    }
    memcpy(&word, codes, sizeof(word));
    return word;
}

template <bool FP8> static __global__ void quantize_rows(quant_args a) {
    __shared__ uint32_t scratch[DFX_CUDA_THREADS / DFX_WARP];
    const float top = FP8 ? 448.0f : 127.0f;
    int64_t row = blockIdx.x, source = a.row0 + row;
    int64_t cols = row < a.rows ? a.cols : 0;
    uint32_t greatest = 0;
    for (int64_t col = threadIdx.x * DFX_CHUNK; col < cols; col += DFX_CUDA_THREADS * DFX_CHUNK) {
        float v[DFX_CHUNK];
        dfx_cuda_load8(v, a.x, source, col, (int)min(cols - col, (int64_t)DFX_CHUNK));
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            greatest = max(greatest, __float_as_uint(v[i]) & 0x7fffffffu);
    }
    float absmax = block_absmax(__uint_as_float(greatest), scratch);
    bool in_range = absmax < TOO_LARGE, is_tiny = absmax < TINY;
    float scale = !in_range ? __int_as_float(0x7fc00000)
                  : is_tiny ? 1.0f
                            : __fdiv_rn(absmax, top);
    float inverse = is_tiny ? 0.0f : __fdiv_rn(top, absmax);
    if (threadIdx.x == 0)
        a.scales[row] = scale;
    for (int64_t col = threadIdx.x * DFX_CHUNK; col < a.ld; col += DFX_CUDA_THREADS * DFX_CHUNK) {
        float v[DFX_CHUNK] = {};
        uint2 codes = make_uint2(0, 0);
        if (in_range && col < cols) {
            dfx_cuda_load8(v, a.x, source, col, (int)min(cols - col, (int64_t)DFX_CHUNK));
            codes = codes_of<FP8>(v, inverse);
        }
        *(uint2 *)(a.codes + row * a.ld + col) = codes;
    }
}

extern "C" dfx_status dfx_cuda_quantize(dfx_cuda *cuda, const dfx_cuda_staging *s, dfx_dtype to,
                                        float *scales) {
    quant_args a = {};
    a.x = dfx_cuda_view_of(s->src);
    a.row0 = s->row0;
    a.rows = s->rows;
    a.cols = s->src->cols;
    a.codes = (uint8_t *)s->dst;
    a.ld = s->ld;
    a.scales = scales;
    unsigned blocks = (unsigned)s->dst_rows;
    if (to == DFX_DTYPE_I8)
        quantize_rows<false><<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(a);
    else
        quantize_rows<true><<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "linear, codes of activations");
}
