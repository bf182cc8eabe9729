/* See golden_t5.h. */
#include "tests/golden_t5.h"

#include <stdio.h>

#include "models/t5.h"

enum { D = GOLDEN_T5_WIDTH, H = 2, SHORT = GOLDEN_T5_TOKENS, LONG = 300 };
static const double TOLERANCE = 1e-5;

t5_model t5_model_build(model_rig *r, int64_t n_tokens) {
    t5_model m = {.n_tokens = n_tokens};
    dfx_t5_config c;
    dfx_bundle bundle = folder_bundle("tests/golden");
    dfx_build_env env = mrig_env(r, mrig_open(r, "tests/golden/t5_small_vocab", "model"));
    assert_int_equal(dfx_t5_config_load(&bundle, "t5_small_vocab", &r->sink, &c), DFX_OK);
    assert_int_equal(dfx_t5_build_table(&c, &env, &m.table), DFX_OK);
    assert_int_equal(dfx_t5_build(&c, &env, n_tokens, &m.program), DFX_OK);
    return m;
}

void t5_model_fini(t5_model *m) {
    dfx_program_fini(&m->table);
    dfx_program_fini(&m->program);
}

static float *embed(model_rig *r, const t5_model *m, const int32_t *ids) {
    return mrig_embed(r, &m->table, false, ids, m->n_tokens, D);
}

float *t5_model_encode(model_rig *r, const t5_model *m, const int32_t *ids) {
    float *out = mrig_floats(r, m->n_tokens * D);
    mrig_run(r, &m->program, (void *[]){embed(r, m, ids), out});
    return out;
}

/* Our bias holds one value a distance, theirs [H, n_queries, T]; rows [0, n_queries). Values are the table's, in every type. */
static void check_bias(model_rig *r, const float *want, int64_t n_queries, int64_t T) {
    const op_output *ours = mrig_output(r, "encoder.block.0.relative_bias");
    float *got = mrig_floats(r, H * n_queries * T);
    assert_int_equal(ours->rows, H);
    assert_int_equal(ours->cols, 2 * T - 1);
    for (int64_t h = 0; h < H; h++)
        for (int64_t q = 0; q < n_queries; q++)
            for (int64_t k = 0; k < T; k++)
                got[(h * n_queries + q) * T + k] = ours->values[h * (2 * T - 1) + k - q + T - 1];
    mrig_same(r, "relative_bias", got, want, H * n_queries * T, 0);
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

void golden_t5_blocks(model_rig *r) {
    t5_model m = t5_model_build(r, SHORT);
    int32_t *ids = mrig_golden_ids(r, "t5", 2LL * SHORT, "pad.in.ids");
    for (int i = 0; i < 2; i++) {
        ptrdiff_t at = (ptrdiff_t)i * SHORT * D;
        const int32_t *row = ids + (ptrdiff_t)i * SHORT;
        const float *embedded = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.embed");
        mrig_same(r, "embed", embed(r, &m, row), embedded + at, SHORT * D, 0);
        const float *out = t5_model_encode(r, &m, row);
        for (int block = 0; block < 2; block++)
            check_block(r, block, i);
        const float *norm = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.mid.final_norm");
        mrig_same_output(r, "encoder.final_layer_norm.out", norm + at, SHORT, D, TOLERANCE);
        const float *want = mrig_golden(r, "t5", 2LL * SHORT * D, "pad.out");
        mrig_same(r, "out", out, want + at, SHORT * D, TOLERANCE);
    }
    t5_model_fini(&m);
}

void golden_t5_long(model_rig *r) {
    t5_model m = t5_model_build(r, LONG);
    const float *out = t5_model_encode(r, &m, mrig_golden_ids(r, "t5", LONG, "long.in.ids"));
    mrig_same(r, "out", out, mrig_golden(r, "t5", LONG * D, "long.out"), LONG * D, TOLERANCE);
    check_bias(r, mrig_golden(r, "t5", H * LONG, "position_bias_300_row0"), 1, LONG);
    t5_model_fini(&m);
}

void golden_t5_position_bias(model_rig *r) {
    enum { N = 40 };
    t5_model m = t5_model_build(r, N);
    int32_t ids[N] = {0};
    t5_model_encode(r, &m, ids);
    check_bias(r, mrig_golden(r, "t5", H * N * N, "position_bias_40"), N, N);
    t5_model_fini(&m);
}
