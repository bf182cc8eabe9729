/* See bench_device.h. Bytes and operations are counted as the planner counts them (offload/plan_trace.c), so that its
 * seconds are these seconds. */
#include "tools/bench_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct bench {
    dfx_backend *be;
    const dfx_sink *sink;
    bool (*cancelled)(void *user);
    uint32_t n_runs;
    double run_seconds;
} bench;

/* A round is the least that is timed; it waits for its own end only when the last of a stretch. */
typedef struct rounds {
    dfx_status (*round)(bench *b, void *user, uint64_t idx);
    void *user;
    const void *written; /* on the device, by a round */
} rounds;

static dfx_status time_rounds(bench *b, const rounds *r, uint64_t n, double *seconds) {
    unsigned char end[16];
    double began = dfx_bench_seconds();
    for (uint64_t i = 0; i < n; i++)
        DFX_TRY(r->round(b, r->user, i));
    DFX_TRY(b->be->vt->download(b->be, end, r->written, sizeof(end)));
    *seconds = dfx_bench_seconds() - began;
    return b->cancelled(NULL) ? DFX_E_CANCELLED : DFX_OK;
}

/* What a round does, in bytes or operations, a second; with `work` 0 the seconds of a round. */
static dfx_status sample_rounds(bench *b, const rounds *r, double work, dfx_bench_sample *out) {
    double seconds;
    uint64_t n = 1;
    DFX_TRY(time_rounds(b, r, 1, &seconds)); /* touches memory, wakes threads */
    if (seconds < b->run_seconds)
        DFX_TRY(time_rounds(b, r, 1, &seconds));
    while (seconds < b->run_seconds / 2 && n < UINT32_MAX) { /* a short stretch tells little */
        double more = seconds > 0 ? b->run_seconds / seconds : 2;
        n = (uint64_t)ceil((double)n * fmin(fmax(more, 2), 100));
        DFX_TRY(time_rounds(b, r, n, &seconds));
    }
    for (uint32_t i = 0; i < b->n_runs; i++) {
        DFX_TRY(time_rounds(b, r, n, &seconds));
        dfx_bench_sample_add(out, work > 0 ? work * (double)n / seconds : seconds / (double)n);
    }
    return DFX_OK;
}

/* ---- copies ---- */

/* Copies go around a stretch that is larger than most caches, as pages do. */
enum { COPY_BYTES = 16 << 20, SMALL_COPY_BYTES = 4096, N_PLACES = 16 };

typedef struct copies {
    dfx_mem pinned, device;
    size_t bytes; /* of one */
} copies;

static dfx_status copy_round(bench *b, void *user, uint64_t idx) {
    copies *c = user;
    size_t off = idx % N_PLACES * COPY_BYTES;
    uint32_t copy = (uint32_t)idx;
    DFX_TRY(b->be->vt->copy_begin(b->be, copy, DFX_NO_MARK, (char *)c->device.ptr + off,
                                  (char *)c->pinned.ptr + off, c->bytes));
    return b->be->vt->copy_wait(b->be, copy);
}

static dfx_status measure_link(bench *b, dfx_bench_device *out) {
    const dfx_backend_vtable *vt = b->be->vt;
    size_t bytes = (size_t)N_PLACES * COPY_BYTES;
    copies c = {.bytes = COPY_BYTES};
    dfx_status status;
    DFX_TRY_OUT(status, vt->pinned_alloc(b->be, bytes, "bench", &c.pinned));
    DFX_TRY_OUT(status, vt->alloc(b->be, bytes, "bench", &c.device));
    memset(c.pinned.ptr, 1, bytes); /* pages of zeros may be one page of memory */
    DFX_TRY_OUT(status, vt->upload(b->be, c.device.ptr, c.pinned.ptr, bytes));
    rounds r = {.round = copy_round, .user = &c, .written = c.device.ptr};
    DFX_TRY_OUT(status, sample_rounds(b, &r, COPY_BYTES, &out->link.sample));
    c.bytes = SMALL_COPY_BYTES;
    DFX_TRY_OUT(status, sample_rounds(b, &r, 0, &out->link_latency.sample));
    snprintf(out->link.note, DFX_BENCH_NOTE_BYTES, "16 MiB from pinned memory");
    snprintf(out->link_latency.note, DFX_BENCH_NOTE_BYTES, "4 KiB from pinned memory");
out:
    if (c.device.ptr)
        vt->free(b->be, &c.device);
    if (c.pinned.ptr)
        vt->pinned_free(b->be, &c.pinned);
    return status;
}

/* ---- ops ---- */

enum { CALLS_MAX = 3, OPERANDS_MAX = 4 };

/* Ops and what they work on. */
typedef struct ops {
    dfx_op_call calls[CALLS_MAX];
    int n_calls;
    dfx_mem mem[OPERANDS_MAX];
    int n_mem;
} ops;

