/* Rows of activations become codes: as an op, or on the way to a product. Bound: memory, 3 bytes a value; the second look at a
 * row finds it in the first level cache. */
#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_linear.h"

typedef struct quant_args {
    dfx_cuda_view x;
    int64_t row0, rows, cols;
    uint8_t *codes;
    int64_t ld, width; /* width: written of a row, zeros beyond cols */
    float *scales;
} quant_args;

template <bool FP8> static __global__ void quantize_rows(quant_args a) {
    __shared__ uint32_t scratch[DFX_CUDA_THREADS / DFX_WARP];
    int64_t row = blockIdx.x, source = a.row0 + row;
    int64_t cols = row < a.rows ? a.cols : 0;
    uint32_t greatest = 0;
    for (int64_t col = threadIdx.x * DFX_CHUNK; col < cols; col += DFX_CUDA_THREADS * DFX_CHUNK) {
        float v[DFX_CHUNK];
        dfx_cuda_load8(v, a.x, source, col, (int)min(cols - col, (int64_t)DFX_CHUNK));
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            greatest = max(greatest, dfx_cuda_magnitude(v[i]));
    }
    dfx_cuda_row_codes codes = dfx_cuda_row_codes_of<FP8>(greatest, scratch);
    if (threadIdx.x == 0)
        a.scales[row] = codes.scale;
    for (int64_t col = threadIdx.x * DFX_CHUNK; col < a.width;
         col += DFX_CUDA_THREADS * DFX_CHUNK) {
        float v[DFX_CHUNK] = {};
        if (col < cols)
            dfx_cuda_load8(v, a.x, source, col, (int)min(cols - col, (int64_t)DFX_CHUNK));
        dfx_cuda_store_codes<FP8>(a.codes + row * a.ld + col,
                                  (int)min(a.width - col, (int64_t)DFX_CHUNK), v, codes);
    }
}

static dfx_status launch(dfx_cuda *cuda, const quant_args *a, dfx_dtype to, int64_t rows) {
    if (to == DFX_DTYPE_I8)
        quantize_rows<false><<<(unsigned)rows, DFX_CUDA_THREADS, 0, cuda->compute>>>(*a);
    else
        quantize_rows<true><<<(unsigned)rows, DFX_CUDA_THREADS, 0, cuda->compute>>>(*a);
    return dfx_cuda_check(cuda, cudaGetLastError(), "codes of activations");
}

extern "C" dfx_status dfx_cuda_quantize_rows(dfx_cuda *cuda, const dfx_cuda_staging *s,
                                             dfx_dtype to, float *scales) {
    quant_args a = {};
    a.x = dfx_cuda_view_of(s->src);
    a.row0 = s->row0;
    a.rows = s->rows;
    a.cols = s->src->cols;
    a.codes = (uint8_t *)s->dst;
    a.ld = a.width = s->ld;
    a.scales = scales;
    return launch(cuda, &a, to, s->dst_rows);
}

extern "C" dfx_status dfx_cuda_quantize(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    quant_args a = {};
    a.x = dfx_cuda_view_of(&call->m[DFX_QUANTIZE_X]);
    a.rows = y->rows;
    a.cols = a.width = y->cols;
    a.codes = (uint8_t *)y->ptr;
    a.ld = y->ld;
    a.scales = (float *)call->m[DFX_QUANTIZE_Y_SCALE].ptr;
    return launch(cuda, &a, y->dtype, y->rows);
}
