/* What the kernels of this folder share: values eight at a time, weights of three types, activations, sums over a block,
 * and how blocks lie on a matrix.
 *
 * The unit is a chunk, eight adjacent values of a row: one 16-byte access for BF16 where rows are aligned, single values
 * at the end of a row and where they are not. Arithmetic is f32. Loads go through the ordinary path, never the read-only
 * one, because an output may be its own input. */
#ifndef DFX_KERNELS_CUDA_DEVICE_CUH
#define DFX_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
}

enum { DFX_CHUNK = 8, DFX_WARP = 32, DFX_CUDA_THREADS = 256 };

static inline __host__ __device__ int64_t dfx_cuda_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- operands ---- */

/* An activation, as kernels take it. aligned: every row begins at 16 bytes. A single row has ld 0, so that it stands for
 * every row. */
typedef struct dfx_cuda_view {
    __nv_bfloat16 *ptr;
    int64_t ld;
    bool aligned;
} dfx_cuda_view;

static inline bool dfx_cuda_aligned(const dfx_mat *m) {
    return (uintptr_t)m->ptr % 16 == 0 && (m->rows == 1 || m->ld % DFX_CHUNK == 0);
}

static inline dfx_cuda_view dfx_cuda_view_of(const dfx_mat *m) {
    dfx_cuda_view view = {(__nv_bfloat16 *)m->ptr, m->rows == 1 ? 0 : m->ld, dfx_cuda_aligned(m)};
    return view;
}

/* A weight, or an activation of another type: base + its values; all `base` where the operand is left out. */
typedef struct dfx_cuda_weights {
    const void *ptr;
    int64_t ld;
    dfx_dtype dtype; /* F32, BF16 or F16 */
    bool aligned;
    float base;
} dfx_cuda_weights;

/* Errors: DFX_E_DEVICE for another dtype. */
static inline dfx_status dfx_cuda_weights_of(const dfx_cuda *cuda, const char *op, const dfx_mat *m,
                                             float base, dfx_cuda_weights *out) {
    if (m->ptr && m->dtype != DFX_DTYPE_F32 && m->dtype != DFX_DTYPE_BF16 &&
        m->dtype != DFX_DTYPE_F16)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op %s wants weights of F32, BF16 or F16, found %s", op,
                        dfx_dtype_name(m->dtype));
    dfx_cuda_weights weights = {m->ptr, m->ld, m->dtype, dfx_cuda_aligned(m), base};
    *out = weights;
    return DFX_OK;
}

/* ---- eight values ---- */

static __device__ inline float dfx_cuda_widen(float value) {
    return value;
}

static __device__ inline float dfx_cuda_widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

static __device__ inline float dfx_cuda_widen(__half value) {
    return __half2float(value);
}

/* v[i] = src[i], i < n; 0 beyond. aligned: src is at 16 bytes. */
template <typename T>
static __device__ inline void dfx_cuda_load8(float v[DFX_CHUNK], const T *src, int n,
                                             bool aligned) {
    T values[DFX_CHUNK];
    uint4 words[sizeof(values) / sizeof(uint4)];
    if (aligned && n >= DFX_CHUNK) {
#pragma unroll
        for (size_t i = 0; i < sizeof(values) / sizeof(uint4); i++)
            words[i] = ((const uint4 *)src)[i];
        memcpy(values, words, sizeof(values));
    } else {
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            values[i] = i < n ? src[i] : T(0.0f);
    }
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = dfx_cuda_widen(values[i]);
}

/* A chunk of BF16 as it lies in memory, to be unpacked later: so that a thread has several loads in flight, none of which
 * is waited for before the next begins. */
static __device__ inline uint4 dfx_cuda_fetch8(const __nv_bfloat16 *src, int n, bool aligned) {
    if (aligned && n >= DFX_CHUNK)
        return *(const uint4 *)src;
    __nv_bfloat16 values[DFX_CHUNK];
    uint4 word;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        values[i] = i < n ? src[i] : __nv_bfloat16(0.0f);
    memcpy(&word, values, sizeof(word));
    return word;
}

