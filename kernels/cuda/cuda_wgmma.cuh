/* Products of a warpgroup on Hopper (wgmma). Order: begin, products, commit; then wait, and hold the sums, before they are
 * touched. What tiles are and who may call these: cuda_hopper.cuh. Source: PTX ISA 9.0, wgmma. */
#ifndef DFX_KERNELS_CUDA_WGMMA_CUH
#define DFX_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/cuda_hopper.cuh"

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

/* The compiler does not move what reads or writes these registers across this. */
template <int N> static __device__ inline void dfx_sm90_hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Four lanes have four words each: word j of lane i goes to word i of lane j. What wgmma leaves to four lanes as single words of
 * a row becomes 16 bytes of each. */
static __device__ inline void dfx_sm90_transpose(uint32_t (&words)[4]) {
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        bool upper = threadIdx.x & step;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & step)) {
                uint32_t &low = words[i], &high = words[i + step];
                uint32_t got = __shfl_xor_sync(0xffffffff, upper ? low : high, step);
                if (upper)
                    low = got;
                else
                    high = got;
            }
    }
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

/* What wgmma wants to know of a tile in shared memory. Operands of 16-bit values, k adjacent (not transposed): 8 rows are
 * 1024 bytes from the next 8; 16 values of k are 32 bytes. Transposed (rows are k): 8 rows the same, and 64 columns are
 * `columns_bytes` from the next 64; 16 values of k are 2048 bytes. The upper bits of an address say which block of a cluster
 * has it, and are not wgmma's. */
static __device__ inline uint64_t dfx_sm90_tile(uint32_t address, uint32_t columns_bytes) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(columns_bytes >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same, not transposed, of rows of which 8 are `eight_rows_bytes` from the next 8: part of a larger tile. The swizzle
 * goes by the address, so it may begin at any row. */
static __device__ inline uint64_t dfx_sm90_part(uint32_t address, uint32_t eight_rows_bytes) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(eight_rows_bytes >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* The tile that begins `bytes` later. */
static __device__ inline uint64_t dfx_sm90_later(uint64_t tile, uint32_t bytes) {
    return tile + (bytes >> 4);
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

#define DFX_LIST_16_ALONE(c) DFX_LIST_16(c, 0)

DFX_SM90_PRODUCT(32, dfx_sm90_product_bf16, float, "f", "k16.f32.bf16.bf16", ", 1, 1, 0, 0",
                 DFX_TEXT_10 "%10, %11, %12, %13, %14, %15", DFX_LIST_16_ALONE, "%16", "%17", "%18")
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
DFX_SM90_PRODUCT_OF(32, DFX_TEXT_10 "%10, %11, %12, %13, %14, %15", DFX_LIST_16_ALONE,
                    "{%16, %17, %18, %19}", "%20")
DFX_SM90_PRODUCT_OF(64, DFX_TEXT_30 "%30, %31", DFX_LIST_32, "{%32, %33, %34, %35}", "%36")
DFX_SM90_PRODUCT_OF(128, DFX_TEXT_60 "%60, %61, %62, %63", DFX_LIST_64, "{%64, %65, %66, %67}",
                    "%68")
DFX_SM90_PRODUCT_OF(192, DFX_TEXT_90 "%90, %91, %92, %93, %94, %95", DFX_LIST_96,
                    "{%96, %97, %98, %99}", "%100")

/* d[64, 128] += a b in BF16, b transposed (its rows are k), a in registers as above. */
static __device__ inline void dfx_sm90_product_of_rows(float (&d)[64], uint32_t a0, uint32_t a1,
                                                       uint32_t a2, uint32_t a3, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" DFX_TEXT_60
                 "%60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : DFX_LIST_64("+f")
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

/* The first of these of 32 E4M3 codes instead: a thread's words are rows lane / 4 and 8 further of columns 4 (lane % 4) and the next three, then
 * the same rows, columns 16 further. */
static __device__ inline void dfx_sm90_product_of_codes(float (&d)[64], const uint32_t (&a)[4],
                                                        uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" DFX_TEXT_60
                 "%60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : DFX_LIST_64("+f")
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif
