/* Batch files: lines into words. The program's sources are in no library, so what is tested is compiled in here. */
#include <stdlib.h>

#include "tools/batch_file.c"
#include "tools/console.c"
#include "tools/memory.c"
#include "tools/progress.c"
#include "tools/prompt.c"
#include "tools/signals.c"

#include "tests/tmpdir.h"

enum { WORDS_MAX = 8 };

/* The words of a line; returns their number, or -1 with *fault. */
static int words_of(const char *text, char copy[256], char *words[WORDS_MAX], const char **fault) {
    int n = 0;
    char *line = copy;
    *fault = NULL;
    snprintf(copy, 256, "%s", text);
    for (char *word; (word = dfx_batch_word(&line, fault));)
        words[n++] = word;
    return *fault ? -1 : n;
}

static void words_are_those_of_a_command_line(void **state) {
    static const struct {
        const char *line, *words[WORDS_MAX];
    } rows[] = {
        {"", {NULL}},
        {"  \t ", {NULL}},
        {"a red  ball\t--seed 7 ", {"a", "red", "ball", "--seed", "7"}},
        {"\"a red ball\" -o 'my ball.png'", {"a red ball", "-o", "my ball.png"}},
        {"--prompt=\"a \\\"big\\\" \\\\ ball\" x", {"--prompt=a \"big\" \\ ball", "x"}},
        {"it's a 6\" nail", {"it's", "a", "6\"", "nail"}},
        {"'say \\\"no\\\"'", {"say \\\"no\\\""}},
        {"\"it's\" 'a \"b\"'", {"it's", "a \"b\""}},
        {"\"\" ''", {"", ""}},
        {"--prompt= x", {"--prompt=", "x"}},
        {"a=\"b c\"", {"a=\"b", "c\""}}, /* no option */
        {"--a=b=\"c d\"", {"--a=b=\"c", "d\""}},
        {"back\\slash \\\"", {"back\\slash", "\\\""}},
        {"caf\xC3\xA9 \xE7\x8C\xAB", {"caf\xC3\xA9", "\xE7\x8C\xAB"}},
        {"a # b", {"a", "#", "b"}},
        {"x\r", {"x"}},
    };
    for (size_t i = 0; i < DFX_LENGTH(rows); i++) {
        char copy[256], *words[WORDS_MAX];
        const char *fault;
        int n = words_of(rows[i].line, copy, words, &fault), want = 0;
        while (rows[i].words[want])
            want++;
        if (n != want)
            fail_msg("%s: %d words, wanted %d", rows[i].line, n, want);
        for (int k = 0; k < n; k++)
            assert_string_equal(words[k], rows[i].words[k]);
    }
}

static void quotes_that_do_not_end_well_are_told(void **state) {
    static const char *const lines[][2] = {
        {"a \"red ball", "does not end"}, {"'", "does not end"},
        {"\"a\\\"", "does not end"},      {"--prompt=\"a", "does not end"},
        {"\"a\"b", "wanted a blank"},     {"'a''b'", "wanted a blank"}};
    for (size_t i = 0; i < DFX_LENGTH(lines); i++) {
        char copy[256], *words[WORDS_MAX];
        const char *fault;
        assert_int_equal(words_of(lines[i][0], copy, words, &fault), -1);
        assert_non_null(strstr(fault, lines[i][1]));
    }
}

static dfx_status read_file(tmpdir *dir, const char *text, size_t bytes, dfx_batch_file *file) {
    char path[TMPDIR_PATH];
    dfx_console console;
    tmpdir_write(dir, "lines.txt", text, bytes);
    dfx_console_init(&console, true, false);
    console.sink = dir->log.sink;
    dfx_status status = dfx_batch_file_read(&console, tmpdir_join(dir, "lines.txt", path), file);
    dfx_console_fini(&console);
    return status;
}

static void file_gives_lines_with_their_numbers(void **state) {
    static const char text[] = "\xEF\xBB\xBF# first\r\n\r\na red ball\r\n  # no\n\n'b' -n 2";
    tmpdir *dir = *state;
    dfx_batch_file file;
    assert_int_equal(read_file(dir, text, sizeof(text) - 1, &file), DFX_OK);
    assert_int_equal(file.n_lines, 2);
    assert_int_equal(file.lines[0].number, 3);
    assert_int_equal(file.lines[0].n_words, 3);
    assert_string_equal(file.lines[0].words[2], "ball");
    assert_int_equal(file.lines[1].number, 6);
    assert_int_equal(file.lines[1].n_words, 3);
    assert_string_equal(file.lines[1].words[0], "b");
    dfx_batch_file_free(&file);
}

static void file_without_a_request_is_refused(void **state) {
    static const char *const texts[] = {"", "\n\n", "# a\n#b"};
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_LENGTH(texts); i++) {
        dfx_batch_file file;
        assert_int_equal(read_file(dir, texts[i], strlen(texts[i]), &file), DFX_E_USAGE);
    }
}

/* Every second byte begins a word; as many lines as there may be. */
static void file_of_the_shortest_words_is_read(void **state) {
    enum { LINES = 9999, BYTES = LINES * 20 };
    tmpdir *dir = *state;
    char *text = malloc(BYTES);
    dfx_batch_file file;
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = i % 20 == 19 ? '\n' : i % 2 ? ' ' : 'a';
    assert_int_equal(read_file(dir, text, BYTES, &file), DFX_OK);
    assert_int_equal(file.n_lines, LINES);
    assert_int_equal(file.lines[LINES - 1].n_words, 10);
    dfx_batch_file_free(&file);
    memset(text, '\n', BYTES);
    text[0] = 'a';
    assert_int_equal(read_file(dir, text, BYTES, &file), DFX_E_USAGE);
    free(text);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_a_command_line),
        cmocka_unit_test(quotes_that_do_not_end_well_are_told),
        WITH_DIR(file_gives_lines_with_their_numbers),
        WITH_DIR(file_without_a_request_is_refused),
        WITH_DIR(file_of_the_shortest_words_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
