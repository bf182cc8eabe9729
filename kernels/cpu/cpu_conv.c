/* CONV2D on the CPU, channels last.
 *
 * W is first laid out anew in shared scratch as [N][ky][kx][C] f32, so that a tap (ky, kx) is C adjacent columns and
 * matches a pixel of x. The output is cut by shape alone into tiles of pixels x channels, one index each: for a few
 * taps at a time, the pixels of x that they see are gathered into a matrix in worker scratch (zeros beyond the border)
 * and multiplied by sgemm onto the tile's sums. Bias and residual go in on the way to y, so y may be r.
 *
 * A plain 1x1 convolution reads x in place. Its tiles have all channels, so that a tile has read its pixels when it writes
 * them, and y may lie in x.
 *
 * With norm, the tiles are run strip by strip: the rows of x that a strip sees are normalized into shared scratch, and
 * gathered from there. Rows that two strips see are normalized twice. */
#include "kernels/cpu/cpu_internal.h"

#include <string.h>

enum {
    TILE_CHANNELS = 512,
    GATHER_COLS = 512, /* columns gathered at a time, when one tap has fewer */
    TILES_WANTED = 8,
    STRIP_BYTES = 16 << 20, /* normalized at a time; more where one tile needs it */
    NORM_PIXELS = 64        /* one index of normalizing */
};

typedef struct conv {
    const dfx_cpu *cpu;
    const dfx_mat *y, *x, *w, *b, *r, *norm;
    dfx_act act;
    dfx_conv_params p;
    int64_t wo;     /* output pixels a row */
    int64_t n_taps; /* k * k */
    int64_t taps_abreast;
    int64_t tile_pixels, tile_channels;
    int64_t n_pixel_tiles, n_channel_tiles;
    bool in_place;                   /* x is the gathered matrix already */
    int64_t strip_tiles, strip_rows; /* pixel tiles of a strip, rows of x that they see at most */
    /* The strip at hand: its first pixel tile; where row `src_row0` of x, or of x normalized, begins. */
    int64_t first_tile, src_row0, n_src_rows, src_ld;
    const float *src;
} conv;

/* `total` in pieces of nearly one size, none above `most`. */
static int64_t even_cut(int64_t total, int64_t most) {
    return dfx_cpu_ceil_div(total, dfx_cpu_ceil_div(total, most));
}

/* Rows of x under `n_pixels` adjacent output pixels, at most. */
static int64_t rows_seen(const conv *c, int64_t n_pixels) {
    int64_t out_rows = dfx_cpu_ceil_div(n_pixels - 1, c->wo) + 1;
    int64_t wide_rows = (out_rows - 1) * c->p.stride + c->p.k;
    return dfx_cpu_min(c->p.h, (wide_rows + c->p.upsample - 2) / c->p.upsample + 1);
}

static int64_t strip_bytes(const conv *c) {
    return c->strip_rows * c->p.w * c->x->cols * (int64_t)sizeof(float);
}

/* Strips of a normalized picture: halves until they are small enough. */
static void cut_strips(conv *c) {
    c->strip_tiles = c->n_pixel_tiles;
    c->strip_rows = rows_seen(c, c->y->rows);
    while (c->norm->rows && c->strip_tiles > 1 && strip_bytes(c) > STRIP_BYTES) {
        c->strip_tiles = dfx_cpu_ceil_div(c->strip_tiles, 2);
        c->strip_rows = rows_seen(c, c->strip_tiles * c->tile_pixels);
    }
}

/* By shapes alone: before a run, operands have no addresses. */
static conv conv_of(const dfx_cpu *cpu, const dfx_op_call *call) {
    static const int sizes[] = {256, 128, 64};
    const dfx_mat *m = call->m;
    const dfx_conv_params *p = &call->p.conv;
    conv c = {.cpu = cpu,
              .y = &m[0],
              .x = &m[DFX_CONV_X],
              .w = &m[DFX_CONV_W],
              .b = &m[DFX_CONV_B],
              .r = &m[DFX_CONV_R],
              .norm = &m[DFX_CONV_NORM],
              .act = call->p.act,
              .p = *p,
              .wo = (p->w * p->upsample + p->pad_lo + p->pad_hi - p->k) / p->stride + 1,
              .n_taps = (int64_t)p->k * p->k,
              .in_place = p->k == 1 && p->stride == 1 && p->upsample == 1};
    int64_t taps_most = GATHER_COLS / c.x->cols;
    c.taps_abreast = even_cut(c.n_taps, taps_most < 1 ? 1 : taps_most);
    c.tile_channels = c.in_place ? c.y->cols : even_cut(c.y->cols, TILE_CHANNELS);
    c.n_channel_tiles = dfx_cpu_ceil_div(c.y->cols, c.tile_channels);
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        c.tile_pixels = even_cut(c.y->rows, sizes[i]);
        c.n_pixel_tiles = dfx_cpu_ceil_div(c.y->rows, c.tile_pixels);
        if (c.n_pixel_tiles * c.n_channel_tiles >= TILES_WANTED)
            break;
    }
    cut_strips(&c);
    return c;
}

