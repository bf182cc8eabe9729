/* Names of formats, patterns, and the table of formats over every tensor of FLUX.1-dev and its
 * text encoders. Names and shapes are written out from the specification of the checkpoints;
 * totals are those of the published files. */
#include "tests/tmpdir.h"

#include <stdio.h>
#include <string.h>

#include "quant/q_policy.h"

enum { D = 3072, F = 4 * D, T5_D = 4096, T5_F = 10240, CLIP_D = 768 };

static const dfx_q_policy int8_policy = {.target = DFX_Q_INT8, .kept = DFX_Q_STORED};

static void format_names_parse_back_to_themselves(void **state) {
    static const char *const names[] = {"stored", "f32", "bf16", "int8", "int8wo", "fp8"};
    assert_int_equal(DFX_N_QFORMATS, DFX_COUNT(names));
    for (int i = 0; i < DFX_N_QFORMATS; i++) {
        dfx_qformat back = DFX_N_QFORMATS;
        assert_string_equal(dfx_q_name((dfx_qformat)i), names[i]);
        assert_true(dfx_q_parse(names[i], &back));
        assert_int_equal(back, i);
    }
    dfx_qformat none = DFX_Q_FP8;
    assert_false(dfx_q_parse("int4", &none));
    assert_false(dfx_q_parse("INT8", &none));
    assert_false(dfx_q_parse("", &none));
    assert_int_equal(none, DFX_Q_FP8);
}

static void format_storage_is_that_of_the_format_page(void **state) {
    assert_int_equal(dfx_q_storage(DFX_Q_STORED, DFX_DTYPE_F16), DFX_DTYPE_F16);
    assert_int_equal(dfx_q_storage(DFX_Q_F32, DFX_DTYPE_F16), DFX_DTYPE_F32);
    assert_int_equal(dfx_q_storage(DFX_Q_BF16, DFX_DTYPE_F16), DFX_DTYPE_BF16);
    assert_int_equal(dfx_q_storage(DFX_Q_INT8, DFX_DTYPE_F16), DFX_DTYPE_I8);
    assert_int_equal(dfx_q_storage(DFX_Q_INT8WO, DFX_DTYPE_F16), DFX_DTYPE_I8);
    assert_int_equal(dfx_q_storage(DFX_Q_FP8, DFX_DTYPE_F16), DFX_DTYPE_F8_E4M3);
    assert_true(dfx_q_has_row_scale(DFX_Q_INT8) && dfx_q_has_row_scale(DFX_Q_INT8WO));
    assert_true(dfx_q_has_row_scale(DFX_Q_FP8));
    assert_false(dfx_q_has_row_scale(DFX_Q_STORED) || dfx_q_has_row_scale(DFX_Q_BF16));
}

