/* What the ways of CONV2D share: the norm that is applied to what they read, and where one hands over to another. */
#ifndef DFX_KERNELS_CUDA_CONV_CUH
#define DFX_KERNELS_CUDA_CONV_CUH

#include "kernels/cuda/cuda_device.cuh"

/* cuda_conv_direct.cu: calls that need no columns. w: [N, k*k*C] BF16, channels last, rows `ldw` values apart at 16 bytes. */
extern "C" bool dfx_cuda_conv_is_direct(const dfx_op_call *call);
extern "C" dfx_status dfx_cuda_conv_direct(dfx_cuda *cuda, const dfx_op_call *call, const void *w,
                                           int64_t ldw);

/* cuda_conv_sm90.cu: the same on Hopper. Whether it takes a call is told by shape alone, too. */
extern "C" bool dfx_cuda_conv_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call);
extern "C" dfx_status dfx_cuda_conv_sm90(dfx_cuda *cuda, const dfx_op_call *call, const void *w,
                                         int64_t ldw);

/* act((x - mean) * mul + add) stands for x; mean NULL: x as it is. */
typedef struct dfx_cuda_conv_norm {
    const float *mean, *mul, *add; /* [C] */
    bool aligned;                  /* each at 16 bytes */
    dfx_act act;
} dfx_cuda_conv_norm;

static inline dfx_cuda_conv_norm dfx_cuda_conv_norm_of(const dfx_op_call *call) {
    const dfx_mat *m = &call->m[DFX_CONV_NORM];
    dfx_cuda_conv_norm norm = {};
    if (!m->ptr)
        return norm;
    norm.mean = (const float *)m->ptr;
    norm.mul = norm.mean + m->ld;
    norm.add = norm.mul + m->ld;
    norm.aligned = (uintptr_t)m->ptr % 16 == 0 && m->ld % 4 == 0;
    norm.act = call->p.act;
    return norm;
}

/* The norm of eight channels, for as many pixels as a thread has. */
typedef struct dfx_cuda_norm8 {
    float mean[DFX_CHUNK], mul[DFX_CHUNK], add[DFX_CHUNK];
} dfx_cuda_norm8;

static __device__ inline dfx_cuda_norm8 dfx_cuda_norm8_of(const dfx_cuda_conv_norm &norm,
                                                          int channel) {
    dfx_cuda_norm8 eight;
    dfx_cuda_load8(eight.mean, norm.mean + channel, DFX_CHUNK, norm.aligned);
    dfx_cuda_load8(eight.mul, norm.mul + channel, DFX_CHUNK, norm.aligned);
    dfx_cuda_load8(eight.add, norm.add + channel, DFX_CHUNK, norm.aligned);
    return eight;
}

/* Rounded as GROUPNORM rounds them. */
static __device__ inline uint4 dfx_cuda_normalize8(const dfx_cuda_norm8 &eight, dfx_act act,
                                                   uint4 word) {
    float v[DFX_CHUNK];
    dfx_cuda_unpack8(v, word);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = dfx_cuda_act(act, (v[i] - eight.mean[i]) * eight.mul[i] + eight.add[i]);
    return dfx_cuda_pack8(v);
}

/* Eight channels of a pixel from `channel` on. */
static __device__ inline uint4 dfx_cuda_normalize8(const dfx_cuda_conv_norm &norm, int channel,
                                                   uint4 word) {
    return norm.mean ? dfx_cuda_normalize8(dfx_cuda_norm8_of(norm, channel), norm.act, word) : word;
}

/* One channel. */
static __device__ inline __nv_bfloat16 dfx_cuda_normalize(const dfx_cuda_conv_norm &norm,
                                                          int channel, __nv_bfloat16 x) {
    if (!norm.mean)
        return x;
    float v = (dfx_cuda_widen(x) - norm.mean[channel]) * norm.mul[channel] + norm.add[channel];
    return __float2bfloat16_rn(dfx_cuda_act(norm.act, v));
}

#endif
