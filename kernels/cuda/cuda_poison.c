/* In the variant `poison` a product's place is filled with bytes of ones, which are NaNs, before it is made: a value that it
 * does not write is seen in the picture.
 *
 * compute-sanitizer's initcheck wants that, too. It follows the stores of threads but not those of TMA, which kernels of cuBLASLt
 * and ours (cuda_fused.cuh) write with, and takes every read of what they wrote for one of memory that nobody has written; it
 * does follow the filling. */
#include "kernels/cuda/cuda_internal.h"

dfx_status dfx_cuda_poison(const dfx_cuda *cuda, void *y, int64_t rows, size_t row_bytes,
                           size_t pitch_bytes) {
#ifdef DFX_POISON
    return dfx_cuda_check(
        cuda, cudaMemset2DAsync(y, pitch_bytes, 0xff, row_bytes, (size_t)rows, cuda->compute),
        "filling the place of a product");
#else
    return DFX_OK;
#endif
}
