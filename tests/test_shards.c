/* The weights of a folder: which files are taken, and how index and shards can disagree. */
#include "tests/stfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"

static const char index_name[] = "w/m.safetensors.index.json";

static dfx_status open_dir(tmpdir *dir, dfx_tensors **set) {
    char path[TMPDIR_PATH];
    recorder_clear(&dir->log);
    *set = NULL;
    return dfx_tensors_open_dir(tmpdir_join(dir, "w", path), "m", &dir->log.sink, set);
}

static void rejects(tmpdir *dir, const char *words) {
    dfx_tensors *set;
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(open_dir(dir, &set), DFX_E_FORMAT);
    said_error(&dir->log, words);
    assert_null(set);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static dfx_tensors *accepts(tmpdir *dir) {
    dfx_tensors *set;
    dfx_status status = open_dir(dir, &set);
    said_nothing(&dir->log, DFX_ERROR);
    assert_int_equal(status, DFX_OK);
    return set;
}

/* A file of one F32 scalar. */
static void write_scalar(const tmpdir *dir, const char *file, const char *tensor, float value) {
    char header[200];
    sprintf(header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", tensor);
    stfile_write(dir, file, header, &value, sizeof(value));
}

/* Tensors a, b, c = 1, 2, 3, one in each of three shards, without an index. */
static void write_shards(const tmpdir *dir) {
    write_scalar(dir, "w/m-00001-of-00003.safetensors", "a", 1);
    write_scalar(dir, "w/m-00002-of-00003.safetensors", "b", 2);
    write_scalar(dir, "w/m-00003-of-00003.safetensors", "c", 3);
}

static void write_index(const tmpdir *dir, const char *weight_map) {
    static const char form[] = "{\"metadata\":{\"total_size\":12},\"weight_map\":%s}";
    char *text = malloc(sizeof(form) + strlen(weight_map));
    assert_non_null(text);
    sprintf(text, form, weight_map);
    tmpdir_write_text(dir, index_name, text);
    free(text);
}

static const char right_map[] = "{\"a\":\"m-00001-of-00003.safetensors\","
                                "\"b\":\"m-00002-of-00003.safetensors\","
                                "\"c\":\"m-00003-of-00003.safetensors\"}";

static void delete_file(const tmpdir *dir, const char *name) {
    char path[TMPDIR_PATH];
    assert_int_equal(unlink(tmpdir_join(dir, name, path)), 0);
}

static void holds_a_b_c(tmpdir *dir, const dfx_tensors *set) {
    assert_int_equal(dfx_tensors_count(set), 3);
    assert_int_equal(dfx_tensors_n_files(set), 3);
    assert_int_equal(dfx_tensors_bytes(set), 12);
    stfile_reads_f32(dir, set, "a", 1, &(float){1});
    stfile_reads_f32(dir, set, "b", 1, &(float){2});
    stfile_reads_f32(dir, set, "c", 1, &(float){3});
}

static void shards_of_an_index_open_as_one_set(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_index(dir, right_map);
    dfx_tensors *set = accepts(dir);
    holds_a_b_c(dir, set);
    const dfx_tensor *c = dfx_tensors_find(set, "c");
    assert_non_null(strstr(dfx_tensors_file_path(set, c->file_idx), "/w/m-00003-of-00003"));
    said_nothing(&dir->log, DFX_WARN);
    said_nothing(&dir->log, DFX_INFO);
    dfx_tensors_close(set);
}

static void shards_missing_are_all_named_before_any_is_read(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_index(dir, right_map);
    tmpdir_write_text(dir, "w/m-00001-of-00003.safetensors", "broken"); /* must not be looked at */
    delete_file(dir, "w/m-00002-of-00003.safetensors");
    rejects(dir, "1 shard is missing from the folder: m-00002-of-00003.safetensors;");
    delete_file(dir, "w/m-00003-of-00003.safetensors");
    rejects(dir, "2 shards are missing from the folder: m-00002-of-00003.safetensors, "
                 "m-00003-of-00003.safetensors;");
}

static void shards_missing_in_great_number_are_counted(void **state) {
    tmpdir *dir = *state;
    char map[4000] = "{";
    for (int i = 0; i < 60; i++)
        sprintf(map + strlen(map), "%s\"t%02d\":\"shard-with-a-long-name-%02d\"", i ? "," : "", i,
                i);
    strcat(map, "}");
    write_index(dir, map);
    rejects(dir, "60 shards are missing from the folder: shard-with-a-long-name-00, ");
    said_error(&dir->log, " more; fetch them");
}

static void index_tensor_not_in_its_shard_is_rejected_with_both_names(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_index(dir, "{\"a\":\"m-00001-of-00003.safetensors\","
                     "\"b\":\"m-00002-of-00003.safetensors\","
                     "\"d\":\"m-00003-of-00003.safetensors\"}");
    rejects(dir, "tensor \"d\" is not in its shard m-00003-of-00003.safetensors");
    write_index(dir, "{\"a\":\"m-00001-of-00003.safetensors\","
                     "\"c\":\"m-00002-of-00003.safetensors\","
                     "\"b\":\"m-00003-of-00003.safetensors\"}");
    rejects(dir, "tensor \"c\" is not in its shard m-00002-of-00003.safetensors but in "
                 "m-00003-of-00003.safetensors");
}

static void shard_tensor_not_in_the_index_is_a_warning(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    stfile_write(dir, "w/m-00003-of-00003.safetensors",
                 "{\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                 "\"extra\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]}}",
                 NULL, 5);
    write_index(dir, right_map);
    dfx_tensors *set = accepts(dir);
    said_words(&dir->log, DFX_WARN,
               "1 tensor of the shards is not in the index, the first is \"extra\"");
    assert_int_equal(recorder_count(&dir->log, DFX_WARN), 1); /* total_size counts mapped ones */
    assert_int_equal(dfx_tensors_count(set), 4);
    dfx_tensors_close(set);
}

static void index_total_size_that_is_wrong_is_a_warning(void **state) {
    tmpdir *dir = *state;
    char text[600];
    write_shards(dir);
    sprintf(text, "{\"metadata\":{\"total_size\":13},\"weight_map\":%s}", right_map);
    tmpdir_write_text(dir, index_name, text);
    dfx_tensors_close(accepts(dir));
    said_words(&dir->log, DFX_WARN, "total_size is 13, but its tensors take 12 bytes");
}

static void index_value_that_is_no_plain_name_is_rejected(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], map[TMPDIR_PATH + 64];
    write_scalar(dir, "outside.safetensors", "a", 1);
    static const char *const values[] = {
        "\"../../etc/passwd\"",     "\"../outside.safetensors\"", "\"\"", "\"..\"", "\".\"",
        "\"sub\\\\x.safetensors\"", "\"./m.safetensors\""};
    for (size_t i = 0; i < DFX_COUNT(values); i++) {
        sprintf(map, "{\"a\":%s}", values[i]);
        write_index(dir, map);
        rejects(dir, "weight_map of \"a\": wanted the name of a file in this folder");
    }
    snprintf(map, sizeof(map), "{\"a\":\"%s\"}", tmpdir_join(dir, "outside.safetensors", path));
    write_index(dir, map);
    rejects(dir, "outside.safetensors");
    static const char *const others[] = {"7", "null", "[\"x\"]", "{}"};
    for (size_t i = 0; i < DFX_COUNT(others); i++) {
        sprintf(map, "{\"a\":%s}", others[i]);
        write_index(dir, map);
        rejects(dir, "weight_map of \"a\": wanted the name of a shard as a string");
    }
}

static void index_without_a_map_is_rejected(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    tmpdir_write_text(dir, index_name, "{\"metadata\":{}}");
    rejects(dir, "weight_map: wanted an object, found nothing");
    tmpdir_write_text(dir, index_name, "[]");
    rejects(dir, "weight_map: wanted an object, found nothing");
    write_index(dir, "{}");
    rejects(dir, "weight_map is empty");
    write_index(dir, "[\"a\"]");
    rejects(dir, "weight_map: wanted an object, found a list");
    write_index(dir, "{\"a\":\"x\",\"a\":\"y\"}");
    rejects(dir, "duplicate key \"a\"");
    tmpdir_write_text(dir, index_name, "{");
    rejects(dir, "not valid JSON");
}

static void index_beside_a_single_file_wins_with_a_note(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_index(dir, right_map);
    write_scalar(dir, "w/m.safetensors", "a", 9);
    dfx_tensors *set = accepts(dir);
    holds_a_b_c(dir, set);
    said_words(&dir->log, DFX_INFO, "the index and its shards are used");
    dfx_tensors_close(set);
}

static void shards_without_an_index_open_when_complete(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_scalar(dir, "w/mm-00001-of-00002.safetensors", "z", 9); /* of another stem */
    dfx_tensors *set = accepts(dir);
    holds_a_b_c(dir, set);
    dfx_tensors_close(set);
    delete_file(dir, "w/m-00001-of-00003.safetensors");
    rejects(dir, "1 shard is missing from the folder: m-00001-of-00003.safetensors;");
    write_scalar(dir, "w/m-00001-of-00002.safetensors", "a", 1);
    rejects(dir, "shards of two sets");
}

static void shards_that_share_a_tensor_are_rejected(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    write_scalar(dir, "w/m-00002-of-00003.safetensors", "a", 2);
    rejects(dir, "tensor \"a\" is in two files");
    said_error(&dir->log, "m-00001-of-00003.safetensors");
    said_error(&dir->log, "m-00002-of-00003.safetensors");
    write_index(dir, "{\"a\":\"m-00001-of-00003.safetensors\","
                     "\"b\":\"m-00002-of-00003.safetensors\"}");
    rejects(dir, "tensor \"a\" is in two files");
}

static void shard_that_is_damaged_is_rejected_by_its_name(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    write_shards(dir);
    write_index(dir, right_map);
    tmpdir_join(dir, "w/m-00002-of-00003.safetensors", path);
    assert_int_equal(truncate(path, 60), 0);
    rejects(dir, "m-00002-of-00003.safetensors: ");
}

static void single_file_opens_alone(void **state) {
    tmpdir *dir = *state;
    write_scalar(dir, "w/m.safetensors", "a", 1);
    write_scalar(dir, "w/m.fp16.safetensors", "a", 2);
    dfx_tensors *set = accepts(dir);
    stfile_reads_f32(dir, set, "a", 1, &(float){1});
    said_nothing(&dir->log, DFX_INFO);
    dfx_tensors_close(set);
}

static void variant_opens_with_a_note_which(void **state) {
    tmpdir *dir = *state;
    write_scalar(dir, "w/m.fp16.safetensors", "a", 16);
    write_scalar(dir, "w/m.x-y.safetensors", "a", 0); /* no variant: more than one word */
    write_scalar(dir, "w/other.bf16.safetensors", "a", 0);
    dfx_tensors *set = accepts(dir);
    stfile_reads_f32(dir, set, "a", 1, &(float){16});
    said_words(&dir->log, DFX_INFO, "w/m.fp16.safetensors: used");
    dfx_tensors_close(set);
    write_scalar(dir, "w/m.bf16.safetensors", "a", 32);
    set = accepts(dir);
    stfile_reads_f32(dir, set, "a", 1, &(float){32});
    said_words(&dir->log, DFX_INFO, "the first of 2 variants");
    dfx_tensors_close(set);
}

static void folder_without_weights_is_rejected(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set;
    assert_int_equal(open_dir(dir, &set), DFX_E_IO);
    said_error(&dir->log, "no such folder");
    tmpdir_mkdir(dir, "w");
    rejects(dir, "no weights here: wanted m.safetensors");
    tmpdir_write_text(dir, "w/m-0001-of-0001.safetensors", "x");
    tmpdir_write_text(dir, "w/m-00000-of-00001.safetensors", "x");
    tmpdir_write_text(dir, "w/m-00002-of-00001.safetensors", "x");
    tmpdir_write_text(dir, "w/m.bin", "x");
    rejects(dir, "no weights here");
}

static void open_without_memory(tmpdir *dir) {
    size_t held = dfx_mem_held_bytes();
    dfx_tensors *set = NULL;
    dfx_status status = DFX_E_NOFIT;
    uint64_t n = 0;
    while (status == DFX_E_NOFIT) {
        dfx_mem_fail_nth(++n);
        status = open_dir(dir, &set);
        dfx_mem_fail_nth(0);
        if (status != DFX_OK)
            assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_int_equal(status, DFX_OK);
    assert_true(n > 10);
    holds_a_b_c(dir, set);
    dfx_tensors_close(set);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void shards_without_memory_leak_nothing(void **state) {
    tmpdir *dir = *state;
    write_shards(dir);
    open_without_memory(dir);
    write_index(dir, right_map);
    open_without_memory(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(shards_of_an_index_open_as_one_set),
        TEST(shards_missing_are_all_named_before_any_is_read),
        TEST(shards_missing_in_great_number_are_counted),
        TEST(index_tensor_not_in_its_shard_is_rejected_with_both_names),
        TEST(shard_tensor_not_in_the_index_is_a_warning),
        TEST(index_total_size_that_is_wrong_is_a_warning),
        TEST(index_value_that_is_no_plain_name_is_rejected),
        TEST(index_without_a_map_is_rejected),
        TEST(index_beside_a_single_file_wins_with_a_note),
        TEST(shards_without_an_index_open_when_complete),
        TEST(shards_that_share_a_tensor_are_rejected),
        TEST(shard_that_is_damaged_is_rejected_by_its_name),
        TEST(single_file_opens_alone),
        TEST(variant_opens_with_a_note_which),
        TEST(folder_without_weights_is_rejected),
        TEST(shards_without_memory_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