static size_t floats(int64_t n) {
    return dfx_align_up((size_t)n, DFX_LANES);
}

static size_t w_floats(const conv *c) {
    return floats(c->w->rows * c->w->cols);
}

/* Worker scratch: sums | gathered pixels | widened bias, or, while W is laid out, one row of W. Shared: W anew | a strip
 * normalized. */
dfx_cpu_scratch_need dfx_cpu_conv2d_scratch(const dfx_op_call *call) {
    conv c = conv_of(NULL, call);
    size_t tile = floats(c.tile_pixels * c.tile_channels) +
                  floats(c.tile_pixels * c.taps_abreast * c.x->cols) + floats(c.tile_channels);
    size_t row = floats(c.w->cols);
    return (dfx_cpu_scratch_need){.worker_bytes = (tile > row ? tile : row) * sizeof(float),
                                  .shared_bytes = w_floats(&c) * sizeof(float) +
                                                  (c.norm->rows ? (size_t)strip_bytes(&c) : 0)};
}

/* Row `n` of W from (C, ky, kx) to (ky, kx, C). */
static void lay_out_row(void *ctx, int64_t n, int worker) {
    const conv *c = ctx;
    const float *src = dfx_cpu_row(c->w, n, dfx_cpu_worker_scratch(c->cpu, worker));
    float *dst = (float *)dfx_cpu_shared_scratch(c->cpu) + n * c->w->cols;
    for (int64_t tap = 0; tap < c->n_taps; tap++)
        for (int64_t ch = 0; ch < c->x->cols; ch++)
            dst[tap * c->x->cols + ch] = src[ch * c->n_taps + tap];
}

/* The pixel of the source under tap (ky, kx) of output pixel (oy, ox); NULL in the padding. */
static const float *pixel_under(const conv *c, int64_t oy, int64_t ox, int64_t ky, int64_t kx) {
    const dfx_conv_params *p = &c->p;
    int64_t iy = oy * p->stride + ky - p->pad_lo, ix = ox * p->stride + kx - p->pad_lo;
    if (iy < 0 || ix < 0 || iy >= p->h * p->upsample || ix >= p->w * p->upsample)
        return NULL;
    return c->src + ((iy / p->upsample - c->src_row0) * p->w + ix / p->upsample) * c->src_ld;
}

/* cols[i, (tap - tap0) * C + ch] for output pixels pixel0 + i, i < n_pixels, and n_taps taps from tap0. */
static void gather(const conv *c, int64_t pixel0, int64_t n_pixels, int64_t tap0, int64_t n_taps,
                   float *cols) {
    int64_t n_channels = c->x->cols;
    size_t pixel_bytes = (size_t)n_channels * sizeof(float);
    for (int64_t i = 0; i < n_pixels; i++) {
        int64_t oy = (pixel0 + i) / c->wo, ox = (pixel0 + i) % c->wo;
        for (int64_t tap = tap0; tap < tap0 + n_taps; tap++, cols += n_channels) {
            const float *src = pixel_under(c, oy, ox, tap / c->p.k, tap % c->p.k);
            if (src)
                memcpy(cols, src, pixel_bytes);
            else
                memset(cols, 0, pixel_bytes);
        }
    }
}

/* y = r + (sums + b) for one pixel. */
static void finish_pixel(const conv *c, int64_t pixel, int64_t n0, int64_t nb, const float *sums,
                         const float *bias) {
    float *y = (float *)c->y->ptr + pixel * c->y->ld + n0;
    const float *r = c->r->ptr ? (const float *)c->r->ptr + pixel * c->r->ld + n0 : NULL;
    for (int64_t n = 0; n < nb; n++) {
        float value = bias ? sums[n] + bias[n] : sums[n];
        y[n] = r ? r[n] + value : value;
    }
}

