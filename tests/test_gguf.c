/* GGUF files: one that ggml's own writer made (tests/golden/make_gguf.py), and hand-made ones that break one rule each. */
#include "tests/ggfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gguf.h"
#include "offload/packed.h"
#include "tests/stfile.h"

enum { F32 = 0, Q8_0 = 8, Q4_K = 12 }; /* type ids */
enum { V_U8, V_I8, V_U16, V_I16, V_U32, V_I32, V_F32, V_BOOL, V_STRING, V_ARRAY, V_U64 };

#define DIMS(...)   \
    (uint64_t[]) {  \
        __VA_ARGS__ \
    }

/* A file of one F32 tensor "w" of 8 values, with nothing wrong. */
static ggfile plain_file(void) {
    ggfile f = {0};
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "w", F32, 0, 1, DIMS(8));
    ggfile_data(&f, 32, 32);
    return f;
}

/* ---- what ggml writes ---- */

static dfx_tensors *open_golden(const char *name) {
    char path[256];
    dfx_tensors *set = NULL;
    snprintf(path, sizeof(path), "tests/golden/%s", name);
    assert_int_equal(dfx_tensors_open_file(path, NULL, &set), DFX_OK);
    return set;
}

static void shape_is(const dfx_tensors *set, const char *name, const char *words) {
    char text[DFX_SHAPE_TEXT];
    const dfx_tensor *t = dfx_tensors_find(set, name);
    assert_non_null(t);
    assert_string_equal(dfx_tensor_shape_text(t, text), words);
}

static void values_are(const dfx_tensors *set, const char *name, const float *want, size_t n) {
    const dfx_tensor *t = dfx_tensors_find(set, name);
    assert_non_null(t);
    float *got = malloc(n * sizeof(*got));
    assert_non_null(got);
    assert_int_equal(t->n_elements, n);
    assert_int_equal(dfx_tensors_read_f32(set, t, NULL, got), DFX_OK);
    assert_memory_equal(got, want, n * sizeof(*got));
    free(got);
}

static void gguf_of_ggml_has_its_tensors(void **state) {
    dfx_tensors *set = open_golden("types.gguf");
    assert_int_equal(dfx_tensors_count(set), 16);
    shape_is(set, "plain.f32", "F32 [2, 3]");
    shape_is(set, "plain.f16", "F16 [5]");
    shape_is(set, "plain.bf16", "BF16 [1, 2]");
    shape_is(set, "block.Q8_0.weight", "Q8_0 [39, 32]");
    shape_is(set, "block.Q6_K.weight", "Q6_K [9, 256]");
    values_are(set, "plain.f32", (float[]){0, 1, 2, 3, 4, 5}, 6);
    values_are(set, "plain.f16", (float[]){0, 1, 2, 3, 4}, 5);
    values_are(set, "plain.bf16", (float[]){1, -2}, 2);
    values_are(set, "plain.i8", (float[]){-128, 127}, 2);
    values_are(set, "plain.i64", (float[]){-1, 0x1p40f}, 2);
    values_are(set, "plain.f64", (float[]){0x1.555556p-2f}, 1);
    assert_string_equal(dfx_tensors_file_format(set, 0), "GGUF");
    dfx_tensors_close(set);
}

static void gguf_of_ggml_has_the_golden_values_of_each_type(void **state) {
    dfx_tensors *set = open_golden("types.gguf"), *golden = open_golden("ggml_blocks.safetensors");
    for (dfx_dtype d = DFX_DTYPE_Q4_0; dfx_dtype_is_ggml(d); d = (dfx_dtype)(d + 1)) {
        char name[40];
        snprintf(name, sizeof(name), "%s.values", dfx_dtype_name(d));
        const dfx_tensor *values = dfx_tensors_find(golden, name);
        float *want = malloc(values->bytes);
        assert_non_null(want);
        assert_int_equal(dfx_tensors_read(golden, values, NULL, want), DFX_OK);
        snprintf(name, sizeof(name), "block.%s.weight", dfx_dtype_name(d));
        values_are(set, name, want, values->n_elements);
        free(want);
    }
    dfx_tensors_close(golden);
    dfx_tensors_close(set);
}

