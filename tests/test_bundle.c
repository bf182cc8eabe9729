/* Bundles: a folder and a packed file of the same small files answer alike, faults name the bundle and the path in it, and
 * tokenizers opened from either give the same ids. */
#include "core/bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/spiece_writer.h"
#include "tests/stfile.h"
#include "tests/tok_support.h"

enum { LONG = 4096, HEADER_BYTES = 8192, MAX = 1 << 20 };

#define SCENES "models/scenes"

/* ---- A packed file of small files, written by hand ---- */

typedef struct packer {
    char header[HEADER_BYTES];
    size_t n_header;
    char *data; /* owned */
    size_t n_data;
} packer;

static void pack_tensor(packer *p, const char *name, const void *data, size_t bytes) {
    p->data = realloc(p->data, p->n_data + bytes + 1);
    assert_non_null(p->data);
    memcpy(p->data + p->n_data, data, bytes);
    p->n_header +=
        (size_t)snprintf(p->header + p->n_header, HEADER_BYTES - p->n_header,
                         "%s\"%s\": {\"dtype\": \"U8\", \"shape\": [%zu], "
                         "\"data_offsets\": [%zu, %zu]}",
                         p->n_header ? ", " : "{", name, bytes, p->n_data, p->n_data + bytes);
    p->n_data += bytes;
    assert_in_range(p->n_header, 1, HEADER_BYTES - 2);
}

static void pack_file(packer *p, const char *path, const void *data, size_t bytes) {
    char name[256];
    snprintf(name, sizeof(name), "files/%s", path);
    pack_tensor(p, name, data, bytes);
}

/* A file of the disk, as `path` in the bundle. */
static void pack_copy(packer *p, const char *dir, const char *path) {
    char full[TMPDIR_PATH], *data = malloc(MAX);
    assert_non_null(data);
    snprintf(full, sizeof(full), "%s/%s", dir, path);
    FILE *file = fopen(full, "rb");
    assert_non_null(file);
    size_t bytes = fread(data, 1, MAX, file);
    assert_in_range(bytes, 1, MAX - 1);
    fclose(file);
    pack_file(p, path, data, bytes);
    free(data);
}

/* Write and open it; the packer is done for. */
static dfx_tensors *pack_open(packer *p, tmpdir *dir) {
    strcpy(p->header + p->n_header, "}");
    dfx_tensors *set = stfile_accepts_header(dir, p->header, p->data, p->n_data);
    free(p->data);
    *p = (packer){0};
    return set;
}

/* ---- Both kinds of the same files ---- */

static const struct small_file {
    const char *path, *data;
    size_t bytes;
} FILES[] = {
    {"model_index.json", "{\"a\": [1, \"b\"]}", 15},
    {"tokenizer/vocab.json", "two\nlines\0and a NUL", 19},
    {"a/b/c.txt", "x", 1},
    {"empty", "", 0},
    {"bad.json", "{\n\"a\": 1,\n\"a\": 2}", 17},
    {"cut.json", "[1,\n", 4},
};

enum { FOLDER, PACKED, N_KINDS };

typedef struct pair {
    tmpdir *dir;
    dfx_tensors *tensors;
    dfx_bundle kinds[N_KINDS];
} pair;

static int pair_setup(void **state) {
    pair *both = calloc(1, sizeof(*both));
    packer p = {0};
    if (!both || tmpdir_setup((void **)&both->dir) != 0)
        return -1;
    for (size_t i = 0; i < DFX_COUNT(FILES); i++) {
        tmpdir_write(both->dir, FILES[i].path, FILES[i].data, FILES[i].bytes);
        pack_file(&p, FILES[i].path, FILES[i].data, FILES[i].bytes);
    }
    pack_tensor(&p, "weight", "1234", 4);
    both->tensors = pack_open(&p, both->dir);
    both->kinds[FOLDER] = (dfx_bundle){.folder = both->dir->path, .name = "the folder"};
    both->kinds[PACKED] = (dfx_bundle){.tensors = both->tensors, .name = "m.dfx"};
    *state = both;
    return 0;
}

static int pair_teardown(void **state) {
    pair *both = *state;
    dfx_tensors_close(both->tensors);
    int rc = tmpdir_teardown((void **)&both->dir);
    free(both);
    return rc;
}

