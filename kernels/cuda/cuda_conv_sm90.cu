/* Launching cuda_conv_sm90.cuh: which tile for which call, and the maps of its tensors. */
#include "kernels/cuda/cuda_conv_sm90.cuh"
#include "kernels/cuda/cuda_tensor_map.h"

enum { HOPPER = 90 };

static const char what[] = "conv2d, Hopper";

/* A tensor [outer, middle, inner] of values `ld` apart in the middle, `ld_outer` outside, taken by boxes of DEPTH inner ones. */
static dfx_status make_map(const dfx_cuda *cuda, dfx_cuda_encode_fn encode, const void *ptr,
                           const int64_t extents[3], int64_t ld, int64_t ld_outer, int box_middle,
                           int box_outer, CUtensorMap *out) {
    cuuint64_t sizes[] = {(cuuint64_t)extents[2], (cuuint64_t)extents[1], (cuuint64_t)extents[0]};
    cuuint64_t strides[] = {(cuuint64_t)ld * 2, (cuuint64_t)ld_outer * 2};
    cuuint32_t box[] = {DEPTH, (cuuint32_t)box_middle, (cuuint32_t)box_outer}, steps[] = {1, 1, 1};
    CUresult result = encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)ptr, sizes, strides,
                             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: %s: a tensor of %lld x %lld x %lld, rows %lld apart, has no map (error "
                    "%d of the driver)",
                    what, (long long)extents[0], (long long)extents[1], (long long)extents[2],
                    (long long)ld, (int)result);
}

template <class S>
static dfx_status launch(dfx_cuda *cuda, const dfx_op_call *call, const void *w, int64_t ldw) {
    const dfx_mat *m = call->m, *x = &m[DFX_CONV_X];
    const dfx_conv_params *p = &call->p.conv;
    dfx_cuda_encode_fn encode;
    conv_args a = {};
    const int64_t x_extents[] = {p->h, p->w, x->cols}, w_extents[] = {m[0].cols, S::TAPS, x->cols};
    DFX_TRY(dfx_cuda_find_encode(cuda, what, &encode));
    DFX_TRY(
        make_map(cuda, encode, x->ptr, x_extents, x->ld, x->ld * p->w, S::ACROSS, S::DOWN, &a.x));
    DFX_TRY(make_map(cuda, encode, w, w_extents, x->cols, ldw, 1, S::N_TILE, &a.w));
    DFX_TRY(dfx_cuda_weights_of(cuda, "conv2d", &m[DFX_CONV_B], 0.0f, &a.b));
    a.y = dfx_cuda_view_of(&m[0]);
    a.r = dfx_cuda_view_of(&m[DFX_CONV_R]);
    a.norm = dfx_cuda_conv_norm_of(call);
    a.n_out = (int)m[0].cols;
    a.whole = a.n_out % DFX_CHUNK == 0 && a.y.aligned && (!a.r.ptr || a.r.aligned);
    a.h = (int)p->h;
    a.w_in = (int)p->w;
    a.up = p->upsample;
    a.wo = a.w_in * a.up;
    a.n_channels = (int)x->cols;
    a.tiles_across = (int)dfx_cuda_ceil_div(a.w_in, COLUMNS);
    a.n_out_tiles = (int)dfx_cuda_ceil_div(a.n_out, S::N_TILE);
    a.n_tiles =
        a.tiles_across * (int)dfx_cuda_ceil_div(a.h, S::LINES) * a.up * a.up * a.n_out_tiles;
    a.n_depths = (int)dfx_cuda_ceil_div(a.n_channels, DEPTH);
    DFX_TRY(dfx_cuda_check(cuda,
                           cudaFuncSetAttribute(convolve_sm90<S>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                S::SHARED_BYTES),
                           what));
    int n_blocks = a.n_tiles < cuda->n_multiprocessors ? a.n_tiles : cuda->n_multiprocessors;
    convolve_sm90<S><<<n_blocks, THREADS, S::SHARED_BYTES, cuda->compute>>>(a);
    return dfx_cuda_check(cuda, cudaGetLastError(), what);
}

typedef conv_shape<9, 2, 1, 128, 6, 3, 4> wide;
typedef conv_shape<9, 2, 1, 32, 6, 3, 4> narrow; /* for the last layer's three */
typedef conv_shape<1, 2, 1, 128, 6, 3, 0> one_tap;
typedef conv_shape<1, 1, 2, 128, 4, 4, 0> one_tap_wide; /* 128 pixels by 256 channels */

/* A kernel without a body, as code for other targets has it, cannot have as many threads. */
static bool is_in_build(void) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, convolve_sm90<wide>) == cudaSuccess &&
           attributes.maxThreadsPerBlock >= THREADS;
}

extern "C" bool dfx_cuda_conv_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_CONV_X];
    const dfx_conv_params *p = &call->p.conv;
    bool nine = p->k == 3 && p->pad_lo == 1 && p->pad_hi == 1 && p->upsample <= 2;
    bool one = p->k == 1 && p->pad_lo == 0 && p->pad_hi == 0 && p->upsample == 1 &&
               call->m[0].cols <= one_tap_wide::N_TILE; /* y may lie in x */
    return cuda->sm == HOPPER && p->stride == 1 && (nine || one) && x->cols % DFX_CHUNK == 0 &&
           x->ld % DFX_CHUNK == 0 && is_in_build();
}

extern "C" dfx_status dfx_cuda_conv_sm90(dfx_cuda *cuda, const dfx_op_call *call, const void *w,
                                         int64_t ldw) {
    int64_t n = call->m[0].cols;
    if (call->p.conv.k == 1)
        return n <= one_tap::N_TILE ? launch<one_tap>(cuda, call, w, ldw)
                                    : launch<one_tap_wide>(cuda, call, w, ldw);
    return n <= narrow::N_TILE ? launch<narrow>(cuda, call, w, ldw)
                               : launch<wide>(cuda, call, w, ldw);
}
