/* A GGUF file as the source of a packed model: scales are chosen so that every value, code and scale is known by hand. */
#include <stdlib.h>
#include <string.h>

#include "tests/ggfile.h"
#include "tests/pack_rig.h"

enum { ROWS = PRIG_ROWS, COLS = PRIG_COLS, NORM_ROWS = 8, F32 = 0, Q4_0 = 2, Q8_0 = 8 };

/* What block byte i of any tensor holds; every 32 of them hold a 127. */
static int8_t code_at(int64_t i) {
    return (int8_t)(i % 32 == 5 ? 127 : i * 7 % 251 - 125);
}

static void put_half(ggfile *f, uint16_t bits) {
    ggfile_bytes(f, &bits, sizeof(bits));
}

/* d = 1, so a row's values are its codes; its greatest is 127, so the scale of int8 is 1 and its codes are the same. */
static void put_q8_0(ggfile *f, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int8_t code = code_at(i);
        if (i % 32 == 0)
            put_half(f, 0x3c00);
        ggfile_bytes(f, &code, 1);
    }
}

/* d = 2, nibbles 0 and 15: -16 and 14. */
static void put_q4_0(ggfile *f, int64_t n) {
    for (int64_t i = 0; i < n; i += 32) {
        unsigned char nibbles[16];
        memset(nibbles, 0xf0, sizeof(nibbles));
        put_half(f, 0x4000);
        ggfile_bytes(f, nibbles, sizeof(nibbles));
    }
}

/* The rig's checkpoint as GGUF; dfx_tensors_close() by the caller. */
static dfx_tensors *open_source(pack_rig *r) {
    static const struct {
        const char *name;
        uint32_t type, n_dims;
        uint64_t dims[2];
        size_t bytes;
    } list[] = {
        {"transformer_blocks.0.attn.to_q.weight", Q8_0, 2, {COLS, ROWS}, ROWS * COLS / 32 * 34},
        {"transformer_blocks.0.attn.to_q.bias", F32, 1, {ROWS}, ROWS * 4},
        {"transformer_blocks.0.norm1.linear.weight",
         Q4_0,
         2,
         {COLS, NORM_ROWS},
         NORM_ROWS * COLS / 32 * 18},
        {"proj_out.weight", F32, 2, {COLS, 3}, 3 * COLS * 4},
        {"proj_out.bias", F32, 1, {3}, 12},
        {"tail.weight", Q8_0, 2, {COLS, PRIG_TAIL_ROWS}, PRIG_TAIL_ROWS * COLS / 32 * 34},
    };
    ggfile f = {0};
    size_t off = 0;
    ggfile_head(&f, 3, DFX_COUNT(list), 0);
    for (size_t i = 0; i < DFX_COUNT(list); i++) {
        ggfile_tensor(&f, list[i].name, list[i].type, off, list[i].n_dims, list[i].dims);
        off = (off + list[i].bytes + 31) / 32 * 32;
    }
    for (size_t i = 0; i < DFX_COUNT(list); i++) {
        ggfile_data(&f, 32, 0);
        if (list[i].type == Q8_0)
            put_q8_0(&f, (int64_t)(list[i].dims[0] * list[i].dims[1]));
        else if (list[i].type == Q4_0)
            put_q4_0(&f, (int64_t)(list[i].dims[0] * list[i].dims[1]));
        else
            ggfile_bytes(&f, NULL, list[i].bytes);
    }
    return ggfile_accepts(r->dir, &f);
}

