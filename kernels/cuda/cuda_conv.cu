/* CONV2D on CUDA, channels last: strips of the picture unrolled into a matrix, and cuBLASLt.
 *
 *     y[o,n] = r[o,n] + b[n] + sum over ky kx c of x[pixel under tap (ky,kx) of o, c] * W[n,c,ky,kx]
 *
 * x y r BF16, y may be r, norm applied to x in the columns; W and b of F32, BF16 or F16, W rounded to BF16.   Bound: arithmetic, 2*P*N*k*k*C operations on P
 * output pixels; unrolling writes and reads k*k times x, most of it in L2.
 *
 * 1. W is laid out anew as [N, k*k*C] with channels last, like the columns.
 * 2. For each strip of output pixels: columns [pixels, k*k*C] (zeros in the padding), the product in f32, then bias and
 *    residual on the way to y, which is rounded once and read (as r) before it is written.
 * A plain 1x1 convolution of aligned rows needs no columns: x is them. A strip has been read when it is written, so y may
 * lie in x then. 3x3 taps on whole chunks of channels are left to cuda_conv_direct.cu, after step 1, and on Hopper those and
 * the plain 1x1 to cuda_conv_sm90.cu.
 *
 * Columns of W and of the strip are padded by zeros to whole chunks of eight, so are the rows of W: C = 3 and N = 3 work,
 * and every address that cuBLASLt sees is aligned.
 * Workspace: W | columns | sums. The last two have at most STRIP_BYTES together and W of FLUX 5 MB, so the whole stays well
 * below 128 MiB. */
#include "kernels/cuda/cuda_conv.cuh"

enum {
    STRIP_BYTES = 64 << 20,  /* about what L2 keeps, and enough rows to fill the multiprocessors */
    STRIP_PIXELS_STEP = 128, /* a tile of the product */
    ABREAST = 4,             /* output pixels of a thread in flight */
};

typedef struct conv {
    dfx_conv_params p;
    dfx_cuda_view y, x, r;
    dfx_cuda_weights w, b;
    dfx_cuda_conv_norm norm;
    bool sm90, direct;                   /* W anew is all the workspace */
    bool in_place;                       /* x is the columns */
    int64_t n_pixels, n_channels, n_out; /* P, C, N */
    int64_t wo;                          /* output pixels a row */
    int64_t n_taps;                      /* k * k */
    int64_t n_cols, n_rows;              /* of W anew: k*k*C and N, padded */
    int64_t strip_pixels;
    size_t columns_off, sums_off, bytes; /* in the workspace */
} conv;

static int64_t round_up(int64_t value, int64_t step) {
    return dfx_cuda_ceil_div(value, step) * step;
}

/* Shapes only: operands may have no address yet. */
static conv conv_of(const dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *x = &m[DFX_CONV_X];
    const dfx_conv_params *p = &call->p.conv;
    conv c = {};
    c.p = *p;
    c.n_pixels = m[0].rows;
    c.n_channels = x->cols;
    c.n_out = m[0].cols;
    c.wo = (p->w * p->upsample + p->pad_lo + p->pad_hi - p->k) / p->stride + 1;
    c.n_taps = (int64_t)p->k * p->k;
    c.n_cols = round_up(c.n_taps * c.n_channels, DFX_CHUNK);
    c.n_rows = round_up(c.n_out, DFX_CHUNK);
    c.in_place = p->k == 1 && p->stride == 1 && p->upsample == 1 && x->cols % DFX_CHUNK == 0 &&
                 x->ld % DFX_CHUNK == 0 && !m[DFX_CONV_NORM].rows;
    c.sm90 = dfx_cuda_conv_sm90_fits(cuda, call);
    c.direct = dfx_cuda_conv_is_direct(call);
    int64_t column_bytes = c.in_place ? 0 : c.n_cols * (int64_t)sizeof(__nv_bfloat16);
    int64_t sum_bytes = c.n_rows * (int64_t)sizeof(float);
    int64_t most = STRIP_BYTES / (column_bytes + sum_bytes) / STRIP_PIXELS_STEP * STRIP_PIXELS_STEP;
    if (most < STRIP_PIXELS_STEP)
        most = STRIP_PIXELS_STEP;
    int64_t n_strips = dfx_cuda_ceil_div(c.n_pixels, most);
    c.strip_pixels = round_up(dfx_cuda_ceil_div(c.n_pixels, n_strips), STRIP_PIXELS_STEP);
    c.columns_off = (size_t)round_up(c.n_rows * c.n_cols * (int64_t)sizeof(__nv_bfloat16), 256);
    c.sums_off = c.columns_off + (size_t)(c.strip_pixels * column_bytes);
    c.bytes =
        c.sm90 || c.direct ? c.columns_off : c.sums_off + (size_t)(c.strip_pixels * sum_bytes);
    return c;
}