static void free_ops(bench *b, ops *o) {
    b->be->vt->workspace_free(b->be);
    for (int i = 0; i < o->n_mem; i++)
        b->be->vt->free(b->be, &o->mem[i]);
}

/* Values in [-1, 1) of any type, int8 codes for I8: some processors take longer for numbers that nobody computes with. */
static void make_values(dfx_dtype dtype, float *plain, void *out, size_t n) {
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        int8_t code = (int8_t)(state >> 24);
        plain[i] = (float)code / 128;
        if (dtype == DFX_DTYPE_I8)
            ((int8_t *)out)[i] = code;
    }
    if (dtype != DFX_DTYPE_I8)
        dfx_from_f32(dtype, plain, out, n);
}

/* Device memory of `o`, [rows, cols], full of values. */
static dfx_status add_operand(bench *b, ops *o, dfx_dtype dtype, int64_t rows, int64_t cols,
                              dfx_mat *out) {
    enum { BLOCK = 1 << 18 };
    size_t n = (size_t)(rows * cols), value_bytes = dfx_dtype_bytes(dtype);
    float *plain;
    DFX_TRY(b->be->vt->alloc(b->be, n * value_bytes, "bench", &o->mem[o->n_mem]));
    void *at = o->mem[o->n_mem++].ptr;
    DFX_TRY(dfx_new_array(b->sink, (size_t)2 * BLOCK, "bench", &plain));
    void *block = plain + BLOCK;
    make_values(dtype, plain, block, BLOCK);
    dfx_status status = DFX_OK;
    for (size_t i = 0; status == DFX_OK && i < n; i += BLOCK)
        status = b->be->vt->upload(b->be, (char *)at + i * value_bytes, block,
                                   (n - i < BLOCK ? n - i : BLOCK) * value_bytes);
    dfx_free(plain);
    *out = (dfx_mat){.ptr = at, .rows = rows, .cols = cols, .ld = cols, .dtype = dtype};
    return status;
}

static dfx_status op_round(bench *b, void *user, uint64_t idx) {
    const ops *o = user;
    for (int i = 0; i < o->n_calls; i++)
        DFX_TRY(b->be->vt->run(b->be, &o->calls[i]));
    return DFX_OK;
}

static dfx_status sample_ops(bench *b, ops *o, double work, dfx_bench_sample *out) {
    for (int i = 0; i < o->n_calls; i++) {
        DFX_TRY(dfx_op_check(&o->calls[i], b->sink));
        DFX_TRY(b->be->vt->prepare(b->be, &o->calls[i]));
    }
    DFX_TRY(b->be->vt->workspace_alloc(b->be));
    rounds r = {.round = op_round, .user = o, .written = o->calls[0].m[0].ptr};
    return sample_rounds(b, &r, work, out);
}

/* y = y + b: every byte that the plan counts for it goes over the memory once. As large as the MLP of a picture of
 * 1024x1024, which no cache holds. The same, tiny, is what it takes to start an op. */
static dfx_status measure_add(bench *b, int64_t rows, int64_t cols, bool bytes,
                              dfx_bench_rate *out) {
    ops o = {.n_calls = 1, .calls = {{.kind = DFX_OP_ADD}}};
    dfx_mat *m = o.calls[0].m;
    dfx_status status;
    DFX_TRY_OUT(status, add_operand(b, &o, b->be->act_dtype, rows, cols, &m[0]));
    DFX_TRY_OUT(status, add_operand(b, &o, b->be->act_dtype, rows, cols, &m[DFX_BIN_B]));
    m[DFX_BIN_A] = m[0];
    double moved = 3.0 * (double)(rows * cols) * (double)dfx_dtype_bytes(b->be->act_dtype);
    snprintf(out->note, DFX_BENCH_NOTE_BYTES, "add, [%lld, %lld] %s", (long long)rows,
             (long long)cols, dfx_dtype_name(b->be->act_dtype));
    status = sample_ops(b, &o, bytes ? moved : 0, &out->sample);
out:
    free_ops(b, &o);
    return status;
}

static dfx_status measure_attention(bench *b, dfx_bench_rate *out) {
    enum { TOKENS = 1024, HEADS = 24, HEAD = 128 };
    ops o = {.n_calls = 1,
             .calls = {{.kind = DFX_OP_ATTENTION,
                        .p = {.n_heads = HEADS, .scale = 1 / sqrtf((float)HEAD)}}}};
    dfx_status status;
    for (int i = 0; i <= DFX_ATTN_V; i++)
        DFX_TRY_OUT(status, add_operand(b, &o, b->be->act_dtype, TOKENS, (int64_t)HEADS * HEAD,
                                        &o.calls[0].m[i]));
    snprintf(out->note, DFX_BENCH_NOTE_BYTES, "%d heads of %d, %d tokens", HEADS, HEAD, TOKENS);
    status = sample_ops(b, &o, dfx_op_flops(&o.calls[0]), &out->sample);
out:
    free_ops(b, &o);
    return status;
}