static void gguf_metadata_holds_strings_and_the_keys_of_the_rest(void **state) {
    dfx_tensors *set = open_golden("types.gguf");
    const char *value = "";
    assert_string_equal(dfx_tensors_metadata(set, "general.architecture"), "flux");
    assert_string_equal(dfx_tensors_metadata(set, "general.name"), "every type");
    assert_null(dfx_tensors_metadata(set, "general.file_type"));
    assert_null(dfx_tensors_metadata(set, "none"));
    assert_int_equal(dfx_tensors_n_metadata(set), 9);
    assert_string_equal(dfx_tensors_metadata_at(set, 0, &value), "a.bool");
    assert_null(value);
    dfx_tensors_close(set);
}

/* More than a chunk of reading, which must hold whole blocks: 1 MiB is no multiple of 34. */
static void gguf_large_tensor_is_widened_in_whole_blocks(void **state) {
    enum { BLOCKS = 70000 };
    ggfile f = {0};
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "w", Q8_0, 0, 2, DIMS(32, BLOCKS));
    ggfile_data(&f, 32, 0);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char block[34] = {0, 0x3c}; /* d = 1 */
        block[2] = (unsigned char)(i % 100);
        block[33] = 0x80;
        ggfile_bytes(&f, block, sizeof(block));
    }
    dfx_tensors *set = ggfile_accepts(*state, &f);
    float *got = malloc(BLOCKS * 32 * sizeof(*got));
    assert_non_null(got);
    assert_int_equal(dfx_tensors_read_f32(set, dfx_tensors_at(set, 0), NULL, got), DFX_OK);
    for (int i = 0; i < BLOCKS; i++)
        assert_true(got[32 * i] == (float)(i % 100) && got[32 * i + 31] == -128 &&
                    got[32 * i + 1] == 0);
    free(got);
    dfx_tensors_close(set);
}

/* ---- A17: counts and lengths ---- */

static void gguf_empty_file_of_versions_2_and_3_is_accepted(void **state) {
    for (uint32_t version = 2; version <= 3; version++) {
        ggfile f = {0};
        ggfile_head(&f, version, 0, 0);
        dfx_tensors *set = ggfile_accepts(*state, &f);
        assert_int_equal(dfx_tensors_count(set), 0);
        assert_int_equal(dfx_tensors_bytes(set), 0);
        dfx_tensors_close(set);
    }
}

static void gguf_other_versions_are_rejected(void **state) {
    static const struct {
        uint32_t version;
        const char *words;
    } table[] = {{0, "version 0; versions 2 and 3"},
                 {1, "version 1; versions 2 and 3"},
                 {4, "version 4; versions 2 and 3"},
                 {0x03000000, "big-endian"}};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ggfile f = {0};
        ggfile_head(&f, table[i].version, 0, 0);
        ggfile_rejects(*state, &f, table[i].words);
    }
}

static void gguf_wrong_magic_is_rejected(void **state) {
    ggfile f = {0};
    ggfile_head(&f, 3, 0, 0);
    memcpy(f.bytes, "FUGG", 4);
    ggfile_rejects(*state, &f, "no safetensors or GGUF file");
}

static void gguf_counts_beyond_the_file_are_rejected(void **state) {
    ggfile f = {0};
    ggfile_head(&f, 3, UINT64_MAX, 0);
    ggfile_rejects(*state, &f, "18446744073709551615 tensors in a file of 24 bytes");
    ggfile_head(&f, 3, 0, UINT64_MAX);
    ggfile_rejects(*state, &f, "18446744073709551615 keys in a file of 24 bytes");
    ggfile_head(&f, 3, 1, 0);
    ggfile_rejects(*state, &f, "1 tensors in a file of 24 bytes");
}

