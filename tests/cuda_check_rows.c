/* See cuda_check_rows.h. Each of these ops computes in F32 and rounds once. */
#include "tests/cuda_check_rows.h"

#include <math.h>

enum { NOTHING, IN_PLACE };

/* ---- Norms */

static const struct norm_case {
    int rows, cols;
    int how;      /* IN_PLACE */
    int ld_more;  /* of x and y */
    char weights; /* 'm' scale and shift, 'w' w and b, '-' none */
} layernorm_cases[] = {
    {4096, 3072, NOTHING, 0, 'm'},  {512, 3072, NOTHING, 0, 'm'},   {4608, 3072, NOTHING, 0, 'm'},
    {1617, 3072, IN_PLACE, 0, 'm'}, {3969, 3072, NOTHING, 64, 'm'}, {77, 768, NOTHING, 0, 'w'},
    {320, 256, NOTHING, 0, 'm'},    {77, 64, NOTHING, 0, 'w'},      {5, 100, IN_PLACE, 4, 'w'},
    {3, 8, NOTHING, 0, '-'},        {2, 15360, NOTHING, 0, '-'},
};

static void check_layernorm(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(layernorm_cases); i++) {
        const struct norm_case *c = &layernorm_cases[i];
        if (!pair_begin(p, DFX_OP_LAYERNORM, "[%d, %d]%s%s%s", c->rows, c->cols,
                        c->weights == 'm' ? " modulated" : "", c->weights == 'w' ? " w b" : "",
                        c->how == IN_PLACE ? " in place" : ""))
            continue;
        pair_act(p, DFX_NORM_X, c->rows, c->cols, c->cols + c->ld_more, 3);
        if (c->weights == 'm') {
            pair_act(p, DFX_NORM_SCALE, 1, c->cols, c->cols, 1);
            pair_act(p, DFX_NORM_SHIFT, 1, c->cols, c->cols, 1);
        } else if (c->weights == 'w') {
            pair_weight(p, DFX_NORM_W, DFX_DTYPE_BF16, 1, c->cols, 2);
            pair_weight(p, DFX_NORM_B, DFX_DTYPE_F32, 1, c->cols, 1);
        }
        if (c->how == IN_PLACE)
            pair_out_is(p, DFX_NORM_X);
        else
            pair_out(p, c->rows, c->cols, c->cols + c->ld_more);
        p->params = (dfx_op_params){.eps = 1e-6f};
        pair_end(p, PAIR_ROUNDED);
    }
}

static const struct codes_case {
    int rows, cols;
} codes_cases[] = {{4608, 3072}, {512, 12288}, {1617, 3072}, {4608, 15360}, {512, 4096},
                   {512, 10240}, {77, 768},    {3, 72},      {1, 8},        {5, 99}};