static void bundle_of_either_kind_gives_same_bytes_and_nul(void **state) {
    const pair *both = *state;
    for (int kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < DFX_COUNT(FILES); i++) {
            char *text;
            size_t bytes;
            assert_int_equal(dfx_bundle_slurp(&both->kinds[kind], FILES[i].path,
                                              &both->dir->log.sink, MAX, &text, &bytes),
                             DFX_OK);
            assert_int_equal(bytes, FILES[i].bytes);
            assert_memory_equal(text, FILES[i].data, bytes + 1);
            dfx_free(text);
        }
    said_nothing(&both->dir->log, DFX_ERROR);
}

static void bundle_has_files_but_not_folders_or_weights(void **state) {
    const pair *both = *state;
    static const char *const absent[] = {"vocab.json",  "tokenizer", "tokenizer/vocab",
                                         "a/b/c.txt.b", "weight",    "none/at/all"};
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (size_t i = 0; i < DFX_COUNT(FILES); i++)
            assert_true(dfx_bundle_has(&both->kinds[kind], FILES[i].path));
        for (size_t i = 0; i < DFX_COUNT(absent); i++)
            assert_false(dfx_bundle_has(&both->kinds[kind], absent[i]));
    }
}

static void bundle_label_joins_name_and_path(void **state) {
    const pair *both = *state;
    char label[DFX_PATH_BYTES];
    dfx_bundle_label(&both->kinds[FOLDER], "a/b/c.txt", label);
    assert_string_equal(label, "the folder/a/b/c.txt");
    dfx_bundle_label(&both->kinds[PACKED], "a/b/c.txt", label);
    assert_string_equal(label, "m.dfx/a/b/c.txt");
}

/* Read a file that cannot be: the status, one sentence with `words`, nothing held. */
static void slurp_fails(const pair *both, int kind, const char *path, size_t max_bytes,
                        dfx_status wanted, const char *words) {
    char *text = NULL;
    size_t bytes = 0, held = dfx_mem_held_bytes();
    recorder_clear(&both->dir->log);
    assert_int_equal(
        dfx_bundle_slurp(&both->kinds[kind], path, &both->dir->log.sink, max_bytes, &text, &bytes),
        wanted);
    said_error(&both->dir->log, words);
    assert_null(text);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void bundle_slurp_of_missing_file_says_which(void **state) {
    slurp_fails(*state, FOLDER, "a/none.txt", MAX, DFX_E_IO, "/a/none.txt: cannot open");
    slurp_fails(*state, PACKED, "a/none.txt", MAX, DFX_E_FORMAT,
                "m.dfx/a/none.txt: not in the packed model");
}

static void bundle_slurp_keeps_to_its_limit(void **state) {
    const pair *both = *state;
    const struct small_file *file = &FILES[1];
    for (int kind = 0; kind < N_KINDS; kind++) {
        char *text;
        size_t bytes;
        assert_int_equal(
            dfx_bundle_slurp(&both->kinds[kind], file->path, NULL, file->bytes, &text, &bytes),
            DFX_OK);
        dfx_free(text);
        slurp_fails(both, kind, file->path, file->bytes - 1, DFX_E_FORMAT, "at most 18");
        said_error(&both->dir->log, "/tokenizer/vocab.json: ");
    }
}

static void bundle_path_longer_than_any_is_absent_and_refused(void **state) {
    const pair *both = *state;
    char path[2 * DFX_PATH_BYTES];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    for (int kind = 0; kind < N_KINDS; kind++)
        assert_false(dfx_bundle_has(&both->kinds[kind], path));
    slurp_fails(both, FOLDER, path, MAX, DFX_E_USAGE, "where at most 4095 fit");
    slurp_fails(both, PACKED, path, MAX, DFX_E_FORMAT, "m.dfx/xxx");
}

static void bundle_packed_file_cut_after_opening_is_an_io_error(void **state) {
    const pair *both = *state;
    char path[TMPDIR_PATH];
    assert_int_equal(truncate(tmpdir_join(both->dir, stfile_name, path), 100), 0);
    slurp_fails(both, PACKED, "model_index.json", MAX, DFX_E_IO, "the file ends there");
}

static void bundle_json_of_either_kind_is_same_value(void **state) {
    const pair *both = *state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        json_t *value;
        assert_int_equal(dfx_bundle_json(&both->kinds[kind], "model_index.json", NULL, MAX, &value),
                         DFX_OK);
        char *text = json_dumps(value, 0);
        assert_string_equal(text, "{\"a\": [1, \"b\"]}");
        free(text);
        json_decref(value);
    }
}