static void gguf_lengths_beyond_the_file_are_rejected(void **state) {
    tmpdir *dir = *state;
    ggfile f = {0};
    ggfile_head(&f, 3, 0, 1);
    ggfile_u64(&f, (uint64_t)1 << 63);
    ggfile_bytes(&f, NULL, 20);
    ggfile_rejects(dir, &f,
                   "a key takes 9223372036854775808 bytes from byte 32 on, the file has 52");
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "k", V_STRING);
    ggfile_u64(&f, (uint64_t)1 << 40);
    ggfile_bytes(&f, NULL, 15);
    ggfile_rejects(dir, &f, "a value takes 1099511627776 bytes");
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "k", V_ARRAY);
    ggfile_u32(&f, V_U8);
    ggfile_u64(&f, (uint64_t)1 << 62);
    ggfile_rejects(dir, &f, "key \"k\": an array of 4611686018427387904 values");
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "k", V_ARRAY);
    ggfile_u32(&f, V_U64);
    ggfile_u64(&f, (uint64_t)1 << 61); /* times 8 is 0 */
    ggfile_rejects(dir, &f, "key \"k\": an array of 2305843009213693952 values");
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "k", V_ARRAY);
    ggfile_u32(&f, V_STRING);
    ggfile_u64(&f, 2);
    ggfile_text(&f, "in");
    ggfile_u64(&f, UINT64_MAX);
    ggfile_rejects(dir, &f, "a string of an array takes 18446744073709551615 bytes");
}

static void gguf_values_of_wrong_types_are_rejected(void **state) {
    static const uint32_t unknown[] = {13, (uint32_t)1 << 31, UINT32_MAX};
    tmpdir *dir = *state;
    ggfile f = {0};
    for (size_t i = 0; i < DFX_COUNT(unknown); i++) {
        ggfile_head(&f, 3, 0, 1);
        ggfile_key(&f, "k", unknown[i]);
        ggfile_bytes(&f, NULL, 16);
        ggfile_rejects(dir, &f, "key \"k\": unknown value type ");
        ggfile_head(&f, 3, 0, 1);
        ggfile_key(&f, "k", V_ARRAY);
        ggfile_u32(&f, unknown[i]);
        ggfile_u64(&f, 1);
        ggfile_bytes(&f, NULL, 16);
        ggfile_rejects(dir, &f, "key \"k\": an array of unknown element type ");
    }
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "k", V_ARRAY);
    ggfile_u32(&f, V_ARRAY);
    ggfile_u64(&f, 1);
    ggfile_bytes(&f, NULL, 16);
    ggfile_rejects(dir, &f, "key \"k\": an array of arrays");
}

static void gguf_bad_keys_are_rejected(void **state) {
    tmpdir *dir = *state;
    ggfile f = {0};
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "", V_U32);
    ggfile_u32(&f, 1);
    ggfile_rejects(dir, &f, "a key before byte 32 is empty");
    ggfile_head(&f, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        ggfile_key(&f, "twin", i == 0 ? V_U32 : V_I32);
        ggfile_u32(&f, 1);
    }
    ggfile_rejects(dir, &f, "duplicate key \"twin\"");
    ggfile_head(&f, 3, 0, 1);
    ggfile_u64(&f, 3);
    ggfile_bytes(&f, "a\0b", 3);
    ggfile_u32(&f, V_U32);
    ggfile_u32(&f, 1);
    ggfile_rejects(dir, &f, "a key \"a\" is not UTF-8, or holds a NUL");
    ggfile_head(&f, 3, 0, 1);
    ggfile_key(&f, "a\xc0\xaf", V_U32);
    ggfile_u32(&f, 1);
    ggfile_rejects(dir, &f, "a key \"a??\" is not UTF-8");
}

/* ---- A18: alignment ---- */