static void check_codes(pair *p) {
    static const dfx_dtype dtypes[] = {DFX_DTYPE_I8, DFX_DTYPE_F8_E4M3};
    for (size_t i = 0; i < 2 * DFX_COUNT(codes_cases); i++) {
        const struct codes_case *c = &codes_cases[i / 2];
        dfx_dtype dtype = dtypes[i % 2];
        int64_t ld = (int64_t)dfx_align_up((size_t)c->cols, 8);
        if (pair_begin(p, DFX_OP_QUANTIZE, "%s [%d, %d]", dfx_dtype_name(dtype), c->rows,
                       c->cols)) {
            pair_act(p, DFX_QUANTIZE_X, c->rows, c->cols, ld, 3);
            pair_out_codes(p, dtype, c->rows, c->cols, DFX_QUANTIZE_Y_SCALE);
            p->params = (dfx_op_params){0};
            pair_end_codes(p, 0, DFX_QUANTIZE_Y_SCALE);
        }
        if (pair_begin(p, DFX_OP_LAYERNORM, "to %s [%d, %d]", dfx_dtype_name(dtype), c->rows,
                       c->cols)) {
            pair_act(p, DFX_NORM_X, c->rows, c->cols, ld, 3);
            pair_act(p, DFX_NORM_SCALE, 1, c->cols, ld, 1);
            pair_act(p, DFX_NORM_SHIFT, 1, c->cols, ld, 1);
            pair_out_codes(p, dtype, c->rows, c->cols, DFX_NORM_Y_SCALE);
            p->params = (dfx_op_params){.eps = 1e-6f};
            pair_end_codes(p, 1, DFX_NORM_Y_SCALE);
        }
        if (pair_begin(p, DFX_OP_RMSNORM, "to %s [%d, %d]", dfx_dtype_name(dtype), c->rows,
                       c->cols)) {
            pair_act(p, DFX_NORM_X, c->rows, c->cols, ld, 3);
            pair_weight(p, DFX_NORM_W, i % 3 ? DFX_DTYPE_BF16 : DFX_DTYPE_F32, 1, c->cols, 2);
            pair_out_codes(p, dtype, c->rows, c->cols, DFX_RMSNORM_Y_SCALE);
            p->params = (dfx_op_params){.eps = 1e-6f};
            pair_end_codes(p, 1, DFX_RMSNORM_Y_SCALE);
        }
        if (pair_begin(p, DFX_OP_ACT_MUL, "gelu to %s [%d, %d]", dfx_dtype_name(dtype), c->rows,
                       c->cols)) {
            pair_act(p, DFX_BIN_A, c->rows, c->cols, ld, 4);
            pair_act(p, DFX_BIN_B, c->rows, c->cols, ld + 8, 2);
            pair_out_codes(p, dtype, c->rows, c->cols, DFX_ACT_MUL_Y_SCALE);
            p->params = (dfx_op_params){.act = DFX_ACT_GELU_TANH};
            pair_end_codes(p, 1, DFX_ACT_MUL_Y_SCALE);
        }
    }
}

static void check_rmsnorm(pair *p) {
    static const int shapes[][2] = {{512, 4096}, {77, 4096}, {64, 128}, {3, 100}, {1, 10240}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        int rows = shapes[i][0], cols = shapes[i][1];
        if (!pair_begin(p, DFX_OP_RMSNORM, "[%d, %d]", rows, cols))
            continue;
        pair_act(p, DFX_NORM_X, rows, cols, cols + 8 - cols % 4, 3);
        pair_weight(p, DFX_NORM_W, i % 2 ? DFX_DTYPE_F32 : DFX_DTYPE_BF16, 1, cols, 2);
        if (i == 2)
            pair_out_is(p, DFX_NORM_X);
        else
            pair_out(p, rows, cols, cols);
        p->params = (dfx_op_params){.eps = 1e-6f};
        pair_end(p, PAIR_ROUNDED);
    }
}

/* Angles need not be any: cos and sin are numbers of [-1, 1). */
static void check_qknorm_rope(pair *p) {
    static const struct {
        int rows, n_heads, head, ld_more;
        bool rope;
    } cases[] = {{4608, 24, 128, 0, true}, {4096, 24, 128, 6144, true}, {512, 24, 128, 0, false},
                 {1617, 24, 128, 0, true}, {3969, 24, 128, 0, true},    {320, 2, 128, 0, true},
                 {256, 2, 128, 512, true}, {64, 2, 128, 0, false},      {77, 3, 64, 0, true},
                 {5, 4, 16, 8, true},      {2, 1, 512, 0, true}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        int width = cases[i].n_heads * cases[i].head;
        if (!pair_begin(p, DFX_OP_QKNORM_ROPE, "[%d, %d heads of %d]%s%s", cases[i].rows,
                        cases[i].n_heads, cases[i].head, cases[i].rope ? " rope" : "",
                        cases[i].ld_more ? " wide" : ""))
            continue;
        pair_act(p, 0, cases[i].rows, width, width + cases[i].ld_more, 3);
        pair_weight(p, DFX_QKNORM_W, DFX_DTYPE_BF16, 1, cases[i].head, 2);
        if (cases[i].rope) {
            pair_f32(p, DFX_QKNORM_COS, cases[i].rows, cases[i].head / 2, -1, 1);
            pair_f32(p, DFX_QKNORM_SIN, cases[i].rows, cases[i].head / 2, -1, 1);
        }
        p->params = (dfx_op_params){.n_heads = cases[i].n_heads, .eps = 1e-6f};
        pair_end(p, PAIR_ROUNDED);
    }
}

