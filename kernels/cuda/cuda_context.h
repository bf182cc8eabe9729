/* What the driver takes of the device for this process beside what was asked for: context, kernels, libraries. Nobody tells;
 * it is what is missing of the memory that was free before the context was made. Another process that takes or frees memory
 * in that second is counted in or out.
 * Source: NVML API reference, nvmlDeviceGetMemoryInfo. */
#ifndef DFX_KERNELS_CUDA_CONTEXT_H
#define DFX_KERNELS_CUDA_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

typedef struct dfx_cuda_context {
    void *nvml;           /* owned library; NULL: there is none, as on a Jetson */
    void *handle;         /* NVML's, of the device */
    uint64_t free_before; /* bytes, before there was a context */
} dfx_cuda_context;

/* Before the first call that makes a context on the device. Never fails: without NVML a fixed sum is taken. */
void dfx_cuda_context_begin(dfx_cuda_context *context, int device, const dfx_sink *sink);
void dfx_cuda_context_end(dfx_cuda_context *context);

/* Bytes taken so far, with room for kernels that are loaded when they are first used, and for recordings. While nothing else of this process is
 * held on the device. */
uint64_t dfx_cuda_context_bytes(const dfx_cuda_context *context);

/* All that the process holds there now, what was asked for included. 0: nobody knows. */
uint64_t dfx_cuda_context_held_bytes(const dfx_cuda_context *context);

#endif
