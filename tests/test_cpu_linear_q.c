/* Quantized LINEAR on the CPU: int8 against exact integer loops, all ways against double precision loops of the formula
 * in kernels/ops.h, values and codes of them, and against the product of the values that were not quantized, within the
 * error that quant/FORMAT.md promises.
 *
 * Tolerance of the double loops: a sum of K products in f32 is off by at most K 2^-24 of the sum of their magnitudes;
 * conversion, scales, bias, activation (whose slope is below 1.2), gate and residual add less than 16 such roundings.
 * Of int8 only these 16 are left. One product left out is about 1 / K of the sum of magnitudes: more than ten times as
 * much. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_int8.h"
#include "quant/q_rows.h"
#include "tests/cpu_rig.h"

enum { B = 1, GATE = 2, R = 4, IN_PLACE = 8, WEIGHT_ONLY = 16 };

typedef struct shape {
    int64_t m, n, k;
    dfx_dtype w; /* I8 or F8_E4M3 */
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

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 8;
}

/* Any code but NaN, -128 of int8 included, in rows of k + 5 at an odd address; between the rows 0x7f: 127, or NaN. */
static dfx_mat random_codes(rig *r, dfx_dtype dtype, int64_t n, int64_t k, uint64_t seed) {
    int64_t ld = k + 5;
    uint8_t *codes = (uint8_t *)rig_alloc(r, (size_t)(n * ld) + 1) + 1;
    memset(codes, 0x7f, (size_t)(n * ld));
    uint64_t x = seed * 2 + 1;
    for (int64_t i = 0; i < n * k; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint8_t code = (uint8_t)(x >> 56);
        bool nan = dtype == DFX_DTYPE_F8_E4M3 && (code & 0x7f) == 0x7f;
        codes[i / k * ld + i % k] = nan ? 0 : code;
    }
    return (dfx_mat){.ptr = codes, .rows = n, .cols = k, .ld = ld, .dtype = dtype};
}

/* Scales of 2^-7 to 2^-6, and some negative ones, at an odd address. */
static dfx_mat random_scales(rig *r, int64_t n, uint64_t seed) {
    dfx_mat values = rig_random(r, 1, n, wider(n), seed);
    float *scale = values.ptr;
    for (int64_t i = 0; i < n; i++)
        scale[i] = (scale[i] < -1.5f ? -0x1p-7f : 0x1p-7f) * (1 + fabsf(scale[i]) / 2);
    return rig_weight(r, DFX_DTYPE_F32, 1, n, scale);
}

static dfx_op_call call_of(rig *r, const shape *s) {
    dfx_op_call call = {.kind = DFX_OP_LINEAR,
                        .p = {.act = s->act, .weight_only = s->parts & WEIGHT_ONLY}};
    call.m[DFX_LINEAR_X] = rig_random(r, s->m, s->k, wider(s->k), 1);
    call.m[DFX_LINEAR_W] = random_codes(r, s->w, s->n, s->k, 2);
    call.m[DFX_LINEAR_SCALE] = random_scales(r, s->n, 6);
    if (s->parts & B)
        call.m[DFX_LINEAR_B] = rig_random_weight(r, DFX_DTYPE_BF16, 1, s->n, 3);
    if (s->parts & GATE)
        call.m[DFX_LINEAR_GATE] = rig_random(r, 1, s->n, wider(s->n), 4);
    call.m[0] = rig_poison(r, s->m, s->n, wider(s->n));
    if (s->parts & R)
        call.m[DFX_LINEAR_R] = rig_random(r, s->m, s->n, wider(s->n) + 4, 5);
    if (s->parts & IN_PLACE)
        call.m[DFX_LINEAR_R] = call.m[0] = rig_random(r, s->m, s->n, wider(s->n), 5);
    return call;
}

