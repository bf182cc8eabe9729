/* The builder: what it refuses, that the first refusal sticks, and how pages and weights are laid out. */
#include "offload/builder.h"

#include "core/mem.h"
#include "tests/stfile.h"

/* a.w.weight [2, 4] and a.w.bias [2] in BF16, a.flag BOOL [1], b.w.weight F32 [2, 2]. */
static const char HEADER[] =
    "{\"b.w.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"a.w.weight\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":[16,32]},"
    "\"a.w.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[32,36]},"
    "\"a.flag\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[36,37]}}";

typedef struct bench {
    tmpdir *dir;
    dfx_tensors *tensors;
    dfx_builder b;
    size_t held_bytes;
} bench;

static bench begin(tmpdir *dir) {
    bench t = {.dir = dir};
    t.tensors = stfile_accepts_header(dir, HEADER, NULL, 37);
    recorder_clear(&dir->log);
    t.held_bytes = dfx_mem_held_bytes();
    return t;
}

static void init(bench *t) {
    dfx_build_env env = {
        .tensors = t->tensors, .act_dtype = DFX_DTYPE_F32, .sink = &t->dir->log.sink};
    dfx_builder_init(&t->b, "program", "part", &env);
}

/* finish fails with the status; one sentence was said; nothing stays allocated. */
static void refused(bench *t, dfx_status status, const char *words) {
    dfx_program program = {0};
    assert_int_equal(dfx_builder_finish(&t->b, &program), status);
    said_error(&t->dir->log, words);
    assert_int_equal(program.n_ops, 0);
    assert_int_equal(dfx_mem_held_bytes(), t->held_bytes);
    dfx_tensors_close(t->tensors);
}

static dfx_ref input(bench *t) {
    return dfx_extern_buf(&t->b, "x", 3, 4, DFX_DTYPE_F32);
}

static void builder_lays_out_pages_weights_and_temps(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_program p;
    dfx_ref x = input(&t);
    dfx_builder_page(&t.b, "a");
    dfx_ref h = dfx_linear(&t.b, &(dfx_linear_spec){.x = x, .name = "w", .n = 2});
    dfx_builder_page(&t.b, "%s", "b");
    dfx_ref y = dfx_linear(&t.b, &(dfx_linear_spec){.x = h, .name = "w", .n = 2, .no_bias = true});
    dfx_ref out = dfx_extern_buf(&t.b, "y", 3, 2, DFX_DTYPE_F32);
    dfx_emit(&t.b, DFX_OP_ACT, "copy", (dfx_ref[DFX_OP_SLOTS]){out, y}, NULL);
    assert_int_equal(dfx_builder_finish(&t.b, &p), DFX_OK);
    assert_true(p.n_ops == 3 && p.n_pages == 2 && p.n_weights == 3 && p.n_externs == 2);
    assert_string_equal(p.ops[0].label, "a.w");
    assert_string_equal(p.weights[1].name, "a.w.bias");
    assert_string_equal(p.externs[1].name, "y");
    assert_true(p.ops[0].page_idx == 0 && p.ops[1].page_idx == 1);
    assert_true(p.ops[2].page_idx == DFX_NO_PAGE);
    assert_true(p.weights[0].off == 0 && p.weights[0].bytes == 16);
    assert_true(p.weights[1].off == DFX_PAGE_ALIGN && p.weights[1].bytes == 4);
    assert_true(p.pages[0].bytes == 128 && p.pages[1].bytes == 64);
    assert_true(p.page_bytes == 192 && p.page_bytes_max == 128);
    assert_int_equal(p.act_bytes, 2 * DFX_ACT_ALIGN); /* h and y meet at the second product */
    dfx_program_fini(&p);
    dfx_tensors_close(t.tensors);
}

/* Named twice in one page, a weight is there once. */
static void builder_same_weight_in_a_page_is_held_once(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_program p;
    dfx_builder_page(&t.b, "a");
    dfx_ref first = dfx_weight_ref(&t.b, "w.bias", 1, 2),
            again = dfx_weight_ref(&t.b, "w.bias", 1, 2);
    assert_true(first.buf && again.buf);
    assert_int_equal(dfx_builder_finish(&t.b, &p), DFX_OK);
    assert_true(p.n_weights == 1 && p.page_bytes == DFX_PAGE_ALIGN);
    dfx_program_fini(&p);
    dfx_tensors_close(t.tensors);
}

static void builder_missing_tensor_is_refused_by_name(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_builder_page(&t.b, "a");
    dfx_linear(&t.b, &(dfx_linear_spec){.x = input(&t), .name = "none", .n = 2});
    refused(&t, DFX_E_FORMAT, "part: tensor a.none.weight is missing; wanted a shape of 2 x 4");
}

static void builder_wrong_shape_names_wanted_and_found(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_builder_page(&t.b, "a");
    dfx_weight_ref(&t.b, "w.weight", 4, 2);
    refused(&t, DFX_E_FORMAT, "part: tensor a.w.weight is BF16 [2, 4]; wanted 4 x 2");
}

