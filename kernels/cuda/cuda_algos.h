/* How products are done, as the clock chose: in this process, and on this machine before, from a file (kernels/algo_file.h).
 *
 * An entry is a hint that is not trusted: it is taken only when it is among the candidates for the product at hand. So a stale
 * or forged one can cost time, and cannot ask for more workspace, for better aligned addresses, or for an algorithm that the
 * device does not have. */
#ifndef DFX_KERNELS_CUDA_ALGOS_H
#define DFX_KERNELS_CUDA_ALGOS_H

#include "core/file.h"
#include "kernels/algo_file.h"
#include "kernels/cuda/cuda_internal.h"

typedef struct dfx_cuda_algos {
    char path[DFX_PATH_BYTES]; /* "": nothing is kept */
    char heading[DFX_ALGOS_HEADING_BYTES];
    dfx_algos algos;
    size_t n_found, n_chosen; /* of the products prepared: as chosen before; by the clock now */
    bool changed;             /* since it was loaded or stored */
} dfx_cuda_algos;

/* Load what is known for this device, driver and library. `folder` NULL: nothing is known, nothing is kept. */
void dfx_cuda_algos_open(dfx_cuda_algos *algos, const dfx_cuda *cuda, const char *folder,
                         size_t lt_version);

/* Which of the candidates was chosen for the key; -1: none of them. */
int dfx_cuda_algos_find(const dfx_cuda_algos *algos, const void *key,
                        const unsigned char (*candidates)[DFX_ALGO_BYTES], int n_candidates);

/* A choice to be kept. */
void dfx_cuda_algos_put(dfx_cuda_algos *algos, const void *key, const void *algo,
                        const dfx_sink *sink);

/* To the file, if something is new. A file that cannot be written is told as a detail, once: it is not tried again before
 * there is something newer. */
void dfx_cuda_algos_store(dfx_cuda_algos *algos, const dfx_sink *sink);

void dfx_cuda_algos_fini(dfx_cuda_algos *algos);

/* The device's, borrowed. cuda_gemm.c */
dfx_cuda_algos *dfx_cuda_blas_algos(dfx_cuda *cuda);

#endif