/* Row t of x as the product sees it: codes, or the values themselves; returns their scale. */
static double row_of_x(rig *r, const dfx_op_call *call, int64_t t, double *out) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    const float *values = (const float *)x->ptr + t * x->ld;
    uint8_t *codes = rig_alloc(r, (size_t)x->cols);
    double scale = 1;
    if (!call->p.weight_only && call->m[DFX_LINEAR_W].dtype == DFX_DTYPE_I8)
        scale = (double)dfx_q_token_int8(values, x->cols, (int8_t *)codes);
    else if (!call->p.weight_only)
        scale = (double)dfx_q_token_fp8(values, x->cols, codes);
    for (int64_t k = 0; k < x->cols; k++)
        out[k] = call->p.weight_only                           ? (double)values[k]
                 : call->m[DFX_LINEAR_W].dtype == DFX_DTYPE_I8 ? (double)(int8_t)codes[k]
                                                               : (double)dfx_e4m3_to_f32(codes[k]);
    return scale;
}

typedef struct expected {
    double *want, *tolerance; /* [M, N] */
} expected;

static expected expect(rig *r, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *y = &m[0], *w = &m[DFX_LINEAR_W];
    bool exact = w->dtype == DFX_DTYPE_I8 && !call->p.weight_only;
    double roundings = ((exact ? 0 : (double)w->cols) + 16) * 0x1p-24;
    size_t bytes = (size_t)(y->rows * y->cols) * sizeof(double);
    expected e = {rig_alloc(r, bytes), rig_alloc(r, bytes)};
    double *codes = rig_alloc(r, (size_t)(w->rows * w->cols) * sizeof(double));
    double *x = rig_alloc(r, (size_t)w->cols * sizeof(double));
    for (int64_t i = 0; i < w->rows * w->cols; i++)
        codes[i] = rig_at(w, i / w->cols, i % w->cols);
    for (int64_t t = 0; t < y->rows; t++) {
        double x_scale = row_of_x(r, call, t, x);
        for (int64_t n = 0; n < y->cols; n++) {
            double sum = 0, size = 0, scale = x_scale * rig_at(&m[DFX_LINEAR_SCALE], 0, n);
            for (int64_t k = 0; k < w->cols; k++) {
                sum += x[k] * codes[n * w->cols + k];
                size += fabs(x[k] * codes[n * w->cols + k]);
            }
            double b = m[DFX_LINEAR_B].ptr ? rig_at(&m[DFX_LINEAR_B], 0, n) : 0;
            double gate = m[DFX_LINEAR_GATE].ptr ? rig_at(&m[DFX_LINEAR_GATE], 0, n) : 1;
            double residual = m[DFX_LINEAR_R].ptr ? rig_at(&m[DFX_LINEAR_R], t, n) : 0;
            e.want[t * y->cols + n] = residual + gate * act_of(call->p.act, sum * scale + b);
            e.tolerance[t * y->cols + n] =
                roundings * (1.2 * fabs(gate) * (size * fabs(scale) + fabs(b)) + fabs(residual));
        }
    }
    return e;
}

static void same(const dfx_mat *got, const expected *e) {
    for (int64_t t = 0; t < got->rows; t++) {
        for (int64_t n = 0; n < got->cols; n++) {
            double g = rig_at(got, t, n), want = e->want[t * got->cols + n];
            double tolerance = e->tolerance[t * got->cols + n];
            if (!(fabs(g - want) <= tolerance))
                fail_msg("[%lld, %lld]: row %lld column %lld: got %.9g, want %.9g, tolerance %g",
                         (long long)got->rows, (long long)got->cols, (long long)t, (long long)n, g,
                         want, tolerance);
        }
        for (int64_t n = got->cols; n < got->ld; n++)
            assert_true(isnan(rig_at(got, t, n)));
    }
}