/* ---- products ---- */

/* Of a block of width D: attention's output, D to D, and its MLP, D to 4 D and back, for T tokens. */
typedef struct product_shape {
    int64_t tokens, width;
} product_shape;

enum { TOKENS_LEAST = 256, TOKENS_MOST = 4608, WIDTH_LEAST = 768, WIDTH_MOST = 3072 };

static double shape_flops(const product_shape *s) {
    return 2.0 * (double)s->tokens * 9 * (double)(s->width * s->width);
}

/* The widest, then longest shape that is done in time: FLUX's own where the device is fast enough for it. */
static product_shape choose_shape(double flops) {
    product_shape s = {TOKENS_LEAST, WIDTH_MOST};
    while (s.width > WIDTH_LEAST && shape_flops(&s) > flops)
        s.width /= 2;
    double times = floor(flops / shape_flops(&s));
    s.tokens *= (int64_t)fmin(fmax(times, 1), TOKENS_MOST / TOKENS_LEAST);
    return s;
}

static dfx_status sample_products(bench *b, dfx_dtype dtype, const product_shape *s,
                                  dfx_bench_sample *out) {
    static const int n_of[CALLS_MAX] = {1, 4, 1}, k_of[CALLS_MAX] = {1, 1, 4};
    ops o = {.n_calls = CALLS_MAX};
    dfx_mat x, y, w, scale;
    double work = 0;
    dfx_status status;
    DFX_TRY_OUT(status, add_operand(b, &o, b->be->act_dtype, s->tokens, 4 * s->width, &x));
    DFX_TRY_OUT(status, add_operand(b, &o, b->be->act_dtype, s->tokens, 4 * s->width, &y));
    DFX_TRY_OUT(status, add_operand(b, &o, dtype, s->width, 4 * s->width, &w));
    DFX_TRY_OUT(status, add_operand(b, &o, DFX_DTYPE_F32, 1, 4 * s->width, &scale));
    for (int i = 0; i < CALLS_MAX; i++) {
        dfx_op_call *call = &o.calls[i];
        int64_t n = n_of[i] * s->width, k = k_of[i] * s->width;
        call->kind = DFX_OP_LINEAR;
        call->m[0] = (dfx_mat){y.ptr, s->tokens, n, n, y.dtype};
        call->m[DFX_LINEAR_X] = (dfx_mat){x.ptr, s->tokens, k, k, x.dtype};
        call->m[DFX_LINEAR_W] = (dfx_mat){w.ptr, n, k, k, w.dtype};
        if (dtype != DFX_DTYPE_BF16)
            call->m[DFX_LINEAR_SCALE] = (dfx_mat){scale.ptr, 1, n, n, scale.dtype};
        work += dfx_op_flops(call);
    }
    status = sample_ops(b, &o, work, out);
out:
    free_ops(b, &o);
    return status;
}

static dfx_status measure_products(bench *b, dfx_dtype dtype, dfx_bench_rate *out) {
    bench quick = *b;
    dfx_bench_sample guess = {0};
    quick.n_runs = 1;
    quick.run_seconds = 0;
    DFX_TRY(sample_products(&quick, dtype, &(product_shape){TOKENS_LEAST, WIDTH_LEAST}, &guess));
    product_shape s = choose_shape(guess.median * b->run_seconds);
    snprintf(out->note, DFX_BENCH_NOTE_BYTES, "%lld tokens, %lld to %lld, to %lld and back",
             (long long)s.tokens, (long long)s.width, (long long)s.width, (long long)(4 * s.width));
    return sample_products(b, dtype, &s, &out->sample);
}

static dfx_status measure(bench *b, dfx_bench_device *out) {
    DFX_TRY(measure_link(b, out));
    DFX_TRY(measure_add(b, 4608, 12288, true, &out->memory));
    DFX_TRY(measure_add(b, 64, 64, false, &out->launch));
    DFX_TRY(measure_products(b, DFX_DTYPE_BF16, &out->bf16_product));
    DFX_TRY(measure_products(b, DFX_DTYPE_I8, &out->int8_product));
    DFX_TRY(measure_products(b, DFX_DTYPE_F8_E4M3, &out->fp8_product));
    return measure_attention(b, &out->attention);
}

dfx_status dfx_bench_device_run(dfx_backend *be, uint32_t n_runs, bool (*cancelled)(void *user),
                                const dfx_sink *sink, dfx_bench_device *out) {
    bench b = {.be = be,
               .sink = sink,
               .cancelled = cancelled,
               .n_runs = n_runs,
               .run_seconds = DFX_BENCH_RUN_SECONDS};
    *out = (dfx_bench_device){0};
    be->vt->set_cancel(be, cancelled, NULL);
    dfx_status status = measure(&b, out);
    be->vt->set_cancel(be, NULL, NULL);
    return status;
}