extern "C" size_t dfx_cuda_conv2d_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    return conv_of(cuda, call).bytes;
}

/* ---- weights ---- */

/* W anew, a channel of a row n a thread: columns from (C, ky, kx) to (ky, kx, C). A few megabytes, which L2 holds; the taps of
 * a channel are adjacent, so that L1 has all but the first. */
static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    lay_out_weights(conv c, __nv_bfloat16 *dst) {
    int64_t n = blockIdx.y, channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    dst += n * c.n_cols;
    if (channel < c.n_channels)
        for (int64_t tap = 0; tap < c.n_taps; tap++)
            dst[tap * c.n_channels + channel] = __float2bfloat16_rn(
                n < c.n_out ? dfx_cuda_weight(c.w, n, channel * c.n_taps + tap) : 0.0f);
    int64_t padding = c.n_taps * c.n_channels + threadIdx.x;
    if (blockIdx.x == 0 && padding < c.n_cols)
        dst[padding] = __float2bfloat16_rn(0.0f);
}

/* ---- columns ---- */

/* The pixel of x under tap (ky, kx) of output pixel o; NULL in the padding. */
static __device__ const __nv_bfloat16 *pixel_under(const conv &c, unsigned o, int ky, int kx) {
    int oy = (int)(o / (unsigned)c.wo), ox = (int)(o % (unsigned)c.wo);
    int iy = oy * c.p.stride + ky - c.p.pad_lo, ix = ox * c.p.stride + kx - c.p.pad_lo;
    if (iy < 0 || ix < 0)
        return NULL;
    iy /= c.p.upsample;
    ix /= c.p.upsample;
    if (iy >= c.p.h || ix >= c.p.w)
        return NULL;
    return c.x.ptr + (iy * c.p.w + ix) * c.x.ld;
}

/* Eight columns of output pixel o that are channels of one tap. */
static __device__ uint4 whole_chunk(const conv &c, unsigned o, int col) {
    int tap = col / (int)c.n_channels, channel = col % (int)c.n_channels;
    const __nv_bfloat16 *pixel = pixel_under(c, o, tap / c.p.k, tap % c.p.k);
    return pixel ? dfx_cuda_normalize8(c.norm, channel, *(const uint4 *)(pixel + channel))
                 : make_uint4(0, 0, 0, 0);
}

/* The same where C is no multiple of eight, or x is not aligned: one by one. */
static __device__ uint4 mixed_chunk(const conv &c, unsigned o, int col) {
    __nv_bfloat16 values[DFX_CHUNK];
    uint4 word;
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++) {
        int tap = (col + i) / (int)c.n_channels, channel = (col + i) % (int)c.n_channels;
        const __nv_bfloat16 *pixel =
            tap < (int)c.n_taps ? pixel_under(c, o, tap / c.p.k, tap % c.p.k) : NULL;
        values[i] =
            pixel ? dfx_cuda_normalize(c.norm, channel, pixel[channel]) : __nv_bfloat16(0.0f);
    }
    memcpy(&word, values, sizeof(word));
    return word;
}

/* columns[i, :] for output pixels pixel0 + i, i < n_pixels. */
template <bool WHOLE>
static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    gather_columns(conv c, dfx_cuda_tiling t, unsigned pixel0, int n_pixels,
                   __nv_bfloat16 *columns) {
    dfx_cuda_place at = dfx_cuda_place_of(t);
    if (at.n <= 0)
        return;
    int first = (int)blockIdx.x * t.lanes * ABREAST + at.lane;
    uint4 words[ABREAST];
#pragma unroll
    for (int k = 0; k < ABREAST; k++) {
        int i = first + k * t.lanes;
        if (i < n_pixels)
            words[k] = WHOLE ? whole_chunk(c, pixel0 + i, (int)at.col)
                             : mixed_chunk(c, pixel0 + i, (int)at.col);
    }
#pragma unroll
    for (int k = 0; k < ABREAST; k++) {
        int i = first + k * t.lanes;
        if (i < n_pixels)
            *(uint4 *)(columns + i * c.n_cols + at.col) = words[k];
    }
}

/* ---- bias and residual ---- */

/* y = r + (sums + b) for output pixels pixel0 + i, i < n_pixels. */
static __global__ void __launch_bounds__(DFX_CUDA_THREADS)
    finish(conv c, dfx_cuda_tiling t, int64_t pixel0, int n_pixels, const float *sums) {
    dfx_cuda_place at = dfx_cuda_place_of(t);
    if (at.n <= 0)
        return;
    float bias[DFX_CHUNK];
    dfx_cuda_load8(bias, c.b, 0, at.col, at.n);
    int first = (int)blockIdx.x * t.lanes * ABREAST + at.lane;
    for (int i = first; i < first + t.lanes * ABREAST && i < n_pixels; i += t.lanes) {
        float v[DFX_CHUNK], r[DFX_CHUNK] = {};
        dfx_cuda_load8(v, sums + i * c.n_rows + at.col, DFX_CHUNK, true);
        if (c.r.ptr)
            dfx_cuda_load8(r, c.r, pixel0 + i, at.col, at.n);
#pragma unroll
        for (int j = 0; j < DFX_CHUNK; j++)
            v[j] = r[j] + (v[j] + bias[j]);
        dfx_cuda_store8(c.y, pixel0 + i, at.col, at.n, v);
    }
}

