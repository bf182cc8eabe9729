/* dfx_linear on checkpoints with and without scales: what the op reads, where it lies in the page, and which files are
 * refused. Expected offsets are counted by hand: 64-byte steps, in the order weight, scale, bias. */
#include <stdio.h>
#include <string.h>

#include "offload/builder.h"
#include "tests/stfile.h"

enum { N = 6, K = 70 };

/* A file with block.fc.weight [N, K], block.fc.bias [N] of BF16, and, unless its type is NULL,
 * block.fc.weight_scale. */
static dfx_tensors *open_packed(tmpdir *dir, const char *weight, int weight_bytes,
                                const char *scale, int n_scales) {
    char header[512], scales[128] = "";
    int end = N * K * weight_bytes, scales_bytes = scale ? 4 * n_scales : 0;
    if (scale)
        snprintf(scales, sizeof(scales),
                 ",\"block.fc.weight_scale\":{\"dtype\":\"%s\",\"shape\":[%d],"
                 "\"data_offsets\":[%d,%d]}",
                 scale, n_scales, end, end + scales_bytes);
    int bias = end + scales_bytes;
    snprintf(header, sizeof(header),
             "{\"block.fc.weight\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}%s,"
             "\"block.fc.bias\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
             weight, N, K, end, scales, N, bias, bias + 2 * N);
    return stfile_accepts_header(dir, header, NULL, (size_t)(bias + 2 * N));
}

static dfx_build_env env_of(tmpdir *dir, const dfx_tensors *tensors, bool weight_only) {
    return (dfx_build_env){.tensors = tensors,
                           .weight_only = weight_only,
                           .act_dtype = DFX_DTYPE_F32,
                           .sink = &dir->log.sink};
}

/* One page: y = x W^T + b, and before it, where W is codes, those of x. */
static dfx_status build_in(const dfx_build_env *env, dfx_program *out) {
    dfx_builder b;
    dfx_builder_init(&b, "test", "folder", env);
    dfx_ref x = dfx_extern_buf(&b, "x", 3, K, DFX_DTYPE_F32);
    dfx_ref y = dfx_extern_buf(&b, "y", 3, N, DFX_DTYPE_F32);
    dfx_builder_page(&b, "block");
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "fc", .n = N, .into = y});
    return dfx_builder_finish(&b, out);
}

static dfx_status build(tmpdir *dir, const dfx_tensors *tensors, bool weight_only,
                        dfx_program *out) {
    dfx_build_env env = env_of(dir, tensors, weight_only);
    return build_in(&env, out);
}

/* The last op. */
static const dfx_op *linear_of(const dfx_program *p) {
    return &p->ops[p->n_ops - 1];
}

static const dfx_weight *weight_of(const dfx_program *p, int slot) {
    const dfx_ref *r = &linear_of(p)->r[slot];
    assert_int_not_equal(r->buf, 0);
    assert_int_equal(p->bufs[r->buf].kind, DFX_BUF_WEIGHT);
    return &p->weights[p->bufs[r->buf].idx];
}

static void linear_takes_weight_scale(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *text;
        dfx_dtype dtype;
    } types[] = {{"I8", DFX_DTYPE_I8}, {"F8_E4M3", DFX_DTYPE_F8_E4M3}};
    for (size_t i = 0; i < DFX_COUNT(types); i++) {
        dfx_tensors *set = open_packed(dir, types[i].text, 1, "F32", N);
        dfx_program p;
        assert_int_equal(build(dir, set, false, &p), DFX_OK);
        assert_int_equal(p.n_ops, 2);
        assert_int_equal(p.ops[0].kind, DFX_OP_QUANTIZE);
        assert_int_equal(p.bufs[p.ops[0].r[0].buf].dtype, types[i].dtype);
        assert_int_equal(linear_of(&p)->r[DFX_LINEAR_X].buf, p.ops[0].r[0].buf);
        assert_int_equal(p.n_weights, 3);
        assert_false(linear_of(&p)->p.weight_only);
        const dfx_weight *scale = weight_of(&p, DFX_LINEAR_SCALE);
        assert_string_equal(scale->name, "block.fc.weight_scale");
        assert_int_equal(scale->dtype, DFX_DTYPE_F32);
        assert_int_equal(scale->bytes, 24);
        const dfx_ref *ref = &linear_of(&p)->r[DFX_LINEAR_SCALE];
        assert_int_equal(ref->rows, 1);
        assert_int_equal(ref->cols, N);
        assert_int_equal(weight_of(&p, DFX_LINEAR_W)->dtype, types[i].dtype);
        assert_int_equal(weight_of(&p, DFX_LINEAR_W)->off, 0); /* 420 bytes */
        assert_int_equal(scale->off, 448);                     /* 24 */
        assert_int_equal(weight_of(&p, DFX_LINEAR_B)->off, 512);
        assert_int_equal(p.pages[0].bytes, 576);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
}