static void linear_q_equals_double_loops(void **state) {
    static const shape shapes[] = {
        {1, 1, 1, DFX_DTYPE_I8, DFX_ACT_NONE, 0},
        {1, 17, 33, DFX_DTYPE_I8, DFX_ACT_SILU, B},
        {2, 3, 5, DFX_DTYPE_I8, DFX_ACT_GELU_TANH, B | GATE | R},
        {7, 31, 29, DFX_DTYPE_I8, DFX_ACT_NONE, R},
        {63, 65, 127, DFX_DTYPE_I8, DFX_ACT_GELU_TANH, B | GATE | R},
        {64, 48, 1025, DFX_DTYPE_I8, DFX_ACT_NONE, B},
        {65, 33, 77, DFX_DTYPE_I8, DFX_ACT_QUICK_GELU, B | GATE | IN_PLACE},
        {65, 1, 2050, DFX_DTYPE_I8, DFX_ACT_NONE, IN_PLACE},
        {131, 259, 19, DFX_DTYPE_I8, DFX_ACT_SILU, B | GATE},
        {1, 1, 1, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, 0},
        {3, 17, 33, DFX_DTYPE_F8_E4M3, DFX_ACT_SILU, B},
        {63, 35, 127, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, B | GATE | R},
        {64, 20, 1025, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
        {65, 33, 1025, DFX_DTYPE_F8_E4M3, DFX_ACT_QUICK_GELU, B | GATE | IN_PLACE},
        {131, 259, 19, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, R},
        {1, 1, 1, DFX_DTYPE_I8, DFX_ACT_NONE, WEIGHT_ONLY},
        {63, 35, 127, DFX_DTYPE_I8, DFX_ACT_GELU_TANH, WEIGHT_ONLY | B | GATE | R},
        {64, 20, 1025, DFX_DTYPE_I8, DFX_ACT_NONE, WEIGHT_ONLY | B},
        {65, 33, 1025, DFX_DTYPE_I8, DFX_ACT_SILU, WEIGHT_ONLY | B | GATE | IN_PLACE},
        {131, 259, 19, DFX_DTYPE_I8, DFX_ACT_NONE, WEIGHT_ONLY | R},
        {65, 33, 77, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, WEIGHT_ONLY | B},
    };
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call call = call_of(r, &shapes[i]);
        expected e = expect(r, &call); /* before r is overwritten */
        rig_run(r, &call);
        same(&call.m[0], &e);
    }
}

/* Against x W^T of the values that x had: every |x - its code * scale| has a bound, and so has the sum. int8: half a
 * step and 2^-15 of it. fp8: half of the last of 4 significant bits, or of a subnormal step of 2^-9, and 2^-20 for the
 * roundings of scale and inverse. Here no quantizing code is on the side of what is expected. */
static void linear_q_is_as_near_to_unquantized_x_as_format_promises(void **state) {
    rig *r = *state;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        shape s = {70, 40, 300, fp8 ? DFX_DTYPE_F8_E4M3 : DFX_DTYPE_I8, DFX_ACT_NONE, 0};
        dfx_op_call call = call_of(r, &s), plain = call;
        plain.p.weight_only = true;
        expected e = expect(r, &plain);
        for (int64_t t = 0; t < s.m; t++) {
            double top = 0;
            for (int64_t k = 0; k < s.k; k++)
                top = fmax(top, fabs(rig_at(&call.m[DFX_LINEAR_X], t, k)));
            for (int64_t n = 0; n < s.n; n++) {
                double scale = fabs(rig_at(&call.m[DFX_LINEAR_SCALE], 0, n));
                double *tolerance = &e.tolerance[t * s.n + n];
                for (int64_t k = 0; k < s.k; k++) {
                    double x = fabs(rig_at(&call.m[DFX_LINEAR_X], t, k));
                    double off =
                        fp8 ? fmax(x * 0x1p-4, top / 448 * 0x1p-10) * (1 + 0x1p-4) + x * 0x1p-20
                            : top / 127 * (0.5 + 0x1p-15);
                    *tolerance += off * fabs(rig_at(&call.m[DFX_LINEAR_W], n, k)) * scale;
                }
            }
        }
        rig_run(r, &call);
        same(&call.m[0], &e);
    }
}

