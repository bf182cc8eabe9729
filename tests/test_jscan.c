/* The pull reader on exact heap buffers, where a sanitizer sees any byte touched outside. */
#include "tests/tmpdir.h"

#include <stdlib.h>
#include <string.h>

#include "core/jscan.h"

static const char sample[] = "{\"k\\u00e9\\ud83d\\ude00\\n\":[1,-2.5e+3,{\"a\":[],\"b\":{}}],"
                             "\"z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\":true,\"n\":null}";

/* A scan of the first `bytes` of text in a block of just that size. */
static dfx_jscan begin(const char *text, size_t bytes) {
    dfx_jscan scan = {.text = malloc(bytes ? bytes : 1), .bytes = bytes};
    assert_non_null(scan.text);
    memcpy(scan.text, text, bytes);
    return scan;
}

static void jscan_of_every_prefix_faults_inside_the_buffer(void **state) {
    for (size_t bytes = 0; bytes < sizeof(sample); bytes++) {
        dfx_jscan scan = begin(sample, bytes);
        bool whole = dfx_jscan_skip(&scan) && dfx_jscan_end(&scan);
        assert_int_equal(whole, bytes == sizeof(sample) - 1);
        assert_int_equal(scan.fault == NULL, whole);
        assert_true(scan.at <= bytes);
        free(scan.text);
    }
}

static void jscan_of_every_changed_byte_stays_inside_the_buffer(void **state) {
    static const char bytes[] = {0, ' ', '"', '\\', 'u', '{', '}', '[', ']', ',', '9', (char)0xf4};
    for (size_t i = 0; i < sizeof(sample) - 1; i++)
        for (size_t k = 0; k < sizeof(bytes); k++) {
            dfx_jscan scan = begin(sample, sizeof(sample) - 1);
            scan.text[i] = bytes[k];
            bool whole = dfx_jscan_skip(&scan) && dfx_jscan_end(&scan);
            assert_int_equal(scan.fault == NULL, whole);
            free(scan.text);
        }
}

static void jscan_walks_members_and_unescapes_in_place(void **state) {
    dfx_jscan scan = begin(sample, sizeof(sample) - 1);
    static const char *const keys[] = {"k\xc3\xa9\xf0\x9f\x98\x80\n",
                                       "z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "n"};
    char *key;
    size_t n = 0;
    assert_true(dfx_jscan_open(&scan, '{'));
    while (dfx_jscan_next(&scan, '}', &n)) {
        assert_true(dfx_jscan_key(&scan, &key));
        assert_string_equal(key, keys[n - 1]);
        assert_true(n == 3 ? dfx_jscan_null(&scan) : dfx_jscan_skip(&scan));
    }
    assert_int_equal(n, 3);
    assert_true(dfx_jscan_end(&scan));
    free(scan.text);
}

static void jscan_whole_holds_63_bits(void **state) {
    static const struct {
        const char *text;
        int64_t value;
        bool valid;
    } table[] = {{"0", 0, true},      {"9223372036854775807", INT64_MAX, true},
                 {"10 ", 10, true},   {"9223372036854775808", 0, false},
                 {"-1", 0, false},    {"+1", 0, false},
                 {"01", 0, false},    {"1.0", 0, false},
                 {"1e0", 0, false},   {"1E0", 0, false},
                 {"\"1\"", 0, false}, {"", 0, false}};
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        dfx_jscan scan = begin(table[i].text, strlen(table[i].text));
        int64_t value = 0;
        assert_int_equal(dfx_jscan_whole(&scan, &value), table[i].valid);
        assert_int_equal(scan.fault == NULL, table[i].valid);
        assert_true(value == table[i].value);
        free(scan.text);
    }
}

static void jscan_skip_takes_64_levels_and_no_more(void **state) {
    char text[2 * (DFX_JSCAN_DEPTH + 1)];
    for (size_t depth = DFX_JSCAN_DEPTH; depth <= DFX_JSCAN_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        dfx_jscan scan = begin(text, 2 * depth);
        assert_int_equal(dfx_jscan_skip(&scan), depth == DFX_JSCAN_DEPTH);
        free(scan.text);
    }
}

static void jscan_first_fault_sticks(void **state) {
    dfx_jscan scan = begin("x", 1);
    char *text;
    assert_false(dfx_jscan_open(&scan, '{'));
    assert_string_equal(scan.fault, "wanted an object");
    assert_false(dfx_jscan_string(&scan, &text));
    assert_false(dfx_jscan_skip(&scan));
    assert_false(dfx_jscan_end(&scan));
    assert_string_equal(scan.fault, "wanted an object");
    free(scan.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jscan_of_every_prefix_faults_inside_the_buffer),
        cmocka_unit_test(jscan_of_every_changed_byte_stays_inside_the_buffer),
        cmocka_unit_test(jscan_walks_members_and_unescapes_in_place),
        cmocka_unit_test(jscan_whole_holds_63_bits),
        cmocka_unit_test(jscan_skip_takes_64_levels_and_no_more),
        cmocka_unit_test(jscan_first_fault_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
