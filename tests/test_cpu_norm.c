/* LayerNorm, RMSNorm and GroupNorm: taps of diffusers and transformers, and the formulas in double.
 *
 * Tolerances: outputs are below 8 and pass about four roundings of 2^-24 and a mean and rstd that
 * are right to a few units more, so 8 * 2^-24 * 16 = 8e-6 is ample; an error in eps, in the
 * variance or in an index is larger. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/tiny.h"

static const double TOLERANCE = 8e-6;

/* ---- against other software ---- */

static dfx_mat tiny_weight(rig *r, const char *component, const char *name, int64_t n) {
    float *values = rig_alloc(r, (size_t)n * sizeof(*values));
    assert_int_equal(tiny_fill(component, name, values, (size_t)n), DFX_OK);
    return rig_weight(r, DFX_DTYPE_BF16, 1, n, values);
}

static void layernorm_equals_clip_final_norm(void **state) {
    rig *r = *state;
    const char *component = "clip_small_vocab";
    dfx_op_call call = {.kind = DFX_OP_LAYERNORM, .p.eps = 1e-5f};
    call.m[DFX_NORM_X] = rig_values(r, 231, 64, 64, rig_golden(r, "clip", "mid.layer1", 231 * 64));
    call.m[DFX_NORM_W] = tiny_weight(r, component, "text_model.final_layer_norm.weight", 64);
    call.m[DFX_NORM_B] = tiny_weight(r, component, "text_model.final_layer_norm.bias", 64);
    call.m[0] = rig_poison(r, 231, 64, 68);
    rig_run(r, &call);
    rig_same(&call.m[0], rig_golden(r, "clip", "last_hidden_state", 231 * 64), TOLERANCE);
}

/* The first norm of a single block: text before image, then (1 + scale) and shift from the
 * modulation vector. shift is the first third of the linear, scale the second. */
static void layernorm_modulated_equals_flux_single_block(void **state) {
    rig *r = *state;
    enum { D = 256, TEXT = 7, IMAGE = 15 };
    float *w = rig_alloc(r, 3 * D * D * sizeof(*w)), *b = rig_alloc(r, 3 * D * sizeof(*b));
    const char *stem = "single_transformer_blocks.0.norm.linear";
    char name[128];
    snprintf(name, sizeof(name), "%s.weight", stem);
    assert_int_equal(tiny_fill("transformer", name, w, 3 * D * D), DFX_OK);
    snprintf(name, sizeof(name), "%s.bias", stem);
    assert_int_equal(tiny_fill("transformer", name, b, 3 * D), DFX_OK);
    const float *temb = rig_golden(r, "flux", "ns.mid.temb", D);
    float mod[3 * D], x[(TEXT + IMAGE) * D];
    for (int n = 0; n < 3 * D; n++) {
        double total = (double)b[n];
        for (int k = 0; k < D; k++)
            total += (double)w[n * D + k] * (double)temb[k] / (1 + exp(-(double)temb[k]));
        mod[n] = (float)total;
    }
    memcpy(x, rig_golden(r, "flux", "ns.mid.double.1.0", TEXT * D), TEXT * D * sizeof(*x));
    memcpy(x + TEXT * D, rig_golden(r, "flux", "ns.mid.double.1.1", IMAGE * D),
           IMAGE * D * sizeof(*x));

    dfx_op_call call = {.kind = DFX_OP_LAYERNORM, .p.eps = 1e-6f};
    call.m[DFX_NORM_X] = rig_values(r, TEXT + IMAGE, D, D, x);
    call.m[DFX_NORM_SHIFT] = rig_values(r, 1, D, D, mod);
    call.m[DFX_NORM_SCALE] = rig_values(r, 1, D, D, mod + D);
    call.m[0] = rig_poison(r, TEXT + IMAGE, D, D);
    rig_run(r, &call);
    rig_same(&call.m[0], rig_golden(r, "flux", "ns.mid.single0.norm.0", (TEXT + IMAGE) * D),
             TOLERANCE);
}

static void rmsnorm_equals_t5_final_norm(void **state) {
    rig *r = *state;
    dfx_op_call call = {.kind = DFX_OP_RMSNORM, .p.eps = 1e-6f};
    call.m[DFX_NORM_X] =
        rig_values(r, 48, 64, 64, rig_golden(r, "t5", "pad.mid.block1.0", 48 * 64));
    call.m[DFX_NORM_W] = tiny_weight(r, "t5_small_vocab", "encoder.final_layer_norm.weight", 64);
    call.m[0] = rig_poison(r, 48, 64, 64);
    rig_run(r, &call);
    rig_same(&call.m[0], rig_golden(r, "t5", "pad.mid.final_norm", 48 * 64), TOLERANCE);
}