static void glob_covers_the_whole_name(void **state) {
    static const struct {
        const char *pattern, *name;
        bool matches;
    } table[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a.b", true},
        {"a", "a", true},
        {"a", "ab", false},
        {"ab", "a", false},
        {"a*", "a", true},
        {"a*", "a.b.c", true},
        {"*a", "ba", true},
        {"*a", "ab", false},
        {"*.bias", "x.bias", true},
        {"*.bias", "bias", false},
        {"a.*.c", "a.b.c", true},
        {"a.*.c", "a..c", true},
        {"a.*.c", "a.c", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "acb", false},
        {"*ab", "aab", true},
        {"*abab", "abaabab", true},
        {"**a**", "xay", true},
        {"a?", "ab", false},
        {"A", "a", false},
        {"*aaaaaaaab", "aaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < DFX_COUNT(table); i++)
        if (dfx_q_glob(table[i].pattern, table[i].name) != table[i].matches)
            fail_msg("'%s' on '%s'", table[i].pattern, table[i].name);
}

/* Sums over a component's tensors, and what the table under test says of each. */
typedef struct tally {
    const dfx_q_policy *policy;
    const char *component;
    uint64_t n_converted, n_kept, converted, kept; /* tensors; parameters */
} tally;

static dfx_qformat ask(const dfx_q_policy *policy, const char *name, dfx_dtype dtype, int64_t rows,
                       int64_t cols) {
    int64_t shape[] = {rows, cols};
    dfx_q_tensor tensor = {name, dtype, shape, cols ? 2 : 1}; /* cols 0: a vector */
    return dfx_q_policy_format(policy, &tensor);
}

static void add(tally *sum, bool want_converted, const char *module, const char *param,
                int64_t rows, int64_t cols) {
    char name[200];
    snprintf(name, sizeof(name), "%s.%s.%s", sum->component, module, param);
    uint64_t n = (uint64_t)(rows * (cols ? cols : 1));
    dfx_qformat format = ask(sum->policy, name, DFX_DTYPE_BF16, rows, cols);
    dfx_qformat want = want_converted ? sum->policy->target : sum->policy->kept;
    if (format != want)
        fail_msg("%s: %s, wanted %s", name, dfx_q_name(format), dfx_q_name(want));
    *(want_converted ? &sum->n_converted : &sum->n_kept) += 1;
    *(want_converted ? &sum->converted : &sum->kept) += n;
}

static void add_linear(tally *sum, bool want_converted, const char *module, int64_t rows,
                       int64_t cols) {
    add(sum, want_converted, module, "weight", rows, cols);
    add(sum, false, module, "bias", rows, 0);
}

typedef struct linear {
    const char *module;
    bool converted;
    int64_t rows, cols;
} linear;

static void add_block(tally *sum, const char *block, int i, const linear *linears, size_t n_linears,
                      const char *const *norms, size_t n_norms) {
    char module[120];
    for (size_t k = 0; k < n_linears; k++) {
        snprintf(module, sizeof(module), "%s.%d.%s", block, i, linears[k].module);
        add_linear(sum, linears[k].converted, module, linears[k].rows, linears[k].cols);
    }
    for (size_t k = 0; k < n_norms; k++) {
        snprintf(module, sizeof(module), "%s.%d.attn.%s", block, i, norms[k]);
        add(sum, false, module, "weight", 128, 0);
    }
}

static const linear outside[] = {
    {"x_embedder", false, D, 64},
    {"context_embedder", false, D, 4096},
    {"time_text_embed.timestep_embedder.linear_1", false, D, 256},
    {"time_text_embed.timestep_embedder.linear_2", false, D, D},
    {"time_text_embed.text_embedder.linear_1", false, D, 768},
    {"time_text_embed.text_embedder.linear_2", false, D, D},
    {"time_text_embed.guidance_embedder.linear_1", false, D, 256},
    {"time_text_embed.guidance_embedder.linear_2", false, D, D},
    {"norm_out.linear", false, 2 * D, D},
    {"proj_out", false, 64, D},
};
static const linear double_block[] = {
    {"norm1.linear", false, 6 * D, D},
    {"norm1_context.linear", false, 6 * D, D},
    {"attn.to_q", true, D, D},
    {"attn.to_k", true, D, D},
    {"attn.to_v", true, D, D},
    {"attn.add_q_proj", true, D, D},
    {"attn.add_k_proj", true, D, D},
    {"attn.add_v_proj", true, D, D},
    {"attn.to_out.0", true, D, D},
    {"attn.to_add_out", true, D, D},
    {"ff.net.0.proj", true, F, D},
    {"ff.net.2", true, D, F},
    {"ff_context.net.0.proj", true, F, D},
    {"ff_context.net.2", true, D, F},
};
static const linear single_block[] = {
    {"norm.linear", false, 3 * D, D}, {"attn.to_q", true, D, D}, {"attn.to_k", true, D, D},
    {"attn.to_v", true, D, D},        {"proj_mlp", true, F, D},  {"proj_out", true, D, D + F},
};
static const char *const double_norms[] = {"norm_q", "norm_k", "norm_added_q", "norm_added_k"};

static tally over_transformer(const dfx_q_policy *policy) {
    tally sum = {policy, "transformer", 0, 0, 0, 0};
    for (size_t k = 0; k < DFX_COUNT(outside); k++)
        add_linear(&sum, false, outside[k].module, outside[k].rows, outside[k].cols);
    for (int i = 0; i < 19; i++)
        add_block(&sum, "transformer_blocks", i, double_block, DFX_COUNT(double_block),
                  double_norms, 4);
    for (int i = 0; i < 38; i++)
        add_block(&sum, "single_transformer_blocks", i, single_block, DFX_COUNT(single_block),
                  double_norms, 2);
    return sum;
}

/* Converted: 24 D^2 in each of 19 double blocks and 12 D^2 in each of 38 single ones, D^2 =
 * 9,437,184. */
static void policy_of_flux_dev_converts_the_products_of_the_blocks(void **state) {
    tally sum = over_transformer(&int8_policy);
    assert_true(sum.n_converted == 19 * 12 + 38 * 5);
    assert_true(sum.n_converted + sum.n_kept == 1160);
    assert_true(sum.converted == 8606711808u);
    assert_true(sum.kept == 3294696512u);
    assert_true(sum.converted + sum.kept == 11901408320u);
}

static void policy_holds_for_every_target_and_kept_format(void **state) {
    static const dfx_qformat targets[] = {DFX_Q_F32, DFX_Q_INT8WO, DFX_Q_FP8};
    for (size_t i = 0; i < DFX_COUNT(targets); i++) {
        dfx_q_policy policy = {.target = targets[i], .kept = DFX_Q_BF16};
        assert_true(over_transformer(&policy).converted == 8606711808u);
    }
}

static const linear t5_block[] = {
    {"layer.0.SelfAttention.q", true, T5_D, T5_D},
    {"layer.0.SelfAttention.k", true, T5_D, T5_D},
    {"layer.0.SelfAttention.v", true, T5_D, T5_D},
    {"layer.0.SelfAttention.o", true, T5_D, T5_D},
    {"layer.0.layer_norm", false, T5_D, 0},
    {"layer.1.DenseReluDense.wi_0", true, T5_F, T5_D},
    {"layer.1.DenseReluDense.wi_1", true, T5_F, T5_D},
    {"layer.1.DenseReluDense.wo", true, T5_D, T5_F},
    {"layer.1.layer_norm", false, T5_D, 0},
};

/* Converted: 24 * (4 * 4096^2 + 3 * 4096 * 10240). */
static void policy_of_t5_converts_attention_and_mlp(void **state) {
    tally sum = {&int8_policy, "text_encoder_2", 0, 0, 0, 0};
    char module[120];
    add(&sum, false, "shared", "weight", 32128, T5_D);
    add(&sum, false, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "weight", 32,
        64);
    add(&sum, false, "encoder.final_layer_norm", "weight", T5_D, 0);
    for (int i = 0; i < 24; i++)
        for (size_t k = 0; k < DFX_COUNT(t5_block); k++) {
            snprintf(module, sizeof(module), "encoder.block.%d.%s", i, t5_block[k].module);
            add(&sum, t5_block[k].converted, module, "weight", t5_block[k].rows, t5_block[k].cols);
        }
    assert_true(sum.n_converted == 24 * 7 && sum.n_kept == 51);
    assert_true(sum.converted == 4630511616u);
    assert_true(sum.converted + sum.kept == 4762310656u);
}

static void policy_of_clip_keeps_everything(void **state) {
    static const linear linears[] = {
        {"self_attn.q_proj", false, CLIP_D, CLIP_D}, {"self_attn.k_proj", false, CLIP_D, CLIP_D},
        {"self_attn.v_proj", false, CLIP_D, CLIP_D}, {"self_attn.out_proj", false, CLIP_D, CLIP_D},
        {"mlp.fc1", false, 4 * CLIP_D, CLIP_D},      {"mlp.fc2", false, CLIP_D, 4 * CLIP_D},
        {"layer_norm1", false, CLIP_D, 0},           {"layer_norm2", false, CLIP_D, 0}};
    tally sum = {&int8_policy, "text_encoder", 0, 0, 0, 0};
    add(&sum, false, "text_model.embeddings.token_embedding", "weight", 49408, CLIP_D);
    add(&sum, false, "text_model.embeddings.position_embedding", "weight", 77, CLIP_D);
    add_linear(&sum, false, "text_model.final_layer_norm", CLIP_D, 0);
    for (int i = 0; i < 12; i++)
        add_block(&sum, "text_model.encoder.layers", i, linears, DFX_COUNT(linears), NULL, 0);
    assert_true(sum.n_kept == 196 && sum.kept == 123060480u);
}

static void policy_of_vae_keeps_everything(void **state) {
    int64_t conv[] = {512, 512, 3, 3};
    dfx_q_tensor tensor = {"vae.decoder.mid_block.resnets.0.conv1.weight", DFX_DTYPE_BF16, conv, 4};
    assert_int_equal(dfx_q_policy_format(&int8_policy, &tensor), DFX_Q_STORED);
    assert_int_equal(ask(&int8_policy, "vae.decoder.mid_block.attentions.0.to_q.weight",
                         DFX_DTYPE_BF16, 512, 512),
                     DFX_Q_STORED);
}

#define A_PRODUCT "transformer.transformer_blocks.3.attn.to_q.weight"

static void policy_keeps_what_type_or_shape_forbid(void **state) {
    dfx_q_policy wide = {.target = DFX_Q_INT8, .kept = DFX_Q_BF16};
    int64_t cube[] = {64, 64, 64};
    dfx_q_tensor tensor = {A_PRODUCT, DFX_DTYPE_F32, cube, 3};
    assert_int_equal(dfx_q_policy_format(&wide, &tensor), DFX_Q_BF16);
    tensor.n_dims = 0;
    assert_int_equal(dfx_q_policy_format(&wide, &tensor), DFX_Q_BF16);
    assert_int_equal(ask(&wide, A_PRODUCT, DFX_DTYPE_F32, D, 63), DFX_Q_BF16);
    assert_int_equal(ask(&wide, A_PRODUCT, DFX_DTYPE_F32, D, 64), DFX_Q_INT8);
    assert_int_equal(ask(&wide, A_PRODUCT, DFX_DTYPE_F16, D, D), DFX_Q_INT8);
    assert_int_equal(ask(&wide, A_PRODUCT, DFX_DTYPE_I8, D, D), DFX_Q_STORED);
    assert_int_equal(ask(&wide, A_PRODUCT, DFX_DTYPE_U8, D, D), DFX_Q_STORED);
    assert_int_equal(
        ask(&wide, "text_encoder.text_model.embeddings.position_ids", DFX_DTYPE_I64, 1, 77),
        DFX_Q_STORED);
}

static void policy_keeps_norms_stored_as_matrices(void **state) {
    assert_int_equal(ask(&int8_policy, "transformer.transformer_blocks.3.attn.norm_q.weight",
                         DFX_DTYPE_BF16, 1, 128),
                     DFX_Q_STORED);
}

static void policy_never_rounds_eight_bits_to_eight_others(void **state) {
    dfx_q_policy bf16 = {.target = DFX_Q_BF16, .kept = DFX_Q_STORED};
    assert_int_equal(ask(&int8_policy, A_PRODUCT, DFX_DTYPE_F8_E4M3, D, D), DFX_Q_STORED);
    assert_int_equal(ask(&bf16, A_PRODUCT, DFX_DTYPE_F8_E4M3, D, D), DFX_Q_BF16);
}

static void policy_user_patterns_come_first(void **state) {
    static const char *const keep[] = {"*.transformer_blocks.3.*", "*proj_mlp*"};
    dfx_q_policy policy = {DFX_Q_INT8, DFX_Q_STORED, keep, 2};
    assert_int_equal(ask(&policy, A_PRODUCT, DFX_DTYPE_BF16, D, D), DFX_Q_STORED);
    assert_int_equal(
        ask(&policy, "transformer.transformer_blocks.13.attn.to_q.weight", DFX_DTYPE_BF16, D, D),
        DFX_Q_INT8);
    assert_int_equal(ask(&policy, "transformer.single_transformer_blocks.3.proj_mlp.weight",
                         DFX_DTYPE_BF16, F, D),
                     DFX_Q_STORED);
    assert_int_equal(ask(&policy, "transformer.single_transformer_blocks.3.proj_out.weight",
                         DFX_DTYPE_BF16, D, D + F),
                     DFX_Q_INT8);
}

static void policy_table_ends_with_a_row_that_matches_all(void **state) {
    assert_string_equal(dfx_q_rules[dfx_q_n_rules - 1].pattern, "*");
    assert_int_equal(ask(&int8_policy, "", DFX_DTYPE_BF16, D, D), DFX_Q_STORED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_names_parse_back_to_themselves),
        cmocka_unit_test(format_storage_is_that_of_the_format_page),
        cmocka_unit_test(glob_covers_the_whole_name),
        cmocka_unit_test(policy_of_flux_dev_converts_the_products_of_the_blocks),
        cmocka_unit_test(policy_holds_for_every_target_and_kept_format),
        cmocka_unit_test(policy_of_t5_converts_attention_and_mlp),
        cmocka_unit_test(policy_of_clip_keeps_everything),
        cmocka_unit_test(policy_of_vae_keeps_everything),
        cmocka_unit_test(policy_keeps_what_type_or_shape_forbid),
        cmocka_unit_test(policy_keeps_norms_stored_as_matrices),
        cmocka_unit_test(policy_never_rounds_eight_bits_to_eight_others),
        cmocka_unit_test(policy_user_patterns_come_first),
        cmocka_unit_test(policy_table_ends_with_a_row_that_matches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
