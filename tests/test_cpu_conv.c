/* CONV2D on the CPU against double precision loops of its formula, weights read as stored (N, C, ky, kx).
 * Tolerance: as for LINEAR (test_cpu_linear.c), with K = C k k. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <string.h>

enum { B = 1, R = 2, IN_PLACE = 4, NORM = 8, IN_X = 16 };

typedef struct shape {
    int64_t h, w, c, n;
    int k, stride, pad_lo, pad_hi, upsample;
    dfx_dtype dtype;
    int parts;
} shape;

/* x, or with norm what stands for it, packed. */
static float *source(rig *r, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_CONV_X], *norm = &call->m[DFX_CONV_NORM];
    float *values = rig_alloc(r, (size_t)(x->rows * x->cols) * sizeof(*values));
    for (int64_t i = 0; i < x->rows * x->cols; i++) {
        int64_t c = i % x->cols;
        double value = rig_at(x, i / x->cols, c);
        if (norm->ptr)
            value = (value - rig_at(norm, 0, c)) * rig_at(norm, 1, c) + rig_at(norm, 2, c);
        values[i] = (float)(call->p.act == DFX_ACT_SILU ? value / (1 + exp(-value)) : value);
    }
    return values;
}

/* Value of channel c at (y, x) of the upsampled picture; 0 outside. */
static double pixel(const dfx_op_call *call, const float *values, int64_t y, int64_t x, int64_t c) {
    const dfx_conv_params *p = &call->p.conv;
    if (y < 0 || x < 0 || y >= p->h * p->upsample || x >= p->w * p->upsample)
        return 0;
    int64_t at = y / p->upsample * p->w + x / p->upsample;
    return (double)values[at * call->m[DFX_CONV_X].cols + c];
}

static float *expected(rig *r, const dfx_op_call *call, int64_t wo) {
    const dfx_mat *m = call->m;
    const dfx_conv_params *p = &call->p.conv;
    int64_t n_channels = m[DFX_CONV_X].cols, k = p->k;
    float *want = rig_alloc(r, (size_t)(m[0].rows * m[0].cols) * sizeof(*want));
    float *w = rig_alloc(r, (size_t)m[DFX_CONV_W].cols * sizeof(*w));
    const float *values = source(r, call);
    for (int64_t n = 0; n < m[0].cols; n++) {
        for (int64_t i = 0; i < m[DFX_CONV_W].cols; i++)
            w[i] = (float)rig_at(&m[DFX_CONV_W], n, i);
        for (int64_t o = 0; o < m[0].rows; o++) {
            int64_t y = o / wo * p->stride - p->pad_lo, x = o % wo * p->stride - p->pad_lo;
            double sum = m[DFX_CONV_B].ptr ? rig_at(&m[DFX_CONV_B], 0, n) : 0;
            for (int64_t c = 0; c < n_channels; c++)
                for (int64_t ky = 0; ky < k; ky++)
                    for (int64_t kx = 0; kx < k; kx++)
                        sum += pixel(call, values, y + ky, x + kx, c) *
                               (double)w[(c * k + ky) * k + kx];
            if (m[DFX_CONV_R].ptr)
                sum += rig_at(&m[DFX_CONV_R], o, n);
            want[o * m[0].cols + n] = (float)sum;
        }
    }
    return want;
}

/* y in the first columns of x; other columns of x are to stay. Leaves y as a matrix of its own, NaN between its rows. */
static void run_in_x(rig *r, dfx_op_call *call) {
    dfx_mat *x = &call->m[DFX_CONV_X], before = rig_poison(r, x->rows, x->ld, x->ld),
            y = call->m[0];
    memcpy(before.ptr, x->ptr, (size_t)(x->rows * x->ld) * sizeof(float));
    call->m[0] = *x;
    call->m[0].cols = y.cols;
    rig_run(r, call);
    for (int64_t t = 0; t < x->rows; t++) {
        const float *row = (const float *)x->ptr + t * x->ld;
        memcpy((float *)y.ptr + t * y.ld, row, (size_t)y.cols * sizeof(float));
        assert_memory_equal(row + y.cols, (const float *)before.ptr + t * x->ld + y.cols,
                            (size_t)(x->ld - y.cols) * sizeof(float));
    }
    call->m[0] = y;
}

static int64_t wider(int64_t cols) {
    return (cols + 3) / 4 * 4 + 4;
}