/* [C, h*w] as torch has it into [h*w, C]. */
static float *channels_last(rig *r, const float *x, int64_t n_channels, int64_t n_pixels) {
    float *y = rig_alloc(r, (size_t)(n_channels * n_pixels) * sizeof(*y));
    for (int64_t p = 0; p < n_pixels; p++)
        for (int64_t c = 0; c < n_channels; c++)
            y[p * n_channels + c] = x[c * n_pixels + p];
    return y;
}

static void groupnorm_equals_vae_norm_out(void **state) {
    rig *r = *state;
    enum { C = 32, PIXELS = 32 * 48 };
    const float *x = rig_golden(r, "vae", "ns.mid.dec.up3", C * PIXELS);
    const float *want = rig_golden(r, "vae", "ns.mid.dec.norm_out", C * PIXELS);
    dfx_op_call call = {.kind = DFX_OP_GROUPNORM, .p.eps = 1e-6f, .p.n_groups = 32};
    call.m[DFX_NORM_X] = rig_values(r, PIXELS, C, C, channels_last(r, x, C, PIXELS));
    call.m[DFX_NORM_W] = tiny_weight(r, "vae", "decoder.conv_norm_out.weight", C);
    call.m[DFX_NORM_B] = tiny_weight(r, "vae", "decoder.conv_norm_out.bias", C);
    call.m[0] = rig_poison(r, PIXELS, C, C);
    rig_run(r, &call);
    rig_same(&call.m[0], channels_last(r, want, C, PIXELS), TOLERANCE);
}

/* ---- against the formulas in double ---- */

static double weight_at(const dfx_mat *m, int64_t col, double absent) {
    return m->ptr ? rig_at(m, 0, col) : absent;
}

static float *layernorm_wanted(rig *r, const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_NORM_X];
    float *want = rig_alloc(r, (size_t)(x->rows * x->cols) * sizeof(*want));
    for (int64_t t = 0; t < x->rows; t++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < x->cols; i++)
            mean += rig_at(x, t, i) / (double)x->cols;
        for (int64_t i = 0; i < x->cols; i++)
            var += (rig_at(x, t, i) - mean) * (rig_at(x, t, i) - mean) / (double)x->cols;
        for (int64_t i = 0; i < x->cols; i++) {
            double y = (rig_at(x, t, i) - mean) / sqrt(var + (double)call->p.eps);
            y *= weight_at(&call->m[DFX_NORM_W], i, 1);
            y *= 1 + weight_at(&call->m[DFX_NORM_SCALE], i, 0);
            y += weight_at(&call->m[DFX_NORM_B], i, 0);
            want[t * x->cols + i] = (float)(y + weight_at(&call->m[DFX_NORM_SHIFT], i, 0));
        }
    }
    return want;
}

typedef enum affine { PLAIN, WEIGHT, WEIGHT_BIAS, SCALE_SHIFT } affine;

static void check_layernorm(rig *r, int64_t rows, int64_t cols, affine kind, dfx_dtype dtype,
                            bool in_place) {
    int64_t ld = (cols + 7) / 4 * 4;
    dfx_op_call call = {.kind = DFX_OP_LAYERNORM, .p.eps = 0.25f};
    call.m[DFX_NORM_X] = rig_random(r, rows, cols, ld, 1);
    if (kind == WEIGHT || kind == WEIGHT_BIAS)
        call.m[DFX_NORM_W] = rig_random_weight(r, dtype, 1, cols, 2);
    if (kind == WEIGHT_BIAS)
        call.m[DFX_NORM_B] = rig_random_weight(r, dtype, 1, cols, 3);
    if (kind == SCALE_SHIFT) {
        call.m[DFX_NORM_SCALE] = rig_random(r, 1, cols, ld, 4);
        call.m[DFX_NORM_SHIFT] = rig_random(r, 1, cols, ld, 5);
    }
    const float *want = layernorm_wanted(r, &call);
    call.m[0] = in_place ? call.m[DFX_NORM_X] : rig_poison(r, rows, cols, ld + 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, TOLERANCE);
}

