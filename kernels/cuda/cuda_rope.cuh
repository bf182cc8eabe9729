/* RMSNorm of a head and rotary position embedding, eight adjacent values at a time: what QKNORM_ROPE and the ops that make
 * codes of its results share. Formula: cuda_rope.cu. */
#ifndef DFX_KERNELS_CUDA_ROPE_CUH
#define DFX_KERNELS_CUDA_ROPE_CUH

#include "kernels/cuda/cuda_device.cuh"

enum { DFX_ROPE_PAIRS = DFX_CHUNK / 2 };

/* How heads are normalized and turned. */
typedef struct dfx_cuda_rope {
    dfx_cuda_weights w;
    const float *cos, *sin; /* NULL: no rotation */
    int64_t ld_cos, ld_sin;
    bool angles_aligned; /* every row of cos and sin begins at 16 bytes */
    float eps;
} dfx_cuda_rope;

/* Of one place of a token's heads. */
typedef struct dfx_cuda_turn {
    float w[DFX_CHUNK], cos[DFX_ROPE_PAIRS], sin[DFX_ROPE_PAIRS];
} dfx_cuda_turn;

static inline bool dfx_cuda_angles_aligned(const dfx_mat *m) {
    return (uintptr_t)m->ptr % 16 == 0 && m->ld % DFX_ROPE_PAIRS == 0;
}

/* `w` is the slot of the weight, behind which are those of the tables. */
static inline dfx_status dfx_cuda_rope_of(const dfx_cuda *cuda, const char *op,
                                          const dfx_op_call *call, int w, dfx_cuda_rope *out) {
    const dfx_mat *cos_mat = &call->m[w + 1], *sin_mat = &call->m[w + 2];
    if (cos_mat->ptr && (cos_mat->dtype != DFX_DTYPE_F32 || sin_mat->dtype != DFX_DTYPE_F32))
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op %s wants cos and sin of F32, found %s and %s", op,
                        dfx_dtype_name(cos_mat->dtype), dfx_dtype_name(sin_mat->dtype));
    DFX_TRY(dfx_cuda_weights_of(cuda, op, &call->m[w], 0.0f, &out->w));
    out->cos = (const float *)cos_mat->ptr;
    out->sin = (const float *)sin_mat->ptr;
    out->ld_cos = cos_mat->ld;
    out->ld_sin = sin_mat->ld;
    out->angles_aligned = dfx_cuda_angles_aligned(cos_mat) && dfx_cuda_angles_aligned(sin_mat);
    out->eps = call->p.eps;
    return DFX_OK;
}

static __device__ inline void dfx_cuda_load_angles(float v[DFX_ROPE_PAIRS], const float *src, int n,
                                                   bool aligned) {
    if (aligned && n >= DFX_ROPE_PAIRS) {
        float4 word = *(const float4 *)src;
        v[0] = word.x, v[1] = word.y, v[2] = word.z, v[3] = word.w;
    } else {
#pragma unroll
        for (int m = 0; m < DFX_ROPE_PAIRS; m++)
            v[m] = m < n ? src[m] : 0.0f;
    }
}

/* Values `at` to `at` + n of the token's heads. */
static __device__ inline void dfx_cuda_load_turn(dfx_cuda_turn *turn, const dfx_cuda_rope &p,
                                                 int64_t token, int at, int n) {
    dfx_cuda_load8(turn->w, p.w, 0, at, n);
    if (!p.cos)
        return;
    dfx_cuda_load_angles(turn->cos, p.cos + token * p.ld_cos + at / 2, n / 2, p.angles_aligned);
    dfx_cuda_load_angles(turn->sin, p.sin + token * p.ld_sin + at / 2, n / 2, p.angles_aligned);
}

static __device__ inline void dfx_cuda_scale_and_rotate(float v[DFX_CHUNK], float rstd,
                                                        const dfx_cuda_turn &turn,
                                                        bool has_angles) {
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = v[i] * rstd * turn.w[i];
    if (!has_angles)
        return;
#pragma unroll
    for (int m = 0; m < DFX_ROPE_PAIRS; m++) {
        float a = v[2 * m], b = v[2 * m + 1];
        v[2 * m] = a * turn.cos[m] - b * turn.sin[m];
        v[2 * m + 1] = b * turn.cos[m] + a * turn.sin[m];
    }
}

static __device__ inline float dfx_cuda_sum_of_squares(const float v[DFX_CHUNK]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        sum += v[i] * v[i];
    return sum;
}

#endif
