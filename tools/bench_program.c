/* See bench_program.h. Addresses are those that the executor hands to its probe, so that they are what it runs with. */
#include "tools/bench_program.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"

enum { NOISE_VALUES = 1 << 18 };

/* As the values of a weight: normal ones, whose bits are all in use, since how much power a product takes hangs on its operands,
 * and on a GPU at its power limit the time hangs on that. Codes fill their range with the greatest of some thousands; wide
 * weights, and codes times scales, make products of order 1. */
static void narrow_noise(const float *noise, dfx_dtype dtype, float *plain, void *out) {
    static const float GREATEST = 3.5f, SCALE = 2e-4f;
    float most = dtype == DFX_DTYPE_I8 ? 127 : 448;
    bool codes = dtype == DFX_DTYPE_I8 || dtype == DFX_DTYPE_F8_E4M3;
    for (size_t i = 0; i < NOISE_VALUES; i++) {
        float code = fmaxf(-most, fminf(most, noise[i] * most / GREATEST));
        plain[i] = codes ? code : dtype == DFX_DTYPE_F32 ? SCALE : noise[i] / 64;
        if (dtype == DFX_DTYPE_I8)
            ((int8_t *)out)[i] = (int8_t)lrintf(code);
    }
    if (dtype != DFX_DTYPE_I8)
        dfx_from_f32(dtype, plain, out, NOISE_VALUES);
}

/* `bytes` at `dst`, again and again the same block. */
static dfx_status upload_repeated(dfx_backend *be, void *dst, size_t bytes, const void *block,
                                  size_t block_bytes) {
    for (size_t at = 0; at < bytes; at += block_bytes)
        DFX_TRY(be->vt->upload(be, (char *)dst + at, block,
                               bytes - at < block_bytes ? bytes - at : block_bytes));
    return DFX_OK;
}

/* What a norm multiplies by is 1 or so; were it little, all scores of attention would be the same. */
static bool is_of_norm(const dfx_program *p, uint32_t weight) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const dfx_op *op = &p->ops[i];
        int slot = op->kind == DFX_OP_QKNORM_ROPE ? DFX_QKNORM_W
                   : op->kind == DFX_OP_LAYERNORM || op->kind == DFX_OP_RMSNORM ||
                           op->kind == DFX_OP_GROUPNORM || op->kind == DFX_OP_GROUPNORM_STATS
                       ? DFX_NORM_W
                       : -1;
        if (slot < 0 || !op->r[slot].buf)
            continue;
        const dfx_buf *buf = &p->bufs[op->r[slot].buf];
        if (buf->kind == DFX_BUF_WEIGHT && buf->idx == weight)
            return true;
    }
    return false;
}

/* One type at a time, so that the noise is narrowed once for each. */
static dfx_status upload_weights(const dfx_bench_program *b, dfx_dtype dtype, const void *block,
                                 const void *ones) {
    dfx_backend *be = b->executor.backend;
    for (uint32_t i = 0; i < b->program->n_weights; i++) {
        const dfx_weight *w = &b->program->weights[i];
        if (w->dtype == dtype)
            DFX_TRY(upload_repeated(be, (char *)b->pages.ptr + b->page_off[w->page_idx] + w->off,
                                    w->bytes, is_of_norm(b->program, i) ? ones : block,
                                    NOISE_VALUES * dfx_dtype_bytes(dtype)));
    }
    return DFX_OK;
}

/* A single number, the step of Euler, stays 0: then the latents, which a step writes, stay what they are. */
static dfx_status upload_inputs(const dfx_bench_program *b, dfx_dtype dtype, const void *block) {
    for (uint32_t i = 0; i < b->program->n_externs; i++) {
        const dfx_buf *buf = &b->program->bufs[b->program->externs[i].buf];
        static const float zero = 0;
        if (buf->dtype == dtype && buf->rows * buf->cols > 1)
            DFX_TRY(upload_repeated(b->executor.backend, b->externs[i], buf->bytes, block,
                                    NOISE_VALUES * dfx_dtype_bytes(dtype)));
        else if (buf->dtype == dtype && dtype == DFX_DTYPE_F32)
            DFX_TRY(b->executor.backend->vt->upload(b->executor.backend, b->externs[i], &zero,
                                                    sizeof(zero)));
    }
    return DFX_OK;
}

/* For the weights of norms, which are never I8. */
static void make_ones(dfx_dtype dtype, float *plain, void *out) {
    for (size_t i = 0; i < NOISE_VALUES; i++)
        plain[i] = 1;
    if (dtype != DFX_DTYPE_I8)
        dfx_from_f32(dtype, plain, out, NOISE_VALUES);
}

/* In [-1, 1]: F32 inputs are sines and the like, not scales. */
static void make_sines(const float *noise, float *out) {
    for (size_t i = 0; i < NOISE_VALUES; i++)
        out[i] = fmaxf(-1, fminf(1, noise[i]));
}

