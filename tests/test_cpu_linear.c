/* LINEAR on the CPU against double precision loops of its formula.
 *
 * Tolerance: values lie in [-2, 2), so a sum of K products has a size of about 4/3 sqrt(K) and K roundings of 2^-24 of
 * it, which mostly cancel; (K + 16) 2^-20 leaves a factor of ten also behind act and gate. One product left out or
 * taken twice is a thousand times that. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <string.h>

enum { B = 1, GATE = 2, R = 4, IN_PLACE = 8 };

typedef struct shape {
    int64_t m, n, k;
    dfx_dtype w;
    dfx_act act;
    int parts;
} shape;

static double act_of(dfx_act act, double x) {
    switch (act) {
    case DFX_ACT_SILU:
        return x / (1 + exp(-x));
    case DFX_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case DFX_ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case DFX_ACT_NONE:
        break;
    }
    return x;
}

static float *expected(rig *r, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    int64_t n_cols = m[0].cols, depth = m[DFX_LINEAR_X].cols;
    float *want = rig_alloc(r, (size_t)(m[0].rows * n_cols) * sizeof(*want));
    double *w = rig_alloc(r, (size_t)depth * sizeof(*w));
    for (int64_t n = 0; n < n_cols; n++) {
        for (int64_t k = 0; k < depth; k++)
            w[k] = rig_at(&m[DFX_LINEAR_W], n, k);
        for (int64_t t = 0; t < m[0].rows; t++) {
            const float *x = (const float *)m[DFX_LINEAR_X].ptr + t * m[DFX_LINEAR_X].ld;
            double sum = m[DFX_LINEAR_B].ptr ? rig_at(&m[DFX_LINEAR_B], 0, n) : 0;
            for (int64_t k = 0; k < depth; k++)
                sum += (double)x[k] * w[k];
            sum = act_of(call->p.act, sum);
            if (m[DFX_LINEAR_GATE].ptr)
                sum *= rig_at(&m[DFX_LINEAR_GATE], 0, n);
            if (m[DFX_LINEAR_R].ptr)
                sum += rig_at(&m[DFX_LINEAR_R], t, n);
            want[t * n_cols + n] = (float)sum;
        }
    }
    return want;
}

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 8;
}

static dfx_op_call call_of(rig *r, const shape *s) {
    dfx_op_call call = {.kind = DFX_OP_LINEAR, .p.act = s->act};
    call.m[DFX_LINEAR_X] = rig_random(r, s->m, s->k, wider(s->k), 1);
    call.m[DFX_LINEAR_W] = rig_random_weight(r, s->w, s->n, s->k, 2);
    if (s->parts & B)
        call.m[DFX_LINEAR_B] = rig_random_weight(r, s->w, 1, s->n, 3);
    if (s->parts & GATE)
        call.m[DFX_LINEAR_GATE] = rig_random(r, 1, s->n, wider(s->n), 4);
    call.m[0] = rig_poison(r, s->m, s->n, wider(s->n));
    if (s->parts & R)
        call.m[DFX_LINEAR_R] = rig_random(r, s->m, s->n, wider(s->n) + 4, 5);
    if (s->parts & IN_PLACE)
        call.m[DFX_LINEAR_R] = call.m[0] = rig_random(r, s->m, s->n, wider(s->n), 5);
    return call;
}

static void linear_equals_double_loops(void **state) {
    rig *r = *state;
    static const shape shapes[] = {
        {1, 1, 1, DFX_DTYPE_F32, DFX_ACT_NONE, 0},
        {1, 1, 1, DFX_DTYPE_BF16, DFX_ACT_NONE, 0},
        {1, 17, 33, DFX_DTYPE_F32, DFX_ACT_NONE, B},
        {1, 17, 33, DFX_DTYPE_BF16, DFX_ACT_SILU, B},
        {2, 3, 5, DFX_DTYPE_F32, DFX_ACT_GELU_TANH, B | GATE | R},
        {3, 16, 16, DFX_DTYPE_F32, DFX_ACT_NONE, IN_PLACE},
        {7, 31, 29, DFX_DTYPE_F16, DFX_ACT_NONE, R},
        {16, 64, 256, DFX_DTYPE_F8_E4M3, DFX_ACT_QUICK_GELU, B | GATE | IN_PLACE},
        {63, 65, 127, DFX_DTYPE_BF16, DFX_ACT_GELU_TANH, B | GATE | R},
        {63, 65, 127, DFX_DTYPE_F32, DFX_ACT_GELU_TANH, B | GATE | R},
        {64, 48, 1025, DFX_DTYPE_F8_E5M2, DFX_ACT_NONE, B},
        {64, 48, 1025, DFX_DTYPE_F32, DFX_ACT_NONE, B},
        {65, 48, 1025, DFX_DTYPE_F8_E5M2, DFX_ACT_NONE, B},
        {65, 33, 77, DFX_DTYPE_BF16, DFX_ACT_SILU, B | GATE | IN_PLACE},
        {65, 1, 2050, DFX_DTYPE_F16, DFX_ACT_NONE, 0},
        {129, 257, 19, DFX_DTYPE_BF16, DFX_ACT_NONE, B | GATE},
        {320, 130, 64, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, B},
        {513, 259, 70, DFX_DTYPE_F32, DFX_ACT_NONE, B | R},
        {700, 600, 21, DFX_DTYPE_BF16, DFX_ACT_NONE, IN_PLACE},
        {1100, 600, 1, DFX_DTYPE_BF16, DFX_ACT_NONE, B},
    };
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call call = call_of(r, &shapes[i]);
        float *want = expected(r, &call); /* before r is overwritten */
        rig_run(r, &call);
        rig_same(&call.m[0], want, (double)(shapes[i].k + 16) * 0x1p-20);
    }
}

