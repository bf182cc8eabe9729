/* The T5 encoder: its goldens on the CPU, padding, pages, a configuration that is refused. */
#include "models/t5.h"

#include "tests/golden_t5.h"

enum { D = GOLDEN_T5_WIDTH, SHORT = GOLDEN_T5_TOKENS };

static void t5_every_block_equals_transformers(void **state) {
    golden_t5_blocks(*state);
}

static void t5_long_padded_prompt_equals_transformers(void **state) {
    golden_t5_long(*state);
}

static void t5_position_bias_equals_transformers(void **state) {
    golden_t5_position_bias(*state);
}

/* The first row changes when the last padding token does. */
static void t5_padding_is_attended_to(void **state) {
    model_rig *r = *state;
    t5_model m = t5_model_build(r, SHORT);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    const float *before = t5_model_encode(r, &m, ids);
    assert_int_equal(ids[SHORT - 1], 0);
    ids[SHORT - 1] = 9;
    const float *after = t5_model_encode(r, &m, ids);
    assert_memory_not_equal(before, after, D * sizeof(*before));
    t5_model_fini(&m);
}

static void t5_pages_are_parts_of_blocks(void **state) {
    static const char *const want[] = {"encoder.block.0/attn",    "encoder.block.0/wi",
                                       "encoder.block.0/wo",      "encoder.block.1/attn",
                                       "encoder.block.1/wi",      "encoder.block.1/wo",
                                       "encoder.final_layer_norm"};
    model_rig *r = *state;
    t5_model m = t5_model_build(r, SHORT);
    assert_int_equal(m.program.n_pages, DFX_COUNT(want));
    for (size_t i = 0; i < DFX_COUNT(want); i++)
        assert_string_equal(m.program.pages[i].name, want[i]);
    assert_string_equal(m.program.weights[0].name,
                        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    t5_model_fini(&m);
}

static void t5_config_without_gate_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_t5_config c;
    dfx_bundle bundle = folder_bundle(dir->path);
    tmpdir_write_text(dir, "config.json",
                      "{\"d_model\": 64, \"d_kv\": 32, \"num_heads\": 2, \"d_ff\": 128,"
                      " \"num_layers\": 2, \"vocab_size\": 128,"
                      " \"relative_attention_num_buckets\": 32, \"feed_forward_proj\": \"relu\"}");
    assert_int_equal(dfx_t5_config_load(&bundle, "", &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, "gated-gelu");
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(t5_every_block_equals_transformers),
        WITH_MRIG(t5_long_padded_prompt_equals_transformers),
        WITH_MRIG(t5_position_bias_equals_transformers),
        WITH_MRIG(t5_padding_is_attended_to),
        WITH_MRIG(t5_pages_are_parts_of_blocks),
        cmocka_unit_test_setup_teardown(t5_config_without_gate_is_refused, tmpdir_setup,
                                        tmpdir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
