/* Rows to codes and back. Expected values: hand arithmetic, the definition of e4m3, and rows
 * encoded with numpy and ml_dtypes (golden/quant_rows.json, made from FORMAT.md by
 * golden/make_quant_rows.py). */
#include "tests/tmpdir.h"

#include <math.h>
#include <string.h>

#include "core/json.h"
#include "core/rng.h"
#include "quant/q_rows.h"

enum { G06_COLS = 3072 };

static dfx_q_rows f32_rows(const float *src, int64_t n_rows, int64_t cols) {
    return (dfx_q_rows){"block.weight", DFX_DTYPE_F32, src, 0, n_rows, cols};
}

static void encode_f32(dfx_qformat format, const float *src, int64_t n_rows, int64_t cols,
                       void *codes, float *scales) {
    dfx_q_rows rows = f32_rows(src, n_rows, cols);
    assert_int_equal(dfx_q_encode_rows(&rows, format, codes, scales, NULL), DFX_OK);
}

/* The example of FORMAT.md: 2/127 and 2/448 rounded to f32, 127/2 and 448/2 exact. */
static void encode_row_of_four_gives_codes_worked_by_hand(void **state) {
    static const float row[] = {1.0f, -0.5f, 0.25f, 2.0f};
    int8_t int8[4];
    uint8_t fp8[4];
    float int8_scale, fp8_scale;
    encode_f32(DFX_Q_INT8, row, 1, 4, int8, &int8_scale);
    encode_f32(DFX_Q_FP8, row, 1, 4, fp8, &fp8_scale);
    assert_true(int8_scale == 0x1.020408p-6f);
    assert_true(fp8_scale == 0x1.24924ap-8f);
    assert_memory_equal(int8, ((int8_t[]){64, -32, 16, 127}), 4);
    assert_memory_equal(fp8, ((uint8_t[]){0x76, 0xee, 0x66, 0x7e}), 4);
}

static void encode_int8wo_gives_the_bytes_of_int8(void **state) {
    static const float row[] = {0.3f, -0.7f, 0.01f};
    int8_t int8[3], wo[3];
    float int8_scale, wo_scale;
    encode_f32(DFX_Q_INT8, row, 1, 3, int8, &int8_scale);
    encode_f32(DFX_Q_INT8WO, row, 1, 3, wo, &wo_scale);
    assert_memory_equal(int8, wo, sizeof(int8));
    assert_true(int8_scale == wo_scale);
}

static void encode_outlier_row_zeroes_the_rest(void **state) {
    static float row[G06_COLS];
    static int8_t codes[G06_COLS];
    static uint8_t fp8[G06_COLS];
    float scale;
    for (int i = 0; i < G06_COLS; i++)
        row[i] = 0.01f;
    row[1234] = 100.0f;
    encode_f32(DFX_Q_INT8, row, 1, G06_COLS, codes, &scale);
    assert_true(scale == 100.0f / 127.0f);
    for (int i = 0; i < G06_COLS; i++) /* 0.01 * 1.27 = 0.0127 */
        assert_int_equal(codes[i], i == 1234 ? 127 : 0);
    encode_f32(DFX_Q_FP8, row, 1, G06_COLS, fp8, &scale);
    for (int i = 0; i < G06_COLS; i++) /* 0.01 * 4.48 = 0.0448 = 11.47 / 256: 1.375 * 2^-5 */
        assert_int_equal(fp8[i], i == 1234 ? 0x7e : 2 << 3 | 3);
}

static void encode_zero_row_gives_scale_one_and_codes_zero(void **state) {
    static const float rows[2][3] = {{0.0f, 0.0f, 0.0f}, {0x1p-101f, 0x1p-126f, 0x1p-149f}};
    int8_t int8[6];
    uint8_t fp8[6];
    float scales[2] = {7.0f, 7.0f}, fp8_scales[2] = {7.0f, 7.0f};
    memset(int8, 0x55, sizeof(int8));
    memset(fp8, 0x55, sizeof(fp8));
    encode_f32(DFX_Q_INT8, rows[0], 2, 3, int8, scales);
    encode_f32(DFX_Q_FP8, rows[0], 2, 3, fp8, fp8_scales);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(int8[i], 0);
        assert_int_equal(fp8[i], 0);
    }
    for (int i = 0; i < 2; i++)
        assert_true(scales[i] == 1.0f && fp8_scales[i] == 1.0f);
}