/* ---- strips ---- */

static dfx_status run_strip(dfx_cuda *cuda, const conv &c, int64_t pixel0) {
    char *workspace = (char *)cuda->workspace;
    __nv_bfloat16 *columns = (__nv_bfloat16 *)(workspace + c.columns_off);
    float *sums = (float *)(workspace + c.sums_off);
    int64_t left = c.n_pixels - pixel0;
    int n_pixels = (int)(left < c.strip_pixels ? left : c.strip_pixels);
    const __nv_bfloat16 *rows = columns;
    int64_t ld = c.n_cols;
    if (c.in_place) {
        rows = c.x.ptr + pixel0 * c.x.ld;
        ld = c.x.ld < c.n_cols ? c.n_cols : c.x.ld; /* the view of a single pixel has ld 0 */
    } else {
        dfx_cuda_tiling t = dfx_cuda_tiling_of(c.n_cols);
        dim3 blocks = dfx_cuda_blocks(t, n_pixels, ABREAST);
        if (c.x.aligned && c.n_channels % DFX_CHUNK == 0)
            gather_columns<true><<<blocks, t.threads, 0, cuda->compute>>>(c, t, (unsigned)pixel0,
                                                                          n_pixels, columns);
        else
            gather_columns<false><<<blocks, t.threads, 0, cuda->compute>>>(c, t, (unsigned)pixel0,
                                                                           n_pixels, columns);
        DFX_TRY(dfx_cuda_check(cuda, cudaGetLastError(), "conv2d, columns"));
    }
    DFX_TRY(dfx_cuda_gemm(cuda, true, n_pixels, c.n_rows, c.n_cols, 1.0f, rows, ld, workspace,
                          c.n_cols, sums, c.n_rows, true));
    dfx_cuda_tiling t = dfx_cuda_tiling_of(c.n_out);
    finish<<<dfx_cuda_blocks(t, n_pixels, ABREAST), t.threads, 0, cuda->compute>>>(c, t, pixel0,
                                                                                   n_pixels, sums);
    return dfx_cuda_check(cuda, cudaGetLastError(), "conv2d, bias and residual");
}

/* Kernels count pixels and columns in 32 bits. */
static dfx_status check_size(const dfx_cuda *cuda, const dfx_op_call *call, const conv &c) {
    int64_t most = INT32_MAX / 2;
    if (c.n_pixels <= most && call->m[DFX_CONV_X].rows <= most && c.n_cols <= most)
        return DFX_OK;
    return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                    "cuda: op conv2d wants fewer than 2^30 pixels and columns, found %lld and %lld",
                    (long long)c.n_pixels, (long long)c.n_cols);
}

extern "C" dfx_status dfx_cuda_conv2d(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    conv c = conv_of(cuda, call);
    DFX_TRY(check_size(cuda, call, c));
    c.y = dfx_cuda_view_of(&m[0]);
    c.x = dfx_cuda_view_of(&m[DFX_CONV_X]);
    c.r = dfx_cuda_view_of(&m[DFX_CONV_R]);
    c.norm = dfx_cuda_conv_norm_of(call);
    DFX_TRY(dfx_cuda_weights_of(cuda, "conv2d", &m[DFX_CONV_W], 0.0f, &c.w));
    DFX_TRY(dfx_cuda_weights_of(cuda, "conv2d", &m[DFX_CONV_B], 0.0f, &c.b));
    dim3 blocks((unsigned)dfx_cuda_ceil_div(c.n_channels, DFX_CUDA_THREADS), (unsigned)c.n_rows);
    lay_out_weights<<<blocks, DFX_CUDA_THREADS, 0, cuda->compute>>>(
        c, (__nv_bfloat16 *)cuda->workspace);
    DFX_TRY(dfx_cuda_check(cuda, cudaGetLastError(), "conv2d, weights"));
    dfx_cuda_note(cuda, c.sm90 ? "wgmma" : c.direct ? "direct" : "columns");
    if (c.sm90)
        return dfx_cuda_conv_sm90(cuda, call, cuda->workspace, c.n_cols);
    if (c.direct)
        return dfx_cuda_conv_direct(cuda, call, cuda->workspace, c.n_cols);
    for (int64_t pixel0 = 0; pixel0 < c.n_pixels; pixel0 += c.strip_pixels)
        DFX_TRY(run_strip(cuda, c, pixel0));
    return DFX_OK;
}
