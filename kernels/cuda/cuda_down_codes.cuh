/* Codes on their way to products of BF16, which has every one of them. */
#ifndef DFX_KERNELS_CUDA_DOWN_CODES_CUH
#define DFX_KERNELS_CUDA_DOWN_CODES_CUH

#include <cuda_bf16.h>
#include <stdint.h>
#include <string.h>

/* Codes of the lower two bytes (half: 0) or the upper two (1) as a pair of BF16. An I8 code is 128 and its low bits, less 128
 * or 256; exponents of BF16 are 120 more than those of F8_E4M3. Codes that are no numbers do not come out as such: there are
 * none, their rows have scales that are none (quant/FORMAT.md). */
template <bool FP8>
static __device__ inline uint32_t dfx_cuda_widen_codes(uint32_t codes, int half) {
    uint32_t word, a_bits, b_bits;
    if (!FP8) {
        uint32_t apart = __byte_perm(codes, 0, half ? 0x4342 : 0x4140);
        a_bits = (apart & 0x007f007fu) | 0x43004300u;
        b_bits = (apart & 0x00800080u) | 0x43004300u;
    } else {
        uint32_t apart = __byte_perm(codes, 0, half ? 0x3424 : 0x1404);
        a_bits = (apart & 0x80008000u) | (apart >> 4 & 0x07f007f0u);
        b_bits = 0x7b807b80u;
    }
    __nv_bfloat162 a, b, pair;
    memcpy(&a, &a_bits, sizeof(a));
    memcpy(&b, &b_bits, sizeof(b));
    pair = FP8 ? __hmul2(a, b) : __hsub2(a, b);
    memcpy(&word, &pair, sizeof(word));
    return word;
}

#endif
