/* See cuda_check_bound.h. */
#include "tests/cuda_check_bound.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_fused.h"

static void check_bounds(pair *p) {
    static const struct {
        int rows, cols;
        dfx_dtype b; /* U8: none */
    } cases[] = {{4608, 12288, DFX_DTYPE_BF16},
                 {512, 12288, DFX_DTYPE_F32},
                 {1617, 3080, DFX_DTYPE_U8},
                 {1, 8, DFX_DTYPE_BF16},
                 {77, 99, DFX_DTYPE_BF16}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        if (!pair_begin(p, DFX_OP_BOUND, "[1, %d] of %d columns%s", cases[i].rows, cases[i].cols,
                        cases[i].b == DFX_DTYPE_U8 ? "" : " b"))
            continue;
        pair_f32(p, DFX_BOUND_X_NORM, 1, cases[i].rows, 0, 90);
        pair_f32(p, DFX_BOUND_W_SCALE, 1, cases[i].cols, 1e-5f, 1e-3f);
        if (cases[i].b != DFX_DTYPE_U8)
            pair_weight(p, DFX_BOUND_B, cases[i].b, 1, cases[i].cols, 4);
        pair_f32(p, 0, 1, cases[i].rows, NAN, NAN);
        p->params = (dfx_op_params){.scale = dfx_bound_scale(3072)};
        pair_end(p, PAIR_SAME);
    }
}

static void check_norms(pair *p) {
    static const int shapes[][2] = {{4608, 3072}, {1617, 3072}, {77, 768}, {3, 72}, {5, 99}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        int rows = shapes[i][0], cols = shapes[i][1];
        int64_t ld = (int64_t)dfx_align_up((size_t)cols, 8);
        if (!pair_begin(p, DFX_OP_LAYERNORM, "to F8_E4M3 [%d, %d] and norms", rows, cols))
            continue;
        pair_act(p, DFX_NORM_X, rows, cols, ld, 3);
        pair_act(p, DFX_NORM_SCALE, 1, cols, ld, 1);
        pair_act(p, DFX_NORM_SHIFT, 1, cols, ld, 1);
        pair_out_codes(p, DFX_DTYPE_F8_E4M3, rows, cols, DFX_NORM_Y_SCALE);
        pair_f32(p, DFX_NORM_Y_NORM, 1, rows, NAN, NAN);
        p->params = (dfx_op_params){.eps = 1e-6f};
        pair_end_codes(p, 1, DFX_NORM_Y_NORM);
    }
}

/* Of values to 3, so that rows' own scales are some 6.7e-3. */
static void check_least(pair *p) {
    static const int shapes[][2] = {{4608, 3072}, {1617, 3072}, {77, 768}, {5, 99}, {300, 15360}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        int rows = shapes[i][0], cols = shapes[i][1];
        if (!pair_begin(p, DFX_OP_QUANTIZE, "F8_E4M3 [%d, %d] not below others", rows, cols))
            continue;
        pair_act(p, DFX_QUANTIZE_X, rows, cols, (int64_t)dfx_align_up((size_t)cols, 8), 3);
        pair_out_codes(p, DFX_DTYPE_F8_E4M3, rows, cols, DFX_QUANTIZE_Y_SCALE);
        pair_f32(p, DFX_QUANTIZE_LEAST, 1, rows, 0, 0.02f);
        pair_end_codes(p, 0, DFX_QUANTIZE_Y_SCALE);
    }
}

static const struct codes_case {
    int m, n, k;
    int ld_more;
    dfx_act act;
} codes_cases[] = {
    {4608, 12288, 3072, 3072, DFX_ACT_GELU_TANH},
    {4096, 12288, 272, 0, DFX_ACT_GELU_TANH},
    {512, 12288, 3072, 0, DFX_ACT_GELU_TANH},
    {1617, 3080, 240, 8, DFX_ACT_GELU_TANH},
    {4608, 1040, 80, 48, DFX_ACT_GELU_TANH},
    {4608, 1032, 80, 56, DFX_ACT_GELU_TANH},
    {4608, 3072, 400, 0, DFX_ACT_GELU_TANH},
    {129, 264, 144, 0, DFX_ACT_GELU_TANH},
    {33, 104, 80, 24, DFX_ACT_GELU_TANH},
    {300, 99, 144, 0, DFX_ACT_GELU_TANH},
    {1000, 512, 256, 0, DFX_ACT_NONE},
};

/* Returns room for the values. */
static dfx_mat put_product(pair *p, const struct codes_case *c) {
    const float x_scale = 0x1p-8f, w_scale = sqrtf(3 / (float)c->k) / 448;
    pair_weight(p, DFX_LINEAR_X, DFX_DTYPE_F8_E4M3, c->m, c->k, 448);
    pair_f32(p, DFX_LINEAR_X_SCALE, 1, c->m, 0.5f * x_scale, 1.5f * x_scale);
    pair_weight(p, DFX_LINEAR_W, DFX_DTYPE_F8_E4M3, c->n, c->k, 448);
    pair_f32(p, DFX_LINEAR_SCALE, 1, c->n, 0.5f * w_scale, 1.5f * w_scale);
    pair_weight(p, DFX_LINEAR_B, DFX_DTYPE_BF16, 1, c->n, 1);
    pair_out_codes(p, DFX_DTYPE_F8_E4M3, c->m, c->n + c->ld_more, 0);
    p->on_cpu.m[0].cols = p->on_cuda.m[0].cols = c->n;
    pair_act(p, DFX_LINEAR_R, c->m, c->n, c->n, 1);
    dfx_mat values = p->on_cuda.m[DFX_LINEAR_R];
    p->on_cuda.m[DFX_LINEAR_R] = (dfx_mat){0};
    /* Of values to 8 or so: some rows have room, some are cut off. */
    pair_f32(p, DFX_LINEAR_Y_SCALE, 1, c->m, 2.0f / 448, 40.0f / 448);
    p->params = (dfx_op_params){.act = c->act};
    return values;
}