/* x of integers with 127 in each row: scale 1, and the codes are x. With scales of 1, y is the integer sum. */
static dfx_op_call exact_call(rig *r, int64_t m, int64_t n, int64_t k) {
    dfx_op_call call = call_of(r, &(shape){m, n, k, DFX_DTYPE_I8, DFX_ACT_NONE, 0});
    float *x = call.m[DFX_LINEAR_X].ptr, *ones = rig_alloc(r, (size_t)n * sizeof(*ones));
    for (int64_t t = 0; t < m; t++) {
        float *row = x + t * call.m[DFX_LINEAR_X].ld;
        for (int64_t i = 0; i < k; i++)
            row[i] = floorf(row[i] * 63.5f);
        row[(t * 37) % k] = t % 2 ? 127 : -127;
    }
    for (int64_t i = 0; i < n; i++)
        ones[i] = 1;
    call.m[DFX_LINEAR_SCALE] = rig_weight(r, DFX_DTYPE_F32, 1, n, ones);
    return call;
}

static float *integer_sums(rig *r, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X], *w = &call->m[DFX_LINEAR_W];
    float *want = rig_alloc(r, (size_t)(x->rows * w->rows) * sizeof(*want));
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t n = 0; n < w->rows; n++) {
            const float *x_row = (const float *)x->ptr + t * x->ld;
            const int8_t *w_row = (const int8_t *)w->ptr + n * w->ld;
            int64_t sum = 0;
            for (int64_t k = 0; k < x->cols; k++)
                sum += (int64_t)x_row[k] * w_row[k];
            want[t * w->rows + n] = (float)sum;
        }
    return want;
}

static void linear_int8_sums_equal_integer_loops(void **state) {
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {1, 130, 3000}, {3, 5, 31},     {4, 4, 32},      {5, 3, 33},
        {63, 129, 100}, {64, 16, 1024}, {65, 17, 1025}, {129, 66, 2080}, {530, 140, 70},
    };
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call call = exact_call(r, shapes[i][0], shapes[i][1], shapes[i][2]);
        float *want = integer_sums(r, &call);
        rig_run(r, &call);
        rig_same(&call.m[0], want, 0);
    }
}

