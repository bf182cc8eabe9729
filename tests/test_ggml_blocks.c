/* Block types of GGUF: every value of tests/golden/make_ggml_blocks.py bit for bit (written from the layouts and agreed with
 * ggml's own package), and rows of them as a source of each format of a packed model. */
#include "tests/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ggml_blocks.h"
#include "core/safetensors.h"
#include "quant/q_error.h"

static const char golden[] = "tests/golden/ggml_blocks.safetensors";

/* One type's blocks and values. */
typedef struct sample {
    dfx_dtype dtype;
    size_t n_values, n_bytes;
    uint8_t *blocks; /* owned */
    float *values;   /* owned */
} sample;

static int open_golden(void **state) {
    return dfx_tensors_open_file(golden, NULL, (dfx_tensors **)state);
}

static int close_golden(void **state) {
    dfx_tensors_close(*state);
    return 0;
}

static sample load(const dfx_tensors *set, dfx_dtype dtype) {
    char name[32];
    snprintf(name, sizeof(name), "%s.blocks", dfx_dtype_name(dtype));
    const dfx_tensor *blocks = dfx_tensors_find(set, name);
    snprintf(name, sizeof(name), "%s.values", dfx_dtype_name(dtype));
    const dfx_tensor *values = dfx_tensors_find(set, name);
    assert_non_null(blocks);
    assert_non_null(values);
    sample s = {.dtype = dtype,
                .n_values = values->n_elements,
                .n_bytes = blocks->bytes,
                .blocks = malloc(blocks->bytes),
                .values = malloc(values->bytes)};
    assert_true(s.blocks && s.values);
    assert_int_equal(dfx_tensors_read(set, blocks, NULL, s.blocks), DFX_OK);
    assert_int_equal(dfx_tensors_read(set, values, NULL, s.values), DFX_OK);
    return s;
}

static void unload(sample *s) {
    free(s->blocks);
    free(s->values);
}

#define EACH_TYPE(dtype) \
    for (dfx_dtype dtype = DFX_DTYPE_Q4_0; dfx_dtype_is_ggml(dtype); dtype = (dfx_dtype)(dtype + 1))

static void blocks_have_the_sizes_of_the_format(void **state) {
    static const struct {
        dfx_dtype dtype;
        uint32_t elements, bytes;
        double bits;
    } table[] = {{DFX_DTYPE_Q4_0, 32, 18, 4.5},      {DFX_DTYPE_Q4_1, 32, 20, 5},
                 {DFX_DTYPE_Q5_0, 32, 22, 5.5},      {DFX_DTYPE_Q5_1, 32, 24, 6},
                 {DFX_DTYPE_Q8_0, 32, 34, 8.5},      {DFX_DTYPE_Q2_K, 256, 84, 2.625},
                 {DFX_DTYPE_Q3_K, 256, 110, 3.4375}, {DFX_DTYPE_Q4_K, 256, 144, 4.5},
                 {DFX_DTYPE_Q5_K, 256, 176, 5.5},    {DFX_DTYPE_Q6_K, 256, 210, 6.5625}};
    size_t n = 0;
    EACH_TYPE(dtype) n++;
    assert_int_equal(n, DFX_COUNT(table));
    for (size_t i = 0; i < n; i++) {
        dfx_dtype_block block = dfx_dtype_block_of(table[i].dtype);
        assert_int_equal(block.elements, table[i].elements);
        assert_int_equal(block.bytes, table[i].bytes);
        assert_true(dfx_dtype_bits(table[i].dtype) == table[i].bits);
        assert_int_equal(dfx_dtype_size(table[i].dtype, 3 * block.elements), 3 * block.bytes);
        assert_int_equal(dfx_dtype_bytes(table[i].dtype), 0);
        assert_true(dfx_dtype_is_numeric(table[i].dtype));
    }
}

static void blocks_decode_to_the_golden_bits(void **state) {
    EACH_TYPE(dtype) {
        sample s = load(*state, dtype);
        dfx_dtype_block block = dfx_dtype_block_of(dtype);
        float *got = malloc(s.n_values * sizeof(*got));
        assert_non_null(got);
        assert_int_equal(s.n_values / block.elements * block.bytes, s.n_bytes);
        assert_true(dfx_to_f32(dtype, s.blocks, got, s.n_values));
        for (size_t i = 0; i < s.n_values; i++)
            if (memcmp(&got[i], &s.values[i], sizeof(*got)) != 0)
                fail_msg("%s: block %zu, element %zu: %a, wanted %a", dfx_dtype_name(dtype),
                         i / block.elements, i % block.elements, (double)got[i],
                         (double)s.values[i]);
        free(got);
        unload(&s);
    }
}

/* A whole matrix may begin anywhere in a file. */
static void blocks_decode_at_odd_addresses(void **state) {
    EACH_TYPE(dtype) {
        sample s = load(*state, dtype);
        uint8_t *moved = malloc(s.n_bytes + 1);
        float *got = malloc(s.n_values * sizeof(*got));
        assert_true(moved && got);
        memcpy(moved + 1, s.blocks, s.n_bytes);
        assert_true(dfx_to_f32(dtype, moved + 1, got, s.n_values));
        assert_memory_equal(got, s.values, s.n_values * sizeof(*got));
        free(moved);
        free(got);
        unload(&s);
    }
}

