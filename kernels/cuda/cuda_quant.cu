/* Rows of activations become codes: as an op, on the way to a product, or as the end of ACT_MUL.
 *
 *     x[k], or act(a[k]) * b[k] in f32 -> codes and scale of the row (cuda_codes.cuh)
 *
 * Bound: memory, 3 bytes a value; 5 with b. A row is a block's, CHUNKS chunks of it a thread's: read once, with so many loads
 * in flight, and kept in registers until its greatest magnitude is known. A row longer than a block holds is read in spans,
 * forwards for the magnitude and backwards for the codes, so that the last span is still there. */
#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_linear.h"

enum {
    CHUNKS = 4,
    THREADS_MOST = 512,
    BLOCKS = 3, /* of a multiprocessor, at the least; leaves a thread 40 registers */
    GATED_BLOCKS = 2,
    COLS_MOST = INT32_MAX - THREADS_MOST * CHUNKS * DFX_CHUNK,
};

typedef struct quant_args {
    dfx_cuda_view x, b;
    dfx_act act; /* with b */
    int64_t row0, rows;
    int cols, width; /* width: written of a row, zeros beyond cols */
    uint8_t *codes;
    int64_t ld;
    float *scales;
    const float *least; /* of scales; NULL: none */
    const float *given; /* instead of scales; NULL: none */
} quant_args;

/* A span begins at column `first`. 32 bits are enough for a row (launch), and 64 cost a tenth of the time. */
static __device__ int col_of(int first, int chunk) {
    return first + (chunk * (int)blockDim.x + (int)threadIdx.x) * DFX_CHUNK;
}

/* What a thread keeps of a span: x as it lies in memory, or products in f32. */
template <bool GATED> struct kept { uint4 words[CHUNKS]; };

template <> struct kept<true> { float v[CHUNKS][DFX_CHUNK]; };

static __device__ void load_span(const quant_args &a, int64_t row, int cols, int first,
                                 kept<false> *kept) {
    const uint4 zero = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int col = col_of(first, c);
        kept->words[c] = col < cols ? dfx_cuda_fetch8(a.x, row, col, cols - col) : zero;
    }
}

static __device__ void load_span(const quant_args &a, int64_t row, int cols, int first,
                                 kept<true> *kept) {
    uint4 x[CHUNKS], b[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int col = col_of(first, c);
        x[c] = dfx_cuda_fetch8(a.x, row, col, cols - col);
        b[c] = dfx_cuda_fetch8(a.b, row, col, cols - col);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        float w[DFX_CHUNK];
        dfx_cuda_unpack8(kept->v[c], x[c]);
        dfx_cuda_unpack8(w, b[c]);
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            kept->v[c][i] = dfx_cuda_act(a.act, kept->v[c][i]) * w[i];
    }
}

/* Two values at a time. */
static __device__ float greatest_of(const kept<false> &kept) {
    __nv_bfloat162 most = __nv_bfloat162(0.0f, 0.0f), pairs[DFX_CHUNK / 2];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        memcpy(pairs, &kept.words[c], sizeof(pairs));
#pragma unroll
        for (int i = 0; i < DFX_CHUNK / 2; i++)
            most = __hmax2_nan(most, __habs2(pairs[i]));
    }
    return dfx_cuda_greater(__low2float(most), __high2float(most));
}

static __device__ float greatest_of(const kept<true> &kept) {
    float most = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            most = dfx_cuda_greater(most, kept.v[c][i]);
    return most;
}

static __device__ void values_of(float v[DFX_CHUNK], const kept<false> &kept, int c) {
    dfx_cuda_unpack8(v, kept.words[c]);
}

static __device__ void values_of(float v[DFX_CHUNK], const kept<true> &kept, int c) {
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = kept.v[c][i];
}