/* Rows of x all 127, all -127 and both by turns; rows of W all 127, -127, -128 and by turns. */
static void linear_int8_extremes_stay_exact(void **state) {
    enum { K = 15360, M = 3, N = 4 };
    static const int x_of[M][2] = {{127, 127}, {-127, -127}, {127, -127}};
    static const int w_of[N][2] = {{127, 127}, {-127, -127}, {-128, -128}, {127, -127}};
    rig *r = *state;
    dfx_op_call call = exact_call(r, M, N, K);
    float want[M * N];
    for (int64_t k = 0; k < K; k++) {
        for (int m = 0; m < M; m++)
            ((float *)call.m[DFX_LINEAR_X].ptr)[m * call.m[DFX_LINEAR_X].ld + k] =
                (float)x_of[m][k % 2];
        for (int n = 0; n < N; n++)
            ((int8_t *)call.m[DFX_LINEAR_W].ptr)[n * call.m[DFX_LINEAR_W].ld + k] =
                (int8_t)w_of[n][k % 2];
    }
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            want[m * N + n] = (float)(K / 2 * (x_of[m][0] * w_of[n][0] + x_of[m][1] * w_of[n][1]));
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

/* The longest sum that dfx_op_check lets pass: 132104 * 127 * -128 = -2147482624, f32 -2147482624. */
static void linear_int8_longest_sum_fits_int32(void **state) {
    enum { K = 132104 };
    rig *r = *state;
    dfx_op_call call = exact_call(r, 1, 1, K);
    for (int64_t k = 0; k < K; k++) {
        ((float *)call.m[DFX_LINEAR_X].ptr)[k] = 127;
        ((int8_t *)call.m[DFX_LINEAR_W].ptr)[k] = -128;
    }
    rig_run(r, &call);
    rig_same(&call.m[0], (const float[]){-2147482624.0f}, 0);
}

/* Every kernel that this processor can run, not only the one that is chosen; sums are added to. */
static void int8_every_kernel_equals_integer_loops(void **state) {
    enum { M = 12, N = 20, K = 96, LD = 23 };
    rig *r = *state;
    dfx_cpu_int8_kernel kernels[DFX_CPU_INT8_KERNELS];
    int n_kernels = dfx_cpu_int8_kernels(kernels);
    assert_in_range(n_kernels, 1, DFX_CPU_INT8_KERNELS);
    int16_t *x = rig_alloc(r, M * K * sizeof(*x)), *w = rig_alloc(r, N * K * sizeof(*w));
    int8_t *codes = random_codes(r, DFX_DTYPE_I8, M + N, K, 9).ptr;
    dfx_cpu_int8_widen(codes, M * K, x);
    dfx_cpu_int8_widen(codes + M * K, N * K, w);
    for (int i = 0; i < n_kernels; i++) {
        int32_t sums[M * LD];
        for (int j = 0; j < M * LD; j++)
            sums[j] = j;
        kernels[i].multiply(x, M, w, N, K, sums, LD);
        for (int j = 0; j < M * LD; j++) {
            int64_t want = j;
            for (int k = 0; j % LD < N && k < K; k++)
                want += (int64_t)codes[j / LD * K + k] * codes[(M + j % LD) * K + k];
            if (sums[j] != want)
                fail_msg("kernel %s, sum %d: got %d, want %lld", kernels[i].name, j, sums[j],
                         (long long)want);
        }
    }
}

/* Rows of zeros leave the epilogue of 0: r + gate * b. */
static void linear_q_row_of_zeros_gives_bias(void **state) {
    rig *r = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_I8, DFX_DTYPE_F8_E4M3};
    for (int i = 0; i < 2; i++)
        for (int64_t m = 2; m <= 70; m += 68) {
            shape s = {m, 19, 50, dtypes[i], DFX_ACT_NONE, B | GATE | R};
            dfx_op_call call = call_of(r, &s);
            memset((float *)call.m[DFX_LINEAR_X].ptr + call.m[DFX_LINEAR_X].ld, 0,
                   (size_t)s.k * sizeof(float));
            rig_run(r, &call);
            for (int64_t n = 0; n < s.n; n++) {
                float b = (float)rig_at(&call.m[DFX_LINEAR_B], 0, n);
                float gate = (float)rig_at(&call.m[DFX_LINEAR_GATE], 0, n);
                float want = (float)rig_at(&call.m[DFX_LINEAR_R], 1, n) + gate * b;
                assert_true(rig_at(&call.m[0], 1, n) == (double)want);
            }
        }
}

/* Two scales whose product overflows f32, and sums of 0: the value is 0, not NaN. */
static void linear_q_scales_of_far_ends_give_the_value(void **state) {
    rig *r = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_I8, DFX_DTYPE_F8_E4M3};
    static const uint8_t codes[] = {1, 0x38}; /* 1 in each */
    for (int i = 0; i < 2; i++) {
        dfx_op_call call = call_of(r, &(shape){1, 2, 2, dtypes[i], DFX_ACT_NONE, 0});
        float *x = call.m[DFX_LINEAR_X].ptr;
        x[0] = 0x1p99f;
        x[1] = -0x1p99f;
        uint8_t *w = call.m[DFX_LINEAR_W].ptr;
        memset(w, codes[i], 2); /* x[0] + x[1] */
        memset(w + call.m[DFX_LINEAR_W].ld, 0, 2);
        call.m[DFX_LINEAR_SCALE] =
            rig_weight(r, DFX_DTYPE_F32, 1, 2, (const float[]){0x1p90f, 0x1p90f});
        rig_run(r, &call);
        rig_same(&call.m[0], (const float[]){0, 0}, 0);
    }
}