/* sgemm has kernels for the rest of each block: every small size, so that each is used. */
static void linear_every_small_size_equals_double_loops(void **state) {
    rig *r = *state;
    for (int64_t m = 1; m <= 40; m += m < 20 ? 1 : 5)
        for (int64_t n = 1; n <= 36; n += n < 18 ? 1 : 6) {
            shape s = {m, n, 1 + (m * 7 + n * 3) % 41, DFX_DTYPE_F32, DFX_ACT_NONE, 0};
            dfx_op_call call = call_of(r, &s);
            float *want = expected(r, &call);
            dfx_backend *be;
            dfx_cpu_options options = {.n_threads = 1};
            assert_int_equal(dfx_cpu_backend_open(&options, &r->log.sink, &be), DFX_OK);
            assert_int_equal(be->vt->prepare(be, &call), DFX_OK);
            assert_int_equal(be->vt->workspace_alloc(be), DFX_OK);
            assert_int_equal(be->vt->run(be, &call), DFX_OK);
            be->vt->close(be);
            for (int64_t i = 0; i < m * n; i++) {
                double got = rig_at(&call.m[0], i / n, i % n);
                if (!(fabs(got - (double)want[i]) <= (double)(s.k + 16) * 0x1p-20))
                    fail_msg("%lld x %lld x %lld: value %lld is %.9g, want %.9g", (long long)m,
                             (long long)n, (long long)s.k, (long long)i, got, (double)want[i]);
            }
        }
}

/* Rows of one x, run alone, with 15 others, and with 63 others. */
static void linear_skinny_row_has_same_bits_whatever_m_is(void **state) {
    rig *r = *state;
    static const int64_t counts[] = {1, 2, 4, 5, 16, 63};
    shape s = {64, 37, 531, DFX_DTYPE_BF16, DFX_ACT_SILU, B | GATE};
    dfx_op_call all = call_of(r, &s);
    rig_run(r, &all);
    for (size_t c = 0; c < DFX_COUNT(counts); c++)
        for (int64_t first = 0; first + counts[c] <= 64; first += 21) {
            dfx_op_call some = all;
            some.m[0] = rig_poison(r, counts[c], s.n, all.m[0].ld);
            some.m[DFX_LINEAR_X].rows = counts[c];
            some.m[DFX_LINEAR_X].ptr =
                (float *)all.m[DFX_LINEAR_X].ptr + first * all.m[DFX_LINEAR_X].ld;
            rig_run(r, &some);
            for (int64_t t = 0; t < counts[c]; t++)
                assert_memory_equal((float *)some.m[0].ptr + t * some.m[0].ld,
                                    (float *)all.m[0].ptr + (first + t) * all.m[0].ld,
                                    (size_t)s.n * sizeof(float));
        }
}

/* bf16 values that come as f32, at an odd address, and inside wider rows at an even one. */
static void linear_same_weights_of_any_layout_give_same_bits(void **state) {
    rig *r = *state;
    shape s = {130, 70, 1100, DFX_DTYPE_BF16, DFX_ACT_NONE, B};
    dfx_op_call narrow = call_of(r, &s);
    rig_run(r, &narrow);
    dfx_mat *w = &narrow.m[DFX_LINEAR_W];
    float *values = rig_alloc(r, (size_t)(s.n * s.k) * sizeof(float));
    assert_true(dfx_to_f32(w->dtype, w->ptr, values, (size_t)(s.n * s.k)));
    dfx_op_call odd = narrow, aligned = narrow;
    odd.m[DFX_LINEAR_W] = rig_weight(r, DFX_DTYPE_F32, s.n, s.k, values);
    aligned.m[DFX_LINEAR_W] = rig_values(r, s.n, s.k, wider(s.k), values);
    odd.m[0] = rig_poison(r, s.m, s.n, narrow.m[0].ld);
    aligned.m[0] = rig_poison(r, s.m, s.n, narrow.m[0].ld);
    rig_run(r, &odd);
    rig_run(r, &aligned);
    for (int64_t t = 0; t < s.m; t++) {
        const float *want = (const float *)narrow.m[0].ptr + t * narrow.m[0].ld;
        assert_memory_equal((float *)odd.m[0].ptr + t * odd.m[0].ld, want,
                            (size_t)s.n * sizeof(float));
        assert_memory_equal((float *)aligned.m[0].ptr + t * aligned.m[0].ld, want,
                            (size_t)s.n * sizeof(float));
    }
}

/* Weights with ld > cols, in bf16: what lies between the rows is NaN and must not be met. */
static void linear_bf16_weights_in_wider_rows_equal_double_loops(void **state) {
    rig *r = *state;
    for (int64_t m = 3; m <= 90; m += 87) {
        shape s = {m, 21, 45, DFX_DTYPE_BF16, DFX_ACT_NONE, 0};
        dfx_op_call call = call_of(r, &s);
        dfx_mat wide = rig_random_weight(r, DFX_DTYPE_BF16, s.n, s.k + 9, 8);
        for (int64_t n = 0; n < s.n; n++)
            memset((char *)wide.ptr + 2 * (n * wide.ld + s.k), 0xff, 18);
        wide.cols = s.k;
        call.m[DFX_LINEAR_W] = wide;
        float *want = expected(r, &call);
        rig_run(r, &call);
        rig_same(&call.m[0], want, (double)(s.k + 16) * 0x1p-20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(linear_equals_double_loops, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(linear_every_small_size_equals_double_loops, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(linear_skinny_row_has_same_bits_whatever_m_is, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(linear_same_weights_of_any_layout_give_same_bits, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(linear_bf16_weights_in_wider_rows_equal_double_loops,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
