/* CLIP's text tower against transformers: every layer, and the pooled row at the first end token. */
#include "models/clip.h"

#include "tests/model_rig.h"

enum { N_PROMPTS = 3, T = 77, D = 64, END = 127 };
static const double TOLERANCE = 1e-5;

typedef struct clip_model {
    dfx_program tables, program;
} clip_model;

static clip_model build(model_rig *r) {
    clip_model m;
    dfx_clip_config c;
    dfx_bundle bundle = folder_bundle("tests/golden");
    dfx_build_env env = mrig_env(r, mrig_open(r, "tests/golden/clip_small_vocab", "model"));
    assert_int_equal(dfx_clip_config_load(&bundle, "clip_small_vocab", &r->sink, &c), DFX_OK);
    assert_int_equal(dfx_clip_build_table(&c, &env, &m.tables), DFX_OK);
    assert_int_equal(dfx_clip_build(&c, &env, T, &m.program), DFX_OK);
    return m;
}

static void fini(clip_model *m) {
    dfx_program_fini(&m->tables);
    dfx_program_fini(&m->program);
}

/* One prompt through the tower: [T, D] after final_layer_norm. */
static float *encode(model_rig *r, const clip_model *m, const int32_t *ids) {
    float *out = mrig_floats(r, T * D);
    mrig_run(r, &m->program, (void *[]){mrig_embed(r, &m->tables, true, ids, T, D), out});
    return out;
}

static const float *prompt_of(const float *golden, int prompt) {
    return golden + (ptrdiff_t)prompt * T * D;
}

/* a + b. */
static const float *sum(model_rig *r, const float *a, const float *b, int64_t n) {
    float *y = mrig_floats(r, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    return y;
}

static const float *golden(model_rig *r, const char *name) {
    return mrig_golden(r, "clip", N_PROMPTS * T * D, "%s", name);
}

/* The last layers write over x, so the embedding itself is compared before they do. */
static void check_embedding(model_rig *r, const clip_model *m, const int32_t *ids, int prompt) {
    const float *want = prompt_of(golden(r, "mid.embeddings"), prompt);
    mrig_same(r, "embeddings", mrig_embed(r, &m->tables, true, ids, T, D), want, T * D, 0);
}

static void check_layers(model_rig *r, int prompt) {
    const float *embed = prompt_of(golden(r, "mid.embeddings"), prompt);
    const float *attn = prompt_of(golden(r, "mid.layer0.attn.0"), prompt);
    const float *mlp = prompt_of(golden(r, "mid.layer0.mlp"), prompt);
    const float *after_attn = sum(r, embed, attn, T * D);
    mrig_same_output(r, "text_model.encoder.layers.0.self_attn.out_proj", after_attn, T, D,
                     TOLERANCE);
    mrig_same_output(r, "text_model.encoder.layers.0.mlp.fc2", sum(r, after_attn, mlp, T * D), T, D,
                     TOLERANCE);
    mrig_same_output(r, "text_model.encoder.layers.0.mlp.fc2",
                     prompt_of(golden(r, "mid.layer0"), prompt), T, D, TOLERANCE);
    mrig_same_output(r, "text_model.encoder.layers.1.mlp.fc2",
                     prompt_of(golden(r, "mid.layer1"), prompt), T, D, TOLERANCE);
    mrig_same_output(r, "text_model.final_layer_norm.out",
                     prompt_of(golden(r, "last_hidden_state"), prompt), T, D, TOLERANCE);
}

static int first_end(const int32_t *ids) {
    int at = 0;
    while (ids[at] != END)
        at++;
    return at;
}

/* Prompts of 3, 20 and 77 tokens. Rows behind the end token see it and the padding: the mask is causal and no more. */
static void clip_every_layer_equals_transformers(void **state) {
    model_rig *r = *state;
    clip_model m = build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    for (int i = 0; i < N_PROMPTS; i++) {
        const int32_t *row = ids + (ptrdiff_t)i * T;
        check_embedding(r, &m, row, i);
        const float *out = encode(r, &m, row);
        check_layers(r, i);
        const float *want = prompt_of(golden(r, "last_hidden_state"), i);
        mrig_same(r, "last_hidden_state", out, want, T * D, TOLERANCE);
    }
    fini(&m);
}

static void clip_pooled_is_row_of_first_end_token(void **state) {
    model_rig *r = *state;
    clip_model m = build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    const float *pooled = mrig_golden(r, "clip", N_PROMPTS * D, "pooler_output");
    static const int ends[N_PROMPTS] = {2, 19, 76};
    for (int i = 0; i < N_PROMPTS; i++) {
        const int32_t *row = ids + (ptrdiff_t)i * T;
        const float *out = encode(r, &m, row);
        int end = first_end(row);
        assert_int_equal(end, ends[i]);
        mrig_same(r, "pooled", out + (ptrdiff_t)end * D, pooled + (ptrdiff_t)i * D, D, TOLERANCE);
    }
    fini(&m);
}

/* What stands behind a token does not reach it. */
static void clip_token_is_blind_to_what_follows(void **state) {
    model_rig *r = *state;
    clip_model m = build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    const float *before = encode(r, &m, ids);
    ids[T - 1] = 5;
    const float *after = encode(r, &m, ids);
    assert_memory_equal(before, after, (T - 1) * D * sizeof(*before));
    assert_memory_not_equal(before + (ptrdiff_t)(T - 1) * D, after + (ptrdiff_t)(T - 1) * D,
                            D * sizeof(*before));
    fini(&m);
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
