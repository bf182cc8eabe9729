/* Files and JSON: reading, what is refused and how it is told; writing is all or nothing. */
#include "tests/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"

static void file_read_at_offset_returns_those_bytes(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], got[4] = "";
    dfx_file file;
    tmpdir_write_text(dir, "a", "0123456789");
    assert_int_equal(dfx_file_open(tmpdir_join(dir, "a", path), &dir->log.sink, &file), DFX_OK);
    assert_int_equal(file.bytes, 10);
    assert_int_equal(dfx_file_read(&file, &dir->log.sink, 4, got, 3), DFX_OK);
    assert_string_equal(got, "456");
    assert_int_equal(dfx_file_read(&file, &dir->log.sink, 10, got, 0), DFX_OK);
    dfx_file_close(&file);
    dfx_file_close(&file);
}

static void file_read_past_the_end_fails_with_offset(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], got[16];
    dfx_file file;
    tmpdir_write_text(dir, "a", "0123456789");
    assert_int_equal(dfx_file_open(tmpdir_join(dir, "a", path), &dir->log.sink, &file), DFX_OK);
    assert_int_equal(dfx_file_read(&file, &dir->log.sink, 4, got, 7), DFX_E_IO);
    said_error(&dir->log, "offset 10: the file ends there");
    recorder_clear(&dir->log);
    assert_int_equal(dfx_file_read(&file, &dir->log.sink, UINT64_MAX - 3, got, 8), DFX_E_IO);
    said_error(&dir->log, "past the end of any file");
    dfx_file_close(&file);
}

static void file_open_missing_names_path_and_cause(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_file file;
    assert_int_equal(dfx_file_open(tmpdir_join(dir, "none", path), &dir->log.sink, &file),
                     DFX_E_IO);
    said_error(&dir->log, "/none: cannot open: no such file or folder");
}

static void file_open_of_what_is_no_file_is_a_format_error(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_file file;
    assert_int_equal(dfx_file_open(dir->path, &dir->log.sink, &file), DFX_E_FORMAT);
    said_error(&dir->log, "found a folder");
    recorder_clear(&dir->log);
    assert_int_equal(mkfifo(tmpdir_join(dir, "fifo", path), 0600), 0);
    alarm(5); /* a FIFO without a writer would block for ever */
    assert_int_equal(dfx_file_open(path, &dir->log.sink, &file), DFX_E_FORMAT);
    alarm(0);
    said_error(&dir->log, "found a FIFO");
    recorder_clear(&dir->log);
    assert_int_equal(dfx_file_open("/dev/null", &dir->log.sink, &file), DFX_E_FORMAT);
    said_error(&dir->log, "found a device");
}

/* Root may do everything, so root becomes nobody for the call. */
static void file_without_permission_is_told_so(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], inside[TMPDIR_PATH];
    dfx_file file;
    dfx_file_writer writer;
    tmpdir_write_text(dir, "locked/a", "x");
    tmpdir_join(dir, "locked", path);
    tmpdir_join(dir, "locked/a", inside);
    assert_int_equal(chmod(path, 0), 0);
    bool root = geteuid() == 0;
    if (root)
        assert_int_equal(seteuid(65534), 0);
    dfx_status opened = dfx_file_open(inside, &dir->log.sink, &file);
    dfx_status begun = dfx_file_write_begin(inside, &dir->log.sink, &writer);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(opened, DFX_E_IO);
    assert_int_equal(begun, DFX_E_IO);
    said_words(&dir->log, DFX_ERROR, "cannot open: no permission");
    said_words(&dir->log, DFX_ERROR, "cannot create: no permission");
}

static void file_slurp_returns_text_and_holds_the_limit(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], *text;
    size_t bytes;
    tmpdir_write(dir, "a", "ab\0c", 4);
    tmpdir_join(dir, "a", path);
    assert_int_equal(dfx_file_slurp(path, &dir->log.sink, 4, &text, &bytes), DFX_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(text, "ab\0c\0", 5);
    dfx_free(text);
    assert_int_equal(dfx_file_slurp(path, &dir->log.sink, 3, &text, &bytes), DFX_E_FORMAT);
    said_error(&dir->log, "4 bytes where at most 3");
}

static void file_questions_tell_files_from_folders(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    tmpdir_write_text(dir, "a", "x");
    assert_true(dfx_file_exists(tmpdir_join(dir, "a", path)));
    assert_false(dfx_file_is_dir(path));
    assert_false(dfx_file_exists(dir->path));
    assert_true(dfx_file_is_dir(dir->path));
    assert_false(dfx_file_exists(tmpdir_join(dir, "b", path)));
}

