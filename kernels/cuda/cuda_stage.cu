/* Matrices that a product cannot take as they lie are laid out anew in the workspace: weights of other types become BF16
 * (codes too, which is exact), rows are filled up with zeros to a width that tensor cores take, and rows with rows.
 * Bound: memory, 2 bytes a value written and what its type reads. */
#include <cuda_fp8.h>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_linear.h"

typedef struct stage_args {
    const void *src; /* of row0 */
    int64_t ld_src, rows, cols;
    bool aligned; /* eight values can be read at once */
    void *dst;
    int64_t ld;
} stage_args;

typedef struct raw_byte {
    uint8_t bits;
} raw_byte;

template <typename To, typename From> static __device__ inline To convert(From value);

template <> __device__ inline __nv_bfloat16 convert(float value) {
    return __float2bfloat16_rn(value);
}
template <> __device__ inline __nv_bfloat16 convert(__nv_bfloat16 value) {
    return value;
}
template <> __device__ inline __nv_bfloat16 convert(__half value) {
    return __float2bfloat16_rn(__half2float(value));
}
template <> __device__ inline __nv_bfloat16 convert(__nv_fp8_e4m3 value) {
    return __float2bfloat16_rn((float)value);
}
template <> __device__ inline __nv_bfloat16 convert(__nv_fp8_e5m2 value) {
    return __float2bfloat16_rn((float)value);
}
template <> __device__ inline __nv_bfloat16 convert(int8_t value) {
    return __float2bfloat16_rn((float)value);
}
template <> __device__ inline raw_byte convert(raw_byte value) {
    return value;
}

/* Eight values that are 8 * sizeof(T) bytes; a struct moves in the widest accesses that its alignment allows. */
template <typename T> struct alignas(sizeof(T) >= 2 ? 16 : 8) eight { T value[DFX_CHUNK]; };

/* A thread a chunk; blockIdx.y and what follows it, gridDim.y apart, are the row. */
template <typename To, typename From>
static __global__ void stage_rows(stage_args a, int64_t dst_rows) {
    int64_t col = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * DFX_CHUNK;
    if (col >= a.ld)
        return;
    for (int64_t row = blockIdx.y; row < dst_rows; row += gridDim.y) {
        const From *src = (const From *)a.src + row * a.ld_src + col;
        int64_t n = row < a.rows ? a.cols - col : 0;
        eight<From> in;
        eight<To> out;
        memset(&in, 0, sizeof(in));
        if (a.aligned && n >= DFX_CHUNK)
            in = *(const eight<From> *)src;
        else
#pragma unroll
            for (int i = 0; i < DFX_CHUNK; i++)
                if (i < n)
                    in.value[i] = src[i];
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            out.value[i] = convert<To, From>(in.value[i]);
        *(eight<To> *)((To *)a.dst + row * a.ld + col) = out;
    }
}

enum { ROWS_MOST = 65535 };

template <typename To, typename From>
static dfx_status launch(dfx_cuda *cuda, const dfx_cuda_staging *s) {
    stage_args a = {};
    const From *src = (const From *)s->src->ptr + s->row0 * s->src->ld;
    a.src = src;
    a.ld_src = s->src->ld;
    a.rows = s->rows;
    a.cols = s->src->cols;
    a.aligned = (uintptr_t)src % alignof(eight<From>) == 0 && s->src->ld % DFX_CHUNK == 0;
    a.dst = s->dst;
    a.ld = s->ld;
    dim3 blocks((unsigned)dfx_cuda_ceil_div(s->ld, DFX_CHUNK * DFX_CUDA_THREADS),
                (unsigned)min(s->dst_rows, (int64_t)ROWS_MOST));
    stage_rows<To, From><<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(a, s->dst_rows);
    return dfx_cuda_check(cuda, cudaGetLastError(), "linear, layout of operands");
}

extern "C" dfx_status dfx_cuda_stage(dfx_cuda *cuda, const dfx_cuda_staging *s, dfx_dtype to) {
    if (to != DFX_DTYPE_BF16)
        return launch<raw_byte, raw_byte>(cuda, s);
    switch (s->src->dtype) {
    case DFX_DTYPE_F32:
        return launch<__nv_bfloat16, float>(cuda, s);
    case DFX_DTYPE_BF16:
        return launch<__nv_bfloat16, __nv_bfloat16>(cuda, s);
    case DFX_DTYPE_F16:
        return launch<__nv_bfloat16, __half>(cuda, s);
    case DFX_DTYPE_F8_E4M3:
        return launch<__nv_bfloat16, __nv_fp8_e4m3>(cuda, s);
    case DFX_DTYPE_F8_E5M2:
        return launch<__nv_bfloat16, __nv_fp8_e5m2>(cuda, s);
    case DFX_DTYPE_I8:
        return launch<__nv_bfloat16, int8_t>(cuda, s);
    default:
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE, "cuda: op linear cannot widen weights of %s",
                        dfx_dtype_name(s->src->dtype));
    }
}
