/* The T5 encoder against transformers: every block, padding that is attended to, the relative bias. */
#include "models/t5.h"

#include <stdio.h>

#include "tests/model_rig.h"

enum { D = 64, H = 2, SHORT = 24, LONG = 300 };
static const double TOLERANCE = 1e-5;

typedef struct t5_model {
    dfx_program table, program;
    int64_t n_tokens;
} t5_model;

static t5_model build(model_rig *r, int64_t n_tokens) {
    t5_model m = {.n_tokens = n_tokens};
    dfx_t5_config c;
    dfx_bundle bundle = folder_bundle("tests/golden");
    dfx_build_env env = mrig_env(r, mrig_open(r, "tests/golden/t5_small_vocab", "model"));
    assert_int_equal(dfx_t5_config_load(&bundle, "t5_small_vocab", &r->sink, &c), DFX_OK);
    assert_int_equal(dfx_t5_build_table(&c, &env, &m.table), DFX_OK);
    assert_int_equal(dfx_t5_build(&c, &env, n_tokens, &m.program), DFX_OK);
    return m;
}

static void fini(t5_model *m) {
    dfx_program_fini(&m->table);
    dfx_program_fini(&m->program);
}

static float *embed(model_rig *r, const t5_model *m, const int32_t *ids) {
    return mrig_embed(r, &m->table, false, ids, m->n_tokens, D);
}

/* One prompt through the encoder: [n_tokens, D]. */
static float *encode(model_rig *r, const t5_model *m, const int32_t *ids) {
    float *out = mrig_floats(r, m->n_tokens * D);
    mrig_run(r, &m->program, (void *[]){embed(r, m, ids), out});
    return out;
}

/* Our bias holds one value a distance, theirs [H, n_queries, T]; rows [0, n_queries). */
static void check_bias(model_rig *r, const float *want, int64_t n_queries, int64_t T) {
    const op_output *ours = mrig_output(r, "encoder.block.0.relative_bias");
    assert_int_equal(ours->rows, H);
    assert_int_equal(ours->cols, 2 * T - 1);
    for (int64_t h = 0; h < H; h++)
        for (int64_t q = 0; q < n_queries; q++)
            for (int64_t k = 0; k < T; k++) {
                float got = ours->values[h * (2 * T - 1) + k - q + T - 1];
                assert_true(got == want[(h * n_queries + q) * T + k]);
            }
}

static void check_block(model_rig *r, int block, int prompt) {
    static const struct {
        const char *golden, *op;
    } pairs[] = {{"attn.0", "layer.0.SelfAttention.o"},
                 {"ff", "layer.1.DenseReluDense.wo"},
                 {"0", "layer.1.DenseReluDense.wo"}};
    for (size_t i = 0; i < DFX_COUNT(pairs); i++) {
        char label[128];
        snprintf(label, sizeof(label), "encoder.block.%d.%s", block, pairs[i].op);
        const float *want =
            mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.block%d.%s", block, pairs[i].golden);
        mrig_same_output(r, label, want + (ptrdiff_t)prompt * SHORT * D, SHORT, D, TOLERANCE);
    }
    check_bias(r, mrig_golden(r, "t5", H * SHORT * SHORT, "pad.mid.block%d.attn.1", block), SHORT,
               SHORT);
    check_bias(r, mrig_golden(r, "t5", H * SHORT * SHORT, "pad.mid.block%d.1", block), SHORT,
               SHORT);
}

/* Prompts of 20 and 11 tokens in 24: no mask, so padding takes part. Block 1 has no table of its own. */
static void t5_every_block_equals_transformers(void **state) {
    model_rig *r = *state;
    t5_model m = build(r, SHORT);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    for (int i = 0; i < 2; i++) {
        ptrdiff_t at = (ptrdiff_t)i * SHORT * D;
        const int32_t *row = ids + (ptrdiff_t)i * SHORT;
        const float *embedded = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.embed");
        mrig_same(r, "embed", embed(r, &m, row), embedded + at, SHORT * D, 0);
        const float *out = encode(r, &m, row);
        for (int block = 0; block < 2; block++)
            check_block(r, block, i);
        const float *norm = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.final_norm");
        mrig_same_output(r, "encoder.final_layer_norm.out", norm + at, SHORT, D, TOLERANCE);
        const float *want = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.out");
        mrig_same(r, "out", out, want + at, SHORT * D, TOLERANCE);
    }
    fini(&m);
}

static void t5_long_padded_prompt_equals_transformers(void **state) {
    model_rig *r = *state;
    t5_model m = build(r, LONG);
    const float *out = encode(r, &m, mrig_golden_ids(r, "t5", LONG, "long.in.ids"));
    mrig_same(r, "out", out, mrig_golden(r, "t5", LONG * D, "long.out"), LONG * D, TOLERANCE);
    check_bias(r, mrig_golden(r, "t5", H * LONG, "position_bias_300_row0"), 1, LONG);
    fini(&m);
}

static void t5_position_bias_equals_transformers(void **state) {
    model_rig *r = *state;
    enum { N = 40 };
    t5_model m = build(r, N);
    int32_t ids[N] = {0};
    encode(r, &m, ids);
    check_bias(r, mrig_golden(r, "t5", H * N * N, "position_bias_40"), N, N);
    fini(&m);
}

/* The first row changes when the last padding token does. */
static void t5_padding_is_attended_to(void **state) {
    model_rig *r = *state;
    t5_model m = build(r, SHORT);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    const float *before = encode(r, &m, ids);
    assert_int_equal(ids[SHORT - 1], 0);
    ids[SHORT - 1] = 9;
    const float *after = encode(r, &m, ids);
    assert_memory_not_equal(before, after, D * sizeof(*before));
    fini(&m);
}

static void t5_pages_are_parts_of_blocks(void **state) {
    static const char *const want[] = {"encoder.block.0/attn",    "encoder.block.0/wi",
                                       "encoder.block.0/wo",      "encoder.block.1/attn",
                                       "encoder.block.1/wi",      "encoder.block.1/wo",
                                       "encoder.final_layer_norm"};
    model_rig *r = *state;
    t5_model m = build(r, SHORT);
    assert_int_equal(m.program.n_pages, DFX_COUNT(want));
    for (size_t i = 0; i < DFX_COUNT(want); i++)
        assert_string_equal(m.program.pages[i].name, want[i]);
    assert_string_equal(m.program.weights[0].name,
                        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    fini(&m);
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