static void bundle_json_faults_name_bundle_path_and_line(void **state) {
    const pair *both = *state;
    static const struct {
        const char *path, *words[N_KINDS];
    } rows[] = {
        {"bad.json",
         {"the folder/bad.json: line 3: duplicate key \"a\"",
          "m.dfx/bad.json: line 3: duplicate key \"a\""}},
        {"cut.json",
         {"the folder/cut.json: line 2: not valid JSON", "m.dfx/cut.json: line 2: not valid JSON"}},
        {"empty", {"the folder/empty: line 1: not valid", "m.dfx/empty: line 1: not valid"}},
    };
    for (int kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < DFX_COUNT(rows); i++) {
            json_t *value = NULL;
            size_t held = dfx_mem_held_bytes();
            recorder_clear(&both->dir->log);
            assert_int_equal(dfx_bundle_json(&both->kinds[kind], rows[i].path, &both->dir->log.sink,
                                             MAX, &value),
                             DFX_E_FORMAT);
            said_error(&both->dir->log, rows[i].words[kind]);
            assert_null(value);
            assert_int_equal(dfx_mem_held_bytes(), held);
        }
}

static dfx_status load_index(void *user, const dfx_sink *sink) {
    json_t *value;
    DFX_TRY(dfx_bundle_json(user, "model_index.json", sink, MAX, &value));
    json_decref(value);
    return DFX_OK;
}

static void bundle_failing_allocations_leak_nothing(void **state) {
    pair *both = *state;
    for (int kind = 0; kind < N_KINDS; kind++)
        assert_survives_faults(load_index, &both->kinds[kind], &both->dir->log);
}

/* ---- Tokenizers ---- */

static dfx_status encode_clip(const void *tok, const char *text, size_t bytes, size_t max_len,
                              const dfx_sink *sink, dfx_tokens *out) {
    return dfx_tok_clip_encode(tok, text, bytes, max_len, sink, out);
}

static dfx_status encode_t5(const void *tok, const char *text, size_t bytes, size_t max_len,
                            const dfx_sink *sink, dfx_tokens *out) {
    return dfx_tok_t5_encode(tok, text, bytes, max_len, sink, out);
}

/* The tokenizer files of the small model, in one packed file. */
static dfx_tensors *pack_scenes(tmpdir *dir) {
    static const char *const paths[] = {
        "tokenizer/vocab.json",
        "tokenizer/merges.txt",
        "tokenizer/tokenizer_config.json",
        "tokenizer/special_tokens_map.json",
        "tokenizer_2/tokenizer.json",
        "tokenizer_2/tokenizer_config.json",
        "tokenizer_2/special_tokens_map.json",
    };
    packer p = {0};
    for (size_t i = 0; i < DFX_COUNT(paths); i++)
        pack_copy(&p, SCENES, paths[i]);
    return pack_open(&p, dir);
}

/* Both tokenizers of the bundle give the ids of the Python library, and read the limits of their configurations. */
static void check_scenes(const dfx_bundle *bundle, const dfx_sink *sink) {
    dfx_tok_clip *clip;
    dfx_tok_t5 *t5;
    json_t *root = golden_load("scenes-tokenizers.json");
    const json_t *prompts = json_object_get(root, "prompts");
    assert_int_equal(dfx_tok_clip_open(bundle, "tokenizer", sink, &clip), DFX_OK);
    assert_true(golden_check(prompts, "clip", NULL, LONG, encode_clip, clip) >= 60);
    assert_int_equal(dfx_tok_clip_model_max_length(clip), 77);
    dfx_tok_clip_close(clip);
    assert_int_equal(dfx_tok_t5_open(bundle, "tokenizer_2", sink, &t5), DFX_OK);
    assert_true(golden_check(prompts, "t5", NULL, LONG, encode_t5, t5) >= 60);
    assert_int_equal(dfx_tok_t5_model_max_length(t5), 64);
    dfx_tok_t5_close(t5);
    json_decref(root);
}

