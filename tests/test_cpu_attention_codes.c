/* Attention in 8 bits on the CPU: codes and what is computed with them are those of golden/make_attention_codes.py, which is
 * written from kernels/ops.h alone and has arranged that no code is near a tie.
 *
 * Tolerances: z is off by 2^-21 of at most 8; means and scales of it the same. y is a mean of values of at most 500, most of
 * them below 8, with weights that are off by 2^-19. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { T = 37, H = 3, E = 16, D = H * E, T_UP = 48 };

static const float *golden(rig *r, const char *variant, const char *name, size_t n) {
    char full[64];
    snprintf(full, sizeof(full), "%s.%s", variant, name);
    return rig_golden(r, "attention_codes", full, n);
}

static dfx_mat values(rig *r, const char *variant, const char *name, int64_t rows, int64_t cols) {
    const float *packed = golden(r, variant, name, (size_t)(rows * cols));
    return rig_values(r, rows, cols, (cols + 7) / 4 * 4, packed);
}

/* Codes that nobody has made yet, with gaps that shall stay as they are. */
static dfx_mat blank_codes(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols) {
    dfx_mat m = {rig_alloc(r, (size_t)(rows * (cols + 16))), rows, cols, cols + 16, dtype};
    memset(m.ptr, 0x55, (size_t)(rows * m.ld));
    return m;
}

static dfx_mat given_codes(rig *r, const char *variant, const char *name, dfx_dtype dtype,
                           int64_t rows, int64_t cols) {
    const float *codes = golden(r, variant, name, (size_t)(rows * cols));
    dfx_mat m = blank_codes(r, dtype, rows, cols);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < cols; c++)
            ((uint8_t *)m.ptr)[t * m.ld + c] = (uint8_t)(int)codes[t * cols + c];
    return m;
}

static void same_codes(const dfx_mat *got, const dfx_mat *want) {
    assert_memory_equal(got->ptr, want->ptr, (size_t)(got->rows * got->ld));
}

/* Weight and tables behind it, into the op's slots. */
static void set_norm_rope(rig *r, const char *variant, dfx_op_call *call, int w_slot) {
    call->p.n_heads = H;
    call->p.eps = 0.01f;
    call->m[w_slot] = rig_weight(r, DFX_DTYPE_F32, 1, E, golden(r, variant, "w", E));
    if (strcmp(variant, "rope") != 0)
        return;
    call->m[w_slot + 1] = values(r, variant, "cos", T, E / 2);
    call->m[w_slot + 2] = values(r, variant, "sin", T, E / 2);
}

static const char *const variants[] = {"rope", "plain"};

static void kv_center_is_that_of_every_other_token_of_37(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_op_call call = {.kind = DFX_OP_KV_CENTER};
        set_norm_rope(r, variants[i], &call, DFX_CENTER_W);
        call.m[DFX_CENTER_K] = values(r, variants[i], "k", T, D);
        call.m[DFX_CENTER_V] = values(r, variants[i], "v", T, D);
        call.m[0] = rig_poison(r, DFX_CENTER_ROWS, D, D + 4);
        rig_run(r, &call);
        rig_same(&call.m[0], golden(r, variants[i], "center", DFX_CENTER_ROWS * D), 8e-6);
    }
}

