/* The cache of packed models: what a file is called, and when it is another one. */
#include "models/cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/draw_rig.h"

static const char WEIGHTS[] = "text_encoder_2/model.safetensors";

static void path_of(draw_rig *r, const char *folder, dfx_qformat quant, char out[DFX_PATH_BYTES]) {
    recorder_clear(r->log);
    assert_int_equal(dfx_cache_path(&(dfx_model_paths){.model = folder}, quant, &r->log->sink, out),
                     DFX_OK);
    assert_int_equal(r->log->n_messages, 0);
}

/* Is the file of the folder still this one? */
static bool is_still(draw_rig *r, const char *folder, const char *path) {
    char now[DFX_PATH_BYTES];
    path_of(r, folder, DFX_Q_STORED, now);
    return strcmp(now, path) == 0;
}

static void cache_path_is_folder_format_and_key(void **state) {
    static const struct {
        dfx_qformat quant;
        const char *begin;
    } rows[] = {{DFX_Q_STORED, "/dfx-edge/scenes-stored-"},
                {DFX_Q_INT8, "/dfx-edge/scenes-int8-"},
                {DFX_Q_INT8WO, "/dfx-edge/scenes-int8wo-"}};
    draw_rig *r = *state;
    char keys[3][17];
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        char path[DFX_PATH_BYTES];
        path_of(r, DRAW_SCENES, rows[i].quant, path);
        size_t base = strlen(r->cache->path), begin = strlen(rows[i].begin);
        assert_memory_equal(path, r->cache->path, base);
        assert_memory_equal(path + base, rows[i].begin, begin);
        const char *key = path + base + begin;
        assert_int_equal(strspn(key, "0123456789abcdef"), 16);
        assert_string_equal(key + 16, ".safetensors");
        memcpy(keys[i], key, 16);
        keys[i][16] = 0;
    }
    assert_string_not_equal(keys[0], keys[1]);
    assert_string_not_equal(keys[1], keys[2]);
    assert_true(dfx_file_is_dir(r->cache->path)); /* and the folder below, which is made */
    assert_int_equal(tmpdir_count_entries(r->cache, "dfx-edge"), 0);
}

/* Whatever path leads to it. */
static void cache_path_of_same_folder_is_the_same(void **state) {
    draw_rig *r = *state;
    char path[DFX_PATH_BYTES], link[TMPDIR_PATH], whole[TMPDIR_PATH];
    path_of(r, DRAW_SCENES, DFX_Q_STORED, path);
    assert_true(is_still(r, DRAW_SCENES, path));
    assert_true(is_still(r, DRAW_SCENES "///", path));
    assert_non_null(realpath(DRAW_SCENES, whole));
    assert_true(is_still(r, whole, path));
    assert_int_equal(symlink(whole, tmpdir_join(r->dir, "scenes", link)), 0);
    assert_true(is_still(r, link, path));
}

static void cache_path_of_changed_small_file_is_another(void **state) {
    static const char *const names[] = {"transformer/config.json", "dfx.json",
                                        "tokenizer/vocab.json", "scheduler/scheduler_config.json"};
    draw_rig *r = *state;
    const char *folder = draw_copy(r);
    char path[DFX_PATH_BYTES];
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        path_of(r, folder, DFX_Q_STORED, path);
        draw_edit_text(r, names[i], "\"", " \"");
        assert_false(is_still(r, folder, path));
    }
}

/* Two files that trade places are other files too. */
static void cache_path_of_file_that_comes_or_goes_is_another(void **state) {
    draw_rig *r = *state;
    const char *folder = draw_copy(r);
    char path[DFX_PATH_BYTES], name[TMPDIR_PATH];
    path_of(r, folder, DFX_Q_STORED, path);
    tmpdir_write_text(r->dir, "tokenizer/added_tokens.json", "{}");
    assert_false(is_still(r, folder, path));
    assert_int_equal(unlink(tmpdir_join(r->dir, "tokenizer/added_tokens.json", name)), 0);
    assert_true(is_still(r, folder, path));
    tmpdir_write_text(r->dir, "transformer/more.safetensors", "x");
    assert_false(is_still(r, folder, path));
}

/* Of a file that no program reads nothing is hashed. */
static void cache_path_of_unknown_file_is_the_same(void **state) {
    draw_rig *r = *state;
    const char *folder = draw_copy(r);
    char path[DFX_PATH_BYTES];
    path_of(r, folder, DFX_Q_STORED, path);
    tmpdir_write_text(r->dir, "README.txt", "x");
    tmpdir_write_text(r->dir, "transformer/notes.txt", "x");
    assert_true(is_still(r, folder, path));
}

