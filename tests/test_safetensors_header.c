/* The JSON header of safetensors files: keys, names, numbers, padding, metadata, great length. */
#include "tests/stfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/mem.h"
#include "core/safetensors.h"

#define MIB ((size_t)1 << 20)

static void safetensors_duplicate_keys_are_rejected_by_name(void **state) {
    tmpdir *dir = *state;
    stfile_rejects_header(dir,
                          "{\"aa\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                          "\"aa\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                          2, "duplicate key \"aa\"");
    stfile_rejects_header(dir,
                          "{\"aa\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[5,7]},"
                          "\"\\u0061a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                          2, "duplicate key \"aa\"");
    stfile_rejects_header(dir,
                          "{\"aa\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],"
                          "\"data_offsets\":[0,2]}}",
                          2, "\"aa\": duplicate key \"dtype\"");
    stfile_rejects_header(dir, "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
                          "duplicate key \"__metadata__\"");
    stfile_rejects_header(dir, "{\"__metadata__\":null,\"__metadata__\":null}", 0,
                          "duplicate key \"__metadata__\"");
    stfile_rejects_header(dir, "{\"__metadata__\":{\"x\":\"1\",\"y\":\"2\",\"x\":3}}", 0,
                          "\"__metadata__\": duplicate key \"x\"");
}

static void safetensors_padding_after_the_header_is_accepted(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = stfile_accepts_header(dir, "{}\r \t\n", NULL, 0);
    assert_int_equal(dfx_tensors_count(set), 0);
    assert_null(dfx_tensors_find(set, "a"));
    dfx_tensors_close(set);
    char header[4097];
    sprintf(header, "%-4096s", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    set = stfile_accepts_header(dir, header, "\5", 1);
    stfile_reads_f32(dir, set, "a", 1, &(float){5});
    dfx_tensors_close(set);
}

static void safetensors_padding_of_other_kinds_is_rejected(void **state) {
    tmpdir *dir = *state;
    stfile_rejects_header(dir, "\t\n{}\r ", 0, "must begin with '{', found byte 0x09");
    stfile_rejects_header(dir, "\xef\xbb\xbf{}", 0, "must begin with '{', found byte 0xef");
    stfile_write_raw(dir, stfile_name, 3, "{}\0", 3, NULL, 0);
    stfile_rejects(dir, "byte 2 of the header: wanted nothing more");
    stfile_rejects_header(dir, "{}{}", 0, "wanted nothing more");
}

static void safetensors_hostile_json_is_rejected(void **state) {
    tmpdir *dir = *state;
    static const char *const table[][2] = {
        {"\xff", "must begin with '{'"},
        {"{", "wanted a string"},
        {"[]", "must begin with '{'"},
        {"\"x\"", "must begin with '{'"},
        {"{\"a\"}", "wanted ':'"},
        {"{\"a\":}", "\"a\": wanted an object"},
        {"{\"a\":\"text\"}", "\"a\": wanted an object"},
        {"{\"a\":[]}", "\"a\": wanted an object"},
        {"{\"a\":{}}", "tensor \"a\": the header does not give its dtype"},
        {"{\"a\":{},}", "tensor \"a\""},
        {"{\"a\xc0\xaf\":{}}", "not valid UTF-8"},
        {"{\"a\xed\xa0\x80\":{}}", "not valid UTF-8"},
        {"{\"a\n\":{}}", "raw control character"},
        {"{\"\\u0000\":{}}", "U+0000"},
        {"{\"\\ud800\":{}}", "lone surrogate"},
        {"{\"\\ud800\\u0041\":{}}", "lone surrogate"},
        {"{\"\\udc00\":{}}", "lone surrogate"},
        {"{\"\\u12g4\":{}}", "four hex digits"},
        {"{\"\\x\":{}}", "unknown escape"},
        {"{\"never closed", "not closed"},
        {"{\"a\":{\"dtype\":7}}", "wanted a string"},
        {"{\"a\":{\"dtype\":\"F7\"}}", "tensor \"a\": unknown dtype F7"},
        {"{\"a\":{\"dtype\":\"U8\",\"stride\":[1]}}", "tensor \"a\": unknown member stride"},
    };
    for (size_t i = 0; i < DFX_COUNT(table); i++)
        stfile_rejects_header(dir, table[i][0], 0, table[i][1]);
}

static void safetensors_numbers_of_other_forms_are_rejected(void **state) {
    tmpdir *dir = *state;
    static const char *const offsets[] = {
        "[0,1e3]",   "[0,4.0]",  "[-1,4]", "[0,18446744073709551616]",
        "[\"0\",4]", "[0,null]", "[00,4]", "[0,4,4]",
        "[4]",       "[]",       "null",   "[0,9223372036854775808]",
        "[0 4]",     "[0,4",     "[[0,4]]"};
    static const char *const shapes[] = {"[-1]", "[1.5]", "[[1]]", "1", "null", "{}", "[1,]"};
    char header[200];
    for (size_t i = 0; i < DFX_COUNT(offsets); i++) {
        sprintf(header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":%s}}", offsets[i]);
        stfile_rejects_header(dir, header, 4, "\"a\": ");
    }
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        sprintf(header, "{\"a\":{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":[0,1]}}",
                shapes[i]);
        stfile_rejects_header(dir, header, 1, "\"a\": ");
    }
}

