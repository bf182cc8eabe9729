/* What attention on Hopper in 16 and in 8 bits shares: heads of 128, tiles of queries, and who takes which. A block is a producer
 * and two groups of four warps, each of which has 64 queries.
 *   The blocks of a cluster have adjacent tiles of queries of one head, so they want the same keys and values at the same time.
 * Each fetches its share, which TMA writes to all of them: a stage is full when all shares are there, and empty when the groups
 * of all blocks are done with it. */
#ifndef DFX_KERNELS_CUDA_ATTENTION_SM90_CUH
#define DFX_KERNELS_CUDA_ATTENTION_SM90_CUH

#include "kernels/cuda/cuda_attention_rows.cuh"
#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_launch.cuh"

enum {
    E = 128,
    GROUPS = 2,
    QUERIES = GROUPS * ROWS,
    THREADS = (1 + GROUPS) * GROUP,
    /* Registers a thread after the start: 65536 of a multiprocessor are 168 for each of 384. */
    PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 240,
};

/* Of `rows` queries each, the last of which may be fewer. */
__host__ __device__ static inline int tiles_of_queries(int n_queries, int rows) {
    return (n_queries + rows - 1) / rows;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The tiles of queries of a block: first, first + gridDim.x, ... A head's are a multiple of `cluster`; the last may have no
 * queries. */
struct course {
    int n_row_tiles, n_key_tiles, n_tiles;
    __device__ course(int n_queries, int n_keys, int n_heads, int keys_a_tile, int cluster)
        : n_row_tiles(tiles_of_queries(n_queries, cluster * QUERIES) * cluster),
          n_key_tiles((n_keys + keys_a_tile - 1) / keys_a_tile), n_tiles(n_row_tiles * n_heads) {}
    __device__ int head(int tile) const { return tile / n_row_tiles; }
    __device__ int query(int tile) const { return tile % n_row_tiles * QUERIES; }
};

template <int CLUSTER> __device__ static inline int rank_in_cluster() {
    return CLUSTER > 1 ? (int)dfx_sm90_cluster_rank() : 0;
}

/* The barrier `empty` of the block that this lane tells, for release_to_all. Asked for before the products that are waited
 * for: ptxas finds it late, behind arithmetic that nobody waits for, and then so is the arrival. */
template <int CLUSTER> __device__ static inline uint32_t empty_of_lane(uint32_t empty) {
    return CLUSTER > 1 ? dfx_sm90_barrier_at(empty, threadIdx.x % CLUSTER) : empty;
}

/* To the producers of all blocks of the cluster, each by one lane of the warp. */
template <int CLUSTER> __device__ static inline void release_to_all(uint32_t empty) {
    if (CLUSTER == 1)
        release(empty);
    else if (threadIdx.x % 32 < CLUSTER)
        dfx_sm90_arrive_there(empty);
}

/* Codes of a row of a head, whose 128 go to y: value(n, i) is column 8 n + 2 (lane % 4) + i, times `by` it is nearly the code. Four
 * lanes have a row; each writes chunks of eight. there: else nothing is written, but all lanes take part. */
template <class Value>
static __device__ inline void store_codes(uint8_t *y, float by, bool there, const Value &value) {
    int lane = (int)threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < E / 8; n += 8) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float low[] = {value(n + i, 0), value(n + i, 1)};
            const float high[] = {value(n + 4 + i, 0), value(n + 4 + i, 1)};
            w[i] = dfx_cuda_codes2_fp8(low, by) | dfx_cuda_codes2_fp8(high, by) << 16;
        }
        dfx_sm90_transpose(w);
        if (!there)
            continue;
        *(uint2 *)(y + (n + lane) * 8) =
            make_uint2(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410));
        *(uint2 *)(y + (n + 4 + lane) * 8) =
            make_uint2(__byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
    }
}
#endif

/* Blocks of a cluster: two, unless a head's odd tile makes that more waves. */
static inline int cluster_of(int n_multiprocessors, int n_queries, int n_heads) {
    int tiles = tiles_of_queries(n_queries, QUERIES) * n_heads;
    int pairs = tiles_of_queries(n_queries, 2 * QUERIES) * n_heads;
    int n = n_multiprocessors, n_clusters = n / 2;
    return n_clusters && (pairs + n_clusters - 1) / n_clusters <= (tiles + n - 1) / n ? 2 : 1;
}

/* As many clusters as stay on the multiprocessors, or as there is work for. */
template <class... Args>
static cudaError_t launch_clusters(const dfx_cuda *cuda, void (*kernel)(Args...), int cluster,
                                   int n_queries, int n_heads, int shared_bytes,
                                   const Args &...args) {
    int n = tiles_of_queries(n_queries, cluster * QUERIES) * n_heads;
    if (n > cuda->n_multiprocessors / cluster)
        n = cuda->n_multiprocessors / cluster;
    return dfx_cuda_launch_clusters(cuda, kernel, {n, cluster, THREADS, shared_bytes}, args...);
}

#endif
