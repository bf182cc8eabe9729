/* What the ops that make codes for attention share: heads of 128, 16 lanes each, and what they refuse. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_CODES_CUH
#define DFX_KERNELS_CUDA_ATTENTION_CODES_CUH

#include "kernels/cuda/cuda_rope.cuh"

enum { HEAD = 128, HEAD_LANES = HEAD / DFX_CHUNK };

/* center: may be absent; else its rows begin at 16 bytes. */
static inline dfx_status want_heads_of_128(const dfx_cuda *cuda, const dfx_op_call *call,
                                           const char *op, const dfx_mat *x,
                                           const dfx_mat *center) {
    if (x->cols != (int64_t)call->p.n_heads * HEAD)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op %s wants heads of %d values, found %lld in %d heads; leave "
                        "--attention-bits at 16",
                        op, HEAD, (long long)x->cols, call->p.n_heads);
    if (center->ptr && ((uintptr_t)center->ptr % 16 != 0 || center->ld % 4 != 0))
        return dfx_fail(cuda->base.sink, DFX_E_INTERNAL,
                        "cuda: op %s wants rows of center at multiples of 16 bytes, found them at "
                        "%p, %lld values apart",
                        op, center->ptr, (long long)center->ld);
    return DFX_OK;
}

static inline dfx_status want_aligned_codes(const dfx_cuda *cuda, const char *op,
                                            const dfx_mat *y) {
    if ((uintptr_t)y->ptr % 16 != 0 || y->ld % 16 != 0)
        return dfx_fail(cuda->base.sink, DFX_E_INTERNAL,
                        "cuda: op %s wants rows of codes at multiples of 16 bytes, found them at "
                        "%p, %lld apart",
                        op, y->ptr, (long long)y->ld);
    return DFX_OK;
}

#endif
