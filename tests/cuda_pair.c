/* See cuda_pair.h. A failure of either backend ends the program: what it said is the report. */
#include "tests/cuda_pair.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 20, WARM_UPS = 3 };

static void must(dfx_status status, const char *what) {
    if (status == DFX_OK)
        return;
    printf("%s: %s\n", what, dfx_status_text(status));
    exit(1);
}

static void must_cuda(cudaError_t error) {
    if (error == cudaSuccess)
        return;
    printf("timing: %s\n", cudaGetErrorString(error));
    exit(1);
}

bool pair_begin(pair *p, dfx_op_kind kind, const char *fmt, ...) {
    int n = snprintf(p->name, sizeof(p->name), "%s ", dfx_op_info_of(kind)->name);
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->name + n, sizeof(p->name) - (size_t)n, fmt, args);
    va_end(args);
    if (p->only && !strstr(p->name, p->only)) {
        p->n_skipped++;
        return false;
    }
    p->on_cpu = p->on_cuda = (dfx_op_call){.kind = kind};
    p->params = (dfx_op_params){0};
    p->kernel = NULL;
    p->seed = 1;
    return true;
}

static void *host_of(pair *p, size_t bytes) {
    void *block = malloc(bytes);
    if (!block)
        must(DFX_E_NOFIT, p->name);
    return block;
}

/* n values in [low, high), other ones for each operand of a case. */
static float *random_values(pair *p, int64_t n, float low, float high) {
    float *values = host_of(p, (size_t)n * sizeof(*values));
    uint64_t x = p->seed++ * 2 + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = low + (high - low) * ((float)(x >> 40) * 0x1p-24f);
    }
    return values;
}

/* Operands of both calls; what is at `host` is what CUDA gets, and the CPU too when `dtype` is its type there. */
static void put(pair *p, int slot, dfx_mat shape, dfx_dtype cpu_dtype, const void *host) {
    int64_t n = shape.rows * shape.ld;
    size_t bytes = (size_t)n * dfx_dtype_bytes(shape.dtype);
    must(p->cuda->vt->alloc(p->cuda, bytes, "case", &p->cuda_mem[slot]), p->name);
    must(p->cuda->vt->upload(p->cuda, p->cuda_mem[slot].ptr, host, bytes), p->name);
    shape.ptr = p->cuda_mem[slot].ptr;
    p->on_cuda.m[slot] = shape;

    must(p->cpu->vt->alloc(p->cpu, (size_t)n * dfx_dtype_bytes(cpu_dtype), "case",
                           &p->cpu_mem[slot]),
         p->name);
    shape.ptr = p->cpu_mem[slot].ptr;
    if (cpu_dtype == shape.dtype)
        memcpy(shape.ptr, host, bytes);
    else
        dfx_to_f32(shape.dtype, host, shape.ptr, (size_t)n);
    shape.dtype = cpu_dtype;
    p->on_cpu.m[slot] = shape;
}

/* Packed values to BF16 rows, NaN behind each. */
static void put_act(pair *p, int slot, int64_t rows, int64_t cols, int64_t ld,
                    const float *values) {
    uint16_t *host = host_of(p, (size_t)(rows * ld) * sizeof(*host));
    for (int64_t t = 0; t < rows; t++) {
        dfx_from_f32(DFX_DTYPE_BF16, values + t * cols, host + t * ld, (size_t)cols);
        for (int64_t i = cols; i < ld; i++)
            host[t * ld + i] = 0x7fc0;
    }
    dfx_mat shape = {.rows = rows, .cols = cols, .ld = ld, .dtype = DFX_DTYPE_BF16};
    put(p, slot, shape, DFX_DTYPE_F32, host);
    free(host);
}

void pair_act(pair *p, int slot, int64_t rows, int64_t cols, int64_t ld, float range) {
    float *values = random_values(p, rows * cols, -range, range);
    put_act(p, slot, rows, cols, ld, values);
    free(values);
}

void pair_out(pair *p, int64_t rows, int64_t cols, int64_t ld) {
    float *values = host_of(p, (size_t)(rows * cols) * sizeof(*values));
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = NAN;
    put_act(p, 0, rows, cols, ld, values);
    free(values);
}

void pair_out_is(pair *p, int slot) {
    p->on_cpu.m[0] = p->on_cpu.m[slot];
    p->on_cuda.m[0] = p->on_cuda.m[slot];
}

void pair_out_in(pair *p, int slot, int64_t cols) {
    pair_out_is(p, slot);
    p->on_cpu.m[0].cols = p->on_cuda.m[0].cols = cols;
}

void pair_f32(pair *p, int slot, int64_t rows, int64_t cols, float low, float high) {
    float *values = random_values(p, rows * cols, low, high);
    dfx_mat shape = {.rows = rows, .cols = cols, .ld = cols, .dtype = DFX_DTYPE_F32};
    put(p, slot, shape, DFX_DTYPE_F32, values);
    free(values);
}

