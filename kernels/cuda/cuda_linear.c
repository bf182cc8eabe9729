/* LINEAR on CUDA: cuBLASLt's products of tensor cores, and around them what it cannot do.
 *
 *   plain      x and W in BF16; W of other types becomes BF16 in the workspace, a chunk of rows at a time, and so do codes
 *              of weight_only, which is exact: their scales belong to the epilogue. Sums in f32.
 *   codes      x becomes codes unless it is, a tile of rows at a time (cuda_quant.cu); I8 sums exactly to int32, F8_E4M3 in
 *              f32.
 *   direct     plain products whose rest is b, or b and GELU, or b and r: cuBLASLt writes y itself.
 *   fused      where there is a kernel that does it all (cuda_fused.h): codes, x included; on Hopper also BF16 with t and u,
 *              and many rows of BF16.
 *   down       codes times few columns of BF16, as t is made: a kernel of its own (cuda_down.h).
 *   the rest   sums go to the workspace, a tile that mostly stays in the second level cache, those of t u^T beside them, and
 *              from there through the epilogue to y. Codes beside plain weights become BF16, which is exact, and their
 *              scales belong to the epilogue.
 *
 * M <= 64 is always a product of 64 rows, x filled up with zeros, and never direct: the same algorithm whatever M is, so a
 * row of y is bit for bit the same. Tensor cores want K in whole vectors (and N, for codes): what is not is filled up with
 * zeros in the workspace, which changes no sum. Tiles follow from the shape alone. */
#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_down.h"
#include "kernels/cuda/cuda_fused.h"
#include "kernels/cuda/cuda_gemm.h"

enum {
    SKINNY_ROWS = 64,
    PLAIN_GRAIN = 8, /* values in 16 bytes */
    CODES_GRAIN = 16,
    TILE_GRAIN = 128,  /* tiles of products are cut at its multiples */
    FUSED_ROWS = 1024, /* with fewer, tiles leave multiprocessors idle, for which cuBLASLt cuts K */
    GATED_ROWS = 512,  /* the same, where it cannot end them itself */
    FUSED_DIRECT_K = 1024, /* with less, cuBLASLt takes less time for what it can do by itself */
};

/* What each part of the workspace may have at the most, or one TILE_GRAIN of rows. */
static const int64_t PART_BYTES = 64 << 20;

/* How a call is cut, and where in the workspace what lies. */
typedef struct cut {
    dfx_dtype in, sum;          /* of the products; sum: of the tile */
    bool codes, skinny, direct; /* as above */
    bool stage_x, stage_w;      /* copied to the workspace first */
    int64_t k, ldx, ldw;        /* of the products: K filled up */
    int64_t mb, nb;             /* rows and columns of a product, at the most */
    int64_t low_ldx;            /* of t */
    size_t scales, w, sums;     /* offsets; x is at 0 */
    size_t t, low, n_bytes;     /* t: a copy, low: sums of t u^T */
} cut;

static bool present(const dfx_mat *m) {
    return m->rows != 0;
}

static int64_t up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* `total` in pieces of nearly one size, multiples of TILE_GRAIN unless there is only one. */
static int64_t even_cut(int64_t total, int64_t most) {
    most = most < TILE_GRAIN ? TILE_GRAIN : most;
    int64_t n = (total + most - 1) / most;
    return n == 1 ? total : least(total, up((total + n - 1) / n, TILE_GRAIN));
}

static bool is_direct(const dfx_op_call *call) {
    const dfx_mat *b = &call->m[DFX_LINEAR_B], *r = &call->m[DFX_LINEAR_R];
    bool act_fits =
        call->p.act == DFX_ACT_NONE || (call->p.act == DFX_ACT_GELU_TANH && !present(r));
    bool b_fits = !present(b) || (b->dtype == DFX_DTYPE_BF16 && (uintptr_t)b->ptr % 16 == 0);
    return act_fits && b_fits && !present(&call->m[DFX_LINEAR_GATE]) &&
           !present(&call->m[DFX_LINEAR_SCALE]) && !present(&call->m[DFX_LINEAR_X_SCALE]) &&
           !present(&call->m[DFX_LINEAR_T]) && !dfx_op_is_codes(call, 0);
}

