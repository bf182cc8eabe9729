/* LoHa, LoKr and DoRA: the factors of a part give what the definition of the kind gives (LyCORIS: an elementwise product of two
 * products, a Kronecker product; PEFT: rows of a norm). Acceptance case C10. */
#include "tests/lora_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small whole numbers, none zero, so that every sum is exact. */
static void fill(float *dst, size_t n, uint32_t seed) {
    static const float values[] = {1, -2, 3, 2, -1, -3};
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        dst[i] = values[(seed >> 20) % DFX_COUNT(values)];
    }
}

static void multiply(const float *a, const float *b, int n, int r, int k, float *out) {
    for (int y = 0; y < n; y++)
        for (int x = 0; x < k; x++) {
            out[y * k + x] = 0;
            for (int i = 0; i < r; i++)
                out[y * k + x] += a[y * r + i] * b[i * k + x];
        }
}

static void add(lora_file *f, const char *base, const char *ending, int rows, int cols,
                const float *values) {
    char name[128];
    snprintf(name, sizeof(name), "%s.%s", base, ending);
    lora_file_add(f, name, rows, cols, values);
}

/* ---- LoHa ---- */

enum { QKV_N = 6, QKV_K = 2 };

/* qkv [6, 2] by factors of ranks r1 and r2; what it gives into want. */
static void add_loha(lora_file *f, const char *base, int r1, int r2, float want[QKV_N * QKV_K]) {
    float a1[64], b1[64], a2[64], b2[64], w1[12], w2[12];
    fill(a1, (size_t)(QKV_N * r1), 1);
    fill(b1, (size_t)(r1 * QKV_K), 2);
    fill(a2, (size_t)(QKV_N * r2), 3);
    fill(b2, (size_t)(r2 * QKV_K), 4);
    add(f, base, "hada_w1_a", QKV_N, r1, a1);
    add(f, base, "hada_w1_b", r1, QKV_K, b1);
    add(f, base, "hada_w2_a", QKV_N, r2, a2);
    add(f, base, "hada_w2_b", r2, QKV_K, b2);
    multiply(a1, b1, QKV_N, r1, QKV_K, w1);
    multiply(a2, b2, QKV_N, r2, QKV_K, w2);
    for (int i = 0; i < QKV_N * QKV_K; i++)
        want[i] = w1[i] * w2[i];
}

static void lora_loha_is_an_elementwise_product_of_products(void **state) {
    static const char *const layers[] = {"transformer_blocks.0.attn.to_q",
                                         "transformer_blocks.0.attn.to_k",
                                         "transformer_blocks.0.attn.to_v"};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (int r = 1; r <= 3; r++) {
        float want[QKV_N * QKV_K];
        lora_file f;
        lora_file_begin(&f);
        add_loha(&f, "lycoris_double_blocks_0_img_attn_qkv", r, 3, want);
        lora_file_scalar(&f, "lycoris_double_blocks_0_img_attn_qkv.alpha", (float)(2 * r));
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        assert_int_equal(dfx_lora_facts_of(lora)->n_loha, 1);
        for (int i = 0; i < QKV_N * QKV_K; i++)
            want[i] *= 2; /* alpha / rows of w1_b */
        for (int p = 0; p < 3; p++) {
            assert_int_equal(dfx_lora_find(lora, DFX_TRANSFORMER, layers[p])->rank, 3 * r);
            lora_delta_is(lora, DFX_TRANSFORMER, layers[p], 4, want + 4 * p);
        }
        dfx_lora_close(lora);
    }
}

/* By hand: [1;2][1,1] * [3;1][1,2] = [[1,1],[2,2]] * [[3,6],[1,2]]. */
static void lora_loha_by_hand(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    const char *base = "transformer.transformer_blocks.0.attn.to_out.0";
    lora_file f;
    lora_file_begin(&f);
    add(&f, base, "hada_w1_a", 2, 1, (float[]){1, 2});
    add(&f, base, "hada_w1_b", 1, 2, (float[]){1, 1});
    add(&f, base, "hada_w2_a", 2, 1, (float[]){3, 1});
    add(&f, base, "hada_w2_b", 1, 2, (float[]){1, 2});
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_out.0", 4,
                  (float[]){3, 6, 2, 4});
    dfx_lora_close(lora);
}

static void lora_loha_of_the_final_layer_is_swapped(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    add(&f, "final_layer.adaLN_modulation.1", "hada_w1_a", 4, 1, (float[]){1, 2, 3, 4});
    add(&f, "final_layer.adaLN_modulation.1", "hada_w1_b", 1, 2, (float[]){1, 2});
    add(&f, "final_layer.adaLN_modulation.1", "hada_w2_a", 4, 1, (float[]){1, 1, 1, 2});
    add(&f, "final_layer.adaLN_modulation.1", "hada_w2_b", 1, 2, (float[]){1, 1});
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    lora_delta_is(lora, DFX_TRANSFORMER, "norm_out.linear", 8, (float[]){3, 6, 8, 16, 1, 2, 2, 4});
    dfx_lora_close(lora);
}

