/* See cuda_check_bound.h. */
#include "tests/cuda_check_bound.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_fused.h"

static void check_bounds(pair *p) {
    static const struct {
        int rows, cols;
        dfx_dtype b; /* U8: none */
        int v_cols;
        bool whole;
    } cases[] = {{4608, 12288, DFX_DTYPE_BF16, 0},
                 {512, 12288, DFX_DTYPE_F32, 0},
                 {1617, 3080, DFX_DTYPE_U8, 0},
                 {1, 8, DFX_DTYPE_BF16, 0},
                 {77, 99, DFX_DTYPE_BF16, 0},
                 {4608, 12288, DFX_DTYPE_BF16, 3072},
                 {1025, 96, DFX_DTYPE_U8, 4099},
                 {5, 16, DFX_DTYPE_F32, 16},
                 {4608, 3072, DFX_DTYPE_BF16, 3072, true},
                 {77, 99, DFX_DTYPE_F32, 0, true}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        if (!pair_begin(p, DFX_OP_BOUND, "[1, %d] of %d columns%s%s%s", cases[i].rows,
                        cases[i].cols, cases[i].b == DFX_DTYPE_U8 ? "" : " b",
                        cases[i].v_cols ? " and v" : "", cases[i].whole ? ", whole" : ""))
            continue;
        pair_f32(p, DFX_BOUND_X_NORM, 1, cases[i].rows, 0, 90);
        pair_f32(p, DFX_BOUND_W_SCALE, 1, cases[i].cols, 1e-5f, 1e-3f);
        if (cases[i].b != DFX_DTYPE_U8)
            pair_weight(p, DFX_BOUND_B, cases[i].b, 1, cases[i].cols, 4);
        if (cases[i].v_cols) {
            pair_f32(p, DFX_BOUND_V_SCALE, 1, cases[i].v_cols, 1e-5f, 6e-4f);
            if (cases[i].b != DFX_DTYPE_U8)
                pair_weight(p, DFX_BOUND_V_B, cases[i].b, 1, cases[i].v_cols, 4);
        }
        pair_f32(p, 0, 1, cases[i].rows, NAN, NAN);
        p->params = (dfx_op_params){.scale = dfx_bound_scale(3072), .whole = cases[i].whole};
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

enum { VALUES = DFX_LINEAR_U }; /* a slot that none of these calls has */

/* y as codes in rows of ld, by scales in this slot, some of which leave room and some cut values to 8 or so off. Returns room for
 * the values. */
static dfx_mat put_y(pair *p, int64_t rows, int64_t cols, int64_t ld, int scale_slot) {
    pair_act(p, VALUES, rows, cols, cols, 1);
    dfx_mat values = p->on_cuda.m[VALUES];
    p->on_cuda.m[VALUES] = (dfx_mat){0};
    pair_out_codes(p, DFX_DTYPE_F8_E4M3, rows, ld, 0);
    p->on_cpu.m[0].cols = p->on_cuda.m[0].cols = cols;
    pair_f32(p, scale_slot, 1, rows, 2.0f / 448, 40.0f / 448);
    return values;
}

static dfx_mat put_product(pair *p, const struct codes_case *c) {
    const float x_scale = 0x1p-8f, w_scale = sqrtf(3 / (float)c->k) / 448;
    pair_weight(p, DFX_LINEAR_X, DFX_DTYPE_F8_E4M3, c->m, c->k, 448);
    pair_f32(p, DFX_LINEAR_X_SCALE, 1, c->m, 0.5f * x_scale, 1.5f * x_scale);
    pair_weight(p, DFX_LINEAR_W, DFX_DTYPE_F8_E4M3, c->n, c->k, 448);
    pair_f32(p, DFX_LINEAR_SCALE, 1, c->n, 0.5f * w_scale, 1.5f * w_scale);
    pair_weight(p, DFX_LINEAR_B, DFX_DTYPE_BF16, 1, c->n, 1);
    p->params = (dfx_op_params){.act = c->act};
    return put_y(p, c->m, c->n, c->n + c->ld_more, DFX_LINEAR_Y_SCALE);
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
static void check_codes_of_values(pair *p, int scale_slot, dfx_mat values_at, float off) {
    const dfx_mat y = p->on_cuda.m[0];
    int64_t n_far = 0, n_gaps = 0;
    float *scales = pair_download(p, scale_slot);
    uint8_t *codes = pair_run(p);
    p->on_cuda.m[0] = values_at;
    p->on_cuda.m[scale_slot] = (dfx_mat){0};
    uint16_t *values = pair_run(p);
    for (int64_t m = 0; m < y.rows; m++) {
        for (int64_t n = 0; n < y.cols; n++)
            n_far += !is_code_of(codes[m * y.ld + n], dfx_bf16_to_f32(values[m * y.cols + n]),
                                 scales[m], off);
        for (int64_t n = y.cols; n < y.ld; n++)
            n_gaps += codes[m * y.ld + n] != 0x7f;
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
        p->kernel = mma ? by_mma : NULL;
        if (mma && (c->n % 8 || !dfx_cuda_fused_mma_fits((dfx_cuda *)p->cuda, &fused)))
            pair_leave(p);
        else
            check_codes_of_values(p, DFX_LINEAR_Y_SCALE, values_at, off_of(c));
    }
}

static const struct attend_case {
    int n_queries, n_keys, n_heads, head, ld_more;
} attend_cases[] = {
    {4608, 4608, 24, 128, 12288}, {1617, 1617, 24, 128, 0}, {129, 333, 2, 128, 16},
    {320, 320, 2, 128, 1024},     {40, 3, 3, 128, 0},       {77, 77, 12, 64, 16},
};

static void check_attention_to_codes(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(attend_cases); i++) {
        const struct attend_case *c = &attend_cases[i];
        int64_t width = c->n_heads * c->head;
        if (!pair_begin(p, DFX_OP_ATTENTION, "%d queries %d keys %d heads of %d to codes",
                        c->n_queries, c->n_keys, c->n_heads, c->head))
            continue;
        pair_act(p, DFX_ATTN_Q, c->n_queries, width, width + 8, 2);
        pair_act(p, DFX_ATTN_K, c->n_keys, width, width, 2);
        pair_act(p, DFX_ATTN_V, c->n_keys, width, width + 16, 8);
        dfx_mat values_at = put_y(p, c->n_queries, width, width + c->ld_more, DFX_ATTN_Y_SCALE);
        p->params = (dfx_op_params){.n_heads = c->n_heads, .scale = 1 / sqrtf((float)c->head)};
        check_codes_of_values(p, DFX_ATTN_Y_SCALE, values_at, 0);
    }
}

/* Scores of deviation 1.5, values to 8. */
static void check_attention_codes_to_codes(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(attend_cases); i++) {
        const struct attend_case *c = &attend_cases[i];
        int64_t width = c->n_heads * c->head;
        if (c->head != 128 ||
            !pair_begin(p, DFX_OP_ATTENTION_CODES, "%d queries %d keys %d heads to codes",
                        c->n_queries, c->n_keys, c->n_heads))
            continue;
        pair_weight(p, DFX_ATTN_Q, DFX_DTYPE_I8, c->n_queries, width, 0);
        pair_weight(p, DFX_ATTN_K, DFX_DTYPE_I8, c->n_keys, width, 0);
        pair_weight(p, DFX_ATTN_V, DFX_DTYPE_F8_E4M3, width, dfx_v_codes_cols(c->n_keys), 448);
        pair_f32(p, DFX_ATTN_Q_SCALE, c->n_queries, c->n_heads, 0.01f, 0.02f);
        pair_f32(p, DFX_ATTN_CENTER, DFX_CENTER_ROWS, width, 0.01f, 0.02f);
        dfx_mat values_at =
            put_y(p, c->n_queries, width, width + c->ld_more, DFX_ATTN_CODES_Y_SCALE);
        p->params = (dfx_op_params){.n_heads = c->n_heads, .scale = 1 / sqrtf((float)c->head)};
        check_codes_of_values(p, DFX_ATTN_CODES_Y_SCALE, values_at, 0);
    }
}

void check_bound(pair *p) {
    check_bounds(p);
    check_norms(p);
    check_least(p);
    check_products(p);
    check_attention_to_codes(p);
    check_attention_codes_to_codes(p);
}