static void encode_int8_extremes_stay_within_127(void **state) {
    static const float row[] = {-128.0f, 128.0f, 127.0f, -127.0f, 127.5f, -0.5f};
    static const int8_t want[] = {-127, 127, 126, -126, 127, 0};
    /* 127 * 127/128 = 126.0078, 127.5 * 127/128 = 126.504, 0.5 * 127/128 = 0.496 */
    int8_t codes[6];
    float scale;
    encode_f32(DFX_Q_INT8, row, 1, 6, codes, &scale);
    assert_memory_equal(codes, want, sizeof(want));
}

/* The largest magnitude must become the largest code whatever the roundings of scale and inverse
 * do. */
static void encode_greatest_magnitude_always_gives_the_greatest_code(void **state) {
    for (uint32_t step = 0; step < 20000; step++) {
        float x = ldexpf(1.0f + (float)(step * 419 % 8388608) * 0x1p-23f, (int)(step % 199) - 99);
        float pair[] = {x, -x};
        int8_t int8[2];
        uint8_t fp8[2];
        assert_true(isfinite(dfx_q_token_int8(pair, 2, int8)));
        assert_true(isfinite(dfx_q_token_fp8(pair, 2, fp8)));
        assert_memory_equal(int8, ((int8_t[]){127, -127}), 2);
        assert_memory_equal(fp8, ((uint8_t[]){0x7e, 0xfe}), 2);
    }
}

/* e4m3 by its definition, for the codes of positive numbers. */
static double e4m3_defined(int code) {
    int exponent = code >> 3, mantissa = code & 7;
    return exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
}

/* With 448 in the row the inverse is 1, so values go through unscaled: on, around and between
 * all codes. */
static void encode_fp8_takes_the_nearest_code_and_ties_to_even(void **state) {
    for (int code = 0; code < 0x7e; code++) {
        float low = (float)e4m3_defined(code), high = (float)e4m3_defined(code + 1);
        float middle = (low + high) / 2;
        float row[] = {low,   nextafterf(middle, 0.0f), middle, nextafterf(middle, 449.0f), -middle,
                       448.0f};
        int even = code % 2 ? code + 1 : code;
        uint8_t want[] = {(uint8_t)code,       (uint8_t)code,          (uint8_t)even,
                          (uint8_t)(code + 1), (uint8_t)(even | 0x80), 0x7e};
        uint8_t got[6];
        float scale = dfx_q_token_fp8(row, 6, got);
        assert_true(scale == 1.0f);
        assert_memory_equal(got, want, sizeof(want));
    }
}