static void put_align(ggfile *f, uint32_t type, uint32_t value) {
    ggfile_head(f, 3, 1, 1);
    ggfile_key(f, "general.alignment", type);
    ggfile_u32(f, value);
    ggfile_tensor(f, "w", F32, 0, 1, DIMS(8));
}

static void gguf_alignment_that_is_no_power_of_two_is_rejected(void **state) {
    static const uint32_t values[] = {0,         3, 13, 33, (uint32_t)1 << 30, (uint32_t)1 << 31,
                                      UINT32_MAX};
    for (size_t i = 0; i < DFX_COUNT(values); i++) {
        ggfile f = {0};
        put_align(&f, V_U32, values[i]);
        ggfile_data(&f, 32, 32);
        ggfile_rejects(*state, &f,
                       "key \"general.alignment\": wanted a power of two up to 1048576");
    }
}

static void gguf_alignment_of_another_type_is_rejected(void **state) {
    ggfile f = {0};
    put_align(&f, V_I32, 32);
    ggfile_data(&f, 32, 32);
    ggfile_rejects(*state, &f, "wanted a u32 (value type 4), found value type 5");
    ggfile_head(&f, 3, 1, 1);
    ggfile_key(&f, "general.alignment", V_STRING);
    ggfile_text(&f, "32");
    ggfile_tensor(&f, "w", F32, 0, 1, DIMS(8));
    ggfile_data(&f, 32, 32);
    ggfile_rejects(*state, &f, "wanted a u32 (value type 4), found value type 8");
}

static void gguf_data_begins_at_the_alignment(void **state) {
    static const uint32_t aligns[] = {1, 8, 32, 64, 4096};
    for (size_t i = 0; i < DFX_COUNT(aligns); i++) {
        ggfile f = {0};
        uint64_t second = aligns[i] > 4 ? aligns[i] : 4;
        ggfile_head(&f, 3, 2, 1);
        ggfile_key(&f, "general.alignment", V_U32);
        ggfile_u32(&f, aligns[i]);
        ggfile_tensor(&f, "a", 24, 0, 1, DIMS(4)); /* I8 */
        ggfile_tensor(&f, "b", 24, second, 1, DIMS(4));
        ggfile_data(&f, aligns[i], 4);
        ggfile_data(&f, aligns[i], 4);
        size_t end = f.n;
        dfx_tensors *set = ggfile_accepts(*state, &f);
        assert_int_equal(dfx_tensors_at(set, 1)->off, end - 4);
        assert_int_equal(dfx_tensors_at(set, 0)->off, end - 4 - second);
        values_are(set, "b", (float[]){1, 2, 3, 4}, 4);
        dfx_tensors_close(set);
    }
}

static void gguf_without_alignment_has_32(void **state) {
    ggfile f = plain_file();
    dfx_tensors *set = ggfile_accepts(*state, &f);
    assert_int_equal(dfx_tensors_at(set, 0)->off, 64);
    dfx_tensors_close(set);
}

/* ---- A20: types, rows, offsets, names ---- */

static void gguf_unknown_types_are_rejected_by_name_and_id(void **state) {
    static const struct {
        uint32_t id;
        const char *words;
    } table[] = {{4, "tensor \"w\" (type id 4): this type is not read: Q4_2, removed"},
                 {5, "tensor \"w\" (type id 5): this type is not read: Q4_3, removed"},
                 {20, "tensor \"w\" (type id 20): this type is not read: IQ4_NL"},
                 {200, "tensor \"w\" (type id 200): this type is not read: unknown"},
                 {(uint32_t)1 << 31, "tensor \"w\" (type id 2147483648): this type"}};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ggfile f = {0};
        ggfile_head(&f, 3, 1, 0);
        ggfile_tensor(&f, "w", table[i].id, 0, 1, DIMS(256));
        ggfile_data(&f, 32, 1024);
        ggfile_rejects(*state, &f, table[i].words);
    }
}