static void path_join_adds_one_slash_and_refuses_long_paths(void **state) {
    tmpdir *dir = *state;
    char out[DFX_PATH_BYTES], *name = calloc(1, DFX_PATH_BYTES);
    assert_non_null(name);
    assert_int_equal(dfx_path_join(&dir->log.sink, "x", "y", out), DFX_OK);
    assert_string_equal(out, "x/y");
    assert_int_equal(dfx_path_join(&dir->log.sink, "x/", "y", out), DFX_OK);
    assert_string_equal(out, "x/y");
    memset(name, 'n', DFX_PATH_BYTES - 3);
    assert_int_equal(dfx_path_join(&dir->log.sink, "d", name, out), DFX_OK);
    name[DFX_PATH_BYTES - 3] = 'n';
    assert_int_equal(dfx_path_join(&dir->log.sink, "d", name, out), DFX_E_USAGE);
    said_error(&dir->log, "4096 bytes");
    free(name);
}

static dfx_status write_text(const tmpdir *dir, const char *name, const char *text) {
    char path[TMPDIR_PATH];
    dfx_file_writer writer;
    DFX_TRY(dfx_file_write_begin(tmpdir_join(dir, name, path), &dir->log.sink, &writer));
    dfx_status status = dfx_file_write(&writer, &dir->log.sink, text, strlen(text));
    if (status != DFX_OK) {
        dfx_file_write_abort(&writer);
        return status;
    }
    return dfx_file_write_commit(&writer, &dir->log.sink);
}

static void holds(const tmpdir *dir, const char *name, const char *text) {
    char *got = tmpdir_slurp(dir, name, NULL);
    assert_string_equal(got, text);
    free(got);
}

static void writer_commit_replaces_the_file_and_leaves_nothing_else(void **state) {
    tmpdir *dir = *state;
    assert_int_equal(write_text(dir, "a", "first"), DFX_OK);
    assert_int_equal(write_text(dir, "a", "second"), DFX_OK);
    holds(dir, "a", "second");
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
    said_nothing(&dir->log, DFX_ERROR);
    said_nothing(&dir->log, DFX_WARN);
}

static void writer_before_commit_leaves_the_old_file(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_file_writer writer;
    tmpdir_write_text(dir, "a", "old");
    tmpdir_join(dir, "a", path);
    assert_int_equal(dfx_file_write_begin(path, &dir->log.sink, &writer), DFX_OK);
    assert_int_equal(dfx_file_write(&writer, &dir->log.sink, "new", 3), DFX_OK);
    holds(dir, "a", "old");
    assert_int_equal(tmpdir_count_entries(dir, "."), 2);
    dfx_file_write_abort(&writer);
    holds(dir, "a", "old");
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
}

