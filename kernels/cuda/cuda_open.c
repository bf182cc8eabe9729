/* Opening a CUDA device: every reason why it cannot be used is one sentence that says what to do. */
#include "kernels/cuda/cuda_open.h"

#include <stdlib.h>

#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_stream.h"

enum { LEAST_SM = 80 }; /* BF16 in tensor cores */

dfx_status dfx_cuda_check(const dfx_cuda *cuda, cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE, "cuda: %s: %s (%s)", what,
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

/* The driver loads libraries of the toolkit's own major version and older ones. */
static dfx_status check_driver(const dfx_sink *sink) {
    int driver = 0, major = CUDART_VERSION / 1000;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cuda: there is no NVIDIA driver (libcuda.so.1); install one that supports "
                        "CUDA %d, or use --device cpu",
                        major);
    if (driver / 1000 < major)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cuda: the driver is too old: it supports CUDA %d.%d, wanted %d.0; update "
                        "the driver, or use --device cpu",
                        driver / 1000, driver % 1000 / 10, major);
    return DFX_OK;
}

static dfx_status check_index(const dfx_sink *sink, int device) {
    int n_devices = 0;
    cudaError_t error = cudaGetDeviceCount(&n_devices);
    if (error != cudaSuccess && error != cudaErrorNoDevice)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cuda: the driver does not answer: %s (%s); look at nvidia-smi, or use "
                        "--device cpu",
                        cudaGetErrorString(error), cudaGetErrorName(error));
    if (n_devices == 0)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cuda: there is a driver but no device; look at nvidia-smi and at "
                        "CUDA_VISIBLE_DEVICES, or use --device cpu");
    if (device < 0 || device >= n_devices)
        return dfx_fail(sink, DFX_E_DEVICE,
                        "cuda: wanted device %d, found %d device%s, counted from 0; use --device "
                        "cuda:%d or less, or look at CUDA_VISIBLE_DEVICES",
                        device, n_devices, n_devices == 1 ? "" : "s", n_devices - 1);
    return DFX_OK;
}

/* Waiting threads sleep: there are few cores, and a page or a picture takes longer than waking up. */
static dfx_status use_device(dfx_cuda *cuda) {
    static const char what[] = "opening the device";
    DFX_TRY(dfx_cuda_check(
        cuda,
        cudaInitDevice(cuda->device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
        what));
    return dfx_cuda_check(cuda, cudaSetDevice(cuda->device), what);
}

/* What other devices run can so be checked on one that they are not. */
static dfx_status take_older_kernels(dfx_cuda *cuda) {
    const char *asked = getenv("DFX_CUDA_SM");
    char *end;
    if (!asked || !*asked)
        return DFX_OK;
    long sm = strtol(asked, &end, 10);
    if (*end || sm < LEAST_SM || sm > cuda->sm)
        return dfx_fail(cuda->base.sink, DFX_E_USAGE,
                        "cuda: DFX_CUDA_SM is \"%.20s\", wanted a compute capability from %d to "
                        "this device's %d, to use the kernels that such a device has; unset it to "
                        "use this device's own",
                        asked, LEAST_SM, cuda->sm);
    cuda->sm = (int)sm;
    return DFX_OK;
}

static dfx_status read_attributes(dfx_cuda *cuda) {
    int major = 0, minor = 0;
    static const char what[] = "asking what the device can do";
    DFX_TRY(dfx_cuda_check(
        cuda, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device),
        what));
    DFX_TRY(dfx_cuda_check(
        cuda, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device),
        what));
    DFX_TRY(dfx_cuda_check(cuda,
                           cudaDeviceGetAttribute(&cuda->n_multiprocessors,
                                                  cudaDevAttrMultiProcessorCount, cuda->device),
                           what));
    cuda->sm = 10 * major + minor;
    if (cuda->sm < LEAST_SM)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: device %d has compute capability %d.%d, wanted 8.0 or more; use "
                        "--device cpu",
                        cuda->device, major, minor);
    return take_older_kernels(cuda);
}

static dfx_status check_kernels(const dfx_cuda *cuda) {
    cudaError_t error = dfx_cuda_kernels_check();
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: this build has no kernels for compute capability %d.%d; build with "
                        "CUDA_ARCHS=%d",
                        cuda->sm / 10, cuda->sm % 10, cuda->sm);
    return dfx_cuda_check(cuda, error, "loading the kernels");
}

dfx_status dfx_cuda_open_device(dfx_cuda *cuda) {
    DFX_TRY(check_driver(cuda->base.sink));
    DFX_TRY(check_index(cuda->base.sink, cuda->device));
    dfx_cuda_context_begin(&cuda->context, cuda->device, cuda->base.sink);
    DFX_TRY(use_device(cuda));
    DFX_TRY(read_attributes(cuda));
    DFX_TRY(check_kernels(cuda));
    static const char what[] = "opening a stream";
    DFX_TRY(dfx_cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->compute, cudaStreamNonBlocking),
                           what));
    DFX_TRY(
        dfx_cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->copy, cudaStreamNonBlocking), what));
    return dfx_cuda_blas_open(cuda);
}

void dfx_cuda_close_device(dfx_cuda *cuda) {
    if (cuda->compute)
        cudaStreamSynchronize(cuda->compute);
    dfx_cuda_blas_close(cuda);
    dfx_cuda_stream_close(cuda);
    if (cuda->copy)
        cudaStreamDestroy(cuda->copy);
    if (cuda->compute)
        cudaStreamDestroy(cuda->compute);
    dfx_cuda_context_end(&cuda->context);
}
