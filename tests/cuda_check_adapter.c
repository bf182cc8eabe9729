/* See cuda_check_adapter.h. Shapes: those of FLUX.1's blocks at 1024x1024, and ones that end inside every tile. t u^T is as
 * large as x W^T, so that leaving one out, or a part of K, shows. */
#include "tests/cuda_check_adapter.h"

#include <math.h>

enum { B = 1, GATE = 2, R = 4, IN_PLACE = 8 };

typedef struct adapter_case {
    int m, n, k, rank;
    int parts; /* sum of the above; IN_PLACE: r is y */
    dfx_act act;
} adapter_case;

static const adapter_case cases[] = {
    {4608, 3072, 3072, 32, B, 0},
    {4608, 12288, 3072, 32, B, DFX_ACT_GELU_TANH},
    {4608, 3072, 15360, 32, B | GATE | R | IN_PLACE, 0},
    {4096, 3072, 3072, 64, B | GATE | R | IN_PLACE, 0},
    {4096, 3072, 12288, 16, B | GATE | R | IN_PLACE, 0},
    {512, 3072, 3072, 128, B, 0},
    {512, 12288, 3072, 32, B, DFX_ACT_GELU_TANH},
    {512, 3072, 12288, 32, B | GATE | R | IN_PLACE, 0},
    {1617, 3072, 3072, 48, B | GATE | R, 0},
    {1, 18432, 3072, 16, B, 0},
    {1, 3072, 768, 16, B, DFX_ACT_SILU},
    {28, 9216, 3072, 32, B, 0},
    {320, 256, 1280, 512, B | GATE | R | IN_PLACE, 0},
    {333, 264, 1280, 176, R, DFX_ACT_SILU},
    {33, 104, 80, 16, B | GATE | R, DFX_ACT_SILU},
    {130, 3, 24, 32, B, 0},
};

typedef struct adapter_format {
    const char *name;
    dfx_dtype x, w; /* x: codes, or BF16 */
    bool scaled, weight_only;
    double tolerance;
} adapter_format;

static const adapter_format formats[] = {
    {"bf16", DFX_DTYPE_BF16, DFX_DTYPE_BF16, false, false, PAIR_ROUNDED},
    {"f16", DFX_DTYPE_BF16, DFX_DTYPE_F16, false, false, PAIR_TWICE},
    {"int8 codes", DFX_DTYPE_I8, DFX_DTYPE_I8, true, false, PAIR_ROUNDED},
    {"fp8 codes", DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E4M3, true, false, PAIR_FP8},
    {"int8", DFX_DTYPE_BF16, DFX_DTYPE_I8, true, false, PAIR_ROUNDED},
    {"int8 weight only", DFX_DTYPE_BF16, DFX_DTYPE_I8, true, true, PAIR_TWICE},
};

static float range_for_sum(int k) {
    return sqrtf(3.0f / (float)k); /* of weights, for x in [-sqrt 3, sqrt 3): sums of variance 1 */
}

static float code_max(dfx_dtype dtype) {
    return dtype == DFX_DTYPE_I8 ? 127 : 448;
}

static void put_x(pair *p, dfx_dtype dtype, int m, int k) {
    if (dtype == DFX_DTYPE_BF16) {
        pair_act(p, DFX_LINEAR_X, m, k, k, sqrtf(3.0f));
        return;
    }
    float scale = sqrtf(3.0f) / code_max(dtype);
    pair_weight(p, DFX_LINEAR_X, dtype, m, k, 448);
    pair_f32(p, DFX_LINEAR_X_SCALE, 1, m, 0.5f * scale, 1.5f * scale);
}

static void put_w(pair *p, const adapter_format *f, int n, int k) {
    pair_weight(p, DFX_LINEAR_W, f->w, n, k, f->scaled ? 448 : range_for_sum(k));
    float scale = range_for_sum(k) / code_max(f->w);
    if (f->scaled)
        pair_f32(p, DFX_LINEAR_SCALE, 1, n, 0.5f * scale, 1.5f * scale);
}

