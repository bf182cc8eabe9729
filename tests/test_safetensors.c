/* safetensors files: what is accepted reads back bit for bit; sizes, offsets and shapes that do not
 * fit the data are refused at open with one sentence. JSON of the header:
 * test_safetensors_header.c. */
#include "tests/stfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/safetensors.h"

static void safetensors_header_length_overflow_is_rejected(void **state) {
    tmpdir *dir = *state;
    static const struct {
        uint64_t length;
        const char *words;
    } table[] = {
        {UINT64_MAX, "header of 18446744073709551615 bytes where at most 100000000"},
        {UINT64_MAX - 7, "at most 100000000"},
        {(uint64_t)1 << 63, "at most 100000000"},
        {100000001, "header of 100000001 bytes where at most 100000000"},
        {100000000, "needs a file of 100000008 or more, found 80"},
        {73, "header of 73 bytes needs a file of 81 or more, found 80"},
        {0, "header of 0 bytes"},
    };
    char rest[73] = "{}";
    memset(rest + 2, ' ', 70);
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        stfile_write_raw(dir, stfile_name, table[i].length, rest, 72, NULL, 0);
        stfile_rejects(dir, table[i].words);
    }
    assert_true(dfx_mem_peak_bytes() < 1 << 20); /* the first test here, so the peak is its own */
}

static void safetensors_too_short_for_a_length_is_rejected(void **state) {
    tmpdir *dir = *state;
    tmpdir_write(dir, stfile_name, "", 0);
    stfile_rejects(dir, "the file is empty");
    tmpdir_write(dir, stfile_name, "\2\0\0\0\0\0\0", 7);
    stfile_rejects(dir, "a file of 7 bytes");
    tmpdir_write(dir, stfile_name, "\0\0\0\0\0\0\0\0", 8);
    stfile_rejects(dir, "header of 0 bytes");
    tmpdir_write(dir, stfile_name, "\2\0\0\0\0\0\0\0", 8);
    stfile_rejects(dir, "needs a file of 10 or more, found 8");
}

static void safetensors_shared_bytes_are_rejected(void **state) {
    tmpdir *dir = *state;
    char header[2048] = "{";
    for (int i = 0; i < 10; i++)
        sprintf(header + strlen(header),
                "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}",
                i ? "," : "", i);
    strcat(header, "}");
    stfile_rejects_header(dir, header, 16, "overlaps");
    stfile_rejects_header(
        dir,
        "{\"k\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"v\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]}}",
        24, "tensor \"v\" overlaps \"k\": it begins at 8, before the other's end at 16");
}

static void safetensors_entries_in_any_order_are_accepted(void **state) {
    tmpdir *dir = *state;
    static const float data[] = {1, 2, 3, 4};
    dfx_tensors *set =
        stfile_accepts_header(dir,
                              "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                              data, sizeof(data));
    stfile_reads_f32(dir, set, "a", 2, data + 2);
    stfile_reads_f32(dir, set, "b", 2, data);
    assert_int_equal(dfx_tensors_bytes(set), 16);
    dfx_tensors_close(set);
}

static void safetensors_holes_and_trailing_bytes_are_rejected(void **state) {
    tmpdir *dir = *state;
    static const char one[] = "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    stfile_rejects_header(dir, one, 16 + 34, "34 bytes after the last tensor");
    stfile_rejects_header(dir, one, 14, "the file is 2 bytes short");
    stfile_rejects_header(dir,
                          "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                          "\"b\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[20,36]}}",
                          36, "4 bytes before tensor \"b\" belong to no tensor");
    stfile_rejects_header(dir, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
                          "1 bytes before tensor \"a\"");
    stfile_rejects_header(dir, "{}", 1, "1 bytes after the last tensor");
}

static void safetensors_shape_unlike_the_bytes_is_rejected(void **state) {
    tmpdir *dir = *state;
    stfile_rejects_header(
        dir, "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[128,128],\"data_offsets\":[0,128]}}", 128,
        "tensor \"w\": F8_E4M3 [128, 128] takes 16384 bytes, its data_offsets span 128");
    stfile_rejects_header(
        dir, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", 4,
        "takes 4000000 bytes");
    stfile_rejects_header(dir, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                          8, "F32 [1] takes 4 bytes, its data_offsets span 8");
    stfile_rejects_header(dir, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,0]}}",
                          0, "F32 [1] takes 4 bytes");
    stfile_rejects_header(dir, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
                          4, "end before they begin");
}