static void conv_equals_double_loops(void **state) {
    rig *r = *state;
    static const struct {
        shape s;
        int64_t ho, wo;
    } cases[] = {
        {{1, 1, 1, 1, 1, 1, 0, 0, 1, DFX_DTYPE_F32, 0}, 1, 1},
        {{5, 7, 3, 4, 1, 1, 0, 0, 1, DFX_DTYPE_BF16, B}, 5, 7},
        {{20, 33, 40, 24, 1, 1, 0, 0, 1, DFX_DTYPE_F32, B | IN_PLACE}, 20, 33},
        {{1, 1, 2, 3, 3, 1, 1, 1, 1, DFX_DTYPE_F32, B}, 1, 1},
        {{2, 1, 5, 3, 3, 1, 1, 1, 1, DFX_DTYPE_F16, R}, 2, 1},
        {{9, 13, 16, 8, 3, 1, 1, 1, 1, DFX_DTYPE_BF16, B | R}, 9, 13},
        {{24, 17, 33, 19, 3, 1, 1, 1, 1, DFX_DTYPE_F32, B | IN_PLACE}, 24, 17},
        {{10, 10, 8, 12, 3, 2, 0, 1, 1, DFX_DTYPE_BF16, B}, 5, 5},
        {{11, 9, 8, 12, 3, 2, 0, 1, 1, DFX_DTYPE_F8_E4M3, B}, 5, 4},
        {{11, 9, 8, 12, 3, 2, 1, 1, 1, DFX_DTYPE_F32, 0}, 6, 5},
        {{6, 5, 24, 10, 3, 1, 1, 1, 2, DFX_DTYPE_BF16, B | R}, 12, 10},
        {{3, 4, 5, 6, 3, 2, 1, 0, 2, DFX_DTYPE_F32, B}, 3, 4},
        {{4, 6, 3, 2, 1, 2, 0, 0, 1, DFX_DTYPE_F32, B}, 2, 3},
        {{4, 3, 3, 2, 1, 1, 0, 0, 2, DFX_DTYPE_BF16, 0}, 8, 6},
        {{5, 4, 2, 3, 2, 1, 1, 0, 1, DFX_DTYPE_F32, B}, 5, 4},
        {{8, 8, 600, 5, 3, 1, 1, 1, 1, DFX_DTYPE_BF16, B}, 8, 8},
        {{7, 6, 4, 530, 3, 1, 1, 1, 1, DFX_DTYPE_BF16, B | R}, 7, 6},
        {{9, 13, 16, 8, 3, 1, 1, 1, 1, DFX_DTYPE_BF16, B | R | NORM}, 9, 13},
        {{24, 17, 33, 19, 3, 1, 1, 1, 1, DFX_DTYPE_F32, B | IN_PLACE | NORM}, 24, 17},
        {{10, 10, 8, 12, 3, 2, 0, 1, 1, DFX_DTYPE_BF16, B | NORM}, 5, 5},
        {{6, 5, 24, 10, 3, 1, 1, 1, 2, DFX_DTYPE_BF16, B | NORM}, 12, 10},
        {{5, 7, 3, 4, 1, 1, 0, 0, 1, DFX_DTYPE_F32, NORM}, 5, 7},
        {{700, 600, 13, 1, 3, 1, 1, 1, 1, DFX_DTYPE_F32, B | NORM}, 700, 600}, /* strips */
        {{333, 310, 50, 1, 3, 2, 1, 1, 2, DFX_DTYPE_F32, B | NORM}, 333, 310},
        {{900, 700, 8, 1, 1, 1, 0, 0, 1, DFX_DTYPE_F32, NORM}, 900, 700},
        {{20, 33, 40, 24, 1, 1, 0, 0, 1, DFX_DTYPE_F32, B | IN_X}, 20, 33},
        {{30, 33, 600, 530, 1, 1, 0, 0, 1, DFX_DTYPE_BF16, B | IN_X}, 30, 33},
    };
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        const shape *s = &cases[i].s;
        int64_t n_out = cases[i].ho * cases[i].wo, depth = s->c * s->k * s->k;
        dfx_op_call call = {.kind = DFX_OP_CONV2D};
        call.p.conv = (dfx_conv_params){.h = s->h,
                                        .w = s->w,
                                        .k = s->k,
                                        .stride = s->stride,
                                        .pad_lo = s->pad_lo,
                                        .pad_hi = s->pad_hi,
                                        .upsample = s->upsample};
        call.m[DFX_CONV_X] = rig_random(r, s->h * s->w, s->c, wider(s->c), 1);
        call.m[DFX_CONV_W] = rig_random_weight(r, s->dtype, s->n, depth, 2);
        if (s->parts & B)
            call.m[DFX_CONV_B] = rig_random_weight(r, s->dtype, 1, s->n, 3);
        call.m[0] = rig_poison(r, n_out, s->n, wider(s->n));
        if (s->parts & R)
            call.m[DFX_CONV_R] = rig_random(r, n_out, s->n, wider(s->n) + 4, 4);
        if (s->parts & IN_PLACE)
            call.m[DFX_CONV_R] = call.m[0] = rig_random(r, n_out, s->n, wider(s->n), 4);
        if (s->parts & NORM) { /* values of [-10, 10) */
            call.m[DFX_CONV_NORM] = rig_random(r, 3, s->c, wider(s->c), 5);
            call.p.act = DFX_ACT_SILU;
        }
        float *want = expected(r, &call, cases[i].wo);
        if (s->parts & IN_X)
            run_in_x(r, &call);
        else
            rig_run(r, &call);
        rig_same(&call.m[0], want, (double)(depth + 16) * (s->parts & NORM ? 0x1p-18 : 0x1p-20));
    }
}

/* Rows of x stay clear of each other: pixels of a wider map, whose other channels are NaN. */
static void conv_1x1_of_some_channels_reads_no_others(void **state) {
    rig *r = *state;
    float x[6 * 2], w[3 * 2] = {1, 0, 0, 1, 1, -1}, want[6 * 3];
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    for (int i = 0; i < 6; i++) {
        want[3 * i] = (float)(2 * i);
        want[3 * i + 1] = (float)(2 * i + 1);
        want[3 * i + 2] = -1;
    }
    dfx_op_call call = {.kind = DFX_OP_CONV2D};
    call.p.conv = (dfx_conv_params){.h = 2, .w = 3, .k = 1, .stride = 1, .upsample = 1};
    call.m[DFX_CONV_X] = rig_values(r, 6, 2, 64, x);
    call.m[DFX_CONV_W] = rig_weight(r, DFX_DTYPE_BF16, 3, 2, w);
    call.m[0] = rig_poison(r, 6, 3, 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(conv_equals_double_loops, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(conv_1x1_of_some_channels_reads_no_others, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