/* Nothing computed from what is not finite may look like a number; other rows are as they were. */
static void linear_q_row_with_infinity_becomes_nan_alone(void **state) {
    rig *r = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_I8, DFX_DTYPE_F8_E4M3};
    for (int i = 0; i < 2; i++)
        for (int64_t m = 3; m <= 70; m += 67) {
            shape s = {m, 19, 50, dtypes[i], DFX_ACT_NONE, B};
            dfx_op_call call = call_of(r, &s), broken = call;
            rig_run(r, &call);
            broken.m[0] = rig_poison(r, s.m, s.n, call.m[0].ld);
            ((float *)broken.m[DFX_LINEAR_X].ptr)[broken.m[DFX_LINEAR_X].ld + 7] = INFINITY;
            rig_run(r, &broken);
            for (int64_t t = 0; t < s.m; t++)
                for (int64_t n = 0; n < s.n; n++)
                    assert_true(t == 1 ? isnan(rig_at(&broken.m[0], t, n))
                                       : rig_at(&broken.m[0], t, n) == rig_at(&call.m[0], t, n));
        }
}

/* Rows of one x, run alone, with others, and with 63 others; int8 also with more. */
static void linear_q_row_has_same_bits_whatever_m_is(void **state) {
    static const shape shapes[] = {
        {64, 37, 531, DFX_DTYPE_F8_E4M3, DFX_ACT_SILU, B | GATE},
        {64, 37, 531, DFX_DTYPE_I8, DFX_ACT_SILU, B | GATE | WEIGHT_ONLY},
        {64, 37, 531, DFX_DTYPE_I8, DFX_ACT_SILU, B | GATE},
        {300, 37, 531, DFX_DTYPE_I8, DFX_ACT_SILU, B | GATE},
    };
    static const int64_t counts[] = {1, 2, 5, 16, 63};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        dfx_op_call all = call_of(r, s);
        rig_run(r, &all);
        for (size_t c = 0; c < DFX_COUNT(counts); c++)
            for (int64_t first = 0; first + counts[c] <= 64; first += 21) {
                dfx_op_call some = all;
                dfx_mat *x = &some.m[DFX_LINEAR_X];
                some.m[0] = rig_poison(r, counts[c], s->n, all.m[0].ld);
                x->rows = counts[c];
                x->ptr = (float *)x->ptr + first * x->ld;
                rig_run(r, &some);
                for (int64_t t = 0; t < counts[c]; t++)
                    assert_memory_equal((float *)some.m[0].ptr + t * some.m[0].ld,
                                        (float *)all.m[0].ptr + (first + t) * all.m[0].ld,
                                        (size_t)s->n * sizeof(float));
            }
    }
}

/* Packed codes and scales at aligned addresses. */
static void linear_q_aligned_codes_give_same_bits(void **state) {
    static const shape shapes[] = {
        {70, 45, 1100, DFX_DTYPE_I8, DFX_ACT_NONE, B},
        {70, 45, 1100, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
        {70, 45, 1100, DFX_DTYPE_I8, DFX_ACT_NONE, B | WEIGHT_ONLY},
        {5, 45, 1100, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
    };
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        dfx_op_call odd = call_of(r, s), packed = odd;
        dfx_mat *w = &packed.m[DFX_LINEAR_W], *scale = &packed.m[DFX_LINEAR_SCALE];
        char *codes = rig_alloc(r, (size_t)(s->n * s->k));
        for (int64_t n = 0; n < s->n; n++)
            memcpy(codes + n * s->k, (const char *)w->ptr + n * w->ld, (size_t)s->k);
        w->ptr = codes;
        w->ld = s->k;
        scale->ptr = memcpy(rig_alloc(r, (size_t)s->n * sizeof(float)), scale->ptr,
                            (size_t)s->n * sizeof(float));
        packed.m[0] = rig_poison(r, s->m, s->n, odd.m[0].ld);
        rig_run(r, &odd);
        rig_run(r, &packed);
        assert_memory_equal(packed.m[0].ptr, odd.m[0].ptr,
                            (size_t)(s->m * odd.m[0].ld) * sizeof(float));
    }
}

/* What QUANTIZE makes of x, in rows that are further apart. */
static void quantize_x(rig *r, dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X];
    int64_t ld = x->cols + 3;
    dfx_op_call quantize = {.kind = DFX_OP_QUANTIZE};
    quantize.m[0] = (dfx_mat){rig_alloc(r, (size_t)(x->rows * ld)), x->rows, x->cols, ld,
                              call->m[DFX_LINEAR_W].dtype};
    quantize.m[DFX_QUANTIZE_X] = *x;
    quantize.m[DFX_QUANTIZE_Y_SCALE] = rig_poison(r, 1, x->rows, wider(x->rows));
    rig_run(r, &quantize);
    call->m[DFX_LINEAR_X] = quantize.m[0];
    call->m[DFX_LINEAR_X_SCALE] = quantize.m[DFX_QUANTIZE_Y_SCALE];
}

