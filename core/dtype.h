/* Number types of tensors, and exact conversion to and from f32.
 * Sources: IEEE 754 (f32, f16), bfloat16 = upper half of f32, OCP 8-bit floating point (e4m3fn, e5m2). */
#ifndef DFX_CORE_DTYPE_H
#define DFX_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*      name     text (as safetensors spells it)   bits */
#define DFX_DTYPE_LIST(X)            \
    X(F32, "F32", 32)                \
    X(BF16, "BF16", 16)              \
    X(F16, "F16", 16)                \
    X(F8_E4M3, "F8_E4M3", 8)         \
    X(F8_E5M2, "F8_E5M2", 8)         \
    X(I8, "I8", 8)                   \
    X(U8, "U8", 8)                   \
    X(BOOL, "BOOL", 8)               \
    X(I16, "I16", 16)                \
    X(U16, "U16", 16)                \
    X(I32, "I32", 32)                \
    X(U32, "U32", 32)                \
    X(I64, "I64", 64)                \
    X(U64, "U64", 64)                \
    X(F64, "F64", 64)                \
    X(C64, "C64", 64)                \
    X(F8_E8M0, "F8_E8M0", 8)         \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 8) \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 8) \
    X(F6_E2M3, "F6_E2M3", 6)         \
    X(F6_E3M2, "F6_E3M2", 6)         \
    X(F4, "F4", 4)

#define DFX_DTYPE_ENUM(name, text, bits) DFX_DTYPE_##name,
typedef enum dfx_dtype { DFX_DTYPE_LIST(DFX_DTYPE_ENUM) DFX_N_DTYPES } dfx_dtype;
#undef DFX_DTYPE_ENUM

const char *dfx_dtype_name(dfx_dtype dtype);
unsigned dfx_dtype_bits(dfx_dtype dtype);
static inline size_t dfx_dtype_bytes(dfx_dtype dtype) {
    return dfx_dtype_bits(dtype) / 8;
} /* 0 below a byte */
bool dfx_dtype_parse(const char *name, dfx_dtype *out);

/* True for the types that dfx_to_f32 can widen: f32, f64, bf16, f16, e4m3, e5m2 and the integers. */
bool dfx_dtype_is_numeric(dfx_dtype dtype);

/* dst[i] = src[i] as f32, i < n. `src` needs no alignment. Exact but for F64, I32, U32, I64 and U64, which
 * round to nearest even. False when the type cannot be widened. dst and src do not overlap. */
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
