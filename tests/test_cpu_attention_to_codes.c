/* ATTENTION and ATTENTION_CODES on the CPU where y is codes by scales that are given: of what the same op makes without scales,
 * whose values test_cpu_attention.c and test_cpu_attention_codes.c check, by the conversion of core. */
#include <math.h>
#include <string.h>

#include "tests/cpu_rig.h"

enum { BESIDE = 16, NOT_OURS = 0x5a };

typedef struct shape {
    int64_t tq, tk;
    int n_heads;
    int64_t head;
    bool causal, bias; /* of ATTENTION */
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, false, false},    {1, 70, 2, 16, true, true},    {5, 9, 3, 4, false, true},
    {9, 5, 3, 4, true, false},     {63, 63, 2, 24, false, false}, {64, 64, 1, 8, true, true},
    {65, 130, 2, 20, true, false}, {129, 129, 2, 7, true, true},  {130, 333, 3, 16, false, false},
};

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 4;
}

static dfx_op_call attention(rig *r, const shape *s) {
    int64_t width = s->n_heads * s->head;
    dfx_op_call call = {
        .kind = DFX_OP_ATTENTION,
        .p = {.n_heads = s->n_heads, .scale = 1 / sqrtf((float)s->head), .causal = s->causal}};
    call.m[0] = rig_poison(r, s->tq, width, wider(width));
    call.m[DFX_ATTN_Q] = rig_random(r, s->tq, width, wider(width), 1);
    call.m[DFX_ATTN_K] = rig_random(r, s->tk, width, wider(width) + 4, 2);
    call.m[DFX_ATTN_V] = rig_random(r, s->tk, width, wider(width) + 8, 3);
    if (s->bias)
        call.m[DFX_ATTN_BIAS] = rig_random(r, s->n_heads, 2 * s->tk - 1, 4 * s->tk, 4);
    return call;
}

/* Any codes; E4M3's NaN becomes the greatest. */
static dfx_mat random_codes(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    int64_t ld = (cols + 15) / 16 * 16 + 16;
    dfx_mat m = {rig_alloc(r, (size_t)(rows * ld)), rows, cols, ld, dtype};
    const float *dice = rig_random(r, rows, ld, ld, seed).ptr;
    for (int64_t i = 0; i < rows * ld; i++) {
        uint8_t code = (uint8_t)((dice[i] + 2) * 64);
        ((uint8_t *)m.ptr)[i] = dtype == DFX_DTYPE_F8_E4M3 && (code & 0x7f) == 0x7f ? 0x7e : code;
    }
    return m;
}

/* Scores of a few units, and values about 1 beside a mean of 1. */
static dfx_op_call attention_codes(rig *r, const shape *s) {
    int64_t width = s->n_heads * s->head;
    dfx_op_call call = {.kind = DFX_OP_ATTENTION_CODES,
                        .p = {.n_heads = s->n_heads, .scale = 1 / sqrtf((float)s->head)}};
    call.m[0] = rig_poison(r, s->tq, width, wider(width));
    call.m[DFX_ATTN_Q] = random_codes(r, DFX_DTYPE_I8, s->tq, width, 1);
    call.m[DFX_ATTN_K] = random_codes(r, DFX_DTYPE_I8, s->tk, width, 2);
    call.m[DFX_ATTN_V] = random_codes(r, DFX_DTYPE_F8_E4M3, width, dfx_v_codes_cols(s->tk), 3);
    call.m[DFX_ATTN_Q_SCALE] = rig_random(r, s->tq, s->n_heads, wider(s->n_heads), 4);
    call.m[DFX_ATTN_CENTER] = rig_random(r, DFX_CENTER_ROWS, width, wider(width), 5);
    float *center = call.m[DFX_ATTN_CENTER].ptr;
    for (int64_t i = 0; i < DFX_CENTER_ROWS * call.m[DFX_ATTN_CENTER].ld; i++) {
        int64_t row = i / call.m[DFX_ATTN_CENTER].ld;
        center[i] = row == DFX_CENTER_VALUE ? center[i] : fabsf(center[i]) / 64 + 0x1p-10f;
    }
    return call;
}

static dfx_op_call (*const makers[])(rig *, const shape *) = {attention, attention_codes};

/* The same call, its codes going to the middle of wider rows. Values of some rows are at 448 times the scale and beyond, of some
 * in the middle, of others among the least that E4M3 has. */
