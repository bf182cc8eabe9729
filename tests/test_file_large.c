/* Writing large files: no name before commit where the system can do that, room, order of writes, and the write behind. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/write_behind.h"
#include "tests/tmpdir.h"

static void begin(const tmpdir *dir, dfx_file_writer *w) {
    char path[TMPDIR_PATH];
    assert_int_equal(dfx_file_write_begin_large(tmpdir_join(dir, "a", path), &dir->log.sink, w),
                     DFX_OK);
}

static void holds(const tmpdir *dir, const void *want, size_t n_bytes) {
    size_t found;
    char *got = tmpdir_slurp(dir, "a", &found);
    assert_int_equal(found, n_bytes);
    assert_memory_equal(got, want, n_bytes);
    free(got);
}

static void large_file_has_its_name_after_commit_alone(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    begin(dir, &w);
    /* a file system that cannot hide files shows a temporary name */
    assert_int_equal(tmpdir_count_entries(dir, "."), w.temp_path ? 1 : 0);
    assert_int_equal(dfx_file_write_at(&w, &dir->log.sink, 3, "def", 3), DFX_OK);
    assert_int_equal(dfx_file_write_at(&w, &dir->log.sink, 0, "abc", 3), DFX_OK);
    assert_int_equal(dfx_file_write_commit(&w, &dir->log.sink), DFX_OK);
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
    holds(dir, "abcdef", 6);
}

static void large_file_replaces_at_commit(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    tmpdir_write_text(dir, "a", "old");
    begin(dir, &w);
    assert_int_equal(dfx_file_write_at(&w, &dir->log.sink, 0, "new", 3), DFX_OK);
    holds(dir, "old", 3);
    assert_int_equal(dfx_file_write_commit(&w, &dir->log.sink), DFX_OK);
    holds(dir, "new", 3);
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
}

static void large_file_aborted_leaves_the_old_one(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    tmpdir_write_text(dir, "a", "old");
    begin(dir, &w);
    assert_int_equal(dfx_file_write_at(&w, &dir->log.sink, 0, "new", 3), DFX_OK);
    dfx_file_write_abort(&w);
    holds(dir, "old", 3);
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
    assert_int_equal(dfx_mem_held_bytes(), 0);
}

static void large_file_gaps_and_tail_are_zeros(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    begin(dir, &w);
    assert_int_equal(dfx_file_write_at(&w, &dir->log.sink, 2, "x", 1), DFX_OK);
    assert_int_equal(dfx_file_write_end_at(&w, &dir->log.sink, 5), DFX_OK);
    assert_int_equal(dfx_file_write_commit(&w, &dir->log.sink), DFX_OK);
    holds(dir, "\0\0x\0\0", 5);
}

static void room_for_more_than_any_disk_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    begin(dir, &w);
    assert_int_equal(dfx_file_write_room(&w, &dir->log.sink, 1), DFX_OK);
    assert_int_equal(dfx_file_write_room(&w, &dir->log.sink, INT64_MAX), DFX_E_IO);
    said_error(&dir->log, "the disk has");
    dfx_file_write_abort(&w);
}

static void begin_in_no_folder_fails(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer w;
    char path[TMPDIR_PATH];
    tmpdir_join(dir, "none/a", path);
    assert_int_equal(dfx_file_write_begin_large(path, &dir->log.sink, &w), DFX_E_IO);
    said_error(&dir->log, "no such file or folder");
    assert_int_equal(dfx_mem_held_bytes(), 0);
}

static void every_failing_allocation_is_survived(void **state) {
    tmpdir *dir = *state;
    dfx_status status = DFX_E_NOFIT;
    char path[TMPDIR_PATH];
    tmpdir_join(dir, "a", path);
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_file_writer w;
        assert_true(nth < 20);
        dfx_mem_fail_nth(nth);
        status = dfx_file_write_begin_large(path, NULL, &w);
        if (status == DFX_OK)
            status = dfx_file_write_commit(&w, NULL);
        dfx_mem_fail_nth(0);
        assert_int_equal(dfx_mem_held_bytes(), 0);
        assert_int_equal(tmpdir_count_entries(dir, "."), status == DFX_OK);
    }
}

/* More than two pieces of 16 MiB and a rest, from an odd place on. */
static void write_behind_writes_all_of_it(void **state) {
    tmpdir *dir = *state;
    enum { N = (33 << 20) + 5, OFF = 3 };
    uint8_t *data = malloc(OFF + N);
    dfx_file_writer file;
    dfx_write_behind w = {0};
    assert_non_null(data);
    for (size_t i = 0; i < OFF + N; i++)
        data[i] = i < OFF ? 0 : (uint8_t)(i * 2654435761u >> 13);
    begin(dir, &file);
    assert_int_equal(dfx_write_behind_wait(&w), DFX_OK);
    dfx_write_behind_begin(&w, &file, &dir->log.sink, OFF, data + OFF, N);
    assert_int_equal(dfx_write_behind_wait(&w), DFX_OK);
    assert_int_equal(dfx_file_write_commit(&file, &dir->log.sink), DFX_OK);
    holds(dir, data, OFF + N);
    free(data);
}

static void write_behind_returns_the_fault(void **state) {
    tmpdir *dir = *state;
    dfx_file_writer full = {.path = (char *)"/dev/full"};
    dfx_write_behind w = {0};
    full.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full.fd < 0)
        skip();
    dfx_write_behind_begin(&w, &full, &dir->log.sink, 0, "x", 1);
    assert_int_equal(dfx_write_behind_wait(&w), DFX_E_IO);
    said_error(&dir->log, "the disk is full");
    close(full.fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(large_file_has_its_name_after_commit_alone),
        TEST(large_file_replaces_at_commit),
        TEST(large_file_aborted_leaves_the_old_one),
        TEST(large_file_gaps_and_tail_are_zeros),
        TEST(room_for_more_than_any_disk_is_refused),
        TEST(begin_in_no_folder_fails),
        TEST(every_failing_allocation_is_survived),
        TEST(write_behind_writes_all_of_it),
        TEST(write_behind_returns_the_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
