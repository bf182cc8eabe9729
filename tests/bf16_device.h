/* A device where there is none: the CPU backend with activations in BF16, memory that the host does not see, and recordings, as
 * CUDA has them. What checks of a device are tried on in `make check`. Each op computes in F32 from BF16 operands and rounds its
 * result once, so its errors are about what BF16 costs on a GPU. */
#ifndef DFX_TESTS_BF16_DEVICE_H
#define DFX_TESTS_BF16_DEVICE_H

#include "kernels/backend.h"

/* driver_bytes are those of alloc and not yet of free. */
dfx_status bf16_device_open(int n_threads, const dfx_sink *sink, dfx_backend **out);
uint64_t bf16_device_n_allocs(dfx_backend *be); /* so far */
/* From now on ops of this kind give a quarter more than they should. */
void bf16_device_spoil(dfx_backend *be, dfx_op_kind kind);

#endif