static void lora_loha_beyond_a_rank_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    static float values[400];
    lora_file f;
    fill(values, DFX_COUNT(values), 9);
    lora_file_begin(&f);
    add(&f, "proj_out", "hada_w1_a", 4, 23, values);
    add(&f, "proj_out", "hada_w1_b", 23, 2, values);
    add(&f, "proj_out", "hada_w2_a", 4, 23, values);
    add(&f, "proj_out", "hada_w2_b", 23, 2, values);
    lora_file_write(&f, dir, lora_name);
    lora_rejects(dir, &configs, "this LoHa has rank 23 x 23, wanted at most 512");
}

/* ---- LoKr ---- */

/* A layer [12, 8], which has many factorizations. */
static dfx_configs kron_configs(void) {
    dfx_configs c = lora_configs();
    c.clip.width = 8;
    c.clip.mlp_width = 12;
    return c;
}
#define KRON_NAME "lora_te1_text_model_encoder_layers_0_mlp_fc1"
#define KRON_LAYER "text_model.encoder.layers.0.mlp.fc1"

/* One side of a Kronecker product: whole (r 0), or of inner side r. */
static void add_side(lora_file *f, const char *side, int o, int i, int r, uint32_t seed,
                     float *want) {
    float a[128], b[128];
    char name[64];
    fill(a, (size_t)(r ? o * r : o * i), seed);
    if (r == 0) {
        add(f, KRON_NAME, side, o, i, a);
        memcpy(want, a, (size_t)(o * i) * sizeof(*a));
        return;
    }
    fill(b, (size_t)(r * i), seed + 1);
    snprintf(name, sizeof(name), "%s_a", side);
    add(f, KRON_NAME, name, o, r, a);
    snprintf(name, sizeof(name), "%s_b", side);
    add(f, KRON_NAME, name, r, i, b);
    multiply(a, b, o, r, i, want);
}

static void lora_lokr_is_a_kronecker_product(void **state) {
    /* [12, 8] = [o1, i1] x [o2, i2]; inner sides of w1 and w2 (0: whole); what the rank and scale for alpha 6 then are. */
    static const struct {
        int o1, i1, r1, r2, rank;
        float scale;
    } table[] = {
        {3, 2, 0, 1, 2, 6},  /* w1 whole of rank 2, w2 of rank 1 */
        {2, 4, 0, 2, 4, 3},  /* a w1 wider than high */
        {3, 2, 1, 2, 2, 3},  /* both are products */
        {3, 2, 1, 0, 4, 6},  /* w2 whole [4, 4] */
        {3, 2, 0, 0, 8, 1},  /* both whole: 2 x 4, and no scale */
        {6, 8, 3, 0, 3, 2},  /* w2 [2, 1]: higher than wide */
        {3, 2, 5, 6, 8, 1},  /* inner sides beyond the outer ones: 2 x 4 */
        {12, 8, 0, 1, 8, 6}, /* w2 of one value */
    };
    tmpdir *dir = *state;
    dfx_configs configs = kron_configs();
    for (size_t t = 0; t < DFX_COUNT(table); t++) {
        int o1 = table[t].o1, i1 = table[t].i1, o2 = 12 / o1, i2 = 8 / i1;
        float w1[96], w2[96], want[96];
        lora_file f;
        lora_file_begin(&f);
        add_side(&f, "lokr_w1", o1, i1, table[t].r1, 11, w1);
        add_side(&f, "lokr_w2", o2, i2, table[t].r2, 21, w2);
        lora_file_scalar(&f, KRON_NAME ".alpha", 6);
        lora_file_write(&f, dir, lora_name);
        for (int y = 0; y < 12; y++)
            for (int x = 0; x < 8; x++)
                want[y * 8 + x] =
                    table[t].scale * (w1[y / o2 * i1 + x / i2] * w2[y % o2 * i2 + x % i2]);
        dfx_lora *lora = lora_opens(dir, &configs);
        const dfx_lora_part *p = dfx_lora_find(lora, DFX_CLIP, KRON_LAYER);
        assert_int_equal(dfx_lora_facts_of(lora)->n_lokr, 1);
        assert_int_equal(p->rank, table[t].rank);
        assert_true(p->scale == table[t].scale);
        lora_delta_is(lora, DFX_CLIP, KRON_LAYER, 96, want);
        dfx_lora_close(lora);
    }
}

