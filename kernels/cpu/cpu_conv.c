/* CONV2D on the CPU, channels last.
 *
 * W is first laid out anew in shared scratch as [N][ky][kx][C] f32, so that a tap (ky, kx) is C adjacent columns and
 * matches a pixel of x. The output is cut by shape alone into tiles of pixels x channels, one index each: for a few
 * taps at a time, the pixels of x that they see are gathered into a matrix in worker scratch (zeros beyond the border)
 * and multiplied by sgemm onto the tile's sums. Bias and residual go in on the way to y, so y may be r.
 * A plain 1x1 convolution reads x in place. */
#include "kernels/cpu/cpu_internal.h"

#include <string.h>

enum {
    TILE_CHANNELS = 512,
    GATHER_COLS = 512, /* columns gathered at a time, when one tap has fewer */
    TILES_WANTED = 8
};

typedef struct conv {
    const dfx_cpu *cpu;
    const dfx_mat *y, *x, *w, *b, *r;
    dfx_conv_params p;
    int64_t wo;     /* output pixels a row */
    int64_t n_taps; /* k * k */
    int64_t taps_abreast;
    int64_t tile_pixels, tile_channels;
    int64_t n_pixel_tiles, n_channel_tiles;
    bool in_place; /* x is the gathered matrix already */
} conv;

/* `total` in pieces of nearly one size, none above `most`. */
static int64_t even_cut(int64_t total, int64_t most) {
    return dfx_cpu_ceil_div(total, dfx_cpu_ceil_div(total, most));
}

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
              .p = *p,
              .wo = (p->w * p->upsample + p->pad_lo + p->pad_hi - p->k) / p->stride + 1,
              .n_taps = (int64_t)p->k * p->k,
              .in_place = p->k == 1 && p->stride == 1 && p->upsample == 1};
    int64_t taps_most = GATHER_COLS / c.x->cols;
    c.taps_abreast = even_cut(c.n_taps, taps_most < 1 ? 1 : taps_most);
    c.tile_channels = even_cut(c.y->cols, TILE_CHANNELS);
    c.n_channel_tiles = dfx_cpu_ceil_div(c.y->cols, c.tile_channels);
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        c.tile_pixels = even_cut(c.y->rows, sizes[i]);
        c.n_pixel_tiles = dfx_cpu_ceil_div(c.y->rows, c.tile_pixels);
        if (c.n_pixel_tiles * c.n_channel_tiles >= TILES_WANTED)
            break;
    }
    return c;
}

static size_t floats(int64_t n) {
    return dfx_align_up((size_t)n, DFX_LANES);
}

/* Worker scratch: sums | gathered pixels | widened bias, or, while W is laid out, one row of W. Shared: W anew. */
dfx_cpu_scratch_need dfx_cpu_conv2d_scratch(const dfx_op_call *call) {
    conv c = conv_of(NULL, call);
    size_t tile = floats(c.tile_pixels * c.tile_channels) +
                  floats(c.tile_pixels * c.taps_abreast * c.x->cols) + floats(c.tile_channels);
    size_t row = floats(c.w->cols);
    return (dfx_cpu_scratch_need){.worker_bytes = (tile > row ? tile : row) * sizeof(float),
                                  .shared_bytes = floats(c.w->rows * c.w->cols) * sizeof(float)};
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

/* The pixel of x under tap (ky, kx) of output pixel (oy, ox); NULL in the padding. */
static const float *pixel_under(const conv *c, int64_t oy, int64_t ox, int64_t ky, int64_t kx) {
    const dfx_conv_params *p = &c->p;
    int64_t iy = oy * p->stride + ky - p->pad_lo, ix = ox * p->stride + kx - p->pad_lo;
    if (iy < 0 || ix < 0 || iy >= p->h * p->upsample || ix >= p->w * p->upsample)
        return NULL;
    return (const float *)c->x->ptr + (iy / p->upsample * p->w + ix / p->upsample) * c->x->ld;
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
    int64_t p0 = index / c->n_channel_tiles * c->tile_pixels;
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
            x = (const float *)c->x->ptr + p0 * c->x->ld;
            ldx = c->x->ld;
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

dfx_status dfx_cpu_conv2d(dfx_cpu *cpu, const dfx_op_call *call) {
    conv c = conv_of(cpu, call);
    DFX_TRY(dfx_pool_run(cpu->pool, c.w->rows, lay_out_row, &c));
    return dfx_pool_run(cpu->pool, c.n_pixel_tiles * c.n_channel_tiles, run_tile, &c);
}