static void linear_q_of_codes_equals_that_of_their_values(void **state) {
    static const shape shapes[] = {
        {70, 45, 1100, DFX_DTYPE_I8, DFX_ACT_GELU_TANH, B | GATE | R},
        {70, 45, 1100, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
        {3, 17, 33, DFX_DTYPE_I8, DFX_ACT_NONE, B},
        {3, 17, 33, DFX_DTYPE_F8_E4M3, DFX_ACT_SILU, R},
    };
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        dfx_op_call values = call_of(r, &shapes[i]), codes = values;
        codes.m[0] = rig_poison(r, shapes[i].m, shapes[i].n, values.m[0].ld);
        quantize_x(r, &codes);
        rig_run(r, &values);
        rig_run(r, &codes);
        assert_memory_equal(codes.m[0].ptr, values.m[0].ptr,
                            (size_t)(shapes[i].m * values.m[0].ld) * sizeof(float));
    }
}

static void linear_q_refuses_codes_of_another_type(void **state) {
    rig *r = *state;
    shape s = {3, 4, 32, DFX_DTYPE_I8, DFX_ACT_NONE, 0};
    dfx_op_call call = call_of(r, &s);
    quantize_x(r, &call);
    call.m[DFX_LINEAR_X].dtype = DFX_DTYPE_F8_E4M3;
    assert_int_equal(dfx_op_check(&call, &r->log.sink), DFX_E_INTERNAL);
    said_error(&r->log, "beside codes of x");
}

/* ---- y as codes ---- */

enum { BESIDE = 16, NOT_OURS = 0x5a };

/* Codes [m, n] in the middle of wider rows. */
static dfx_mat codes_within(rig *r, int64_t m, int64_t n) {
    int64_t ld = (n + 15) / 16 * 16 + 2 * BESIDE;
    uint8_t *wide = rig_alloc(r, (size_t)(m * ld + BESIDE));
    memset(wide, NOT_OURS, (size_t)(m * ld + BESIDE));
    return (dfx_mat){wide + BESIDE, m, n, ld, DFX_DTYPE_F8_E4M3};
}

/* Scales by which the greatest value of a row becomes 448, is cut off at four times that, leaves room as a bound does, is
 * nearly lost; and one that is NaN. `e` is of what act is of. */
static dfx_mat scales_of_y(rig *r, const expected *e, const shape *s) {
    static const float times[] = {1, 0.25f, 30, 3000, NAN};
    dfx_mat scales = rig_poison(r, 1, s->m, wider(s->m));
    for (int64_t t = 0; t < s->m; t++) {
        double top = 0;
        for (int64_t n = 0; n < s->n; n++)
            top = fmax(top, fabs(act_of(s->act, e->want[t * s->n + n])));
        ((float *)scales.ptr)[t] = (float)(top / 448) * times[t % 5];
    }
    return scales;
}

static double nearest_e4m3(double value) {
    return (double)dfx_e4m3_to_f32(dfx_f32_to_e4m3((float)value));
}

/* Every code lies between those of the ends of what the value may be, which are nearly always one code. GELU's valley is less
 * than tolerance^2 below the ends. */
