/* The device under a CUDA backend: context, streams, library. */
#ifndef DFX_KERNELS_CUDA_OPEN_H
#define DFX_KERNELS_CUDA_OPEN_H

#include "kernels/cuda/cuda_internal.h"

/* Wants base.sink and device; fills sm, n_multiprocessors, compute, copy, blas. Close it, whatever this returns.
 * Errors: DFX_E_DEVICE. */
dfx_status dfx_cuda_open_device(dfx_cuda *cuda);
void dfx_cuda_close_device(dfx_cuda *cuda); /* waits for what is queued */

#endif