static size_t unhex(const json_t *obj, const char *key, uint8_t *dst, size_t cap) {
    const char *text = json_string_value(json_object_get(obj, key));
    assert_non_null(text);
    size_t n = strlen(text) / 2;
    assert_true(n <= cap);
    for (size_t i = 0; i < n; i++) {
        char byte[3] = {text[2 * i], text[2 * i + 1], 0};
        dst[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return n;
}

static void check_golden(const json_t *row, const char *codes_key, const char *scale_key,
                         dfx_qformat format) {
    enum { MAX_COLS = 2048 };
    static uint8_t src[MAX_COLS * 4], want[MAX_COLS], got[MAX_COLS];
    size_t cols = (size_t)json_integer_value(json_object_get(row, "cols"));
    dfx_dtype dtype;
    assert_true(dfx_dtype_parse(json_string_value(json_object_get(row, "dtype")), &dtype));
    assert_int_equal(unhex(row, "source", src, sizeof(src)), cols * dfx_dtype_bytes(dtype));
    assert_int_equal(unhex(row, codes_key, want, sizeof(want)), cols);
    float want_scale, scale;
    assert_int_equal(unhex(row, scale_key, (uint8_t *)&want_scale, sizeof(want_scale)), 4);
    dfx_q_rows rows = {"golden", dtype, src, 0, 1, (int64_t)cols};
    assert_int_equal(dfx_q_encode_rows(&rows, format, got, &scale, NULL), DFX_OK);
    assert_memory_equal(&scale, &want_scale, sizeof(scale));
    assert_memory_equal(got, want, cols);
}

static void encode_equals_numpy_and_ml_dtypes(void **state) {
    json_t *root, *cases;
    assert_int_equal(dfx_json_load("tests/golden/quant_rows.json", NULL, 1 << 20, &root), DFX_OK);
    assert_int_equal(dfx_json_array(root, "golden", "cases", NULL, &cases), DFX_OK);
    assert_int_equal(json_array_size(cases), 14);
    size_t i;
    json_t *row;
    json_array_foreach(cases, i, row) {
        check_golden(row, "int8_codes", "int8_scale", DFX_Q_INT8);
        check_golden(row, "fp8_codes", "fp8_scale", DFX_Q_FP8);
    }
    json_decref(root);
}

enum { R = 40, C = 1037 }; /* over one piece, and no multiple of any vector */

static void random_rows(float *w, uint64_t seed) {
    dfx_rng rng;
    dfx_rng_seed(&rng, seed);
    dfx_rng_normal(&rng, w, R * C);
    for (int64_t i = 0; i < R * C; i++)
        w[i] = ldexpf(w[i], (int)(i / C) * 4 - 90);
}

static void decode_int8_is_within_half_a_step(void **state) {
    static float w[R * C], back[R * C], scales[R];
    static int8_t codes[R * C];
    random_rows(w, 11);
    encode_f32(DFX_Q_INT8, w, R, C, codes, scales);
    assert_true(dfx_q_decode_rows(DFX_DTYPE_I8, codes, scales, R, C, back));
    for (int64_t i = 0; i < R * C; i++) /* 2^-15: see FORMAT.md */
        assert_true(fabs((double)w[i] - back[i]) <= scales[i / C] * (0.5 + 0x1p-15));
}

/* Half of the distance between neighbours: 2^-4 of the value, or half a subnormal step;
 * roundings as above. */
static void decode_fp8_is_within_a_sixteenth(void **state) {
    static float w[R * C], back[R * C], scales[R];
    static uint8_t codes[R * C];
    random_rows(w, 12);
    encode_f32(DFX_Q_FP8, w, R, C, codes, scales);
    assert_true(dfx_q_decode_rows(DFX_DTYPE_F8_E4M3, codes, scales, R, C, back));
    for (int64_t i = 0; i < R * C; i++) {
        double bound = fmax(fabs((double)w[i]) / 16, scales[i / C] * 0x1p-10);
        assert_true(fabs((double)w[i] - back[i]) <= bound * (1 + 0x1p-15));
    }
}

static void encode_of_decoded_gives_the_same_codes(void **state) {
    static const dfx_qformat formats[] = {DFX_Q_INT8, DFX_Q_FP8};
    static float w[R * C], back[R * C], scales[R];
    static uint8_t first[R * C], second[R * C];
    random_rows(w, 13);
    for (size_t f = 0; f < DFX_COUNT(formats); f++) {
        dfx_dtype storage = dfx_q_storage(formats[f], DFX_DTYPE_F32);
        encode_f32(formats[f], w, R, C, first, scales);
        assert_true(dfx_q_decode_rows(storage, first, scales, R, C, back));
        encode_f32(formats[f], back, R, C, second, scales);
        assert_memory_equal(first, second, sizeof(first));
    }
}

/* Rows cut in any way, tokens, and other source types of the same values: the same bytes. */
static void encode_row_depends_on_no_other_row(void **state) {
    static float w[R * C], scales[R];
    static int8_t codes[R * C], token[C];
    random_rows(w, 14);
    encode_f32(DFX_Q_INT8, w, R, C, codes, scales);
    for (int row = 0; row < R; row++) {
        float scale = dfx_q_token_int8(w + row * C, C, token);
        assert_true(scale == scales[row]);
        assert_memory_equal(token, codes + row * C, C);
    }
}

static void encode_of_half_types_equals_that_of_their_values(void **state) {
    static const dfx_dtype types[] = {DFX_DTYPE_BF16, DFX_DTYPE_F16, DFX_DTYPE_F8_E4M3,
                                      DFX_DTYPE_F8_E5M2};
    float values[C], scale, half_scale;
    static unsigned char stored[C * 2 + 1];
    int8_t codes[C], half_codes[C];
    for (size_t t = 0; t < DFX_COUNT(types); t++) {
        for (int i = 0; i < C; i++)
            values[i] = sinf((float)i) * 3.0f;
        assert_true(dfx_from_f32(types[t], values, stored + 1, C));
        assert_true(dfx_to_f32(types[t], stored + 1, values, C));
        dfx_q_rows rows = {"half", types[t], stored + 1, 0, 1, C}; /* at an odd address */
        assert_int_equal(dfx_q_encode_rows(&rows, DFX_Q_INT8, half_codes, &half_scale, NULL),
                         DFX_OK);
        encode_f32(DFX_Q_INT8, values, 1, C, codes, &scale);
        assert_true(scale == half_scale);
        assert_memory_equal(codes, half_codes, sizeof(codes));
    }
}

static void encode_bf16_rounds_and_f32_copies(void **state) {
    static const float row[] = {1.0f, 1.00390625f, 1.01171875f, -3.0e-5f}; /* two ties */
    uint16_t bf16[4];
    float f32[4];
    encode_f32(DFX_Q_BF16, row, 1, 4, bf16, NULL);
    encode_f32(DFX_Q_F32, row, 1, 4, f32, NULL);
    assert_memory_equal(bf16, ((uint16_t[]){0x3f80, 0x3f80, 0x3f82, 0xb7fc}), sizeof(bf16));
    assert_memory_equal(f32, row, sizeof(row));
}

static void encode_value_out_of_range_names_tensor_row_and_column(void **state) {
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p100f, -0x1p127f};
    static const dfx_qformat formats[] = {DFX_Q_F32, DFX_Q_BF16, DFX_Q_INT8, DFX_Q_INT8WO,
                                          DFX_Q_FP8};
    tmpdir *dir = *state;
    static float w[2 * C], scales[2];
    static uint8_t codes[2 * C * 4];
    for (size_t b = 0; b < DFX_COUNT(bad); b++)
        for (size_t f = 0; f < DFX_COUNT(formats); f++) {
            w[C + 1030] = bad[b];
            dfx_q_rows rows = f32_rows(w, 2, C);
            rows.first_row = 500;
            recorder_clear(&dir->log);
            assert_int_equal(dfx_q_encode_rows(&rows, formats[f], codes, scales, &dir->log.sink),
                             DFX_E_NUMERIC);
            said_error(&dir->log, "block.weight: row 501, column 1030 is ");
        }
}

static void encode_value_just_below_the_limit_is_taken(void **state) {
    float row[] = {nextafterf(0x1p100f, 0.0f), 0.0f}, scale, back[2];
    int8_t codes[2];
    encode_f32(DFX_Q_INT8, row, 1, 2, codes, &scale);
    assert_memory_equal(codes, ((int8_t[]){127, 0}), 2);
    assert_true(dfx_q_decode_rows(DFX_DTYPE_I8, codes, &scale, 1, 2, back));
    assert_true(isfinite(back[0]));
}

static void encode_refuses_types_and_formats_without_encoding(void **state) {
    tmpdir *dir = *state;
    uint8_t bytes[8] = {0}, codes[8];
    float scale;
    dfx_q_rows rows = {"packed.weight", DFX_DTYPE_F4, bytes, 0, 1, 8};
    assert_int_equal(dfx_q_encode_rows(&rows, DFX_Q_INT8, codes, &scale, &dir->log.sink),
                     DFX_E_FORMAT);
    said_error(&dir->log, "packed.weight: F4 cannot be converted to int8");
    recorder_clear(&dir->log);
    rows.dtype = DFX_DTYPE_F8_E4M3;
    assert_int_equal(dfx_q_encode_rows(&rows, DFX_Q_STORED, codes, &scale, &dir->log.sink),
                     DFX_E_INTERNAL);
    said_error(&dir->log, "packed.weight: format stored");
    assert_false(dfx_q_decode_rows(DFX_DTYPE_F4, bytes, NULL, 1, 8, &scale));
}

static void token_not_finite_gives_nan_scale_and_zero_codes(void **state) {
    static const float bad[] = {NAN, -INFINITY, 0x1p100f};
    for (size_t b = 0; b < DFX_COUNT(bad); b++) {
        float x[] = {1.0f, bad[b], -1.0f};
        int8_t int8[] = {5, 5, 5};
        uint8_t fp8[] = {5, 5, 5};
        assert_true(isnan(dfx_q_token_int8(x, 3, int8)));
        assert_true(isnan(dfx_q_token_fp8(x, 3, fp8)));
        for (int i = 0; i < 3; i++)
            assert_true(int8[i] == 0 && fp8[i] == 0);
    }
}

/* ---- a token whose scale has a least, or is given ---- */

/* The scale of 2.3 is 2.3 / 448 rounded, 0x1.507506p-8. 0x1.657c58p-14 times 448 / 2.3 is a tie, 0x1.1p-6, which goes to the
 * even code 8; times 1 / scale it is just above, 0x1.100002p-6: code 9. */
static void token_fp8_least_below_its_own_scale_multiplies_by_one_over_that(void **state) {
    static const float row[] = {2.3f, 0x1.657c58p-14f, -2.3f, -0x1.657c58p-14f};
    static const float least[] = {0x1p-100f, 0x1p-30f, 0x1.507504p-8f, 0x1.507506p-8f};
    uint8_t best[4], codes[4];
    assert_true(dfx_q_token_fp8(row, 4, best) == 0x1.507506p-8f);
    assert_memory_equal(best, ((uint8_t[]){0x7e, 0x08, 0xfe, 0x88}), 4);
    for (size_t i = 0; i < DFX_COUNT(least); i++) {
        assert_true(dfx_q_token_fp8_least(row, 4, least[i], codes) == 0x1.507506p-8f);
        assert_memory_equal(codes, ((uint8_t[]){0x7e, 0x09, 0xfe, 0x89}), 4);
    }
}

/* By 1/2: 2, -1, 1/2, 4. By 1: 1, -1/2, 1/4, 2. By 2^9: 2^-9, -2^-10, 2^-11, 2^-8, of which the second is a tie between -0 and
 * the first subnormal. */
static void token_fp8_least_above_its_own_scale_is_the_scale(void **state) {
    static const float row[] = {1.0f, -0.5f, 0.25f, 2.0f};
    static const struct {
        float least;
        uint8_t codes[4];
    } cases[] = {{0.5f, {0x40, 0xb8, 0x30, 0x48}},
                 {1.0f, {0x38, 0xb0, 0x28, 0x40}},
                 {512.0f, {0x01, 0x80, 0x00, 0x02}}};
    uint8_t codes[4];
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        assert_true(dfx_q_token_fp8_least(row, 4, cases[i].least, codes) == cases[i].least);
        assert_memory_equal(codes, cases[i].codes, 4);
    }
}

