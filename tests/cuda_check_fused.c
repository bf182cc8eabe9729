/* See cuda_check_fused.h. What is wanted is the formula in double, from sums that are exact for int8; so a value of y may be
 * off by its one rounding to BF16 and, where it cancels, by f32 arithmetic around it. Shapes: every tile, rows and columns
 * that end inside one, more tiles than multiprocessors, K that ends inside a stage, and operands with room behind their rows.
 * Of many rows some are compared, at all places in a tile. Each kernel that the device has takes every case that is for it,
 * chosen for it or not; for int8 all give the same bits, but for the product of t and u. */
#include "tests/cuda_check_fused.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_algos.h"
#include "kernels/cuda/cuda_fused.h"

enum {
    GELU = 1,
    BIAS = 2,
    BIAS_F32 = 4,
    GATE = 8,
    R = 16,
    IN_PLACE = 32,
    WIDE = 64,
    SILU = 128,
    FAR = 256, /* b, and so what goes into GELU, from -12 to 12 */
};

static const struct fused_case {
    int m, n, k, parts, rank; /* rank: of t and u, 0: none */
} cases[] = {
    {1, 8, 16, BIAS, 0},
    {33, 104, 80, BIAS_F32 | GATE | R | WIDE, 0},
    {129, 264, 144, BIAS | GELU | WIDE, 0},
    {64, 320, 128, R | IN_PLACE, 0},
    {300, 520, 3072, BIAS | GATE | R | IN_PLACE | WIDE, 0},
    {257, 520, 4112, BIAS, 0},
    {512, 3072, 272, BIAS | GATE | R | IN_PLACE, 0},
    {512, 12288, 144, BIAS | GELU, 0},
    {512, 9216, 272, BIAS_F32, 0},
    {4096, 3072, 3088, BIAS | GATE | R, 0},
    {4096, 3072, 144, BIAS | GATE | R | IN_PLACE, 0},
    {4608, 3072, 1040, BIAS | GATE | R | IN_PLACE, 0},
    {4608, 6144, 400, BIAS | GELU, 0},
    {4608, 3072, 272, BIAS | GELU | FAR, 0},
    {1617, 3080, 240, BIAS | GELU, 0},
    {200, 136, 96, BIAS | SILU, 0},
    {160, 1032, 336, BIAS | GELU | GATE | R, 0},
    {1, 8, 16, BIAS, 16},
    {33, 104, 80, BIAS_F32 | GATE | R | WIDE, 48},
    {129, 264, 144, BIAS | GELU | WIDE, 32},
    {64, 320, 128, R | IN_PLACE, 64},
    {300, 520, 3072, BIAS | GATE | R | IN_PLACE | WIDE, 128},
    {257, 520, 4112, BIAS, 16},
    {512, 3072, 272, BIAS | GATE | R | IN_PLACE, 32},
    {512, 12288, 144, BIAS | GELU, 64},
    {512, 9216, 272, BIAS_F32, 512},
    {4096, 3072, 3088, BIAS | GATE | R, 32},
    {4096, 3072, 144, BIAS | GATE | R | IN_PLACE, 80},
    {4608, 3072, 1040, BIAS | GATE | R | IN_PLACE, 96},
    {4608, 6144, 400, BIAS | GELU, 32},
    {4608, 9216, 144, BIAS, 272},
    {1617, 3080, 240, BIAS | GELU, 160},
    {200, 136, 96, BIAS | SILU, 32},
};

/* t that is zero leaves the bits of a call without. */
static const struct fused_case zero_cases[] = {
    {333, 1032, 336, BIAS | GATE | R, 32},
    {4608, 3072, 144, BIAS | GELU, 64},
    {4096, 9216, 80, 0, 144},
};

enum { ROWS_COMPARED = 128 };

/* An odd number from a row that is compared to the next. */
static int64_t row_step(const struct fused_case *c) {
    return c->m <= 2 * ROWS_COMPARED ? 1 : c->m / ROWS_COMPARED | 1;
}

