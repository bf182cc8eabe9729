/* Every op on CUDA against the CPU, over the shapes of FLUX.1, its text encoders and VAE, the bundled model, and odd ones; then
 * the models' goldens in BF16, recordings, copies and memory.
 *
 *     cuda_check [--time] [--only TEXT] [--device N]      `make check-cuda` builds and runs it
 *
 * A line for each case: ok or FAIL, op, shape, error and its bound; with --time the median milliseconds of 20 launches and what
 * that is in operations and bytes a second. Last line: `N passed, N failed, N skipped`. Exit: 0 all passed, 1 not, 77 no device.
 * Operands are small random numbers; ranges keep sums near 1, so that activations and softmax see their interesting parts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_check_adapter.h"
#include "tests/cuda_check_attention_codes.h"
#include "tests/cuda_check_bound.h"
#include "tests/cuda_check_fused.h"
#include "tests/cuda_check_rows.h"
#include "tests/cuda_goldens.h"

/* ---- LINEAR */

enum { B = 1, GATE = 2, R = 4, IN_PLACE = 8, WIDE_X = 16, WIDE_Y = 32, CODES = 64 };

typedef struct linear_case {
    int m, n, k;
    int parts; /* sum of the above; IN_PLACE: r is y */
    dfx_act act;
} linear_case;

/* Which products a transformer block, an encoder block and the bundled model have. */
static const linear_case linear_cases[] = {
    {4096, 3072, 64, B, 0},
    {512, 3072, 4096, B, 0},
    {4096, 3072, 3072, B, 0},
    {4096, 3072, 3072, B | GATE | R | IN_PLACE, 0},
    {4096, 12288, 3072, B, DFX_ACT_GELU_TANH},
    {4096, 3072, 12288, B | GATE | R | IN_PLACE, 0},
    {512, 3072, 3072, B, 0},
    {512, 12288, 3072, B, DFX_ACT_GELU_TANH},
    {512, 3072, 12288, B | GATE | R | IN_PLACE, 0},
    {4608, 3072, 3072, B, 0},
    {4608, 12288, 3072, B | WIDE_Y, DFX_ACT_GELU_TANH},
    {4608, 3072, 15360, B | GATE | R | IN_PLACE, 0},
    {4571, 3072, 12288, B | GATE | R | WIDE_X | WIDE_Y, 0},
    {4096, 64, 3072, B, 0},
    {1, 3072, 256, B, DFX_ACT_SILU},
    {1, 3072, 768, B | R, 0},
    {1, 18432, 3072, B, 0},
    {4, 9216, 3072, B, 0},
    {28, 18432, 3072, B | WIDE_Y, 0},
    {512, 4096, 4096, 0, 0},
    {512, 10240, 4096, 0, 0},
    {512, 4096, 10240, R | IN_PLACE, 0},
    {77, 768, 768, B, 0},
    {77, 3072, 768, B, DFX_ACT_QUICK_GELU},
    {77, 768, 3072, B | R | IN_PLACE, 0},
    {1617, 3072, 3072, B | WIDE_X, 0},
    {3969, 3072, 3072, B | GATE | R, 0},
    {16384, 512, 512, B | R, 0},
    {256, 256, 64, B, 0},
    {320, 1024, 256, B | WIDE_Y, DFX_ACT_GELU_TANH},
    {320, 256, 1280, B | GATE | R | IN_PLACE, 0},
    {64, 320, 128, 0, 0},
    {64, 128, 320, R | IN_PLACE, 0},
    {77, 128, 64, B, DFX_ACT_QUICK_GELU},
    {1, 1536, 256, B, 0},
    {33, 100, 72, B | GATE | R | WIDE_X | WIDE_Y, DFX_ACT_SILU},
    {65, 3, 19, B, 0},
};

