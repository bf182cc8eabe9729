/* Unicode text. Expected values: the Unicode standard (table 3-7 and chapter 3.9 for UTF-8, UAX #15
 * for NFC). */
#include "tests/tmpdir.h"

#include <string.h>

#include "models/unicode.h"

static void assert_repaired(const char *bad, size_t bytes, const char *wanted) {
    char *text;
    size_t n;
    assert_int_equal(dfx_utf8_repair(bad, bytes, NULL, &text, &n), DFX_OK);
    assert_string_equal(text, wanted);
    assert_int_equal(n, strlen(wanted));
    assert_int_equal(dfx_utf8_valid(bad, bytes), strcmp(bad, wanted) == 0);
    dfx_free(text);
}

static void utf8_bad_sequences_become_one_replacement_each(void **state) {
#define REPAIRED(bad, wanted) assert_repaired(bad, sizeof(bad) - 1, wanted)
    REPAIRED("", "");
    REPAIRED("a\u00e9\u732b\U0001F431\uFFFD", "a\u00e9\u732b\U0001F431\uFFFD");
    REPAIRED("\x80", "\uFFFD");
    REPAIRED("\xff\xfe", "\uFFFD\uFFFD");
    REPAIRED("\xc0\x80", "\uFFFD\uFFFD");                     /* overlong NUL */
    REPAIRED("\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD");           /* overlong slash */
    REPAIRED("\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD");           /* surrogate */
    REPAIRED("\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"); /* above U+10FFFF */
    REPAIRED("\xe7\x8c", "\uFFFD");                           /* cut at the end */
    REPAIRED("\xf0\x9f\x90"
             "a",
             "\uFFFD"
             "a"); /* cut in the middle */
    /* the example of chapter 3.9 */
    REPAIRED("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a\uFFFD\uFFFD\uFFFD"
                                                                     "b\uFFFD"
                                                                     "c\uFFFD\uFFFD"
                                                                     "d");
#undef REPAIRED
}

static void utf8_every_scalar_value_survives_a_round_trip(void **state) {
    for (int32_t code = 0; code <= 0x10FFFF; code++) {
        char utf8[DFX_UTF8_BYTES_MAX];
        int32_t back;
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        size_t n = dfx_utf8_put(code, utf8);
        if (dfx_utf8_next(utf8, n, &back) != n || back != code)
            fail_msg("U+%04X came back as U+%04X", (unsigned)code, (unsigned)back);
    }
}

static void assert_nfc(const char *text, const int32_t *wanted, size_t n_wanted) {
    int32_t *codes;
    size_t n;
    assert_int_equal(dfx_nfc(text, strlen(text), NULL, &codes, &n), DFX_OK);
    assert_int_equal(n, n_wanted);
    assert_memory_equal(codes, wanted, n * sizeof(*codes));
    dfx_free(codes);
}

static void nfc_orders_marks_then_composes(void **state) {
#define NFC(text, ...) \
    assert_nfc(text, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
    NFC("e\u0301x", 0xE9, 'x');
    NFC("A\u030A\u212B", 0xC5, 0xC5);
    NFC("\u1E9B\u0323", 0x1E9B, 0x323);      /* UAX #15, figure 6 */
    NFC("q\u0307\u0323", 'q', 0x323, 0x307); /* UAX #15: reordered, does not compose */
    NFC("s\u0323\u0307", 0x1E69);            /* UAX #15, figure 5 */
    NFC("s\u0307\u0323", 0x1E69);            /* the same in the other order */
    NFC("\u1112\u1161\u11AB", 0xD55C);       /* Hangul, algorithmic */
    NFC("\u0344", 0x308, 0x301);             /* excluded from composition */
    NFC("\uFB01", 0xFB01);                   /* compatibility is left alone */
#undef NFC
    int32_t *codes;
    size_t n;
    assert_int_equal(dfx_nfc("", 0, NULL, &codes, &n), DFX_OK);
    assert_int_equal(n, 0);
    dfx_free(codes);
}

static void lower_case_is_full_and_without_context(void **state) {
    int32_t out[2];
    assert_int_equal(dfx_code_lower('A', out), 1);
    assert_int_equal(out[0], 'a');
    assert_int_equal(dfx_code_lower(0x3A3, out), 1); /* sigma, never final */
    assert_int_equal(out[0], 0x3C3);
    assert_int_equal(dfx_code_lower(0x1C5, out), 1); /* title case */
    assert_int_equal(out[0], 0x1C6);
    assert_int_equal(dfx_code_lower(0x130, out), 2);
    assert_int_equal(out[0], 'i');
    assert_int_equal(out[1], 0x307);
}

static void classes_follow_general_category(void **state) {
    static const int32_t letters[] = {'a', 0xAA, 0x2B0, 0x732B, 0x1D4D7};
    static const int32_t numbers[] = {'0', 0xB2, 0xBD, 0x2167, 0x2460, 0x663};
    static const int32_t others[] = {'_', 0x301, 0x200B, 0x1F431, 0xFFFD, 0xE000};
    static const int32_t spaces[] = {'\t', '\v', ' ', 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000};
    for (size_t i = 0; i < DFX_COUNT(letters); i++)
        assert_true(dfx_code_is_letter(letters[i]) && !dfx_code_is_number(letters[i]));
    for (size_t i = 0; i < DFX_COUNT(numbers); i++)
        assert_true(dfx_code_is_number(numbers[i]) && !dfx_code_is_letter(numbers[i]));
    for (size_t i = 0; i < DFX_COUNT(others); i++)
        assert_false(dfx_code_is_letter(others[i]) || dfx_code_is_number(others[i]) ||
                     dfx_code_is_space(others[i]));
    for (size_t i = 0; i < DFX_COUNT(spaces); i++)
        assert_true(dfx_code_is_space(spaces[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_bad_sequences_become_one_replacement_each),
        cmocka_unit_test(utf8_every_scalar_value_survives_a_round_trip),
        cmocka_unit_test(nfc_orders_marks_then_composes),
        cmocka_unit_test(lower_case_is_full_and_without_context),
        cmocka_unit_test(classes_follow_general_category),
    };
    return cmocka_run_group_tests_name("unicode", tests, NULL, NULL);
}