static void safetensors_shape_product_overflow_is_rejected(void **state) {
    tmpdir *dir = *state;
    stfile_rejects_header(
        dir,
        "{\"w\":{\"dtype\":\"I32\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,8]}}", 8,
        "\"w\": wanted a whole number from 0 to 2^63 - 1");
    static const char *const shapes[] = {
        "\"I32\",\"shape\":[2,9223372036854775807]", "\"I32\",\"shape\":[9223372036854775807]",
        "\"I8\",\"shape\":[4294967296,4294967296]", "\"I8\",\"shape\":[0,9223372036854775807,2]"};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        char header[200];
        sprintf(header, "{\"w\":{\"dtype\":%s,\"data_offsets\":[0,0]}}", shapes[i]);
        stfile_rejects_header(dir, header, 0, "tensor \"w\": its number of elements overflows: I");
    }
    stfile_rejects_header(dir,
                          "{\"w\":{\"dtype\":\"I8\",\"shape\":[0,18446744073709551615,"
                          "18446744073709551615],\"data_offsets\":[0,0]}}",
                          0, "wanted a whole number from 0 to 2^63 - 1");
    stfile_rejects_header(
        dir, "{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
        "more than 8 dimensions");
}

static void safetensors_empty_and_scalar_tensors_are_accepted(void **state) {
    tmpdir *dir = *state;
    static const float data[] = {1.0f, 2.0f};
    dfx_tensors *set = stfile_accepts_header(
        dir,
        "{\"scaled_fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"e\":{\"dtype\":\"I32\",\"shape\":[2,0],\"data_offsets\":[0,0]},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"m\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
        data, sizeof(data));
    assert_int_equal(dfx_tensors_count(set), 5);
    assert_int_equal(dfx_tensors_find(set, "s")->rank, 0);
    stfile_reads_f32(dir, set, "s", 1, data);
    stfile_reads_f32(dir, set, "m", 0, data);
    stfile_reads_f32(dir, set, "scaled_fp8", 0, data);
    stfile_reads_f32(dir, set, "n", 1, data + 1);
    dfx_tensors_close(set);
}

static void safetensors_unaligned_data_reads_exactly(void **state) {
    tmpdir *dir = *state;
    static const float three[] = {1, 2, 3};
    char header[70];
    sprintf(header, "%-61s", "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}");
    assert_int_equal(strlen(header), 61);
    dfx_tensors *set = stfile_accepts_header(dir, header, three, sizeof(three));
    assert_int_equal(dfx_tensors_find(set, "a")->off, 69);
    stfile_reads_f32(dir, set, "a", 3, three);
    dfx_tensors_close(set);
    static const unsigned char packed[] = {7, 8, 255, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0x80, 0x3f};
    static const float bytes[] = {7, 8, 255}, floats[] = {1, -2};
    set =
        stfile_accepts_header(dir,
                              "{\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                              "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]},"
                              "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[11,13]}}",
                              packed, sizeof(packed));
    stfile_reads_f32(dir, set, "u", 3, bytes);
    stfile_reads_f32(dir, set, "f", 2, floats);
    stfile_reads_f32(dir, set, "b", 1, floats);
    dfx_tensors_close(set);
}

static void safetensors_other_kinds_of_file_get_a_hint(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *bytes, *words;
        size_t n;
    } table[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer",
         65},
        {"<!DOCTYPE html><html></html>", "HTML page", 28},
        {"<html><body>404</body></html>", "HTML page", 29},
        {"PK\3\4\0\0\10\10\0\0\0\0\0\0", "PyTorch zip", 14},
        {"just some words", "at most 100000000", 15},
    };
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        tmpdir_write(dir, stfile_name, table[i].bytes, table[i].n);
        stfile_rejects(dir, table[i].words);
    }
}

