/* See golden_lora.h. */
#include "tests/golden_lora.h"

#include <stdio.h>

#include "models/lora_block.h"

enum { C = 64, RANK = 32, POOLED = 64 };
static const double TOLERANCE = 1e-4;

#define DENSE "kohya_dense"

const lora_case GOLDEN_LORA_CASES[GOLDEN_N_LORA_CASES] = {
    {"none", {0}, {0}, "in", "base.out"},
    {"none, 3x5", {0}, {0}, "in2", "base.out2"},
    {"strength 0", {"peft"}, {0}, "in", "base.out"},
    {"PEFT", {"peft"}, {1}, "in", "adapter_a.scale1.0.merged.out"},
    {"PEFT at 0.7", {"peft"}, {0.7f}, "in", "adapter_a.scale0.7.peft.out"},
    {"PEFT at 0.7, 3x5", {"peft"}, {0.7f}, "in2", "adapter_a.scale0.7.merged.out2"},
    {"kohya", {"kohya_blockdiag"}, {1}, "in", "adapter_a.scale1.0.peft.out"},
    {"BFL names", {"bfl_blockdiag"}, {1}, "in2", "adapter_a.scale1.0.merged.out2"},
    {"dense", {DENSE}, {0.7f}, "in", "adapter_b.scale0.7.merged.out"},
    {"dense, 3x5", {DENSE}, {0.7f}, "in2", "adapter_b.scale0.7.merged.out2"},
    {"two", {"peft", DENSE}, {0.7f, 0.25f}, "in", "adapter_a0.7_b0.25.merged.out"},
    {"two, the other way round",
     {DENSE, "bfl_blockdiag"},
     {0.25f, 0.7f},
     "in",
     "adapter_a0.7_b0.25.merged.out"},
    {"one twice", {"peft", "peft"}, {0.5f, 0.5f}, "in", "adapter_a.scale1.0.merged.out"},
};

typedef struct lora_run {
    model_rig *r;
    dfx_lora_weight loras[GOLDEN_LORAS_MOST];
    size_t n;
} lora_run;

static void fill(void *user, const dfx_program *program, dfx_dtype dtype, void *block) {
    lora_run *run = user;
    dfx_pool *pool;
    assert_int_equal(dfx_pool_open(&run->r->sink, 2, &pool), DFX_OK);
    assert_int_equal(dfx_lora_block_fill(program, DFX_TRANSFORMER, run->loras, run->n, dtype, pool,
                                         &run->r->sink, block),
                     DFX_OK);
    dfx_pool_close(pool);
}

static void open_loras(lora_run *run, const lora_case *c, const dfx_flux_config *flux) {
    dfx_configs configs = {.flux = *flux};
    for (int i = 0; i < GOLDEN_LORAS_MOST && c->files[i]; i++) {
        char path[128];
        dfx_lora *lora;
        snprintf(path, sizeof(path), "tests/golden/lora/%s.safetensors", c->files[i]);
        assert_int_equal(dfx_lora_open(path, &configs, &run->r->sink, &lora), DFX_OK);
        run->loras[run->n++] = (dfx_lora_weight){.lora = lora, .strength = c->strengths[i]};
    }
}

void golden_lora(model_rig *r, const lora_case *c) {
    bool small = c->input[2] == 0; /* "in" */
    const flux_case flux = {.name = c->name,
                            .folder = "dev/transformer",
                            .h = small ? 4 : 3,
                            .w = small ? 4 : 5,
                            .n_text = small ? 12 : 7,
                            .batch = 1,
                            .file = "lora",
                            .inputs = c->input};
    lora_run run = {.r = r};
    flux_run f = flux_begin(r, &flux);
    open_loras(&run, c, &f.config);
    f.env.adapter_rank = RANK;
    r->fill_adapters = fill;
    r->fill_user = &run;
    flux_run_cond(&f, 0);
    flux_run_step(&f, 0, 0);
    mrig_same(r, c->name, f.v, mrig_golden(r, "lora", f.Ti * C, "%s", c->want), f.Ti * C,
              TOLERANCE);
    for (size_t i = 0; i < run.n; i++)
        dfx_lora_close((dfx_lora *)run.loras[i].lora);
}
