/* Unit tests of the option parser. The program's sources are in no library, so the parser is compiled in here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <string.h>

#include "tools/args.c"

enum { STEPS, GUIDANCE, SEED, SIZE, BUDGET, DEVICE, PROMPT, QUIET, VERBOSE, N };

static const dfx_args_option table[N] = {
    [STEPS] = {"steps", 's', "N"},      [GUIDANCE] = {"guidance", 0, "G"},
    [SEED] = {"seed", 0, "N"},          [SIZE] = {"size", 0, "WxH"},
    [BUDGET] = {"vram-budget", 0, "B"}, [DEVICE] = {"device", 0, "D"},
    [PROMPT] = {"prompt", 'p', "TEXT"}, [QUIET] = {"quiet", 'q', NULL},
    [VERBOSE] = {"verbose", 'v', NULL},
};

/* Parses words up to NULL. */
#define PARSE(args, ...) parse_words((args), (char *[]){__VA_ARGS__, NULL})
static bool parse_words(dfx_args *args, char **words) {
    int n = 0;
    while (words[n])
        n++;
    return dfx_args_parse(args, table, N, n, words);
}

#define assert_says(args, words) assert_non_null(strstr((args)->error, (words)))

static void args_value_after_or_behind_equals_is_taken(void **state) {
    dfx_args args;
    assert_true(PARSE(&args, "--steps", "4", "--guidance=3.5", "a cat"));
    assert_string_equal(args.value[STEPS], "4");
    assert_string_equal(args.value[GUIDANCE], "3.5");
    assert_string_equal(args.word, "a cat");
    assert_int_equal(args.n_words, 1);
}

static void args_letters_are_grouped_and_joined(void **state) {
    dfx_args args;
    assert_true(PARSE(&args, "-qvs4"));
    assert_true(dfx_args_given(&args, QUIET));
    assert_true(dfx_args_given(&args, VERBOSE));
    assert_string_equal(args.value[STEPS], "4");
}

static void args_empty_value_is_a_value(void **state) {
    dfx_args args;
    assert_true(PARSE(&args, "-p", "", "--guidance="));
    assert_string_equal(args.value[PROMPT], "");
    assert_string_equal(args.value[GUIDANCE], "");
}

static void args_prompt_with_dash_is_reachable(void **state) {
    dfx_args args;
    assert_true(PARSE(&args, "-p", "-- no"));
    assert_string_equal(args.value[PROMPT], "-- no");
    assert_true(PARSE(&args, "--prompt=--steps"));
    assert_string_equal(args.value[PROMPT], "--steps");
    assert_true(PARSE(&args, "-q", "--", "--steps"));
    assert_string_equal(args.word, "--steps");
    assert_false(dfx_args_given(&args, STEPS));
    assert_true(PARSE(&args, "--", "--"));
    assert_string_equal(args.word, "--");
    assert_true(PARSE(&args, "-"));
    assert_string_equal(args.word, "-");
}

static void args_option_is_not_taken_for_a_value(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "--steps", "--seed", "4"));
    assert_says(&args, "--steps: wanted N");
    assert_says(&args, "--steps=--seed");
    assert_false(PARSE(&args, "--steps", "-q"));
    assert_false(PARSE(&args, "--steps", "--seed=1"));
    assert_false(PARSE(&args, "--steps", "--", "4"));
}

static void args_missing_value_is_refused(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "a cat", "--steps"));
    assert_says(&args, "--steps");
    assert_false(PARSE(&args, "-s"));
    assert_says(&args, "--steps");
}

static void args_flag_with_value_is_refused(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "--quiet=yes"));
    assert_says(&args, "--quiet");
    assert_says(&args, "yes");
}

static void args_unknown_option_suggests_the_nearest(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "--stepz", "4"));
    assert_says(&args, "did you mean --steps?");
    assert_false(PARSE(&args, "--gudance=3"));
    assert_says(&args, "did you mean --guidance?");
    assert_false(PARSE(&args, "--verb"));
    assert_says(&args, "did you mean --verbose?");
    assert_false(PARSE(&args, "-guidance", "3"));
    assert_says(&args, "did you mean --guidance?");
    assert_false(PARSE(&args, "--frobnicate"));
    assert_null(strstr(args.error, "did you mean"));
    assert_says(&args, "--frobnicate");
    assert_false(PARSE(&args, "-z"));
    assert_says(&args, "-z");
}