static void layernorm_of_any_shape_equals_formula(void **state) {
    rig *r = *state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {16, 16}, {17, 31}, {50, 129}, {2, 3072}};
    for (size_t i = 0; i < DFX_COUNT(shapes); i++)
        for (affine kind = PLAIN; kind <= SCALE_SHIFT; kind++)
            check_layernorm(r, shapes[i][0], shapes[i][1], kind, DFX_DTYPE_F32, kind % 2);
}

static void layernorm_widens_any_weight(void **state) {
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F32, DFX_DTYPE_BF16, DFX_DTYPE_F16,
                                       DFX_DTYPE_F8_E4M3};
    for (size_t i = 0; i < DFX_COUNT(dtypes); i++)
        check_layernorm(*state, 5, 33, WEIGHT_BIAS, dtypes[i], false);
}

/* One pass over squares in f32 would find a variance of 0 or below. */
static void layernorm_of_large_mean_keeps_variance(void **state) {
    rig *r = *state;
    enum { D = 64 };
    float x[D], want[D];
    for (int i = 0; i < D; i++) {
        x[i] = 4096.0f + (i % 2 ? 0.5f : -0.5f);
        want[i] = i % 2 ? 1.0f : -1.0f;
    }
    dfx_op_call call = {.kind = DFX_OP_LAYERNORM};
    call.m[DFX_NORM_X] = rig_values(r, 1, D, D, x);
    call.m[0] = rig_poison(r, 1, D, D);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

static void check_rmsnorm(rig *r, int64_t rows, int64_t cols, dfx_dtype dtype, bool in_place) {
    int64_t ld = (cols + 7) / 4 * 4;
    dfx_op_call call = {.kind = DFX_OP_RMSNORM, .p.eps = 0.25f};
    call.m[DFX_NORM_X] = rig_random(r, rows, cols, ld, 6);
    call.m[DFX_NORM_W] = rig_random_weight(r, dtype, 1, cols, 7);
    float *want = rig_alloc(r, (size_t)(rows * cols) * sizeof(*want));
    for (int64_t t = 0; t < rows; t++) {
        double mean_sq = 0;
        for (int64_t i = 0; i < cols; i++)
            mean_sq += pow(rig_at(&call.m[DFX_NORM_X], t, i), 2) / (double)cols;
        for (int64_t i = 0; i < cols; i++)
            want[t * cols + i] = (float)(rig_at(&call.m[DFX_NORM_X], t, i) / sqrt(mean_sq + 0.25) *
                                         rig_at(&call.m[DFX_NORM_W], 0, i));
    }
    call.m[0] = in_place ? call.m[DFX_NORM_X] : rig_poison(r, rows, cols, ld + 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, TOLERANCE);
}

static void rmsnorm_of_any_shape_and_weight_equals_formula(void **state) {
    check_rmsnorm(*state, 1, 1, DFX_DTYPE_F32, false);
    check_rmsnorm(*state, 33, 7, DFX_DTYPE_BF16, true);
    check_rmsnorm(*state, 18, 130, DFX_DTYPE_F16, false);
    check_rmsnorm(*state, 5, 64, DFX_DTYPE_F32, true);
}

static void check_groupnorm(rig *r, int64_t pixels, int64_t channels, int n_groups, dfx_act act,
                            bool in_place) {
    int64_t ld = (channels + 7) / 4 * 4, width = channels / n_groups;
    dfx_op_call call = {.kind = DFX_OP_GROUPNORM};
    call.p = (dfx_op_params){.act = act, .n_groups = n_groups, .eps = 0.25f};
    call.m[DFX_NORM_X] = rig_random(r, pixels, channels, ld, 8);
    call.m[DFX_NORM_W] = rig_random_weight(r, DFX_DTYPE_BF16, 1, channels, 9);
    call.m[DFX_NORM_B] = rig_random_weight(r, DFX_DTYPE_F32, 1, channels, 10);
    const dfx_mat *x = &call.m[DFX_NORM_X];
    float *want = rig_alloc(r, (size_t)(pixels * channels) * sizeof(*want));
    for (int64_t g = 0; g < n_groups; g++) {
        double mean = 0, var = 0, n = (double)(pixels * width);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = g * width; c < (g + 1) * width; c++)
                mean += rig_at(x, p, c) / n;
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = g * width; c < (g + 1) * width; c++)
                var += pow(rig_at(x, p, c) - mean, 2) / n;
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                double y = (rig_at(x, p, c) - mean) / sqrt(var + 0.25);
                y = y * rig_at(&call.m[DFX_NORM_W], 0, c) + rig_at(&call.m[DFX_NORM_B], 0, c);
                want[p * channels + c] = (float)(act == DFX_ACT_SILU ? y / (1 + exp(-y)) : y);
            }
    }
    call.m[0] = in_place ? call.m[DFX_NORM_X] : rig_poison(r, pixels, channels, ld + 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, TOLERANCE);
}