/* Tensor cores read codes sixteen at a time. */
static bool codes_lie_well(const dfx_mat *w) {
    return w->cols % CODES_GRAIN == 0 && w->ld % CODES_GRAIN == 0 &&
           (uintptr_t)w->ptr % CODES_GRAIN == 0;
}

static bool is_coded(const dfx_op_call *call) {
    return dfx_op_is_codes(call, DFX_LINEAR_X);
}

static cut cut_of(const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_LINEAR_X], *w = &call->m[DFX_LINEAR_W];
    const dfx_mat *t = &call->m[DFX_LINEAR_T];
    int64_t n_rows = x->rows, n_cols = w->rows;
    cut c = {.codes = present(&call->m[DFX_LINEAR_SCALE]) && !call->p.weight_only,
             .skinny = n_rows <= SKINNY_ROWS};
    c.in = c.codes ? w->dtype : DFX_DTYPE_BF16;
    c.sum = c.in == DFX_DTYPE_I8 ? DFX_DTYPE_I32 : DFX_DTYPE_F32;
    c.k = up(w->cols, c.codes ? CODES_GRAIN : PLAIN_GRAIN);
    c.stage_x =
        c.skinny || c.k != x->cols || is_coded(call) != c.codes || (c.codes && !codes_lie_well(x));
    c.stage_w = c.codes ? w->rows % CODES_GRAIN != 0 || !codes_lie_well(w)
                        : w->dtype != DFX_DTYPE_BF16 || c.k != w->cols;
    c.direct = !c.codes && !c.stage_x && is_direct(call);
    c.ldx = c.stage_x ? c.k : x->ld;
    c.ldw = c.stage_w ? c.k : w->ld;
    int64_t row_bytes = c.k * (int64_t)dfx_dtype_bytes(c.in);
    c.nb = c.stage_w ? even_cut(n_cols, PART_BYTES / row_bytes) : n_cols;
    int64_t sums_row = up(c.nb, CODES_GRAIN) * (int64_t)sizeof(float), most = n_rows;
    if (!c.direct)
        most = least(most, PART_BYTES / sums_row);
    if (c.stage_x)
        most = least(most, PART_BYTES / row_bytes);
    c.mb = c.skinny ? SKINNY_ROWS : even_cut(n_rows, most);
    c.scales = dfx_align_up(c.stage_x ? (size_t)(c.mb * row_bytes) : 0, 256);
    c.w =
        c.scales + dfx_align_up(c.codes && !is_coded(call) ? (size_t)c.mb * sizeof(float) : 0, 256);
    c.sums = c.w + dfx_align_up(c.stage_w ? (size_t)(up(c.nb, CODES_GRAIN) * row_bytes) : 0, 256);
    c.n_bytes = c.sums + (c.direct ? 0 : (size_t)(c.mb * sums_row));
    if (present(t)) {
        c.low_ldx = c.skinny ? t->cols : t->ld;
        c.t = dfx_align_up(c.n_bytes, 256);
        size_t t_bytes = c.skinny ? (size_t)(c.mb * t->cols) * dfx_dtype_bytes(t->dtype) : 0;
        c.low = c.t + dfx_align_up(t_bytes, 256);
        c.n_bytes = c.low + (size_t)(c.mb * sums_row);
    }
    return c;
}

/* Whether one kernel shall do it all, if it can: codes; BF16 with t and u, or with rows enough, unless K is short and cuBLASLt can
 * write y itself (numbers in kernels/PERF.md). */
static bool wants_fused(const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    if (present(&m[DFX_LINEAR_SCALE]) || is_coded(call))
        return is_coded(call) && present(&m[DFX_LINEAR_SCALE]);
    if (m[DFX_LINEAR_W].dtype != DFX_DTYPE_BF16 || m[DFX_LINEAR_X].dtype != DFX_DTYPE_BF16)
        return false;
    bool plain = is_direct(call) && call->p.act == DFX_ACT_NONE;
    return present(&m[DFX_LINEAR_T]) || (m[0].rows >= GATED_ROWS && present(&m[DFX_LINEAR_GATE])) ||
           (m[0].rows >= FUSED_ROWS && (!plain || m[DFX_LINEAR_X].cols >= FUSED_DIRECT_K));
}