/* ---- Elementwise */

static const int elementwise_shapes[][2] = {{4096, 3072}, {512, 12288}, {512, 10240}, {4608, 64},
                                            {1617, 64},   {320, 256},   {64, 320},    {77, 100},
                                            {1, 3072},    {3, 7}};

static void check_act(pair *p) {
    static const char *const names[] = {"copy", "silu", "gelu", "quick gelu"};
    for (size_t i = 0; i < DFX_COUNT(elementwise_shapes); i++)
        for (int act = 0; act <= DFX_ACT_QUICK_GELU; act++) {
            int rows = elementwise_shapes[i][0], cols = elementwise_shapes[i][1];
            if (!pair_begin(p, DFX_OP_ACT, "[%d, %d] %s", rows, cols, names[act]))
                continue;
            pair_act(p, DFX_BIN_A, rows, cols, cols + act * 4, 6);
            if (act == DFX_ACT_SILU)
                pair_out_is(p, DFX_BIN_A);
            else
                pair_out(p, rows, cols, cols);
            p->params = (dfx_op_params){.act = (dfx_act)act};
            pair_end(p, act == DFX_ACT_NONE ? PAIR_SAME : PAIR_ROUNDED);
        }
}

static void check_act_mul(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(elementwise_shapes); i++) {
        int rows = elementwise_shapes[i][0], cols = elementwise_shapes[i][1];
        if (!pair_begin(p, DFX_OP_ACT_MUL, "[%d, %d] gelu", rows, cols))
            continue;
        pair_act(p, DFX_BIN_A, rows, cols, cols, 4);
        pair_act(p, DFX_BIN_B, rows, cols, cols + 8, 2);
        if (i % 3)
            pair_out_is(p, i % 3 == 1 ? DFX_BIN_A : DFX_BIN_B);
        else
            pair_out(p, rows, cols, cols + 4);
        p->params = (dfx_op_params){.act = DFX_ACT_GELU_TANH};
        pair_end(p, PAIR_ROUNDED);
    }
}

static void check_add(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(elementwise_shapes); i++)
        for (int row = 0; row < 2; row++) {
            int rows = elementwise_shapes[i][0], cols = elementwise_shapes[i][1];
            if (!pair_begin(p, DFX_OP_ADD, "[%d, %d]%s", rows, cols, row ? " a row" : ""))
                continue;
            pair_act(p, DFX_BIN_A, rows, cols, cols + 8, 2);
            pair_act(p, DFX_BIN_B, row ? 1 : rows, cols, cols, 2);
            if (i % 2)
                pair_out_is(p, DFX_BIN_A);
            else
                pair_out(p, rows, cols, cols);
            pair_end(p, PAIR_ROUNDED);
        }
}

static void check_axpy(pair *p) {
    for (size_t i = 0; i < DFX_COUNT(elementwise_shapes); i++) {
        int rows = elementwise_shapes[i][0], cols = elementwise_shapes[i][1];
        if (!pair_begin(p, DFX_OP_AXPY, "[%d, %d]", rows, cols))
            continue;
        pair_act(p, DFX_BIN_A, rows, cols, cols, 2);
        pair_act(p, DFX_BIN_B, rows, cols, cols + 8, 2);
        pair_f32(p, DFX_BIN_S, 1, 1, -1, -0.1f);
        if (i % 2)
            pair_out(p, rows, cols, cols);
        else
            pair_out_is(p, DFX_BIN_A);
        pair_end(p, PAIR_ROUNDED);
    }
}

/* ---- Tables and layouts */

static void check_sinusoid(pair *p) {
    static const int shapes[][2] = {{1, 256}, {28, 256}, {50, 256}, {3, 10}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        if (!pair_begin(p, DFX_OP_SINUSOID, "[%d, %d]", shapes[i][0], shapes[i][1]))
            continue;
        pair_f32(p, 1, 1, shapes[i][0], 0, i == 2 ? 35 : 1); /* sigmas, and guidance */
        pair_out(p, shapes[i][0], shapes[i][1], shapes[i][1]);
        pair_end(p, PAIR_ROUNDED);
    }
}