/* One byte of the weights, with the file's old time or with a new one. */
static void cache_path_of_changed_weights_is_another(void **state) {
    draw_rig *r = *state;
    const char *folder = draw_copy(r);
    char path[DFX_PATH_BYTES], name[TMPDIR_PATH];
    draw_poke(r, WEIGHTS, "encoder.final_layer_norm.weight", 0x3F80, 1); /* a file of its own */
    path_of(r, folder, DFX_Q_STORED, path);
    struct stat st;
    int fd = open(tmpdir_join(r->dir, WEIGHTS, name), O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    off_t sampled = st.st_size / 64 * 63 + 7; /* 64 places, evenly over the file, are looked at */
    assert_int_equal(pwrite(fd, "\xA5", 1, sampled), 1);
    assert_int_equal(futimens(fd, times), 0);
    assert_false(is_still(r, folder, path));
    path_of(r, folder, DFX_Q_STORED, path);
    times[1].tv_nsec ^= 1;
    assert_int_equal(futimens(fd, times), 0);
    assert_false(is_still(r, folder, path));
    path_of(r, folder, DFX_Q_STORED, path);
    assert_int_equal(ftruncate(fd, st.st_size + 1), 0);
    assert_int_equal(futimens(fd, times), 0);
    assert_false(is_still(r, folder, path));
    close(fd);
}

static void cache_is_below_home_without_xdg(void **state) {
    draw_rig *r = *state;
    static const char *const not_absolute[] = {NULL, "", "relative/folder"};
    char home[TMPDIR_PATH], path[DFX_PATH_BYTES], want[TMPDIR_PATH];
    char *old_home = strdup(getenv("HOME") ? getenv("HOME") : "");
    assert_non_null(old_home);
    tmpdir_mkdir(r->dir, "home");
    assert_int_equal(setenv("HOME", tmpdir_join(r->dir, "home", home), 1), 0);
    tmpdir_join(r->dir, "home/.cache/dfx-edge/scenes-stored-", want);
    for (size_t i = 0; i < DFX_COUNT(not_absolute); i++) {
        unsetenv("XDG_CACHE_HOME");
        if (not_absolute[i])
            setenv("XDG_CACHE_HOME", not_absolute[i], 1);
        path_of(r, DRAW_SCENES, DFX_Q_STORED, path);
        assert_memory_equal(path, want, strlen(want));
    }
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(
        dfx_cache_path(&(dfx_model_paths){.model = DRAW_SCENES}, DFX_Q_STORED, &r->log->sink, path),
        DFX_E_IO);
    said_error(r->log, "neither XDG_CACHE_HOME nor HOME is set");
    setenv("HOME", old_home, 1);
    free(old_home);
}

static void cache_below_a_file_is_refused(void **state) {
    draw_rig *r = *state;
    char path[DFX_PATH_BYTES], base[TMPDIR_PATH];
    tmpdir_write_text(r->dir, "base/dfx-edge", ""); /* where the folder would be */
    setenv("XDG_CACHE_HOME", tmpdir_join(r->dir, "base", base), 1);
    assert_int_equal(
        dfx_cache_path(&(dfx_model_paths){.model = DRAW_SCENES}, DFX_Q_STORED, &r->log->sink, path),
        DFX_E_IO);
    said_error(r->log, "base/dfx-edge: the cache folder cannot be made");
}

static void cache_path_of_no_model_is_refused(void **state) {
    draw_rig *r = *state;
    char path[DFX_PATH_BYTES];
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(dfx_cache_path(&(dfx_model_paths){.model = "no/such/folder"}, DFX_Q_STORED,
                                    &r->log->sink, path),
                     DFX_E_IO);
    said_error(r->log, "no/such/folder: cannot open");
    assert_int_equal(dfx_mem_held_bytes(), held);
}

#define WITH_DRAW_RIG(test) cmocka_unit_test_setup_teardown(test, draw_setup, draw_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DRAW_RIG(cache_path_is_folder_format_and_key),
        WITH_DRAW_RIG(cache_path_of_same_folder_is_the_same),
        WITH_DRAW_RIG(cache_path_of_changed_small_file_is_another),
        WITH_DRAW_RIG(cache_path_of_file_that_comes_or_goes_is_another),
        WITH_DRAW_RIG(cache_path_of_unknown_file_is_the_same),
        WITH_DRAW_RIG(cache_path_of_changed_weights_is_another),
        WITH_DRAW_RIG(cache_is_below_home_without_xdg),
        WITH_DRAW_RIG(cache_below_a_file_is_refused),
        WITH_DRAW_RIG(cache_path_of_no_model_is_refused),
    };
    return cmocka_run_group_tests(tests, draw_cache_setup, tmpdir_teardown);
}