/* The room behind a row of codes and of values: rows begin at 16 bytes. */
enum { CODES_ROOM = 48, VALUES_ROOM = 24, POISON = 0x7fc1 };

typedef struct operands {
    const struct fused_case *c;
    dfx_dtype in;
    int64_t ldx, ldy, ldr; /* values */
    uint8_t *x, *w;
    float *xs, *ws, *b, *gate; /* b and gate are BF16 values */
    float *t, *u;              /* so are these */
    uint16_t *r, *y;           /* y: as it is before the call */
} operands;

static void must(bool ok, const char *what) {
    if (ok)
        return;
    printf("fused: %s\n", what);
    exit(1);
}

static void *take(size_t bytes) {
    void *block = malloc(bytes);
    must(block, "no memory");
    return block;
}

static float next_value(uint64_t *state, float range) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return range * ((float)(*state >> 40) * 0x1p-23f - 1);
}

static size_t bytes_of(dfx_dtype in, int64_t n) {
    return (size_t)n * dfx_dtype_bytes(in);
}

/* range: of BF16; codes have all that there are. */
static uint8_t *random_matrix(uint64_t *seed, dfx_dtype in, int64_t rows, int64_t ld, float range) {
    uint8_t *values = take(bytes_of(in, rows * ld));
    for (int64_t i = 0; i < rows * ld; i++) {
        float value = next_value(seed, in == DFX_DTYPE_I8        ? 127.49f
                                       : in == DFX_DTYPE_F8_E4M3 ? 448
                                                                 : range);
        if (in == DFX_DTYPE_I8)
            values[i] = (uint8_t)(int8_t)lrintf(value);
        else
            dfx_from_f32(in, &value, values + bytes_of(in, i), 1);
    }
    return values;
}

/* n values of [middle - range, middle + range). */
static float *random_f32(uint64_t *seed, int64_t n, float middle, float range) {
    float *values = take((size_t)n * sizeof(*values));
    for (int64_t i = 0; i < n; i++)
        values[i] = middle + next_value(seed, range);
    return values;
}

static float *random_bf16(uint64_t *seed, int64_t n, float range) {
    float *values = random_f32(seed, n, 0, range);
    for (int64_t i = 0; i < n; i++)
        values[i] = dfx_bf16_to_f32(dfx_f32_to_bf16(values[i]));
    return values;
}

static uint16_t *poisoned(int64_t n) {
    uint16_t *values = take((size_t)n * sizeof(*values));
    for (int64_t i = 0; i < n; i++)
        values[i] = POISON;
    return values;
}

/* Scales such that sums are near 1. */
static operands make_operands(const struct fused_case *c, dfx_dtype in) {
    uint64_t seed = (uint64_t)(c->m * 31 + c->n) * 2 + 1;
    bool wide = c->parts & WIDE;
    operands o = {.c = c, .in = in};
    float code = in == DFX_DTYPE_I8 ? 127 : 448;
    o.ldx = c->k + (wide ? CODES_ROOM : 0);
    o.ldy = c->n + (wide ? VALUES_ROOM : 0);
    o.ldr = c->parts & IN_PLACE ? o.ldy : c->n + (wide ? 2 * VALUES_ROOM : 0);
    o.x = random_matrix(&seed, in, c->m, o.ldx, sqrtf(3));
    o.w = random_matrix(&seed, in, c->n, o.ldx, sqrtf(3 / (float)c->k));
    o.xs = random_f32(&seed, c->m, sqrtf(3) / code, 0.5f * sqrtf(3) / code);
    o.ws = random_f32(&seed, c->n, sqrtf(3 / (float)c->k) / code,
                      0.5f * sqrtf(3 / (float)c->k) / code);
    o.b = random_bf16(&seed, c->n, c->parts & FAR ? 12 : 1);
    o.gate = random_bf16(&seed, c->n, 1);
    o.t = random_bf16(&seed, (int64_t)c->m * c->rank, sqrtf(3));
    o.u = random_bf16(&seed, (int64_t)c->n * c->rank, sqrtf(3 / (float)(c->rank ? c->rank : 1)));
    o.y = poisoned(c->m * o.ldy);
    o.r = c->parts & IN_PLACE ? o.y : poisoned(c->m * o.ldr);
    if (c->parts & R)
        for (int64_t m = 0; m < c->m; m++)
            for (int64_t n = 0; n < c->n; n++)
                o.r[m * o.ldr + n] = dfx_f32_to_bf16(next_value(&seed, 2));
    return o;
}