template <bool GATED, bool FP8>
static __global__ void __launch_bounds__(THREADS_MOST, GATED ? GATED_BLOCKS : BLOCKS)
    code_rows(quant_args a) {
    __shared__ uint32_t scratch[THREADS_MOST / DFX_WARP];
    int64_t row = blockIdx.x, source = a.row0 + row;
    int cols = row < a.rows ? a.cols : 0;
    int span = (int)blockDim.x * CHUNKS * DFX_CHUNK, last = (a.width - 1) / span * span;
    kept<GATED> kept;
    float most = 0.0f;
    for (int first = 0; first <= last; first += span) {
        load_span(a, source, cols, first, &kept);
        most = dfx_cuda_greater(most, greatest_of(kept));
    }
    dfx_cuda_row_codes codes = dfx_cuda_row_codes_of<FP8>(most, scratch);
    if (FP8 && !GATED && a.least)
        codes = dfx_cuda_codes_at_least(codes, a.least[row]);
    if (FP8 && !GATED && a.given)
        codes = dfx_cuda_codes_by(a.given[row]);
    else if (threadIdx.x == 0)
        a.scales[row] = codes.scale;
    for (int first = last; first >= 0; first -= span) {
        if (first != last)
            load_span(a, source, cols, first, &kept);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = col_of(first, c);
            float v[DFX_CHUNK];
            values_of(v, kept, c);
            if (col < a.width)
                dfx_cuda_store_codes<FP8>(a.codes + row * a.ld + col, a.width - col, v, codes);
        }
    }
}

static dfx_status launch(dfx_cuda *cuda, const quant_args *a, dfx_dtype to, int64_t rows) {
    if (a->width > COLS_MOST)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: codes of rows want at most %d values, found %d", COLS_MOST,
                        a->width);
    int64_t n_threads = dfx_cuda_ceil_div(a->width, CHUNKS * DFX_CHUNK);
    unsigned block = n_threads < THREADS_MOST
                         ? (unsigned)(dfx_cuda_ceil_div(n_threads, DFX_WARP) * DFX_WARP)
                         : THREADS_MOST;
    bool fp8 = to == DFX_DTYPE_F8_E4M3;
    auto kernel = a->b.ptr ? (fp8 ? code_rows<true, true> : code_rows<true, false>)
                           : (fp8 ? code_rows<false, true> : code_rows<false, false>);
    kernel<<<(unsigned)rows, block, 0, cuda->compute>>>(*a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "codes of activations");
}

extern "C" dfx_status dfx_cuda_quantize_rows(dfx_cuda *cuda, const dfx_cuda_staging *s,
                                             dfx_dtype to, float *scales) {
    quant_args a = {};
    a.x = dfx_cuda_view_of(s->src);
    a.row0 = s->row0;
    a.rows = s->rows;
    a.cols = (int)s->src->cols;
    a.codes = (uint8_t *)s->dst;
    a.ld = s->ld;
    a.width = (int)s->ld;
    a.scales = scales;
    return launch(cuda, &a, to, s->dst_rows);
}

/* x, and y with its scales. */
static quant_args args_of(const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    quant_args a = {};
    a.x = dfx_cuda_view_of(&call->m[DFX_QUANTIZE_X]);
    a.rows = y->rows;
    a.cols = a.width = (int)y->cols;
    a.codes = (uint8_t *)y->ptr;
    a.ld = y->ld;
    a.scales = (float *)call->m[dfx_op_y_scale(call->kind)].ptr;
    return a;
}

extern "C" dfx_status dfx_cuda_quantize(dfx_cuda *cuda, const dfx_op_call *call) {
    quant_args a = args_of(call);
    a.least = (const float *)call->m[DFX_QUANTIZE_LEAST].ptr;
    return launch(cuda, &a, call->m[0].dtype, call->m[0].rows);
}

extern "C" dfx_status dfx_cuda_codes_by_scales(dfx_cuda *cuda, const dfx_mat *x, const dfx_mat *y,
                                               const float *scales) {
    quant_args a = {};
    a.x = dfx_cuda_view_of(x);
    a.rows = y->rows;
    a.cols = a.width = (int)y->cols;
    a.codes = (uint8_t *)y->ptr;
    a.ld = y->ld;
    a.given = scales;
    return launch(cuda, &a, DFX_DTYPE_F8_E4M3, y->rows);
}

extern "C" dfx_status dfx_cuda_act_mul_codes(dfx_cuda *cuda, const dfx_op_call *call) {
    quant_args a = args_of(call);
    a.b = dfx_cuda_view_of(&call->m[DFX_BIN_B]);
    a.act = call->p.act;
    return launch(cuda, &a, call->m[0].dtype, call->m[0].rows);
}
