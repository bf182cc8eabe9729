/* The file of chosen algorithms: its bytes, counted by hand from the header of algo_file.h; what is not taken from a file that
 * is not as it should be; several writers at once. No fault here is an error for the caller. */
#include "kernels/algo_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/checksum.h"
#include "tests/tmpdir.h"

#define HEADING "NVIDIA H200, sm_90, 132 multiprocessors, driver 13000, cuBLASLt 130100"

enum { KEY = 96, ALGO = 64, ENTRY = KEY + ALGO, HEAD = 408 };

/* Key and algorithm number i: bytes that no other number has. */
static void make_entry(uint32_t i, unsigned char entry[ENTRY]) {
    for (int at = 0; at < ENTRY; at++)
        entry[at] = (unsigned char)(i * 7 + (uint32_t)at * 13);
    memcpy(entry, &i, sizeof(i));
    memcpy(entry + KEY, &i, sizeof(i));
}

static void put(dfx_algos *algos, uint32_t i) {
    unsigned char entry[ENTRY];
    make_entry(i, entry);
    assert_int_equal(dfx_algos_put(algos, entry, entry + KEY, NULL), DFX_OK);
}

static bool has(const dfx_algos *algos, uint32_t i) {
    unsigned char entry[ENTRY];
    make_entry(i, entry);
    const void *found = dfx_algos_find(algos, entry);
    if (found)
        assert_memory_equal(found, entry + KEY, ALGO);
    return found != NULL;
}

static unsigned char *encode(uint32_t n, size_t *n_bytes) {
    dfx_algos algos = {0};
    void *bytes;
    for (uint32_t i = 0; i < n; i++)
        put(&algos, i);
    assert_int_equal(dfx_algos_encode(&algos, HEADING, NULL, &bytes, n_bytes), DFX_OK);
    dfx_algos_fini(&algos);
    return bytes;
}

static void algos_put_replaces_what_the_key_had(void **state) {
    dfx_algos algos = {0};
    unsigned char entry[ENTRY], other[ALGO];
    memset(other, 0xee, sizeof(other));
    make_entry(1, entry);
    assert_null(dfx_algos_find(&algos, entry));
    put(&algos, 1);
    put(&algos, 2);
    assert_true(has(&algos, 1) && has(&algos, 2) && !has(&algos, 3));
    assert_int_equal(dfx_algos_put(&algos, entry, other, NULL), DFX_OK);
    assert_int_equal(algos.n, 2);
    assert_memory_equal(dfx_algos_find(&algos, entry), other, ALGO);
    assert_true(has(&algos, 2));
    dfx_algos_fini(&algos);
}

static void algos_full_list_loses_the_oldest(void **state) {
    dfx_algos algos = {0};
    for (uint32_t i = 0; i < DFX_ALGOS_MAX + 2; i++)
        put(&algos, i);
    assert_int_equal(algos.n, 4096);
    assert_false(has(&algos, 0));
    assert_false(has(&algos, 1));
    assert_true(has(&algos, 2) && has(&algos, DFX_ALGOS_MAX) && has(&algos, DFX_ALGOS_MAX + 1));
    dfx_algos_fini(&algos);
}

static void algos_bytes_are_as_the_header_says(void **state) {
    size_t n_bytes;
    unsigned char *bytes = encode(3, &n_bytes), entry[ENTRY];
    uint32_t numbers[2];
    uint64_t checksum;
    assert_int_equal(n_bytes, 8 + 4 + 4 + 8 + 384 + 3 * 160);
    assert_memory_equal(bytes, "DFXALGOS", 8);
    memcpy(numbers, bytes + 8, 8);
    assert_true(numbers[0] == 1 && numbers[1] == 3);
    memcpy(&checksum, bytes + 16, 8);
    assert_true(checksum == dfx_xxh3(bytes + 24, n_bytes - 24));
    assert_string_equal((char *)bytes + 24, HEADING);
    for (size_t i = 24 + sizeof(HEADING); i < HEAD; i++)
        assert_int_equal(bytes[i], 0);
    for (uint32_t i = 0; i < 3; i++) {
        make_entry(i, entry);
        assert_memory_equal(bytes + HEAD + i * 160, entry, 160);
    }
    dfx_free(bytes);
}

