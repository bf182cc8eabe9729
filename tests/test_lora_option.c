/* --lora FILE[:STRENGTH]: where the file ends, and what is a number. The program's sources are in no library, so the parser is
 * compiled in here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tools/args.c"
#include "tools/lora_option.c"

static void gives(const char *text, const char *path, float strength) {
    dfx_lora_option option;
    char error[DFX_LORA_OPTION_ERROR_BYTES];
    if (!dfx_lora_option_parse(text, &option, error))
        fail_msg("%s: %s", text, error);
    assert_string_equal(option.path, path);
    if (option.strength != strength)
        fail_msg("%s: %g", text, (double)option.strength);
    assert_string_equal(error, "");
}

static void is_a_mistake(const char *text, const char *words) {
    dfx_lora_option option;
    char error[DFX_LORA_OPTION_ERROR_BYTES];
    assert_false(dfx_lora_option_parse(text, &option, error));
    if (!strstr(error, words))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, error, words);
}

static void lora_option_without_a_number_has_strength_1(void **state) {
    gives("style.safetensors", "style.safetensors", 1);
    gives("a b/style", "a b/style", 1);
    gives("0.8", "0.8", 1);
}

static void lora_option_with_a_number_has_that_strength(void **state) {
    gives("style.safetensors:0.8", "style.safetensors", 0.8f);
    gives("s:1", "s", 1);
    gives("s:0", "s", 0);
    gives("s:-1", "s", -1);
    gives("s:+2", "s", 2);
    gives("s:0.001", "s", 0.001f);
    gives("s:.5", "s", 0.5f);
    gives("s:-2.", "s", -2);
    gives("s:1000", "s", 1000);
}

static void lora_option_path_may_hold_colons(void **state) {
    gives("a:b.safetensors", "a:b.safetensors", 1);
    gives("a:b.safetensors:0.5", "a:b.safetensors", 0.5f);
    gives("new:0.5/a", "new:0.5/a", 1);
    gives("a:0.5:1", "a:0.5", 1);
    gives("C:/loras/a:0.25", "C:/loras/a", 0.25f);
}

static void lora_option_that_is_no_number_is_a_mistake(void **state) {
    static const char *const texts[] = {"s:",    "s:0.8x",  "s:1e-3", "s:nan", "s:inf",
                                        "s:0,8", "s:--1",   "s:.",    "s:0x1", "s: 1",
                                        "s:1 ",  "s:1.2.3", "s:-"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        is_a_mistake(texts[i], "wanted a strength such as 0.8 after the last ':'");
    is_a_mistake("s:0.8x", "found \"0.8x\" in \"s:0.8x\"");
    is_a_mistake("s:1001", "wanted a strength from -1000 to 1000");
    is_a_mistake("s:-123456", "wanted a strength from -1000 to 1000");
}

static void lora_option_without_a_file_is_a_mistake(void **state) {
    char *text = malloc(5001);
    assert_non_null(text);
    memset(text, 'a', 5000);
    text[5000] = 0;
    is_a_mistake("", "wanted a file");
    is_a_mistake(":0.5", "wanted a file");
    is_a_mistake(text, "at most 4095 bytes");
    text[4096] = ':';
    text[4097] = '1';
    text[4098] = 0;
    is_a_mistake(text, "at most 4095 bytes");
    memmove(text, text + 1, 4098);
    dfx_lora_option option;
    char error[DFX_LORA_OPTION_ERROR_BYTES];
    assert_true(dfx_lora_option_parse(text, &option, error));
    assert_int_equal(strlen(option.path), 4095);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_option_without_a_number_has_strength_1),
        cmocka_unit_test(lora_option_with_a_number_has_that_strength),
        cmocka_unit_test(lora_option_path_may_hold_colons),
        cmocka_unit_test(lora_option_that_is_no_number_is_a_mistake),
        cmocka_unit_test(lora_option_without_a_file_is_a_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