static void same_codes(const dfx_op_call *call, const expected *e) {
    const dfx_mat *y = &call->m[0];
    int64_t n_sure = 0, n_all = 0;
    for (int64_t t = 0; t < y->rows; t++) {
        float inverse = 1 / ((const float *)call->m[DFX_LINEAR_Y_SCALE].ptr)[t];
        for (int64_t n = 0; n < y->cols && !isnan(inverse); n++) {
            double x = e->want[t * y->cols + n], off = e->tolerance[t * y->cols + n];
            double a = act_of(call->p.act, x - off), b = act_of(call->p.act, x + off);
            double more = off * off + 64 * 0x1p-24 * fmax(fabs(a), fabs(b));
            double low = nearest_e4m3((fmin(a, b) - more) * (double)inverse);
            double high = nearest_e4m3((fmax(a, b) + more) * (double)inverse);
            double got = rig_at(y, t, n);
            if (!(got >= low && got <= high))
                fail_msg("[%lld, %lld]: row %lld column %lld: got %g, want %g to %g",
                         (long long)y->rows, (long long)y->cols, (long long)t, (long long)n, got,
                         a * (double)inverse, b * (double)inverse);
            n_sure += low == high;
            n_all++;
        }
        const uint8_t *row = (const uint8_t *)y->ptr + t * y->ld;
        for (int64_t i = 1; i <= BESIDE; i++)
            assert_true(row[-i] == NOT_OURS && row[y->cols + i - 1] == NOT_OURS);
    }
    assert_true(n_sure >= n_all * 9 / 10);
}

/* Of x and of its codes. */
static void linear_q_into_codes_equals_nearest_of_double_loops(void **state) {
    static const shape shapes[] = {
        {1, 17, 33, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, B},
        {7, 35, 19, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, 0},
        {63, 37, 40, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, 0},
        {64, 20, 1025, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
        {65, 33, 127, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, B},
        {66, 70, 1025, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, 0},
        {131, 259, 19, DFX_DTYPE_F8_E4M3, DFX_ACT_GELU_TANH, 0},
        {131, 259, 19, DFX_DTYPE_F8_E4M3, DFX_ACT_NONE, B},
        {66, 40, 50, DFX_DTYPE_I8, DFX_ACT_GELU_TANH, B},
    };
    rig *r = *state;
    for (size_t i = 0; i < 2 * DFX_COUNT(shapes); i++) {
        const shape *s = &shapes[i / 2];
        dfx_op_call call = call_of(r, s), inside = call;
        inside.p.act = DFX_ACT_NONE;
        expected e = expect(r, &inside);
        if (i % 2)
            quantize_x(r, &call);
        call.m[0] = codes_within(r, s->m, s->n);
        call.m[DFX_LINEAR_Y_SCALE] = scales_of_y(r, &e, s);
        rig_run(r, &call);
        same_codes(&call, &e);
    }
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(linear_q_equals_double_loops),
        WITH_RIG(linear_q_is_as_near_to_unquantized_x_as_format_promises),
        WITH_RIG(linear_int8_sums_equal_integer_loops),
        WITH_RIG(linear_int8_extremes_stay_exact),
        WITH_RIG(linear_int8_longest_sum_fits_int32),
        WITH_RIG(int8_every_kernel_equals_integer_loops),
        WITH_RIG(linear_q_row_of_zeros_gives_bias),
        WITH_RIG(linear_q_scales_of_far_ends_give_the_value),
        WITH_RIG(linear_q_row_with_infinity_becomes_nan_alone),
        WITH_RIG(linear_q_row_has_same_bits_whatever_m_is),
        WITH_RIG(linear_q_aligned_codes_give_same_bits),
        WITH_RIG(linear_q_of_codes_equals_that_of_their_values),
        WITH_RIG(linear_q_refuses_codes_of_another_type),
        WITH_RIG(linear_q_into_codes_equals_nearest_of_double_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