static void put_operands(pair *p, const adapter_case *c, const adapter_format *f) {
    put_x(p, f->x, c->m, c->k);
    put_w(p, f, c->n, c->k);
    pair_act(p, DFX_LINEAR_T, c->m, c->rank, c->rank + 8, sqrtf(3.0f));
    pair_act(p, DFX_LINEAR_U, c->n, c->rank, c->rank, range_for_sum(c->rank));
    if (c->parts & B)
        pair_weight(p, DFX_LINEAR_B, DFX_DTYPE_BF16, 1, c->n, 1);
    if (c->parts & GATE)
        pair_act(p, DFX_LINEAR_GATE, 1, c->n, c->n, 1);
    if (c->parts & R)
        pair_act(p, DFX_LINEAR_R, c->m, c->n, c->n, 2);
    if (c->parts & IN_PLACE)
        pair_out_is(p, DFX_LINEAR_R);
    else
        pair_out(p, c->m, c->n, c->n + (c->n % 8 ? 8 - c->n % 8 : 0));
    p->params = (dfx_op_params){.act = c->act, .weight_only = f->weight_only};
}

static void check_adapter(pair *p, const adapter_case *c, const adapter_format *f) {
    if (!pair_begin(p, DFX_OP_LINEAR, "%s [%d, %d] K %d rank %d%s%s%s%s", f->name, c->m, c->n, c->k,
                    c->rank,
                    c->act == DFX_ACT_SILU ? " silu"
                    : c->act               ? " gelu"
                                           : "",
                    c->parts & B ? " +b" : "", c->parts & GATE ? " gate" : "",
                    c->parts & IN_PLACE ? " +y"
                    : c->parts & R      ? " +r"
                                        : ""))
        return;
    put_operands(p, c, f);
    pair_end(p, c->parts & GATE && f->tolerance < PAIR_TWICE ? PAIR_TWICE : f->tolerance);
}

static const int n_rows[] = {1, 2, 3, 7, 8, 16, 17, 33, 48, 63};

static void check_adapter_rows(pair *p, const adapter_format *f) {
    const adapter_case c = {64, 3072, 3072, 32, B, 0};
    if (!pair_begin(p, DFX_OP_LINEAR, "%s rank 32, rows alone and among 64", f->name))
        return;
    put_operands(p, &c, f);
    pair_end_rows(p, n_rows, (int)DFX_COUNT(n_rows));
}

/* t = x A^T of codes: one for all that share x. */
static const struct down_case {
    int m, rank, k;
} down_cases[] = {
    {4608, 128, 3072}, {4608, 32, 15360}, {4096, 96, 3072}, {4096, 32, 12288}, {512, 128, 3072},
    {512, 64, 12288},  {4608, 512, 3072}, {1617, 16, 3072}, {64, 48, 3072},    {1, 32, 3072},
    {129, 272, 80},    {300, 40, 272},    {7, 8, 16},       {130, 20, 72},
};

static void put_down(pair *p, dfx_dtype x, int m, int rank, int k) {
    const adapter_format plain = {.w = DFX_DTYPE_BF16};
    put_x(p, x, m, k);
    put_w(p, &plain, rank, k);
    pair_out(p, m, rank, rank + (rank % 8 ? 8 - rank % 8 : 8));
}

static void check_down(pair *p, dfx_dtype x) {
    for (size_t i = 0; i < DFX_COUNT(down_cases); i++) {
        const struct down_case *c = &down_cases[i];
        if (!pair_begin(p, DFX_OP_LINEAR, "%s by plain weights [%d, %d] K %d", dfx_dtype_name(x),
                        c->m, c->rank, c->k))
            continue;
        put_down(p, x, c->m, c->rank, c->k);
        pair_end(p, PAIR_ROUNDED);
    }
    if (!pair_begin(p, DFX_OP_LINEAR, "%s by plain weights, rows alone and among 64",
                    dfx_dtype_name(x)))
        return;
    put_down(p, x, 64, 96, 3072);
    pair_end_rows(p, n_rows, (int)DFX_COUNT(n_rows));
}

void check_adapters(pair *p) {
    for (size_t f = 0; f < DFX_COUNT(formats); f++) {
        for (size_t i = 0; i < DFX_COUNT(cases); i++)
            check_adapter(p, &cases[i], &formats[f]);
        check_adapter_rows(p, &formats[f]);
    }
    check_down(p, DFX_DTYPE_I8);
    check_down(p, DFX_DTYPE_F8_E4M3);
}
