#include "tools/bench_blocks.h"

#include "models/architecture.h"
#include "tools/bench_program.h"

enum { HEAD_SIZE = 128 };

/* From FLUX.1-dev at 1024x1024 down; the last one is for the slowest. */
static const dfx_bench_size SIZES[] = {
    {24, 512, 4096}, {24, 128, 1024}, {24, 64, 256}, {12, 64, 256}, {6, 64, 256}};

/* A pass of bf16 shall not take longer. */
static const double PASS_SECONDS_MOST = 0.3;

/* As many of each kind as FLUX.1-dev has, or a nineteenth of it: one double block for two single ones. */
static dfx_status build(bool all, dfx_dtype act_dtype, dfx_qformat format,
                        const dfx_bench_size *size, const dfx_sink *sink, dfx_program *out) {
    dfx_flux_config config = dfx_architecture_find("flux-dev")->configs.flux;
    dfx_q_policy policy = {.target = format, .kept = DFX_Q_STORED};
    dfx_build_env env = {.like = &policy, .act_dtype = act_dtype, .sink = sink};
    config.n_single = all ? config.n_single : config.n_single / config.n_double;
    config.n_double = all ? config.n_double : 1;
    config.n_heads = size->n_heads;
    config.width = size->n_heads * HEAD_SIZE;
    return dfx_flux_build_step(&config, &env, size->n_text, size->n_image, out);
}

/* ---- rounds */

static dfx_status whole_round(void *user, uint64_t idx) {
    return dfx_bench_program_run(user);
}

/* Ops of one part, in their order, with the operands of the whole. */
typedef struct part_of {
    dfx_bench_program *bench;
    dfx_bench_part part;
} part_of;

static dfx_status part_round(void *user, uint64_t idx) {
    const part_of *p = user;
    dfx_backend *be = p->bench->executor.backend;
    for (uint32_t i = 0; i < p->bench->n_calls; i++)
        if (dfx_bench_part_of(p->bench->calls[i].kind) == p->part)
            DFX_TRY(be->vt->run(be, &p->bench->calls[i]));
    return DFX_OK;
}

static dfx_status time_part(const dfx_bench_timer *timer, dfx_bench_program *bench,
                            dfx_bench_part part, dfx_bench_sample *out) {
    part_of p = {bench, part};
    dfx_bench_work work = {part_round, &p, bench->activations.ptr};
    return dfx_bench_time(timer, &work, out);
}

/* The parts and what goes on beside copies follow the whole, on a device that it has brought to its power limit. */
static dfx_status time_passes(const dfx_bench_timer *timer, const dfx_bench_blocks_question *q,
                              dfx_bench_program *bench, const dfx_sink *sink,
                              dfx_bench_blocks *out) {
    dfx_bench_timer settled = *timer;
    dfx_bench_work whole = {whole_round, bench, bench->activations.ptr};
    settled.settle_seconds = q->settle_seconds;
    DFX_TRY(dfx_bench_time(&settled, &whole, &out->whole));
    settled.settle_seconds = q->settle_seconds / 4;
    if (q->copies)
        DFX_TRY(dfx_bench_beside_copies(&settled, &whole, q->copies, sink, &out->beside,
                                        &out->copy_bytes_per_s));
    if (q->parts)
        DFX_TRY(time_part(timer, bench, DFX_BENCH_ATTENTION, &out->attention));
    return q->parts ? time_part(timer, bench, DFX_BENCH_REST, &out->rest) : DFX_OK;
}

dfx_status dfx_bench_blocks_run(const dfx_bench_timer *timer, const dfx_bench_blocks_question *q,
                                const dfx_sink *sink, dfx_bench_blocks *out) {
    dfx_bench_program bench = {0};
    *out = (dfx_bench_blocks){.format = q->format, .size = q->size};
    DFX_TRY(build(false, timer->be->act_dtype, q->format, &q->size, sink, &out->program));
    dfx_status status = dfx_bench_program_open(timer->be, &out->program, sink, &bench);
    if (status == DFX_OK)
        status = time_passes(timer, q, &bench, sink, out);
    dfx_bench_program_close(&bench);
    return status;
}

void dfx_bench_blocks_close(dfx_bench_blocks *blocks) {
    dfx_program_fini(&blocks->program);
}

dfx_bench_pass dfx_bench_blocks_pass(const dfx_bench_blocks *b) {
    return (dfx_bench_pass){.program = &b->program,
                            .whole_s = b->whole.median,
                            .attention_s = b->attention.median,
                            .rest_s = b->rest.median};
}

/* ---- size */

static double products_flops(const dfx_program *program) {
    double flops = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        dfx_op_call call;
        dfx_program_call(program, i, &call);
        flops += dfx_op_flops(&call);
    }
    return flops;
}

/* The rate of the smallest size foretells the others well enough for this. */
dfx_status dfx_bench_blocks_size(const dfx_bench_timer *timer, bool is_gpu, const dfx_sink *sink,
                                 dfx_bench_size *out) {
    dfx_bench_timer quick = *timer;
    dfx_bench_blocks least;
    *out = SIZES[0];
    if (is_gpu)
        return DFX_OK;
    quick.n_runs = 1;
    quick.run_seconds = 0;
    dfx_bench_blocks_question question = {.format = DFX_Q_BF16,
                                          .size = SIZES[DFX_COUNT(SIZES) - 1]};
    dfx_status status = dfx_bench_blocks_run(&quick, &question, sink, &least);
    double rate = status == DFX_OK ? products_flops(&least.program) / least.whole.median : 0;
    dfx_bench_blocks_close(&least);
    for (size_t i = 0; i < DFX_COUNT(SIZES) && status == DFX_OK; i++) {
        dfx_program program;
        *out = SIZES[i];
        status = build(false, timer->be->act_dtype, DFX_Q_BF16, out, sink, &program);
        if (status != DFX_OK)
            break;
        double seconds = products_flops(&program) / rate;
        dfx_program_fini(&program);
        if (seconds <= PASS_SECONDS_MOST)
            break;
    }
    return status;
}

dfx_bench_size dfx_bench_blocks_quarter(const dfx_bench_size *size) {
    return (dfx_bench_size){size->n_heads, size->n_text, size->n_image / 4};
}

dfx_status dfx_bench_flux_step(const dfx_profile *profile, dfx_dtype act_dtype, dfx_qformat format,
                               const dfx_sink *sink, double *seconds) {
    dfx_program program;
    DFX_TRY(build(true, act_dtype, format, &SIZES[0], sink, &program));
    *seconds = dfx_bench_foretold(&program, profile, DFX_BENCH_PARTS);
    dfx_program_fini(&program);
    return DFX_OK;
}
