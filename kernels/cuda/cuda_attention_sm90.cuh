/* What attention on Hopper in 16 and in 8 bits shares: heads of 128, tiles of queries, and who takes which. A block is a producer
 * and two groups of four warps, each of which has 64 queries. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_SM90_CUH
#define DFX_KERNELS_CUDA_ATTENTION_SM90_CUH

#include "kernels/cuda/cuda_attention_rows.cuh"

enum {
    E = 128,
    GROUPS = 2,
    QUERIES = GROUPS * ROWS,
    THREADS = (1 + GROUPS) * GROUP,
    /* Registers a thread after the start: 65536 of a multiprocessor are 168 for each of 384. */
    PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 240,
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The tiles of queries of a block: first, first + gridDim.x, ... */
struct course {
    int n_row_tiles, n_key_tiles, n_tiles;
    __device__ course(int n_queries, int n_keys, int n_heads, int keys_a_tile)
        : n_row_tiles((n_queries + QUERIES - 1) / QUERIES),
          n_key_tiles((n_keys + keys_a_tile - 1) / keys_a_tile), n_tiles(n_row_tiles * n_heads) {}
    __device__ int head(int tile) const { return tile / n_row_tiles; }
    __device__ int query(int tile) const { return tile % n_row_tiles * QUERIES; }
};
#endif

#endif
