/* See cuda_check_attention_codes.h. Both sides get the same codes, so what differs is what a backend makes of them. */
#include "tests/cuda_check_attention_codes.h"

#include <math.h>

enum { HEAD = 128 };

/* Where a stream of tokens lies in buffers of several: so many rows before it, and as many behind. */
static void move_rows(pair *p, int slot, int64_t before) {
    dfx_mat *mats[] = {&p->on_cpu.m[slot], &p->on_cuda.m[slot]};
    for (size_t i = 0; i < DFX_COUNT(mats); i++) {
        size_t row_bytes = (size_t)mats[i]->ld * dfx_dtype_bytes(mats[i]->dtype);
        mats[i]->ptr = (char *)mats[i]->ptr + (size_t)before * row_bytes;
        mats[i]->rows -= 2 * before;
    }
}

/* A center as KV_CENTER makes it: vectors of [-range, range), scales of [scale / 2, 3 scale / 2), keys' the same in all columns
 * of a head. */
static void put_center(pair *p, int slot, int n_heads, float range, float value_scale,
                       float key_scale) {
    int64_t cols = (int64_t)n_heads * HEAD;
    pair_f32(p, slot, DFX_CENTER_ROWS, cols, -1, 1);
    float *center = p->on_cpu.m[slot].ptr;
    for (int64_t c = 0; c < cols; c++) {
        center[DFX_CENTER_KEY * cols + c] *= range;
        center[DFX_CENTER_VALUE * cols + c] *= range;
        center[DFX_CENTER_VALUE_SCALE * cols + c] =
            value_scale * (1 + center[DFX_CENTER_VALUE_SCALE * cols + c] / 2);
        center[DFX_CENTER_KEY_SCALE * cols + c] =
            key_scale * (1 + 0.5f * sinf((float)(c / HEAD))); /* [1/2, 3/2) */
    }
    if (p->cuda->vt->upload(p->cuda, p->on_cuda.m[slot].ptr, center,
                            (size_t)(DFX_CENTER_ROWS * cols) * sizeof(*center)) != DFX_OK)
        p->n_failed++;
}

static void put_rope(pair *p, int w_slot, int n_tokens, bool rope) {
    pair_weight(p, w_slot, rope ? DFX_DTYPE_BF16 : DFX_DTYPE_F32, 1, HEAD, 2);
    if (!rope)
        return;
    pair_f32(p, w_slot + 1, n_tokens, HEAD / 2, -1, 1);
    pair_f32(p, w_slot + 2, n_tokens, HEAD / 2, -1, 1);
}

static const struct codes_case {
    int n_tokens, n_heads;
    bool rope;
    int ld_more; /* of x */
    int before;  /* rows of the codes' buffer, before and behind */
} codes_cases[] = {
    {4608, 24, true, 0, 0}, {4096, 24, true, 6144, 512}, {512, 24, false, 0, 0},
    {77, 24, false, 8, 77}, {1617, 24, true, 0, 81},     {333, 2, true, 16, 1},
    {1536, 1, true, 0, 0},  {129, 3, false, 0, 5},       {15, 2, true, 0, 0},
    {1, 1, true, 8, 3},
};

/* Sums of some hundred F32 terms here, in double there: they differ by some 2^-20. */
static void check_kv_center(pair *p, const struct codes_case *c) {
    int cols = c->n_heads * HEAD;
    if (!pair_begin(p, DFX_OP_KV_CENTER, "[%d, %d heads]%s, %d of another stream", c->n_tokens,
                    c->n_heads, c->rope ? " rope" : "", c->before))
        return;
    pair_act(p, DFX_CENTER_K, c->n_tokens, cols, cols + c->ld_more, 3);
    pair_act(p, DFX_CENTER_V, c->n_tokens, cols, cols, 5);
    put_rope(p, DFX_CENTER_W, c->n_tokens, c->rope);
    if (c->before) {
        pair_act(p, DFX_CENTER_K2, c->before, cols, cols + 8, 3);
        pair_weight(p, DFX_CENTER_W2, DFX_DTYPE_BF16, 1, HEAD, 6);
    }
    pair_f32(p, 0, DFX_CENTER_ROWS, cols, NAN, NAN);
    p->params = (dfx_op_params){.n_heads = c->n_heads, .eps = 1e-6f};
    pair_end(p, 0x1p-17);
}

static void check_qk_codes(pair *p, const struct codes_case *c, bool queries) {
    int cols = c->n_heads * HEAD;
    if (!pair_begin(p, DFX_OP_QK_CODES, "%s [%d, %d heads]%s at row %d",
                    queries ? "queries" : "keys", c->n_tokens, c->n_heads, c->rope ? " rope" : "",
                    c->before))
        return;
    pair_act(p, DFX_QK_CODES_X, c->n_tokens, cols, cols + c->ld_more, 3);
    put_rope(p, DFX_QK_CODES_W, c->n_tokens, c->rope);
    pair_weight(p, 0, DFX_DTYPE_I8, c->n_tokens + 2 * c->before, cols, 0);
    move_rows(p, 0, c->before);
    if (queries) {
        pair_f32(p, DFX_QK_CODES_Y_SCALE, c->n_tokens, c->n_heads, NAN, NAN);
    } else {
        put_center(p, DFX_QK_CODES_CENTER, c->n_heads, 0.5f, 1, 0.02f); /* some keys are cut off */
    }
    p->params = (dfx_op_params){.n_heads = c->n_heads, .eps = 1e-6f};
    pair_end_codes(p, 1, queries ? DFX_QK_CODES_Y_SCALE : 0);
}