/* The same with codes for weights. */
static const linear_case quant_cases[] = {
    {512, 3072, 12288, B | GATE | R | IN_PLACE, 0},
    {4608, 3072, 3072, B, 0},
    {4608, 12288, 3072, B | WIDE_Y, DFX_ACT_GELU_TANH},
    {4608, 3072, 15360, B | GATE | R | IN_PLACE, 0},
    {512, 4096, 10240, R | IN_PLACE, 0},
    {77, 768, 3072, B | R | IN_PLACE, 0},
    {1617, 3072, 3072, B | WIDE_X, 0},
    {3969, 3072, 3072, B | GATE | R, 0},
    {1, 18432, 3072, B, 0},
    {28, 9216, 3072, B | WIDE_Y, 0},
    {320, 256, 1280, B | GATE | R | IN_PLACE, 0},
    {64, 320, 128, 0, 0},
    {33, 100, 72, B | GATE | R | WIDE_X | WIDE_Y, DFX_ACT_SILU},
    {65, 3, 19, B, 0},
    /* x is codes already */
    {4608, 3072, 3072, CODES | B, 0},
    {4608, 12288, 3072, CODES | B | WIDE_Y, DFX_ACT_GELU_TANH},
    {4096, 12288, 3072, CODES | B, DFX_ACT_GELU_TANH},
    {4608, 3072, 15360, CODES | B | GATE | R | IN_PLACE, 0},
    {3999, 3072, 12288, CODES | B | GATE | R | IN_PLACE, 0},
    {512, 3072, 12288, CODES | B | GATE | R | IN_PLACE, 0},
    {1617, 3072, 3072, CODES | B | GATE | R, 0},
    {333, 256, 1280, CODES | B | R | WIDE_Y, DFX_ACT_SILU},
    {64, 320, 128, CODES, 0},
    {33, 104, 72, CODES | B | GATE | R | WIDE_Y, DFX_ACT_SILU},
    {1, 18432, 3072, CODES | B, 0},
    {130, 3, 19, CODES | B, 0},
};

typedef struct weight_format {
    const char *name;
    dfx_dtype dtype;
    bool scaled, weight_only;
    double tolerance; /* 0: to the last place, since sums are exact */
} weight_format;

static const weight_format bf16 = {"bf16", DFX_DTYPE_BF16, false, false, PAIR_ROUNDED};
static const weight_format quants[] = {
    {"int8", DFX_DTYPE_I8, true, false, 0},
    {"fp8", DFX_DTYPE_F8_E4M3, true, false, PAIR_FP8},
    {"int8 weight only", DFX_DTYPE_I8, true, true, PAIR_TWICE},
    {"fp8 weight only", DFX_DTYPE_F8_E4M3, true, true, PAIR_TWICE},
};
static const weight_format others[] = {
    {"f32", DFX_DTYPE_F32, false, false, PAIR_TWICE}, /* the product may round them to BF16 */
    {"f16", DFX_DTYPE_F16, false, false, PAIR_TWICE},
    {"e4m3", DFX_DTYPE_F8_E4M3, false, false, PAIR_ROUNDED},
    {"e5m2", DFX_DTYPE_F8_E5M2, false, false, PAIR_ROUNDED},
};

/* Rows of a wide operand go on for as much again, and end where BF16 rows still begin at 16 bytes. */
static int64_t wide(int64_t cols, bool is_wide) {
    return is_wide ? cols + (int64_t)dfx_align_up((size_t)cols, 8) - cols + 64 : cols;
}

static float range_for_sum(int64_t k) {
    return sqrtf(3.0f / (float)k); /* of weights, for x in [-sqrt 3, sqrt 3): sums of variance 1 */
}

static void linear_operands(pair *p, const linear_case *c, const weight_format *f) {
    float x_range = sqrtf(3.0f), w_range = range_for_sum(c->k), scale = 1;
    if (f->scaled) {
        scale = w_range / (f->dtype == DFX_DTYPE_I8 ? 127 : 448);
        w_range = 448;
    }
    if (c->parts & CODES) {
        float x_scale = x_range / (f->dtype == DFX_DTYPE_I8 ? 127 : 448);
        pair_weight(p, DFX_LINEAR_X, f->dtype, c->m, c->k, 448);
        pair_f32(p, DFX_LINEAR_X_SCALE, 1, c->m, 0.5f * x_scale, 1.5f * x_scale);
    } else {
        pair_act(p, DFX_LINEAR_X, c->m, c->k, wide(c->k, c->parts & WIDE_X), x_range);
    }
    pair_weight(p, DFX_LINEAR_W, f->dtype, c->n, c->k, w_range);
    if (f->scaled)
        pair_f32(p, DFX_LINEAR_SCALE, 1, c->n, 0.5f * scale, 1.5f * scale);
    if (c->parts & B)
        pair_weight(p, DFX_LINEAR_B, DFX_DTYPE_BF16, 1, c->n, 1);
    if (c->parts & GATE)
        pair_act(p, DFX_LINEAR_GATE, 1, c->n, c->n, 1);
    if (c->parts & R)
        pair_act(p, DFX_LINEAR_R, c->m, c->n, wide(c->n, c->parts & WIDE_Y), 2);
    if (c->parts & IN_PLACE)
        pair_out_is(p, DFX_LINEAR_R);
    else
        pair_out(p, c->m, c->n, wide(c->n, c->parts & WIDE_Y));
    p->params = (dfx_op_params){.act = c->act, .weight_only = f->weight_only};
}