/* Without a least, their scale is 1. */
static void token_fp8_of_zeros_has_the_least_for_its_scale(void **state) {
    static const float rows[2][3] = {{0.0f, 0.0f, 0.0f}, {0x1p-101f, 0x1p-126f, 0x1p-149f}};
    static const float least[] = {0x1p-60f, 1.0f, 3.0f, 0x1p99f};
    for (size_t i = 0; i < 2 * DFX_COUNT(least); i++) {
        uint8_t codes[] = {5, 5, 5};
        assert_true(dfx_q_token_fp8_least(rows[i % 2], 3, least[i / 2], codes) == least[i / 2]);
        assert_memory_equal(codes, ((uint8_t[]){0, 0, 0}), 3);
    }
}

static void token_fp8_least_of_nan_or_values_not_finite_gives_nan_and_zero_codes(void **state) {
    static const struct {
        float value, least;
    } cases[] = {{NAN, 1.0f},      {-NAN, 0x1p90f},  {INFINITY, 1.0f}, {-INFINITY, 1.0f},
                 {0x1p100f, 1.0f}, {-0x1p127f, NAN}, {0.5f, NAN},      {0.0f, -NAN}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        float x[] = {0.0f, cases[i].value, -0.0f};
        uint8_t codes[] = {5, 5, 5};
        assert_true(isnan(dfx_q_token_fp8_least(x, 3, cases[i].least, codes)));
        assert_memory_equal(codes, ((uint8_t[]){0, 0, 0}), 3);
    }
}