static void linear_without_weight_scale_has_none(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *text;
        int bytes;
    } types[] = {{"BF16", 2}, {"F8_E4M3", 1}};
    for (size_t i = 0; i < DFX_COUNT(types); i++) {
        dfx_tensors *set = open_packed(dir, types[i].text, types[i].bytes, NULL, 0);
        dfx_program p;
        assert_int_equal(build(dir, set, true, &p), DFX_OK);
        assert_int_equal(p.n_weights, 2);
        assert_int_equal(linear_of(&p)->r[DFX_LINEAR_SCALE].buf, 0);
        assert_false(linear_of(&p)->p.weight_only);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
}

static void linear_of_architecture_alone_has_no_scale(void **state) {
    tmpdir *dir = *state;
    dfx_program p;
    assert_int_equal(build(dir, NULL, false, &p), DFX_OK);
    assert_int_equal(p.n_weights, 2);
    assert_int_equal(linear_of(&p)->r[DFX_LINEAR_SCALE].buf, 0);
    dfx_program_fini(&p);
}

/* As a file of this format has it, in the same place of the page: what is planned is what will run. */
static void linear_of_architecture_alone_has_scale_beside_codes(void **state) {
    tmpdir *dir = *state;
    static const struct {
        dfx_qformat format;
        dfx_dtype dtype;
        bool weight_only;
    } rows[] = {{DFX_Q_INT8, DFX_DTYPE_I8, false},
                {DFX_Q_INT8WO, DFX_DTYPE_I8, true},
                {DFX_Q_FP8, DFX_DTYPE_F8_E4M3, false}};
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        dfx_q_policy policy = {.target = rows[i].format, .kept = DFX_Q_STORED};
        dfx_build_env env = env_of(dir, NULL, rows[i].weight_only);
        dfx_builder b;
        dfx_program p;
        env.like = &policy;
        dfx_builder_init(&b, "test", "transformer", &env);
        dfx_ref x = dfx_extern_buf(&b, "x", 3, K, DFX_DTYPE_F32);
        dfx_builder_page(&b, "single_transformer_blocks.0");
        dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "proj_mlp", .n = N});
        assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
        assert_int_equal(p.n_weights, 3);
        assert_int_equal(linear_of(&p)->p.weight_only, rows[i].weight_only);
        assert_int_equal(weight_of(&p, DFX_LINEAR_W)->dtype, rows[i].dtype);
        assert_int_equal(weight_of(&p, DFX_LINEAR_SCALE)->dtype, DFX_DTYPE_F32);
        assert_int_equal(weight_of(&p, DFX_LINEAR_SCALE)->off, 448);
        assert_int_equal(weight_of(&p, DFX_LINEAR_B)->off, 512);
        assert_int_equal(p.pages[0].bytes, 576);
        dfx_program_fini(&p);
    }
}

static void linear_weight_only_is_for_int8(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *text;
        bool weight_only;
    } types[] = {{"I8", true}, {"F8_E4M3", false}};
    for (size_t i = 0; i < DFX_COUNT(types); i++) {
        dfx_tensors *set = open_packed(dir, types[i].text, 1, "F32", N);
        dfx_program p;
        assert_int_equal(build(dir, set, true, &p), DFX_OK);
        assert_int_not_equal(linear_of(&p)->r[DFX_LINEAR_SCALE].buf, 0);
        assert_int_equal(linear_of(&p)->p.weight_only, types[i].weight_only);
        dfx_program_fini(&p);
        dfx_tensors_close(set);
    }
}

typedef enum between { NOTHING, SOME_ROWS, OTHER_ROWS, A_WRITE } between;