static void tokenizers_of_either_kind_give_golden_ids(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = pack_scenes(dir);
    check_scenes(&(dfx_bundle){.folder = SCENES, .name = SCENES}, &dir->log.sink);
    check_scenes(&(dfx_bundle){.tensors = set, .name = "m.dfx"}, &dir->log.sink);
    dfx_tensors_close(set);
}

static void tokenizer_of_packed_spiece_gives_ids_of_the_folder(void **state) {
    tmpdir *dir = *state;
    packer p = {0};
    dfx_tok_t5 *from_folder, *from_packed;
    spiece_from_json(dir, SCENES "/tokenizer_2/tokenizer.json", 1000);
    pack_copy(&p, dir->path, "spiece.model");
    dfx_tensors *set = pack_open(&p, dir);
    dfx_bundle packed = {.tensors = set, .name = "m.dfx"};
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &from_folder), DFX_OK);
    assert_int_equal(dfx_tok_t5_open(&packed, "", &dir->log.sink, &from_packed), DFX_OK);
    json_t *root = golden_load("scenes-tokenizers.json"), *entry;
    size_t i, n_texts = 0;
    json_array_foreach(json_object_get(root, "prompts"), i, entry) {
        const json_t *text = json_object_get(entry, "text");
        dfx_tokens wanted, found;
        assert_int_equal(encode_t5(from_folder, json_string_value(text), json_string_length(text),
                                   LONG, NULL, &wanted),
                         DFX_OK);
        assert_int_equal(encode_t5(from_packed, json_string_value(text), json_string_length(text),
                                   LONG, NULL, &found),
                         DFX_OK);
        assert_memory_equal(found.ids, wanted.ids, LONG * sizeof(*found.ids));
        dfx_tokens_free(&found);
        dfx_tokens_free(&wanted);
        n_texts++;
    }
    assert_true(n_texts >= 60);
    json_decref(root);
    dfx_tok_t5_close(from_folder);
    dfx_tok_t5_close(from_packed);
    dfx_tensors_close(set);
}

/* Open both tokenizers of a packed file; the status of the first that fails. */
static dfx_status open_both(void *user, const dfx_sink *sink) {
    const dfx_bundle *bundle = user;
    dfx_tok_clip *clip;
    dfx_tok_t5 *t5;
    DFX_TRY(dfx_tok_clip_open(bundle, "tokenizer", sink, &clip));
    dfx_tok_clip_close(clip);
    DFX_TRY(dfx_tok_t5_open(bundle, "tokenizer_2", sink, &t5));
    dfx_tok_t5_close(t5);
    return DFX_OK;
}

static void tokenizers_of_packed_file_leak_nothing_when_allocations_fail(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = pack_scenes(dir);
    dfx_bundle packed = {.tensors = set, .name = "m.dfx"};
    assert_survives_faults(open_both, &packed, &dir->log);
    dfx_tensors_close(set);
}

/* One file of a packed bundle is wrong: the tokenizer that reads it says bundle, path and fault. */
static void tokenizer_faults_name_bundle_and_path(void **state) {
    static const struct {
        const char *path, *text, *words;
    } rows[] = {
        {"tokenizer/vocab.json", "[]", "m.dfx/tokenizer/vocab.json: wanted a JSON object"},
        {"tokenizer/merges.txt", "a", "m.dfx/tokenizer/merges.txt: merge 1: wanted two pieces"},
        {"tokenizer/tokenizer_config.json", "{", "m.dfx/tokenizer/tokenizer_config.json: line 1: "},
        {"tokenizer/special_tokens_map.json", "{\"bos_token\": 1}",
         "m.dfx/tokenizer/special_tokens_map.json: bos_token: wanted a text"},
        {"tokenizer/special_tokens_map.json", "{\"bos_token\": \"q\"}",
         "m.dfx/tokenizer: begin token \"q\" is not in the vocabulary"},
        {"tokenizer_2/tokenizer.json", "{}", "m.dfx/tokenizer_2/tokenizer.json: model: wanted"},
        {"tokenizer_2/spiece.model", "\x0b",
         "m.dfx/tokenizer_2/spiece.model: not a protocol buffer"},
    };
    static const char vocab[] = "{\"a\": 0, \"<|startoftext|>\": 1, \"<|endoftext|>\": 2}";
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        packer p = {0};
        pack_file(&p, rows[i].path, rows[i].text, strlen(rows[i].text));
        if (strcmp(rows[i].path, "tokenizer/vocab.json") != 0)
            pack_file(&p, "tokenizer/vocab.json", vocab, strlen(vocab));
        if (strcmp(rows[i].path, "tokenizer/merges.txt") != 0)
            pack_file(&p, "tokenizer/merges.txt", "", 0);
        dfx_tensors *set = pack_open(&p, dir);
        size_t held = dfx_mem_held_bytes();
        assert_int_equal(open_both(&(dfx_bundle){.tensors = set, .name = "m.dfx"}, &dir->log.sink),
                         DFX_E_FORMAT);
        said_error(&dir->log, rows[i].words);
        assert_int_equal(dfx_mem_held_bytes(), held);
        dfx_tensors_close(set);
    }
}