static void token_fp8_scaled_goes_no_further_than_448(void **state) {
    static const float sizes[] = {432.0f, 447.0f,  448.0f,  449.0f,   463.0f,  464.0f,
                                  465.0f, 1000.0f, 0x1p99f, 0x1p127f, INFINITY};
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) { /* 432 is a tie, and 448 the even one */
        float pair[] = {sizes[i], -sizes[i]};
        uint8_t codes[2];
        dfx_q_token_fp8_scaled(pair, 2, 1.0f, codes);
        assert_memory_equal(codes, ((uint8_t[]){0x7e, 0xfe}), 2);
    }
    static const float row[] = {100.0f, -100.0f, 56.0f, -56.0f, 52.0f, -1.0f};
    uint8_t codes[6]; /* by 1/8: 800, -800, 448, -448, 416, -8 */
    dfx_q_token_fp8_scaled(row, 6, 0.125f, codes);
    assert_memory_equal(codes, ((uint8_t[]){0x7e, 0xfe, 0x7e, 0xfe, 0x7d, 0xd0}), 6);
}

/* What is computed from a value that is not a number must not look like one. */
static void token_fp8_scaled_of_nan_is_nan(void **state) {
    static const float row[] = {NAN, 1.0f, -NAN, INFINITY};
    uint8_t codes[4];
    dfx_q_token_fp8_scaled(row, 4, 1.0f, codes);
    assert_memory_equal(codes, ((uint8_t[]){0x7f, 0x38, 0x7f, 0x7e}), 4);
}