static dfx_status upload_all(const dfx_bench_program *b, const dfx_sink *sink) {
    static const dfx_dtype dtypes[] = {DFX_DTYPE_BF16, DFX_DTYPE_F32, DFX_DTYPE_I8,
                                       DFX_DTYPE_F8_E4M3};
    enum { N_BLOCKS = 4 };
    float *noise;
    dfx_rng rng;
    DFX_TRY(dfx_new_array(sink, (size_t)N_BLOCKS * NOISE_VALUES, "bench", &noise));
    float *plain = noise + NOISE_VALUES, *block = plain + NOISE_VALUES,
          *ones = block + NOISE_VALUES;
    dfx_rng_seed(&rng, 1);
    dfx_rng_normal(&rng, noise, NOISE_VALUES);
    dfx_status status = DFX_OK;
    for (size_t i = 0; i < DFX_COUNT(dtypes) && status == DFX_OK; i++) {
        make_ones(dtypes[i], plain, ones);
        narrow_noise(noise, dtypes[i], plain, block);
        status = upload_weights(b, dtypes[i], block, ones);
        if (dtypes[i] == DFX_DTYPE_F32)
            make_sines(noise, block);
        if (status == DFX_OK)
            status = upload_inputs(b, dtypes[i], block);
    }
    dfx_free(noise);
    return status;
}

/* The last value of an extern may be read with those beside it: 16 bytes are there. */
static size_t extern_bytes(const dfx_program *p, uint32_t i) {
    return dfx_align_up(p->bufs[p->externs[i].buf].bytes, DFX_ACT_ALIGN);
}

static dfx_status allocate(dfx_bench_program *b, const dfx_sink *sink) {
    const dfx_program *p = b->program;
    dfx_backend *be = b->executor.backend;
    size_t page_bytes = 0, input_bytes = 0;
    DFX_TRY(dfx_new_array(sink, p->n_pages, "bench", &b->page_off));
    DFX_TRY(dfx_new_array(sink, p->n_externs, "bench", &b->externs));
    DFX_TRY(dfx_new_array(sink, p->n_ops, "bench", &b->calls));
    for (uint32_t i = 0; i < p->n_pages; i++) {
        b->page_off[i] = page_bytes;
        page_bytes += dfx_align_up(p->pages[i].bytes, DFX_ACT_ALIGN);
    }
    for (uint32_t i = 0; i < p->n_externs; i++)
        input_bytes += extern_bytes(p, i);
    DFX_TRY(dfx_executor_announce(be, p));
    DFX_TRY(be->vt->workspace_alloc(be));
    DFX_TRY(be->vt->alloc(be, p->act_bytes, "bench", &b->activations));
    DFX_TRY(be->vt->alloc(be, page_bytes, "bench", &b->pages));
    DFX_TRY(be->vt->alloc(be, input_bytes, "bench", &b->inputs));
    char *at = b->inputs.ptr;
    for (uint32_t i = 0; i < p->n_externs; at += extern_bytes(p, i++))
        b->externs[i] = at;
    b->executor.activations = b->activations.ptr;
    b->executor.activation_bytes = p->act_bytes;
    return DFX_OK;
}

static void keep_call(void *user, const dfx_op *op, const dfx_op_call *call) {
    dfx_bench_program *b = user;
    if (b->n_calls < b->program->n_ops)
        b->calls[b->n_calls++] = *call;
}

dfx_status dfx_bench_program_open(dfx_backend *backend, const dfx_program *program,
                                  const dfx_sink *sink, dfx_bench_program *out) {
    *out = (dfx_bench_program){.program = program,
                               .executor = {.backend = backend, .sink = sink, .probe = keep_call}};
    DFX_TRY(allocate(out, sink));
    DFX_TRY(upload_all(out, sink));
    out->executor.probe_user = out;
    DFX_TRY(dfx_bench_program_run(out));
    out->executor.probe = NULL;
    return DFX_OK;
}

void dfx_bench_program_close(dfx_bench_program *b) {
    dfx_backend *be = b->executor.backend;
    if (b->activations.ptr)
        be->vt->free(be, &b->activations);
    if (b->pages.ptr)
        be->vt->free(be, &b->pages);
    if (b->inputs.ptr)
        be->vt->free(be, &b->inputs);
    dfx_recorded_fini(&b->recorded, be);
    if (be)
        be->vt->workspace_free(be);
    dfx_free(b->calls);
    dfx_free(b->externs);
    dfx_free(b->page_off);
    *b = (dfx_bench_program){0};
}

static dfx_status pin_here(void *self, uint32_t region, uint32_t page_idx, void **base) {
    const dfx_bench_program *b = self;
    *base = (char *)b->pages.ptr + b->page_off[page_idx];
    return DFX_OK;
}

static void unpin_here(void *self, uint32_t region) {}

dfx_status dfx_bench_program_run(dfx_bench_program *b) {
    dfx_page_source pages = {.pin = pin_here, .unpin = unpin_here, .self = b};
    return dfx_executor_run(&b->executor, b->program, &b->recorded, &pages, b->externs);
}