static void gguf_rows_that_cut_blocks_are_rejected(void **state) {
    ggfile f = {0};
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "w", Q8_0, 0, 2, DIMS(33, 32));
    ggfile_data(&f, 32, 2000);
    ggfile_rejects(
        *state, &f,
        "tensor \"w\" (type id 8): its rows are not whole blocks of 32 values: Q8_0 [32, 33]");
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "img_in.weight", Q4_K, 0, 2, DIMS(64, 3072));
    ggfile_data(&f, 32, 2000);
    ggfile_rejects(*state, &f,
                   "tensor \"img_in.weight\" (type id 12): its rows are not whole blocks of 256");
}

static void gguf_bad_dimensions_are_rejected(void **state) {
    static const struct {
        uint64_t dims[2];
        const char *words;
    } table[] = {{{0, 4}, "tensor \"w\": a dimension of 0"},
                 {{4, UINT64_MAX}, "tensor \"w\": a dimension of 18446744073709551615"},
                 {{(uint64_t)1 << 32, (uint64_t)1 << 32},
                  "tensor \"w\" (type id 0): its number of elements overflows"},
                 {{(uint64_t)1 << 31, (uint64_t)1 << 31},
                  "tensor \"w\" (type id 0): its number of elements overflows"}};
    ggfile f = {0};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ggfile_head(&f, 3, 1, 0);
        ggfile_tensor(&f, "w", F32, 0, 2, table[i].dims);
        ggfile_data(&f, 32, 64);
        ggfile_rejects(*state, &f, table[i].words);
    }
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "w", F32, 0, 5, DIMS(1, 1, 1, 1, 1));
    ggfile_data(&f, 32, 4);
    ggfile_rejects(*state, &f, "tensor \"w\": 5 dimensions where at most 4 are allowed");
}

/* Two tensors of 32 bytes; the second should be at 32. */
static void gguf_bad_offsets_are_rejected(void **state) {
    static const struct {
        uint64_t first, second;
        const char *words;
    } table[] = {
        {0, 33, "tensor \"b\" (type id 0): offset 33 is no multiple of the alignment 32"},
        {0, 0, "tensor \"b\" (type id 0): offset 0 where 32 follows"},
        {32, 0, "tensor \"a\" (type id 0): offset 32 where 0 follows"},
        {0, 64, "tensor \"b\" (type id 0): offset 64 where 32 follows"},
        {0, (uint64_t)1 << 40, "offset 1099511627776 where 32 follows"},
        {0, UINT64_MAX - 31, "offset 18446744073709551584 where 32 follows"},
    };
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        ggfile f = {0};
        ggfile_head(&f, 3, 2, 0);
        ggfile_tensor(&f, "a", F32, table[i].first, 1, DIMS(8));
        ggfile_tensor(&f, "b", F32, table[i].second, 1, DIMS(8));
        ggfile_data(&f, 32, 128);
        ggfile_rejects(*state, &f, table[i].words);
    }
}

static void gguf_sizes_that_add_up_past_2_to_the_63_are_rejected(void **state) {
    ggfile f = {0};
    uint64_t half = (uint64_t)1 << 62;
    ggfile_head(&f, 3, 3, 0);
    ggfile_tensor(&f, "a", 24, 0, 1, DIMS(half));
    ggfile_tensor(&f, "b", 24, half, 1, DIMS(half - 32));
    ggfile_tensor(&f, "c", 24, 2 * half - 32, 1, DIMS(half));
    ggfile_data(&f, 32, 64);
    ggfile_rejects(*state, &f, "tensor \"c\" (type id 24) ends past 2^63 bytes");
}

static void gguf_duplicate_and_empty_names_are_rejected(void **state) {
    ggfile f = {0};
    ggfile_head(&f, 3, 2, 0);
    ggfile_tensor(&f, "w", F32, 0, 1, DIMS(8));
    ggfile_tensor(&f, "w", F32, 32, 1, DIMS(8));
    ggfile_data(&f, 32, 64);
    ggfile_rejects(*state, &f, "duplicate tensor name \"w\"");
    ggfile_head(&f, 3, 1, 0);
    ggfile_tensor(&f, "", F32, 0, 1, DIMS(8));
    ggfile_data(&f, 32, 32);
    ggfile_rejects(*state, &f, "a tensor before byte 32 has no name");
}

