#include "kernels/cuda/cuda_context.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "core/sink.h"

/* Left to what comes later: kernels, which are loaded when they first run (some 30 MiB on an H200), and recorded regions
 * (14 MiB for the first, 2 MiB for every hundred of ten ops). And all there is without NVML. */
static const uint64_t LATER_BYTES = 96 << 20, WITHOUT_NVML_BYTES = 768 << 20;

enum { BUS_ID_BYTES = 32 };

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

static bool free_bytes(const dfx_cuda_context *c, uint64_t *bytes) {
    int (*memory_info)(void *, nvml_memory *) =
        (int (*)(void *, nvml_memory *))dlsym(c->nvml, "nvmlDeviceGetMemoryInfo");
    nvml_memory memory;
    if (!memory_info || memory_info(c->handle, &memory) != 0)
        return false;
    *bytes = memory.free;
    return true;
}

/* By its place on the bus: CUDA_VISIBLE_DEVICES hides and reorders devices for CUDA, and not for NVML. */
static bool open_nvml(dfx_cuda_context *c, int device) {
    char bus_id[BUS_ID_BYTES];
    int (*init)(void) = (int (*)(void))dlsym(c->nvml, "nvmlInit_v2");
    int (*by_bus_id)(const char *, void **) =
        (int (*)(const char *, void **))dlsym(c->nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    return init && by_bus_id && init() == 0 &&
           cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) == cudaSuccess &&
           by_bus_id(bus_id, &c->handle) == 0 && free_bytes(c, &c->free_before);
}

void dfx_cuda_context_begin(dfx_cuda_context *c, int device, const dfx_sink *sink) {
    *c = (dfx_cuda_context){.nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (c->nvml && open_nvml(c, device))
        return;
    dfx_cuda_context_end(c);
    dfx_info(sink,
             "cuda: NVML (libnvidia-ml.so.1) does not answer: %llu MiB of the budget are left to "
             "the driver",
             (unsigned long long)(WITHOUT_NVML_BYTES >> 20));
}

void dfx_cuda_context_end(dfx_cuda_context *c) {
    if (c->nvml)
        dlclose(c->nvml);
    *c = (dfx_cuda_context){0};
}

uint64_t dfx_cuda_context_held_bytes(const dfx_cuda_context *c) {
    uint64_t now;
    return c->nvml && free_bytes(c, &now) && c->free_before > now ? c->free_before - now : 0;
}

uint64_t dfx_cuda_context_bytes(const dfx_cuda_context *c) {
    return c->nvml ? dfx_cuda_context_held_bytes(c) + LATER_BYTES : WITHOUT_NVML_BYTES;
}