static int64_t row_bytes_of(const dfx_mat *m) {
    return m->ld * (int64_t)dfx_dtype_bytes(m->dtype);
}

static bool fused_of(const dfx_cuda *cuda, const dfx_op_call *call, dfx_cuda_fused *out) {
    const dfx_mat *m = call->m, *x = &m[DFX_LINEAR_X], *w = &m[DFX_LINEAR_W];
    if (!wants_fused(call))
        return false;
    *out = (dfx_cuda_fused){.in = w->dtype,
                            .m = m[0].rows,
                            .n = m[0].cols,
                            .k = x->cols,
                            .x = x->ptr,
                            .w = w->ptr,
                            .ldx = row_bytes_of(x),
                            .ldw = row_bytes_of(w),
                            .xs = m[DFX_LINEAR_X_SCALE].ptr,
                            .ws = m[DFX_LINEAR_SCALE].ptr,
                            .ys = m[DFX_LINEAR_Y_SCALE].ptr,
                            .t = m[DFX_LINEAR_T],
                            .u = m[DFX_LINEAR_U],
                            .b = m[DFX_LINEAR_B],
                            .gate = m[DFX_LINEAR_GATE],
                            .r = m[DFX_LINEAR_R],
                            .y = m[0],
                            .act = call->p.act};
    return dfx_cuda_fused_fits(cuda, out);
}

/* Codes times few columns, and nothing else. */
static bool down_of(const dfx_op_call *call, dfx_cuda_down *out) {
    const dfx_mat *m = call->m, *x = &m[DFX_LINEAR_X], *w = &m[DFX_LINEAR_W];
    if (!is_coded(call) || present(&m[DFX_LINEAR_SCALE]) || w->dtype != DFX_DTYPE_BF16 ||
        present(&m[DFX_LINEAR_B]) || present(&m[DFX_LINEAR_GATE]) || present(&m[DFX_LINEAR_R]) ||
        present(&m[DFX_LINEAR_T]) || call->p.act != DFX_ACT_NONE)
        return false;
    *out = (dfx_cuda_down){.in = x->dtype,
                           .m = m[0].rows,
                           .n = m[0].cols,
                           .k = x->cols,
                           .x = x->ptr,
                           .w = w->ptr,
                           .ldx = row_bytes_of(x),
                           .ldw = row_bytes_of(w),
                           .xs = m[DFX_LINEAR_X_SCALE].ptr,
                           .y = m[0]};
    return dfx_cuda_down_fits(out);
}

/* One product of the cut: a rectangle of y. */
typedef struct tile {
    int64_t m0, mb, n0, nb;
} tile;

static void *values_at(const dfx_mat *m, int64_t row, int64_t col) {
    return m->ptr ? (char *)m->ptr + (size_t)(row * m->ld + col) * dfx_dtype_bytes(m->dtype) : NULL;
}

/* workspace: NULL when it is not there yet; it will be aligned. */
static dfx_cuda_product product_of(const dfx_op_call *call, const cut *c, const tile *t,
                                   char *workspace) {
    const dfx_mat *m = call->m, *b = &m[DFX_LINEAR_B], *r = &m[DFX_LINEAR_R];
    dfx_cuda_product p = {.in = c->in,
                          .out = c->direct ? DFX_DTYPE_BF16 : c->sum,
                          .w_transposed = true,
                          .alpha = 1.0f,
                          .m = c->skinny ? SKINNY_ROWS : t->mb,
                          .n = c->codes ? up(t->nb, CODES_GRAIN) : t->nb,
                          .k = c->k,
                          .ldx = c->ldx,
                          .ldw = c->ldw};
    p.x = c->stage_x ? workspace : values_at(&m[DFX_LINEAR_X], t->m0, 0);
    p.w =
        c->stage_w ? (workspace ? workspace + c->w : NULL) : values_at(&m[DFX_LINEAR_W], t->n0, 0);
    if (!c->direct) {
        p.y = workspace ? workspace + c->sums : NULL;
        p.ldy = up(c->nb, CODES_GRAIN);
        return p;
    }
    p.act = call->p.act;
    p.has_b = present(b);
    p.has_r = present(r);
    p.b = values_at(b, 0, t->n0);
    p.r = values_at(r, t->m0, t->n0);
    p.ldr = r->ld;
    p.y = values_at(&m[0], t->m0, t->n0);
    p.ldy = m[0].ld;
    return p;
}