static void check_linear(pair *p, const linear_case *c, const weight_format *f) {
    static const char *const acts[] = {"", " silu", " gelu", " quick gelu"};
    if (f->weight_only && c->parts & CODES)
        return;
    if (!pair_begin(p, DFX_OP_LINEAR, "%s%s [%d, %d] K %d%s%s%s%s%s%s", f->name,
                    c->parts & CODES ? " codes" : "", c->m, c->n, c->k, acts[c->act],
                    c->parts & B ? " +b" : "", c->parts & GATE ? " gate" : "",
                    c->parts & IN_PLACE ? " +y"
                    : c->parts & R      ? " +r"
                                        : "",
                    c->parts & WIDE_X ? " wide x" : "", c->parts & WIDE_Y ? " wide y" : ""))
        return;
    linear_operands(p, c, f);
    if (f->tolerance > 0)
        pair_end(p, c->parts & GATE && f->tolerance < PAIR_TWICE ? PAIR_TWICE : f->tolerance);
    else
        pair_end_ulp(p);
}

/* Up to 64 rows, a row of y must not depend on the others. */
static void check_linear_rows(pair *p, const weight_format *f) {
    static const int n_rows[] = {1, 2, 3, 4, 7, 8, 16, 17, 33, 48, 63};
    const linear_case c = {64, 3072, 3072, B, 0};
    if (!pair_begin(p, DFX_OP_LINEAR, "%s rows alone and among 64", f->name))
        return;
    linear_operands(p, &c, f);
    pair_end_rows(p, n_rows, (int)DFX_COUNT(n_rows));
}

static void check_linears(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(linear_cases); i++)
        check_linear(p, &linear_cases[i], &bf16);
    for (size_t f = 0; f < DFX_COUNT(quants); f++)
        for (size_t i = 0; i < DFX_COUNT(quant_cases); i++)
            check_linear(p, &quant_cases[i], &quants[f]);
    for (size_t f = 0; f < DFX_COUNT(others); f++) {
        check_linear(p, &(linear_case){320, 256, 1280, B | GATE | R | IN_PLACE, 0}, &others[f]);
        check_linear(p, &(linear_case){7, 72, 40, B, DFX_ACT_GELU_TANH}, &others[f]);
    }
    check_linear_rows(p, &bf16);
    for (size_t f = 0; f < DFX_COUNT(quants); f++)
        check_linear_rows(p, &quants[f]);
}

/* ---- ATTENTION */

static const struct attention_case {
    int n_queries, n_keys, n_heads, head;
    bool causal, bias;
    float scale; /* 0: 1 / sqrt(head) */
    int ld_more; /* of y, as where it is written beside something else */
} attention_cases[] = {
    {4608, 4608, 24, 128, false, false, 0, 12288}, /* 1024 x 1024 and 512 tokens of text */
    {1536, 1536, 24, 128, false, false, 0, 0},
    {1617, 1617, 24, 128, false, false, 0, 12288},
    {3969, 3969, 24, 128, false, false, 0, 0},
    {512, 512, 64, 64, false, true, 1, 0}, /* T5 */
    {77, 77, 64, 64, false, true, 1, 0},
    {77, 77, 12, 64, true, false, 0, 0},        /* CLIP */
    {16384, 16384, 1, 512, false, false, 0, 0}, /* VAE */
    {3969, 3969, 1, 512, false, false, 0, 0},
    {1, 1, 1, 512, false, false, 0, 0},
    {64, 64, 1, 512, false, false, 0, 8},
    {65, 63, 1, 512, false, false, 0, 0},
    {129, 193, 2, 512, false, false, 0, 8},
    {17, 4097, 3, 512, false, false, 0, 64},
    {300, 1, 1, 512, false, false, 0, 0},
    {100, 100, 1, 512, true, false, 0, 0}, /* the way of other head sizes */
    {77, 100, 2, 512, false, true, 0, 0},
    {70, 90, 1, 512, false, false, -0.125f, 0},
    {70, 90, 1, 512, false, false, 0, 4},
    {1024, 1024, 1, 64, false, false, 0, 0}, /* the bundled model */
    {320, 320, 2, 128, false, false, 0, 1024},
    {64, 64, 2, 64, false, true, 1, 0},
    {77, 77, 1, 64, true, false, 0, 0},
    {130, 333, 3, 64, false, false, 0, 8},
    {333, 130, 2, 128, true, false, 0, 0},
    {65, 129, 2, 128, true, true, 0, 0},
    {1, 1, 1, 64, false, false, 0, 0},
    {1, 700, 5, 128, false, true, 0, 0},
    {4685, 4685, 2, 128, false, false, 0, 8}, /* a prompt of CLIP's length beside 4608 */
    {513, 333, 3, 128, false, false, 0, 8},
    {129, 4608, 2, 128, false, false, 0, 64},
    {4608, 77, 2, 128, false, false, 0, 0},
    {300, 1, 2, 128, false, false, 0, 0},
    {64, 193, 1, 128, false, false, 0, 0},
    {127, 191, 140, 128, false, false, 0, 0}, /* more tiles than multiprocessors */
    {63, 65, 2, 128, false, false, 0, 8},
    {77, 77, 2, 32, true, true, 0, 0},
    {100, 77, 3, 40, false, false, 0, 4},
    {50, 60, 2, 64, false, false, -0.125f, 0}, /* the way of other head sizes */
};

