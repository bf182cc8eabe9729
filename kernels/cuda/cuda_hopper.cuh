/* Hopper's own instructions (sm_90a), one a function: barriers in shared memory that count bytes (mbarrier), copies of tiles by the
 * tensor memory accelerator (TMA), registers handed from one warpgroup to another. Products are in cuda_wgmma.cuh.
 *
 * A warpgroup is 4 adjacent warps, the first a multiple of 4. Addresses of shared memory are 32-bit (dfx_sm90_address). Tiles are
 * rows of 128 bytes, 8 rows repeating, the 16-byte chunks of row r at places c ^ r % 8 (the 128-byte swizzle, which TMA writes
 * and wgmma reads); they begin at multiples of 1024 bytes.
 *
 * Only code for sm_90a has these: kernels ask for __CUDA_ARCH_FEAT_SM90_ALL and have no body without it.
 * Source: PTX ISA 9.0, mbarrier, cp.async.bulk.tensor, setmaxnreg. */
#ifndef DFX_KERNELS_CUDA_HOPPER_CUH
#define DFX_KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

static __device__ inline uint32_t dfx_sm90_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* ---- barriers: a phase ends when `count` have arrived and all announced bytes are there ---- */

static __device__ inline void dfx_sm90_barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Barriers just made are seen by the cluster and by TMA, once the cluster has met. */
static __device__ inline void dfx_sm90_barrier_publish(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ inline void dfx_sm90_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrive, and announce bytes that copies will bring. */
static __device__ inline void dfx_sm90_arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Where the same barrier of block `rank` of the cluster is, and to arrive there. */
static __device__ inline uint32_t dfx_sm90_barrier_at(uint32_t barrier, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier), "r"(rank));
    return there;
}

static __device__ inline void dfx_sm90_arrive_there(uint32_t there) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}

/* Until the phase of this parity has ended; the phase before the first counts as parity 1. */
static __device__ inline void dfx_sm90_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

static __device__ inline bool dfx_sm90_has_ended(uint32_t barrier, uint32_t parity) {
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
}

/* dfx_sm90_wait as a loop that the compiler sees and arranges. Each kernel has the one that it was timed with. */
static __device__ inline void dfx_sm90_wait_loop(uint32_t barrier, uint32_t parity) {
    while (!dfx_sm90_has_ended(barrier, parity))
        continue;
}

static __device__ inline void dfx_sm90_cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

static __device__ inline uint32_t dfx_sm90_cluster_rank(void) {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Barrier `id` of the block, [1, 16), for `n_threads` of it; arriving alone does not wait. */
static __device__ inline void dfx_sm90_meet(int id, int n_threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

static __device__ inline void dfx_sm90_meet_arrive(int id, int n_threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* A place in a ring of N stages, and the parity of the phase to wait for there. */
template <int N> struct dfx_sm90_ring_place {
    int stage;
    uint32_t parity;
    __device__ void next() {
        if (++stage == N) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ---- copies of tiles; maps are parameters of the kernel ---- */

static __device__ inline void dfx_sm90_map_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The box at column `col` and row `row` to `dst`; zeros beyond the matrix. Its bytes arrive at `barrier`. */
static __device__ inline void dfx_sm90_load(uint32_t dst, const CUtensorMap *map, uint32_t barrier,
                                            int col, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(col), "r"(row)
                 : "memory");
}

/* Of a tensor of three dimensions. */
static __device__ inline void dfx_sm90_load(uint32_t dst, const CUtensorMap *map, uint32_t barrier,
                                            int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* The box of a matrix to every block of the cluster whose bit is in `blocks`, at the same addresses. */
static __device__ inline void dfx_sm90_load_all(uint32_t dst, const CUtensorMap *map,
                                                uint32_t barrier, int col, int row,
                                                uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(col), "r"(row), "h"(blocks)
                 : "memory");
}

/* Of a tensor of three dimensions. */
static __device__ inline void dfx_sm90_load_all(uint32_t dst, const CUtensorMap *map,
                                                uint32_t barrier, int x, int y, int z,
                                                uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
                 : "memory");
}

/* A box of shared memory to the matrix, without what lies beyond it. Ordinary writes to the box: dfx_sm90_publish first. */
static __device__ inline void dfx_sm90_store(const CUtensorMap *map, uint32_t src, int col,
                                             int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(src), "r"(col), "r"(row)
        : "memory");
}

/* Ordinary writes to shared memory before this are seen by TMA and wgmma, once a barrier tells of them. */
static __device__ inline void dfx_sm90_publish(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ inline void dfx_sm90_store_commit(void) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* All but the last N groups of this thread's stores have read their boxes. */
template <int N> static __device__ inline void dfx_sm90_store_wait(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* ---- fragments: 8 x 8 values of 16 bits each, four at once; every lane gives the address of a row ---- */

static __device__ inline void dfx_sm90_load_fragments(uint32_t v[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(row)
                 : "memory");
}

static __device__ inline void dfx_sm90_store_fragments(uint32_t row, const uint32_t v[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

static __device__ inline void dfx_sm90_store_word(uint32_t address, uint32_t word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

/* ---- registers: of every thread of the four warps ---- */

template <int N> static __device__ inline void dfx_sm90_registers_more(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ inline void dfx_sm90_registers_fewer(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
