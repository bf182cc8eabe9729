/* See golden_clip.h. */
#include "tests/golden_clip.h"

#include "models/clip.h"

enum { N_PROMPTS = GOLDEN_CLIP_PROMPTS, T = GOLDEN_CLIP_TOKENS, D = GOLDEN_CLIP_WIDTH, END = 127 };
static const double TOLERANCE = 1e-5;

clip_model clip_model_build(model_rig *r) {
    clip_model m;
    dfx_clip_config c;
    dfx_bundle bundle = folder_bundle("tests/golden");
    dfx_build_env env = mrig_env(r, mrig_open(r, "tests/golden/clip_small_vocab", "model"));
    assert_int_equal(dfx_clip_config_load(&bundle, "clip_small_vocab", &r->sink, &c), DFX_OK);
    assert_int_equal(dfx_clip_build_table(&c, &env, &m.tables), DFX_OK);
    assert_int_equal(dfx_clip_build(&c, &env, T, &m.program), DFX_OK);
    return m;
}

void clip_model_fini(clip_model *m) {
    dfx_program_fini(&m->tables);
    dfx_program_fini(&m->program);
}

float *clip_model_encode(model_rig *r, const clip_model *m, const int32_t *ids) {
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

void golden_clip_layers(model_rig *r) {
    clip_model m = clip_model_build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    for (int i = 0; i < N_PROMPTS; i++) {
        const int32_t *row = ids + (ptrdiff_t)i * T;
        check_embedding(r, &m, row, i);
        const float *out = clip_model_encode(r, &m, row);
        check_layers(r, i);
        const float *want = prompt_of(golden(r, "last_hidden_state"), i);
        mrig_same(r, "last_hidden_state", out, want, T * D, TOLERANCE);
    }
    clip_model_fini(&m);
}

void golden_clip_pooled(model_rig *r) {
    clip_model m = clip_model_build(r);
    int32_t *ids = mrig_golden_ids(r, "clip", N_PROMPTS * T, "in.ids");
    const float *pooled = mrig_golden(r, "clip", N_PROMPTS * D, "pooler_output");
    static const int ends[N_PROMPTS] = {2, 19, 76};
    for (int i = 0; i < N_PROMPTS; i++) {
        const int32_t *row = ids + (ptrdiff_t)i * T;
        const float *out = clip_model_encode(r, &m, row);
        int end = first_end(row);
        assert_int_equal(end, ends[i]);
        mrig_same(r, "pooled", out + (ptrdiff_t)end * D, pooled + (ptrdiff_t)i * D, D, TOLERANCE);
    }
    clip_model_fini(&m);
}