static void kv_center_of_zeros_has_scales_of_one(void **state) {
    rig *r = *state;
    float zeros[T * D] = {0}, want[DFX_CENTER_ROWS * D] = {0};
    for (int i = DFX_CENTER_VALUE_SCALE * D; i < DFX_CENTER_ROWS * D; i++)
        want[i] = 1;
    dfx_op_call call = {.kind = DFX_OP_KV_CENTER};
    set_norm_rope(r, "plain", &call, DFX_CENTER_W);
    call.m[DFX_CENTER_K] = rig_values(r, T, D, D, zeros);
    call.m[DFX_CENTER_V] = rig_values(r, T, D, D, zeros);
    call.m[0] = rig_poison(r, DFX_CENTER_ROWS, D, D);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

/* Keys of another stream count for the scale of their head alone, every one of them: one at an odd place, which a sample of 37
 * would pass by. Norm and weight 2 make 9 the key 2 * 9 / sqrt(81 / 16 + eps). */
static void kv_center_has_room_for_keys_of_another_stream(void **state) {
    rig *r = *state;
    float zeros[T * D] = {0}, other[T * D] = {0}, want[DFX_CENTER_ROWS * D] = {0}, w[E];
    other[4 * D + E + 3] = 9; /* token 4, head 1 */
    other[5 * D + 2 * E] = 9; /* token 5, head 2 */
    for (int i = 0; i < E; i++)
        w[i] = 2;
    for (int i = DFX_CENTER_VALUE_SCALE * D; i < DFX_CENTER_ROWS * D; i++)
        want[i] = 1;
    for (int c = E; c < 3 * E; c++)
        want[DFX_CENTER_KEY_SCALE * D + c] = 2 * 9 / sqrtf(81.0f / 16 + 0.01f) / 127;
    dfx_op_call call = {.kind = DFX_OP_KV_CENTER};
    set_norm_rope(r, "rope", &call, DFX_CENTER_W);
    call.m[DFX_CENTER_K] = rig_values(r, T, D, D, zeros);
    call.m[DFX_CENTER_V] = rig_values(r, T, D, D, zeros);
    call.m[DFX_CENTER_K2] = rig_values(r, T, D, D, other);
    call.m[DFX_CENTER_W2] = rig_weight(r, DFX_DTYPE_F32, 1, E, w);
    call.m[0] = rig_poison(r, DFX_CENTER_ROWS, D, D);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 1e-7);
}

static void qk_codes_of_queries_have_a_scale_for_each_head(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_op_call call = {.kind = DFX_OP_QK_CODES};
        dfx_mat want = given_codes(r, variants[i], "q_codes", DFX_DTYPE_I8, T, D);
        set_norm_rope(r, variants[i], &call, DFX_QK_CODES_W);
        call.m[DFX_QK_CODES_X] = values(r, variants[i], "q", T, D);
        call.m[DFX_QK_CODES_Y_SCALE] = rig_poison(r, T, H, 8);
        call.m[0] = blank_codes(r, DFX_DTYPE_I8, T, D);
        rig_run(r, &call);
        same_codes(&call.m[0], &want);
        rig_same(&call.m[DFX_QK_CODES_Y_SCALE], golden(r, variants[i], "q_scale", T * H), 1e-7);
    }
}

static void qk_codes_of_keys_are_centred_and_end_at_127(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_op_call call = {.kind = DFX_OP_QK_CODES};
        dfx_mat want = given_codes(r, variants[i], "k_codes", DFX_DTYPE_I8, T, D);
        set_norm_rope(r, variants[i], &call, DFX_QK_CODES_W);
        call.m[DFX_QK_CODES_X] = values(r, variants[i], "k", T, D);
        call.m[DFX_QK_CODES_CENTER] = values(r, variants[i], "center", DFX_CENTER_ROWS, D);
        call.m[0] = blank_codes(r, DFX_DTYPE_I8, T, D);
        rig_run(r, &call);
        same_codes(&call.m[0], &want);
    }
}

static void kv_sample_is_16_tokens_or_one_in_16(void **state) {
    static const int64_t steps[][2] = {{1, 1},    {16, 1},   {31, 1},   {32, 2},
                                       {37, 2},   {64, 4},   {255, 15}, {256, 16},
                                       {257, 16}, {271, 16}, {272, 16}, {4096, 16}};
    for (size_t i = 0; i < DFX_COUNT(steps); i++)
        assert_int_equal(dfx_kv_sample_step(steps[i][0]), steps[i][1]);
}

/* Worked by hand, from ops.h: a thread's four values of 16 come together. */
static void v_codes_place_keeps_pairs_and_brings_halves_together(void **state) {
    static const int want[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    for (int t = 0; t < 48; t++)
        assert_int_equal(dfx_v_codes_place(t), t / 16 * 16 + want[t % 16]);
    assert_int_equal(dfx_v_codes_cols(16), 16);
    assert_int_equal(dfx_v_codes_cols(17), 32);
}

/* The golden has values beyond +-448 steps, columns without any spread, and 11 columns of zeros behind the last token. */
static void v_codes_are_placed_saturated_and_padded(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_op_call call = {.kind = DFX_OP_V_CODES, .p.n_heads = H};
        dfx_mat want = given_codes(r, variants[i], "v_bytes", DFX_DTYPE_F8_E4M3, D, T_UP);
        call.m[DFX_V_CODES_V] = values(r, variants[i], "v", T, D);
        call.m[DFX_V_CODES_CENTER] = values(r, variants[i], "center", DFX_CENTER_ROWS, D);
        call.m[0] = blank_codes(r, DFX_DTYPE_F8_E4M3, D, T_UP);
        rig_run(r, &call);
        same_codes(&call.m[0], &want);
    }
}