/* Two products of one x with something between them. Returns how often x became codes. */
static int count_codes(tmpdir *dir, const dfx_tensors *set, between what) {
    dfx_builder b;
    dfx_program p;
    dfx_build_env env = env_of(dir, set, false);
    int n = 0;
    dfx_builder_init(&b, "test", "folder", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", 3, K, DFX_DTYPE_F32);
    dfx_builder_page(&b, "block");
    dfx_ref first = what == OTHER_ROWS ? dfx_rows(x, 0, 1) : x,
            second = what == SOME_ROWS || what == OTHER_ROWS ? dfx_rows(x, 1, 2) : x;
    dfx_linear(&b, &(dfx_linear_spec){.x = first, .name = "fc", .n = N});
    if (what == A_WRITE)
        dfx_add_to(&b, x, x, "twice");
    dfx_linear(&b, &(dfx_linear_spec){.x = second, .name = "fc", .n = N});
    assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
    for (uint32_t i = 0; i < p.n_ops; i++)
        n += p.ops[i].kind == DFX_OP_QUANTIZE;
    dfx_program_fini(&p);
    return n;
}

static void linear_shares_codes_of_one_x_until_it_is_written(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = open_packed(dir, "I8", 1, "F32", N);
    assert_int_equal(count_codes(dir, set, NOTHING), 1);
    assert_int_equal(count_codes(dir, set, SOME_ROWS), 1);
    assert_int_equal(count_codes(dir, set, OTHER_ROWS), 2);
    assert_int_equal(count_codes(dir, set, A_WRITE), 2);
    dfx_tensors_close(set);
}

/* x through an op of this kind into `y`, which for the gate is one of its operands. */
static void emit_maker(dfx_builder *b, dfx_op_kind kind, dfx_ref y, dfx_ref x, dfx_ref row) {
    switch (kind) {
    case DFX_OP_LAYERNORM:
        dfx_modulated_norm(b, y, x, row, row, 1e-6f, "norm");
        break;
    case DFX_OP_RMSNORM:
        dfx_emit(b, kind, "norm", (dfx_ref[DFX_OP_SLOTS]){y, x, row},
                 &(dfx_op_params){.eps = 1e-6f});
        break;
    default: /* ACT_MUL */
        dfx_emit(b, DFX_OP_ADD, "up", (dfx_ref[DFX_OP_SLOTS]){y, x, row}, NULL);
        dfx_emit(b, kind, "gated", (dfx_ref[DFX_OP_SLOTS]){y, y, x},
                 &(dfx_op_params){.act = DFX_ACT_SILU});
    }
}

/* A program of one page, so far op(x), which is returned: three rows. */
static dfx_ref begin_with_maker(dfx_builder *b, const dfx_build_env *env, dfx_op_kind kind,
                                dfx_ref *x) {
    dfx_builder_init(b, "test", "folder", env);
    *x = dfx_extern_buf(b, "x", 3, K, DFX_DTYPE_F32);
    dfx_ref row = dfx_extern_buf(b, "row", 1, K, DFX_DTYPE_F32), y = dfx_temp(b, 3, K);
    dfx_builder_page(b, "block");
    emit_maker(b, kind, y, *x, row);
    return y;
}

/* op(x) -> fc [-> and into x]: the op makes the codes, unless somebody else wants its values. */
static void check_maker_of_codes(tmpdir *dir, const dfx_tensors *set, dfx_op_kind kind,
                                 bool is_read) {
    dfx_builder b;
    dfx_program p;
    dfx_build_env env = env_of(dir, set, false);
    dfx_ref x, y = begin_with_maker(&b, &env, kind, &x);
    dfx_linear(&b, &(dfx_linear_spec){.x = y, .name = "fc", .n = N});
    dfx_linear(&b, &(dfx_linear_spec){.x = y, .name = "fc", .n = N});
    if (is_read)
        dfx_add_to(&b, x, y, "values");
    assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
    uint32_t maker = kind == DFX_OP_ACT_MUL;
    assert_int_equal(p.n_ops, maker + (is_read ? 5 : 3));
    assert_int_equal(p.ops[maker].kind, kind);
    assert_int_equal(p.ops[maker].r[dfx_op_y_scale(kind)].buf != 0, !is_read);
    assert_int_equal(p.ops[maker + 1].kind, is_read ? DFX_OP_QUANTIZE : DFX_OP_LINEAR);
    assert_int_equal(p.ops[p.n_ops - 1 - is_read].r[DFX_LINEAR_X].buf,
                     p.ops[maker + is_read].r[0].buf);
    assert_int_equal(p.regions[0].end_op, p.n_ops);
    dfx_program_fini(&p);
}

static void op_before_a_quantized_product_makes_its_codes(void **state) {
    tmpdir *dir = *state;
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_RMSNORM, DFX_OP_ACT_MUL};
    dfx_tensors *set = open_packed(dir, "I8", 1, "F32", N);
    for (size_t i = 0; i < 2 * DFX_COUNT(kinds); i++)
        check_maker_of_codes(dir, set, kinds[i / 2], i % 2);
    dfx_tensors_close(set);
}

/* Rows 1 and 2 of what an op wrote, then row 0: its codes are made at once, and each product reads its rows of them and of their
 * scales. */
static void codes_are_made_of_all_rows_that_an_op_wrote(void **state) {
    tmpdir *dir = *state;
    dfx_tensors *set = open_packed(dir, "I8", 1, "F32", N);
    dfx_build_env env = env_of(dir, set, false);
    dfx_builder b;
    dfx_program p;
    dfx_ref x, y = begin_with_maker(&b, &env, DFX_OP_LAYERNORM, &x);
    dfx_linear(&b, &(dfx_linear_spec){.x = dfx_rows(y, 1, 2), .name = "fc", .n = N});
    dfx_linear(&b, &(dfx_linear_spec){.x = dfx_rows(y, 0, 1), .name = "fc", .n = N});
    assert_int_equal(dfx_builder_finish(&b, &p), DFX_OK);
    assert_int_equal(p.n_ops, 3);
    const dfx_op *norm = &p.ops[0];
    assert_int_equal(norm->r[0].rows, 3);
    assert_int_equal(norm->r[DFX_NORM_Y_SCALE].cols, 3);
    for (int i = 0; i < 2; i++) {
        const dfx_ref *codes = &p.ops[1 + i].r[DFX_LINEAR_X],
                      *scale = &p.ops[1 + i].r[DFX_LINEAR_X_SCALE];
        assert_int_equal(codes->buf, norm->r[0].buf);
        assert_int_equal(scale->buf, norm->r[DFX_NORM_Y_SCALE].buf);
        assert_int_equal(codes->row0, i == 0);
        assert_int_equal(scale->col0, i == 0);
        assert_int_equal(codes->rows, i == 0 ? 2 : 1);
        assert_int_equal(scale->cols, i == 0 ? 2 : 1);
    }
    dfx_program_fini(&p);
    dfx_tensors_close(set);
}

static void linear_refuses_files_whose_scales_do_not_fit(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *weight;
        int weight_bytes;
        const char *scale;
        int n_scales;
        const char *words;
    } files[] = {
        {"I8", 1, NULL, 0, "block.fc.weight is I8 and block.fc.weight_scale is missing"},
        {"I8", 1, "F32", 1, "block.fc.weight_scale"},
        {"I8", 1, "F32", N + 1, "wanted 1 x 6"},
        {"I8", 1, "I32", N, "block.fc.weight_scale is I32 beside a weight of I8"},
        {"BF16", 2, "F32", N, "block.fc.weight_scale is F32 beside a weight of BF16"},
        {"F8_E5M2", 1, "F32", N, "F32 beside a weight of F8_E5M2"},
    };
    for (size_t i = 0; i < DFX_COUNT(files); i++) {
        dfx_tensors *set = open_packed(dir, files[i].weight, files[i].weight_bytes, files[i].scale,
                                       files[i].n_scales);
        dfx_program p;
        recorder_clear(&dir->log);
        assert_int_equal(build(dir, set, false, &p), DFX_E_FORMAT);
        said_error(&dir->log, files[i].words);
        said_error(&dir->log, "folder: ");
        dfx_tensors_close(set);
    }
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(linear_takes_weight_scale),
        IN_TMPDIR(linear_without_weight_scale_has_none),
        IN_TMPDIR(linear_of_architecture_alone_has_no_scale),
        IN_TMPDIR(linear_of_architecture_alone_has_scale_beside_codes),
        IN_TMPDIR(linear_weight_only_is_for_int8),
        IN_TMPDIR(linear_shares_codes_of_one_x_until_it_is_written),
        IN_TMPDIR(op_before_a_quantized_product_makes_its_codes),
        IN_TMPDIR(codes_are_made_of_all_rows_that_an_op_wrote),
        IN_TMPDIR(linear_refuses_files_whose_scales_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