/* t u^T of the tile. */
static dfx_cuda_product low_of(const dfx_op_call *call, const cut *c, const tile *t,
                               char *workspace) {
    const dfx_mat *m = call->m, *u = &m[DFX_LINEAR_U];
    dfx_cuda_product p = {.in = DFX_DTYPE_BF16,
                          .out = DFX_DTYPE_F32,
                          .w_transposed = true,
                          .alpha = 1.0f,
                          .m = c->skinny ? SKINNY_ROWS : t->mb,
                          .n = t->nb,
                          .k = u->cols,
                          .ldx = c->low_ldx,
                          .ldw = u->ld,
                          .ldy = up(c->nb, CODES_GRAIN)};
    p.w = values_at(u, t->n0, 0);
    p.x = values_at(&m[DFX_LINEAR_T], t->m0, 0);
    if (c->skinny)
        p.x = workspace ? workspace + c->t : NULL;
    p.y = workspace ? workspace + c->low : NULL;
    return p;
}

static dfx_status stage_w(dfx_cuda *cuda, const dfx_op_call *call, const cut *c, const tile *t) {
    if (!c->stage_w)
        return DFX_OK;
    dfx_cuda_staging staging = {.src = &call->m[DFX_LINEAR_W],
                                .row0 = t->n0,
                                .rows = t->nb,
                                .dst = (char *)cuda->workspace + c->w,
                                .dst_rows = c->codes ? up(t->nb, CODES_GRAIN) : t->nb,
                                .ld = c->k};
    return dfx_cuda_stage(cuda, &staging, c->in);
}

static dfx_status stage_x(dfx_cuda *cuda, const dfx_op_call *call, const cut *c, const tile *t) {
    if (!c->stage_x)
        return DFX_OK;
    dfx_cuda_staging staging = {.src = &call->m[DFX_LINEAR_X],
                                .row0 = t->m0,
                                .rows = t->mb,
                                .dst = cuda->workspace,
                                .dst_rows = c->skinny ? SKINNY_ROWS : t->mb,
                                .ld = c->k};
    if (!c->codes || is_coded(call))
        return dfx_cuda_stage(cuda, &staging, c->in);
    return dfx_cuda_quantize_rows(cuda, &staging, c->in,
                                  (float *)((char *)cuda->workspace + c->scales));
}

static const float *row_scales(const dfx_cuda *cuda, const dfx_op_call *call, const cut *c,
                               const tile *t) {
    if (is_coded(call))
        return (const float *)call->m[DFX_LINEAR_X_SCALE].ptr + t->m0;
    return c->codes ? (const float *)((char *)cuda->workspace + c->scales) : NULL;
}

/* Sums of t u^T, beside those of the product; *sums stays NULL where there is no t. */
static dfx_status run_low(dfx_cuda *cuda, const dfx_op_call *call, const cut *c, const tile *t,
                          const float **sums) {
    const dfx_mat *low_x = &call->m[DFX_LINEAR_T];
    if (!present(low_x))
        return DFX_OK;
    dfx_cuda_product product = low_of(call, c, t, cuda->workspace);
    dfx_cuda_staging staging = {.src = low_x,
                                .row0 = t->m0,
                                .rows = t->mb,
                                .dst = (char *)cuda->workspace + c->t,
                                .dst_rows = SKINNY_ROWS,
                                .ld = c->low_ldx};
    if (c->skinny)
        DFX_TRY(dfx_cuda_stage(cuda, &staging, DFX_DTYPE_BF16));
    *sums = product.y;
    return dfx_cuda_product_run(cuda, &product);
}

