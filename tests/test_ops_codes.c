/* dfx_op_check of operands that are codes: which types they have, what scales are beside them, and which operands exclude
 * them. */
#include "tests/op_calls.h"
#include "tests/tmpdir.h"

static dfx_op_call int8_call(int64_t depth) {
    dfx_op_call call = right_call(DFX_OP_LINEAR);
    call.m[DFX_LINEAR_X] = f32(5, depth);
    call.m[DFX_LINEAR_W] = mat(DFX_DTYPE_I8, 6, depth);
    return call;
}

static void op_check_scaled_weights_are_ok_with_and_without_weight_only(void **state) {
    tmpdir *dir = *state;
    dfx_op_call fp8 = right_call(DFX_OP_LINEAR), int8 = int8_call(7);
    assert_int_equal(dfx_op_check(&int8, &dir->log.sink), DFX_OK);
    fp8.p.weight_only = int8.p.weight_only = true;
    assert_int_equal(dfx_op_check(&fp8, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_op_check(&int8, &dir->log.sink), DFX_OK);
    said_nothing(&dir->log, DFX_ERROR);
}

static void op_check_int8_without_scale_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = int8_call(7);
    call.m[DFX_LINEAR_SCALE] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "op linear: wanted a scale beside w of I8, found none");
}

static void op_check_weight_only_without_scale_is_told(void **state) {
    tmpdir *dir = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F8_E4M3, DFX_DTYPE_BF16, DFX_DTYPE_I8};
    for (size_t i = 0; i < DFX_COUNT(dtypes); i++) {
        dfx_op_call call = right_call(DFX_OP_LINEAR);
        call.m[DFX_LINEAR_W].dtype = dtypes[i];
        call.m[DFX_LINEAR_SCALE] = (dfx_mat){0};
        call.p.weight_only = true;
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "op linear: wanted a scale beside weight_only, found none");
    }
}

/* 132104 * 127 * 128 = 2^31 - 1024; with one column more it is 2^31 + 15232. */
static void op_check_int8_sum_beyond_int32_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call longest = int8_call(132104), longer = int8_call(132105);
    assert_int_equal(dfx_op_check(&longest, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_op_check(&longer, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "so that int32 holds their sum, found 132105");
    longer.p.weight_only = true;
    assert_int_equal(dfx_op_check(&longer, &dir->log.sink), DFX_OK);
}

static void op_check_codes_have_scales_beside_them(void **state) {
    tmpdir *dir = *state;
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_RMSNORM, DFX_OP_ACT_MUL};
    for (size_t i = 0; i < DFX_COUNT(kinds); i++) {
        dfx_op_call call = right_call(kinds[i]);
        int y_scale = dfx_op_y_scale(kinds[i]);
        call.m[y_scale] = f32(1, 5);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y wanted I8 or F8_E4M3, found F32");
        call.m[0] = f8(5, 6);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
        assert_true(dfx_op_is_codes(&call, 0));
        assert_false(dfx_op_is_codes(&call, 1));
        call.m[y_scale] = f32(1, 6);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y_scale wanted [1, 5], found [1, 6]");
        call.m[y_scale] = bf16(1, 5);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y_scale wanted F32, found BF16");
        call.m[y_scale] = (dfx_mat){0};
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y wanted F32 or BF16, found F8_E4M3");
    }
}

static void op_check_qk_codes_have_one_kind_of_scale(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_QK_CODES);
    call.m[DFX_QK_CODES_CENTER] = f32(4, 12);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "either y_scale or center");
    call.m[DFX_QK_CODES_Y_SCALE] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[DFX_QK_CODES_CENTER] = (dfx_mat){0};
    recorder_clear(&dir->log);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "either y_scale or center");
}

static void op_check_head_beyond_int32_sums_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_ATTENTION_CODES);
    call.p.n_heads = 1;
    call.m[0].cols = 132105; /* as of int8 products */
    call.m[0].ld = 132112;
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "heads of at most 132104 columns, found 132105");
}

static void op_is_codes_names_operands_of_attention_in_8_bits(void **state) {
    static const struct {
        dfx_op_kind kind;
        unsigned slots; /* bit i: slot i is codes */
    } cases[] = {{DFX_OP_KV_CENTER, 0},
                 {DFX_OP_QK_CODES, 1},
                 {DFX_OP_V_CODES, 1},
                 {DFX_OP_ATTENTION_CODES, 1 << 1 | 1 << 2 | 1 << 3},
                 {DFX_OP_ATTENTION, 0}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        dfx_op_call call = right_call(cases[i].kind);
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
            assert_int_equal(dfx_op_is_codes(&call, slot), cases[i].slots >> slot & 1);
    }
}

