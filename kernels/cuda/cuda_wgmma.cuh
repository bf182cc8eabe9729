/* Hopper's own instructions, one a function: barriers in shared memory, copies of tiles (TMA), and products of a group of
 * four warps. Only code for sm_90a may call them.
 *
 * Addresses of shared memory are 32-bit (dfx_sm90_address). A tile of codes lies as TMA writes it with swizzle of 128
 * bytes: rows of 128 bytes, whose chunks of 16 are permuted within eight rows; it begins at a multiple of 1024.
 * Source: PTX ISA 9.0, mbarrier, cp.async.bulk.tensor, wgmma. */
#ifndef DFX_KERNELS_CUDA_WGMMA_CUH
#define DFX_KERNELS_CUDA_WGMMA_CUH

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

/* At the same barrier of block `rank` of the cluster. */
static __device__ inline void dfx_sm90_arrive_at(uint32_t barrier, uint32_t rank) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(rank)
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

/* Until the phase of this parity has ended; the phase before the first counts as parity 1. */
static __device__ inline void dfx_sm90_wait(uint32_t barrier, uint32_t parity) {
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

/* The same to every block of the cluster whose bit is in `blocks`, at the same addresses. */
static __device__ inline void dfx_sm90_load_all(uint32_t dst, const CUtensorMap *map,
                                                uint32_t barrier, int col, int row,
                                                uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(col), "r"(row), "h"(blocks)
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

/* ---- registers: of every thread of the four warps ---- */

template <int N> static __device__ inline void dfx_sm90_registers_more(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ inline void dfx_sm90_registers_fewer(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products ---- */

/* Registers and shared memory written before are seen by the products that follow. */
static __device__ inline void dfx_sm90_products_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ inline void dfx_sm90_products_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All but the last N committed groups have ended. */
template <int N> static __device__ inline void dfx_sm90_products_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* A tile of rows of 128 bytes as an operand; 32 bytes further along K is + 2. */
static __device__ inline uint64_t dfx_sm90_operand(uint32_t address) {
    const uint64_t swizzle_128 = 1ull << 62, eight_rows = 1024 / 16;
    return swizzle_128 | eight_rows << 32 | 1ull << 16 | (address & 0x3ffff) >> 4;
}

/* The same of rows of 64 bytes, as TMA writes them with swizzle of 64 bytes; it begins at a multiple of 512. */
static __device__ inline uint64_t dfx_sm90_operand_64(uint32_t address) {
    const uint64_t swizzle_64 = 2ull << 62, eight_rows = 512 / 16;
    return swizzle_64 | eight_rows << 32 | 1ull << 16 | (address & 0x3ffff) >> 4;
}

/* The text "%0, %1, ..." of operands and their list, by tens. */
#define DFX_TEN(t)                                                                               \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, " \
    "%" #t "9, "
#define DFX_TEXT_10 DFX_TEN()
#define DFX_TEXT_30 DFX_TEXT_10 DFX_TEN(1) DFX_TEN(2)
#define DFX_TEXT_40 DFX_TEXT_30 DFX_TEN(3)
#define DFX_TEXT_60 DFX_TEXT_40 DFX_TEN(4) DFX_TEN(5)
#define DFX_TEXT_90 DFX_TEXT_60 DFX_TEN(6) DFX_TEN(7) DFX_TEN(8)
#define DFX_LIST_4(c, i) "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3])
#define DFX_LIST_16(c, i) \
    DFX_LIST_4(c, i), DFX_LIST_4(c, i + 4), DFX_LIST_4(c, i + 8), DFX_LIST_4(c, i + 12)
#define DFX_LIST_32(c) DFX_LIST_16(c, 0), DFX_LIST_16(c, 16)
#define DFX_LIST_48(c) DFX_LIST_32(c), DFX_LIST_16(c, 32)
#define DFX_LIST_64(c) DFX_LIST_48(c), DFX_LIST_16(c, 48)
#define DFX_LIST_96(c) DFX_LIST_64(c), DFX_LIST_16(c, 64), DFX_LIST_16(c, 80)

/* d[64, N] = a[64, 32] b[N, 32]^T, plus d where `add` is not 0: queued. A thread's d[4 j + 2 h + i] is row
 * 16 warp + 8 h + lane / 4, column 8 j + 2 (lane % 4) + i. _bf16: of 16 values instead of 32 codes; as int32_t, d has the
 * bits of f32, and so can be where sums of codes were (the compiler does not see that it may use those registers again). */
#define DFX_SM90_PRODUCT(N, name, Sum, c, types, tail, text, list, a_at, b_at, add_at)           \
    static __device__ inline void name(Sum(&d)[N / 2], uint64_t a, uint64_t b, int add) {        \
        asm volatile("{\n"                                                                       \
                     ".reg .pred p;\n"                                                           \
                     "setp.ne.b32 p, " add_at ", 0;\n"                                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N types " {" text "}, " a_at ", " b_at \
                     ", p" tail ";\n"                                                            \
                     "}"                                                                         \
                     : list(c)                                                                   \
                     : "l"(a), "l"(b), "r"(add));                                                \
    }
#define DFX_SM90_PRODUCTS(N, text, list, a_at, b_at, add_at)                                      \
    DFX_SM90_PRODUCT(N, dfx_sm90_product, int32_t, "r", "k32.s32.s8.s8", "", text, list, a_at,    \
                     b_at, add_at)                                                                \
    DFX_SM90_PRODUCT(N, dfx_sm90_product, float, "f", "k32.f32.e4m3.e4m3", ", 1, 1", text, list,  \
                     a_at, b_at, add_at)                                                          \
    DFX_SM90_PRODUCT(N, dfx_sm90_product_bf16, float, "f", "k16.f32.bf16.bf16", ", 1, 1, 0, 0",   \
                     text, list, a_at, b_at, add_at)                                              \
    DFX_SM90_PRODUCT(N, dfx_sm90_product_bf16, int32_t, "r", "k16.f32.bf16.bf16", ", 1, 1, 0, 0", \
                     text, list, a_at, b_at, add_at)

DFX_SM90_PRODUCTS(64, DFX_TEXT_30 "%30, %31", DFX_LIST_32, "%32", "%33", "%34")
DFX_SM90_PRODUCTS(96, DFX_TEXT_40 "%40, %41, %42, %43, %44, %45, %46, %47", DFX_LIST_48, "%48",
                  "%49", "%50")
DFX_SM90_PRODUCTS(128, DFX_TEXT_60 "%60, %61, %62, %63", DFX_LIST_64, "%64", "%65", "%66")
DFX_SM90_PRODUCTS(192, DFX_TEXT_90 "%90, %91, %92, %93, %94, %95", DFX_LIST_96, "%96", "%97", "%98")

/* d[64, N] += a[64, 16] b[N, 16]^T in BF16, a in registers: a thread's words are rows lane / 4 and 8 further of columns
 * 2 (lane % 4) and the next, then the same rows, columns 8 further. They stay as they are until the product has ended. */
#define DFX_SM90_PRODUCT_OF(N, text, list, a_at, b_at)                                            \
    static __device__ inline void dfx_sm90_product_of(float(&d)[N / 2], const uint32_t(&a)[4],    \
                                                      uint64_t b) {                               \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" text "}, " a_at \
                     ", " b_at ", 1, 1, 1, 0;"                                                    \
                     : list("f")                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
    }
#define DFX_LIST_16_ALONE(c) DFX_LIST_16(c, 0)

DFX_SM90_PRODUCT_OF(32, DFX_TEXT_10 "%10, %11, %12, %13, %14, %15", DFX_LIST_16_ALONE,
                    "{%16, %17, %18, %19}", "%20")
DFX_SM90_PRODUCT_OF(64, DFX_TEXT_30 "%30, %31", DFX_LIST_32, "{%32, %33, %34, %35}", "%36")
DFX_SM90_PRODUCT_OF(128, DFX_TEXT_60 "%60, %61, %62, %63", DFX_LIST_64, "{%64, %65, %66, %67}",
                    "%68")
DFX_SM90_PRODUCT_OF(192, DFX_TEXT_90 "%90, %91, %92, %93, %94, %95", DFX_LIST_96,
                    "{%96, %97, %98, %99}", "%100")

/* The same of 32 E4M3 codes: a thread's words are rows lane / 4 and 8 further of columns 4 (lane % 4) and the next three, then
 * the same rows, columns 16 further. */
static __device__ inline void dfx_sm90_product_of_codes(float (&d)[64], const uint32_t (&a)[4],
                                                        uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" DFX_TEXT_60
                 "%60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : DFX_LIST_64("+f")
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif
