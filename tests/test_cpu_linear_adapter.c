/* What adapters add to LINEAR on the CPU, against double precision loops: y = r + gate * act(x W^T + t u^T + b), and products
 * of codes of x with weights that are none.
 *
 * Tolerance: as in test_cpu_linear.c, over K + R products; codes and scales are drawn, so that nothing is rounded before. */
#include <math.h>
#include <string.h>

#include "tests/cpu_rig.h"

enum { CODES_W = 1, CODES_X = 2, REST = 4 };

typedef struct shape {
    int64_t m, n, k, rank; /* rank 0: no adapter */
    dfx_dtype w, x;        /* x: of codes */
    int parts;
} shape;

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 8;
}

/* Codes of +-63 in rows of k + 16; as fp8 they are what the bits mean. */
static dfx_mat random_codes(rig *r, dfx_dtype dtype, int64_t n, int64_t k, uint64_t seed) {
    int64_t ld = (k + 31) / 16 * 16;
    uint8_t *codes = rig_alloc(r, (size_t)(n * ld));
    memset(codes, 0x7f, (size_t)(n * ld));
    uint64_t x = seed * 2 + 1;
    for (int64_t i = 0; i < n * k; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int code = (int)(x >> 57) - 63;
        codes[i / k * ld + i % k] =
            dtype == DFX_DTYPE_I8 ? (uint8_t)(int8_t)code : (uint8_t)(x >> 57) & 0x3f;
    }
    return (dfx_mat){.ptr = codes, .rows = n, .cols = k, .ld = ld, .dtype = dtype};
}

static dfx_mat random_scales(rig *r, int64_t n, uint64_t seed) {
    dfx_mat scales = rig_random(r, 1, n, wider(n), seed);
    for (int64_t i = 0; i < n; i++)
        ((float *)scales.ptr)[i] = 0x1p-6f * (2.5f + ((float *)scales.ptr)[i]);
    return scales;
}

static dfx_op_call call_of(rig *r, const shape *s) {
    dfx_op_call call = {.kind = DFX_OP_LINEAR};
    bool rest = s->parts & REST;
    call.p.act = rest ? DFX_ACT_GELU_TANH : DFX_ACT_NONE;
    call.m[0] = rig_poison(r, s->m, s->n, wider(s->n));
    call.m[DFX_LINEAR_X] = s->parts & CODES_X ? random_codes(r, s->x, s->m, s->k, 1)
                                              : rig_random(r, s->m, s->k, wider(s->k), 1);
    if (s->parts & CODES_X)
        call.m[DFX_LINEAR_X_SCALE] = random_scales(r, s->m, 2);
    call.m[DFX_LINEAR_W] = s->parts & CODES_W ? random_codes(r, s->w, s->n, s->k, 3)
                                              : rig_random_weight(r, s->w, s->n, s->k, 3);
    if (s->parts & CODES_W)
        call.m[DFX_LINEAR_SCALE] = random_scales(r, s->n, 4);
    if (s->rank) {
        call.m[DFX_LINEAR_T] = rig_random(r, s->m, s->rank, s->rank + 8, 5);
        call.m[DFX_LINEAR_U] = rig_random(r, s->n, s->rank, s->rank, 6);
    }
    if (!rest)
        return call;
    call.m[DFX_LINEAR_B] = rig_random_weight(r, DFX_DTYPE_BF16, 1, s->n, 7);
    call.m[DFX_LINEAR_GATE] = rig_random(r, 1, s->n, wider(s->n), 8);
    call.m[DFX_LINEAR_R] = rig_random(r, s->m, s->n, wider(s->n), 9);
    return call;
}

static double gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double scale_at(const dfx_mat *scales, int64_t i) {
    return scales->ptr ? rig_at(scales, 0, i) : 1;
}

static float *expected(rig *r, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    float *want = rig_alloc(r, (size_t)(m[0].rows * m[0].cols) * sizeof(*want));
    for (int64_t row = 0; row < m[0].rows; row++)
        for (int64_t col = 0; col < m[0].cols; col++) {
            double sum = 0;
            for (int64_t k = 0; k < m[DFX_LINEAR_X].cols; k++)
                sum += rig_at(&m[DFX_LINEAR_X], row, k) * rig_at(&m[DFX_LINEAR_W], col, k);
            sum *= scale_at(&m[DFX_LINEAR_X_SCALE], row) * scale_at(&m[DFX_LINEAR_SCALE], col);
            for (int64_t k = 0; k < m[DFX_LINEAR_T].cols; k++)
                sum += rig_at(&m[DFX_LINEAR_T], row, k) * rig_at(&m[DFX_LINEAR_U], col, k);
            if (m[DFX_LINEAR_B].ptr)
                sum += rig_at(&m[DFX_LINEAR_B], 0, col);
            if (call->p.act)
                sum = gelu_tanh(sum);
            if (m[DFX_LINEAR_GATE].ptr)
                sum *= rig_at(&m[DFX_LINEAR_GATE], 0, col);
            if (m[DFX_LINEAR_R].ptr)
                sum += rig_at(&m[DFX_LINEAR_R], row, col);
            want[row * m[0].cols + col] = (float)sum;
        }
    return want;
}

