/* Number types: names, and conversion to and from f32.
 *
 * The 16 and 8 bit floats are all "sign, exponent, mantissa", so one widening and one rounding
 * serve them; each type adds only what it does with infinity, NaN and overflow. Everything is
 * written without branches and reads single elements through memcpy, so that compilers turn the
 * loops into vector code and no address needs alignment. */
#include "core/dtype.h"

#include <string.h>

#include "core/ggml_blocks.h"

typedef struct dtype_info {
    const char *name;
    dfx_dtype_block block;
} dtype_info;

static const dtype_info infos[DFX_N_DTYPES] = {
#define INFO(name, text, elements, bytes) {text, {elements, bytes}},
    DFX_DTYPE_PLAIN_LIST(INFO) DFX_DTYPE_GGML_LIST(INFO)
#undef INFO
};

const char *dfx_dtype_name(dfx_dtype dtype) {
    return (unsigned)dtype < DFX_N_DTYPES ? infos[dtype].name : "unknown";
}

dfx_dtype_block dfx_dtype_block_of(dfx_dtype dtype) {
    return (unsigned)dtype < DFX_N_DTYPES ? infos[dtype].block : (dfx_dtype_block){1, 0};
}

bool dfx_dtype_parse(const char *name, dfx_dtype *out) {
    for (unsigned i = 0; i < DFX_N_DTYPES && !dfx_dtype_is_ggml((dfx_dtype)i); i++)
        if (strcmp(infos[i].name, name) == 0) {
            *out = (dfx_dtype)i;
            return true;
        }
    return false;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

enum { F32_MAN = 23, F32_BIAS = 127 };
enum { F16_MAN = 10, F16_BIAS = 15 };
enum { E4M3_MAN = 3, E4M3_BIAS = 7 };
enum { E5M2_MAN = 2, E5M2_BIAS = 15 };
static const uint32_t F32_INF = 0x7f800000, F32_QNAN = 0x7fc00000, F32_MAG = 0x7fffffff;

/* The f32 bits of a finite small float without sign. Below the first normal, mag counts steps of
 * 2^(1 - bias - man). No denormal f32 takes part, so flush-to-zero modes do not matter. */
static inline uint32_t widen(uint32_t mag, unsigned man, unsigned bias) {
    uint32_t normal = (mag << (F32_MAN - man)) + ((F32_BIAS - bias) << F32_MAN);
    float step = float_of((F32_BIAS + 1 - bias - man) << F32_MAN);
    uint32_t subnormal = bits_of((float)(int32_t)mag * step);
    return mag < 1u << man ? subnormal : normal;
}

/* The inverse for any f32 magnitude, rounded to nearest even as if the exponent had no upper end;
 * the caller clamps. Below the first normal, the float adder rounds: `magic` is the power of two
 * whose last mantissa bit is worth one step. */
static inline uint32_t narrow(uint32_t mag, unsigned man, unsigned bias) {
    unsigned drop = F32_MAN - man;
    uint32_t half = (1u << (drop - 1)) - 1 + (mag >> drop & 1);
    uint32_t normal = (mag + half - ((F32_BIAS - bias) << F32_MAN)) >> drop;
    uint32_t magic = (F32_BIAS + F32_MAN + 1 - bias - man) << F32_MAN;
    uint32_t subnormal = bits_of(float_of(mag) + float_of(magic)) - magic;
    return mag < (F32_BIAS + 1 - bias) << F32_MAN ? subnormal : normal;
}

static inline uint32_t at_most(uint32_t value, uint32_t limit) {
    return value < limit ? value : limit;
}

static inline float bf16_wide(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

static inline uint16_t bf16_narrow(float value) {
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet =
        bits >> 16 | 0x40; /* a NaN must not round up to infinity, nor its payload vanish */
    return (uint16_t)((bits & F32_MAG) > F32_INF ? quiet : rounded);
}

static inline float f16_wide(uint16_t bits) {
    uint32_t mag = bits & 0x7fff;
    uint32_t special = F32_INF | mag << (F32_MAN - F16_MAN);
    uint32_t wide = mag >= 0x7c00 ? special : widen(mag, F16_MAN, F16_BIAS);
    return float_of(wide | (uint32_t)(bits & 0x8000) << 16);
}

static inline uint16_t f16_narrow(float value) {
    uint32_t bits = bits_of(value), mag = bits & F32_MAG;
    uint32_t finite = at_most(narrow(mag, F16_MAN, F16_BIAS), 0x7c00);
    uint32_t nan = 0x7e00 | (mag >> (F32_MAN - F16_MAN) & 0x3ff);
    return (uint16_t)((mag > F32_INF ? nan : finite) | (bits >> 16 & 0x8000));
}

/* e4m3fn: no infinity, one NaN magnitude. */
static inline float e4m3_wide(uint8_t bits) {
    uint32_t mag = bits & 0x7f;
    uint32_t wide = mag == 0x7f ? F32_QNAN : widen(mag, E4M3_MAN, E4M3_BIAS);
    return float_of(wide | (uint32_t)(bits & 0x80) << 24);
}

static inline uint8_t e4m3_narrow(float value) {
    uint32_t bits = bits_of(value), mag = bits & F32_MAG;
    uint32_t finite = at_most(narrow(mag, E4M3_MAN, E4M3_BIAS), 0x7e);
    return (uint8_t)((mag > F32_INF ? 0x7f : finite) | (bits >> 24 & 0x80));
}

/* e5m2 is the upper byte of an f16. */
static inline float e5m2_wide(uint8_t bits) {
    return f16_wide((uint16_t)(bits << 8));
}

static inline uint8_t e5m2_narrow(float value) {
    uint32_t bits = bits_of(value), mag = bits & F32_MAG;
    uint32_t finite = at_most(narrow(mag, E5M2_MAN, E5M2_BIAS), 0x7b);
    return (uint8_t)((mag > F32_INF ? 0x7e : finite) | (bits >> 24 & 0x80));
}

float dfx_bf16_to_f32(uint16_t bits) {
    return bf16_wide(bits);
}
uint16_t dfx_f32_to_bf16(float value) {
    return bf16_narrow(value);
}
float dfx_f16_to_f32(uint16_t bits) {
    return f16_wide(bits);
}
uint16_t dfx_f32_to_f16(float value) {
    return f16_narrow(value);
}
float dfx_e4m3_to_f32(uint8_t bits) {
    return e4m3_wide(bits);
}
uint8_t dfx_f32_to_e4m3(float value) {
    return e4m3_narrow(value);
}
float dfx_e5m2_to_f32(uint8_t bits) {
    return e5m2_wide(bits);
}
uint8_t dfx_f32_to_e5m2(float value) {
    return e5m2_narrow(value);
}

/*      name     element   as f32 */
#define WIDEN_LIST(X)              \
    X(BF16, uint16_t, bf16_wide)   \
    X(F16, uint16_t, f16_wide)     \
    X(F8_E4M3, uint8_t, e4m3_wide) \
    X(F8_E5M2, uint8_t, e5m2_wide) \
    X(I8, int8_t, (float))         \
    X(U8, uint8_t, (float))        \
    X(I16, int16_t, (float))       \
    X(U16, uint16_t, (float))      \
    X(I32, int32_t, (float))       \
    X(U32, uint32_t, (float))      \
    X(I64, int64_t, (float))       \
    X(U64, uint64_t, (float))      \
    X(F64, double, (float))

/*      name     element   from f32 */
#define NARROW_LIST(X)               \
    X(BF16, uint16_t, bf16_narrow)   \
    X(F16, uint16_t, f16_narrow)     \
    X(F8_E4M3, uint8_t, e4m3_narrow) \
    X(F8_E5M2, uint8_t, e5m2_narrow)

#define WIDEN_LOOP(name, element, convert)                                                 \
    static void widen_##name(const uint8_t *restrict src, float *restrict dst, size_t n) { \
        for (size_t i = 0; i < n; i++) {                                                   \
            element x;                                                                     \
            memcpy(&x, src + i * sizeof(x), sizeof(x));                                    \
            dst[i] = convert(x);                                                           \
        }                                                                                  \
    }
WIDEN_LIST(WIDEN_LOOP)
#undef WIDEN_LOOP

#define NARROW_LOOP(name, element, convert)                                                 \
    static void narrow_##name(const float *restrict src, uint8_t *restrict dst, size_t n) { \
        for (size_t i = 0; i < n; i++) {                                                    \
            element x = convert(src[i]);                                                    \
            memcpy(dst + i * sizeof(x), &x, sizeof(x));                                     \
        }                                                                                   \
    }
