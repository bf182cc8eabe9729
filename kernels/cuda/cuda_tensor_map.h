/* What TMA kernels need of the driver: the call that describes tensors to the copy engine. The driver's library is not linked, so
 * that programs start without it. */
#ifndef DFX_KERNELS_CUDA_TENSOR_MAP_H
#define DFX_KERNELS_CUDA_TENSOR_MAP_H

#include <cuda.h>

#include "kernels/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuTensorMapEncodeTiled of CUDA 12 and later. */
typedef CUresult (*dfx_cuda_encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                       const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                       const cuuint32_t *, CUtensorMapInterleave,
                                       CUtensorMapSwizzle, CUtensorMapL2promotion,
                                       CUtensorMapFloatOOBfill);

/* `op`: who asks, for the message. Errors: DFX_E_DEVICE: the driver does not have it. */
dfx_status dfx_cuda_find_encode(const dfx_cuda *cuda, const char *op, dfx_cuda_encode_fn *out);

/* A BF16 matrix of attention as blocks of 64 columns, with the 128-byte swizzle: a copy brings `rows` rows of `blocks` blocks, one
 * block after the other. Its coordinates: column in the block, row, block. Errors: DFX_E_DEVICE. */
dfx_status dfx_cuda_map_heads(const dfx_cuda *cuda, const dfx_mat *m, int rows, int blocks,
                              CUtensorMap *out);

#ifdef __cplusplus
}
#endif

#endif