/* The call must be refused with these words. */
static void refused(tmpdir *dir, const dfx_op_call *call, const char *words) {
    recorder_clear(&dir->log);
    assert_int_equal(dfx_op_check(call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, words);
}

/* y = act(x W^T + b) [5, 6] as codes, of codes of x [5, 7]. */
static dfx_op_call product_of_codes(void) {
    dfx_op_call call = right_call(DFX_OP_LINEAR);
    call.m[0] = f8(5, 6);
    call.m[DFX_LINEAR_X] = f8(5, 7);
    call.m[DFX_LINEAR_X_SCALE] = call.m[DFX_LINEAR_Y_SCALE] = f32(1, 5);
    call.m[DFX_LINEAR_GATE] = call.m[DFX_LINEAR_R] = (dfx_mat){0};
    return call;
}

static void op_check_codes_of_a_product_have_scales_beside_them(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = product_of_codes();
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    assert_true(dfx_op_is_codes(&call, 0) && dfx_op_is_codes(&call, DFX_LINEAR_X));
    assert_false(dfx_op_is_codes(&call, DFX_LINEAR_W));
    assert_int_equal(dfx_op_y_scale(DFX_OP_LINEAR), 0); /* it reads them */
    call.m[DFX_LINEAR_Y_SCALE] = f32(1, 6);
    refused(dir, &call, "op linear: y_scale wanted [1, 5], found [1, 6]");
    call.m[DFX_LINEAR_Y_SCALE] = bf16(1, 5);
    refused(dir, &call, "op linear: y_scale wanted F32, found BF16");
    call.m[DFX_LINEAR_Y_SCALE] = (dfx_mat){0};
    assert_false(dfx_op_is_codes(&call, 0));
    refused(dir, &call, "op linear: y wanted F32 or BF16, found F8_E4M3");
}

static void op_check_codes_of_a_product_are_e4m3(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = product_of_codes();
    call.m[0] = i8(5, 6);
    refused(dir, &call, "op linear: wanted y of F8_E4M3 beside y_scale, found I8");
    call.m[0] = f32(5, 6);
    refused(dir, &call, "op linear: y wanted I8 or F8_E4M3, found F32");
}

static void op_check_codes_of_a_product_exclude_gate_residual_and_adapter(void **state) {
    tmpdir *dir = *state;
    const dfx_op_call right = product_of_codes();
    const char *const words = "op linear: wanted no gate, r and t beside y_scale, found 10";
    dfx_op_call call = right;
    call.m[DFX_LINEAR_GATE] = f32(1, 6);
    refused(dir, &call, words);
    call = right;
    call.m[DFX_LINEAR_R] = f32(5, 6);
    refused(dir, &call, words);
    call = right;
    call.m[DFX_LINEAR_T] = f32(5, 16);
    call.m[DFX_LINEAR_U] = f32(6, 16);
    refused(dir, &call, words);
}

/* y [5, 12] as codes. */
static dfx_op_call attention_to_codes(dfx_op_kind kind) {
    dfx_op_call call = right_call(kind);
    call.m[0] = f8(5, 12);
    call.m[dfx_op_y_scale_given(kind)] = f32(1, 5);
    return call;
}

static const dfx_op_kind attentions[] = {DFX_OP_ATTENTION, DFX_OP_ATTENTION_CODES};

static void op_check_codes_of_attention_are_e4m3_with_scales_beside_them(void **state) {
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(attentions); i++) {
        const dfx_op_call right = attention_to_codes(attentions[i]);
        int y_scale = dfx_op_y_scale_given(attentions[i]);
        dfx_op_call call = right;
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
        assert_true(dfx_op_is_codes(&call, 0));
        assert_int_equal(dfx_op_y_scale(attentions[i]), 0); /* it reads them */
        call.m[y_scale] = f32(1, 12);
        refused(dir, &call, "y_scale wanted [1, 5], found [1, 12]");
        call.m[y_scale] = f32(5, 1);
        refused(dir, &call, "y_scale wanted [1, 5], found [5, 1]");
        call.m[y_scale] = bf16(1, 5);
        refused(dir, &call, "y_scale wanted F32, found BF16");
        call.m[y_scale] = (dfx_mat){0};
        assert_false(dfx_op_is_codes(&call, 0));
        refused(dir, &call, "y wanted F32 or BF16, found F8_E4M3");
        call = right;
        call.m[0] = i8(5, 12);
        refused(dir, &call, "wanted y of F8_E4M3 beside y_scale, found I8");
        call.m[0] = f32(5, 12);
        refused(dir, &call, "y wanted I8 or F8_E4M3, found F32");
        call.m[0] = bf16(5, 12);
        refused(dir, &call, "y wanted I8 or F8_E4M3, found BF16");
    }
}

static void op_check_codes_of_attention_are_ok_beside_bias_and_causal_or_without(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = attention_to_codes(DFX_OP_ATTENTION);
    call.p.causal = true;
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[DFX_ATTN_BIAS] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    said_nothing(&dir->log, DFX_ERROR);
}

