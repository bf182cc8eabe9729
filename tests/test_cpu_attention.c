/* ATTENTION on the CPU against double precision loops of its formula.
 *
 * Tolerance: y is a mean of values in [-2, 2). Scores of a few tens, rounded in f32, are off by about 2^-20, and so are
 * the weights, relatively: 2e-5 leaves a factor of five. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <string.h>

typedef struct shape {
    int64_t tq, tk;
    int n_heads;
    int64_t head;
    bool causal, bias;
} shape;

static float *expected(rig *r, const dfx_op_call *call) {
    const dfx_mat *y = &call->m[0], *q = &call->m[DFX_ATTN_Q], *k = &call->m[DFX_ATTN_K];
    const dfx_mat *v = &call->m[DFX_ATTN_V], *bias = &call->m[DFX_ATTN_BIAS];
    int64_t e = y->cols / call->p.n_heads;
    float *want = rig_alloc(r, (size_t)(y->rows * y->cols) * sizeof(*want));
    double *p = rig_alloc(r, (size_t)k->rows * sizeof(*p));
    for (int64_t h = 0; h < call->p.n_heads; h++)
        for (int64_t t = 0; t < q->rows; t++) {
            int64_t n_seen = call->p.causal && t + 1 < k->rows ? t + 1 : k->rows;
            double max = -INFINITY, sum = 0;
            for (int64_t s = 0; s < n_seen; s++) {
                double dot = 0;
                for (int64_t i = 0; i < e; i++)
                    dot += rig_at(q, t, h * e + i) * rig_at(k, s, h * e + i);
                p[s] = (double)call->p.scale * dot;
                if (bias->ptr)
                    p[s] += rig_at(bias, h, s - t + k->rows - 1);
                max = fmax(max, p[s]);
            }
            for (int64_t s = 0; s < n_seen; s++) {
                p[s] = exp(p[s] - max);
                sum += p[s];
            }
            for (int64_t i = 0; i < e; i++) {
                double mean = 0;
                for (int64_t s = 0; s < n_seen; s++)
                    mean += p[s] / sum * rig_at(v, s, h * e + i);
                want[t * y->cols + h * e + i] = (float)mean;
            }
        }
    return want;
}

static void attention_equals_double_loops(void **state) {
    rig *r = *state;
    static const shape shapes[] = {
        {1, 1, 1, 1, false, false},    {1, 1, 2, 4, true, true},
        {5, 9, 3, 4, false, false},    {5, 9, 3, 4, false, true},
        {9, 5, 3, 4, true, false},     {77, 77, 2, 64, true, false},
        {63, 63, 4, 16, false, true},  {64, 64, 1, 8, true, true},
        {65, 130, 2, 24, true, false}, {129, 129, 2, 7, true, true},
        {1, 300, 3, 128, false, true}, {130, 333, 2, 20, false, false},
    };
    for (size_t i = 0; i < DFX_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        int64_t width = s->n_heads * s->head, wide = (width + 3) / 4 * 4;
        dfx_op_call call = {
            .kind = DFX_OP_ATTENTION,
            .p = {.n_heads = s->n_heads, .scale = 1 / sqrtf((float)s->head), .causal = s->causal}};
        call.m[DFX_ATTN_Q] = rig_random(r, s->tq, width, wide + 4, 1);
        call.m[DFX_ATTN_K] = rig_random(r, s->tk, width, wide + 8, 2);
        call.m[DFX_ATTN_V] = rig_random(r, s->tk, width, wide + 12, 3);
        if (s->bias)
            call.m[DFX_ATTN_BIAS] = rig_random(r, s->n_heads, 2 * s->tk - 1, 4 * s->tk, 4);
        call.m[0] = rig_poison(r, s->tq, width, wide + 16);
        float *want = expected(r, &call);
        rig_run(r, &call);
        rig_same(&call.m[0], want, 2e-5);
    }
}

/* Scores of +-1000 and more: all weight on one key, whose v must come out untouched. */
static void attention_with_huge_scores_picks_the_greatest(void **state) {
    rig *r = *state;
    float q[] = {100, 0, 0, 0, -100, 0, 0, 0}, want[8];
    float k[] = {0, 1, 1, 1, 50, 2, 3, 4, -50, 5, 6, 7};
    float v[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    memcpy(want, v + 4, 4 * sizeof(float));
    memcpy(want + 4, v + 8, 4 * sizeof(float));
    dfx_op_call call = {.kind = DFX_OP_ATTENTION, .p = {.n_heads = 1, .scale = 1}};
    call.m[DFX_ATTN_Q] = rig_values(r, 2, 4, 4, q);
    call.m[DFX_ATTN_K] = rig_values(r, 3, 4, 4, k);
    call.m[DFX_ATTN_V] = rig_values(r, 3, 4, 4, v);
    call.m[0] = rig_poison(r, 2, 4, 4);
    rig_run(r, &call);
    rig_same(&call.m[0], want, 0);
}

/* Keys beyond a block of queries are not even looked at: they may hold NaN. */
static void attention_causal_ignores_keys_after_the_last_query(void **state) {
    rig *r = *state;
    dfx_op_call call = {.kind = DFX_OP_ATTENTION,
                        .p = {.n_heads = 1, .scale = 0.5f, .causal = true}};
    dfx_mat q = rig_random(r, 70, 8, 8, 1), k = rig_random(r, 70, 8, 8, 2);
    dfx_mat v = rig_random(r, 70, 8, 8, 3), y = rig_poison(r, 70, 8, 8);
    call.m[0] = y, call.m[DFX_ATTN_Q] = q, call.m[DFX_ATTN_K] = k, call.m[DFX_ATTN_V] = v;
    float *want = expected(r, &call);
    for (int64_t i = 64 * 8; i < 70 * 8; i++)
        ((float *)k.ptr)[i] = ((float *)v.ptr)[i] = NAN;
    call.m[0].rows = call.m[DFX_ATTN_Q].rows = 64;
    rig_run(r, &call);
    rig_same(&call.m[0], want, 2e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attention_equals_double_loops, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(attention_with_huge_scores_picks_the_greatest, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(attention_causal_ignores_keys_after_the_last_query,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
