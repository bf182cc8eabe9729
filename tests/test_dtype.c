/* Number types: names and conversion. Expected bit patterns are those of the type definitions (IEEE
 * 754, OCP 8-bit floating point), worked by hand or through ldexp; rounding is checked at, just
 * below and just above the middle of every two neighbours. */
#include "tests/tmpdir.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"

typedef struct pair {
    uint32_t bits;
    float value;
} pair;

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Bit for bit, so that -0 is not 0; a NaN matches any NaN. */
static void same(float got, float want) {
    if (isnan(want))
        assert_true(isnan(got));
    else
        assert_int_equal(bits_of(got), bits_of(want));
}

static void dtype_names_parse_back_to_themselves(void **state) {
    for (int i = 0; !dfx_dtype_is_ggml((dfx_dtype)i); i++) {
        dfx_dtype back = DFX_N_DTYPES;
        assert_true(dfx_dtype_parse(dfx_dtype_name((dfx_dtype)i), &back));
        assert_int_equal(back, i);
    }
    dfx_dtype none;
    assert_false(dfx_dtype_parse("F7", &none));
    assert_false(dfx_dtype_parse("bf16", &none));
    assert_false(dfx_dtype_parse("", &none));
    assert_false(dfx_dtype_parse("Q4_0", &none)); /* no type of safetensors */
}

static void dtype_sizes_are_those_of_the_format(void **state) {
    assert_int_equal(dfx_dtype_bytes(DFX_DTYPE_F32), 4);
    assert_int_equal(dfx_dtype_bytes(DFX_DTYPE_BF16), 2);
    assert_int_equal(dfx_dtype_bytes(DFX_DTYPE_F8_E4M3), 1);
    assert_int_equal(dfx_dtype_bytes(DFX_DTYPE_C64), 8);
    assert_true(dfx_dtype_bits(DFX_DTYPE_F6_E2M3) == 6);
    assert_int_equal(dfx_dtype_size(DFX_DTYPE_F6_E2M3, 8), 6);
    assert_int_equal(dfx_dtype_size(DFX_DTYPE_I64, 8), 64);
    assert_int_equal(dfx_dtype_bytes(DFX_N_DTYPES), 0);
    assert_int_equal(dfx_dtype_bytes(DFX_DTYPE_F4), 0);
}

static void e4m3_bytes_have_their_values(void **state) {
    static const pair table[] = {{0x00, 0.0f},      {0x80, -0.0f},        {0x01, 0.001953125f},
                                 {0x08, 0.015625f}, {0x38, 1.0f},         {0x3c, 1.5f},
                                 {0x7e, 448.0f},    {0xfe, -448.0f},      {0x7f, NAN},
                                 {0xff, NAN},       {0x07, 0.013671875f}, {0x78, 256.0f}};
    for (size_t i = 0; i < DFX_COUNT(table); i++)
        same(dfx_e4m3_to_f32((uint8_t)table[i].bits), table[i].value);
}

static void e5m2_bytes_have_their_values(void **state) {
    static const pair table[] = {{0x01, 1.52587890625e-05f},
                                 {0x04, 6.103515625e-05f},
                                 {0x3c, 1.0f},
                                 {0x7b, 57344.0f},
                                 {0x7c, INFINITY},
                                 {0xfc, -INFINITY},
                                 {0x7d, NAN},
                                 {0x80, -0.0f},
                                 {0xff, NAN}};
    for (size_t i = 0; i < DFX_COUNT(table); i++)
        same(dfx_e5m2_to_f32((uint8_t)table[i].bits), table[i].value);
}

static void half_types_have_their_values(void **state) {
    static const pair f16[] = {{0x0001, 5.960464477539063e-08f},
                               {0x03ff, 6.097555160522461e-05f},
                               {0x0400, 6.103515625e-05f},
                               {0x3c00, 1.0f},
                               {0x3555, 0.333251953125f},
                               {0x7bff, 65504.0f},
                               {0x7c00, INFINITY},
                               {0xfc00, -INFINITY},
                               {0x7e00, NAN},
                               {0x8000, -0.0f}};
    static const pair bf16[] = {{0x3f80, 1.0f}, {0x7f80, INFINITY}, {0xc000, -2.0f}, {0x7fc0, NAN}};
    for (size_t i = 0; i < DFX_COUNT(f16); i++)
        same(dfx_f16_to_f32((uint16_t)f16[i].bits), f16[i].value);
    for (size_t i = 0; i < DFX_COUNT(bf16); i++)
        same(dfx_bf16_to_f32((uint16_t)bf16[i].bits), bf16[i].value);
}

/* A small float by its definition: sign, exponent and mantissa through ldexp. */
static double defined_value(uint32_t bits, int exp_bits, int man_bits, bool has_inf) {
    int bias = (1 << (exp_bits - 1)) - 1, man = (int)(bits & ((1u << man_bits) - 1));
    int exp = (int)(bits >> man_bits & ((1u << exp_bits) - 1));
    double sign = bits >> (exp_bits + man_bits) & 1 ? -1.0 : 1.0;
    if (has_inf && exp == (1 << exp_bits) - 1)
        return man ? NAN : sign * INFINITY;
    if (!has_inf && (bits & 0x7f) == 0x7f)
        return NAN;
    return sign * (exp ? ldexp((1 << man_bits) + man, exp - bias - man_bits)
                       : ldexp(man, 1 - bias - man_bits));
}

