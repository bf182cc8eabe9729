/* T5's relative bias: taps of transformers, which are exact, and the bucket boundaries. */
#include "tests/cpu_rig.h"

#include <math.h>
#include <stdlib.h>

#include "tests/tiny.h"

static dfx_mat tiny_table(rig *r, const char *component, const char *name, int64_t rows,
                          int64_t cols) {
    float *values = rig_alloc(r, (size_t)(rows * cols) * sizeof(*values));
    assert_int_equal(tiny_fill(component, name, values, (size_t)(rows * cols)), DFX_OK);
    return rig_weight(r, DFX_DTYPE_BF16, rows, cols, values);
}

static dfx_op_call rel_bias_call(rig *r, dfx_mat table, int64_t n_tokens, int max_distance) {
    dfx_op_call call = {.kind = DFX_OP_REL_BIAS};
    call.p.n_buckets = (int)table.rows;
    call.p.max_distance = max_distance;
    call.m[1] = table;
    int64_t n = 2 * n_tokens - 1;
    call.m[0] = rig_poison(r, table.cols, n, (n + 7) / 4 * 4);
    return call;
}

static dfx_mat t5_bias_table(rig *r) {
    const char *name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    return tiny_table(r, "t5_small_vocab", name, 32, 2);
}

static void rel_bias_equals_t5_for_every_pair(void **state) {
    rig *r = *state;
    enum { T = 40 };
    dfx_op_call call = rel_bias_call(r, t5_bias_table(r), T, 128);
    rig_run(r, &call);
    const float *want = rig_golden(r, "t5", "position_bias_40", 2 * T * T);
    for (int h = 0; h < 2; h++)
        for (int query = 0; query < T; query++)
            for (int key = 0; key < T; key++)
                assert_true(rig_at(&call.m[0], h, key - query + T - 1) ==
                            (double)want[(h * T + query) * T + key]);
}

static void rel_bias_equals_t5_far_ahead(void **state) {
    rig *r = *state;
    enum { T = 300 };
    dfx_op_call call = rel_bias_call(r, t5_bias_table(r), T, 128);
    rig_run(r, &call);
    const float *want = rig_golden(r, "t5", "position_bias_300_row0", 2 * T);
    for (int h = 0; h < 2; h++)
        for (int key = 0; key < T; key++)
            assert_true(rig_at(&call.m[0], h, key + T - 1) == (double)want[h * T + key]);
}

/* table[b, h] = b + 100 h, so that a result names its bucket. More heads than a buffer on the stack
 * holds. */
static dfx_mat naming_table(rig *r, int n_buckets, int n_heads) {
    float *values = rig_alloc(r, (size_t)n_buckets * (size_t)n_heads * sizeof(*values));
    for (int b = 0; b < n_buckets; b++)
        for (int h = 0; h < n_heads; h++)
            values[b * n_heads + h] = (float)(b + 100 * h);
    return rig_weight(r, DFX_DTYPE_F32, n_buckets, n_heads, values);
}

static void check_buckets(rig *r, int n_buckets, int max_distance, int n_tokens,
                          const int *first_of_bucket) {
    enum { HEADS = 70 };
    dfx_mat table = naming_table(r, n_buckets, HEADS);
    dfx_op_call call = rel_bias_call(r, table, n_tokens, max_distance);
    rig_run(r, &call);
    for (int d = -(n_tokens - 1); d < n_tokens; d++) {
        int bucket = 0;
        while (bucket + 1 < n_buckets / 2 && abs(d) >= first_of_bucket[bucket + 1])
            bucket++;
        bucket += d > 0 ? n_buckets / 2 : 0;
        for (int h = 0; h < HEADS; h++)
            assert_true(rig_at(&call.m[0], h, d + n_tokens - 1) == bucket + 100 * h);
    }
}

/* The first distance of each of the 16 buckets of a half, as computed with transformers. */
static void rel_bias_boundaries_of_32_buckets(void **state) {
    static const int first[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    check_buckets(*state, 32, 128, 512, first);
}

/* By hand: halves of 4, 2 of them exact; 2 + 2 ln(n/2) / ln(8) is 3 at n = 2 sqrt(8) = 5.66. */
static void rel_bias_boundaries_of_8_buckets(void **state) {
    static const int first[] = {0, 1, 2, 6};
    check_buckets(*state, 8, 16, 40, first);
}

static void rel_bias_of_one_token_is_bucket_0(void **state) {
    rig *r = *state;
    dfx_op_call call = rel_bias_call(r, naming_table(r, 32, 3), 1, 128);
    rig_run(r, &call);
    static const float want[] = {0, 100, 200};
    rig_same(&call.m[0], want, 0);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(rel_bias_equals_t5_for_every_pair), WITH_RIG(rel_bias_equals_t5_far_ahead),
        WITH_RIG(rel_bias_boundaries_of_32_buckets), WITH_RIG(rel_bias_boundaries_of_8_buckets),
        WITH_RIG(rel_bias_of_one_token_is_bucket_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