static dfx_status run_tile(dfx_cuda *cuda, const dfx_op_call *call, const cut *c, const tile *t) {
    char *workspace = cuda->workspace;
    dfx_cuda_product product = product_of(call, c, t, workspace);
    DFX_TRY(stage_x(cuda, call, c, t));
    DFX_TRY(dfx_cuda_product_run(cuda, &product));
    if (c->direct)
        return DFX_OK;
    dfx_cuda_end end = {.m0 = t->m0,
                        .mb = t->mb,
                        .n0 = t->n0,
                        .nb = t->nb,
                        .sums = product.y,
                        .ld = product.ldy,
                        .exact = c->sum == DFX_DTYPE_I32,
                        .row_scales = row_scales(cuda, call, c, t)};
    DFX_TRY(run_low(cuda, call, c, t, &end.low));
    return dfx_cuda_epilogue(cuda, call, &end);
}

static dfx_status prepare_tile(dfx_cuda *cuda, const dfx_op_call *call, const cut *c,
                               const tile *t) {
    dfx_cuda_product product = product_of(call, c, t, NULL);
    DFX_TRY(dfx_cuda_product_prepare(cuda, &product));
    if (!present(&call->m[DFX_LINEAR_T]))
        return DFX_OK;
    product = low_of(call, c, t, NULL);
    return dfx_cuda_product_prepare(cuda, &product);
}

/* Columns outside, so that a chunk of W is laid out once for all rows. `run`, or prepare. */
static dfx_status for_each_tile(dfx_cuda *cuda, const dfx_op_call *call, bool run) {
    cut c = cut_of(call);
    int64_t n_rows = call->m[0].rows, n_cols = call->m[0].cols;
    for (int64_t n0 = 0; n0 < n_cols; n0 += c.nb) {
        tile t = {.n0 = n0, .nb = least(c.nb, n_cols - n0)};
        if (run)
            DFX_TRY(stage_w(cuda, call, &c, &t));
        for (t.m0 = 0; t.m0 < n_rows; t.m0 += c.mb) {
            t.mb = least(c.mb, n_rows - t.m0);
            DFX_TRY(run ? run_tile(cuda, call, &c, &t) : prepare_tile(cuda, call, &c, &t));
        }
    }
    return DFX_OK;
}

static bool widens(dfx_dtype dtype, bool is_bias) {
    switch (dtype) {
    case DFX_DTYPE_F32:
    case DFX_DTYPE_BF16:
    case DFX_DTYPE_F16:
        return true;
    case DFX_DTYPE_F8_E4M3:
    case DFX_DTYPE_F8_E5M2:
    case DFX_DTYPE_I8:
        return !is_bias;
    default:
        return false;
    }
}

static dfx_status check_types(const dfx_cuda *cuda, const dfx_op_call *call) {
    enum { FP8_SM = 89 };
    const dfx_mat *w = &call->m[DFX_LINEAR_W], *b = &call->m[DFX_LINEAR_B];
    if (!widens(w->dtype, false) || (present(b) && !widens(b->dtype, true)))
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op linear cannot use weights of %s; pack the model as bf16, int8 or "
                        "fp8",
                        dfx_dtype_name(widens(w->dtype, false) ? b->dtype : w->dtype));
    if (w->dtype == DFX_DTYPE_F8_E4M3 && cut_of(call).codes && cuda->sm < FP8_SM)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: products of fp8 want compute capability 8.9, this device has %d.%d; "
                        "pack the model as int8",
                        cuda->sm / 10, cuda->sm % 10);
    return DFX_OK;
}

size_t dfx_cuda_linear_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_cuda_fused fused;
    dfx_cuda_down down;
    if (fused_of(cuda, call, &fused))
        return 0;
    return down_of(call, &down) ? dfx_cuda_down_workspace(cuda, &down) : cut_of(call).n_bytes;
}

dfx_status dfx_cuda_linear_prepare(dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_cuda_fused fused;
    dfx_cuda_down down;
    DFX_TRY(check_types(cuda, call));
    if (fused_of(cuda, call, &fused)) {
        dfx_cuda_fused_prepare(cuda, &fused);
        return DFX_OK;
    }
    return down_of(call, &down) ? DFX_OK : for_each_tile(cuda, call, false);
}

dfx_status dfx_cuda_linear(dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_cuda_fused fused;
    dfx_cuda_down down;
    if (fused_of(cuda, call, &fused))
        return dfx_cuda_fused_run(cuda, &fused);
    return down_of(call, &down) ? dfx_cuda_down_run(cuda, &down) : for_each_tile(cuda, call, true);
}