static void algos_decode_gives_back_what_was_encoded(void **state) {
    static const uint32_t counts[] = {0, 1, 3, DFX_ALGOS_MAX};
    for (size_t c = 0; c < DFX_COUNT(counts); c++) {
        dfx_algos algos = {0};
        size_t n_bytes;
        unsigned char *bytes = encode(counts[c], &n_bytes);
        assert_null(dfx_algos_decode(bytes, n_bytes, HEADING, &algos));
        assert_int_equal(algos.n, counts[c]);
        for (uint32_t i = 0; i < counts[c]; i++)
            assert_true(has(&algos, i));
        dfx_algos_fini(&algos);
        dfx_free(bytes);
    }
}

/* Nothing is kept of bytes that are not a whole and sound file. A copy of exactly n_bytes, so that ASan sees a read beyond. */
static const char *refused(const unsigned char *bytes, size_t n_bytes, const char *heading) {
    dfx_algos algos = {0};
    unsigned char *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    const char *fault = dfx_algos_decode(copy, n_bytes, heading, &algos);
    assert_non_null(fault);
    assert_true(algos.n == 0 && !algos.list);
    free(copy);
    return fault;
}

static void algos_decode_refuses_every_shorter_and_longer_file(void **state) {
    size_t n_bytes;
    unsigned char *bytes = encode(2, &n_bytes), longer[HEAD + 3 * ENTRY] = {0};
    for (size_t n = 0; n < n_bytes; n++)
        refused(bytes, n, HEADING);
    memcpy(longer, bytes, n_bytes);
    refused(longer, n_bytes + 1, HEADING);
    refused(longer, sizeof(longer), HEADING);
    dfx_free(bytes);
}

static void algos_decode_refuses_every_changed_byte(void **state) {
    size_t n_bytes;
    unsigned char *bytes = encode(2, &n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            bytes[i] ^= (unsigned char)(1 << bit);
            refused(bytes, n_bytes, HEADING);
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    dfx_free(bytes);
}

/* With a checksum that fits: who forges a file can do that. */
static void seal(unsigned char *bytes, size_t n_bytes) {
    uint64_t checksum = dfx_xxh3(bytes + 24, n_bytes - 24);
    memcpy(bytes + 16, &checksum, sizeof(checksum));
}

static void algos_decode_refuses_forged_numbers(void **state) {
    static const uint32_t counts[] = {0, 1, 3, 4097, 0x01999999, 0x80000000, 0xffffffff};
    size_t n_bytes;
    unsigned char *bytes = encode(2, &n_bytes);
    for (size_t i = 0; i < DFX_COUNT(counts); i++) {
        memcpy(bytes + 12, &counts[i], 4);
        seal(bytes, n_bytes);
        assert_string_equal(refused(bytes, n_bytes, HEADING), "its size does not fit its contents");
    }
    memcpy(bytes + 12, &(uint32_t){2}, 4);
    memcpy(bytes + HEAD + ENTRY, bytes + HEAD, KEY); /* one key twice */
    seal(bytes, n_bytes);
    assert_non_null(strstr(refused(bytes, n_bytes, HEADING), "twice"));
    dfx_free(bytes);
}

static void algos_decode_refuses_another_heading_or_version(void **state) {
    size_t n_bytes;
    unsigned char *bytes = encode(2, &n_bytes);
    static const char *const others[] = {"", HEADING "1",
                                         "NVIDIA H100, sm_90, 132 multiprocessors"};
    for (size_t i = 0; i < DFX_COUNT(others); i++)
        assert_string_equal(refused(bytes, n_bytes, others[i]),
                            "it is of another device, driver or library");
    bytes[8] = 2;
    assert_string_equal(refused(bytes, n_bytes, HEADING), "it is of another version");
    bytes[0] = 'd';
    assert_string_equal(refused(bytes, n_bytes, HEADING), "it is a file of another kind");
    dfx_free(bytes);
}

/* As much of a heading as fits; the rest does not count. */
static void algos_heading_that_is_too_long_is_cut(void **state) {
    char text[1000];
    dfx_algos algos = {0};
    void *bytes;
    size_t n_bytes;
    memset(text, 'x', sizeof(text));
    text[999] = '\0';
    assert_int_equal(dfx_algos_encode(&algos, text, NULL, &bytes, &n_bytes), DFX_OK);
    assert_int_equal(((char *)bytes)[HEAD - 1], 0);
    assert_null(dfx_algos_decode(bytes, n_bytes, text, &algos));
    text[383] = '\0';
    assert_null(dfx_algos_decode(bytes, n_bytes, text, &algos));
    text[382] = '\0';
    refused(bytes, n_bytes, text);
    dfx_free(bytes);
}

static void algos_stored_are_loaded(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_algos algos = {0}, loaded = {0};
    tmpdir_join(dir, "a.algos", path);
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded); /* not there yet: nothing to say */
    assert_true(loaded.n == 0 && dir->log.n_messages == 0);
    put(&algos, 5);
    dfx_algos_store(path, HEADING, &algos, &dir->log.sink);
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
    assert_true(loaded.n == 1 && has(&loaded, 5));
    assert_int_equal(dir->log.n_messages, 0);
    assert_int_equal(tmpdir_count_entries(dir, "."), 1); /* no temporary file stays */
    dfx_algos_fini(&algos);
    dfx_algos_fini(&loaded);
}