static void safetensors_deep_nesting_is_rejected(void **state) {
    tmpdir *dir = *state;
    enum { DEPTH = 100000 };
    static const char *const starts[] = {"[", "{\"a\":[", "{\"__metadata__\":{\"a\":[",
                                         "{\"__metadata__\":{\"a\":{\"b\":"};
    static const char *const words[] = {"must begin with '{'", "wanted an object", "nested deeper",
                                        "nested deeper"};
    char *header = calloc(1, DEPTH + 100);
    assert_non_null(header);
    for (size_t i = 0; i < DFX_COUNT(starts); i++) {
        memset(strcpy(header, starts[i]) + strlen(starts[i]), '[', DEPTH);
        header[strlen(starts[i]) + DEPTH] = '\0';
        stfile_rejects_header(dir, header, 0, words[i]);
    }
    free(header);
}

static void safetensors_escaped_and_long_names_are_found(void **state) {
    tmpdir *dir = *state;
    char *header = calloc(1, MIB + 400), *name = calloc(1, MIB + 1);
    assert_true(header && name);
    memset(name, 'n', MIB);
    sprintf(header,
            "{\"a\\/b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"\\u00e9\\ud83d\\ude00\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
            "\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
            name);
    dfx_tensors *set = stfile_accepts_header(dir, header, "\1\2\3", 3);
    stfile_reads_f32(dir, set, "a/b", 1, &(float){1});
    stfile_reads_f32(dir, set, "\xc3\xa9\xf0\x9f\x98\x80\n", 1, &(float){2});
    stfile_reads_f32(dir, set, name, 1, &(float){3});
    dfx_tensors_close(set);
    sprintf(header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", name);
    stfile_rejects_header(dir, header, 1, "nnn...\": U8 [2] takes 2 bytes");
    free(header);
    free(name);
}

static void safetensors_metadata_of_usual_forms_is_accepted(void **state) {
    tmpdir *dir = *state;
    static const char tensor[] = "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
    static const char *const forms[] = {"{\"a\":\"1\"}", "{}", "null"};
    for (size_t i = 0; i < DFX_COUNT(forms); i++) {
        char header[200];
        sprintf(header, "{\"__metadata__\":%s,%s}", forms[i], tensor);
        dfx_tensors *set = stfile_accepts_header(dir, header, "\1", 1);
        assert_int_equal(dfx_tensors_count(set), 1);
        if (i == 0)
            assert_string_equal(dfx_tensors_metadata(set, "a"), "1");
        else
            assert_null(dfx_tensors_metadata(set, "a"));
        said_nothing(&dir->log, DFX_WARN);
        dfx_tensors_close(set);
    }
    dfx_tensors *set =
        stfile_accepts_header(dir, "{\"__metadata__\":{\"format\":\"pt\"}}", NULL, 0);
    assert_string_equal(dfx_tensors_metadata(set, "format"), "pt");
    dfx_tensors_close(set);
}

static void safetensors_metadata_that_is_no_text_is_ignored_with_a_warning(void **state) {
    tmpdir *dir = *state;
    static const char *const values[] = {"1", "{\"b\":\"c\"}", "[1,{\"d\":[]},-2.5e+3]", "true"};
    for (size_t i = 0; i < DFX_COUNT(values); i++) {
        char header[200];
        sprintf(header, "{\"__metadata__\":{\"a\":%s,\"z\":\"kept\"}}", values[i]);
        dfx_tensors *set = stfile_accepts_header(dir, header, NULL, 0);
        said_words(&dir->log, DFX_WARN, "\"a\"");
        assert_null(dfx_tensors_metadata(set, "a"));
        assert_string_equal(dfx_tensors_metadata(set, "z"), "kept");
        dfx_tensors_close(set);
    }
}

static void safetensors_metadata_of_wrong_form_is_rejected(void **state) {
    tmpdir *dir = *state;
    stfile_rejects_header(
        dir, "{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "__metadata__ is written as a tensor");
    stfile_rejects_header(dir, "{\"__metadata__\":[]}", 0, "\"__metadata__\": wanted an object");
    stfile_rejects_header(dir, "{\"__metadata__\":{\"a\":01}}", 0, "not a number");
    stfile_rejects_header(dir, "{\"__metadata__\":{\"a\":nul}}", 0, "wanted a value");
    stfile_rejects_header(dir, "{\"__metadata__\":{\"a\":[1,]}}", 0, "wanted a value");
}

static void safetensors_million_tensors_open_in_time(void **state) {
    tmpdir *dir = *state;
    enum { N = 1000000 };
    char *header = calloc(1, 100 * (size_t)N), *at = header;
    assert_non_null(header);
    for (int i = 0; i < N; i++)
        at += sprintf(at,
                      "%c\"some.block.tensor.%07d\":{\"dtype\":\"U8\",\"shape\":[1,1],"
                      "\"data_offsets\":[%7d,%7d]}",
                      i ? ',' : '{', (int)((int64_t)i * 7919 % N), i, i + 1);
    strcpy(at, "}");
    assert_in_range(strlen(header), 85000000, DFX_SAFETENSORS_HEADER_BYTES_MAX);
    stfile_write(dir, stfile_name, header, NULL, N);
    free(header);
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    dfx_tensors *set = stfile_accepts(dir);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double seconds =
        (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    print_message("a million tensors opened in %.2f s\n", seconds);
    assert_int_equal(dfx_tensors_count(set), N);
    dfx_tensors_close(set);
#ifndef DFX_SANITIZED
    assert_true(seconds < 5.0);
#endif
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(safetensors_duplicate_keys_are_rejected_by_name),
        TEST(safetensors_padding_after_the_header_is_accepted),
        TEST(safetensors_padding_of_other_kinds_is_rejected),
        TEST(safetensors_hostile_json_is_rejected),
        TEST(safetensors_numbers_of_other_forms_are_rejected),
        TEST(safetensors_deep_nesting_is_rejected),
        TEST(safetensors_escaped_and_long_names_are_found),
        TEST(safetensors_metadata_of_usual_forms_is_accepted),
        TEST(safetensors_metadata_that_is_no_text_is_ignored_with_a_warning),
        TEST(safetensors_metadata_of_wrong_form_is_rejected),
        TEST(safetensors_million_tensors_open_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