static void args_help_after_mistakes_is_seen(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "--nonsense", "--steps", "-v"));
    assert_true(dfx_args_given(&args, VERBOSE));
    assert_says(&args, "--nonsense"); /* the first mistake is the one that is told */
}

static void args_option_given_twice_keeps_the_last(void **state) {
    dfx_args args;
    assert_true(PARSE(&args, "--steps", "4", "a cat", "--steps=8"));
    assert_string_equal(args.value[STEPS], "8");
    assert_int_equal(args.n_given[STEPS], 2);
    assert_int_equal(args.at[STEPS], 3);
}

static void args_error_shows_no_control_bytes(void **state) {
    dfx_args args;
    assert_false(PARSE(&args, "--\x1b[2J\n"));
    assert_null(strchr(args.error, '\x1b'));
    assert_null(strchr(args.error, '\n'));
}

static void args_int_accepts_whole_numbers_within_bounds(void **state) {
    static char *const good[] = {"1", "1000", "0007"};
    static const int wanted[] = {1, 1000, 7};
    for (size_t i = 0; i < 3; i++) {
        dfx_args args;
        int steps = -5;
        assert_true(PARSE(&args, "--steps", good[i]));
        assert_true(dfx_args_int(&args, STEPS, 1, 1000, &steps));
        assert_int_equal(steps, wanted[i]);
    }
}

static void args_int_refuses_everything_else_and_names_the_range(void **state) {
    static char *const bad[] = {"0",    "-1", "2.5", "4x", "",    "1e9", "99999999999999999999",
                                "1001", " 4", "4 ",  "+4", "0x4", "1e",  "٤",
                                "１"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        dfx_args args;
        int steps = -5;
        assert_true(PARSE(&args, "--steps", bad[i]));
        assert_false(dfx_args_int(&args, STEPS, 1, 1000, &steps));
        assert_int_equal(steps, -5);
        assert_says(&args, "--steps");
        assert_says(&args, "from 1 to 1000");
        assert_says(&args, bad[i]);
    }
}

static void args_getter_of_absent_option_changes_nothing(void **state) {
    dfx_args args;
    int steps = -5;
    uint64_t seed = 9;
    bool given = true;
    assert_true(PARSE(&args, "x"));
    assert_true(dfx_args_int(&args, STEPS, 1, 1000, &steps));
    assert_int_equal(steps, -5);
    assert_true(dfx_args_seed(&args, SEED, &given, &seed));
    assert_false(given);
    assert_int_equal(seed, 9);
}