static void groupnorm_of_any_shape_equals_formula(void **state) {
    check_groupnorm(*state, 1, 4, 2, DFX_ACT_NONE, false);
    check_groupnorm(*state, 255, 6, 3, DFX_ACT_SILU, true);
    check_groupnorm(*state, 257, 5, 1, DFX_ACT_NONE, true);
    check_groupnorm(*state, 1000, 24, 8, DFX_ACT_SILU, false);
    check_groupnorm(*state, 600, 7, 7, DFX_ACT_NONE, false);
}

/* Two groups of two channels over three pixels. Group 0: 1 3 1 3 1 3, mean 2, variance 1; group 1: 0 0 6 6 0 6, mean 3,
 * variance 9. eps 0. */
static void groupnorm_stats_are_those_worked_by_hand(void **state) {
    rig *r = *state;
    const float x[3 * 4] = {1, 3, 0, 0, 1, 3, 6, 6, 1, 3, 0, 6};
    const float w[4] = {1, -2, 3, 0.75f}, b[4] = {5, 0, -1, 0.5f};
    const float want[3 * 4] = {2, 2, 3, 3, 1, -2, 1, 0.25f, 5, 0, -1, 0.5f};
    dfx_op_call call = {.kind = DFX_OP_GROUPNORM_STATS, .p.n_groups = 2};
    call.m[DFX_NORM_X] = rig_values(r, 3, 4, 8, x);
    call.m[DFX_NORM_W] = rig_weight(r, DFX_DTYPE_BF16, 1, 4, w);
    call.m[DFX_NORM_B] = rig_weight(r, DFX_DTYPE_F32, 1, 4, b);
    call.m[0] = rig_poison(r, 3, 4, 8);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

/* (x - norm[0]) * norm[1] + norm[2] is what GROUPNORM gives, to the bit. */
static void groupnorm_stats_are_what_groupnorm_applies(void **state) {
    rig *r = *state;
    enum { PIXELS = 700, CHANNELS = 24 };
    dfx_op_call norm = {.kind = DFX_OP_GROUPNORM, .p = {.n_groups = 8, .eps = 0.25f}}, stats;
    norm.m[DFX_NORM_X] = rig_random(r, PIXELS, CHANNELS, 28, 11);
    norm.m[DFX_NORM_W] = rig_random_weight(r, DFX_DTYPE_F16, 1, CHANNELS, 12);
    norm.m[DFX_NORM_B] = rig_random_weight(r, DFX_DTYPE_BF16, 1, CHANNELS, 13);
    stats = norm;
    stats.kind = DFX_OP_GROUPNORM_STATS;
    norm.m[0] = rig_poison(r, PIXELS, CHANNELS, 24);
    stats.m[0] = rig_poison(r, 3, CHANNELS, 32);
    rig_run(r, &norm);
    rig_run(r, &stats);
    float *want = rig_alloc(r, PIXELS * CHANNELS * sizeof(*want));
    const float *s = stats.m[0].ptr;
    for (int64_t i = 0; i < PIXELS * CHANNELS; i++) {
        int64_t c = i % CHANNELS;
        float x = (float)rig_at(&norm.m[DFX_NORM_X], i / CHANNELS, c);
        want[i] = (x - s[c]) * s[32 + c] + s[64 + c];
    }
    rig_same(&norm.m[0], want, 0);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(layernorm_equals_clip_final_norm),
        WITH_RIG(layernorm_modulated_equals_flux_single_block),
        WITH_RIG(rmsnorm_equals_t5_final_norm),
        WITH_RIG(groupnorm_equals_vae_norm_out),
        WITH_RIG(layernorm_of_any_shape_equals_formula),
        WITH_RIG(layernorm_widens_any_weight),
        WITH_RIG(layernorm_of_large_mean_keeps_variance),
        WITH_RIG(rmsnorm_of_any_shape_and_weight_equals_formula),
        WITH_RIG(groupnorm_of_any_shape_equals_formula),
        WITH_RIG(groupnorm_stats_are_those_worked_by_hand),
        WITH_RIG(groupnorm_stats_are_what_groupnorm_applies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