static void builder_wrong_count_is_refused(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_builder_page(&t.b, "a");
    dfx_weight_ref(&t.b, "w.bias", 1, 3);
    refused(&t, DFX_E_FORMAT, "a.w.bias is BF16 [2]; wanted 1 x 3");
}

static void builder_tensor_that_is_no_number_is_refused(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_builder_page(&t.b, "a");
    dfx_weight_ref(&t.b, "flag", 1, 1);
    refused(&t, DFX_E_FORMAT, "a.flag has type BOOL");
}

static void builder_first_error_sticks_and_is_told_once(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_ref x = input(&t);
    dfx_builder_page(&t.b, "a");
    dfx_ref lost = dfx_weight_ref(&t.b, "first", 1, 1);
    assert_int_equal(lost.buf, 0);
    assert_int_equal(dfx_weight_ref(&t.b, "w.bias", 1, 2).buf, 0);
    assert_int_equal(dfx_temp(&t.b, 2, 2).buf, 0);
    assert_int_equal(dfx_extern_buf(&t.b, "z", 1, 1, DFX_DTYPE_F32).buf, 0);
    dfx_linear(&t.b, &(dfx_linear_spec){.x = x, .name = "second", .n = 2});
    dfx_builder_page(&t.b, "b");
    dfx_builder_scope(&t.b, "c");
    dfx_builder_fail(&t.b, DFX_E_INTERNAL, "third");
    refused(&t, DFX_E_FORMAT, "a.first is missing");
}

static void builder_rectangle_outside_its_buffer_is_refused(void **state) {
    static const int64_t rects[][4] = {{0, 4, 0, 4}, {1, 3, 0, 4}, {0, 3, 1, 4}, {-1, 3, 0, 4}};
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(rects); i++) {
        bench t = begin(dir);
        init(&t);
        dfx_ref x =
            dfx_cols(dfx_rows(input(&t), rects[i][0], rects[i][1]), rects[i][2], rects[i][3]);
        dfx_ref y = dfx_temp(&t.b, rects[i][1], rects[i][3]);
        dfx_emit(&t.b, DFX_OP_ACT, "copy", (dfx_ref[DFX_OP_SLOTS]){y, x}, NULL);
        refused(&t, DFX_E_INTERNAL, "outside its buffer");
    }
}

static void builder_op_with_weights_of_two_pages_is_refused(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_ref x = input(&t), y = dfx_temp(&t.b, 3, 2);
    dfx_builder_page(&t.b, "a");
    dfx_ref bias = dfx_weight_ref(&t.b, "w.bias", 1, 2);
    dfx_builder_page(&t.b, "a");
    dfx_ref w = dfx_weight_ref(&t.b, "w.weight", 2, 4);
    dfx_emit(&t.b, DFX_OP_LINEAR, "w", (dfx_ref[DFX_OP_SLOTS]){y, x, w, bias}, NULL);
    refused(&t, DFX_E_INTERNAL, "weights of two pages");
}

static void builder_weight_outside_a_page_is_refused(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_weight_ref(&t.b, "a.w.bias", 1, 2);
    refused(&t, DFX_E_INTERNAL, "a.w.bias outside a page");
}

static void builder_buffer_without_rows_or_too_large_is_refused(void **state) {
    static const int64_t shapes[][2] = {{0, 4}, {4, -1}, {INT64_MAX / 2, 4}, {INT64_MAX / 8, 2}};
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        bench t = begin(dir);
        init(&t);
        assert_int_equal(dfx_temp(&t.b, shapes[i][0], shapes[i][1]).buf, 0);
        refused(&t, DFX_E_INTERNAL, "a buffer of");
    }
}

/* The op contract is asked at once. */
static void builder_op_with_wrong_shapes_is_refused(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_ref y = dfx_temp(&t.b, 3, 3);
    dfx_emit(&t.b, DFX_OP_ACT, "copy", (dfx_ref[DFX_OP_SLOTS]){y, input(&t)}, NULL);
    refused(&t, DFX_E_INTERNAL, "");
}

static void builder_without_tensors_has_any_weight(void **state) {
    tmpdir *dir = *state;
    dfx_builder b;
    dfx_program p;
    dfx_build_env env = {.act_dtype = DFX_DTYPE_F32, .sink = &dir->log.sink};
    dfx_builder_init(&b, "plan", "part", &env);
    assert_true(dfx_builder_has(&b, "any"));
    dfx_builder_page(&b, "a");
    dfx_ref x = dfx_extern_buf(&b, "x", 3, 4, DFX_DTYPE_F32);
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "any", .n = 5});
    assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
    assert_true(p.weights[0].dtype == DFX_DTYPE_BF16 && !p.weights[0].tensor);
    assert_int_equal(p.weights[0].bytes, 5 * 4 * 2);
    dfx_program_fini(&p);
}

