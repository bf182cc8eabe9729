/* Sets of tensors made by hand: other names for tensors of a file, and tensors that lie in none. */
#include <string.h>

#include "tests/stfile.h"

static const char HEADER[] = "{\"__metadata__\":{\"k\":\"v\"},"
                             "\"p.b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                             "\"p.a\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[4,8]}}";

static dfx_tensors *view_of(tmpdir *dir, const dfx_tensors *set) {
    dfx_tensors *view;
    assert_int_equal(dfx_tensors_new_view(set, &dir->log.sink, &view), DFX_OK);
    for (size_t i = dfx_tensors_count(set); i-- > 0;) {
        dfx_tensor t = *dfx_tensors_at(set, i);
        t.name += 2;
        assert_int_equal(dfx_tensors_add(view, &t, &dir->log.sink), DFX_OK);
    }
    return view;
}

static void view_reads_the_file_under_new_names(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = stfile_accepts_header(dir, HEADER, "\1\2\3\4\5\0\6\0", 8);
    dfx_tensors *view = view_of(dir, set);
    assert_int_equal(dfx_tensors_seal(view, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_tensors_count(view), 2);
    assert_int_equal(dfx_tensors_bytes(view), 8);
    assert_string_equal(dfx_tensors_at(view, 0)->name, "a");
    assert_null(dfx_tensors_find(view, "p.a"));
    assert_int_equal(dfx_tensors_n_files(view), 1);
    assert_string_equal(dfx_tensors_file_path(view, 0), dfx_tensors_file_path(set, 0));
    assert_string_equal(dfx_tensors_metadata(view, "k"), "v");
    char bytes[4];
    float values[2];
    const dfx_tensor *b = dfx_tensors_find(view, "b");
    assert_int_equal(dfx_tensors_read(view, b, &dir->log.sink, bytes), DFX_OK);
    assert_memory_equal(bytes, "\1\2\3\4", 4);
    assert_int_equal(dfx_tensors_read_part(view, b, 1, 2, &dir->log.sink, bytes), DFX_OK);
    assert_memory_equal(bytes, "\2\3", 2);
    assert_int_equal(
        dfx_tensors_read_f32(view, dfx_tensors_find(view, "a"), &dir->log.sink, values), DFX_OK);
    assert_true(values[0] == 5 && values[1] == 6);
    dfx_tensors_close(view);
    dfx_tensors_close(set);
    assert_int_equal(dfx_mem_held_bytes(), 0);
}

static void view_with_a_name_twice_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = stfile_accepts_header(dir, HEADER, "\1\2\3\4\5\0\6\0", 8);
    dfx_tensors *view = view_of(dir, set);
    dfx_tensor again = *dfx_tensors_at(set, 0);
    again.name = "b";
    assert_int_equal(dfx_tensors_add(view, &again, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_tensors_seal(view, &dir->log.sink), DFX_E_FORMAT);
    said_error(&dir->log, "\"b\" is there twice");
    dfx_tensors_close(view);
    dfx_tensors_close(set);
}

static void tensor_in_no_file_cannot_be_read(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *view;
    dfx_tensor t = {.name = "made",
                    .dtype = DFX_DTYPE_BF16,
                    .rank = 2,
                    .shape = {3, 5},
                    .file_idx = DFX_TENSOR_NO_FILE};
    char bytes[30];
    assert_true(dfx_tensor_measure(&t));
    assert_int_equal(t.n_elements, 15);
    assert_int_equal(t.bytes, 30);
    assert_int_equal(dfx_tensors_new_view(NULL, &dir->log.sink, &view), DFX_OK);
    assert_int_equal(dfx_tensors_add(view, &t, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_tensors_seal(view, &dir->log.sink), DFX_OK);
    assert_null(dfx_tensors_metadata(view, "k"));
    assert_int_equal(dfx_tensors_n_files(view), 0);
    assert_int_equal(dfx_tensors_read(view, dfx_tensors_find(view, "made"), &dir->log.sink, bytes),
                     DFX_E_INTERNAL);
    said_error(&dir->log, "\"made\" lies in no file");
    dfx_tensors_close(view);
}

static void measure_refuses_what_has_no_size(void **state) {
    dfx_tensor huge = {.dtype = DFX_DTYPE_F32, .rank = 2, .shape = {INT64_MAX / 2, 3}, .bytes = 7};
    dfx_tensor half = {.dtype = DFX_DTYPE_F4, .rank = 1, .shape = {3}, .bytes = 7};
    dfx_tensor empty = {.dtype = DFX_DTYPE_F32, .rank = 2, .shape = {0, 3}};
    assert_false(dfx_tensor_measure(&huge));
    assert_false(dfx_tensor_measure(&half));
    assert_int_equal(huge.bytes, 7);
    assert_true(dfx_tensor_measure(&empty));
    assert_int_equal(empty.bytes, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(view_reads_the_file_under_new_names),
        TEST(view_with_a_name_twice_is_refused),
        TEST(tensor_in_no_file_cannot_be_read),
        TEST(measure_refuses_what_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
