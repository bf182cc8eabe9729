#include "tools/bench_device.h"

#include "tools/bench_link.h"

const dfx_qformat dfx_bench_formats[DFX_BENCH_FORMATS] = {DFX_Q_BF16, DFX_Q_INT8, DFX_Q_FP8};

/* With the timed stretches some one and a half seconds of passes: what it takes until a GPU's clocks have settled. */
static const double SETTLE_SECONDS = 0.8;

/* Of a stretch of what needs no such care. */
static const double BRIEF_SECONDS = 0.05;

/* ---- the start of an op */

typedef struct launch {
    dfx_backend *be;
    dfx_op_call call;
} launch;

static dfx_status launch_round(void *user, uint64_t idx) {
    const launch *l = user;
    return l->be->vt->run(l->be, &l->call);
}

/* y = y + b of 64 rows of 64: what an op takes that does next to nothing. */
static dfx_status measure_launch(const dfx_bench_timer *timer, dfx_bench_sample *out) {
    enum { SIDE = 64, N_VALUES = SIDE * SIDE };
    static const float zeros[2 * N_VALUES];
    dfx_backend *be = timer->be;
    size_t bytes = N_VALUES * dfx_dtype_bytes(be->act_dtype);
    launch l = {.be = be, .call = {.kind = DFX_OP_ADD}};
    dfx_mem both = {0};
    dfx_status status;
    DFX_TRY(be->vt->alloc(be, 2 * bytes, "bench", &both));
    l.call.m[0] = (dfx_mat){both.ptr, SIDE, SIDE, SIDE, be->act_dtype};
    l.call.m[DFX_BIN_A] = l.call.m[DFX_BIN_B] = l.call.m[0];
    l.call.m[DFX_BIN_B].ptr = (char *)both.ptr + bytes;
    DFX_TRY_OUT(status, be->vt->upload(be, both.ptr, zeros, 2 * bytes));
    DFX_TRY_OUT(status, be->vt->prepare(be, &l.call));
    DFX_TRY_OUT(status, be->vt->workspace_alloc(be));
    dfx_bench_work work = {launch_round, &l, both.ptr};
    status = dfx_bench_time(timer, &work, out);
out:
    be->vt->workspace_free(be);
    be->vt->free(be, &both);
    return status;
}

/* ---- all of it */

/* Attention and the rest are the same in every format: they are timed alone in the first one. On a processor passes take long
 * and copies cost all formats the same, a core: beside copies, too, only the first one is timed. */
static dfx_status measure_blocks(const dfx_bench_timer *timer, bool is_gpu,
                                 dfx_bench_copies *copies, const dfx_sink *sink,
                                 dfx_bench_device *out) {
    dfx_bench_size size;
    dfx_bench_timer brief = *timer;
    brief.run_seconds = BRIEF_SECONDS;
    DFX_TRY(dfx_bench_blocks_size(timer, is_gpu, sink, &size));
    for (int i = 0; i < out->n_formats; i++) {
        dfx_bench_blocks_question large = {.format = dfx_bench_formats[i],
                                           .size = size,
                                           .settle_seconds = is_gpu ? SETTLE_SECONDS : 0,
                                           .parts = i == 0,
                                           .copies = is_gpu || i == 0 ? copies : NULL},
                                  small = {.format = dfx_bench_formats[i],
                                           .size = dfx_bench_blocks_quarter(&size)};
        dfx_info(sink, "measuring blocks in %s", dfx_q_name(large.format));
        DFX_TRY(dfx_bench_blocks_run(timer, &large, sink, &out->large[i]));
        DFX_TRY(dfx_bench_blocks_run(&brief, &small, sink, &out->small[i]));
    }
    return DFX_OK;
}

static dfx_status measure(const dfx_bench_timer *timer, bool is_gpu, const dfx_sink *sink,
                          dfx_bench_device *out) {
    dfx_bench_copies copies;
    dfx_bench_timer brief = *timer;
    dfx_status status;
    brief.run_seconds = BRIEF_SECONDS;
    dfx_info(sink, "measuring copies to the device");
    DFX_TRY_OUT(status, dfx_bench_copies_open(timer->be, &copies));
    DFX_TRY_OUT(status, dfx_bench_link_run(&brief, &copies, &out->link, &out->link_latency));
    DFX_TRY_OUT(status, measure_launch(&brief, &out->launch));
    status = measure_blocks(timer, is_gpu, &copies, sink, out);
out:
    dfx_bench_copies_close(&copies);
    return status;
}

dfx_status dfx_bench_device_run(dfx_backend *be, const dfx_device_facts *facts, uint32_t n_runs,
                                bool (*cancelled)(void *user), const dfx_sink *sink,
                                dfx_bench_device *out) {
    dfx_bench_timer timer = {
        .be = be, .cancelled = cancelled, .n_runs = n_runs, .run_seconds = DFX_BENCH_RUN_SECONDS};
    *out =
        (dfx_bench_device){.n_formats = facts->has_fp8 ? DFX_BENCH_FORMATS : DFX_BENCH_FORMATS - 1};
    be->vt->set_cancel(be, cancelled, NULL);
    dfx_status status = measure(&timer, facts->sm > 0, sink, out);
    be->vt->set_cancel(be, NULL, NULL);
    return status;
}

void dfx_bench_device_close(dfx_bench_device *device) {
    for (int i = 0; i < DFX_BENCH_FORMATS; i++) {
        dfx_bench_blocks_close(&device->large[i]);
        dfx_bench_blocks_close(&device->small[i]);
    }
}

static double share_of(const dfx_bench_device *d) {
    double alone_s[DFX_BENCH_FORMATS], beside_s[DFX_BENCH_FORMATS];
    int n = 0;
    for (int i = 0; i < d->n_formats; i++)
        if (d->large[i].beside.n > 0) {
            alone_s[n] = d->large[i].whole.median;
            beside_s[n++] = d->large[i].beside.median;
        }
    return dfx_bench_fit_share(alone_s, beside_s, n);
}

void dfx_bench_device_fit(const dfx_bench_device *d, dfx_profile *p) {
    double *const rates[DFX_BENCH_FORMATS] = {&p->bf16_flops, &p->int8_flops, &p->fp8_flops};
    dfx_bench_pass first = dfx_bench_blocks_pass(&d->large[0]);
    p->link_bytes_per_s = d->link.median;
    p->link_latency_s = d->link_latency.median;
    p->link_slows_compute = share_of(d);
    p->launch_s = d->launch.median;
    p->has_fp8 = d->n_formats == DFX_BENCH_FORMATS;
    dfx_bench_fit_machine(&first, p);
    for (int i = 0; i < d->n_formats; i++) {
        dfx_bench_pass pass = dfx_bench_blocks_pass(&d->large[i]);
        dfx_bench_fit_products(&pass, p, rates[i]);
    }
}
