/* What cuBLASLt's products may take of a card's memory beside their operands. A number of the card alone, so that the CUDA
 * backend and plans for a card that is not there agree. */
#ifndef DFX_KERNELS_PRODUCT_WORKSPACE_H
#define DFX_KERNELS_PRODUCT_WORKSPACE_H

#include <stddef.h>

/* sm: compute capability, 90 is 9.0. 0, not known: the most. */
size_t dfx_product_workspace_bytes(int sm);

#endif
