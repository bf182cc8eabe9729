/* What the files of the CUDA backend share. Devices, streams and cuBLASLt are plain C; a .cu file holds kernels and their
 * launchers. One op a launcher; launchers never allocate, wait, or use the default stream, so they can be captured.
 *
 * Activations are BF16 with 16-byte aligned rows; statistics, softmax, RoPE and sums are f32. Weights have the types that
 * dfx_to_f32 widens, at any alignment that their type allows (pages begin at 256, tensors at 64 bytes); the launchers handle
 * BF16 and F32 weights of norms, biases and tables by a type switch, LINEAR also I8 and F8_E4M3 with scales. */
#ifndef DFX_KERNELS_CUDA_INTERNAL_H
#define DFX_KERNELS_CUDA_INTERNAL_H

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dfx_cuda_blas dfx_cuda_blas; /* cuda_gemm.c: handle, algorithms chosen */

enum { DFX_CUDA_VISITS = 4096, DFX_CUDA_COPIES = 2 * DFX_COPIES_AHEAD };

/* Created when first recorded. */
typedef struct dfx_cuda_span {
    cudaEvent_t begin, end;
} dfx_cuda_span;

typedef struct dfx_cuda {
    dfx_backend base; /* first: a dfx_backend pointer is a dfx_cuda pointer */
    int device, sm;   /* 90 is sm_90 */
    int n_multiprocessors;
    dfx_cuda_context context;
    uint64_t budget_bytes;    /* 0: no bound */
    const char *cache_folder; /* borrowed while opening; NULL: none */
    cudaStream_t compute, copy;
    dfx_cuda_span visits[DFX_CUDA_VISITS], copies[DFX_CUDA_COPIES]; /* owned; rings */
    cudaEvent_t clock; /* owned; recorded at clock_ns of the host's clock */
    int64_t clock_ns;
    void *workspace;        /* owned; device */
    size_t workspace_bytes; /* held */
    size_t wanted_bytes;    /* by what was prepared */
    uint64_t n_allocs;      /* of device memory, so far: after the first step there are none */
    dfx_cuda_blas *blas;    /* owned */
    char kernels[128];      /* notes of what the last op was given to */
    bool (*cancelled)(void *user);
    void *cancel_user;
} dfx_cuda;

/* cuda_note.c: said where an op is given to one of several kernels; once, however often it is launched. */
void dfx_cuda_note(dfx_cuda *cuda, const char *fmt, ...) DFX_PRINTF(2, 3);

/* Of any thread: the device is a thread's own choice. */
dfx_status dfx_cuda_use(const dfx_cuda *cuda);

/* DFX_E_DEVICE with op, file and CUDA's words unless `error` is cudaSuccess. */
dfx_status dfx_cuda_check(const dfx_cuda *cuda, cudaError_t error, const char *what);

/* cuda_describe.c */
void dfx_cuda_describe(const dfx_backend *be, dfx_device_facts *out);

/* Bytes of workspace that an op wants, and the op. Files: cuda_linear.c + cuda_quant.cu + cuda_epilogue.cu, */
size_t dfx_cuda_linear_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_linear_prepare(dfx_cuda *cuda,
                                   const dfx_op_call *call); /* choose an algorithm; may wait */
dfx_status dfx_cuda_linear(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_blas_open(dfx_cuda *cuda);
void dfx_cuda_blas_close(dfx_cuda *cuda);

/* y[m, n] = alpha * x W^T (w_transposed: w is [n, k]) or alpha * x W (w is [k, n]), all row-major BF16 with leading dimensions,
 * f32 accumulation, written as BF16 or F32: what conv and attention of odd head sizes build on. The ops' part of the
 * workspace is the caller's. */
dfx_status dfx_cuda_gemm(dfx_cuda *cuda, bool w_transposed, int64_t m, int64_t n, int64_t k,
                         float alpha, const void *x, int64_t ldx, const void *w, int64_t ldw,
                         void *y, int64_t ldy, bool y_f32);

/* cuda_conv.cu (im2col strips + dfx_cuda_gemm), cuda_conv_direct.cu and cuda_conv_sm90.cu (3x3 taps from shared memory) */
size_t dfx_cuda_conv2d_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_conv2d(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attend.c: ATTENTION and ATTENTION_CODES, values or codes. */
size_t dfx_cuda_attend_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attend(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attention.cu: codes where cuda_attention_sm90.cu makes them. */
size_t dfx_cuda_attention_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attention(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_quant.cu, cuda_bound.cu; act_mul_codes: ACT_MUL whose y is codes. */
dfx_status dfx_cuda_bound(dfx_cuda *cuda, const dfx_op_call *call);

/* y, F8_E4M3, of x, BF16, by scales [rows of y]. cuda_quant.cu */
dfx_status dfx_cuda_codes_by_scales(dfx_cuda *cuda, const dfx_mat *x, const dfx_mat *y,
                                    const float *scales);
dfx_status dfx_cuda_quantize(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_act_mul_codes(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attention_sm90.cu: a part of the calls, on Hopper, without workspace; ask with addresses. */
bool dfx_cuda_attention_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attention_sm90(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attention_wide_sm90.cu: heads of 512, on Hopper, without workspace; by shape alone, so ask at any time. */
bool dfx_cuda_attention_wide_fits(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attention_wide(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attention_codes_sm90.cu: a part of the calls, on Hopper. */
bool dfx_cuda_attention_codes_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attention_codes_sm90(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_attention_codes_mma.cu: all calls, on sm_80 and later. Its own kernel, _mma, adds products of a tile with values up in F32
 * or in F16; codes of values become F16 by arithmetic or, CONVERTED, by an instruction of sm_89 and later. */
typedef enum dfx_cuda_codes_way {
    DFX_CUDA_CODES_F32_SUMS,
    DFX_CUDA_CODES_F16_SUMS,
    DFX_CUDA_CODES_CONVERTED, /* sums in F16 */
} dfx_cuda_codes_way;
dfx_status dfx_cuda_attention_codes_mma(dfx_cuda *cuda, const dfx_op_call *call,
                                        dfx_cuda_codes_way how);
dfx_status dfx_cuda_attention_codes_prepare(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_attention_codes(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_kv_center.cu, cuda_attention_make_codes.cu: heads of 128. */
dfx_status dfx_cuda_kv_center(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_qk_codes(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_v_codes(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_poison.c: before a product writes `rows` of `row_bytes`, `pitch_bytes` from one to the next, and reads none of them. Does
 * nothing but in the variant `poison`. */
dfx_status dfx_cuda_poison(const dfx_cuda *cuda, void *y, int64_t rows, size_t row_bytes,
                           size_t pitch_bytes);

/* cuda_rel_diff.cu */
size_t dfx_cuda_rel_diff_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_rel_diff(dfx_cuda *cuda, const dfx_op_call *call);

/* cuda_norm.cu, cuda_rope.cu, cuda_pointwise.cu, cuda_layout.cu */
size_t dfx_cuda_groupnorm_workspace(const dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_layernorm(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_rmsnorm(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_groupnorm(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_groupnorm_stats(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_qknorm_rope(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_act(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_act_mul(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_add(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_axpy(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_sinusoid(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_rel_bias(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_pack(dfx_cuda *cuda, const dfx_op_call *call);
dfx_status dfx_cuda_unpack(dfx_cuda *cuda, const dfx_op_call *call);

#ifdef __cplusplus
}
#endif

#endif