static __device__ inline uint4 dfx_cuda_fetch8(const dfx_cuda_view &m, int64_t row, int64_t col,
                                               int n) {
    return dfx_cuda_fetch8(m.ptr + row * m.ld + col, n, m.aligned);
}

static __device__ inline void dfx_cuda_unpack8(float v[DFX_CHUNK], uint4 word) {
    __nv_bfloat16 values[DFX_CHUNK];
    memcpy(values, &word, sizeof(values));
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = __bfloat162float(values[i]);
}

static __device__ inline void dfx_cuda_load8(float v[DFX_CHUNK], const dfx_cuda_view &m,
                                             int64_t row, int64_t col, int n) {
    dfx_cuda_unpack8(v, dfx_cuda_fetch8(m, row, col, n));
}

static __device__ inline void dfx_cuda_load8(float v[DFX_CHUNK], const dfx_cuda_weights &m,
                                             int64_t row, int64_t col, int n) {
    int64_t at = row * m.ld + col;
    if (!m.ptr)
        memset(v, 0, DFX_CHUNK * sizeof(*v));
    else if (m.dtype == DFX_DTYPE_BF16)
        dfx_cuda_load8(v, (const __nv_bfloat16 *)m.ptr + at, n, m.aligned);
    else if (m.dtype == DFX_DTYPE_F16)
        dfx_cuda_load8(v, (const __half *)m.ptr + at, n, m.aligned);
    else
        dfx_cuda_load8(v, (const float *)m.ptr + at, n, m.aligned);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] += m.base;
}

/* One value. */
static __device__ inline float dfx_cuda_weight(const dfx_cuda_weights &m, int64_t row,
                                               int64_t col) {
    int64_t at = row * m.ld + col;
    if (!m.ptr)
        return m.base;
    if (m.dtype == DFX_DTYPE_BF16)
        return m.base + dfx_cuda_widen(((const __nv_bfloat16 *)m.ptr)[at]);
    if (m.dtype == DFX_DTYPE_F16)
        return m.base + dfx_cuda_widen(((const __half *)m.ptr)[at]);
    return m.base + ((const float *)m.ptr)[at];
}

/* Rounded to nearest even. */
static __device__ inline uint4 dfx_cuda_pack8(const float v[DFX_CHUNK]) {
    __nv_bfloat162 pairs[DFX_CHUNK / 2];
    uint4 word;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK / 2; i++)
        pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    memcpy(&word, pairs, sizeof(word));
    return word;
}

/* The first n of v, rounded to nearest even. */
static __device__ inline void dfx_cuda_store8(const dfx_cuda_view &m, int64_t row, int64_t col,
                                              int n, const float v[DFX_CHUNK]) {
    __nv_bfloat16 *dst = m.ptr + row * m.ld + col;
    if (m.aligned && n >= DFX_CHUNK) {
        *(uint4 *)dst = dfx_cuda_pack8(v);
    } else {
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            if (i < n)
                dst[i] = __float2bfloat16_rn(v[i]);
    }
}

/* ---- arithmetic ---- */

/* gelu_tanh through (1 + tanh u) / 2 = sigmoid(2 u), which keeps its relative accuracy where 1 + tanh u would cancel. The
 * fast division gives 0 for divisors above 2^126, and so do those results in BF16, but for the last denormals. */
static __device__ inline float dfx_cuda_act(dfx_act act, float x) {
    const float twice_root = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
    float gate = x;
    switch (act) {
    case DFX_ACT_NONE:
        return x;
    case DFX_ACT_SILU:
        break;
    case DFX_ACT_GELU_TANH:
        gate = twice_root * (x + 0.044715f * (x * x * x));
        break;
    case DFX_ACT_QUICK_GELU:
        gate = 1.702f * x;
        break;
    }
    return __fdividef(x, 1.0f + expf(-gate));
}

/* 1 + e^-(2 u), u the argument of gelu_tanh's tanh, at most 2^60: there x is below -7. */
static __device__ inline float dfx_cuda_gelu_divisor(float x) {
    const float scale = -2.3022081986f; /* -2 sqrt(2 / pi) / ln 2 */
    float exponent = fminf(x * __fmaf_rn(x * x, scale * 0.044715f, scale), 60.0f), power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return 1.0f + power;
}

