#include "tests/tok_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"

enum { FAULTS_MAX = 20000 };

dfx_status tok_clip_open_dir(const char *dir, const dfx_sink *sink, dfx_tok_clip **out) {
    dfx_bundle bundle = {.folder = dir, .name = dir};
    return dfx_tok_clip_open(&bundle, "", sink, out);
}

dfx_status tok_t5_open_dir(const char *dir, const dfx_sink *sink, dfx_tok_t5 **out) {
    dfx_bundle bundle = {.folder = dir, .name = dir};
    return dfx_tok_t5_open(&bundle, "", sink, out);
}

json_t *golden_load(const char *name) {
    char path[TMPDIR_PATH];
    json_error_t error;
    snprintf(path, sizeof(path), "tests/golden/%s", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static bool same_ids(const json_t *wanted, const int32_t *ids, size_t n) {
    if (json_array_size(wanted) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(wanted, i)) != ids[i])
            return false;
    return true;
}

static void show_difference(const json_t *entry, const json_t *wanted, const dfx_tokens *found) {
    char *entry_text = json_dumps(json_object_get(entry, "text"), JSON_ENCODE_ANY);
    char *wanted_text = json_dumps(wanted, JSON_COMPACT);
    print_error("text %.200s\nwanted %.300s\nfound  [", entry_text, wanted_text);
    for (size_t i = 0; i < found->n && i < 50; i++)
        print_error("%s%d", i ? "," : "", (int)found->ids[i]);
    print_error("]\n");
    free(entry_text);
    free(wanted_text);
}

size_t golden_check(const json_t *prompts, const char *key, const char *only, size_t max_len,
                    golden_encode encode, const void *tok) {
    size_t n_compared = 0, n_wrong = 0;
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *entry = json_array_get(prompts, i), *wanted = json_object_get(entry, key);
        const json_t *text = json_object_get(entry, "text");
        const char *name = json_string_value(json_object_get(entry, "case"));
        if (!json_is_array(wanted) || (only && strcmp(only, name) != 0))
            continue;
        dfx_tokens tokens;
        assert_int_equal(
            encode(tok, json_string_value(text), json_string_length(text), max_len, NULL, &tokens),
            DFX_OK);
        n_compared++;
        if (!same_ids(wanted, tokens.ids, tokens.n)) {
            n_wrong++;
            show_difference(entry, wanted, &tokens);
        }
        dfx_tokens_free(&tokens);
    }
    if (n_wrong > 0)
        fail_msg("%zu of %zu prompts differ", n_wrong, n_compared);
    return n_compared;
}

void assert_ids(golden_encode encode, const void *tok, const char *text, const int32_t *ids,
                size_t n) {
    dfx_tokens tokens;
    assert_int_equal(encode(tok, text, strlen(text), 512, NULL, &tokens), DFX_OK);
    assert_int_equal(tokens.n, n);
    assert_memory_equal(tokens.ids, ids, n * sizeof(*ids));
    dfx_tokens_free(&tokens);
}

const char *real_vocabulary(const char *name, char path[TMPDIR_PATH]) {
    const char *root = getenv("DFX_TOKENIZERS");
    if (!root)
        return NULL;
    snprintf(path, TMPDIR_PATH, "%s/%s", root, name);
    return dfx_file_is_dir(path) ? path : NULL;
}

double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void assert_survives_faults(dfx_status (*run)(void *user, const dfx_sink *sink), void *user,
                            recorder *log) {
    size_t held = dfx_mem_held_bytes();
    for (uint64_t nth = 1; nth <= FAULTS_MAX; nth++) {
        recorder_clear(log);
        dfx_mem_fail_nth(nth);
        dfx_status status = run(user, &log->sink);
        dfx_mem_fail_nth(0);
        assert_int_equal(dfx_mem_held_bytes(), held);
        if (status == DFX_OK) {
            assert_true(nth > 1);
            said_nothing(log, DFX_ERROR);
            return;
        }
        assert_int_equal(status, DFX_E_NOFIT);
        said_error(log, "out of memory");
    }
    fail_msg("no clean run within %d allocations", FAULTS_MAX);
}