/* Scores far apart: maxima that rise late, and by much. */
static const struct attention_case steep_attention_cases[] = {
    {700, 1400, 3, 128, false, false, 0, 0},
    {700, 1400, 3, 64, false, false, 0, 0},
    {700, 1400, 1, 512, false, false, 0, 0},
    {500, 500, 2, 128, true, true, 0, 0},
};

/* spread: standard deviation of scores, which is range^2 / 3 * sqrt(head) * scale. */
static void check_attention(pair *p, const struct attention_case *c, float spread) {
    int width = c->n_heads * c->head;
    float scale = c->scale != 0 ? c->scale : 1 / sqrtf((float)c->head);
    float range = sqrtf(3 * spread / (sqrtf((float)c->head) * fabsf(scale)));
    if (!pair_begin(p, DFX_OP_ATTENTION, "%d queries %d keys %d heads of %d%s%s spread %g",
                    c->n_queries, c->n_keys, c->n_heads, c->head, c->causal ? " causal" : "",
                    c->bias ? " bias" : "", (double)spread))
        return;
    pair_act(p, DFX_ATTN_Q, c->n_queries, width, width + 8, range);
    pair_act(p, DFX_ATTN_K, c->n_keys, width, width, range);
    pair_act(p, DFX_ATTN_V, c->n_keys, width, width + 16, 2);
    if (c->bias) /* as a program lays it out: packed rows of an odd length */
        pair_act(p, DFX_ATTN_BIAS, c->n_heads, 2 * c->n_keys - 1, 2 * c->n_keys - 1, 3);
    pair_out(p, c->n_queries, width, width + c->ld_more);
    p->params = (dfx_op_params){.n_heads = c->n_heads, .scale = scale, .causal = c->causal};
    pair_end(p, PAIR_ATTENTION);
}

static void check_attentions(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(attention_cases); i++)
        check_attention(p, &attention_cases[i], 1.5f);
    for (size_t i = 0; i < DFX_COUNT(steep_attention_cases); i++)
        check_attention(p, &steep_attention_cases[i], 9);
}

/* ---- CONV2D and GROUPNORM */

enum { NORM = 64, IN_X = 128 }; /* beside R and IN_PLACE */