static void every_pattern_of_the_small_floats_equals_its_definition(void **state) {
    for (uint32_t b = 0; b < 256; b++) {
        same(dfx_e4m3_to_f32((uint8_t)b), (float)defined_value(b, 4, 3, false));
        same(dfx_e5m2_to_f32((uint8_t)b), (float)defined_value(b, 5, 2, true));
    }
    for (uint32_t b = 0; b < 65536; b++) {
        same(dfx_f16_to_f32((uint16_t)b), (float)defined_value(b, 5, 10, true));
        same(dfx_bf16_to_f32((uint16_t)b), float_of(b << 16));
    }
}

static void every_pattern_of_the_small_floats_survives_the_way_back(void **state) {
    for (uint32_t b = 0; b < 256; b++) {
        float e4m3 = dfx_e4m3_to_f32((uint8_t)b), e5m2 = dfx_e5m2_to_f32((uint8_t)b);
        if (!isnan(e4m3))
            assert_int_equal(dfx_f32_to_e4m3(e4m3), b);
        if (isfinite(e5m2))
            assert_int_equal(dfx_f32_to_e5m2(e5m2), b);
    }
    for (uint32_t b = 0; b < 65536; b++) {
        float f16 = dfx_f16_to_f32((uint16_t)b), bf16 = dfx_bf16_to_f32((uint16_t)b);
        if (!isnan(f16))
            assert_int_equal(dfx_f32_to_f16(f16), b);
        if (!isnan(bf16))
            assert_int_equal(dfx_f32_to_bf16(bf16), b);
    }
}

/* Between each pair of neighbours: just below, at and just above the middle. The middle goes to the
 * even pattern. `n` positive finite patterns 0..n-1 rise with their value. */
#define CHECK_ROUNDING(n, widen, narrow)                                              \
    for (uint32_t b = 0; b + 1 < (n); b++) {                                          \
        float low = widen(b), high = widen(b + 1), middle = low + (high - low) / 2;   \
        assert_int_equal(narrow(nextafterf(middle, 0.0f)), b);                        \
        assert_int_equal(narrow(nextafterf(middle, INFINITY)), b + 1);                \
        assert_int_equal(narrow(middle), b + (b & 1));                                \
        assert_int_equal(narrow(-middle),                                             \
                         (b + (b & 1)) | (sizeof(narrow(0)) == 1 ? 0x80u : 0x8000u)); \
    }

static void narrowing_rounds_to_nearest_even_everywhere(void **state) {
    CHECK_ROUNDING(0x7f, (float)dfx_e4m3_to_f32, dfx_f32_to_e4m3)
    CHECK_ROUNDING(0x7c, (float)dfx_e5m2_to_f32, dfx_f32_to_e5m2)
    CHECK_ROUNDING(0x7c00, (float)dfx_f16_to_f32, dfx_f32_to_f16)
    CHECK_ROUNDING(0x7f80, (float)dfx_bf16_to_f32, dfx_f32_to_bf16)
}