/* They are made by others; what LAYERNORM and the like make of their own is not given. */
static void op_y_scale_given_is_that_of_products_and_attention(void **state) {
    for (int kind = 0; kind < DFX_N_OP_KINDS; kind++) {
        int want = kind == DFX_OP_LINEAR            ? DFX_LINEAR_Y_SCALE
                   : kind == DFX_OP_ATTENTION       ? DFX_ATTN_Y_SCALE
                   : kind == DFX_OP_ATTENTION_CODES ? DFX_ATTN_CODES_Y_SCALE
                                                    : 0;
        int given = dfx_op_y_scale_given((dfx_op_kind)kind);
        assert_int_equal(given, want);
        assert_true(!given || dfx_op_info_of((dfx_op_kind)kind)->optional >> given & 1);
    }
}

static void op_check_bias_of_values_without_their_scales_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_BOUND);
    call.m[DFX_BOUND_V_SCALE] = (dfx_mat){0};
    refused(dir, &call, "op bound: v_b wanted [1, 0], found [1, 9]");
    call.m[DFX_BOUND_V_B] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
}

static void op_check_norms_of_rows_are_told_beside_codes_only(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_LAYERNORM);
    call.m[DFX_NORM_Y_NORM] = f32(1, 5);
    refused(dir, &call, "op layernorm: wanted y_scale beside y_norm, found 7");
    call.m[0] = f8(5, 6);
    call.m[DFX_NORM_Y_SCALE] = f32(1, 5);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[0] = i8(5, 6);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[DFX_NORM_Y_NORM] = f32(1, 6);
    refused(dir, &call, "op layernorm: y_norm wanted [1, 5], found [1, 6]");
    call.m[DFX_NORM_Y_NORM] = bf16(1, 5);
    refused(dir, &call, "op layernorm: y_norm wanted F32, found BF16");
}

/* Scales, bounds and norms of rows; not what they are of. */
static void op_wants_f32_of_scales_and_norms_whatever_activations_are(void **state) {
    static const struct {
        dfx_op_kind kind;
        unsigned slots; /* bit i: slot i is F32 */
    } cases[] = {
        {DFX_OP_LINEAR, 1 << DFX_LINEAR_SCALE | 1 << DFX_LINEAR_X_SCALE | 1 << DFX_LINEAR_Y_SCALE},
        {DFX_OP_LAYERNORM, 1 << DFX_NORM_Y_SCALE | 1 << DFX_NORM_Y_NORM},
        {DFX_OP_RMSNORM, 1 << DFX_RMSNORM_Y_SCALE},
        {DFX_OP_ACT_MUL, 1 << DFX_ACT_MUL_Y_SCALE},
        {DFX_OP_QUANTIZE, 1 << DFX_QUANTIZE_Y_SCALE | 1 << DFX_QUANTIZE_LEAST},
        {DFX_OP_BOUND,
         1 << 0 | 1 << DFX_BOUND_X_NORM | 1 << DFX_BOUND_W_SCALE | 1 << DFX_BOUND_V_SCALE},
        {DFX_OP_ATTENTION, 1 << DFX_ATTN_Y_SCALE},
        {DFX_OP_ATTENTION_CODES,
         1 << DFX_ATTN_Q_SCALE | 1 << DFX_ATTN_CENTER | 1 << DFX_ATTN_CODES_Y_SCALE},
    };
    for (size_t i = 0; i < DFX_COUNT(cases); i++)
        for (int slot = 0; slot < dfx_op_info_of(cases[i].kind)->n_slots; slot++)
            assert_int_equal(dfx_op_wants_f32(cases[i].kind, slot), cases[i].slots >> slot & 1);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(op_check_scaled_weights_are_ok_with_and_without_weight_only),
        IN_TMPDIR(op_check_int8_without_scale_is_told),
        IN_TMPDIR(op_check_weight_only_without_scale_is_told),
        IN_TMPDIR(op_check_int8_sum_beyond_int32_is_told),
        IN_TMPDIR(op_check_codes_have_scales_beside_them),
        IN_TMPDIR(op_check_qk_codes_have_one_kind_of_scale),
        IN_TMPDIR(op_check_head_beyond_int32_sums_is_told),
        cmocka_unit_test(op_is_codes_names_operands_of_attention_in_8_bits),
        IN_TMPDIR(op_check_codes_of_a_product_have_scales_beside_them),
        IN_TMPDIR(op_check_codes_of_a_product_are_e4m3),
        IN_TMPDIR(op_check_codes_of_a_product_exclude_gate_residual_and_adapter),
        IN_TMPDIR(op_check_codes_of_attention_are_e4m3_with_scales_beside_them),
        IN_TMPDIR(op_check_codes_of_attention_are_ok_beside_bias_and_causal_or_without),
        cmocka_unit_test(op_y_scale_given_is_that_of_products_and_attention),
        IN_TMPDIR(op_check_bias_of_values_without_their_scales_is_told),
        IN_TMPDIR(op_check_norms_of_rows_are_told_beside_codes_only),
        cmocka_unit_test(op_wants_f32_of_scales_and_norms_whatever_activations_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