static const struct conv_case {
    int h, w, c, n, k, stride, pad_lo, pad_hi, upsample, parts;
} conv_cases[] = {
    {128, 128, 16, 512, 3, 1, 1, 1, 1, 0},
    {128, 128, 512, 512, 3, 1, 1, 1, 1, R},
    {128, 128, 512, 512, 3, 1, 1, 1, 1, NORM | R | IN_PLACE},
    {128, 128, 512, 512, 3, 1, 1, 1, 2, 0},
    {512, 512, 256, 128, 3, 1, 1, 1, 1, NORM},
    {512, 512, 256, 256, 3, 1, 1, 1, 2, 0},
    {512, 512, 256, 128, 1, 1, 0, 0, 1, IN_X},
    {1024, 1024, 128, 128, 3, 1, 1, 1, 1, R},
    {1024, 1024, 128, 128, 3, 1, 1, 1, 1, NORM | R | IN_PLACE},
    {1024, 1024, 128, 3, 3, 1, 1, 1, 1, NORM},
    {1024, 1024, 3, 128, 3, 1, 1, 1, 1, 0},
    {256, 256, 128, 128, 3, 2, 0, 1, 1, 0},
    {128, 128, 512, 32, 3, 1, 1, 1, 1, NORM},
    {32, 32, 16, 64, 3, 1, 1, 1, 1, 0}, /* the bundled model */
    {32, 32, 64, 64, 3, 1, 1, 1, 2, 0},
    {64, 64, 64, 48, 3, 1, 1, 1, 1, NORM},
    {64, 64, 64, 48, 1, 1, 0, 0, 1, IN_X},
    {256, 256, 48, 32, 3, 1, 1, 1, 1, NORM},
    {256, 256, 32, 32, 3, 1, 1, 1, 1, NORM | R},
    {256, 256, 32, 3, 3, 1, 1, 1, 1, NORM},
    {63, 65, 24, 40, 3, 2, 0, 1, 1, NORM}, /* odd ones */
    {63, 65, 32, 40, 3, 1, 1, 1, 1, NORM | R},
    {37, 50, 64, 136, 3, 1, 1, 1, 2, R},
    {1, 1, 32, 33, 3, 1, 1, 1, 1, NORM},
    {3, 17, 96, 5, 3, 1, 1, 1, 2, NORM | R},
    {7, 5, 5, 9, 3, 1, 1, 1, 3, R},
    {9, 11, 20, 7, 3, 1, 1, 1, 1, NORM},
    {33, 17, 16, 8, 1, 1, 0, 0, 1, R},
    {33, 17, 16, 8, 1, 1, 0, 0, 1, NORM | R},
    {20, 30, 8, 8, 5, 3, 2, 1, 1, 0},
    {40, 24, 320, 200, 3, 1, 1, 1, 1, NORM | R | IN_PLACE}, /* parts of Hopper's tiles */
    {65, 41, 72, 160, 3, 1, 1, 1, 2, NORM | R},
    {70, 33, 512, 256, 1, 1, 0, 0, 1, IN_X},
    {31, 9, 200, 180, 1, 1, 0, 0, 1, NORM | R},
    {33, 17, 16, 264, 1, 1, 0, 0, 1, R},
};

static void conv_operands(pair *p, const struct conv_case *c, int64_t ho, int64_t wo) {
    int64_t taps = (int64_t)c->c * c->k * c->k;
    pair_act(p, DFX_CONV_X, (int64_t)c->h * c->w, c->c, c->c, sqrtf(3.0f));
    pair_weight(p, DFX_CONV_W, DFX_DTYPE_BF16, c->n, taps, range_for_sum(taps));
    pair_weight(p, DFX_CONV_B, DFX_DTYPE_BF16, 1, c->n, 1);
    if (c->parts & R)
        pair_act(p, DFX_CONV_R, ho * wo, c->n, c->n, 2);
    if (c->parts & NORM)
        pair_f32(p, DFX_CONV_NORM, 3, c->c, -1.5f, 1.5f);
    if (c->parts & IN_PLACE)
        pair_out_is(p, DFX_CONV_R);
    else if (c->parts & IN_X)
        pair_out_in(p, DFX_CONV_X, c->n);
    else
        pair_out(p, ho * wo, c->n, c->n);
    p->params.act = c->parts & NORM ? DFX_ACT_SILU : DFX_ACT_NONE;
}

static void check_conv(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(conv_cases); i++) {
        const struct conv_case *c = &conv_cases[i];
        int64_t pad = c->pad_lo + c->pad_hi - c->k;
        int64_t ho = (c->h * c->upsample + pad) / c->stride + 1,
                wo = (c->w * c->upsample + pad) / c->stride + 1;
        if (!pair_begin(p, DFX_OP_CONV2D, "%dx%d %d to %d channels k %d stride %d%s%s%s", c->h,
                        c->w, c->c, c->n, c->k, c->stride, c->upsample > 1 ? " upsampled" : "",
                        c->parts & NORM ? " norm" : "",
                        c->parts & IN_X       ? " in x"
                        : c->parts & IN_PLACE ? " +y"
                        : c->parts & R        ? " +r"
                                              : ""))
            continue;
        conv_operands(p, c, ho, wo);
        p->params.conv = (dfx_conv_params){.h = c->h,
                                           .w = c->w,
                                           .k = c->k,
                                           .stride = c->stride,
                                           .pad_lo = c->pad_lo,
                                           .pad_hi = c->pad_hi,
                                           .upsample = c->upsample};
        pair_end(p, PAIR_TWICE); /* the residual may meet a sum already rounded; x normalized is */
    }
}