NARROW_LIST(NARROW_LOOP)
#undef NARROW_LOOP

bool dfx_dtype_is_numeric(dfx_dtype dtype) {
    switch (dtype) {
    case DFX_DTYPE_F32:
#define CASE(name, element, convert) case DFX_DTYPE_##name:
        WIDEN_LIST(CASE)
#undef CASE
        return true;
    default:
        return dfx_dtype_is_ggml(dtype);
    }
}

bool dfx_to_f32(dfx_dtype dtype, const void *src, float *dst, size_t n) {
    if (n == 0) /* src and dst may be NULL then */
        return dfx_dtype_is_numeric(dtype);
    switch (dtype) {
    case DFX_DTYPE_F32:
        memcpy(dst, src, n * sizeof(*dst));
        return true;
#define CASE(name, element, convert) \
    case DFX_DTYPE_##name:           \
        widen_##name(src, dst, n);   \
        return true;
        WIDEN_LIST(CASE)
#undef CASE
    default:
        return dfx_ggml_to_f32(dtype, src, dst, n);
    }
}

bool dfx_from_f32(dfx_dtype dtype, const float *src, void *dst, size_t n) {
    switch (dtype) {
    case DFX_DTYPE_F32:
        if (n > 0)
            memcpy(dst, src, n * sizeof(*src));
        return true;
#define CASE(name, element, convert) \
    case DFX_DTYPE_##name:           \
        narrow_##name(src, dst, n);  \
        return true;
        NARROW_LIST(CASE)
#undef CASE
    default:
        return false;
    }
}
