/* Test data for choosing algorithms of products: noise in the range of real operands, since a device is slower at it than at
 * zeros, and a comparison of results. Bound: memory. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_linear.h"

/* Any good mixing of the index will do; multiplications by odd numbers between shifts. */
static __device__ inline uint32_t noise(uint32_t i) {
    i = (i ^ i >> 16) * 0x7feb352du;
    i = (i ^ i >> 15) * 0x846ca68bu;
    return i ^ i >> 16;
}

static __global__ void fill_words(uint32_t *words, size_t n, uint32_t keep, uint32_t set) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        words[i] = (noise((uint32_t)i) & keep) | set;
}

static __global__ void compare_words(const uint32_t *a, const uint32_t *b, size_t n,
                                     uint32_t *differs) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        if (a[i] != b[i])
            *differs = 1; /* whoever writes, writes the same */
}

static unsigned blocks_of(const dfx_cuda *cuda, size_t n) {
    size_t wanted = (n + DFX_CUDA_THREADS - 1) / DFX_CUDA_THREADS;
    size_t most = (size_t)cuda->n_multiprocessors * 8;
    return (unsigned)(wanted < most ? wanted : most);
}

extern "C" dfx_status dfx_cuda_fill(dfx_cuda *cuda, void *words, size_t n, uint32_t keep,
                                    uint32_t set) {
    if (n > 0)
        fill_words<<<blocks_of(cuda, n), DFX_CUDA_THREADS, 0, cuda->compute>>>((uint32_t *)words, n,
                                                                               keep, set);
    return dfx_cuda_check(cuda, cudaGetLastError(), "test data");
}

extern "C" dfx_status dfx_cuda_compare(dfx_cuda *cuda, const void *a, const void *b, size_t n,
                                       uint32_t *differs) {
    if (n > 0)
        compare_words<<<blocks_of(cuda, n), DFX_CUDA_THREADS, 0, cuda->compute>>>(
            (const uint32_t *)a, (const uint32_t *)b, n, differs);
    return dfx_cuda_check(cuda, cudaGetLastError(), "comparison");
}