static void lora_lokr_of_a_fused_layer_is_cut(void **state) {
    static const float w1[] = {1, 2, 3}, w2[] = {1, 2, 3, 4}; /* kron([3, 1], [2, 2]) = [6, 2] */
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    lora_file f;
    lora_file_begin(&f);
    add(&f, "lycoris_double_blocks_1_txt_attn_qkv", "lokr_w1", 3, 1, w1);
    add(&f, "lycoris_double_blocks_1_txt_attn_qkv", "lokr_w2", 2, 2, w2);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.add_q_proj", 4,
                  (float[]){1, 2, 3, 4});
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.add_k_proj", 4,
                  (float[]){2, 4, 6, 8});
    lora_delta_is(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.add_v_proj", 4,
                  (float[]){3, 6, 9, 12});
    dfx_lora_close(lora);
}

static void lora_lokr_that_is_incomplete_or_of_another_shape_is_refused(void **state) {
    static const struct {
        const char *endings[4];
        int rows[4], cols[4];
        const char *words;
    } table[] = {
        {{"lokr_w1"}, {2}, {1}, "LoKr wants lokr_w1 or"},
        {{"lokr_w1", "lokr_w2_a"}, {2, 2}, {1, 1}, "LoKr wants"},
        {{"lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2"},
         {2, 2, 1, 2},
         {1, 1, 1, 2},
         "LoKr wants"},
        {{"lokr_w1", "lokr_w2"},
         {2, 2},
         {1, 1},
         "LoKr of [2, 1] and [2, 1], wanted the product "
         "[4, 2] of the layer proj_out"},
        {{"lokr_w1", "lokr_w2_a", "lokr_w2_b"},
         {2, 2, 2},
         {1, 1, 2},
         "has 1 columns, proj_out.lokr_w2_b has 2 rows"},
        {{"lokr_w1", "lora_A.weight"}, {2, 2}, {1, 2}, "factors of two kinds"},
        {{"hada_w1_a", "hada_w1_b"}, {4, 1}, {1, 2}, "LoHa wants"},
    };
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    float values[64];
    fill(values, DFX_COUNT(values), 5);
    for (size_t t = 0; t < DFX_COUNT(table); t++) {
        lora_file f;
        lora_file_begin(&f);
        for (int i = 0; i < 4 && table[t].endings[i]; i++)
            add(&f, "proj_out", table[t].endings[i], table[t].rows[i], table[t].cols[i], values);
        lora_file_write(&f, dir, lora_name);
        lora_rejects(dir, &configs, table[t].words);
    }
}

static void lora_lokr_beyond_a_rank_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    configs.clip.width = 48;
    configs.clip.mlp_width = 1200;
    static float values[1200 * 2];
    lora_file f;
    fill(values, DFX_COUNT(values), 9);
    lora_file_begin(&f);
    add(&f, KRON_NAME, "lokr_w1", 30, 24, values);
    add(&f, KRON_NAME, "lokr_w2_a", 40, 23, values);
    add(&f, KRON_NAME, "lokr_w2_b", 23, 2, values);
    lora_file_write(&f, dir, lora_name);
    /* the inner side 23 does not count: w2 is [40, 2] */
    dfx_lora_close(lora_opens(dir, &configs));
    lora_file_begin(&f);
    configs.clip.width = 24 * 24;
    add(&f, KRON_NAME, "lokr_w1", 30, 24, values);
    add(&f, KRON_NAME, "lokr_w2", 40, 24, values);
    lora_file_write(&f, dir, lora_name);
    lora_rejects(dir, &configs, "this LoKr has rank 24 x 24, wanted at most 512");
}

/* ---- DoRA ---- */

/* W = [[3,4],[0,2]], BA = [[1,0],[0,0]], magnitude [10, 1] of rows: [[7.071068, 7.071068], [0, 1]]. */
static void lora_dora_carries_its_magnitude(void **state) {
    static const char *const endings[] = {"dora_scale", "lora_magnitude_vector",
                                          "lora_magnitude_vector.weight",
                                          "lora_magnitude_vector.default.weight"};
    static const float w[] = {3, 4, 0, 2}, want[] = {7.071068f, 7.071068f, 0, 1};
    static const int64_t shapes[][2] = {{2, 1}, {2, 0}};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (size_t i = 0; i < DFX_COUNT(endings); i++) {
        const char *base = "transformer.transformer_blocks.1.attn.to_q";
        char name[128];
        float m[2];
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, base, 1, 2, (float[]){1, 0}, 2, (float[]){1, 0});
        snprintf(name, sizeof(name), "%s.%s", base, endings[i]);
        lora_file_tensor(&f, name, DFX_DTYPE_F32, i == 0 ? 2 : 1, shapes[i != 0], (float[]){10, 1});
        lora_file_write(&f, dir, lora_name);
        dfx_lora *lora = lora_opens(dir, &configs);
        const dfx_lora_part *p =
            dfx_lora_find(lora, DFX_TRANSFORMER, "transformer_blocks.1.attn.to_q");
        assert_int_equal(p->magnitude, DFX_LORA_MAGNITUDE_ROWS);
        assert_int_equal(dfx_lora_facts_of(lora)->n_dora, 1);
        assert_int_equal(dfx_lora_magnitude(lora, p, &dir->log.sink, m), DFX_OK);
        float *delta = lora_delta(lora, DFX_TRANSFORMER, p->layer);
        for (int y = 0; y < 2; y++) {
            float a = w[2 * y] + delta[2 * y], b = w[2 * y + 1] + delta[2 * y + 1];
            float norm = sqrtf(a * a + b * b);
            assert_true(fabsf(m[y] * a / norm - want[2 * y]) < 1e-6f);
            assert_true(fabsf(m[y] * b / norm - want[2 * y + 1]) < 1e-6f);
        }
        free(delta);
        dfx_lora_close(lora);
    }
}