static void free_operands(operands *o) {
    void *blocks[] = {o->x,    o->w, o->xs, o->ws, o->b,
                      o->gate, o->t, o->u,  o->y,  o->r == o->y ? NULL : o->r};
    for (size_t i = 0; i < DFX_COUNT(blocks); i++)
        free(blocks[i]);
}

/* ---- What is wanted */

/* [k, rows]: columns become rows, over which sums are made. */
static float *widen(dfx_dtype in, const uint8_t *src, int64_t rows, int64_t ld, int64_t k) {
    float *values = take((size_t)(rows * k) * sizeof(*values));
    float *row = take((size_t)k * sizeof(*row));
    for (int64_t i = 0; i < rows; i++) {
        dfx_to_f32(in, src + bytes_of(in, i * ld), row, (size_t)k);
        for (int64_t j = 0; j < k; j++)
            values[j * rows + i] = row[j];
    }
    free(row);
    return values;
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void end_row(const operands *o, int64_t m, double *row) {
    const struct fused_case *c = o->c;
    for (int64_t n = 0; n < c->n; n++) {
        double v = row[n];
        if (o->in != DFX_DTYPE_BF16)
            v *= (double)o->xs[m] * (double)o->ws[n];
        for (int i = 0; i < c->rank; i++)
            v += (double)o->t[m * c->rank + i] * (double)o->u[n * c->rank + i];
        v += c->parts & (BIAS | BIAS_F32) ? (double)o->b[n] : 0;
        v = c->parts & GELU ? gelu(v) : c->parts & SILU ? v / (1 + exp(-v)) : v;
        v *= c->parts & GATE ? (double)o->gate[n] : 1;
        row[n] = v + (c->parts & R ? (double)dfx_bf16_to_f32(o->r[m * o->ldr + n]) : 0);
    }
}

/* The rows that are compared, one after another. */
static double *want_of(const operands *o) {
    const struct fused_case *c = o->c;
    int64_t step = row_step(c), n_rows = (c->m + step - 1) / step;
    float *w = widen(o->in, o->w, c->n, o->ldx, c->k), *x = take((size_t)c->k * sizeof(*x));
    double *want = calloc((size_t)(n_rows * c->n), sizeof(*want));
    must(want, "no memory");
    for (int64_t i = 0; i < n_rows; i++) {
        double *row = want + i * c->n;
        dfx_to_f32(o->in, o->x + bytes_of(o->in, i * step * o->ldx), x, (size_t)c->k);
        for (int64_t k = 0; k < c->k; k++)
            for (int64_t n = 0; n < c->n; n++)
                row[n] += (double)x[k] * (double)w[k * c->n + n];
        end_row(o, i * step, row);
    }
    free(x);
    free(w);
    return want;
}

/* ---- What the device gives */

enum { MOST_BLOCKS = 10 };

typedef struct on_device {
    dfx_backend *be;
    dfx_mem blocks[MOST_BLOCKS];
    int n;
} on_device;

static void *put(on_device *d, const void *host, size_t bytes) {
    dfx_mem *mem = &d->blocks[d->n++];
    must(d->be->vt->alloc(d->be, bytes, "case", mem) == DFX_OK, "no device memory");
    must(d->be->vt->upload(d->be, mem->ptr, host, bytes) == DFX_OK, "no upload");
    return mem->ptr;
}

static dfx_mat put_bf16(on_device *d, const float *values, int64_t rows, int64_t cols) {
    size_t n = (size_t)(rows * cols);
    uint16_t *host = take(n * sizeof(*host));
    dfx_from_f32(DFX_DTYPE_BF16, values, host, n);
    dfx_mat mat = {.rows = rows, .cols = cols, .ld = cols, .dtype = DFX_DTYPE_BF16};
    mat.ptr = put(d, host, n * sizeof(*host));
    free(host);
    return mat;
}

static dfx_cuda_fused call_of(on_device *d, const operands *o) {
    const struct fused_case *c = o->c;
    size_t f32 = sizeof(float), bf16 = sizeof(uint16_t);
    size_t m = (size_t)c->m, n = (size_t)c->n;
    dfx_cuda_fused call = {.in = o->in, .m = c->m, .n = c->n, .k = c->k};
    call.ldx = call.ldw = (int64_t)bytes_of(o->in, o->ldx);
    call.x = put(d, o->x, bytes_of(o->in, c->m * o->ldx));
    call.w = put(d, o->w, bytes_of(o->in, c->n * o->ldx));
    if (o->in != DFX_DTYPE_BF16) {
        call.xs = put(d, o->xs, m * f32);
        call.ws = put(d, o->ws, n * f32);
    }
    if (c->rank) {
        call.t = put_bf16(d, o->t, c->m, c->rank);
        call.u = put_bf16(d, o->u, c->n, c->rank);
    }
    call.y = (dfx_mat){.rows = c->m, .cols = c->n, .ld = o->ldy, .dtype = DFX_DTYPE_BF16};
    call.y.ptr = put(d, o->y, m * (size_t)o->ldy * bf16);
    if (c->parts & BIAS)
        call.b = put_bf16(d, o->b, 1, c->n);
    if (c->parts & BIAS_F32) {
        call.b = (dfx_mat){.rows = 1, .cols = c->n, .ld = c->n, .dtype = DFX_DTYPE_F32};
        call.b.ptr = put(d, o->b, n * f32);
    }
    if (c->parts & GATE)
        call.gate = put_bf16(d, o->gate, 1, c->n);
    if (c->parts & R) {
        call.r = call.y;
        call.r.ld = o->ldr;
        if (!(c->parts & IN_PLACE))
            call.r.ptr = put(d, o->r, m * (size_t)o->ldr * bf16);
    }
    call.act = c->parts & GELU ? DFX_ACT_GELU_TANH : c->parts & SILU ? DFX_ACT_SILU : DFX_ACT_NONE;
    return call;
}

/* ---- Comparing */

/* In units of the last place of BF16, which has 8 bits. */
static double units_off(double got, double want, double common) {
    int exponent;
    frexp(want, &exponent);
    double unit = ldexp(1, (exponent < -100 ? -100 : exponent) - 8);
    return (fabs(got - want) - common) / unit;
}

/* What a value may be off by before it is rounded. Of fp8, ten times the usual error of Hopper's sums, which is a part of their
 * root mean square and goes by how many products the tensor cores add (numbers in cuda_fused.cuh); of BF16, of which each is
 * rounded down when it is added to a sum in f32, 2^-24 for each 16 of 4112 and as much again. */
static double off_before(const operands *o, int64_t m, int64_t n) {
    double low = o->c->rank ? 0x1p-19 : 0, k = o->c->k;
    if (o->in == DFX_DTYPE_I8)
        return low + 0x1p-20;
    if (o->in == DFX_DTYPE_BF16)
        return low + 0x1p-15;
    double rms = sqrt(k) * 448 * 448 / 3 * (double)o->xs[m] * (double)o->ws[n];
    return low + 10 * 5e-4 * pow(fmax(k, 256) / 1024, 0.75) * rms;
}

/* same: as another kernel's. */
static void compare(pair *p, const operands *o, const double *want, const uint16_t *got,
                    bool same) {
    const struct fused_case *c = o->c;
    double worst = 0;
    int64_t n_gaps = 0, n_nan = 0, step = row_step(c);
    for (int64_t m = 0; m < c->m; m++) {
        for (int64_t n = 0; n < c->n && m % step == 0; n++) {
            double value = (double)dfx_bf16_to_f32(got[m * o->ldy + n]);
            double off = units_off(value, want[m / step * c->n + n], off_before(o, m, n));
            n_nan += isnan(value);
            worst = off > worst ? off : worst;
        }
        for (int64_t n = c->n; n < o->ldy; n++)
            n_gaps += got[m * o->ldy + n] != POISON;
    }
    bool ok = worst <= 1 && !n_gaps && !n_nan && same;
    printf("%s  %-72s %.3f ulp of 1%s%s%s\n", ok ? "ok  " : "FAIL", p->name, worst,
           same ? "" : ", not the bits of another kernel", n_nan ? ", some are no numbers" : "",
           n_gaps ? ", written between rows" : "");
    fflush(stdout);
    *(ok ? &p->n_passed : &p->n_failed) += 1;
}

/* cuda_fused.h's: what is chosen, and by itself each kernel to choose from. */
static const struct kernel {
    const char *name;
    bool (*fits)(const dfx_cuda *, const dfx_cuda_fused *);
    dfx_status (*run)(dfx_cuda *, const dfx_cuda_fused *);
} kernels[] = {
    {"fused", dfx_cuda_fused_fits, dfx_cuda_fused_run},
    {"fused sm90", dfx_cuda_fused_sm90_fits, dfx_cuda_fused_sm90_run},
    {"fused mma", dfx_cuda_fused_mma_fits, dfx_cuda_fused_mma_run},
};

static void name_case(pair *p, const struct kernel *kernel, const operands *o) {
    const struct fused_case *c = o->c;
    snprintf(p->name, sizeof(p->name), "%s %s [%d, %d] K %d%s%.0d%s%s%s%s", kernel->name,
             dfx_dtype_name(o->in), c->m, c->n, c->k, c->rank ? " rank " : "", c->rank,
             c->parts & GELU   ? " gelu"
             : c->parts & SILU ? " silu"
                               : "",
             c->parts & GATE ? " gate" : "",
             c->parts & IN_PLACE ? " +y"
             : c->parts & R      ? " +r"
                                 : "",
             c->parts & WIDE  ? " wide"
             : c->parts & FAR ? " far"
                              : "");
}

/* y as the kernel leaves it, taken. */
static uint16_t *result_of(pair *p, const struct kernel *kernel, const operands *o,
                           const dfx_cuda_fused *call) {
    size_t bytes = (size_t)(o->c->m * o->ldy) * sizeof(uint16_t);
    uint16_t *got = take(bytes);
    must(p->cuda->vt->upload(p->cuda, call->y.ptr, o->y, bytes) == DFX_OK, "no upload");
    must(kernel->run((dfx_cuda *)p->cuda, call) == DFX_OK, "run");
    must(p->cuda->vt->download(p->cuda, got, call->y.ptr, bytes) == DFX_OK, "no download");
    return got;
}

/* Operands take their time to be made. Counts what is left out. */
static bool is_asked_for(pair *p, const struct fused_case *c, dfx_dtype in) {
    operands o = {.c = c, .in = in};
    for (size_t i = 0; i < DFX_COUNT(kernels); i++) {
        name_case(p, &kernels[i], &o);
        if (!p->only || strstr(p->name, p->only))
            return true;
    }
    p->n_skipped += DFX_COUNT(kernels);
    return false;
}

static void check_case(pair *p, const struct fused_case *c, dfx_dtype in) {
    if (!is_asked_for(p, c, in))
        return;
    operands o = make_operands(c, in);
    on_device d = {.be = p->cuda};
    dfx_cuda_fused call = call_of(&d, &o);
    double *want = NULL;
    uint16_t *first = NULL;
    for (size_t i = 0; i < DFX_COUNT(kernels); i++) {
        name_case(p, &kernels[i], &o);
        if ((p->only && !strstr(p->name, p->only)) ||
            !kernels[i].fits((dfx_cuda *)p->cuda, &call)) {
            p->n_skipped++;
            continue;
        }
        want = want ? want : want_of(&o);
        uint16_t *got = result_of(p, &kernels[i], &o, &call);
        size_t bytes = (size_t)(c->m * o.ldy) * sizeof(*got);
        bool exact = in == DFX_DTYPE_I8 && !c->rank;
        compare(p, &o, want, got, !first || !exact || !memcmp(got, first, bytes));
        if (first)
            free(got);
        else
            first = got;
    }
    free(first);
    free(want);
    for (int i = 0; i < d.n; i++)
        p->cuda->vt->free(p->cuda, &d.blocks[i]);
    free_operands(&o);
}

/* As zero_cases say, of each kernel. */
static void check_zero(pair *p, const struct fused_case *c, dfx_dtype in) {
    if (!is_asked_for(p, c, in))
        return;
    operands o = make_operands(c, in);
    memset(o.t, 0, (size_t)(c->m * c->rank) * sizeof(*o.t));
    on_device d = {.be = p->cuda};
    dfx_cuda_fused with = call_of(&d, &o), without = with;
    without.t = without.u = (dfx_mat){0};
    for (size_t i = 0; i < DFX_COUNT(kernels); i++) {
        name_case(p, &kernels[i], &o);
        if ((p->only && !strstr(p->name, p->only)) ||
            !kernels[i].fits((dfx_cuda *)p->cuda, &with)) {
            p->n_skipped++;
            continue;
        }
        uint16_t *a = result_of(p, &kernels[i], &o, &with);
        uint16_t *b = result_of(p, &kernels[i], &o, &without);
        bool ok = !memcmp(a, b, bytes_of(DFX_DTYPE_BF16, c->m * o.ldy));
        printf("%s  %-72s %s\n", ok ? "ok  " : "FAIL", p->name, "zero adds nothing");
        *(ok ? &p->n_passed : &p->n_failed) += 1;
        free(a);
        free(b);
    }
    for (int i = 0; i < d.n; i++)
        p->cuda->vt->free(p->cuda, &d.blocks[i]);
    free_operands(&o);
}

/* All tiles of mma.sync give the same bits, so the clock may choose one, which is kept. */
static void check_tiles(pair *p, const struct fused_case *c, dfx_dtype in) {
    dfx_cuda *cuda = (dfx_cuda *)p->cuda;
    operands o = {.c = c, .in = in};
    on_device d = {.be = p->cuda};
    struct kernel kernel = {"fused mma, tiles", dfx_cuda_fused_mma_fits, dfx_cuda_fused_mma_run};
    name_case(p, &kernel, &o);
    if (p->only && !strstr(p->name, p->only)) {
        p->n_skipped++;
        return;
    }
    o = make_operands(c, in);
    dfx_cuda_fused call = call_of(&d, &o);
    size_t bytes = (size_t)(c->m * o.ldy) * sizeof(uint16_t);
    uint16_t *guessed = result_of(p, &kernel, &o, &call);
    bool same = true;
    for (int tile = 0; tile < dfx_cuda_fused_mma_n_tiles(&call); tile++) {
        uint16_t *got = take(bytes);
        must(p->cuda->vt->upload(p->cuda, call.y.ptr, o.y, bytes) == DFX_OK, "no upload");
        must(dfx_cuda_fused_mma_run_tile(cuda, &call, tile) == DFX_OK, "run");
        must(p->cuda->vt->download(p->cuda, got, call.y.ptr, bytes) == DFX_OK, "no download");
        same = same && !memcmp(got, guessed, bytes);
        free(got);
    }
    dfx_cuda_algos *algos = dfx_cuda_blas_algos(cuda);
    size_t n_chosen = algos->n_chosen, n_found = algos->n_found;
    dfx_cuda_fused_mma_choose(cuda, &call);
    dfx_cuda_fused_mma_choose(cuda, &call);
    bool kept = algos->n_chosen == n_chosen + 1 && algos->n_found == n_found + 1;
    uint16_t *chosen = result_of(p, &kernel, &o, &call);
    same = same && !memcmp(chosen, guessed, bytes);
    printf("%s  %-72s %s%s\n", same && kept ? "ok  " : "FAIL", p->name,
           same ? "the same bits" : "not the same bits", kept ? "" : ", not kept");
    *(same && kept ? &p->n_passed : &p->n_failed) += 1;
    free(guessed);
    free(chosen);
    for (int i = 0; i < d.n; i++)
        p->cuda->vt->free(p->cuda, &d.blocks[i]);
    free_operands(&o);
}

/* The devices that this is made for must take the case that matters most, and refuse what they cannot do. */
static void check_fits(pair *p) {
    dfx_cuda *cuda = (dfx_cuda *)p->cuda;
    bool hopper = cuda->sm == 90, mma = cuda->sm < 90 || cuda->sm >= 120;
    dfx_mat y = {.rows = 4608, .cols = 3072, .ld = 3072, .dtype = DFX_DTYPE_BF16};
    dfx_cuda_fused good = {.in = DFX_DTYPE_I8, .m = 4608, .n = 3072, .k = 3072, .y = y};
    good.ldx = good.ldw = 3072;
    dfx_cuda_fused bad[5], silu = good, bf16 = good, low = good;
    for (size_t i = 0; i < DFX_COUNT(bad); i++)
        bad[i] = good;
    bad[0].n = 3076;
    bad[1].k = 3080;
    bad[2].ldw = 3080;
    bad[3].in = DFX_DTYPE_F8_E5M2;
    silu.act = DFX_ACT_SILU;
    bf16.in = DFX_DTYPE_BF16;
    bf16.ldx = bf16.ldw = 6144;
    low.t = (dfx_mat){.rows = 4608, .cols = 32, .ld = 128, .dtype = DFX_DTYPE_BF16};
    low.u = (dfx_mat){.rows = 3072, .cols = 32, .ld = 32, .dtype = DFX_DTYPE_BF16};
    bad[4] = low;
    bad[4].t.cols = bad[4].u.cols = 24;
    bool ok = dfx_cuda_fused_fits(cuda, &good) == (hopper || mma) &&
              dfx_cuda_fused_fits(cuda, &silu) == mma &&
              dfx_cuda_fused_fits(cuda, &bf16) == hopper &&
              dfx_cuda_fused_fits(cuda, &low) == (hopper || mma);
    for (size_t i = 0; i < DFX_COUNT(bad); i++)
        ok = ok && !dfx_cuda_fused_fits(cuda, &bad[i]);
    printf("%s  fused, what fits\n", ok ? "ok  " : "FAIL");
    *(ok ? &p->n_passed : &p->n_failed) += 1;
}

void check_fused(pair *p) {
    static const struct fused_case tiled[] = {{1111, 3080, 1040, BIAS | GATE | R, 0},
                                              {1024, 6144, 400, BIAS | GELU, 32}};
    check_fits(p);
    for (size_t i = 0; i < DFX_COUNT(tiled); i++) {
        check_tiles(p, &tiled[i], DFX_DTYPE_I8);
        check_tiles(p, &tiled[i], DFX_DTYPE_F8_E4M3);
    }
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        check_case(p, &cases[i], DFX_DTYPE_I8);
        check_case(p, &cases[i], DFX_DTYPE_F8_E4M3);
        check_case(p, &cases[i], DFX_DTYPE_BF16);
    }
    for (size_t i = 0; i < DFX_COUNT(zero_cases); i++) {
        check_zero(p, &zero_cases[i], DFX_DTYPE_I8);
        check_zero(p, &zero_cases[i], DFX_DTYPE_F8_E4M3);
        check_zero(p, &zero_cases[i], DFX_DTYPE_BF16);
    }
}