static dfx_op_call golden_attention(rig *r, const char *variant) {
    dfx_op_call call = {.kind = DFX_OP_ATTENTION_CODES, .p = {.n_heads = H, .scale = 0.25f}};
    call.m[DFX_ATTN_Q] = given_codes(r, variant, "q_codes", DFX_DTYPE_I8, T, D);
    call.m[DFX_ATTN_K] = given_codes(r, variant, "k_codes", DFX_DTYPE_I8, T, D);
    call.m[DFX_ATTN_V] = given_codes(r, variant, "v_bytes", DFX_DTYPE_F8_E4M3, D, T_UP);
    call.m[DFX_ATTN_Q_SCALE] = values(r, variant, "q_scale", T, H);
    call.m[DFX_ATTN_CENTER] = values(r, variant, "center", DFX_CENTER_ROWS, D);
    call.m[0] = rig_poison(r, T, D, D + 4);
    return call;
}

static void attention_codes_are_softmax_over_codes(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(variants); i++) {
        dfx_op_call call = golden_attention(r, variants[i]);
        rig_run(r, &call);
        rig_same(&call.m[0], golden(r, variants[i], "y", T * D), 1e-4);
    }
}

/* A query's scores all change by the same number: what is taken off keys cannot be seen. */
static void attention_codes_are_the_same_whatever_is_taken_off_keys(void **state) {
    rig *r = *state;
    dfx_op_call call = golden_attention(r, "rope");
    int8_t *codes = call.m[DFX_ATTN_K].ptr;
    int64_t ld = call.m[DFX_ATTN_K].ld;
    for (int64_t i = 0; i < T * ld; i++)
        codes[i] = (int8_t)(codes[i] / 2);
    rig_run(r, &call);
    float *want = rig_alloc(r, T * D * sizeof(*want));
    for (int64_t t = 0; t < T; t++)
        memcpy(want + t * D, (float *)call.m[0].ptr + t * call.m[0].ld, D * sizeof(*want));
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < D; c++)
            codes[t * ld + c] = (int8_t)(codes[t * ld + c] + 60 - 8 * (c % E));
    rig_run(r, &call);
    rig_same(&call.m[0], want, 1e-4);
}

static void attention_codes_of_a_nan_query_are_nan(void **state) {
    rig *r = *state;
    dfx_op_call call = golden_attention(r, "plain");
    ((float *)call.m[DFX_ATTN_Q_SCALE].ptr)[call.m[DFX_ATTN_Q_SCALE].ld + 1] =
        NAN; /* token 1, head 1 */
    rig_run(r, &call);
    for (int64_t c = 0; c < D; c++)
        assert_int_equal(isnan(rig_at(&call.m[0], 1, c)) != 0, c / E == 1);
    assert_false(isnan(rig_at(&call.m[0], 2, E)));
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(kv_center_is_that_of_every_other_token_of_37),
        cmocka_unit_test(kv_sample_is_16_tokens_or_one_in_16),
        WITH_RIG(kv_center_of_zeros_has_scales_of_one),
        WITH_RIG(kv_center_has_room_for_keys_of_another_stream),
        WITH_RIG(qk_codes_of_queries_have_a_scale_for_each_head),
        WITH_RIG(qk_codes_of_keys_are_centred_and_end_at_127),
        cmocka_unit_test(v_codes_place_keeps_pairs_and_brings_halves_together),
        WITH_RIG(v_codes_are_placed_saturated_and_padded),
        WITH_RIG(attention_codes_are_softmax_over_codes),
        WITH_RIG(attention_codes_are_the_same_whatever_is_taken_off_keys),
        WITH_RIG(attention_codes_of_a_nan_query_are_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
