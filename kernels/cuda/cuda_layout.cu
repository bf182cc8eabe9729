/* T5's table of relative positions spread over distances, and the two ways between latents and tokens.
 *
 *     REL_BIAS  y[h, d + T - 1] = table[bucket(d), h], -T < d < T                        y [H,2T-1]; table [n_buckets,H]
 *     UNPACK    y[(2r+i)*w + 2c+j, z] = x[r*(w/2)+c, 4z+2i+j] * mul + add                y [h*w,C];  x [(h/2)*(w/2),4C]
 *     PACK      y[r*(w/2)+c, 4z+2i+j] = (x[(2r+i)*w + 2c+j, z] - add) * mul              y [(h/2)*(w/2),4C];  x [h*w,>=C]
 *
 * Bound: launches. Each runs once a picture, on half a megabyte or less at 1024 x 1024. A thread has one value, adjacent
 * ones on the side of the pixels (or distances); the tokens' side still is whole sectors. */
#include "kernels/cuda/cuda_device.cuh"

/* Half of the buckets for keys after the query, half for the others. Of each half, the first half for one distance each, the
 * rest in logarithmic steps up to max_distance (Raffel et al. 2020, section 2.1). Logarithms in f32, as T5 was trained. */
static __device__ int64_t bucket_of(int64_t distance, int n_buckets, int max_distance) {
    int64_t half = n_buckets / 2, n_exact = half / 2;
    int64_t first = distance > 0 ? half : 0, n = distance < 0 ? -distance : distance;
    if (n < n_exact)
        return first + n;
    float whole = (float)log((double)max_distance / (double)n_exact);
    float part = (float)log((double)((float)n / (float)n_exact));
    int64_t step = n_exact + (int64_t)(part / whole * (float)(half - n_exact));
    return first + (step < half ? step : half - 1);
}

/* A block has DFX_CUDA_THREADS adjacent distances for every head: the bucket is found once. */
static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    spread_bias(dfx_cuda_view y, dfx_cuda_weights table, int64_t n_heads, int64_t n_distances,
                int n_buckets, int max_distance) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_distances)
        return;
    int64_t bucket = bucket_of(i - n_distances / 2, n_buckets, max_distance);
    for (int64_t h = 0; h < n_heads; h++)
        y.ptr[h * y.ld + i] = __float2bfloat16_rn(dfx_cuda_weight(table, bucket, h));
}

extern "C" dfx_status dfx_cuda_rel_bias(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0];
    dfx_cuda_weights table;
    DFX_TRY(dfx_cuda_weights_of(cuda, "rel_bias", &call->m[1], 0.0f, &table));
    unsigned blocks = (unsigned)dfx_cuda_ceil_div(y->cols, DFX_CUDA_THREADS);
    spread_bias<<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(
        dfx_cuda_view_of(y), table, y->rows, y->cols, call->p.n_buckets, call->p.max_distance);
    return dfx_cuda_check(cuda, cudaGetLastError(), "rel_bias");
}

/* Between pixel `pixel`, channel z, and its place among the tokens. */
typedef struct packing {
    dfx_cuda_view tokens, pixels;
    int64_t n_channels, n_values, w; /* latents a row */
    float mul, add;
} packing;

static __device__ __nv_bfloat16 *in_tokens(const packing &p, int64_t pixel, int64_t z) {
    int64_t row = pixel / p.w, col = pixel % p.w;
    int64_t token = row / 2 * (p.w / 2) + col / 2;
    return p.tokens.ptr + token * p.tokens.ld + 4 * z + 2 * (row % 2) + col % 2;
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS) unpack_values(packing p) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_values)
        return;
    int64_t pixel = i / p.n_channels, z = i % p.n_channels;
    p.pixels.ptr[pixel * p.pixels.ld + z] =
        __float2bfloat16_rn(__bfloat162float(*in_tokens(p, pixel, z)) * p.mul + p.add);
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS) pack_values(packing p) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_values)
        return;
    int64_t pixel = i / p.n_channels, z = i % p.n_channels;
    float value = __bfloat162float(p.pixels.ptr[pixel * p.pixels.ld + z]);
    *in_tokens(p, pixel, z) = __float2bfloat16_rn((value - p.add) * p.mul);
}

static packing packing_of(const dfx_op_call *call, const dfx_mat *tokens, const dfx_mat *pixels) {
    packing p = {};
    p.tokens = dfx_cuda_view_of(tokens);
    p.pixels = dfx_cuda_view_of(pixels);
    p.n_channels = tokens->cols / 4;
    p.n_values = tokens->rows * tokens->cols;
    p.w = call->p.w;
    p.mul = call->p.mul;
    p.add = call->p.add;
    return p;
}

extern "C" dfx_status dfx_cuda_unpack(dfx_cuda *cuda, const dfx_op_call *call) {
    packing p = packing_of(call, &call->m[1], &call->m[0]);
    unsigned blocks = (unsigned)dfx_cuda_ceil_div(p.n_values, DFX_CUDA_THREADS);
    unpack_values<<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "unpack");
}

extern "C" dfx_status dfx_cuda_pack(dfx_cuda *cuda, const dfx_op_call *call) {
    packing p = packing_of(call, &call->m[0], &call->m[1]);
    unsigned blocks = (unsigned)dfx_cuda_ceil_div(p.n_values, DFX_CUDA_THREADS);
    pack_values<<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "pack");
}
