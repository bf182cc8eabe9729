/* Ops whose output may be codes: they are those that QUANTIZE makes of the same op's values. QUANTIZE itself is held against
 * quant/FORMAT.md in test_q_rows.c. */
#include "tests/cpu_rig.h"

enum { ROWS = 37, COLS = 301 };

/* The op with values for its output. */
static dfx_op_call call_of(rig *r, dfx_op_kind kind) {
    dfx_op_call call = {.kind = kind, .p = {.eps = 1e-6f, .act = DFX_ACT_GELU_TANH}};
    call.m[0] = rig_poison(r, ROWS, COLS, COLS + 3);
    call.m[1] = rig_random(r, ROWS, COLS, COLS + 3, 1);
    switch (kind) {
    case DFX_OP_LAYERNORM:
        call.m[DFX_NORM_SCALE] = rig_random(r, 1, COLS, COLS + 3, 2);
        call.m[DFX_NORM_SHIFT] = rig_random(r, 1, COLS, COLS + 3, 3);
        call.p.act = DFX_ACT_NONE;
        break;
    case DFX_OP_RMSNORM:
        call.m[DFX_NORM_W] = rig_random_weight(r, DFX_DTYPE_BF16, 1, COLS, 4);
        call.p.act = DFX_ACT_NONE;
        break;
    default: /* ACT_MUL */
        call.m[DFX_BIN_B] = rig_random(r, ROWS, COLS, COLS + 7, 5);
    }
    return call;
}

static dfx_mat codes_mat(rig *r, dfx_dtype dtype) {
    return (dfx_mat){rig_alloc(r, ROWS * (COLS + 11)), ROWS, COLS, COLS + 11, dtype};
}

static void check_codes(rig *r, dfx_op_kind kind, dfx_dtype dtype) {
    dfx_op_call values = call_of(r, kind), codes = values;
    dfx_op_call quantize = {.kind = DFX_OP_QUANTIZE};
    int y_scale = dfx_op_y_scale(kind);
    codes.m[0] = codes_mat(r, dtype);
    codes.m[y_scale] = rig_poison(r, 1, ROWS, ROWS + 3);
    quantize.m[0] = codes_mat(r, dtype);
    quantize.m[DFX_QUANTIZE_X] = values.m[0];
    quantize.m[DFX_QUANTIZE_Y_SCALE] = rig_poison(r, 1, ROWS, ROWS + 3);
    rig_run(r, &values);
    rig_run(r, &quantize);
    rig_run(r, &codes);
    assert_memory_equal(codes.m[0].ptr, quantize.m[0].ptr, ROWS * (COLS + 11));
    assert_memory_equal(codes.m[y_scale].ptr, quantize.m[DFX_QUANTIZE_Y_SCALE].ptr,
                        ROWS * sizeof(float));
}

static void codes_of_an_op_are_those_of_its_values(void **state) {
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_RMSNORM, DFX_OP_ACT_MUL};
    for (size_t i = 0; i < DFX_COUNT(kinds); i++) {
        check_codes(*state, kinds[i], DFX_DTYPE_I8);
        check_codes(*state, kinds[i], DFX_DTYPE_F8_E4M3);
    }
}

/* A row worked by hand: 3 and 4, mean square 12.5, w = sqrt(12.5) 2: 6 and 8, so 8 / 127 a step and
 * codes 95 (95.25) and 127. */
static void codes_of_rmsnorm_are_those_worked_by_hand(void **state) {
    rig *r = *state;
    const float x[2] = {3, 4}, w[2] = {7.0710678f, 7.0710678f};
    dfx_op_call call = {.kind = DFX_OP_RMSNORM};
    call.m[0] = (dfx_mat){rig_alloc(r, 2), 1, 2, 2, DFX_DTYPE_I8};
    call.m[DFX_NORM_X] = rig_values(r, 1, 2, 4, x);
    call.m[DFX_NORM_W] = rig_weight(r, DFX_DTYPE_F32, 1, 2, w);
    call.m[DFX_RMSNORM_Y_SCALE] = rig_poison(r, 1, 1, 4);
    rig_run(r, &call);
    const int8_t *codes = call.m[0].ptr;
    assert_int_equal(codes[0], 95);
    assert_int_equal(codes[1], 127);
    assert_float_equal(rig_at(&call.m[DFX_RMSNORM_Y_SCALE], 0, 0), 8.0 / 127, 1e-7);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(codes_of_an_op_are_those_of_its_values),
        WITH_RIG(codes_of_rmsnorm_are_those_worked_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