/* The policy is asked by the component's name for it, about a weight that would be stored as BF16. */
static void builder_without_tensors_takes_types_from_policy(void **state) {
    tmpdir *dir = *state;
    static const char *const keep[] = {"transformer.transformer_blocks.0.attn.to_k.*"};
    static const struct {
        const char *name;
        int64_t rows, cols;
        dfx_dtype int8, f32; /* under these two policies */
    } weights[] = {
        {"attn.to_q.weight", 8, 64, DFX_DTYPE_I8, DFX_DTYPE_F32},
        {"attn.to_q.weight_scale", 1, 8, DFX_DTYPE_F32, DFX_DTYPE_F32},
        {"attn.to_q.bias", 1, 8, DFX_DTYPE_BF16, DFX_DTYPE_F32},
        {"attn.to_k.weight", 8, 64, DFX_DTYPE_BF16, DFX_DTYPE_F32},   /* kept by the user */
        {"attn.to_v.weight", 8, 63, DFX_DTYPE_BF16, DFX_DTYPE_F32},   /* too narrow */
        {"norm1.linear.weight", 8, 64, DFX_DTYPE_BF16, DFX_DTYPE_F32} /* kept by the table */
    };
    const dfx_q_policy int8 = {
        .target = DFX_Q_INT8, .kept = DFX_Q_STORED, .keep = keep, .n_keep = 1};
    const dfx_q_policy f32 = {.target = DFX_Q_F32, .kept = DFX_Q_F32};
    for (int is_f32 = 0; is_f32 < 2; is_f32++) {
        dfx_build_env env = {
            .like = is_f32 ? &f32 : &int8, .act_dtype = DFX_DTYPE_F32, .sink = &dir->log.sink};
        dfx_builder b;
        dfx_program p;
        dfx_builder_init(&b, "plan", "transformer", &env);
        dfx_builder_page(&b, "transformer_blocks.%d", 0);
        for (size_t i = 0; i < DFX_COUNT(weights); i++)
            dfx_weight_ref(&b, weights[i].name, weights[i].rows, weights[i].cols);
        assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
        for (size_t i = 0; i < DFX_COUNT(weights); i++)
            assert_int_equal(p.weights[i].dtype, is_f32 ? weights[i].f32 : weights[i].int8);
        dfx_program_fini(&p);
    }
}

/* "a/first" and "a/second" are pages of one block: parts of a page's name are no parts of its weights'. */
static void builder_pages_of_one_block_share_its_scope(void **state) {
    bench t = begin(*state);
    init(&t);
    dfx_program p;
    dfx_builder_page(&t.b, "a/first");
    dfx_builder_scope(&t.b, "a");
    dfx_weight_ref(&t.b, "w.weight", 2, 4);
    dfx_builder_page(&t.b, "a/second");
    dfx_builder_scope(&t.b, "a");
    dfx_weight_ref(&t.b, "w.bias", 1, 2);
    assert_int_equal(dfx_builder_finish(&t.b, &p), DFX_OK);
    assert_int_equal(p.n_pages, 2);
    assert_string_equal(p.pages[1].name, "a/second");
    assert_string_equal(p.weights[1].name, "a.w.bias");
    assert_true(p.weights[1].page_idx == 1 && p.weights[1].off == 0);
    dfx_program_fini(&p);
    dfx_tensors_close(t.tensors);
}

/* Every allocation fails once; nothing stays held. */
static void builder_survives_failing_allocations(void **state) {
    bench t = begin(*state);
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 0;
    while (status != DFX_OK) {
        dfx_program p;
        recorder_clear(&t.dir->log);
        dfx_mem_fail_nth(++nth);
        init(&t);
        dfx_ref x = input(&t);
        dfx_builder_page(&t.b, "a");
        dfx_linear(&t.b, &(dfx_linear_spec){.x = x, .name = "w", .n = 2});
        status = dfx_builder_finish(&t.b, &p);
        dfx_mem_fail_nth(0);
        if (status == DFX_OK) {
            dfx_program_fini(&p);
        } else {
            assert_int_equal(status, DFX_E_NOFIT);
            said_error(&t.dir->log, "");
        }
        assert_int_equal(dfx_mem_held_bytes(), t.held_bytes);
    }
    assert_true(nth > 6);
    dfx_tensors_close(t.tensors);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(builder_lays_out_pages_weights_and_temps),
        IN_TMPDIR(builder_same_weight_in_a_page_is_held_once),
        IN_TMPDIR(builder_missing_tensor_is_refused_by_name),
        IN_TMPDIR(builder_wrong_shape_names_wanted_and_found),
        IN_TMPDIR(builder_wrong_count_is_refused),
        IN_TMPDIR(builder_tensor_that_is_no_number_is_refused),
        IN_TMPDIR(builder_first_error_sticks_and_is_told_once),
        IN_TMPDIR(builder_rectangle_outside_its_buffer_is_refused),
        IN_TMPDIR(builder_op_with_weights_of_two_pages_is_refused),
        IN_TMPDIR(builder_weight_outside_a_page_is_refused),
        IN_TMPDIR(builder_buffer_without_rows_or_too_large_is_refused),
        IN_TMPDIR(builder_op_with_wrong_shapes_is_refused),
        IN_TMPDIR(builder_without_tensors_has_any_weight),
        IN_TMPDIR(builder_without_tensors_takes_types_from_policy),
        IN_TMPDIR(builder_pages_of_one_block_share_its_scope),
        IN_TMPDIR(builder_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