/* What another process has written since is kept, but for keys that both have chosen. */
static void algos_store_keeps_what_another_has_stored(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    unsigned char entry[ENTRY], other[ALGO];
    dfx_algos mine = {0}, theirs = {0}, loaded = {0};
    tmpdir_join(dir, "a.algos", path);
    make_entry(2, entry);
    memset(other, 0xee, sizeof(other));
    put(&theirs, 1);
    assert_int_equal(dfx_algos_put(&theirs, entry, other, NULL), DFX_OK);
    dfx_algos_store(path, HEADING, &theirs, &dir->log.sink);
    put(&mine, 2);
    put(&mine, 3);
    dfx_algos_store(path, HEADING, &mine, &dir->log.sink);
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
    assert_true(loaded.n == 3 && has(&loaded, 1) && has(&loaded, 2) && has(&loaded, 3));
    dfx_algos_fini(&mine);
    dfx_algos_fini(&theirs);
    dfx_algos_fini(&loaded);
}

static void algos_full_list_is_stored_before_those_of_others(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_algos mine = {0}, theirs = {0}, loaded = {0};
    tmpdir_join(dir, "a.algos", path);
    put(&theirs, 100000);
    dfx_algos_store(path, HEADING, &theirs, &dir->log.sink);
    for (uint32_t i = 0; i < DFX_ALGOS_MAX; i++)
        put(&mine, i);
    dfx_algos_store(path, HEADING, &mine, &dir->log.sink);
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
    assert_true(loaded.n == 4096 && has(&loaded, 0) && has(&loaded, 4095));
    assert_false(has(&loaded, 100000));
    dfx_algos_fini(&mine);
    dfx_algos_fini(&theirs);
    dfx_algos_fini(&loaded);
}

/* Each is told once as a detail; nothing is loaded. */
static void algos_load_of_a_bad_file_is_a_detail(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    static const size_t sizes[] = {0, 10, HEAD, 1000000};
    static unsigned char zeros[1000000];
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        dfx_algos loaded = {0};
        recorder_clear(&dir->log);
        tmpdir_write(dir, "a.algos", zeros, sizes[i]);
        dfx_algos_load(tmpdir_join(dir, "a.algos", path), HEADING, &dir->log.sink, &loaded);
        assert_int_equal(loaded.n, 0);
        assert_int_equal(dir->log.n_messages, 1);
        said_words(&dir->log, DFX_DEBUG, "a.algos");
    }
}

/* A bad file is replaced by a good one. */
static void algos_store_over_a_bad_file_replaces_it(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_algos algos = {0}, loaded = {0};
    tmpdir_write_text(dir, "a.algos", "nonsense");
    put(&algos, 1);
    dfx_algos_store(tmpdir_join(dir, "a.algos", path), HEADING, &algos, &dir->log.sink);
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
    assert_true(has(&loaded, 1));
    dfx_algos_fini(&algos);
    dfx_algos_fini(&loaded);
}