static void adapters_add_to_every_kind_of_product(void **state) {
    rig *r = *state;
    static const shape shapes[] = {
        {70, 37, 45, 16, DFX_DTYPE_BF16, 0, 0},
        {70, 37, 45, 48, DFX_DTYPE_F32, 0, REST},
        {3, 21, 64, 16, DFX_DTYPE_BF16, 0, REST}, /* skinny */
        {70, 37, 48, 32, DFX_DTYPE_I8, DFX_DTYPE_I8, CODES_W | CODES_X},
        {131, 150, 33, 16, DFX_DTYPE_I8, DFX_DTYPE_I8, CODES_W | CODES_X | REST},
        {9, 21, 64, 512, DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E4M3, CODES_W | CODES_X | REST},
        {70, 37, 48, 16, DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E4M3, CODES_W | CODES_X},
    };
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call call = call_of(r, &shapes[i]);
        float *want = expected(r, &call);
        rig_run(r, &call);
        rig_same(&call.m[0], want, (double)(shapes[i].k + shapes[i].rank + 16) * 0x1p-18);
    }
}

/* t = x A^T of codes: they stand for the values that they are codes of. */
static void codes_of_x_meet_weights_that_are_none(void **state) {
    rig *r = *state;
    static const shape shapes[] = {
        {70, 16, 45, 0, DFX_DTYPE_F32, DFX_DTYPE_I8, CODES_X},
        {5, 64, 48, 0, DFX_DTYPE_F32, DFX_DTYPE_F8_E4M3, CODES_X},
        {66, 48, 33, 0, DFX_DTYPE_BF16, DFX_DTYPE_I8, CODES_X},
        {7, 48, 33, 0, DFX_DTYPE_BF16, DFX_DTYPE_F8_E4M3, CODES_X | REST},
    };
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call call = call_of(r, &shapes[i]);
        float *want = expected(r, &call);
        rig_run(r, &call);
        rig_same(&call.m[0], want, (double)(shapes[i].k + 16) * 0x1p-18);
    }
}

static void an_adapter_of_zeros_changes_no_bit(void **state) {
    rig *r = *state;
    for (int codes = 0; codes <= 1; codes++) {
        shape s = {40,
                   37,
                   48,
                   16,
                   codes ? DFX_DTYPE_I8 : DFX_DTYPE_BF16,
                   DFX_DTYPE_I8,
                   codes ? CODES_W | CODES_X | REST : REST};
        dfx_op_call call = call_of(r, &s), none = call;
        memset(call.m[DFX_LINEAR_U].ptr, 0, (size_t)(s.n * s.rank) * sizeof(float));
        none.m[DFX_LINEAR_T] = none.m[DFX_LINEAR_U] = (dfx_mat){0};
        none.m[0] = rig_poison(r, s.m, s.n, wider(s.n));
        rig_run(r, &call);
        rig_run(r, &none);
        for (int64_t m = 0; m < s.m; m++)
            assert_memory_equal((float *)call.m[0].ptr + m * call.m[0].ld,
                                (float *)none.m[0].ptr + m * none.m[0].ld,
                                (size_t)s.n * sizeof(float));
    }
}

static void refused(rig *r, const dfx_op_call *call, const char *words) {
    recorder_clear(&r->log);
    assert_int_equal(dfx_op_check(call, &r->log.sink), DFX_E_INTERNAL);
    said_error(&r->log, words);
    recorder_clear(&r->log);
}

static void adapters_that_do_not_fit_are_refused(void **state) {
    rig *r = *state;
    shape s = {6, 8, 16, 16, DFX_DTYPE_BF16, 0, 0};
    dfx_op_call call = call_of(r, &s);
    assert_int_equal(dfx_op_check(&call, &r->log.sink), DFX_OK);
    call.m[DFX_LINEAR_U] = (dfx_mat){0};
    refused(r, &call, "both t and u");
    call = call_of(r, &s);
    call.m[DFX_LINEAR_T].cols = call.m[DFX_LINEAR_U].cols = 8;
    refused(r, &call, "multiple of 16 columns");
    call = call_of(r, &s);
    call.m[DFX_LINEAR_U].rows = 7;
    refused(r, &call, "u wanted [8, 16]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(adapters_add_to_every_kind_of_product, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(codes_of_x_meet_weights_that_are_none, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(an_adapter_of_zeros_changes_no_bit, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(adapters_that_do_not_fit_are_refused, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