static void cut_blocks_and_other_types_are_refused(void **state) {
    uint8_t bytes[512] = {0};
    float value = 7;
    EACH_TYPE(dtype) {
        assert_false(dfx_to_f32(dtype, bytes, &value, 1));
        assert_false(dfx_to_f32(dtype, bytes, &value, dfx_dtype_block_of(dtype).elements - 1));
        assert_false(dfx_from_f32(dtype, &value, bytes, 1));
        assert_true(dfx_to_f32(dtype, NULL, NULL, 0));
    }
    assert_false(dfx_ggml_to_f32(DFX_DTYPE_F32, bytes, &value, 1));
    assert_false(dfx_ggml_to_f32(DFX_N_DTYPES, bytes, &value, 1));
    assert_true(value == 7);
}

static void measuring_wants_rows_of_whole_blocks(void **state) {
    dfx_tensor t = {.dtype = DFX_DTYPE_Q4_K, .rank = 2, .shape = {3, 512}};
    assert_true(dfx_tensor_measure(&t));
    assert_int_equal(t.n_elements, 1536);
    assert_int_equal(t.bytes, 864);
    dfx_tensor cut = {.dtype = DFX_DTYPE_Q4_K, .rank = 2, .shape = {512, 3}};
    dfx_tensor scalar = {.dtype = DFX_DTYPE_Q8_0};
    dfx_tensor huge = {.dtype = DFX_DTYPE_Q8_0, .rank = 2, .shape = {INT64_MAX / 16, 32}};
    assert_false(dfx_tensor_measure(&cut));
    assert_false(dfx_tensor_measure(&scalar));
    assert_false(dfx_tensor_measure(&huge));
}

/* The bytes and scales that `format` makes of n_rows rows. */
static void encode(const sample *s, bool blocks, int64_t n_rows, dfx_qformat format, uint8_t *codes,
                   float *scales) {
    dfx_q_rows rows = {.name = "w",
                       .dtype = blocks ? s->dtype : DFX_DTYPE_F32,
                       .src = blocks ? (void *)s->blocks : s->values,
                       .n_rows = n_rows,
                       .cols = (int64_t)s->n_values / n_rows};
    dfx_q_error error = {0};
    memset(codes, 0, s->n_values * sizeof(float));
    assert_int_equal(dfx_q_encode_rows(&rows, format, codes, scales, NULL), DFX_OK);
    assert_true(dfx_q_error_rows(&error, &rows, format, codes, scales));
    assert_int_equal(error.n_values, s->n_values);
    if (format == DFX_Q_F32)
        assert_true(error.source_sq > 0 && error.error_sq == 0);
}

/* As one row, which is longer than a piece, and as a row a block. */
static void rows_of_blocks_encode_as_their_values(void **state) {
    static const dfx_qformat formats[] = {DFX_Q_F32, DFX_Q_BF16, DFX_Q_INT8, DFX_Q_INT8WO,
                                          DFX_Q_FP8};
    EACH_TYPE(dtype) {
        sample s = load(*state, dtype);
        int64_t n_blocks = (int64_t)(s.n_values / dfx_dtype_block_of(dtype).elements);
        uint8_t *codes[2] = {malloc(s.n_values * sizeof(float)),
                             malloc(s.n_values * sizeof(float))};
        float *scales = calloc((size_t)n_blocks, 2 * sizeof(float)), *others = scales + n_blocks;
        assert_true(codes[0] && codes[1] && scales);
        assert_true(s.n_values > 1024);
        for (size_t f = 0; f < DFX_COUNT(formats); f++)
            for (int64_t n_rows = 1; n_rows <= n_blocks; n_rows += n_blocks - 1) {
                bool scaled = dfx_q_has_row_scale(formats[f]);
                encode(&s, true, n_rows, formats[f], codes[0], scaled ? scales : NULL);
                encode(&s, false, n_rows, formats[f], codes[1], scaled ? others : NULL);
                assert_memory_equal(codes[0], codes[1], s.n_values * sizeof(float));
                assert_memory_equal(scales, others, (size_t)n_blocks * sizeof(float));
            }
        free(codes[0]);
        free(codes[1]);
        free(scales);
        unload(&s);
    }
}

static void rows_that_cut_blocks_are_refused(void **state) {
    uint8_t bytes[34] = {0}, codes[32];
    float scales[2];
    recorder log;
    recorder_init(&log);
    dfx_q_rows rows = {.name = "w", .dtype = DFX_DTYPE_Q8_0, .src = bytes, .n_rows = 2, .cols = 16};
    dfx_q_error error = {0};
    assert_int_equal(dfx_q_encode_rows(&rows, DFX_Q_INT8, codes, scales, &log.sink), DFX_E_FORMAT);
    said_error(&log, "w: rows of 16 values cut the blocks of Q8_0");
    assert_false(dfx_q_error_rows(&error, &rows, DFX_Q_INT8, codes, scales));
    recorder_fini(&log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_sizes_of_the_format),
        cmocka_unit_test(blocks_decode_to_the_golden_bits),
        cmocka_unit_test(blocks_decode_at_odd_addresses),
        cmocka_unit_test(cut_blocks_and_other_types_are_refused),
        cmocka_unit_test(measuring_wants_rows_of_whole_blocks),
        cmocka_unit_test(rows_of_blocks_encode_as_their_values),
        cmocka_unit_test(rows_that_cut_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