static void check_v_codes(pair *p, const struct codes_case *c) {
    int cols = c->n_heads * HEAD;
    if (!pair_begin(p, DFX_OP_V_CODES, "[%d, %d heads]", c->n_tokens, c->n_heads))
        return;
    pair_act(p, DFX_V_CODES_V, c->n_tokens, cols, cols + c->ld_more, 5);
    put_center(p, DFX_V_CODES_CENTER, c->n_heads, 1, 0.02f, 1); /* some values are cut off */
    pair_weight(p, 0, DFX_DTYPE_F8_E4M3, cols, dfx_v_codes_cols(c->n_tokens), 400);
    p->params = (dfx_op_params){.n_heads = c->n_heads};
    pair_end_codes(p, 1, 0);
}

static dfx_status run_f32_sums(dfx_cuda *cuda, const dfx_op_call *call) {
    return dfx_cuda_attention_codes_mma(cuda, call, DFX_CUDA_CODES_F32_SUMS);
}

static dfx_status run_f16_sums(dfx_cuda *cuda, const dfx_op_call *call) {
    return dfx_cuda_attention_codes_mma(cuda, call, DFX_CUDA_CODES_F16_SUMS);
}

static dfx_status run_converted(dfx_cuda *cuda, const dfx_op_call *call) {
    return dfx_cuda_attention_codes_mma(cuda, call, DFX_CUDA_CODES_CONVERTED);
}

/* What the device chooses, which may be Hopper's, and what any other one would. few_greater and many_greater are factors of
 * pair_end_factor, of fewer than 1000 keys and of more. */
static const struct kernel {
    const char *name;
    dfx_status (*run)(dfx_cuda *, const dfx_op_call *);
    int sm; /* the least that it runs on */
    double tolerance, few_greater, many_greater;
} kernels[] = {
    {"", NULL, 80, PAIR_ATTENTION_CODES, 3e-2, 1e-2},
    {", mma.sync, sums in F32", run_f32_sums, 80, PAIR_ATTENTION_F16, 1e-3, 1e-3},
    {", mma.sync, sums in F16", run_f16_sums, 80, PAIR_ATTENTION_F16, 1e-3, 1e-3},
    {", mma.sync, converted", run_converted, 89, PAIR_ATTENTION_F16, 1e-3, 1e-3},
};

static const struct products_case {
    int n_queries, n_keys, n_heads, ld_more;
    float spread, values; /* codes of values are in [-values, values) */
} products_cases[] = {
    {4608, 4608, 24, 12288, 1.5f, 28},
    {1536, 1536, 24, 0, 1.5f, 28},
    {1617, 1617, 24, 8, 1.5f, 28},
    {4685, 4685, 2, 8, 1.5f, 28},
    {129, 4608, 2, 64, 1, 28},
    {513, 333, 3, 8, 1, 28},
    {64, 193, 1, 0, 1, 28},
    {127, 191, 140, 0, 1, 448},
    {320, 320, 2, 1024, 1, 28},
    {77, 77, 1, 8, 1, 28},
    {65, 97, 2, 0, 1, 28},
    {40, 3, 2, 0, 0.5f, 448},
    {700, 1400, 3, 0, 4, 28},
    {200, 640, 80, 0, 9, 28},
};

/* Random codes of +-127 have a deviation of 73, so their products over a head one of 73^2 sqrt(128); that times the two scales
 * and 1 / sqrt(128) is `spread`, the deviation of scores. */
static void check_products(pair *p, const struct products_case *c, const struct kernel *kernel) {
    int cols = c->n_heads * HEAD;
    float scale = sqrtf(c->spread / (73.3f * 73.3f)); /* of codes, either's */
    if (((const dfx_cuda *)p->cuda)->sm < kernel->sm)
        return;
    if (!pair_begin(p, DFX_OP_ATTENTION_CODES, "%d queries %d keys %d heads spread %g%s",
                    c->n_queries, c->n_keys, c->n_heads, (double)c->spread, kernel->name))
        return;
    pair_weight(p, DFX_ATTN_Q, DFX_DTYPE_I8, c->n_queries, cols, 0);
    pair_weight(p, DFX_ATTN_K, DFX_DTYPE_I8, c->n_keys, cols, 0);
    pair_weight(p, DFX_ATTN_V, DFX_DTYPE_F8_E4M3, cols, dfx_v_codes_cols(c->n_keys), c->values);
    pair_f32(p, DFX_ATTN_Q_SCALE, c->n_queries, c->n_heads, 0.5f * scale, 1.5f * scale);
    put_center(p, DFX_ATTN_CENTER, c->n_heads, 0.01f, 0.1f, scale);
    pair_out(p, c->n_queries, cols, cols + c->ld_more);
    p->params = (dfx_op_params){.n_heads = c->n_heads, .scale = 1 / sqrtf((float)HEAD)};
    p->kernel = kernel->run;
    pair_end_factor(p, kernel->tolerance,
                    c->n_keys < 1000 ? kernel->few_greater : kernel->many_greater);
}

void check_attention_codes(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(codes_cases); i++) {
        check_kv_center(p, &codes_cases[i]);
        check_qk_codes(p, &codes_cases[i], true);
        check_qk_codes(p, &codes_cases[i], false);
        check_v_codes(p, &codes_cases[i]);
    }
    for (size_t i = 0; i < DFX_COUNT(products_cases); i++)
        for (size_t k = 0; k < DFX_COUNT(kernels); k++)
            check_products(p, &products_cases[i], &kernels[k]);
}
