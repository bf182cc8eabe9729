/* CLIP's text tower: its goldens on the CPU, what a token sees, configurations that are refused. */
#include "models/clip.h"

#include "tests/golden_clip.h"

enum { N_PROMPTS = GOLDEN_CLIP_PROMPTS, T = GOLDEN_CLIP_TOKENS, D = GOLDEN_CLIP_WIDTH };

static void clip_every_layer_equals_transformers(void **state) {
    golden_clip_layers(*state);
}

static void clip_pooled_is_row_of_first_end_token(void **state) {
    golden_clip_pooled(*state);
}

/* What stands behind a token does not reach it. */
static void clip_token_is_blind_to_what_follows(void **state) {
    model_rig *r = *state;
    clip_model m = clip_model_build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    const float *before = clip_model_encode(r, &m, ids);
    ids[T - 1] = 5;
    const float *after = clip_model_encode(r, &m, ids);
    assert_memory_equal(before, after, (T - 1) * D * sizeof(*before));
    assert_memory_not_equal(before + (ptrdiff_t)(T - 1) * D, after + (ptrdiff_t)(T - 1) * D,
                            D * sizeof(*before));
    clip_model_fini(&m);
}

static void clip_config_of_another_activation_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_clip_config c;
    dfx_bundle bundle = folder_bundle(dir->path);
    tmpdir_write_text(dir, "config.json",
                      "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
                      " \"intermediate_size\": 128, \"max_position_embeddings\": 77,"
                      " \"vocab_size\": 128, \"hidden_act\": \"gelu\"}");
    assert_int_equal(dfx_clip_config_load(&bundle, "", &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, "quick_gelu");
}

static void clip_config_with_odd_heads_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_clip_config c;
    dfx_bundle bundle = folder_bundle(dir->path);
    tmpdir_write_text(dir, "config.json",
                      "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 3,"
                      " \"intermediate_size\": 128, \"max_position_embeddings\": 77,"
                      " \"vocab_size\": 128, \"hidden_act\": \"quick_gelu\"}");
    assert_int_equal(dfx_clip_config_load(&bundle, "", &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, "num_attention_heads");
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)
#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(clip_every_layer_equals_transformers),
        WITH_MRIG(clip_pooled_is_row_of_first_end_token),
        WITH_MRIG(clip_token_is_blind_to_what_follows),
        IN_TMPDIR(clip_config_of_another_activation_is_refused),
        IN_TMPDIR(clip_config_with_odd_heads_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
