/* RMSNorm of each head, then rotary position embedding on interleaved pairs, in place.
 *
 *     z[e] = x[t,h,e] * rsqrt(mean_e(x^2) + eps) * w[e]
 *     x[t,h,2m] = z[2m] * cos[t,m] - z[2m+1] * sin[t,m];   x[t,h,2m+1] = z[2m+1] * cos[t,m] + z[2m] * sin[t,m]
 *
 * x [T,H*E] BF16; w [E]; cos sin [T,E/2] F32, or none.   Bound: memory, 4*T*H*E bytes; cos and sin are read by
 * all heads of a token and come from L2.
 *
 * A head belongs to a team: adjacent lanes of a warp, the power of two that has a lane for each chunk of eight values. Its
 * sum is then a few shuffles, and a head of up to 256 values stays in registers. A longer one has a whole warp, which goes
 * over it twice. */
#include "kernels/cuda/cuda_device.cuh"

enum { PAIRS = DFX_CHUNK / 2 };

typedef struct rope {
    dfx_cuda_view x;
    dfx_cuda_weights w;
    const float *cos, *sin; /* NULL: no rotation */
    int64_t ld_cos, ld_sin;
    int n_heads, head_size, team; /* lanes of a head */
    bool angles_aligned;          /* every row of cos and sin begins at 16 bytes */
    float eps;
} rope;

static __device__ void load_angles(float v[PAIRS], const float *src, int n, bool aligned) {
    if (aligned && n >= PAIRS) {
        float4 word = *(const float4 *)src;
        v[0] = word.x, v[1] = word.y, v[2] = word.z, v[3] = word.w;
    } else {
#pragma unroll
        for (int m = 0; m < PAIRS; m++)
            v[m] = m < n ? src[m] : 0.0f;
    }
}

/* n of the eight values v, which begin at value `at` of a head of `token`. */
static __device__ void rotate(const rope &p, int64_t token, int at, int n, float v[DFX_CHUNK]) {
    float cos_of[PAIRS], sin_of[PAIRS];
    load_angles(cos_of, p.cos + token * p.ld_cos + at / 2, n / 2, p.angles_aligned);
    load_angles(sin_of, p.sin + token * p.ld_sin + at / 2, n / 2, p.angles_aligned);
#pragma unroll
    for (int m = 0; m < PAIRS; m++) {
        float a = v[2 * m], b = v[2 * m + 1];
        v[2 * m] = a * cos_of[m] - b * sin_of[m];
        v[2 * m + 1] = b * cos_of[m] + a * sin_of[m];
    }
}

static __device__ float sum_of_squares(const float v[DFX_CHUNK]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        sum += v[i] * v[i];
    return sum;
}

/* blockIdx.y is blocks of heads of one token, so that nothing 64-bit is divided. */
static __global__ void __launch_bounds__(DFX_CUDA_THREADS) normalize_and_rotate(rope p) {
    int64_t token = blockIdx.x;
    int head = (int)(blockIdx.y * blockDim.x + threadIdx.x) / p.team;
    int begin = (int)threadIdx.x % p.team * DFX_CHUNK, span = p.team * DFX_CHUNK;
    int end = head < p.n_heads ? p.head_size : 0; /* but all take part in the shuffles */
    int64_t col = (int64_t)head * p.head_size;
    float v[DFX_CHUNK], w[DFX_CHUNK];
    dfx_cuda_load8(v, p.x, token, col + begin, end - begin);
    float squares = sum_of_squares(v);
    for (int at = begin + span; at < end; at += span) {
        dfx_cuda_load8(w, p.x, token, col + at, end - at);
        squares += sum_of_squares(w);
    }
    for (int step = p.team / 2; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    float rstd = rsqrtf(squares / (float)p.head_size + p.eps);
    for (int at = begin; at < end; at += span) {
        if (at != begin)
            dfx_cuda_load8(v, p.x, token, col + at, end - at);
        dfx_cuda_load8(w, p.w, 0, at, end - at);
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] = v[i] * rstd * w[i];
        if (p.cos)
            rotate(p, token, at, end - at, v);
        dfx_cuda_store8(p.x, token, col + at, end - at, v);
    }
}

static bool angles_aligned(const dfx_mat *m) {
    return (uintptr_t)m->ptr % 16 == 0 && m->ld % PAIRS == 0;
}

extern "C" dfx_status dfx_cuda_qknorm_rope(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[0], *cos_mat = &call->m[DFX_QKNORM_COS],
                  *sin_mat = &call->m[DFX_QKNORM_SIN];
    int64_t head_size = x->cols / call->p.n_heads;
    if (cos_mat->ptr && (cos_mat->dtype != DFX_DTYPE_F32 || sin_mat->dtype != DFX_DTYPE_F32))
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op qknorm_rope wants cos and sin of F32, found %s and %s",
                        dfx_dtype_name(cos_mat->dtype), dfx_dtype_name(sin_mat->dtype));
    rope p = {};
    p.x = dfx_cuda_view_of(x);
    p.x.aligned = p.x.aligned && head_size % DFX_CHUNK == 0;
    DFX_TRY(dfx_cuda_weights_of(cuda, "qknorm_rope", &call->m[DFX_QKNORM_W], 0.0f, &p.w));
    p.cos = (const float *)cos_mat->ptr;
    p.sin = (const float *)sin_mat->ptr;
    p.ld_cos = cos_mat->ld;
    p.ld_sin = sin_mat->ld;
    p.angles_aligned = angles_aligned(cos_mat) && angles_aligned(sin_mat);
    p.n_heads = call->p.n_heads;
    p.head_size = (int)head_size;
    p.eps = call->p.eps;
    p.team = 1;
    while (p.team * DFX_CHUNK < head_size && p.team < DFX_WARP)
        p.team *= 2;
    int64_t n_threads = dfx_cuda_ceil_div((int64_t)p.n_heads * p.team, DFX_WARP) * DFX_WARP;
    int64_t n_blocks = dfx_cuda_ceil_div(n_threads, DFX_CUDA_THREADS);
    int64_t block = dfx_cuda_ceil_div(n_threads, n_blocks * DFX_WARP) * DFX_WARP;
    dim3 blocks((unsigned)x->rows, (unsigned)n_blocks);
    normalize_and_rotate<<<blocks, (unsigned)block, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "qknorm_rope");
}