/* 0x1.5ep-3 / 7 is 0x1.9p-6, a tie, and the even code is 12; times 1 / 7 in f32, 0x1.24924ap-3, it is just above. So is
 * 0x1.96p-3, between 14 and 15. */
static void token_fp8_scaled_multiplies_by_one_over_scale(void **state) {
    static const float row[] = {0x1.5ep-3f, -0x1.5ep-3f, 0x1.96p-3f, -0x1.96p-3f};
    uint8_t codes[4];
    dfx_q_token_fp8_scaled(row, 4, 7.0f, codes);
    assert_memory_equal(codes, ((uint8_t[]){0x0d, 0x8d, 0x0f, 0x8f}), 4);
    assert_true(dfx_q_token_fp8_least(row, 4, 7.0f, codes) == 7.0f);
    assert_memory_equal(codes, ((uint8_t[]){0x0d, 0x8d, 0x0f, 0x8f}), 4);
}

/* On, around and between all codes, by scales that change no bit of a value's mantissa. */
static void token_fp8_scaled_takes_the_nearest_code_and_ties_to_even(void **state) {
    for (int exponent = -80; exponent <= 80; exponent += 40)
        for (int code = 0; code < 0x7e; code++) {
            float low = (float)e4m3_defined(code), high = (float)e4m3_defined(code + 1);
            float middle = (low + high) / 2;
            float row[] = {low, nextafterf(middle, 0.0f), middle, nextafterf(middle, 449.0f),
                           -middle};
            int even = code % 2 ? code + 1 : code;
            uint8_t want[] = {(uint8_t)code, (uint8_t)code, (uint8_t)even, (uint8_t)(code + 1),
                              (uint8_t)(even | 0x80)};
            uint8_t got[5];
            for (int i = 0; i < 5; i++)
                row[i] = ldexpf(row[i], exponent);
            dfx_q_token_fp8_scaled(row, 5, ldexpf(1.0f, exponent), got);
            assert_memory_equal(got, want, sizeof(want));
        }
}

/* Rows of all sizes, some cut off by their scales and some nearly lost, against the conversion of core. */
static void token_fp8_scaled_equals_conversion_of_products_with_one_over_scale(void **state) {
    static float w[R * C];
    static uint8_t codes[C];
    random_rows(w, 15);
    for (int row = 0; row < R; row++) {
        float scale = ldexpf(1.0f + 0.019f * (float)row, row * 4 - 90 + row % 24 - 16);
        float inverse = 1.0f / scale;
        dfx_q_token_fp8_scaled(w + row * C, C, scale, codes);
        for (int i = 0; i < C; i++)
            assert_int_equal(codes[i], dfx_f32_to_e4m3(w[row * C + i] * inverse));
        assert_true(dfx_q_token_fp8_least(w + row * C, C, 0x1p70f, codes) == 0x1p70f);
        for (int i = 0; i < C; i++)
            assert_int_equal(codes[i], dfx_f32_to_e4m3(w[row * C + i] * 0x1p-70f));
    }
}