/* Pack it and open the result. */
static dfx_packed *pack(pack_rig *r, dfx_qformat quant) {
    dfx_tensors *source = open_source(r);
    dfx_program program;
    dfx_pack_options options = {.quant = quant, .n_threads = 2, .source = "here"};
    assert_int_equal(prig_build(source, r->sink, &program), DFX_OK);
    dfx_status status = prig_pack_program(r, &program, &options, "out");
    said_nothing(&r->dir->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    dfx_program_fini(&program);
    dfx_tensors_close(source);
    return prig_open(r, "out");
}

/* Values of the packed tensor, and that it has this type; free() by the caller. */
static float *values_of(const dfx_packed *packed, const char *name, dfx_dtype dtype) {
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    const dfx_tensor *t = dfx_tensors_find(set, name);
    assert_non_null(t);
    assert_string_equal(dfx_dtype_name(t->dtype), dfx_dtype_name(dtype));
    float *values = malloc(t->n_elements * sizeof(*values));
    assert_non_null(values);
    assert_int_equal(dfx_tensors_read_f32(set, t, NULL, values), DFX_OK);
    return values;
}

static void codes_are(const dfx_packed *packed, const char *name, dfx_dtype dtype, int64_t n) {
    float *values = values_of(packed, name, dtype);
    for (int64_t i = 0; i < n; i++)
        assert_true(values[i] == (float)code_at(i));
    free(values);
}

static void norm_is_bf16(const dfx_packed *packed) {
    float *values = values_of(packed, "transformer_blocks.0.norm1.linear.weight", DFX_DTYPE_BF16);
    for (int i = 0; i < NORM_ROWS * COLS; i++)
        assert_true(values[i] == (i % 32 < 16 ? -16.0f : 14.0f));
    free(values);
}

static void pack_gguf_int8_has_the_codes_and_keeps_the_rest_in_bf16(void **state) {
    dfx_packed *packed = pack(*state, DFX_Q_INT8);
    codes_are(packed, "transformer_blocks.0.attn.to_q.weight", DFX_DTYPE_I8, ROWS * COLS);
    float *scales = values_of(packed, "transformer_blocks.0.attn.to_q.weight_scale", DFX_DTYPE_F32);
    for (int i = 0; i < ROWS; i++)
        assert_true(scales[i] == 1.0f);
    free(scales);
    norm_is_bf16(packed);
    codes_are(packed, "tail.weight", DFX_DTYPE_BF16, PRIG_TAIL_ROWS * COLS);
    dfx_packed_close(packed);
}

static void pack_gguf_as_stored_becomes_bf16(void **state) {
    dfx_packed *packed = pack(*state, DFX_Q_STORED);
    codes_are(packed, "transformer_blocks.0.attn.to_q.weight", DFX_DTYPE_BF16, ROWS * COLS);
    codes_are(packed, "tail.weight", DFX_DTYPE_BF16, PRIG_TAIL_ROWS * COLS);
    free(values_of(packed, "proj_out.weight", DFX_DTYPE_F32));
    norm_is_bf16(packed);
    dfx_packed_close(packed);
}

static void pack_gguf_f32_is_exact(void **state) {
    dfx_packed *packed = pack(*state, DFX_Q_F32);
    codes_are(packed, "transformer_blocks.0.attn.to_q.weight", DFX_DTYPE_F32, ROWS * COLS);
    codes_are(packed, "tail.weight", DFX_DTYPE_F32, PRIG_TAIL_ROWS * COLS);
    dfx_packed_close(packed);
}

/* 448 / 127 is no power of two: codes are those of the row's values, within half a step of e4m3, 1/16. */
static void pack_gguf_fp8_is_within_half_a_step(void **state) {
    dfx_packed *packed = pack(*state, DFX_Q_FP8);
    float *codes = values_of(packed, "transformer_blocks.0.attn.to_q.weight", DFX_DTYPE_F8_E4M3);
    float *scales = values_of(packed, "transformer_blocks.0.attn.to_q.weight_scale", DFX_DTYPE_F32);
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        float want = code_at(i), lost = codes[i] * scales[i / COLS] - want;
        assert_true(scales[i / COLS] == 127.0f / 448.0f);
        assert_true(lost <= want * (want < 0 ? -1 : 1) / 15 &&
                    -lost <= want * (want < 0 ? -1 : 1) / 15);
    }
    free(codes);
    free(scales);
    dfx_packed_close(packed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, prig_setup, prig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pack_gguf_int8_has_the_codes_and_keeps_the_rest_in_bf16),
        TEST(pack_gguf_as_stored_becomes_bf16),
        TEST(pack_gguf_f32_is_exact),
        TEST(pack_gguf_fp8_is_within_half_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
