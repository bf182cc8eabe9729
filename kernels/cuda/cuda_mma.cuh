/* Instructions of sm_80 and later that products are made of, each as a function. */
#ifndef DFX_KERNELS_CUDA_MMA_CUH
#define DFX_KERNELS_CUDA_MMA_CUH

#include <cuda_bf16.h>
#include <stdint.h>

static __device__ inline uint32_t dfx_cuda_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ inline void dfx_cuda_store_shared(uint32_t dst, uint4 word) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(word.x), "r"(word.y),
                 "r"(word.z), "r"(word.w)
                 : "memory");
}

/* 16 bytes to shared memory in the background; zeros, and `src` is not looked at, when `there` is false. */
static __device__ inline void dfx_cuda_copy_async(uint32_t dst, const void *src, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(there ? 16 : 0)
                 : "memory");
}

/* The thread's copies since the last group are a group. */
static __device__ inline void dfx_cuda_end_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait for the thread's copies, but for its last MOST groups. */
template <int MOST> static __device__ inline void dfx_cuda_wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(MOST) : "memory");
}

/* Four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8. It gets values 2 (i % 4) and the next of row
 * i / 4 of each. */
static __device__ inline void dfx_cuda_load_matrices(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c [16,8] += a [16,16] b [16,8]. Lane i holds of c: row i / 4, columns 2 (i % 4) and the next; the same of row
 * i / 4 + 8. */
static __device__ inline void dfx_cuda_multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