static void args_words_are_moved_to_the_front(void **state) {
    dfx_args args;
    char *line[] = {"--steps", "4", "a", "-q", "red", "--", "--ball", "-"};
    assert_true(dfx_args_parse(&args, table, N, 8, line));
    static const char *const want[] = {"a", "red", "--ball", "-"};
    assert_int_equal(args.n_words, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(args.words[i], want[i]);
    assert_string_equal(args.word, "a");
    assert_string_equal(args.value[STEPS], "4");
}

static void args_real_reads_decimals_exactly(void **state) {
    static char *const text[] = {"3.5", "0", "30", ".25", "7.", "0.1", "000123.0625"};
    static const double wanted[] = {3.5, 0, 30, .25, 7, 0.1, 123.0625};
    for (size_t i = 0; i < 7; i++) {
        dfx_args args;
        double value = -1;
        assert_true(PARSE(&args, "--guidance", text[i]));
        assert_true(dfx_args_real(&args, GUIDANCE, 0, 1000, &value));
        assert_memory_equal(&value, &wanted[i], sizeof(value));
    }
}

static void args_real_refuses_everything_else(void **state) {
    static char *const bad[] = {
        "-1",    "nan", "inf",  "3,5", "1e3",     "0x1p3", "",
        "1.2.3", ".",   "3.5 ", " 3",  "1000.01", "3.5f",  "1234567890123456"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        dfx_args args;
        double value = -1;
        char word[64];
        snprintf(word, sizeof(word), "--guidance=%s", bad[i]);
        assert_true(PARSE(&args, word));
        assert_false(dfx_args_real(&args, GUIDANCE, 0, 1000, &value));
        assert_true(value == -1);
        assert_says(&args, "--guidance");
        assert_says(&args, "from 0 to 1000");
    }
}

static void args_seed_spans_64_bits(void **state) {
    static char *const text[] = {"0", "4294967296", "9007199254740993", "9223372036854775808",
                                 "18446744073709551615"};
    static const uint64_t wanted[] = {0, 1ull << 32, (1ull << 53) + 1, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < 5; i++) {
        dfx_args args;
        bool given;
        uint64_t seed = 1;
        assert_true(PARSE(&args, "--seed", text[i]));
        assert_true(dfx_args_seed(&args, SEED, &given, &seed));
        assert_true(given);
        assert_true(seed == wanted[i]);
    }
}

static void args_seed_minus_one_is_as_absent(void **state) {
    dfx_args args;
    bool given = true;
    uint64_t seed = 1;
    assert_true(PARSE(&args, "--seed", "-1"));
    assert_true(dfx_args_seed(&args, SEED, &given, &seed));
    assert_false(given);
}

static void args_seed_out_of_range_is_refused(void **state) {
    static char *const bad[] = {"18446744073709551616", "-2", "0x10", "1e3", "abc", "", "1.0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        dfx_args args;
        bool given;
        uint64_t seed = 1;
        assert_true(PARSE(&args, "--seed", bad[i]));
        assert_false(dfx_args_seed(&args, SEED, &given, &seed));
        assert_false(given);
        assert_says(&args, "18446744073709551615");
    }
}

static void args_extent_reads_both_sides(void **state) {
    dfx_args args;
    int width = 0, height = 0;
    assert_true(PARSE(&args, "--size", "1024x768"));
    assert_true(dfx_args_extent(&args, SIZE, 16, 16384, &width, &height));
    assert_int_equal(width, 1024);
    assert_int_equal(height, 768);
    assert_true(PARSE(&args, "--size=16X16384"));
    assert_true(dfx_args_extent(&args, SIZE, 16, 16384, &width, &height));
    assert_int_equal(width, 16);
    assert_int_equal(height, 16384);
}

static void args_extent_refuses_everything_else(void **state) {
    static char *const bad[] = {"512",      "512x",     "x512", "512x512x512",   "1000000x16",
                                "15x16",    "16x16385", "",     "2147483648x16", "4294967312x16",
                                "512 x 16", "-512x512", "x",    "1e3x16",        "512*512"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        dfx_args args;
        int width = -1, height = -1;
        assert_true(PARSE(&args, "--size", bad[i]));
        assert_false(dfx_args_extent(&args, SIZE, 16, 16384, &width, &height));
        assert_int_equal(width, -1);
        assert_int_equal(height, -1);
        assert_says(&args, "from 16 to 16384");
    }
}

static void args_bytes_knows_binary_and_decimal_units(void **state) {
    static char *const text[] = {"12G",  "12GiB",    "4096M", "12GB", "1024K",
                                 "1.5G", "39615616", "12g",   "2t",   "5MB"};
    static const uint64_t wanted[] = {12884901888,   12884901888, 4294967296, 12000000000,
                                      1048576,       1610612736,  39615616,   12884901888,
                                      2199023255552, 5000000};
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        dfx_args args;
        uint64_t value = 1;
        assert_true(PARSE(&args, "--vram-budget", text[i]));
        assert_true(dfx_args_bytes(&args, BUDGET, &value));
        assert_true(value == wanted[i]);
    }
}