static void gguf_long_names_are_found(void **state) {
    static const size_t lengths[] = {63, 64, 69, 100, 127, 1 << 20};
    for (size_t i = 0; i < DFX_COUNT(lengths); i++) {
        ggfile f = {0};
        char *name = calloc(1, lengths[i] + 1);
        assert_non_null(name);
        memset(name, 'n', lengths[i]);
        ggfile_head(&f, 3, 1, 0);
        ggfile_tensor(&f, name, F32, 0, 1, DIMS(8));
        ggfile_data(&f, 32, 32);
        dfx_tensors *set = ggfile_accepts(*state, &f);
        assert_non_null(dfx_tensors_find(set, name));
        dfx_tensors_close(set);
        free(name);
    }
}

/* ---- A14: truncated, and longer than it should be ---- */

static void gguf_cut_at_any_byte_is_rejected(void **state) {
    tmpdir *dir = *state;
    size_t n_bytes;
    dfx_tensors *set;
    ggfile whole = {0};
    ggfile_head(&whole, 3, 2, 2);
    ggfile_key(&whole, "general.architecture", V_STRING);
    ggfile_text(&whole, "flux");
    ggfile_key(&whole, "k", V_ARRAY);
    ggfile_u32(&whole, V_STRING);
    ggfile_u64(&whole, 2);
    ggfile_text(&whole, "one");
    ggfile_text(&whole, "two");
    ggfile_tensor(&whole, "a", F32, 0, 2, DIMS(4, 3));
    ggfile_tensor(&whole, "b", Q8_0, 64, 1, DIMS(32));
    ggfile_data(&whole, 32, 98);
    n_bytes = whole.n;
    for (size_t n = 4; n < n_bytes; n++) {
        ggfile f = {0};
        ggfile_bytes(&f, whole.bytes, n);
        ggfile_rejects(dir, &f, n < n_bytes - 98 ? "" : "bytes short");
    }
    assert_int_equal(ggfile_open(dir, &whole, &set), DFX_OK);
    dfx_tensors_close(set);
}

static void gguf_short_file_is_told_with_both_sizes(void **state) {
    ggfile f = plain_file();
    f.n -= 1;
    ggfile_rejects(*state, &f, "the file is 1 bytes short: 96 expected, 95 found");
}

/* Writers pad the last tensor or not. */
static void gguf_padding_after_the_last_tensor_may_be_there(void **state) {
    tmpdir *dir = *state;
    for (size_t extra = 0; extra <= 28; extra += 28) {
        ggfile f = {0};
        ggfile_head(&f, 3, 1, 0);
        ggfile_tensor(&f, "w", F32, 0, 1, DIMS(1));
        ggfile_data(&f, 32, 4);
        ggfile_bytes(&f, NULL, extra);
        dfx_tensors_close(ggfile_accepts(dir, &f));
    }
    ggfile f = plain_file();
    dfx_tensors *set;
    ggfile_bytes(&f, NULL, 34);
    assert_int_equal(ggfile_open(dir, &f, &set), DFX_OK);
    said_words(&dir->log, DFX_WARN, "34 bytes after the last tensor");
    dfx_tensors_close(set);
}

/* ---- A13: names of files mean nothing ---- */

static void gguf_named_safetensors_is_opened(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_tensors *set;
    ggfile f = plain_file();
    tmpdir_write(dir, "m.safetensors", f.bytes, f.n);
    ggfile_free(&f);
    assert_int_equal(
        dfx_tensors_open_file(tmpdir_join(dir, "m.safetensors", path), &dir->log.sink, &set),
        DFX_OK);
    assert_int_equal(dfx_tensors_count(set), 1);
    dfx_tensors_close(set);
}

