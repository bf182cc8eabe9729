/* Hopper's own instructions (sm_90a), a function each: barriers in shared memory that count bytes (mbarrier), copies of tiles by
 * the tensor memory accelerator (TMA), products of a warpgroup (wgmma), registers handed from one warpgroup to another.
 *
 * A warpgroup is 4 adjacent warps, the first a multiple of 4. Shared addresses are 32-bit. Tiles are rows of 128 bytes, 8 rows
 * repeating, the 16-byte chunks of row r at places c ^ r % 8 (the 128-byte swizzle, which TMA writes and wgmma reads); they
 * begin at multiples of 1024 bytes.
 *
 * Only code for sm_90a has these: kernels ask for __CUDA_ARCH_FEAT_SM90_ALL and have no body without it. */
#ifndef DFX_KERNELS_CUDA_HOPPER_CUH
#define DFX_KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- mbarrier: a phase ends when `arrivals` threads arrived and the bytes they announced are there. Waiting for the parity
 * of the phase before the first returns at once. */

static __device__ inline void dfx_barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* Barriers just made are seen by TMA, too; the block's threads want a __syncthreads() after it. */
static __device__ inline void dfx_barrier_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ inline void dfx_barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ inline void dfx_barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

static __device__ inline void dfx_barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* A place in a ring of N stages, and the parity of the phase to wait for there. */
template <int N> struct dfx_ring_place {
    int stage;
    uint32_t parity;
    __device__ void next() {
        if (++stage == N) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ---- TMA: one thread asks; the bytes arrive at `barrier`. Zeros stand for what lies outside of the tensor. */

static __device__ inline void dfx_tma_load(uint32_t dst, const CUtensorMap *map, uint32_t barrier,
                                           int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Ordinary writes to shared memory before this are seen by TMA and wgmma, once a barrier tells of them. */
static __device__ inline void dfx_shared_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Barriers of some warps of a block; 0 is that of __syncthreads(). */

static __device__ inline void dfx_named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ inline void dfx_named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- Registers a thread; all warps of a warpgroup. N is a multiple of 8. */

template <int N> static __device__ inline void dfx_registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ inline void dfx_registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- wgmma. Order: fence, products, commit; then wait, and hold() the sums, before they are touched. */

static __device__ inline void dfx_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ inline void dfx_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N groups committed last are unfinished. */
template <int N> static __device__ inline void dfx_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* The compiler does not move what reads or writes these registers across this. */
template <int N> static __device__ inline void dfx_hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* What wgmma wants to know of a tile in shared memory. Operands of 16-bit values, k adjacent (not transposed): 8 rows are
 * 1024 bytes from the next 8; 16 values of k are 32 bytes. Transposed (rows are k): 8 rows the same, and 64 columns are
 * `columns_bytes` from the next 64; 16 values of k are 2048 bytes. */
static __device__ inline uint64_t dfx_wgmma_tile(uint32_t address, uint32_t columns_bytes) {
    return (uint64_t)(address >> 4) | (uint64_t)(columns_bytes >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same, not transposed, of rows of which 8 are `eight_rows_bytes` from the next 8: part of a larger tile. The swizzle
 * goes by the address, so it may begin at any row. */
static __device__ inline uint64_t dfx_wgmma_part(uint32_t address, uint32_t eight_rows_bytes) {
    return (uint64_t)(address >> 4) | (uint64_t)(eight_rows_bytes >> 4) << 32 | (uint64_t)1 << 62;
}

/* The tile that begins `bytes` later. */
static __device__ inline uint64_t dfx_wgmma_later(uint64_t tile, uint32_t bytes) {
    return tile + (bytes >> 4);
}

/* The lists of registers that the assembler wants. */
#define DFX_EIGHT(d, i)                                                                         \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define DFX_THIRTY_TWO(d, i) \
    DFX_EIGHT(d, i), DFX_EIGHT(d, i + 8), DFX_EIGHT(d, i + 16), DFX_EIGHT(d, i + 24)
#define DFX_NAMES_64                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define DFX_NAMES_96                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "  \
    "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "  \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}"

/* d [64, 192] = a b^T (+ d if `add`), BF16, both in shared memory, 16 of k. Warp w of the group has rows 16 w .. 16 w + 15;
 * d[4 i + j] of lane l is row l / 4 + j / 2 * 8, column 8 i + 2 (l % 4) + j % 2. */
static __device__ inline void dfx_wgmma_64x192(float (&d)[96], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 " DFX_NAMES_96
                 ", %96, %97, add, 1, 1, 0, 0;\n"
                 "}\n"
                 : DFX_THIRTY_TWO(d, 0), DFX_THIRTY_TWO(d, 32), DFX_THIRTY_TWO(d, 64)
                 : "l"(a), "l"(b), "r"((int)add));
}

/* d [64, 128] += a b, b transposed (its rows are k), d as above; a in registers: the words of lane l are rows l / 4 and
 * l / 4 + 8 of columns 2 (l % 4) and the next, then the same rows, columns 8 further. */
static __device__ inline void dfx_wgmma_64x128(float (&d)[64], uint32_t a0, uint32_t a1,
                                               uint32_t a2, uint32_t a3, uint64_t b) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " DFX_NAMES_64
                 ", {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n"
                 "}\n"
                 : DFX_THIRTY_TWO(d, 0), DFX_THIRTY_TWO(d, 32)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

/* d [64, 128] = a b^T (+ d if `add`), and the same of 32 columns. */
static __device__ inline void dfx_wgmma_rows(float (&d)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " DFX_NAMES_64
                 ", %64, %65, add, 1, 1, 0, 0;\n"
                 "}\n"
                 : DFX_THIRTY_TWO(d, 0), DFX_THIRTY_TWO(d, 32)
                 : "l"(a), "l"(b), "r"((int)add));
}

static __device__ inline void dfx_wgmma_rows(float (&d)[16], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
                 ", %16, %17, add, 1, 1, 0, 0;\n"
                 "}\n"
                 : DFX_EIGHT(d, 0), DFX_EIGHT(d, 8)
                 : "l"(a), "l"(b), "r"((int)add));
}

#undef DFX_EIGHT
#undef DFX_THIRTY_TWO
#undef DFX_NAMES_64
#undef DFX_NAMES_96
#endif

#endif