static void writers_of_one_folder_do_not_meet(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_file_writer a, b;
    assert_int_equal(dfx_file_write_begin(tmpdir_join(dir, "a", path), &dir->log.sink, &a), DFX_OK);
    assert_int_equal(dfx_file_write_begin(tmpdir_join(dir, "b", path), &dir->log.sink, &b), DFX_OK);
    assert_int_equal(dfx_file_write(&a, &dir->log.sink, "aa", 2), DFX_OK);
    assert_int_equal(dfx_file_write(&b, &dir->log.sink, "bb", 2), DFX_OK);
    assert_int_equal(dfx_file_write_commit(&a, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_file_write_commit(&b, &dir->log.sink), DFX_OK);
    holds(dir, "a", "aa");
    holds(dir, "b", "bb");
}

static void writer_takes_the_longest_legal_name(void **state) {
    tmpdir *dir = *state;
    char name[257] = "";
    memset(name, 'n', 255);
    assert_int_equal(write_text(dir, name, "x"), DFX_OK);
    holds(dir, name, "x");
    name[255] = 'n';
    assert_int_equal(write_text(dir, name, "x"), DFX_E_IO);
    said_error(&dir->log, "the name is too long");
}

static void writer_tells_why_a_target_is_impossible(void **state) {
    tmpdir *dir = *state;
    tmpdir_write_text(dir, "file", "x");
    tmpdir_mkdir(dir, "folder");
    static const char *const table[][2] = {
        {"file/a.png", "a part of the path is a file and not a folder"},
        {"folder", "it is a folder"},
        {"none/a.png", "no such file or folder"},
        {"folder/", "the path names no file"},
    };
    for (size_t i = 0; i < DFX_COUNT(table); i++) {
        recorder_clear(&dir->log);
        assert_int_equal(write_text(dir, table[i][0], "x"), DFX_E_IO);
        said_error(&dir->log, table[i][1]);
    }
    assert_int_equal(tmpdir_count_entries(dir, "."), 2);
    assert_int_equal(tmpdir_count_entries(dir, "folder"), 0);
}

static void writer_that_cannot_finish_leaves_the_old_file(void **state) {
    tmpdir *dir = *state;
    struct rlimit old, small;
    tmpdir_write_text(dir, "a", "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 4; /* the fifth byte of any file fails, as on a full disk */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    dfx_status status = write_text(dir, "a", "longer than four");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, DFX_E_IO);
    said_error(&dir->log, "cannot write: the file would be larger");
    holds(dir, "a", "old");
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
}

static void writer_without_memory_leaves_nothing(void **state) {
    tmpdir *dir = *state;
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    int n = 0;
    while (status == DFX_E_NOFIT) {
        dfx_mem_fail_nth((uint64_t)++n);
        status = write_text(dir, "a", "x");
        dfx_mem_fail_nth(0);
        assert_int_equal(dfx_mem_held_bytes(), held);
        assert_int_equal(tmpdir_count_entries(dir, "."), status == DFX_OK);
    }
    assert_int_equal(status, DFX_OK);
    assert_int_equal(n, 3); /* the path and the temporary path */
}

static void fd_write_to_a_full_disk_is_told_so(void **state) {
    tmpdir *dir = *state;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        skip();
    assert_int_equal(dfx_fd_write(fd, "standard output", &dir->log.sink, "x", 1), DFX_E_IO);
    said_error(&dir->log, "standard output: cannot write: the disk is full");
    close(fd);
}

static json_t *parse(tmpdir *dir, const char *text) {
    json_t *value = NULL;
    assert_int_equal(dfx_json_parse(text, strlen(text), "t.json", &dir->log.sink, &value), DFX_OK);
    return value;
}

static void json_duplicate_key_is_named_in_full(void **state) {
    tmpdir *dir = *state;
    static const char text[] = "{\"a\": 1,\n \"a name longer than \\\"twenty\\\" bytes\": 1,"
                               "\"a name longer than \\\"twenty\\\" bytes\" : 2}";
    json_t *value = NULL;
    assert_int_equal(dfx_json_parse(text, sizeof(text) - 1, "t.json", &dir->log.sink, &value),
                     DFX_E_FORMAT);
    said_error(&dir->log,
               "t.json: line 2: duplicate key \"a name longer than \\\"twenty\\\" bytes\"");
}

static void json_that_is_not_valid_tells_the_line(void **state) {
    tmpdir *dir = *state;
    static const char *const texts[] = {
        "", "{\n\"a\": tru}", "[1,]", "{\"a\":\"\\ud800\"}", "{\"a\":\"\xff\"}", "{} x", "1"};
    for (size_t i = 0; i < DFX_COUNT(texts); i++) {
        json_t *value = NULL;
        recorder_clear(&dir->log);
        assert_int_equal(
            dfx_json_parse(texts[i], strlen(texts[i]), "t.json", &dir->log.sink, &value),
            DFX_E_FORMAT);
        said_error(&dir->log, "t.json: line ");
        assert_null(value);
    }
}

static void json_load_reads_a_file(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    json_t *value;
    int64_t number;
    tmpdir_write_text(dir, "c.json", "{\"n\": 7}");
    assert_int_equal(dfx_json_load(tmpdir_join(dir, "c.json", path), &dir->log.sink, 100, &value),
                     DFX_OK);
    assert_int_equal(dfx_json_int(value, "c", "n", 0, 9, &dir->log.sink, &number), DFX_OK);
    assert_int_equal(number, 7);
    json_decref(value);
}

static void json_getters_return_values_of_their_type(void **state) {
    tmpdir *dir = *state;
    const dfx_sink *sink = &dir->log.sink;
    json_t *obj =
        parse(dir, "{\"i\":64,\"r\":0.5,\"b\":true,\"s\":\"x\",\"o\":{},\"l\":[],\"n\":null}");
    int64_t i;
    double r;
    bool b = false;
    const char *s;
    json_t *part;
    assert_int_equal(dfx_json_int(obj, "t", "i", 1, 64, sink, &i), DFX_OK);
    assert_int_equal(i, 64);
    assert_int_equal(dfx_json_real(obj, "t", "r", sink, &r), DFX_OK);
    assert_true(r == 0.5);
    assert_int_equal(dfx_json_real(obj, "t", "i", sink, &r), DFX_OK);
    assert_true(r == 64.0);
    assert_int_equal(dfx_json_bool(obj, "t", "b", sink, &b), DFX_OK);
    assert_true(b);
    assert_int_equal(dfx_json_str(obj, "t", "s", sink, &s), DFX_OK);
    assert_string_equal(s, "x");
    assert_int_equal(dfx_json_object(obj, "t", "o", sink, &part), DFX_OK);
    assert_int_equal(dfx_json_array(obj, "t", "l", sink, &part), DFX_OK);
    assert_true(dfx_json_has(obj, "i"));
    assert_false(dfx_json_has(obj, "n"));
    assert_false(dfx_json_has(obj, "z"));
    json_decref(obj);
}

static void json_getters_tell_key_wanted_and_found(void **state) {
    tmpdir *dir = *state;
    const dfx_sink *sink = &dir->log.sink;
    json_t *obj = parse(dir, "{\"i\":65,\"r\":4.5,\"s\":\"x\",\"o\":{}}"), *part;
    int64_t i;
    double r;
    bool b;
    const char *s;
    assert_int_equal(dfx_json_int(obj, "t", "i", 1, 64, sink, &i), DFX_E_FORMAT);
    assert_int_equal(dfx_json_int(obj, "t", "r", 1, 64, sink, &i), DFX_E_FORMAT);
    assert_int_equal(dfx_json_int(obj, "t", "s", 1, 64, sink, &i), DFX_E_FORMAT);
    assert_int_equal(dfx_json_real(obj, "t", "z", sink, &r), DFX_E_FORMAT);
    assert_int_equal(dfx_json_bool(obj, "t", "o", sink, &b), DFX_E_FORMAT);
    assert_int_equal(dfx_json_str(obj, "t", "i", sink, &s), DFX_E_FORMAT);
    assert_int_equal(dfx_json_object(obj, "t", "s", sink, &part), DFX_E_FORMAT);
    assert_int_equal(dfx_json_array(obj, "t", "o", sink, &part), DFX_E_FORMAT);
    static const char *const wanted[] = {
        "t: i: wanted an integer from 1 to 64, found 65",
        "t: r: wanted an integer from 1 to 64, found 4.5",
        "t: s: wanted an integer from 1 to 64, found \"x\"",
        "t: z: wanted a number, found nothing",
        "t: o: wanted true or false, found an object",
        "t: i: wanted a string, found 65",
        "t: s: wanted an object, found \"x\"",
        "t: o: wanted a list, found an object",
    };
    assert_int_equal(dir->log.n_messages, DFX_COUNT(wanted));
    for (size_t k = 0; k < DFX_COUNT(wanted); k++)
        assert_string_equal(dir->log.messages[k].text, wanted[k]);
    json_decref(obj);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(file_read_at_offset_returns_those_bytes),
        TEST(file_read_past_the_end_fails_with_offset),
        TEST(file_open_missing_names_path_and_cause),
        TEST(file_open_of_what_is_no_file_is_a_format_error),
        TEST(file_without_permission_is_told_so),
        TEST(file_slurp_returns_text_and_holds_the_limit),
        TEST(file_questions_tell_files_from_folders),
        TEST(path_join_adds_one_slash_and_refuses_long_paths),
        TEST(writer_commit_replaces_the_file_and_leaves_nothing_else),
        TEST(writer_before_commit_leaves_the_old_file),
        TEST(writers_of_one_folder_do_not_meet),
        TEST(writer_takes_the_longest_legal_name),
        TEST(writer_tells_why_a_target_is_impossible),
        TEST(writer_that_cannot_finish_leaves_the_old_file),
        TEST(writer_without_memory_leaves_nothing),
        TEST(fd_write_to_a_full_disk_is_told_so),
        TEST(json_duplicate_key_is_named_in_full),
        TEST(json_that_is_not_valid_tells_the_line),
        TEST(json_load_reads_a_file),
        TEST(json_getters_return_values_of_their_type),
        TEST(json_getters_tell_key_wanted_and_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