static void safetensors_named_gguf_is_opened(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_tensors *set;
    stfile_write(dir, ggfile_name,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", NULL, 1);
    assert_int_equal(
        dfx_tensors_open_file(tmpdir_join(dir, ggfile_name, path), &dir->log.sink, &set), DFX_OK);
    assert_string_equal(dfx_tensors_file_format(set, 0), "safetensors");
    dfx_tensors_close(set);
}

/* ---- what it is not ---- */

static void gguf_with_the_keys_of_a_packed_model_is_none(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_packed *packed = NULL;
    ggfile f = {0};
    ggfile_head(&f, 3, 1, 1);
    ggfile_key(&f, "dfx.version", V_STRING);
    ggfile_text(&f, "1");
    ggfile_tensor(&f, "transformer.w", Q8_0, 0, 1, DIMS(32));
    ggfile_data(&f, 32, 34);
    tmpdir_write(dir, ggfile_name, f.bytes, f.n);
    ggfile_free(&f);
    tmpdir_join(dir, ggfile_name, path);
    assert_false(dfx_packed_is(path));
    assert_int_equal(dfx_packed_open(path, &dir->log.sink, &packed), DFX_E_FORMAT);
    said_error(&dir->log, "a GGUF file, not a packed model");
}

/* ---- faults ---- */

static void gguf_survives_every_failing_allocation(void **state) {
    tmpdir *dir = *state;
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 1;
    for (; status != DFX_OK; nth++) {
        dfx_tensors *set = NULL;
        dfx_mem_fail_nth(nth);
        recorder_clear(&dir->log);
        status = dfx_tensors_open_file("tests/golden/types.gguf", &dir->log.sink, &set);
        dfx_mem_fail_nth(0);
        if (status != DFX_OK)
            assert_int_equal(status, DFX_E_NOFIT);
        dfx_tensors_close(set);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_in_range(nth, 5, 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_of_ggml_has_its_tensors),
        cmocka_unit_test(gguf_of_ggml_has_the_golden_values_of_each_type),
        cmocka_unit_test(gguf_metadata_holds_strings_and_the_keys_of_the_rest),
        TEST(gguf_large_tensor_is_widened_in_whole_blocks),
        TEST(gguf_empty_file_of_versions_2_and_3_is_accepted),
        TEST(gguf_other_versions_are_rejected),
        TEST(gguf_wrong_magic_is_rejected),
        TEST(gguf_counts_beyond_the_file_are_rejected),
        TEST(gguf_lengths_beyond_the_file_are_rejected),
        TEST(gguf_values_of_wrong_types_are_rejected),
        TEST(gguf_bad_keys_are_rejected),
        TEST(gguf_alignment_that_is_no_power_of_two_is_rejected),
        TEST(gguf_alignment_of_another_type_is_rejected),
        TEST(gguf_data_begins_at_the_alignment),
        TEST(gguf_without_alignment_has_32),
        TEST(gguf_unknown_types_are_rejected_by_name_and_id),
        TEST(gguf_rows_that_cut_blocks_are_rejected),
        TEST(gguf_bad_dimensions_are_rejected),
        TEST(gguf_bad_offsets_are_rejected),
        TEST(gguf_sizes_that_add_up_past_2_to_the_63_are_rejected),
        TEST(gguf_duplicate_and_empty_names_are_rejected),
        TEST(gguf_long_names_are_found),
        TEST(gguf_cut_at_any_byte_is_rejected),
        TEST(gguf_short_file_is_told_with_both_sizes),
        TEST(gguf_padding_after_the_last_tensor_may_be_there),
        TEST(gguf_named_safetensors_is_opened),
        TEST(safetensors_named_gguf_is_opened),
        TEST(gguf_with_the_keys_of_a_packed_model_is_none),
        TEST(gguf_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
