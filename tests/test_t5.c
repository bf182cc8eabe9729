/* The T5 encoder against transformers: every block, padding that is attended to, the relative bias. */
#include "models/t5.h"

#include <stdio.h>

#include "tests/model_rig.h"

enum { D = 64, H = 2, SHORT = 24, LONG = 300 };
static const double TOLERANCE = 1e-5;
static const char *const FOLDER = "tests/golden/t5_small_vocab";

static void build(model_rig *r, int64_t n_tokens, dfx_program *program) {
    dfx_t5_config c;
    const dfx_tensors *weights = mrig_open(r, FOLDER, "model");
    assert_int_equal(dfx_t5_config_load(FOLDER, &r->sink, &c), DFX_OK);
    assert_int_equal(dfx_t5_build(&c, weights, n_tokens, DFX_DTYPE_F32, &r->sink, program), DFX_OK);
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
        const float *want = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.block%d.%s", block,
                                        pairs[i].golden);
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
    dfx_program program;
    build(r, SHORT, &program);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    for (int i = 0; i < 2; i++) {
        ptrdiff_t at = (ptrdiff_t)i * SHORT * D;
        float *out = mrig_floats(r, SHORT * D);
        mrig_run(r, &program, (void *[]){ids + (ptrdiff_t)i * SHORT, out});
        const float *embed = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.embed");
        mrig_same_output(r, "embed", embed + at, SHORT, D, 0);
        for (int block = 0; block < 2; block++)
            check_block(r, block, i);
        const float *norm = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.final_norm");
        mrig_same_output(r, "encoder.final_layer_norm.out", norm + at, SHORT, D, TOLERANCE);
        const float *want = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.out");
        mrig_same(r, "out", out, want + at, SHORT * D, TOLERANCE);
    }
    dfx_program_fini(&program);
}

static void t5_long_padded_prompt_equals_transformers(void **state) {
    model_rig *r = *state;
    dfx_program program;
    build(r, LONG, &program);
    float *out = mrig_floats(r, LONG * D);
    mrig_run(r, &program, (void *[]){mrig_golden_ids(r, "t5", LONG, "long.in.ids"), out});
    mrig_same(r, "out", out, mrig_golden(r, "t5", LONG * D, "long.out"), LONG * D, TOLERANCE);
    check_bias(r, mrig_golden(r, "t5", H * LONG, "position_bias_300_row0"), 1, LONG);
    dfx_program_fini(&program);
}

static void t5_position_bias_equals_transformers(void **state) {
    model_rig *r = *state;
    dfx_program program;
    enum { N = 40 };
    build(r, N, &program);
    int32_t ids[N] = {0};
    mrig_run(r, &program, (void *[]){ids, mrig_floats(r, N * D)});
    check_bias(r, mrig_golden(r, "t5", H * N * N, "position_bias_40"), N, N);
    dfx_program_fini(&program);
}

/* The first row changes when the last padding token does. */
static void t5_padding_is_attended_to(void **state) {
    model_rig *r = *state;
    dfx_program program;
    build(r, SHORT, &program);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    float *before = mrig_floats(r, SHORT * D), *after = mrig_floats(r, SHORT * D);
    mrig_run(r, &program, (void *[]){ids, before});
    assert_int_equal(ids[SHORT - 1], 0);
    ids[SHORT - 1] = 9;
    mrig_run(r, &program, (void *[]){ids, after});
    assert_memory_not_equal(before, after, D * sizeof(*before));
    dfx_program_fini(&program);
}

static void t5_config_without_gate_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_t5_config c;
    tmpdir_write_text(dir, "config.json",
                      "{\"d_model\": 64, \"d_kv\": 32, \"num_heads\": 2, \"d_ff\": 128,"
                      " \"num_layers\": 2, \"vocab_size\": 128,"
                      " \"relative_attention_num_buckets\": 32, \"feed_forward_proj\": \"relu\"}");
    assert_int_equal(dfx_t5_config_load(dir->path, &dir->log.sink, &c), DFX_E_FORMAT);
    said_error(&dir->log, "gated-gelu");
}

#define WITH_MRIG(test) cmocka_unit_test_setup_teardown(test, mrig_setup, mrig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MRIG(t5_every_block_equals_transformers),
        WITH_MRIG(t5_long_padded_prompt_equals_transformers),
        WITH_MRIG(t5_position_bias_equals_transformers),
        WITH_MRIG(t5_padding_is_attended_to),
        cmocka_unit_test_setup_teardown(t5_config_without_gate_is_refused, tmpdir_setup,
                                        tmpdir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
