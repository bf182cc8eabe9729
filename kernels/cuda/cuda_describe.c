/* What the device is. Whatever cannot be learnt stays 0 or empty: a description is no reason to fail.
 * Source: NVML API reference, nvmlSystemGetDriverVersion and nvmlDeviceGetClockInfo; clocks are 1 (SM) and 2 (memory). */
#include <dlfcn.h>
#include <stdio.h>

#include "kernels/cuda/cuda_internal.h"

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, SM_WITH_FP8 = 89, VERSION_BYTES = 64 };

static int attribute(const dfx_cuda *cuda, enum cudaDeviceAttr which) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, cuda->device) == cudaSuccess ? value : 0;
}

static void describe_driver(const dfx_cuda *cuda, dfx_device_facts *out) {
    char version[VERSION_BYTES];
    int cuda_version = 0;
    int (*driver_version)(char *, unsigned) = NULL;
    if (cuda->context.nvml)
        driver_version =
            (int (*)(char *, unsigned))dlsym(cuda->context.nvml, "nvmlSystemGetDriverVersion");
    bool known = driver_version && driver_version(version, sizeof(version)) == 0;
    cudaDriverGetVersion(&cuda_version);
    snprintf(out->driver, sizeof(out->driver), "%s%sCUDA %d.%d", known ? version : "",
             known ? ", " : "", cuda_version / 1000, cuda_version % 1000 / 10);
}

static int clock_mhz(const dfx_cuda *cuda, int which) {
    unsigned mhz = 0;
    int (*clock_info)(void *, int, unsigned *) =
        (int (*)(void *, int, unsigned *))dlsym(cuda->context.nvml, "nvmlDeviceGetClockInfo");
    return clock_info && clock_info(cuda->context.handle, which, &mhz) == 0 ? (int)mhz : 0;
}

void dfx_cuda_describe(const dfx_backend *be, dfx_device_facts *out) {
    const dfx_cuda *cuda = (const dfx_cuda *)be;
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, all_bytes = 0;
    *out = (dfx_device_facts){.sm = cuda->sm, .has_fp8 = cuda->sm >= SM_WITH_FP8};
    if (cudaGetDeviceProperties(&properties, cuda->device) == cudaSuccess)
        snprintf(out->name, sizeof(out->name), "%.*s", DFX_DEVICE_TEXT - 1, properties.name);
    cudaMemGetInfo(&free_bytes, &all_bytes);
    out->device_bytes = all_bytes;
    out->context_bytes = dfx_cuda_context_bytes(&cuda->context);
    out->unified = attribute(cuda, cudaDevAttrIntegrated) != 0;
    /* kHz, and two transfers a clock */
    out->stated_bytes_per_s = 2e3 * attribute(cuda, cudaDevAttrMemoryClockRate) *
                              attribute(cuda, cudaDevAttrGlobalMemoryBusWidth) / 8;
    describe_driver(cuda, out);
    if (cuda->context.nvml) {
        out->core_mhz = clock_mhz(cuda, NVML_CLOCK_SM);
        out->memory_mhz = clock_mhz(cuda, NVML_CLOCK_MEM);
    }
}