static dfx_cuda_fused fused_of(const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    return (dfx_cuda_fused){.in = DFX_DTYPE_F8_E4M3,
                            .m = m[0].rows,
                            .n = m[0].cols,
                            .k = m[DFX_LINEAR_X].cols,
                            .x = m[DFX_LINEAR_X].ptr,
                            .w = m[DFX_LINEAR_W].ptr,
                            .ldx = m[DFX_LINEAR_X].ld,
                            .ldw = m[DFX_LINEAR_W].ld,
                            .xs = m[DFX_LINEAR_X_SCALE].ptr,
                            .ws = m[DFX_LINEAR_SCALE].ptr,
                            .ys = m[DFX_LINEAR_Y_SCALE].ptr,
                            .b = m[DFX_LINEAR_B],
                            .y = m[0],
                            .act = call->p.act};
}

static dfx_status by_mma(dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_cuda_fused fused = fused_of(call);
    return dfx_cuda_fused_mma_run(cuda, &fused);
}

/* Codes of all values that one in BF16 may be the rounding of, which is within half a unit in the last place, and `off` beyond. */
static bool is_code_of(uint8_t code, float value, float scale, float off) {
    float unit = off + ldexpf(1, ilogbf(value == 0 ? 0x1p-126f : value) - 8), got, ends[2];
    uint8_t codes[2];
    for (int i = 0; i < 2; i++) {
        float end = (value + (i ? unit : -unit)) * (1 / scale);
        end = fminf(fmaxf(end, -448), 448);
        dfx_from_f32(DFX_DTYPE_F8_E4M3, &end, &codes[i], 1);
        dfx_to_f32(DFX_DTYPE_F8_E4M3, &codes[i], &ends[i], 1);
    }
    dfx_to_f32(DFX_DTYPE_F8_E4M3, &code, &got, 1);
    return ends[0] <= got && got <= ends[1];
}

/* Where codes are not for the kernel that makes the values, they are from other sums: what these are off by at the most, ten times
 * the usual part of their root mean square (cuda_fused.cuh), which is 1 or so here. */
static float off_of(const struct codes_case *c) {
    return c->n % 16 || c->act == DFX_ACT_NONE ? 10 * 3.3e-4f * 2 : 0;
}

/* The same call with values for y, which are checked elsewhere, tells what the codes should be. */
static void check_product(pair *p, const struct codes_case *c, dfx_mat values_at, bool mma) {
    int64_t ld = c->n + c->ld_more, n_far = 0, n_gaps = 0;
    float *scales = pair_download(p, DFX_LINEAR_Y_SCALE);
    p->kernel = mma ? by_mma : NULL;
    uint8_t *codes = pair_run(p);
    p->on_cuda.m[0] = values_at;
    p->on_cuda.m[DFX_LINEAR_Y_SCALE] = (dfx_mat){0};
    uint16_t *values = pair_run(p);
    for (int64_t m = 0; m < c->m; m++) {
        for (int64_t n = 0; n < c->n; n++)
            n_far += !is_code_of(codes[m * ld + n], dfx_bf16_to_f32(values[m * c->n + n]),
                                 scales[m], off_of(c));
        for (int64_t n = c->n; n < ld; n++)
            n_gaps += codes[m * ld + n] != 0x7f;
    }
    free(scales);
    free(codes);
    free(values);
    pair_verdict(p, !n_far && !n_gaps, "%lld codes of other values, %lld written between rows",
                 (long long)n_far, (long long)n_gaps);
}

static void check_products(pair *p) {
    for (size_t i = 0; i < 2 * DFX_COUNT(codes_cases); i++) {
        const struct codes_case *c = &codes_cases[i / 2];
        bool mma = i % 2;
        if (!pair_begin(p, DFX_OP_LINEAR, "fp8 [%d, %d] K %d%s to codes%s%s", c->m, c->n, c->k,
                        c->act == DFX_ACT_NONE ? "" : " gelu", c->ld_more ? " wide" : "",
                        mma ? ", mma" : ""))
            continue;
        dfx_mat values_at = put_product(p, c);
        dfx_cuda_fused fused = fused_of(&p->on_cuda);
        if (mma && (c->n % 8 || !dfx_cuda_fused_mma_fits((dfx_cuda *)p->cuda, &fused)))
            pair_leave(p);
        else
            check_product(p, c, values_at, mma);
    }
}

void check_bound(pair *p) {
    check_bounds(p);
    check_norms(p);
    check_least(p);
    check_products(p);
}