void pair_weight(pair *p, int slot, dfx_dtype dtype, int64_t rows, int64_t cols, float range) {
    bool codes = dtype == DFX_DTYPE_I8;
    size_t n = (size_t)(rows * cols);
    float *values = random_values(p, rows * cols, codes ? -127 : -range, codes ? 128 : range);
    void *host = host_of(p, n * dfx_dtype_bytes(dtype));
    if (codes)
        for (size_t i = 0; i < n; i++)
            ((int8_t *)host)[i] = (int8_t)floorf(values[i]);
    else
        dfx_from_f32(dtype, values, host, n);
    dfx_mat shape = {.rows = rows, .cols = cols, .ld = cols, .dtype = dtype};
    put(p, slot, shape, dtype, host);
    free(host);
    free(values);
}

void pair_out_codes(pair *p, dfx_dtype dtype, int64_t rows, int64_t cols, int scale_slot) {
    uint8_t *host = host_of(p, (size_t)(rows * cols));
    memset(host, 0x7f, (size_t)(rows * cols));
    put(p, 0, (dfx_mat){.rows = rows, .cols = cols, .ld = cols, .dtype = dtype}, dtype, host);
    free(host);
    if (scale_slot)
        pair_f32(p, scale_slot, 1, rows, NAN, NAN);
}

static void finish(pair *p) {
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++) {
        if (p->cpu_mem[slot].ptr)
            p->cpu->vt->free(p->cpu, &p->cpu_mem[slot]);
        if (p->cuda_mem[slot].ptr)
            p->cuda->vt->free(p->cuda, &p->cuda_mem[slot]);
        p->cpu_mem[slot] = p->cuda_mem[slot] = (dfx_mem){0};
    }
}

/* Of several kernels, one of which it is given to. */
static bool has_kernels(dfx_op_kind kind) {
    return kind == DFX_OP_LINEAR || kind == DFX_OP_CONV2D || kind == DFX_OP_ATTENTION ||
           kind == DFX_OP_ATTENTION_CODES;
}

static void launch(pair *p, dfx_backend *be, const dfx_op_call *call) {
    bool by_itself = p->kernel && be == p->cuda;
    must(by_itself ? p->kernel((dfx_cuda *)be, call) : be->vt->run(be, call), p->name);
    if (be == p->cuda && !by_itself && has_kernels(call->kind) && !*be->vt->kernels(be))
        must(DFX_E_INTERNAL, "an op that does not tell its kernel");
}

static void run(pair *p, dfx_backend *be, dfx_op_call *call) {
    call->p = p->params;
    must(dfx_op_check(call, be->sink), p->name);
    must(be->vt->prepare(be, call), p->name);
    must(be->vt->workspace_alloc(be), p->name);
    launch(p, be, call);
}

static size_t bytes_of(const dfx_mat *m) {
    return (size_t)(m->rows * m->ld) * dfx_dtype_bytes(m->dtype);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds of a launch, operands in cache where they fit. */
static double time_call(pair *p) {
    cudaStream_t stream = ((dfx_cuda *)p->cuda)->compute;
    cudaEvent_t at[LAUNCHES + 1];
    float ms[LAUNCHES];
    for (int i = 0; i <= LAUNCHES; i++)
        must_cuda(cudaEventCreate(&at[i]));
    for (int i = 0; i < WARM_UPS; i++)
        launch(p, p->cuda, &p->on_cuda);
    must_cuda(cudaEventRecord(at[0], stream));
    for (int i = 0; i < LAUNCHES; i++) {
        launch(p, p->cuda, &p->on_cuda);
        must_cuda(cudaEventRecord(at[i + 1], stream));
    }
    must_cuda(cudaEventSynchronize(at[LAUNCHES]));
    for (int i = 0; i < LAUNCHES; i++)
        must_cuda(cudaEventElapsedTime(&ms[i], at[i], at[i + 1]));
    for (int i = 0; i <= LAUNCHES; i++)
        must_cuda(cudaEventDestroy(at[i]));
    qsort(ms, LAUNCHES, sizeof(*ms), by_value);
    return (double)(ms[LAUNCHES / 2 - 1] + ms[LAUNCHES / 2]) / 2;
}

/* Each operand read once, the output written once. */
static double call_bytes(const dfx_op_call *call) {
    double bytes = 0;
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++) {
        const dfx_mat *m = &call->m[slot];
        bytes += (double)(m->rows * m->cols) * (double)dfx_dtype_bytes(m->dtype);
    }
    return bytes;
}