/* gelu_tanh of two adjacent columns, with one reciprocal for both: what ends a product takes part of the product's time. All
 * kernels that end products have this one, so that each gives the others' bits. */
static __device__ inline void dfx_cuda_gelu_tanh2(float &x0, float &x1) {
    float d0 = dfx_cuda_gelu_divisor(x0), d1 = dfx_cuda_gelu_divisor(x1), both;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(both) : "f"(d0 * d1));
    x0 *= both * d1;
    x1 *= both * d0;
}

static __device__ inline void dfx_cuda_act8(dfx_act act, float v[DFX_CHUNK]) {
    if (act == DFX_ACT_GELU_TANH) {
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i += 2)
            dfx_cuda_gelu_tanh2(v[i], v[i + 1]);
    } else if (act != DFX_ACT_NONE) {
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] = dfx_cuda_act(act, v[i]);
    }
}

/* The sum of `value` over the block, in every thread the same bits: the order follows from blockDim alone. blockDim is
 * whole warps; `scratch` holds one value for each. */
template <typename T> static __device__ inline T dfx_cuda_block_sum(T value, T *scratch) {
    int n_warps = (int)blockDim.x / DFX_WARP;
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    if (n_warps == 1)
        return value;
    __syncthreads(); /* an earlier sum may still be read */
    if (threadIdx.x % DFX_WARP == 0)
        scratch[threadIdx.x / DFX_WARP] = value;
    __syncthreads();
    T total = scratch[0];
    for (int warp = 1; warp < n_warps; warp++)
        total += scratch[warp];
    return total;
}

/* ---- blocks on a matrix ---- */

/* A block covers `chunks` adjacent chunks by `lanes` rows at a time, a thread one chunk; its column tile is blockIdx.y.
 * Narrow matrices so have many rows in a block, wide ones many blocks in a row. */
typedef struct dfx_cuda_tiling {
    int chunks, lanes;
    unsigned threads, n_tiles;
    int64_t cols;
} dfx_cuda_tiling;

static inline dfx_cuda_tiling dfx_cuda_tiling_of(int64_t cols) {
    dfx_cuda_tiling t;
    int64_t n_chunks = dfx_cuda_ceil_div(cols, DFX_CHUNK);
    t.n_tiles = (unsigned)dfx_cuda_ceil_div(n_chunks, DFX_CUDA_THREADS);
    t.chunks = (int)dfx_cuda_ceil_div(n_chunks, t.n_tiles);
    t.lanes = DFX_CUDA_THREADS / t.chunks;
    t.threads = (unsigned)(dfx_cuda_ceil_div(t.chunks * t.lanes, DFX_WARP) * DFX_WARP);
    t.cols = cols;
    return t;
}

/* The grid in which every thread has `rows_a_thread` rows, `lanes` apart. */
static inline dim3 dfx_cuda_blocks(const dfx_cuda_tiling &t, int64_t rows, int rows_a_thread) {
    return dim3((unsigned)dfx_cuda_ceil_div(rows, (int64_t)t.lanes * rows_a_thread), t.n_tiles);
}

/* Where a thread is: its first column, how many of the eight there are (at most 0: none), its row among `lanes`. */
typedef struct dfx_cuda_place {
    int64_t col;
    int n, lane;
} dfx_cuda_place;

static __device__ inline dfx_cuda_place dfx_cuda_place_of(const dfx_cuda_tiling &t) {
    dfx_cuda_place place;
    place.lane = (int)threadIdx.x / t.chunks;
    place.col = ((int64_t)blockIdx.y * t.chunks + (int)threadIdx.x % t.chunks) * DFX_CHUNK;
    int64_t left = t.cols - place.col;
    place.n = place.lane >= t.lanes || left < 0 ? 0 : left < DFX_CHUNK ? (int)left : DFX_CHUNK;
    return place;
}

#endif