static const struct groupnorm_case {
    int pixels, channels, groups;
    dfx_act act;
    bool in_place;
} groupnorm_cases[] = {
    {16384, 512, 32, DFX_ACT_SILU, false},  {16384, 512, 32, DFX_ACT_NONE, true},
    {262144, 256, 32, DFX_ACT_SILU, false}, {1048576, 128, 32, DFX_ACT_SILU, true},
    {1024, 64, 16, DFX_ACT_SILU, false},    {4096, 48, 16, DFX_ACT_SILU, true},
    {65536, 32, 16, DFX_ACT_SILU, false},   {35, 12, 4, DFX_ACT_NONE, false},
    {1, 8, 1, DFX_ACT_QUICK_GELU, false},   {700, 1200, 2, DFX_ACT_NONE, false},
};

static void check_groupnorm(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(groupnorm_cases); i++) {
        const struct groupnorm_case *c = &groupnorm_cases[i];
        if (!pair_begin(p, DFX_OP_GROUPNORM, "[%d, %d] %d groups%s%s", c->pixels, c->channels,
                        c->groups, c->act ? " act" : "", c->in_place ? " in place" : ""))
            continue;
        pair_act(p, DFX_NORM_X, c->pixels, c->channels, c->channels, 3);
        pair_weight(p, DFX_NORM_W, DFX_DTYPE_BF16, 1, c->channels, 2);
        pair_weight(p, DFX_NORM_B, DFX_DTYPE_F32, 1, c->channels, 1);
        if (c->in_place)
            pair_out_is(p, DFX_NORM_X);
        else
            pair_out(p, c->pixels, c->channels, c->channels);
        p->params = (dfx_op_params){.n_groups = c->groups, .eps = 1e-6f, .act = c->act};
        pair_end(p, PAIR_ROUNDED);
    }
}

/* Sums of millions, in F32 here and in double there: 4096 roundings of 2^-24, were they all to one side. */
static void check_groupnorm_stats(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(groupnorm_cases); i++) {
        const struct groupnorm_case *c = &groupnorm_cases[i];
        if (!pair_begin(p, DFX_OP_GROUPNORM_STATS, "[%d, %d] %d groups", c->pixels, c->channels,
                        c->groups))
            continue;
        pair_act(p, DFX_NORM_X, c->pixels, c->channels, c->channels + 8, 3);
        pair_weight(p, DFX_NORM_W, DFX_DTYPE_BF16, 1, c->channels, 2);
        pair_weight(p, DFX_NORM_B, DFX_DTYPE_F32, 1, c->channels, 1);
        pair_f32(p, 0, 3, c->channels, NAN, NAN);
        p->params = (dfx_op_params){.n_groups = c->groups, .eps = 1e-6f};
        pair_end(p, 0x1p-12);
    }
}

/* ---- All of them */

static void check_all(pair *p) {
    check_linears(p);
    check_adapters(p);
    check_fused(p);
    check_bound(p);
    check_attentions(p);
    check_attention_codes(p);
    check_conv(p);
    check_groupnorm(p);
    check_groupnorm_stats(p);
    check_rows(p);
    check_device(p);
    printf("%d passed, %d failed, %d skipped\n", p->n_passed, p->n_failed, p->n_skipped);
}

static void say(void *user, dfx_level level, const char *text) {
    if (level <= DFX_WARN)
        printf("%s\n", text);
}

static bool read_args(int argc, char **argv, pair *p, int *device) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--time") == 0)
            p->timing = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            p->only = argv[++i];
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            *device = atoi(argv[++i]);
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    static pair p;
    int device = 0, n_devices = 0;
    const dfx_sink sink = {say, NULL};
    if (!read_args(argc, argv, &p, &device)) {
        fprintf(stderr, "usage: cuda_check [--time] [--only TEXT] [--device N]\n");
        return 2;
    }
    cudaError_t error = cudaGetDeviceCount(&n_devices);
    if (error != cudaSuccess || n_devices == 0) {
        printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
        return 77;
    }
    if (dfx_cpu_backend_open(&(dfx_cpu_options){0}, &sink, &p.cpu) != DFX_OK)
        return 1;
    if (dfx_cuda_backend_open(&(dfx_cuda_options){.device = device}, &sink, &p.cuda) != DFX_OK)
        return 1;
    check_all(&p);
    p.cuda->vt->close(p.cuda);
    p.cpu->vt->close(p.cpu);
    return p.n_failed > 0 || p.n_passed == 0;
}