static void safetensors_that_is_no_file_is_rejected(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    tmpdir_mkdir(dir, stfile_name);
    stfile_rejects(dir, "found a folder");
    assert_int_equal(rmdir(tmpdir_join(dir, stfile_name, path)), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(5);
    stfile_rejects(dir, "found a FIFO");
    alarm(0);
}

static void safetensors_truncated_file_is_rejected_with_both_sizes(void **state) {
    tmpdir *dir = *state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2097152],\"data_offsets\":[0,2097152]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1048576],\"data_offsets\":[2097152,3145728]}}";
    const long full = 8 + (long)(sizeof(header) - 1) + 3145728;
    const long cuts[] = {1, 4096, 1048576};
    char path[TMPDIR_PATH], words[100];
    stfile_write(dir, stfile_name, header, NULL, 3145728);
    dfx_tensors_close(stfile_accepts(dir));
    for (size_t i = 0; i < DFX_COUNT(cuts); i++) {
        assert_int_equal(truncate(tmpdir_join(dir, stfile_name, path), full - cuts[i]), 0);
        sprintf(words, "%ld bytes short: %ld expected, %ld found", cuts[i], full, full - cuts[i]);
        stfile_rejects(dir, words);
    }
    assert_int_equal(truncate(path, 40), 0);
    sprintf(words, "needs a file of %ld or more, found 40", full - 3145728);
    stfile_rejects(dir, words);
}

static void safetensors_every_dtype_reads_as_its_values(void **state) {
    tmpdir *dir = *state;
    static const unsigned char data[] = {
        0x00, 0x80, 0x01, 0x08, 0x38, 0x3c, 0x7e, 0xfe, /* F8_E4M3 */
        0x01, 0x04, 0x3c, 0x7b, 0x7c, 0xfc,             /* F8_E5M2 */
        0x80, 0x3f, 0x80, 0x7f,                         /* BF16 */
        0x01, 0x00,                                     /* F16 */
        0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xd5, 0x3f, /* F64: 1/3 */
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* I64: -1 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, /* and 2^40 */
        0x80,                                           /* I8 */
        0x12, 0x34, 0x56,                               /* F6: 4 of them; F4: 2 would be 1 */
    };
    dfx_tensors *set = stfile_accepts_header(
        dir,
        "{\"e4\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]},"
        "\"e5\":{\"dtype\":\"F8_E5M2\",\"shape\":[6],\"data_offsets\":[8,14]},"
        "\"bf\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[14,18]},"
        "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[18,20]},"
        "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[20,28]},"
        "\"l\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[28,44]},"
        "\"i\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[44,45]},"
        "\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[45,48]}}",
        data, sizeof(data));
    const float inf = __builtin_inff();
    stfile_reads_f32(dir, set, "e4", 8,
                     (const float[]){0, -0.0f, 0.001953125f, 0.015625f, 1, 1.5f, 448, -448});
    stfile_reads_f32(dir, set, "e5", 6,
                     (const float[]){1.52587890625e-05f, 6.103515625e-05f, 1, 57344, inf, -inf});
    stfile_reads_f32(dir, set, "bf", 2, (const float[]){1, inf});
    stfile_reads_f32(dir, set, "h", 1, (const float[]){5.960464477539063e-08f});
    stfile_reads_f32(dir, set, "d", 1, (const float[]){0x1.555556p-2f});
    stfile_reads_f32(dir, set, "l", 2, (const float[]){-1, 1099511627776.0f});
    stfile_reads_f32(dir, set, "i", 1, (const float[]){-128});
    int64_t longs[2];
    assert_int_equal(dfx_tensors_read(set, dfx_tensors_find(set, "l"), &dir->log.sink, longs),
                     DFX_OK);
    assert_true(longs[0] == -1 && longs[1] == (int64_t)1 << 40);
    float none[4];
    assert_int_equal(dfx_tensors_read_f32(set, dfx_tensors_find(set, "f6"), &dir->log.sink, none),
                     DFX_E_FORMAT);
    said_error(&dir->log, "tensor \"f6\": F6_E2M3 values cannot be read as numbers");
    dfx_tensors_close(set);
}

static void safetensors_sub_byte_types_end_at_whole_bytes(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = stfile_accepts_header(
        dir, "{\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", NULL, 3);
    assert_int_equal(dfx_tensors_find(set, "a")->bytes, 3);
    dfx_tensors_close(set);
    stfile_rejects_header(dir, "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
                          "tensor \"a\": it does not end at a whole byte: F4 [3]");
}