static void narrowing_overflow_saturates_or_becomes_infinite(void **state) {
    static const float large[] = {449.0f, 464.0f, 480.0f, 60000.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < DFX_COUNT(large); i++) {
        assert_int_equal(dfx_f32_to_e4m3(large[i]), 0x7e);
        assert_int_equal(dfx_f32_to_e4m3(-large[i]), 0xfe);
    }
    assert_int_equal(dfx_f32_to_e5m2(61440.0f), 0x7b); /* the middle of 57344 and 65536 */
    assert_int_equal(dfx_f32_to_e5m2(-INFINITY), 0xfb);
    assert_int_equal(dfx_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(dfx_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(dfx_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(dfx_f32_to_bf16(float_of(0x7f7fffff)), 0x7f80);
}

static void narrowing_keeps_nan(void **state) {
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xff800001};
    for (size_t i = 0; i < DFX_COUNT(nans); i++) {
        float nan = float_of(nans[i]);
        assert_true(isnan(dfx_bf16_to_f32(dfx_f32_to_bf16(nan))));
        assert_true(isnan(dfx_f16_to_f32(dfx_f32_to_f16(nan))));
        assert_true(isnan(dfx_e4m3_to_f32(dfx_f32_to_e4m3(nan))));
        assert_true(isnan(dfx_e5m2_to_f32(dfx_f32_to_e5m2(nan))));
    }
}

static float widen_one(dfx_dtype dtype, const void *src) {
    float got = -12345.0f;
    assert_true(dfx_to_f32(dtype, src, &got, 1));
    return got;
}

static void wide_types_round_to_nearest_even(void **state) {
    double third = 1.0 / 3.0, tie_down = 1.0 + 0x1p-24, tie_up = 1.0 + 0x1.8p-23, large = 1e300;
    same(widen_one(DFX_DTYPE_F64, &third), float_of(0x3eaaaaab));
    same(widen_one(DFX_DTYPE_F64, &tie_down), 1.0f);
    same(widen_one(DFX_DTYPE_F64, &tie_up), float_of(0x3f800002));
    same(widen_one(DFX_DTYPE_F64, &large), INFINITY);
    int32_t i32 = 16777217; /* 2^24 + 1: a tie, down to even */
    uint32_t u32 = 4294967295u;
    int64_t minus_one = -1, big = (int64_t)1 << 40;
    uint64_t u64 = UINT64_MAX,
             sticky = ((uint64_t)1 << 63) + ((uint64_t)1 << 39) + 1; /* over a tie */
    same(widen_one(DFX_DTYPE_I32, &i32), 16777216.0f);
    same(widen_one(DFX_DTYPE_U32, &u32), 4294967296.0f);
    same(widen_one(DFX_DTYPE_I64, &minus_one), -1.0f);
    same(widen_one(DFX_DTYPE_I64, &big), 1099511627776.0f);
    same(widen_one(DFX_DTYPE_U64, &u64), 18446744073709551616.0f);
    same(widen_one(DFX_DTYPE_U64, &sticky), 0x1.000002p63f);
}

static void small_integers_are_exact(void **state) {
    int8_t i8 = -128;
    uint8_t u8 = 255;
    int16_t i16 = -32768;
    uint16_t u16 = 65535;
    same(widen_one(DFX_DTYPE_I8, &i8), -128.0f);
    same(widen_one(DFX_DTYPE_U8, &u8), 255.0f);
    same(widen_one(DFX_DTYPE_I16, &i16), -32768.0f);
    same(widen_one(DFX_DTYPE_U16, &u16), 65535.0f);
}

/* Odd lengths and an odd start: the vector loops' heads and tails, and no aligned loads. */
static void arrays_convert_as_single_values_at_odd_addresses(void **state) {
    enum { N = 67 };
    float values[N], back[N];
    unsigned char stored[N * 4 + 1];
    static const dfx_dtype types[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F16,
                                      DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E5M2};
    for (int i = 0; i < N; i++)
        values[i] = ldexpf(i % 2 ? 1.375f : -1.3f, i - 33);
    for (size_t t = 0; t < DFX_COUNT(types); t++) {
        assert_true(dfx_from_f32(types[t], values, stored + 1, N));
        assert_true(dfx_to_f32(types[t], stored + 1, back, N));
        for (int i = 0; i < N; i++) {
            float want =
                types[t] == DFX_DTYPE_BF16      ? dfx_bf16_to_f32(dfx_f32_to_bf16(values[i]))
                : types[t] == DFX_DTYPE_F16     ? dfx_f16_to_f32(dfx_f32_to_f16(values[i]))
                : types[t] == DFX_DTYPE_F8_E4M3 ? dfx_e4m3_to_f32(dfx_f32_to_e4m3(values[i]))
                : types[t] == DFX_DTYPE_F8_E5M2 ? dfx_e5m2_to_f32(dfx_f32_to_e5m2(values[i]))
                                                : values[i];
            same(back[i], want);
        }
    }
}

static void types_that_are_not_numbers_are_refused(void **state) {
    static const dfx_dtype types[] = {DFX_DTYPE_BOOL, DFX_DTYPE_C64, DFX_DTYPE_F8_E8M0,
                                      DFX_DTYPE_F4, DFX_DTYPE_F8_E4M3FNUZ};
    unsigned char bytes[8] = {0};
    float value = 7.0f;
    for (size_t i = 0; i < DFX_COUNT(types); i++) {
        assert_false(dfx_dtype_is_numeric(types[i]));
        assert_false(dfx_to_f32(types[i], bytes, &value, 1));
        assert_false(dfx_from_f32(types[i], &value, bytes, 1));
    }
    assert_false(dfx_from_f32(DFX_DTYPE_I8, &value, bytes, 1));
    assert_true(value == 7.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_names_parse_back_to_themselves),
        cmocka_unit_test(dtype_sizes_are_those_of_the_format),
        cmocka_unit_test(e4m3_bytes_have_their_values),
        cmocka_unit_test(e5m2_bytes_have_their_values),
        cmocka_unit_test(half_types_have_their_values),
        cmocka_unit_test(every_pattern_of_the_small_floats_equals_its_definition),
        cmocka_unit_test(every_pattern_of_the_small_floats_survives_the_way_back),
        cmocka_unit_test(narrowing_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(narrowing_overflow_saturates_or_becomes_infinite),
        cmocka_unit_test(narrowing_keeps_nan),
        cmocka_unit_test(wide_types_round_to_nearest_even),
        cmocka_unit_test(small_integers_are_exact),
        cmocka_unit_test(arrays_convert_as_single_values_at_odd_addresses),
        cmocka_unit_test(types_that_are_not_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