static void print_time(pair *p) {
    dfx_op_kind kind = p->on_cuda.kind;
    double ms = time_call(p), flops = dfx_op_flops(&p->on_cuda);
    printf("  %9.4f ms", ms);
    if (has_kernels(kind))
        printf(" %8.1f TFLOP/s", flops / ms * 1e-9);
    printf(" %8.1f GB/s", call_bytes(&p->on_cuda) / ms * 1e-6);
    if (has_kernels(kind) && !p->kernel)
        printf("  %s", p->cuda->vt->kernels(p->cuda));
}

static void verdict(pair *p, bool ok, const char *why) {
    if (ok)
        p->n_passed++;
    else
        p->n_failed++;
    printf("%s  %-72s %s", ok ? "ok  " : "FAIL", p->name, why);
    if (p->timing && ok)
        print_time(p);
    printf("\n");
    fflush(stdout);
    p->cpu->vt->workspace_free(p->cpu);
    p->cuda->vt->workspace_free(p->cuda);
    finish(p);
}

/* How far CUDA's output is from the CPU's. */
typedef struct distance {
    double error, norm;  /* sums of squares */
    double product;      /* sum of products of the two sides' values */
    double worst, ulps;  /* greatest difference, and in units of BF16's last place */
    int64_t n_off_limit; /* values that differ by more than the limit of one value */
    int64_t n_gaps;      /* places between rows that are not what they were on the CPU */
} distance;

/* Of a BF16 of this magnitude. */
static double last_place(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits &= 0x7f800000; /* the exponent alone: a power of two */
    float power;
    memcpy(&power, &bits, sizeof(power));
    return (double)fmaxf(power, 0x1p-126f) * 0x1p-7;
}

static float value_at(const void *values, dfx_dtype dtype, int64_t i) {
    return dtype == DFX_DTYPE_F32 ? ((const float *)values)[i]
                                  : dfx_bf16_to_f32(((const uint16_t *)values)[i]);
}

/* limit of one value: own * |want| + common. */
static distance measure(pair *p, const void *got, double own, double common) {
    const dfx_mat *y = &p->on_cpu.m[0];
    dfx_dtype dtype = p->on_cuda.m[0].dtype;
    distance d = {0};
    for (int64_t t = 0; t < y->rows; t++) {
        const float *want = (const float *)y->ptr + t * y->ld;
        for (int64_t i = 0; i < y->cols; i++) {
            double w = (double)want[i], value = (double)value_at(got, dtype, t * y->ld + i);
            double off = fabs(value - w);
            double ulps = (off - common) / last_place(want[i]);
            d.error += off * off;
            d.norm += w * w;
            d.product += value * w;
            d.worst = off > d.worst ? off : d.worst;
            d.ulps = ulps > d.ulps ? ulps : d.ulps;
            d.n_off_limit += !(off <= own * fabs(w) + common);
        }
        for (int64_t i = y->cols; i < y->ld; i++) {
            float kept = value_at(got, dtype, t * y->ld + i);
            d.n_gaps += !(kept == want[i] || (isnan(kept) && isnan(want[i])));
        }
    }
    return d;
}

static double root_mean_square(const dfx_mat *y) {
    double sum = 0;
    for (int64_t t = 0; t < y->rows; t++)
        for (int64_t i = 0; i < y->cols; i++) {
            double value = (double)((const float *)y->ptr)[t * y->ld + i];
            sum += value * value;
        }
    return sqrt(sum / (double)(y->rows * y->cols));
}

static void *run_both(pair *p) {
    run(p, p->cuda, &p->on_cuda);
    run(p, p->cpu, &p->on_cpu);
    return pair_download(p, 0);
}

/* A norm over millions of values would not see a few wrong ones, so each value has a limit too: two roundings of its own, and
 * 16 times the tolerated error of an average value, which errors that add up at random do not reach. */
void pair_end(pair *p, double tolerance) {
    pair_end_factor(p, tolerance, INFINITY);
}

void pair_end_factor(pair *p, double tolerance, double factor) {
    void *got = run_both(p);
    double rms = root_mean_square(&p->on_cpu.m[0]);
    distance d = measure(p, got, tolerance > 0 ? 0x1p-7 : 0, 16 * tolerance * rms);
    double relative = d.norm > 0 ? sqrt(d.error / d.norm) : sqrt(d.error);
    double greater = d.norm > 0 ? d.product / d.norm - 1 : 0;
    bool ok = relative <= tolerance && isfinite(rms) && !d.n_off_limit && !d.n_gaps &&
              fabs(greater) <= factor;
    char why[PAIR_TEXT];
    int n = snprintf(why, sizeof(why), "error %.2e of %.1e", relative, tolerance);
    if (isfinite(factor))
        n += snprintf(why + n, sizeof(why) - (size_t)n, ", greater by %.2e of %.1e", greater,
                      factor);
    if (d.n_off_limit || d.n_gaps || !isfinite(rms))
        snprintf(why + n, sizeof(why) - (size_t)n,
                 ", %lld values far off (worst by %.3g; %.3g is usual), %lld written between rows",
                 (long long)d.n_off_limit, d.worst, rms, (long long)d.n_gaps);
    free(got);
    verdict(p, ok, why);
}