static void run_tile(void *ctx, int64_t index, int worker) {
    const conv *c = ctx;
    int64_t p0 = (c->first_tile + index / c->n_channel_tiles) * c->tile_pixels;
    int64_t pb = dfx_cpu_min(c->tile_pixels, c->y->rows - p0);
    int64_t n0 = index % c->n_channel_tiles * c->tile_channels;
    int64_t nb = dfx_cpu_min(c->tile_channels, c->y->cols - n0);
    float *sums = dfx_cpu_worker_scratch(c->cpu, worker);
    float *cols = sums + floats(c->tile_pixels * c->tile_channels);
    float *bias_buf = cols + floats(c->tile_pixels * c->taps_abreast * c->x->cols);
    const float *w = (const float *)dfx_cpu_shared_scratch(c->cpu) + n0 * c->w->cols;
    for (int64_t tap = 0; tap < c->n_taps; tap += c->taps_abreast) {
        int64_t n_taps = dfx_cpu_min(c->taps_abreast, c->n_taps - tap), kb = n_taps * c->x->cols;
        const float *x = cols;
        int64_t ldx = kb;
        if (c->in_place) {
            x = c->src + (p0 - c->src_row0 * c->p.w) * c->src_ld;
            ldx = c->src_ld;
        } else {
            gather(c, p0, pb, tap, n_taps, cols);
        }
        dfx_cpu_sgemm(&c->cpu->blas, true, pb, nb, kb, 1.0f, x, ldx, w + tap * c->x->cols,
                      c->w->cols, tap ? 1.0f : 0.0f, sums, nb);
    }
    dfx_mat b = dfx_cpu_row_part(c->b, 0, n0, nb);
    const float *bias = b.ptr ? dfx_cpu_row(&b, 0, bias_buf) : NULL;
    for (int64_t i = 0; i < pb; i++)
        finish_pixel(c, p0 + i, n0, nb, sums + i * nb, bias);
}

/* NORM_PIXELS pixels of x, from row src_row0 on, normalized to where they lie in the strip. */
static void normalize(void *ctx, int64_t index, int worker) {
    const conv *c = ctx;
    int64_t n = c->x->cols, first = index * NORM_PIXELS;
    int64_t end = dfx_cpu_min(first + NORM_PIXELS, c->n_src_rows * c->p.w);
    float *strip = (float *)dfx_cpu_shared_scratch(c->cpu) + w_floats(c);
    for (int64_t i = first; i < end; i++)
        dfx_cpu_norm_pixel(strip + i * n, dfx_cpu_f32(c->x, c->src_row0 * c->p.w + i),
                           dfx_cpu_f32(c->norm, 0), dfx_cpu_f32(c->norm, 1),
                           dfx_cpu_f32(c->norm, 2), c->act, n);
}

/* Normalize the rows of x that output pixels [p0, p1) see, and let them be the source. Windows reach into the picture
 * everywhere, since the padding is narrower than the kernel. */
static dfx_status normalize_strip(dfx_cpu *cpu, conv *c, int64_t p0, int64_t p1) {
    const dfx_conv_params *p = &c->p;
    int64_t top = p0 / c->wo * p->stride - p->pad_lo;
    int64_t bottom = (p1 - 1) / c->wo * p->stride - p->pad_lo + p->k - 1;
    c->src_row0 = (top < 0 ? 0 : top) / p->upsample;
    c->n_src_rows = dfx_cpu_min(bottom / p->upsample, p->h - 1) - c->src_row0 + 1;
    c->src = (const float *)dfx_cpu_shared_scratch(cpu) + w_floats(c);
    c->src_ld = c->x->cols;
    return dfx_pool_run(cpu->pool, dfx_cpu_ceil_div(c->n_src_rows * p->w, NORM_PIXELS), normalize,
                        c);
}

dfx_status dfx_cpu_conv2d(dfx_cpu *cpu, const dfx_op_call *call) {
    conv c = conv_of(cpu, call);
    c.src = c.x->ptr;
    c.src_ld = c.x->ld;
    DFX_TRY(dfx_pool_run(cpu->pool, c.w->rows, lay_out_row, &c));
    for (; c.first_tile < c.n_pixel_tiles; c.first_tile += c.strip_tiles) {
        int64_t n_tiles = dfx_cpu_min(c.strip_tiles, c.n_pixel_tiles - c.first_tile);
        int64_t p0 = c.first_tile * c.tile_pixels;
        int64_t p1 = dfx_cpu_min(p0 + n_tiles * c.tile_pixels, c.y->rows);
        if (c.norm->ptr)
            DFX_TRY(normalize_strip(cpu, &c, p0, p1));
        DFX_TRY(dfx_pool_run(cpu->pool, n_tiles * c.n_channel_tiles, run_tile, &c));
    }
    return DFX_OK;
}