/* More than the reader widens at a time, so that pieces must join. */
static void safetensors_long_tensor_widens_to_its_last_element(void **state) {
    tmpdir *dir = *state;
    enum { N = 1300001 };
    uint16_t *stored = calloc(N, sizeof(*stored));
    float *got = calloc(N, sizeof(*got));
    assert_true(stored && got);
    for (size_t i = 0; i < N; i++)
        stored[i] = (uint16_t)(i * 40503u % 0x7f80);
    dfx_tensors *set = stfile_accepts_header(
        dir, "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1300001],\"data_offsets\":[0,2600002]}}",
        stored, N * sizeof(*stored));
    const dfx_tensor *tensor = dfx_tensors_at(set, 0);
    assert_int_equal(dfx_tensors_read_f32(set, tensor, &dir->log.sink, got), DFX_OK);
    for (size_t i = 0; i < N; i++)
        assert_true(got[i] == dfx_bf16_to_f32(stored[i]));
    dfx_tensors_close(set);
    free(stored);
    free(got);
}

static void safetensors_lookup_is_by_name_in_sorted_order(void **state) {
    tmpdir *dir = *state;
    char header[8000] = "{", name[16], text[DFX_SHAPE_TEXT];
    for (int i = 0; i < 97;
         i++) /* 61 generates all residues of 97: every name once, out of order */
        sprintf(header + strlen(header),
                "%s\"t%02d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                i ? "," : "", i * 61 % 97, i, i + 1);
    dfx_tensors *set = stfile_accepts_header(dir, strcat(header, "}"), NULL, 97);
    for (int i = 0; i < 97; i++) {
        sprintf(name, "t%02d", i);
        assert_string_equal(dfx_tensors_at(set, (size_t)i)->name, name);
        assert_ptr_equal(dfx_tensors_find(set, name), dfx_tensors_at(set, (size_t)i));
    }
    assert_null(dfx_tensors_find(set, "t97"));
    assert_string_equal(dfx_tensor_shape_text(dfx_tensors_at(set, 0), text), "U8 [1]");
    dfx_tensors_close(set);
}

static void safetensors_open_without_memory_leaks_nothing(void **state) {
    tmpdir *dir = *state;
    size_t held = dfx_mem_held_bytes();
    dfx_tensors *set = NULL;
    dfx_status status = DFX_E_NOFIT;
    uint64_t n = 0;
    stfile_write(dir, stfile_name,
                 "{\"__metadata__\":{\"a\":\"b\"},"
                 "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 NULL, 1);
    while (status == DFX_E_NOFIT) {
        dfx_mem_fail_nth(++n);
        status = stfile_open(dir, &set);
        dfx_mem_fail_nth(0);
        if (status != DFX_OK)
            assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_int_equal(status, DFX_OK);
    assert_true(n > 5); /* set, files, path, header, metadata, tensors, order */
    dfx_tensors_close(set);
    dfx_tensors_close(NULL);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(safetensors_header_length_overflow_is_rejected),
        TEST(safetensors_too_short_for_a_length_is_rejected),
        TEST(safetensors_shared_bytes_are_rejected),
        TEST(safetensors_entries_in_any_order_are_accepted),
        TEST(safetensors_holes_and_trailing_bytes_are_rejected),
        TEST(safetensors_shape_unlike_the_bytes_is_rejected),
        TEST(safetensors_shape_product_overflow_is_rejected),
        TEST(safetensors_empty_and_scalar_tensors_are_accepted),
        TEST(safetensors_unaligned_data_reads_exactly),
        TEST(safetensors_other_kinds_of_file_get_a_hint),
        TEST(safetensors_that_is_no_file_is_rejected),
        TEST(safetensors_truncated_file_is_rejected_with_both_sizes),
        TEST(safetensors_every_dtype_reads_as_its_values),
        TEST(safetensors_sub_byte_types_end_at_whole_bytes),
        TEST(safetensors_long_tensor_widens_to_its_last_element),
        TEST(safetensors_lookup_is_by_name_in_sorted_order),
        TEST(safetensors_open_without_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