/* 2^-20 of an average value is left to F32 arithmetic around an exact sum, where results are nearly 0. */
void pair_end_ulp(pair *p) {
    void *got = run_both(p);
    double rms = root_mean_square(&p->on_cpu.m[0]);
    distance d = measure(p, got, 0x1p-7, 0x1p-20 * rms);
    char why[PAIR_TEXT];
    snprintf(why, sizeof(why), "%.3f ulp of 1%s%s", d.ulps, d.n_off_limit ? ", some far off" : "",
             d.n_gaps ? ", written between rows" : "");
    free(got);
    verdict(p, d.ulps <= 1 && isfinite(d.error) && isfinite(rms) && !d.n_off_limit && !d.n_gaps,
            why);
}

void pair_leave(pair *p) {
    p->n_skipped++;
    finish(p);
}

void *pair_download(pair *p, int slot) {
    const dfx_mat *m = &p->on_cuda.m[slot];
    void *got = host_of(p, bytes_of(m));
    must(p->cuda->vt->download(p->cuda, got, m->ptr, bytes_of(m)), p->name);
    return got;
}

void *pair_run(pair *p) {
    run(p, p->cuda, &p->on_cuda);
    return pair_download(p, 0);
}

void pair_verdict(pair *p, bool ok, const char *fmt, ...) {
    char why[PAIR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    verdict(p, ok, why);
}

/* Codes in the order of their values. */
static int place_of_code(dfx_dtype dtype, uint8_t code) {
    if (dtype == DFX_DTYPE_I8)
        return (int8_t)code;
    return code & 0x80 ? -(code & 0x7f) : code;
}

/* Of scales that lie without gaps. */
static int64_t n_scales_off(pair *p, int slot, float tolerance) {
    const dfx_mat *scales = &p->on_cpu.m[slot];
    float *got = host_of(p, bytes_of(scales));
    int64_t n_off = 0;
    must(p->cuda->vt->download(p->cuda, got, p->on_cuda.m[slot].ptr, bytes_of(scales)), p->name);
    for (int64_t i = 0; i < scales->rows * scales->cols; i++) {
        float s = ((const float *)scales->ptr)[i];
        n_off += !(fabsf(got[i] - s) <= tolerance * s);
    }
    free(got);
    return n_off;
}

void pair_end_codes(pair *p, int most_steps, int scale_slot) {
    uint8_t *got = run_both(p);
    const dfx_mat *want = &p->on_cpu.m[0];
    int64_t n = want->rows * want->ld, n_other = 0, n_far = 0;
    for (int64_t i = 0; i < n; i++) {
        int off = abs(place_of_code(want->dtype, got[i]) -
                      place_of_code(want->dtype, ((const uint8_t *)want->ptr)[i]));
        n_other += off > 0;
        n_far += off > most_steps;
    }
    if (scale_slot)
        n_far += n_scales_off(p, scale_slot, most_steps ? 1e-5f : 0);
    char why[PAIR_TEXT];
    snprintf(why, sizeof(why), "%lld of %lld codes differ, %lld values too far", (long long)n_other,
             (long long)n, (long long)n_far);
    free(got);
    verdict(p, n_far == 0 && n_other <= n / 50, why);
}

void pair_end_rows(pair *p, const int *n_rows, int n) {
    run(p, p->cuda, &p->on_cuda);
    void *all = pair_download(p, 0);
    const dfx_op_call whole = p->on_cuda;
    int n_other = 0;
    for (int i = 0; i < n; i++) {
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
            if (slot != DFX_LINEAR_W && whole.m[slot].rows == whole.m[0].rows)
                p->on_cuda.m[slot].rows = n_rows[i];
        if (dfx_op_is_codes(&whole, DFX_LINEAR_X))
            p->on_cuda.m[DFX_LINEAR_X_SCALE].cols = n_rows[i];
        p->cuda->vt->workspace_free(p->cuda);
        run(p, p->cuda, &p->on_cuda);
        void *part = pair_download(p, 0);
        n_other += memcmp(part, all, bytes_of(&p->on_cuda.m[0])) != 0;
        free(part);
        p->on_cuda = whole;
    }
    p->cuda->vt->workspace_free(p->cuda);
    run(p, p->cuda, &p->on_cuda); /* what is timed is prepared */
    char why[PAIR_TEXT];
    snprintf(why, sizeof(why), "%d of %d counts of rows give other bits", n_other, n);
    free(all);
    verdict(p, n_other == 0, why);
}
