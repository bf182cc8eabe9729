/* See tmpdir.h. */
#include "tests/tmpdir.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void keep(void *user, dfx_level level, const char *text) {
    recorder *log = user;
    pthread_mutex_lock(&log->lock);
    said *grown = realloc(log->messages, (log->n_messages + 1) * sizeof(*grown));
    char *copy = strdup(text);
    if (!grown || !copy)
        abort();
    log->messages = grown;
    log->messages[log->n_messages++] = (said){.level = level, .text = copy};
    pthread_mutex_unlock(&log->lock);
}

void recorder_init(recorder *log) {
    *log = (recorder){.sink = {.say = keep, .user = log}};
    pthread_mutex_init(&log->lock, NULL);
}

void recorder_clear(recorder *log) {
    for (size_t i = 0; i < log->n_messages; i++)
        free(log->messages[i].text);
    free(log->messages);
    log->messages = NULL;
    log->n_messages = 0;
}

void recorder_fini(recorder *log) {
    recorder_clear(log);
    pthread_mutex_destroy(&log->lock);
}

size_t recorder_count(const recorder *log, dfx_level level) {
    size_t n = 0;
    for (size_t i = 0; i < log->n_messages; i++)
        n += log->messages[i].level == level;
    return n;
}

bool recorder_has(const recorder *log, dfx_level level, const char *words) {
    for (size_t i = 0; i < log->n_messages; i++)
        if (log->messages[i].level == level && strstr(log->messages[i].text, words))
            return true;
    return false;
}

static void show(const recorder *log) {
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    for (size_t i = 0; i < log->n_messages; i++)
        print_error("said %s: %s\n", levels[log->messages[i].level], log->messages[i].text);
}

void said_error(const recorder *log, const char *words) {
    size_t n = recorder_count(log, DFX_ERROR);
    if (n == 1 && recorder_has(log, DFX_ERROR, words))
        return;
    show(log);
    fail_msg("wanted one error with \"%s\", %zu said", words, n);
}

void said_words(const recorder *log, dfx_level level, const char *words) {
    if (recorder_has(log, level, words))
        return;
    show(log);
    fail_msg("wanted a message of level %d with \"%s\"", (int)level, words);
}

void said_nothing(const recorder *log, dfx_level level) {
    if (recorder_count(log, level) == 0)
        return;
    show(log);
    fail_msg("wanted no message of level %d", (int)level);
}

int tmpdir_setup(void **state) {
    const char *base = getenv("TMPDIR");
    tmpdir *dir = calloc(1, sizeof(*dir));
    if (!dir)
        return -1;
    int len =
        snprintf(dir->path, sizeof(dir->path), "%s/dfx-test-XXXXXX", base && *base ? base : "/tmp");
    if (len < 0 || (size_t)len >= sizeof(dir->path) || !mkdtemp(dir->path)) {
        free(dir);
        return -1;
    }
    recorder_init(&dir->log);
    *state = dir;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    return remove(path);
}

int tmpdir_teardown(void **state) {
    tmpdir *dir = *state;
    int rc = nftw(dir->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    recorder_fini(&dir->log);
    free(dir);
    return rc;
}

char *tmpdir_join(const tmpdir *dir, const char *name, char out[TMPDIR_PATH]) {
    int len = snprintf(out, TMPDIR_PATH, "%s/%s", dir->path, name);
    assert_in_range(len, 1, TMPDIR_PATH - 1);
    return out;
}

/* Make every folder of `path` up to its last '/'. */
static void make_parents(char *path, size_t base_len) {
    for (char *slash = strchr(path + base_len + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            fail_msg("cannot make %s: %s", path, strerror(errno));
        *slash = '/';
    }
}

void tmpdir_write(const tmpdir *dir, const char *name, const void *data, size_t bytes) {
    char path[TMPDIR_PATH];
    make_parents(tmpdir_join(dir, name, path), strlen(dir->path));
    FILE *stream = fopen(path, "wb");
    if (!stream)
        fail_msg("cannot write %s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, bytes, stream), bytes);
    assert_int_equal(fclose(stream), 0);
}

void tmpdir_write_text(const tmpdir *dir, const char *name, const char *text) {
    tmpdir_write(dir, name, text, strlen(text));
}

void tmpdir_mkdir(const tmpdir *dir, const char *name) {
    char path[TMPDIR_PATH];
    make_parents(tmpdir_join(dir, name, path), strlen(dir->path));
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        fail_msg("cannot make %s: %s", path, strerror(errno));
}

char *tmpdir_slurp(const tmpdir *dir, const char *name, size_t *out_bytes) {
    char path[TMPDIR_PATH];
    FILE *stream = fopen(tmpdir_join(dir, name, path), "rb");
    if (!stream)
        fail_msg("cannot read %s: %s", path, strerror(errno));
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    long bytes = ftell(stream);
    assert_true(bytes >= 0);
    rewind(stream);
    char *text = calloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, stream), bytes);
    fclose(stream);
    if (out_bytes)
        *out_bytes = (size_t)bytes;
    return text;
}

size_t tmpdir_count_entries(const tmpdir *dir, const char *name) {
    char path[TMPDIR_PATH];
    DIR *list = opendir(tmpdir_join(dir, name, path));
    if (!list)
        fail_msg("cannot list %s: %s", path, strerror(errno));
    size_t n = 0;
    for (struct dirent *entry; (entry = readdir(list));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(list);
    return n;
}
