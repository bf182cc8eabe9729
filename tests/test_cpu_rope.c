/* QK norm and rotary embedding: taps of diffusers, and the formula in double. Tolerance as in
 * test_cpu_norm.c. */
#include "tests/cpu_rig.h"

#include <math.h>

#include "tests/tiny.h"

static const double TOLERANCE = 8e-6;

/* Tables of diffusers hold every angle twice, once for each value of a pair; ours once. */
static dfx_mat half_table(rig *r, const char *file, const char *name, int64_t rows, int64_t head) {
    const float *twice = rig_golden(r, file, name, (size_t)(rows * head));
    float *once = rig_alloc(r, (size_t)(rows * head / 2) * sizeof(*once));
    for (int64_t i = 0; i < rows * head / 2; i++) {
        assert_true(twice[2 * i] == twice[2 * i + 1]);
        once[i] = twice[2 * i];
    }
    return rig_values(r, rows, head / 2, head / 2, once);
}

/* norm_q(to_q(x)) and its three sisters; to_q is the one whose input is stored. */
static void qknorm_without_rope_equals_flux_norm_q(void **state) {
    rig *r = *state;
    enum { T = 15, H = 2, E = 128 };
    float w[E];
    assert_int_equal(tiny_fill("transformer", "transformer_blocks.0.attn.norm_q.weight", w, E),
                     DFX_OK);
    dfx_op_call call = {.kind = DFX_OP_QKNORM_ROPE, .p.n_heads = H, .p.eps = 1e-6f};
    call.m[0] =
        rig_values(r, T, H * E, H * E + 4, rig_golden(r, "flux", "ns.mid.double0.to_q", T * H * E));
    call.m[DFX_QKNORM_W] = rig_weight(r, DFX_DTYPE_BF16, 1, E, w);
    rig_run(r, &call);
    rig_same(&call.m[0], rig_golden(r, "flux", "ns.mid.double0.norm_q", T * H * E), TOLERANCE);
}

/* Rotation is linear, so a norm with unit weights only scales what diffusers rotated. */
static void rope_equals_diffusers(void **state) {
    rig *r = *state;
    enum { T = 19, H = 2, E = 128 };
    const float *x = rig_golden(r, "misc", "rope.apply.in", T * H * E);
    const float *rotated = rig_golden(r, "misc", "rope.apply.out", T * H * E);
    float ones[E], want[T * H * E];
    for (int i = 0; i < E; i++)
        ones[i] = 1;
    for (int head = 0; head < T * H; head++) {
        double mean_sq = 0;
        for (int i = 0; i < E; i++)
            mean_sq += pow((double)x[head * E + i], 2) / E;
        for (int i = 0; i < E; i++)
            want[head * E + i] = (float)((double)rotated[head * E + i] / sqrt(mean_sq + 1e-6));
    }
    dfx_op_call call = {.kind = DFX_OP_QKNORM_ROPE, .p.n_heads = H, .p.eps = 1e-6f};
    call.m[0] = rig_values(r, T, H * E, H * E, x);
    call.m[DFX_QKNORM_W] = rig_weight(r, DFX_DTYPE_F32, 1, E, ones);
    call.m[DFX_QKNORM_COS] = half_table(r, "misc", "rope.small.cos", T, E);
    call.m[DFX_QKNORM_SIN] = half_table(r, "misc", "rope.small.sin", T, E);
    rig_run(r, &call);
    rig_same(&call.m[0], want, TOLERANCE);
}

static void check_formula(rig *r, int64_t n_tokens, int n_heads, int64_t head, dfx_dtype dtype,
                          bool rope) {
    int64_t width = n_heads * head, ld = (width + 7) / 4 * 4;
    dfx_op_call call = {.kind = DFX_OP_QKNORM_ROPE, .p.n_heads = n_heads, .p.eps = 0.25f};
    call.m[0] = rig_random(r, n_tokens, width, ld, 1);
    call.m[DFX_QKNORM_W] = rig_random_weight(r, dtype, 1, head, 2);
    if (rope) {
        call.m[DFX_QKNORM_COS] = rig_random(r, n_tokens, head / 2, (head / 2 + 7) / 4 * 4, 3);
        call.m[DFX_QKNORM_SIN] = rig_random(r, n_tokens, head / 2, (head / 2 + 3) / 4 * 4, 4);
    }
    float *want = rig_alloc(r, (size_t)(n_tokens * width) * sizeof(*want));
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t h0 = 0; h0 < width; h0 += head) {
            double mean_sq = 0;
            for (int64_t i = 0; i < head; i++)
                mean_sq += pow(rig_at(&call.m[0], t, h0 + i), 2) / (double)head;
            for (int64_t i = 0; i < head; i++) {
                int64_t other = i ^ 1; /* the other value of the pair */
                double rstd = 1 / sqrt(mean_sq + 0.25);
                double own =
                    rig_at(&call.m[0], t, h0 + i) * rstd * rig_at(&call.m[DFX_QKNORM_W], 0, i);
                if (rope) {
                    double turned = rig_at(&call.m[0], t, h0 + other) * rstd *
                                    rig_at(&call.m[DFX_QKNORM_W], 0, other);
                    double sine = rig_at(&call.m[DFX_QKNORM_SIN], t, i / 2);
                    own = own * rig_at(&call.m[DFX_QKNORM_COS], t, i / 2) +
                          (i % 2 ? turned * sine : -turned * sine);
                }
                want[t * width + h0 + i] = (float)own;
            }
        }
    }
    rig_run(r, &call);
    rig_same(&call.m[0], want, 2 * TOLERANCE); /* random tables are not unit vectors: up to 16 */
}

static void qknorm_rope_of_any_shape_equals_formula(void **state) {
    check_formula(*state, 1, 1, 2, DFX_DTYPE_F32, true);
    check_formula(*state, 17, 3, 10, DFX_DTYPE_BF16, true);
    check_formula(*state, 40, 2, 64, DFX_DTYPE_F16, true);
    check_formula(*state, 5, 3, 7, DFX_DTYPE_F32, false);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(qknorm_without_rope_equals_flux_norm_q),
        WITH_RIG(rope_equals_diffusers),
        WITH_RIG(qknorm_rope_of_any_shape_equals_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
