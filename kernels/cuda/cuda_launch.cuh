/* Launches of kernels in clusters. */
#ifndef DFX_KERNELS_CUDA_LAUNCH_CUH
#define DFX_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda_device.cuh"

typedef struct dfx_cuda_clusters {
    int n, blocks; /* of each */
    int threads, shared_bytes; /* of a block */
} dfx_cuda_clusters;

/* The kernel may have as much shared memory as it says. */
template <class... Params, class... Args>
static cudaError_t dfx_cuda_launch_clusters(const dfx_cuda *cuda, void (*kernel)(Params...),
                                            const dfx_cuda_clusters &c, const Args &...args) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)c.blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(c.n * c.blocks));
    config.blockDim = dim3((unsigned)c.threads);
    config.dynamicSmemBytes = (size_t)c.shared_bytes;
    config.stream = cuda->compute;
    config.attrs = &attribute;
    config.numAttrs = c.blocks > 1;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c.shared_bytes);
    return error == cudaSuccess ? cudaLaunchKernelEx(&config, kernel, Params(args)...) : error;
}

#endif
