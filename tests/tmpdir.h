/* What tests of files share: a folder that is removed afterwards, and a sink that
 * keeps what it is told.
 *
 *     static void file_is_missing_fails(void **state) {
 *         tmpdir *dir = *state;
 *         char path[TMPDIR_PATH];
 *         tmpdir_join(dir, "none", path);
 *         assert_int_equal(dfx_file_open(path, &dir->log.sink, &file), DFX_E_IO);
 *         said_error(&dir->log, "none");
 *     }
 *     cmocka_unit_test_setup_teardown(file_is_missing_fails, tmpdir_setup, tmpdir_teardown)
 *
 * Nothing here allocates through core/mem.h, so held bytes and injected faults are those of the
 * code under test alone. The helpers fail the running test when the system lets them down. */
#ifndef DFX_TESTS_TMPDIR_H
#define DFX_TESTS_TMPDIR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>

#include "core/sink.h"

/* A sink that keeps every message, in order. Any thread may say; the test looks afterwards. */
typedef struct said {
    dfx_level level;
    char *text; /* owned */
} said;

typedef struct recorder {
    dfx_sink sink; /* pass &log.sink to the code under test */
    pthread_mutex_t lock;
    said *messages; /* owned */
    size_t n_messages;
} recorder;

void recorder_init(recorder *log);
void recorder_fini(recorder *log);
void recorder_clear(recorder *log);
size_t recorder_count(const recorder *log, dfx_level level);
bool recorder_has(const recorder *log, dfx_level level, const char *words);

/* The test fails, showing what was said, unless there is exactly one error, with `words` in it. */
void said_error(const recorder *log, const char *words);
/* The test fails, showing what was said, unless some message of this level holds `words`. */
void said_words(const recorder *log, dfx_level level, const char *words);
void said_nothing(const recorder *log, dfx_level level);

/* A folder under $TMPDIR or /tmp. */
enum { TMPDIR_PATH = 4096 };
typedef struct tmpdir {
    char path[TMPDIR_PATH / 2];
    recorder log;
} tmpdir;

/* cmocka fixtures: *state is a tmpdir *. */
int tmpdir_setup(void **state);
int tmpdir_teardown(void **state);

/* path "/" name; returns out. */
char *tmpdir_join(const tmpdir *dir, const char *name, char out[TMPDIR_PATH]);
/* Write (over) a file; folders in `name` are made. */
void tmpdir_write(const tmpdir *dir, const char *name, const void *data, size_t bytes);
void tmpdir_write_text(const tmpdir *dir, const char *name, const char *text);
void tmpdir_mkdir(const tmpdir *dir, const char *name); /* parents too */
/* The whole file, NUL-terminated; free() by the caller. */
char *tmpdir_slurp(const tmpdir *dir, const char *name, size_t *out_bytes);
/* Entries of a subfolder ("." for the folder itself), without "." and "..". */
size_t tmpdir_count_entries(const tmpdir *dir, const char *name);

#endif
