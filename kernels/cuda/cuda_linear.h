/* What the files of LINEAR share: cuda_linear.c cuts the op into products and says in which order these run. */
#ifndef DFX_KERNELS_CUDA_LINEAR_H
#define DFX_KERNELS_CUDA_LINEAR_H

#include "kernels/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows [row0, row0 + rows) of a matrix, as they shall lie in the workspace: dst [dst_rows, ld], rows at 16 bytes, zeros
 * beyond the matrix. */
typedef struct dfx_cuda_staging {
    const dfx_mat *src;
    int64_t row0, rows;
    void *dst;
    int64_t dst_rows, ld; /* ld: a multiple of 8 */
} dfx_cuda_staging;

/* dst[i,k] = src[row0 + i, k] as BF16 (to: BF16; src F32, BF16, F16, F8_E4M3, F8_E5M2 or I8), or as it is (to: I8 or F8_E4M3,
 * the type of src). cuda_stage.cu */
dfx_status dfx_cuda_stage(dfx_cuda *cuda, const dfx_cuda_staging *staging, dfx_dtype to);

/* dst: codes I8 or F8_E4M3 of BF16 rows; scales [dst_rows], as quant/FORMAT.md says, bit for bit. cuda_quant.cu */
dfx_status dfx_cuda_quantize_rows(dfx_cuda *cuda, const dfx_cuda_staging *staging, dfx_dtype to,
                                  float *scales);

/* y[m,n] = r[m,n] + gate[n] * act(sums[m,n] * row_scales[m] * scale[n] + low[m,n] + b[n]) of a rectangle of y, from the
 * left. */
typedef struct dfx_cuda_end {
    int64_t m0, mb, n0, nb;
    const void *sums; /* [mb, ld] F32, or I32; rows at 16 bytes */
    int64_t ld;
    bool exact;              /* I32 */
    const float *row_scales; /* [mb], or NULL */
    const float *low;        /* [mb, ld], rows at 16 bytes, or NULL */
} dfx_cuda_end;

/* cuda_epilogue.cu */
dfx_status dfx_cuda_epilogue(dfx_cuda *cuda, const dfx_op_call *call, const dfx_cuda_end *end);

/* Test data for choosing algorithms: words[i] = noise & keep | set, i < n. cuda_tune_data.cu */
dfx_status dfx_cuda_fill(dfx_cuda *cuda, void *words, size_t n, uint32_t keep, uint32_t set);
/* *differs (on the device) becomes 1 when a[i] != b[i] for an i < n. */
dfx_status dfx_cuda_compare(dfx_cuda *cuda, const void *a, const void *b, size_t n,
                            uint32_t *differs);

/* Whether this build has machine code, or PTX that the driver can translate, for the device. cuda_epilogue.cu */
cudaError_t dfx_cuda_kernels_check(void);

#ifdef __cplusplus
}
#endif

#endif
