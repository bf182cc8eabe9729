/* See cuda_algos.h. One file for each heading, named by its hash, so that devices of two kinds in one machine, or two versions
 * of the library, do not overwrite each other's. */
#include "kernels/cuda/cuda_algos.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"

/* False: the device does not say what it is, so nothing can be kept for it. */
static bool make_heading(const dfx_cuda *cuda, size_t lt_version,
                         char heading[DFX_ALGOS_HEADING_BYTES]) {
    struct cudaDeviceProp device;
    int driver = 0;
    if (cudaGetDeviceProperties(&device, cuda->device) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess) {
        cudaGetLastError(); /* told here, and not by the next launch */
        return false;
    }
    snprintf(heading, DFX_ALGOS_HEADING_BYTES,
             "%.255s, sm_%d, %d multiprocessors, driver %d, cuBLASLt %zu", device.name, cuda->sm,
             cuda->n_multiprocessors, driver, lt_version);
    return true;
}

void dfx_cuda_algos_open(dfx_cuda_algos *algos, const dfx_cuda *cuda, const char *folder,
                         size_t lt_version) {
    char name[40];
    *algos = (dfx_cuda_algos){0};
    if (!folder || !make_heading(cuda, lt_version, algos->heading))
        return;
    snprintf(name, sizeof(name), "cuda-%016" PRIx64 ".algos",
             dfx_xxh3(algos->heading, strlen(algos->heading)));
    if (dfx_path_join(NULL, folder, name, algos->path) != DFX_OK) {
        algos->path[0] = '\0';
        return;
    }
    dfx_algos_load(algos->path, algos->heading, cuda->base.sink, &algos->algos);
}

int dfx_cuda_algos_find(const dfx_cuda_algos *algos, const void *key,
                        const unsigned char (*candidates)[DFX_ALGO_BYTES], int n_candidates) {
    const void *known = dfx_algos_find(&algos->algos, key);
    for (int i = 0; known && i < n_candidates; i++)
        if (memcmp(candidates[i], known, DFX_ALGO_BYTES) == 0)
            return i;
    return -1;
}

void dfx_cuda_algos_put(dfx_cuda_algos *algos, const void *key, const void *algo,
                        const dfx_sink *sink) {
    algos->n_chosen++;
    if (dfx_algos_put(&algos->algos, key, algo, sink) == DFX_OK)
        algos->changed = algos->path[0] != '\0';
}

void dfx_cuda_algos_store(dfx_cuda_algos *algos, const dfx_sink *sink) {
    if (!algos->changed)
        return;
    algos->changed = false;
    dfx_algos_store(algos->path, algos->heading, &algos->algos, sink);
}

void dfx_cuda_algos_fini(dfx_cuda_algos *algos) {
    dfx_algos_fini(&algos->algos);
}