/* Rows of a fused magnitude are cut as its layers are; a zero delta with a magnitude is not nothing. */
static void lora_dora_of_a_fused_layer_is_cut(void **state) {
    static const float down[] = {1, 2}, zero[6] = {0}, m[] = {1, 2, 3, 4, 5, 6};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    float got[2];
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "double_blocks.0.img_attn.qkv", 1, 2, down, 6, zero);
    lora_file_add(&f, "double_blocks.0.img_attn.qkv.dora_scale", 6, 1, m);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    assert_int_equal(dfx_lora_n_parts(lora), 3);
    const dfx_lora_part *k = dfx_lora_find(lora, DFX_TRANSFORMER, "transformer_blocks.0.attn.to_k");
    assert_int_equal(dfx_lora_magnitude(lora, k, &dir->log.sink, got), DFX_OK);
    assert_true(got[0] == 3 && got[1] == 4);
    dfx_lora_close(lora);
}

static void lora_dora_over_columns_is_told_apart(void **state) {
    static const float A[] = {1, 2, 3, 4}, B[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    float got[2];
    lora_file f;
    lora_file_begin(&f);
    lora_file_pair(&f, "proj_out", 2, 2, A, 4, B);
    lora_file_add(&f, "proj_out.dora_scale", 1, 2, A);
    lora_file_write(&f, dir, lora_name);
    dfx_lora *lora = lora_opens(dir, &configs);
    const dfx_lora_part *p = dfx_lora_find(lora, DFX_TRANSFORMER, "proj_out");
    assert_int_equal(p->magnitude, DFX_LORA_MAGNITUDE_COLUMNS);
    assert_int_equal(dfx_lora_magnitude(lora, p, &dir->log.sink, got), DFX_OK);
    assert_true(got[0] == 1 && got[1] == 2);
    dfx_lora_close(lora);

    lora_file_begin(&f);
    lora_file_pair(&f, "double_blocks.0.img_attn.qkv", 2, 2, A, 6, B);
    lora_file_add(&f, "double_blocks.0.img_attn.qkv.dora_scale", 1, 2, A);
    lora_file_write(&f, dir, lora_name);
    lora_rejects(dir, &configs, "which cannot be cut");
}

static void lora_dora_of_a_wrong_shape_is_refused(void **state) {
    static const float A[] = {1, 2, 3, 4}, B[] = {1, 2, 3, 4, 5, 6, 7, 8}, bad[] = {1, NAN, 1, 1};
    tmpdir *dir = *state;
    dfx_configs configs = lora_configs();
    for (int i = 0; i < 3; i++) {
        lora_file f;
        lora_file_begin(&f);
        lora_file_pair(&f, "proj_out", 2, 2, A, 4, B);
        lora_file_add(&f, "proj_out.dora_scale",
                      i == 1   ? 1
                      : i == 0 ? 2
                               : 4,
                      i == 1 ? 4 : 1, i == 2 ? bad : A);
        lora_file_write(&f, dir, lora_name);
        lora_rejects(dir, &configs,
                     i < 2 ? "wanted a DoRA magnitude [4] or [1, 2]"
                           : "proj_out.dora_scale: a value is not finite");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lora_loha_is_an_elementwise_product_of_products),
        TEST(lora_loha_by_hand),
        TEST(lora_loha_of_the_final_layer_is_swapped),
        TEST(lora_loha_beyond_a_rank_is_refused),
        TEST(lora_lokr_is_a_kronecker_product),
        TEST(lora_lokr_of_a_fused_layer_is_cut),
        TEST(lora_lokr_that_is_incomplete_or_of_another_shape_is_refused),
        TEST(lora_lokr_beyond_a_rank_is_refused),
        TEST(lora_dora_carries_its_magnitude),
        TEST(lora_dora_of_a_fused_layer_is_cut),
        TEST(lora_dora_over_columns_is_told_apart),
        TEST(lora_dora_of_a_wrong_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
