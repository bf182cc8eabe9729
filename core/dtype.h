/* Number types of tensors, and exact conversion to and from f32.
 * Sources: IEEE 754 (f32, f16), bfloat16 = upper half of f32, OCP 8-bit floating point (e4m3fn, e5m2). */
#ifndef DFX_CORE_DTYPE_H
#define DFX_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements lie in blocks: the fewest that take whole bytes. One, but for types narrower than a byte and for those of ggml,
 * whose blocks carry scales.
 *      name     text (as safetensors spells it)   elements and bytes of a block */
#define DFX_DTYPE_PLAIN_LIST(X)         \
    X(F32, "F32", 1, 4)                 \
    X(BF16, "BF16", 1, 2)               \
    X(F16, "F16", 1, 2)                 \
    X(F8_E4M3, "F8_E4M3", 1, 1)         \
    X(F8_E5M2, "F8_E5M2", 1, 1)         \
    X(I8, "I8", 1, 1)                   \
    X(U8, "U8", 1, 1)                   \
    X(BOOL, "BOOL", 1, 1)               \
    X(I16, "I16", 1, 2)                 \
    X(U16, "U16", 1, 2)                 \
    X(I32, "I32", 1, 4)                 \
    X(U32, "U32", 1, 4)                 \
    X(I64, "I64", 1, 8)                 \
    X(U64, "U64", 1, 8)                 \
    X(F64, "F64", 1, 8)                 \
    X(C64, "C64", 1, 8)                 \
    X(F8_E8M0, "F8_E8M0", 1, 1)         \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 1, 1) \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 1, 1) \
    X(F6_E2M3, "F6_E2M3", 4, 3)         \
    X(F6_E3M2, "F6_E3M2", 4, 3)         \
    X(F4, "F4", 2, 1)

/* The block types of GGUF, core/ggml_blocks.h. A row is whole blocks. */
#define DFX_DTYPE_GGML_LIST(X) \
    X(Q4_0, "Q4_0", 32, 18)    \
    X(Q4_1, "Q4_1", 32, 20)    \
    X(Q5_0, "Q5_0", 32, 22)    \
    X(Q5_1, "Q5_1", 32, 24)    \
    X(Q8_0, "Q8_0", 32, 34)    \
    X(Q2_K, "Q2_K", 256, 84)   \
    X(Q3_K, "Q3_K", 256, 110)  \
    X(Q4_K, "Q4_K", 256, 144)  \
    X(Q5_K, "Q5_K", 256, 176)  \
    X(Q6_K, "Q6_K", 256, 210)

#define DFX_DTYPE_ENUM(name, text, elements, bytes) DFX_DTYPE_##name,
typedef enum dfx_dtype {
    DFX_DTYPE_PLAIN_LIST(DFX_DTYPE_ENUM) DFX_DTYPE_GGML_LIST(DFX_DTYPE_ENUM) DFX_N_DTYPES
} dfx_dtype;
#undef DFX_DTYPE_ENUM

typedef struct dfx_dtype_block {
    uint32_t elements, bytes;
} dfx_dtype_block;

const char *dfx_dtype_name(dfx_dtype dtype);

/* {1, 0} for what is no type. */
dfx_dtype_block dfx_dtype_block_of(dfx_dtype dtype);

/* Bytes of n elements, a multiple of the block's; n elements further in an array is that many bytes further. Nothing
 * overflows up to n = INT64_MAX / 8. */
static inline size_t dfx_dtype_size(dfx_dtype dtype, size_t n) {
    dfx_dtype_block block = dfx_dtype_block_of(dtype);
    return n / block.elements * block.bytes;
}

/* Of one element; 0 where it does not lie in bytes of its own. */
static inline size_t dfx_dtype_bytes(dfx_dtype dtype) {
    return dfx_dtype_size(dtype, 1);
}

/* Bits that an element takes, scales of its block included: 4.5 for Q4_0. */
static inline double dfx_dtype_bits(dfx_dtype dtype) {
    dfx_dtype_block block = dfx_dtype_block_of(dtype);
    return 8.0 * block.bytes / block.elements;
}

/* By the text above. Types of safetensors only: the ones of ggml have numbers in their files, not names. */
bool dfx_dtype_parse(const char *name, dfx_dtype *out);

/* One of DFX_DTYPE_GGML_LIST. */
static inline bool dfx_dtype_is_ggml(dfx_dtype dtype) {
    return dtype >= DFX_DTYPE_Q4_0 && dtype < DFX_N_DTYPES;
}

/* True for the types that dfx_to_f32 can widen: f32, f64, bf16, f16, e4m3, e5m2, the integers and the types of ggml. */
bool dfx_dtype_is_numeric(dfx_dtype dtype);

/* dst[i] = src[i] as f32, i < n. `src` needs no alignment. Exact but for F64, I32, U32, I64 and U64, which round to nearest
 * even, and the types of ggml, core/ggml_blocks.h; of these n is whole blocks. False when the type cannot be widened, or a
 * block is cut. dst and src do not overlap. */
bool dfx_to_f32(dfx_dtype dtype, const void *src, float *dst, size_t n);

/* The inverse for F32, BF16, F16, F8_E4M3 and F8_E5M2: round to nearest even; F8_E4M3 saturates at +-448,
 * F8_E5M2 at +-57344, NaN stays NaN; BF16 and F16 overflow to infinity. False for other types. */
bool dfx_from_f32(dfx_dtype dtype, const float *src, void *dst, size_t n);

float dfx_bf16_to_f32(uint16_t bits);
uint16_t dfx_f32_to_bf16(float value);
float dfx_f16_to_f32(uint16_t bits);
uint16_t dfx_f32_to_f16(float value);
float dfx_e4m3_to_f32(uint8_t bits);
uint8_t dfx_f32_to_e4m3(float value);
float dfx_e5m2_to_f32(uint8_t bits);
uint8_t dfx_f32_to_e5m2(float value);

#endif