static void check_rel_bias(pair *p) {
    static const struct {
        int n_tokens, n_heads, n_buckets, max_distance;
    } cases[] = {
        {512, 64, 32, 128}, {77, 64, 32, 128}, {64, 2, 32, 128}, {1, 3, 32, 128}, {300, 5, 8, 20}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        int cols = 2 * cases[i].n_tokens - 1;
        if (!pair_begin(p, DFX_OP_REL_BIAS, "[%d, %d] %d buckets to %d", cases[i].n_heads, cols,
                        cases[i].n_buckets, cases[i].max_distance))
            continue;
        pair_weight(p, 1, DFX_DTYPE_BF16, cases[i].n_buckets, cases[i].n_heads, 4);
        pair_out(p, cases[i].n_heads, cols, cols);
        p->params =
            (dfx_op_params){.n_buckets = cases[i].n_buckets, .max_distance = cases[i].max_distance};
        pair_end(p, PAIR_SAME);
    }
}

static void check_packing(pair *p) {
    static const int shapes[][3] = {
        {128, 128, 16}, {126, 126, 16}, {32, 32, 16}, {42, 154, 16}, {2, 4, 3}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        int h = shapes[i][0], w = shapes[i][1], channels = shapes[i][2], n_tokens = h / 2 * (w / 2);
        dfx_op_params params = {.h = h, .w = w, .mul = 1 / 0.3611f, .add = 0.1159f};
        if (pair_begin(p, DFX_OP_UNPACK, "%dx%d, %d channels", h, w, channels)) {
            pair_act(p, 1, n_tokens, 4 * channels, 4 * channels, 2);
            pair_out(p, h * w, channels, channels);
            p->params = params;
            pair_end(p, PAIR_ROUNDED);
        }
        if (pair_begin(p, DFX_OP_PACK, "%dx%d, %d of %d channels", h, w, channels, 2 * channels)) {
            pair_act(p, 1, h * w, 2 * channels, 2 * channels, 2);
            pair_out(p, n_tokens, 4 * channels, 4 * channels);
            p->params = params;
            pair_end(p, PAIR_ROUNDED);
        }
    }
}

/* Sums in F32 of some hundred terms a thread, all of one sign: 512 roundings of 2^-24, were they all to one side. */
static void check_rel_diff(pair *p) {
    static const int shapes[][3] = {{4096, 3072, 3072},  {3969, 3072, 3072}, {256, 256, 256},
                                    {16384, 3072, 3072}, {1, 8, 8},          {37, 100, 104},
                                    {5, 4099, 4100},     {700, 9, 12}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        if (!pair_begin(p, DFX_OP_REL_DIFF, "[%d, %d]", shapes[i][0], shapes[i][1]))
            continue;
        pair_act(p, DFX_BIN_A, shapes[i][0], shapes[i][1], shapes[i][2], 1);
        pair_act(p, DFX_BIN_B, shapes[i][0], shapes[i][1], shapes[i][2], 2);
        pair_f32(p, 0, 1, 1, NAN, NAN);
        pair_end(p, 0x1p-14);
    }
}

/* y where d was: FLUX keeps what a block has added in the place of what it began with. */
static void check_axpy_in_d(pair *p) {
    if (!pair_begin(p, DFX_OP_AXPY, "[%d, %d] y is d", 4096, 3072))
        return;
    pair_act(p, DFX_BIN_A, 4096, 3072, 3072, 2);
    pair_act(p, DFX_BIN_B, 4096, 3072, 3072, 2);
    pair_f32(p, DFX_BIN_S, 1, 1, -1, -1);
    pair_out_is(p, DFX_BIN_B);
    pair_end(p, PAIR_ROUNDED);
}

void check_rows(pair *p) {
    check_layernorm(p);
    check_codes(p);
    check_rmsnorm(p);
    check_qknorm_rope(p);
    check_act(p);
    check_act_mul(p);
    check_add(p);
    check_axpy(p);
    check_axpy_in_d(p);
    check_rel_diff(p);
    check_sinusoid(p);
    check_rel_bias(p);
    check_packing(p);
}