static void algos_store_where_nothing_can_be_written_is_a_detail(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    static const char *const names[] = {"none/a.algos", "folder", "file/a.algos"};
    dfx_algos algos = {0};
    put(&algos, 1);
    tmpdir_mkdir(dir, "folder");
    tmpdir_write_text(dir, "file", "");
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        recorder_clear(&dir->log);
        dfx_algos_store(tmpdir_join(dir, names[i], path), HEADING, &algos, &dir->log.sink);
        assert_int_equal(recorder_count(&dir->log, DFX_DEBUG), dir->log.n_messages);
        said_words(&dir->log, DFX_DEBUG, "cannot create");
    }
    assert_true(has(&algos, 1));
    dfx_algos_fini(&algos);
}

/* Memory that is not there costs the file, and no more. */
static void algos_without_memory_are_forgotten_without_a_leak(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    size_t held = dfx_mem_held_bytes();
    dfx_algos algos = {0};
    tmpdir_join(dir, "a.algos", path);
    put(&algos, 1);
    dfx_algos_store(path, HEADING, &algos, &dir->log.sink);
    for (uint64_t nth = 1; nth <= 12; nth++) {
        dfx_algos loaded = {0};
        put(&algos, 1 + (uint32_t)nth);
        dfx_mem_fail_nth(nth);
        dfx_algos_store(path, HEADING, &algos, &dir->log.sink);
        dfx_mem_fail_nth(nth);
        dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
        dfx_mem_fail_nth(0);
        assert_true(loaded.n == 0 || has(&loaded, 1));
        dfx_algos_fini(&loaded);
    }
    said_nothing(&dir->log, DFX_ERROR);
    dfx_algos_fini(&algos);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

enum { WRITERS = 3, ROUNDS = 40 };

static void write_many(const char *path, uint32_t writer) {
    for (uint32_t i = 0; i < ROUNDS; i++) {
        dfx_algos algos = {0};
        put(&algos, writer * 1000 + i);
        dfx_algos_store(path, HEADING, &algos, NULL);
        dfx_algos_fini(&algos);
    }
}

/* Whoever reads meanwhile finds a whole file, whoever writes last has written. */
static void algos_of_writers_at_once_are_always_whole(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    pid_t writers[WRITERS];
    tmpdir_join(dir, "a.algos", path);
    write_many(path, WRITERS);
    for (uint32_t w = 0; w < WRITERS; w++) {
        writers[w] = fork();
        assert_true(writers[w] >= 0);
        if (writers[w] == 0) {
            write_many(path, w);
            _exit(0);
        }
    }
    for (uint32_t running = WRITERS; running > 0;) {
        dfx_algos loaded = {0};
        dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
        assert_true(loaded.n >= ROUNDS && has(&loaded, WRITERS * 1000));
        dfx_algos_fini(&loaded);
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        assert_true(ended >= 0 && (ended == 0 || status == 0));
        running -= ended > 0;
    }
    dfx_algos loaded = {0};
    dfx_algos_load(path, HEADING, &dir->log.sink, &loaded);
    bool has_last = false;
    for (uint32_t w = 0; w < WRITERS; w++)
        has_last |= has(&loaded, w * 1000 + ROUNDS - 1);
    assert_true(has_last);
    assert_int_equal(dir->log.n_messages, 0);
    assert_int_equal(tmpdir_count_entries(dir, "."), 1);
    dfx_algos_fini(&loaded);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(algos_put_replaces_what_the_key_had),
        cmocka_unit_test(algos_full_list_loses_the_oldest),
        cmocka_unit_test(algos_bytes_are_as_the_header_says),
        cmocka_unit_test(algos_decode_gives_back_what_was_encoded),
        cmocka_unit_test(algos_decode_refuses_every_shorter_and_longer_file),
        cmocka_unit_test(algos_decode_refuses_every_changed_byte),
        cmocka_unit_test(algos_decode_refuses_forged_numbers),
        cmocka_unit_test(algos_decode_refuses_another_heading_or_version),
        cmocka_unit_test(algos_heading_that_is_too_long_is_cut),
        WITH_DIR(algos_stored_are_loaded),
        WITH_DIR(algos_store_keeps_what_another_has_stored),
        WITH_DIR(algos_full_list_is_stored_before_those_of_others),
        WITH_DIR(algos_load_of_a_bad_file_is_a_detail),
        WITH_DIR(algos_store_over_a_bad_file_replaces_it),
        WITH_DIR(algos_store_where_nothing_can_be_written_is_a_detail),
        WITH_DIR(algos_without_memory_are_forgotten_without_a_leak),
        WITH_DIR(algos_of_writers_at_once_are_always_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
