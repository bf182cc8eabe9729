/* bitsandbytes' weights: values by hand, and those of tests/golden/make_bnb_rows.py bit for bit, for any range. */
#include "tests/tmpdir.h"

#include <stdlib.h>
#include <string.h>

#include "core/safetensors.h"
#include "quant/q_nf4.h"

static const char golden[] = "tests/golden/bnb_rows.safetensors";

static int open_golden(void **state) {
    return dfx_tensors_open_file(golden, NULL, (dfx_tensors **)state);
}

static int close_golden(void **state) {
    dfx_tensors_close(*state);
    return 0;
}

/* free() by the caller. */
static void *bytes_of(const dfx_tensors *set, const char *name) {
    const dfx_tensor *t = dfx_tensors_find(set, name);
    assert_non_null(t);
    void *bytes = malloc(t->bytes);
    assert_non_null(bytes);
    assert_int_equal(dfx_tensors_read(set, t, NULL, bytes), DFX_OK);
    return bytes;
}

static int64_t count_of(const dfx_tensors *set, const char *name) {
    return (int64_t)dfx_tensors_find(set, name)->n_elements;
}

/* Every element alone, then ranges that begin and end at all places within bytes and blocks. */
static void decodes_any_range_to(const dfx_nf4 *q, int64_t first, int64_t n, const float *want) {
    float *got = malloc((size_t)n * sizeof(*got));
    assert_non_null(got);
    for (int64_t step = 1; step <= n; step += step < 70 ? 1 : 97) {
        memset(got, 0xff, (size_t)n * sizeof(*got));
        for (int64_t at = 0; at < n; at += step)
            dfx_nf4_decode(q, first + at, n - at < step ? n - at : step, got + at);
        assert_memory_equal(got, want, (size_t)n * sizeof(*got));
    }
    free(got);
}

static void nf4_even_element_is_the_high_nibble(void **state) {
    static const uint8_t codes[] = {0x01, 0x2f};
    static const float map[DFX_NF4_MAP] = {10, 20, 30, [15] = -1}, absmax[] = {0.5f, 4};
    dfx_nf4 q = {.codes = codes, .quant_map = map, .absmax = absmax, .block = 2};
    decodes_any_range_to(&q, 0, 4, (float[]){5, 10, 120, -4});
}

/* 0.25 * 8 + 1 = 3 for block 0 and 0.5 * 2 + 1 = 2 for block 1. */
static void nf4_nested_absmax_adds_its_offset_last(void **state) {
    static const uint8_t codes[] = {0x12, 0x21}, absmax_codes[] = {7, 200};
    static const float map[DFX_NF4_MAP] = {0, 1, 100}, nested_absmax[] = {8, 2},
                       nested_map[DFX_NF4_NESTED_MAP] = {[7] = 0.25f, [200] = 0.5f};
    dfx_nf4 q = {.codes = codes,
                 .quant_map = map,
                 .absmax_codes = absmax_codes,
                 .nested_absmax = nested_absmax,
                 .nested_quant_map = nested_map,
                 .nested_offset = 1,
                 .block = 2,
                 .nested_block = 1};
    decodes_any_range_to(&q, 0, 4, (float[]){3, 300, 200, 2});
}

static void nf4_and_fp4_give_the_golden_bits(void **state) {
    const dfx_tensors *set = *state;
    uint8_t *codes = bytes_of(set, "nf4.codes");
    float *nf4 = bytes_of(set, "nf4.map"), *fp4 = bytes_of(set, "fp4.map"),
          *absmax = bytes_of(set, "nf4.absmax"), *nf4_values = bytes_of(set, "nf4.values"),
          *fp4_values = bytes_of(set, "fp4.values");
    dfx_nf4 q = {.codes = codes, .quant_map = nf4, .absmax = absmax, .block = 64};
    decodes_any_range_to(&q, 0, count_of(set, "nf4.values"), nf4_values);
    q.quant_map = fp4;
    decodes_any_range_to(&q, 0, count_of(set, "fp4.values"), fp4_values);
    free(codes), free(nf4), free(fp4), free(absmax), free(nf4_values), free(fp4_values);
}

static void nf4_nested_gives_the_golden_bits_across_nested_blocks(void **state) {
    const dfx_tensors *set = *state;
    uint8_t *codes = bytes_of(set, "nested.codes"), *inner = bytes_of(set, "nested.absmax");
    float *map = bytes_of(set, "nf4.map"), *nested_map = bytes_of(set, "nested.nested_map"),
          *nested_absmax = bytes_of(set, "nested.nested_absmax"),
          *offset = bytes_of(set, "nested.offset"), *values = bytes_of(set, "nested.values");
    dfx_nf4 q = {.codes = codes,
                 .quant_map = map,
                 .absmax_codes = inner,
                 .nested_absmax = nested_absmax,
                 .nested_quant_map = nested_map,
                 .nested_offset = *offset,
                 .block = 64,
                 .nested_block = 256};
    decodes_any_range_to(&q, 255 * 64, count_of(set, "nested.values"), values);
    free(codes), free(inner), free(map), free(nested_map), free(nested_absmax), free(offset);
    free(values);
}

static void llm_int8_by_hand(void **state) {
    static const int8_t codes[] = {127, -127, 0, 1};
    static const float absmax[] = {2, 254};
    float got[4];
    dfx_llm_int8_decode(codes, absmax, 2, 0, 4, got);
    assert_memory_equal(got, ((float[]){2, -2, 0, 2}), sizeof(got));
}

static void llm_int8_gives_the_golden_bits_for_any_range(void **state) {
    const dfx_tensors *set = *state;
    int8_t *codes = bytes_of(set, "int8.codes");
    float *scb = bytes_of(set, "int8.scb"), *want = bytes_of(set, "int8.values"), got[5 * 37];
    int64_t n = count_of(set, "int8.codes");
    assert_int_equal(n, DFX_COUNT(got));
    for (int64_t step = 1; step <= n; step++) {
        memset(got, 0xff, sizeof(got));
        for (int64_t at = 0; at < n; at += step)
            dfx_llm_int8_decode(codes, scb, 37, at, n - at < step ? n - at : step, got + at);
        assert_memory_equal(got, want, sizeof(got));
    }
    free(codes), free(scb), free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_even_element_is_the_high_nibble),
        cmocka_unit_test(nf4_nested_absmax_adds_its_offset_last),
        cmocka_unit_test(nf4_and_fp4_give_the_golden_bits),
        cmocka_unit_test(nf4_nested_gives_the_golden_bits_across_nested_blocks),
        cmocka_unit_test(llm_int8_by_hand),
        cmocka_unit_test(llm_int8_gives_the_golden_bits_for_any_range),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