static void tokenizers_that_are_not_there_say_what_is_wanted(void **state) {
    const pair *both = *state;
    static const char *const words[N_KINDS] = {"the folder/none: wanted", "m.dfx/none: wanted"};
    for (int kind = 0; kind < N_KINDS; kind++) {
        dfx_tok_clip *clip;
        dfx_tok_t5 *t5;
        recorder_clear(&both->dir->log);
        assert_int_equal(dfx_tok_clip_open(&both->kinds[kind], "none", &both->dir->log.sink, &clip),
                         DFX_E_IO);
        said_error(&both->dir->log, words[kind]);
        recorder_clear(&both->dir->log);
        assert_int_equal(dfx_tok_t5_open(&both->kinds[kind], "none", &both->dir->log.sink, &t5),
                         DFX_E_IO);
        said_error(&both->dir->log, words[kind]);
    }
}

static void tokenizer_folder_of_too_long_a_name_is_refused(void **state) {
    const pair *both = *state;
    char folder[DFX_PATH_BYTES];
    memset(folder, 'x', sizeof(folder) - 1);
    folder[sizeof(folder) - 1] = '\0';
    for (int kind = 0; kind < N_KINDS; kind++) {
        dfx_tok_clip *clip;
        dfx_tok_t5 *t5;
        recorder_clear(&both->dir->log);
        assert_int_equal(dfx_tok_clip_open(&both->kinds[kind], folder, &both->dir->log.sink, &clip),
                         DFX_E_USAGE);
        said_error(&both->dir->log, "where at most 4095 fit");
        recorder_clear(&both->dir->log);
        assert_int_equal(dfx_tok_t5_open(&both->kinds[kind], folder, &both->dir->log.sink, &t5),
                         DFX_E_USAGE);
        said_error(&both->dir->log, "where at most 4095 fit");
    }
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PAIR(bundle_of_either_kind_gives_same_bytes_and_nul),
        WITH_PAIR(bundle_has_files_but_not_folders_or_weights),
        WITH_PAIR(bundle_label_joins_name_and_path),
        WITH_PAIR(bundle_slurp_of_missing_file_says_which),
        WITH_PAIR(bundle_slurp_keeps_to_its_limit),
        WITH_PAIR(bundle_path_longer_than_any_is_absent_and_refused),
        WITH_PAIR(bundle_packed_file_cut_after_opening_is_an_io_error),
        WITH_PAIR(bundle_json_of_either_kind_is_same_value),
        WITH_PAIR(bundle_json_faults_name_bundle_path_and_line),
        WITH_PAIR(bundle_failing_allocations_leak_nothing),
        WITH_DIR(tokenizers_of_either_kind_give_golden_ids),
        WITH_DIR(tokenizer_of_packed_spiece_gives_ids_of_the_folder),
        WITH_DIR(tokenizers_of_packed_file_leak_nothing_when_allocations_fail),
        WITH_DIR(tokenizer_faults_name_bundle_and_path),
        WITH_PAIR(tokenizers_that_are_not_there_say_what_is_wanted),
        WITH_PAIR(tokenizer_folder_of_too_long_a_name_is_refused),
    };
    return cmocka_run_group_tests_name("bundle", tests, NULL, NULL);
}