static void args_bytes_refuses_everything_else(void **state) {
    static char *const bad[] = {"0",     "-1",  "1e99", "12",  "0G",   "G",
                                "4X",    "4Gi", "4GBB", "4 G", "-4G",  "99999T",
                                "1023K", "",    "infG", "4G ", "1.G.", "4iB"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        dfx_args args;
        uint64_t value = 1;
        assert_true(PARSE(&args, "--vram-budget", bad[i]));
        assert_false(dfx_args_bytes(&args, BUDGET, &value));
        assert_true(value == 1);
        assert_says(&args, "--vram-budget");
        assert_says(&args, "1M to 1024T");
    }
}

static void args_choice_gives_the_index_or_lists_them(void **state) {
    static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
    dfx_args args;
    int device = -1;
    assert_true(PARSE(&args, "--device", "cuda"));
    assert_true(dfx_args_choice(&args, DEVICE, devices, &device));
    assert_int_equal(device, 2);
    assert_true(PARSE(&args, "--device", "CPU"));
    assert_false(dfx_args_choice(&args, DEVICE, devices, &device));
    assert_int_equal(device, 2);
    assert_says(&args, "auto, cpu, cuda");
}

static void args_choice_with_a_number_gives_both(void **state) {
    static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
    static char *const bad[] = {"cuda:",   "cuda:x",   "cuda:-1",  "cuda:8",
                                "cuda: 1", "cuda:1:2", "cuda:01x", "cpu:0",
                                "auto:1",  "CUDA:1",   "cuda1",    ":1",
                                "",        "cuda:0x1", "gpu",      "cuda:4294967296"};
    dfx_args args;
    int device = -1, number = -1;
    assert_true(PARSE(&args, "-q"));
    assert_true(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
    assert_true(device == -1 && number == -1);
    assert_true(PARSE(&args, "--device", "cuda"));
    assert_true(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
    assert_true(device == 2 && number == -1);
    assert_true(PARSE(&args, "--device", "cuda:7"));
    assert_true(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
    assert_true(device == 2 && number == 7);
    assert_true(PARSE(&args, "--device=cuda:0"));
    assert_true(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
    assert_true(device == 2 && number == 0);
    assert_true(PARSE(&args, "--device", "cpu"));
    assert_true(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
    assert_true(device == 1 && number == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(PARSE(&args, "--device", bad[i]));
        assert_false(dfx_args_choice_numbered(&args, DEVICE, devices, 2, 7, &device, &number));
        assert_true(device == 1 && number == 0);
        assert_says(&args, "auto, cpu, cuda, or cuda:N with N from 0 to 7");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(args_value_after_or_behind_equals_is_taken),
        cmocka_unit_test(args_letters_are_grouped_and_joined),
        cmocka_unit_test(args_empty_value_is_a_value),
        cmocka_unit_test(args_prompt_with_dash_is_reachable),
        cmocka_unit_test(args_option_is_not_taken_for_a_value),
        cmocka_unit_test(args_missing_value_is_refused),
        cmocka_unit_test(args_flag_with_value_is_refused),
        cmocka_unit_test(args_unknown_option_suggests_the_nearest),
        cmocka_unit_test(args_help_after_mistakes_is_seen),
        cmocka_unit_test(args_option_given_twice_keeps_the_last),
        cmocka_unit_test(args_error_shows_no_control_bytes),
        cmocka_unit_test(args_int_accepts_whole_numbers_within_bounds),
        cmocka_unit_test(args_int_refuses_everything_else_and_names_the_range),
        cmocka_unit_test(args_getter_of_absent_option_changes_nothing),
        cmocka_unit_test(args_words_are_moved_to_the_front),
        cmocka_unit_test(args_real_reads_decimals_exactly),
        cmocka_unit_test(args_real_refuses_everything_else),
        cmocka_unit_test(args_seed_spans_64_bits),
        cmocka_unit_test(args_seed_minus_one_is_as_absent),
        cmocka_unit_test(args_seed_out_of_range_is_refused),
        cmocka_unit_test(args_extent_reads_both_sides),
        cmocka_unit_test(args_extent_refuses_everything_else),
        cmocka_unit_test(args_bytes_knows_binary_and_decimal_units),
        cmocka_unit_test(args_bytes_refuses_everything_else),
        cmocka_unit_test(args_choice_gives_the_index_or_lists_them),
        cmocka_unit_test(args_choice_with_a_number_gives_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