static dfx_op_call to_codes(rig *r, const dfx_op_call *values) {
    static const float scales[] = {0.01f, 0x1p-11f, 3, 400, 0x1p-40f, 0x1p40f};
    const dfx_mat *y = &values->m[0];
    int64_t ld = (y->cols + 15) / 16 * 16 + 2 * BESIDE;
    size_t bytes = (size_t)(y->rows * ld + BESIDE);
    dfx_op_call call = *values;
    uint8_t *wide = memset(rig_alloc(r, bytes), NOT_OURS, bytes);
    call.m[0] = (dfx_mat){wide + BESIDE, y->rows, y->cols, ld, DFX_DTYPE_F8_E4M3};
    dfx_mat y_scale = rig_poison(r, 1, y->rows, wider(y->rows));
    for (int64_t t = 0; t < y->rows; t++)
        ((float *)y_scale.ptr)[t] = scales[t % 6] * (1 + (float)t / 1024);
    call.m[dfx_op_y_scale_given(call.kind)] = y_scale;
    return call;
}

static uint8_t code_at(const dfx_op_call *codes, int64_t t, int64_t c) {
    return ((const uint8_t *)codes->m[0].ptr)[t * codes->m[0].ld + c];
}

static uint8_t code_wanted(const dfx_op_call *values, const dfx_op_call *codes, int64_t t,
                           int64_t c) {
    float scale = ((const float *)codes->m[dfx_op_y_scale_given(codes->kind)].ptr)[t];
    float value = ((const float *)values->m[0].ptr)[t * values->m[0].ld + c];
    return dfx_f32_to_e4m3(value * (1 / scale));
}

static void attention_to_codes_rounds_values_times_one_over_given_scales(void **state) {
    rig *r = *state;
    int n_inside = 0, n_at_end = 0;
    for (size_t i = 0; i < 2 * DFX_COUNT(shapes); i++) {
        dfx_op_call values = makers[i % 2](r, &shapes[i / 2]), codes = to_codes(r, &values);
        const dfx_mat *y = &codes.m[0];
        rig_run(r, &values);
        rig_run(r, &codes);
        for (int64_t j = 0; j < y->rows * y->cols; j++) {
            int64_t t = j / y->cols, c = j % y->cols;
            uint8_t got = code_at(&codes, t, c), want = code_wanted(&values, &codes, t, c);
            if (got != want)
                fail_msg("case %zu row %lld column %lld: got %#x, want %#x", i, (long long)t,
                         (long long)c, got, want);
            n_at_end += (got & 0x7f) == 0x7e;
            n_inside += (got & 0x7f) < 0x7e && (got & 0x7f) > 0;
        }
        for (int64_t t = 0; t < y->rows; t++)
            for (int64_t c = 1; c <= BESIDE; c++)
                assert_true(code_at(&codes, t, -c) == NOT_OURS &&
                            code_at(&codes, t, y->cols + c - 1) == NOT_OURS);
    }
    assert_true(n_at_end > 1000 && n_inside > 1000);
}

/* Of NaN among values: a column, and of NaN in a query: its row of that head. */
static void attention_to_codes_of_a_nan_is_the_code_of_nan(void **state) {
    static const shape s = {70, 66, 2, 16, false, false};
    rig *r = *state;
    for (int i = 0; i < 2; i++) {
        dfx_op_call values = makers[i](r, &s), codes;
        const dfx_mat *q = &values.m[i ? DFX_ATTN_Q_SCALE : DFX_ATTN_Q];
        ((float *)q->ptr)[67 * q->ld + (i ? 1 : 16 + 3)] = NAN; /* query 67, head 1 */
        if (i)
            ((uint8_t *)values.m[DFX_ATTN_V].ptr)[5 * values.m[DFX_ATTN_V].ld + 11] = 0x7f;
        else
            ((float *)values.m[DFX_ATTN_V].ptr)[11 * values.m[DFX_ATTN_V].ld + 5] = NAN;
        codes = to_codes(r, &values);
        rig_run(r, &values);
        rig_run(r, &codes);
        for (int64_t t = 0; t < s.tq; t++)
            for (int64_t c = 0; c < 32; c++) {
                bool is_nan = c == 5 || (t == 67 && c >= 16);
                uint8_t want = is_nan ? 0x7f : code_wanted(&values, &codes, t, c);
                assert_int_equal(code_at(&codes, t, c), want);
            }
    }
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(attention_to_codes_rounds_values_times_one_over_given_scales),
        WITH_RIG(attention_to_codes_of_a_nan_is_the_code_of_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