/* Foreign files: codes a writer of ours never makes, and scales of any kind. */
static void decode_takes_minus_128_and_codes_without_scale(void **state) {
    static const int8_t codes[] = {-128, 127, 0, 1, 2, 3};
    static const float scales[] = {0.5f, -4.0f};
    float got[6];
    assert_true(dfx_q_decode_rows(DFX_DTYPE_I8, codes, scales, 2, 3, got));
    assert_memory_equal(got, ((float[]){-64.0f, 63.5f, 0.0f, -4.0f, -8.0f, -12.0f}), sizeof(got));
    assert_true(dfx_q_decode_rows(DFX_DTYPE_I8, codes, NULL, 2, 3, got));
    assert_memory_equal(got, ((float[]){-128.0f, 127.0f, 0.0f, 1.0f, 2.0f, 3.0f}), sizeof(got));
}

static void no_rows_and_no_columns_are_fine(void **state) {
    float scales[2] = {7.0f, 7.0f};
    encode_f32(DFX_Q_INT8, NULL, 0, 8, NULL, NULL);
    encode_f32(DFX_Q_INT8, NULL, 2, 0, NULL, scales);
    assert_true(scales[0] == 1.0f && scales[1] == 1.0f);
    assert_true(dfx_q_decode_rows(DFX_DTYPE_I8, NULL, scales, 2, 0, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_row_of_four_gives_codes_worked_by_hand),
        cmocka_unit_test(encode_int8wo_gives_the_bytes_of_int8),
        cmocka_unit_test(encode_outlier_row_zeroes_the_rest),
        cmocka_unit_test(encode_zero_row_gives_scale_one_and_codes_zero),
        cmocka_unit_test(encode_int8_extremes_stay_within_127),
        cmocka_unit_test(encode_greatest_magnitude_always_gives_the_greatest_code),
        cmocka_unit_test(encode_fp8_takes_the_nearest_code_and_ties_to_even),
        cmocka_unit_test(encode_equals_numpy_and_ml_dtypes),
        cmocka_unit_test(decode_int8_is_within_half_a_step),
        cmocka_unit_test(decode_fp8_is_within_a_sixteenth),
        cmocka_unit_test(encode_of_decoded_gives_the_same_codes),
        cmocka_unit_test(encode_row_depends_on_no_other_row),
        cmocka_unit_test(encode_of_half_types_equals_that_of_their_values),
        cmocka_unit_test(encode_bf16_rounds_and_f32_copies),
        cmocka_unit_test_setup_teardown(encode_value_out_of_range_names_tensor_row_and_column,
                                        tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test(encode_value_just_below_the_limit_is_taken),
        cmocka_unit_test_setup_teardown(encode_refuses_types_and_formats_without_encoding,
                                        tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test(token_not_finite_gives_nan_scale_and_zero_codes),
        cmocka_unit_test(token_fp8_least_below_its_own_scale_multiplies_by_one_over_that),
        cmocka_unit_test(token_fp8_least_above_its_own_scale_is_the_scale),
        cmocka_unit_test(token_fp8_of_zeros_has_the_least_for_its_scale),
        cmocka_unit_test(token_fp8_least_of_nan_or_values_not_finite_gives_nan_and_zero_codes),
        cmocka_unit_test(token_fp8_scaled_goes_no_further_than_448),
        cmocka_unit_test(token_fp8_scaled_of_nan_is_nan),
        cmocka_unit_test(token_fp8_scaled_multiplies_by_one_over_scale),
        cmocka_unit_test(token_fp8_scaled_takes_the_nearest_code_and_ties_to_even),
        cmocka_unit_test(token_fp8_scaled_equals_conversion_of_products_with_one_over_scale),
        cmocka_unit_test(decode_takes_minus_128_and_codes_without_scale),
        cmocka_unit_test(no_rows_and_no_columns_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
