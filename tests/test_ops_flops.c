/* dfx_op_flops, counted by hand. */
#include "kernels/ops.h"
#include "tests/tmpdir.h"

static dfx_mat mat(int64_t rows, int64_t cols) {
    return (dfx_mat){.rows = rows, .cols = cols, .ld = cols, .dtype = DFX_DTYPE_F32};
}

static void op_flops_count_multiply_adds_twice(void **state) {
    dfx_op_call linear = {DFX_OP_LINEAR, {mat(5, 6), mat(5, 7), mat(6, 7)}, {0}};
    assert_true(dfx_op_flops(&linear) == 2 * 5 * 6 * 7);
    dfx_op_call conv = {DFX_OP_CONV2D, {mat(20, 6), mat(20, 7), mat(6, 63)}, {0}};
    assert_true(dfx_op_flops(&conv) == 2 * 20 * 6 * 63);
    dfx_op_call add = {DFX_OP_ADD, {mat(5, 6), mat(5, 6), mat(5, 6)}, {0}};
    assert_true(dfx_op_flops(&add) == 5 * 6);
}

static void op_flops_of_a_product_count_its_adapter(void **state) {
    dfx_op_call linear = {DFX_OP_LINEAR, {mat(5, 6), mat(5, 7), mat(6, 7)}, {0}};
    linear.m[DFX_LINEAR_T] = mat(5, 16);
    linear.m[DFX_LINEAR_U] = mat(6, 16);
    assert_true(dfx_op_flops(&linear) == 2 * 5 * 6 * (7 + 16));
}

static void op_flops_of_attention_count_pairs_that_are_seen(void **state) {
    dfx_op_call attention = {
        DFX_OP_ATTENTION, {mat(5, 12), mat(5, 12), mat(8, 12), mat(8, 12)}, {.n_heads = 3}};
    assert_true(dfx_op_flops(&attention) == 2 * 2 * 5 * 8 * 12);
    attention.p.causal = true; /* 1 + 2 + 3 + 4 + 5 pairs */
    assert_true(dfx_op_flops(&attention) == 2 * 2 * 15 * 12);
    attention.m[0].rows = 10; /* 1 + ... + 8, 8, 8 */
    assert_true(dfx_op_flops(&attention) == 2 * 2 * 52 * 12);
}

static void op_flops_of_attention_in_8_bits_are_those_in_16(void **state) {
    dfx_op_call codes = {
        DFX_OP_ATTENTION_CODES, {mat(5, 12), mat(5, 12), mat(17, 12), mat(12, 32)}, {.n_heads = 3}};
    assert_true(dfx_op_flops(&codes) == 2 * 2 * 5 * 17 * 12);
    dfx_op_call center = {
        DFX_OP_KV_CENTER, {mat(4, 12), mat(17, 12), mat(17, 12), mat(1, 4)}, {.n_heads = 3}};
    assert_true(dfx_op_flops(&center) == 4 * 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(op_flops_count_multiply_adds_twice),
        cmocka_unit_test(op_flops_of_a_product_count_its_adapter),
        cmocka_unit_test(op_flops_of_attention_count_pairs_that_are_seen),
        cmocka_unit_test(op_flops_of_attention_in_8_bits_are_those_in_16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
