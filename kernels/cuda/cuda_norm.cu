/* LayerNorm and RMSNorm: a row is a block's; GroupNorm: see below.
 *
 *     LAYERNORM  y[t,d] = (x[t,d] - mean_t) * rstd_t * mul[d] + add[d]     mul = w or 1 + scale, add = b or shift
 *     RMSNORM    y[t,d] = x[t,d] * rstd_t * mul[d]                         mul = w
 *                or the codes of that row (cuda_codes.cuh), from the values before they are rounded
 *     GROUPNORM  y[p,c] = act((x[p,c] - mean_g) * rstd_g * w[c] + b[c]); GROUPNORM_STATS its coefficients alone
 *
 * x y [T,D] BF16, may be one; D <= 16384.   Bound: memory, 4*T*D bytes, 3*T*D to codes; GroupNorm 6*T*D, since no chip holds
 * a picture between its statistics and their use, and those alone 2*T*D.
 *
 * The row stays in registers between statistics and output. Each warp finds the mean of its own values, then the squares of
 * their differences from it (one pass over squares cancels when the mean is large); the block joins the warps' pairs (Chan et
 * al. 1979), so it meets once for the statistics and once for the greatest magnitude. Sums join in fixed order, and shapes
 * alone choose the kernel, so results are the same bits every time.
 *
 * What a row takes is latency, of loads and of sums that wait for each other. So x, mul and add are all asked for at the
 * start, every chunk has a sum of its own, and for the widths of FLUX and T5 the compiler knows the block (WHOLE). */
#include "kernels/cuda/cuda_codes.cuh"

enum {
    ROW_CHUNKS = 4, /* chunks of a thread: four loads in flight, 32 registers of values */
    ROW_THREADS_MOST = 512,
    ROW_COLS_MOST = ROW_CHUNKS * ROW_THREADS_MOST * DFX_CHUNK,
    WARP_COLS = DFX_WARP * DFX_CHUNK, /* of one chunk in each lane */
    WHOLE_WARPS = 4,
    WHOLE_BLOCKS = 8, /* of a multiprocessor; leaves a thread 64 registers */
};

typedef struct row_norm {
    dfx_cuda_view y, x;
    dfx_cuda_weights mul, add;
    uint8_t *codes; /* instead of y; rows of codes_ld */
    int64_t codes_ld;
    float *scales, *norms; /* norms: of rows that became codes, or NULL */
    int n_cols;
    float eps;
} row_norm;

typedef enum row_result { VALUES, CODES_I8, CODES_FP8 } row_result;

/* A row that fills WHOLE_WARPS exactly, 16-byte aligned, with mul and add of BF16: 3072 values, or 4096 for RMSNORM. */
template <bool CENTERED, bool WHOLE> struct row_shape {
    static const int chunks = WHOLE && CENTERED ? 3 : ROW_CHUNKS;
    static const int cols = WHOLE_WARPS * chunks * WARP_COLS; /* where WHOLE */

    static __device__ int n_warps() { return WHOLE ? WHOLE_WARPS : (int)blockDim.x / DFX_WARP; }

    static __device__ int col_of(int chunk) {
        return chunk * n_warps() * WARP_COLS + (int)threadIdx.x * DFX_CHUNK;
    }

    /* Columns from the chunk's first to the end of the row. */
    static __device__ int left_of(int chunk, int n_cols) {
        return WHOLE ? DFX_CHUNK : n_cols - col_of(chunk);
    }

    /* Columns that a warp has. */
    static __device__ int width_of(int warp, int n_cols) {
        if (WHOLE)
            return chunks * WARP_COLS;
        int width = 0;
        for (int c = 0; c < chunks; c++)
            width += min(max(n_cols - (c * n_warps() + warp) * WARP_COLS, 0), WARP_COLS);
        return width;
    }
};

static __device__ float warp_sum(float value) {
#pragma unroll
    for (int step = DFX_WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* The sum of f(value) over what a thread has: a chain of additions for each chunk, n of whose values count. */
template <typename S, typename F>
static __device__ float sum_of(const float v[S::chunks][DFX_CHUNK], int n_cols, F f) {
    float total = 0.0f;
#pragma unroll
    for (int c = 0; c < S::chunks; c++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            sum = i < S::left_of(c, n_cols) ? f(sum, v[c][i]) : sum;
        total += sum;
    }
    return total;
}

/* Of a row: mean, and the mean of the squares of what is left without it. */
typedef struct moments {
    float mean, square;
} moments;

/* parts: for each warp its mean and its sum of squared differences. */
template <typename S>
static __device__ moments join_warps(const moments *parts, int n_cols, bool centered) {
    moments row = {};
    if (centered) {
#pragma unroll
        for (int warp = 0; warp < S::n_warps(); warp++)
            row.mean += parts[warp].mean * (float)S::width_of(warp, n_cols);
        row.mean *= 1.0f / (float)n_cols;
    }
#pragma unroll
    for (int warp = 0; warp < S::n_warps(); warp++) {
        float off = parts[warp].mean - row.mean;
        row.square += parts[warp].square;
        if (centered)
            row.square += off * off * (float)S::width_of(warp, n_cols);
    }
    row.square *= 1.0f / (float)n_cols;
    return row;
}

template <typename S, bool CENTERED>
static __device__ moments moments_of_row(const float v[S::chunks][DFX_CHUNK], int n_cols,
                                         moments *parts) {
    int warp = (int)threadIdx.x / DFX_WARP, width = S::width_of(warp, n_cols);
    moments part = {};
    if (CENTERED) {
        float sum = sum_of<S>(v, n_cols, [](float sum, float value) { return sum + value; });
        part.mean = width ? warp_sum(sum) * (1.0f / (float)width) : 0.0f;
    }
    float squares = sum_of<S>(v, n_cols, [=](float sum, float value) {
        float off = value - part.mean;
        return sum + off * off;
    });
    part.square = warp_sum(squares);
    if (threadIdx.x % DFX_WARP == 0)
        parts[warp] = part;
    __syncthreads();
    return join_warps<S>(parts, n_cols, CENTERED);
}

/* A chunk of mul or add as it lies in memory, where it is BF16; 0 elsewhere. */
template <bool WHOLE>
static __device__ uint4 fetch_weights(const dfx_cuda_weights &m, int col, int n) {
    if (!WHOLE && (!m.ptr || m.dtype != DFX_DTYPE_BF16))
        return make_uint4(0, 0, 0, 0);
    return dfx_cuda_fetch8((const __nv_bfloat16 *)m.ptr + col, n, m.aligned);
}

static __device__ void unpack_weights(float v[DFX_CHUNK], const dfx_cuda_weights &m, uint4 word,
                                      int col, int n) {
    if (m.ptr && m.dtype != DFX_DTYPE_BF16) {
        dfx_cuda_load8(v, m, 0, col, n);
        return;
    }
    dfx_cuda_unpack8(v, word);
    if (m.base != 0.0f)
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++)
            v[i] += m.base;
}

/* The same, with what WHOLE promises in a form that the compiler sees. */
template <bool WHOLE> static __device__ row_norm promised(row_norm p, int n_cols) {
    if (WHOLE) {
        p.n_cols = n_cols;
        p.x.aligned = p.y.aligned = p.mul.aligned = p.add.aligned = true;
        p.mul.dtype = p.add.dtype = DFX_DTYPE_BF16;
        p.add.base = 0.0f;
    }
    return p;
}

template <typename S, bool FP8>
static __device__ void store_codes_of_row(const row_norm &p, int64_t row, float most,
                                          const float v[S::chunks][DFX_CHUNK], uint32_t *scratch,
                                          float *squares) {
    if (p.norms) {
        float sum = warp_sum(sum_of<S>(v, p.n_cols, [](float sum, float x) { return sum + x * x; }));
        if (threadIdx.x % DFX_WARP == 0)
            squares[threadIdx.x / DFX_WARP] = sum;
    }
    dfx_cuda_row_codes codes = dfx_cuda_row_codes_of<FP8>(most, scratch); /* meets */
    if (threadIdx.x == 0) {
        p.scales[row] = codes.scale;
        float sum = 0.0f;
        for (int warp = 0; p.norms && warp < S::n_warps(); warp++)
            sum += squares[warp];
        if (p.norms)
            p.norms[row] = sqrtf(sum);
    }
#pragma unroll
    for (int c = 0; c < S::chunks; c++)
        if (S::left_of(c, p.n_cols) > 0)
            dfx_cuda_store_codes<FP8>(p.codes + row * p.codes_ld + S::col_of(c),
                                      S::left_of(c, p.n_cols), v[c], codes);
}

template <bool CENTERED, row_result RESULT, bool WHOLE>
static __global__ void __launch_bounds__(WHOLE ? WHOLE_WARPS *DFX_WARP : ROW_THREADS_MOST,
                                         WHOLE ? WHOLE_BLOCKS : 1) normalize_rows(row_norm args) {
    typedef row_shape<CENTERED, WHOLE> S;
    __shared__ moments parts[ROW_THREADS_MOST / DFX_WARP];
    __shared__ uint32_t scratch[ROW_THREADS_MOST / DFX_WARP];
    __shared__ float squares[ROW_THREADS_MOST / DFX_WARP];
    const row_norm p = promised<WHOLE>(args, S::cols);
    int64_t row = blockIdx.x;
    uint4 words[S::chunks], muls[S::chunks], adds[S::chunks];
    float v[S::chunks][DFX_CHUNK], most = 0.0f;
#pragma unroll
    for (int c = 0; c < S::chunks; c++)
        words[c] = dfx_cuda_fetch8(p.x, row, S::col_of(c), S::left_of(c, p.n_cols));
#pragma unroll
    for (int c = 0; c < S::chunks; c++) {
        muls[c] = fetch_weights<WHOLE>(p.mul, S::col_of(c), S::left_of(c, p.n_cols));
        if (CENTERED)
            adds[c] = fetch_weights<WHOLE>(p.add, S::col_of(c), S::left_of(c, p.n_cols));
    }
#pragma unroll
    for (int c = 0; c < S::chunks; c++)
        dfx_cuda_unpack8(v[c], words[c]);
    moments stats = moments_of_row<S, CENTERED>(v, p.n_cols, parts);
    float rstd = rsqrtf(stats.square + p.eps), offset = -stats.mean * rstd;
#pragma unroll
    for (int c = 0; c < S::chunks; c++) {
        int n = S::left_of(c, p.n_cols);
        if (n <= 0)
            break;
        float mul[DFX_CHUNK], add[DFX_CHUNK], greatest = 0.0f;
        unpack_weights(mul, p.mul, muls[c], S::col_of(c), n);
        if (CENTERED)
            unpack_weights(add, p.add, adds[c], S::col_of(c), n);
#pragma unroll
        for (int i = 0; i < DFX_CHUNK; i++) {
            v[c][i] = CENTERED ? fmaf(fmaf(v[c][i], rstd, offset), mul[i], add[i])
                               : v[c][i] * rstd * mul[i];
            if (i < n)
                greatest = dfx_cuda_greater(greatest, v[c][i]);
        }
        most = dfx_cuda_greater(most, greatest);
        if (RESULT == VALUES)
            dfx_cuda_store8(p.y, row, S::col_of(c), n, v[c]);
    }
    if (RESULT != VALUES)
        store_codes_of_row<S, RESULT == CODES_FP8>(p, row, most, v, scratch, squares);
}

static bool is_bf16(const dfx_cuda_weights &m) {
    return m.ptr && m.dtype == DFX_DTYPE_BF16 && m.aligned;
}

template <bool CENTERED, row_result RESULT>
static void launch_rows(const dfx_cuda *cuda, const row_norm &p, int64_t n_rows) {
    bool whole = p.n_cols == row_shape<CENTERED, true>::cols && p.x.aligned &&
                 (RESULT != VALUES || p.y.aligned) && is_bf16(p.mul) &&
                 (!CENTERED || is_bf16(p.add));
    int64_t n_warps = dfx_cuda_ceil_div(p.n_cols, ROW_CHUNKS * WARP_COLS);
    if (whole)
        normalize_rows<CENTERED, RESULT, true>
            <<<(unsigned)n_rows, WHOLE_WARPS * DFX_WARP, 0, cuda->compute>>>(p);
    else
        normalize_rows<CENTERED, RESULT, false>
            <<<(unsigned)n_rows, (unsigned)(n_warps * DFX_WARP), 0, cuda->compute>>>(p);
}

/* `mul` and `add` are operands or left out. */
template <bool CENTERED>
static dfx_status run_rows(const dfx_cuda *cuda, const dfx_op_call *call, const dfx_mat *mul,
                           float mul_base, const dfx_mat *add) {
    const dfx_mat *y = &call->m[0];
    const char *op = dfx_op_info_of(call->kind)->name;
    if (y->cols > ROW_COLS_MOST)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op %s wants rows of at most %d values, found %lld", op,
                        ROW_COLS_MOST, (long long)y->cols);
    row_norm p = {};
    p.x = dfx_cuda_view_of(&call->m[DFX_NORM_X]);
    DFX_TRY(dfx_cuda_weights_of(cuda, op, mul, mul_base, &p.mul));
    DFX_TRY(dfx_cuda_weights_of(cuda, op, add, 0.0f, &p.add));
    p.n_cols = (int)y->cols;
    p.eps = call->p.eps;
    if (!dfx_op_is_codes(call, 0)) {
        p.y = dfx_cuda_view_of(y);
        launch_rows<CENTERED, VALUES>(cuda, p, y->rows);
        return dfx_cuda_check(cuda, cudaGetLastError(), op);
    }
    p.codes = (uint8_t *)y->ptr;
    p.codes_ld = y->ld;
    p.scales = (float *)call->m[dfx_op_y_scale(call->kind)].ptr;
    p.norms = CENTERED ? (float *)call->m[DFX_NORM_Y_NORM].ptr : NULL;
    if (y->dtype == DFX_DTYPE_I8)
        launch_rows<CENTERED, CODES_I8>(cuda, p, y->rows);
    else
        launch_rows<CENTERED, CODES_FP8>(cuda, p, y->rows);
    return dfx_cuda_check(cuda, cudaGetLastError(), op);
}

extern "C" dfx_status dfx_cuda_layernorm(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    if (m[DFX_NORM_SCALE].ptr)
        return run_rows<true>(cuda, call, &m[DFX_NORM_SCALE], 1.0f, &m[DFX_NORM_SHIFT]);
    return run_rows<true>(cuda, call, &m[DFX_NORM_W], m[DFX_NORM_W].ptr ? 0.0f : 1.0f,
                          &m[DFX_NORM_B]);
}

extern "C" dfx_status dfx_cuda_rmsnorm(dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_mat none = {};
    return run_rows<false>(cuda, call, &call->m[DFX_NORM_W], 0.0f, &none);
}

/* ---- GroupNorm ----
 *
 * 1. Strips of pixels: mean and sum of squared differences of each channel in each strip, x read once. Sums are of
 *    x - (the channel's value at the strip's first pixel), which takes most of the mean out, so that nothing cancels.
 * 2. Groups: the strips of a group's channels are joined in double into mean, rstd * w and b of each channel. Sums are of
 *    differences from the first of the means, so that one pass is enough.
 * 3. Pixels: the output.
 * GROUPNORM_STATS is the first two, with mean, mul and add for its output.
 * Workspace: [strips, C] pairs, then mean | mul | add, each [C] f32. */

enum {
    STRIPS_MOST = 1188, /* three waves of three blocks a multiprocessor where there are 132 */
    STRIP_PIXELS_LEAST = 64,
    ABREAST = 8, /* pixels, or pairs, of a thread in flight; step 3 has no more */
    JOIN_THREADS = 512,
};

typedef struct group_norm {
    dfx_cuda_view y, x;
    dfx_cuda_weights w, b;
    dfx_cuda_tiling tiling;
    int64_t n_pixels, strip_pixels;
    int n_strips, n_channels, n_groups;
    float *mean, *mul, *add; /* [C] */
    float2 *strips;          /* [n_strips, C]: mean, sum of squared differences */
    float eps;
    dfx_act act;
} group_norm;

static __device__ int64_t pixels_of_strip(const group_norm &p, int strip) {
    int64_t left = p.n_pixels - strip * p.strip_pixels;
    return left < p.strip_pixels ? left : p.strip_pixels;
}

static __device__ void add_differences(float sum[DFX_CHUNK], float square[DFX_CHUNK], uint4 word,
                                       const float origin[DFX_CHUNK]) {
    float v[DFX_CHUNK];
    dfx_cuda_unpack8(v, word);
#pragma unroll
    for (int j = 0; j < DFX_CHUNK; j++) {
        float diff = v[j] - origin[j];
        sum[j] += diff;
        square[j] += diff * diff;
    }
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS) sum_strips(group_norm p) {
    __shared__ float sums[DFX_CHUNK][DFX_CUDA_THREADS], squares[DFX_CHUNK][DFX_CUDA_THREADS];
    dfx_cuda_place at = dfx_cuda_place_of(p.tiling);
    int strip = (int)blockIdx.x;
    int64_t first = strip * p.strip_pixels, n_pixels = pixels_of_strip(p, strip);
    float origin[DFX_CHUNK], sum[DFX_CHUNK] = {}, square[DFX_CHUNK] = {};
    if (at.n > 0) {
        dfx_cuda_load8(origin, p.x, first, at.col, at.n);
        for (int64_t i = at.lane; i < n_pixels; i += p.tiling.lanes * ABREAST) {
            uint4 words[ABREAST];
#pragma unroll
            for (int k = 0; k < ABREAST; k++)
                if (i + k * p.tiling.lanes < n_pixels)
                    words[k] = dfx_cuda_fetch8(p.x, first + i + k * p.tiling.lanes, at.col, at.n);
#pragma unroll
            for (int k = 0; k < ABREAST; k++)
                if (i + k * p.tiling.lanes < n_pixels)
                    add_differences(sum, square, words[k], origin);
        }
    }
#pragma unroll
    for (int j = 0; j < DFX_CHUNK; j++) {
        sums[j][threadIdx.x] = sum[j];
        squares[j][threadIdx.x] = square[j];
    }
    __syncthreads();
    int64_t col0 = (int64_t)blockIdx.y * p.tiling.chunks * DFX_CHUNK;
    for (int i = (int)threadIdx.x; i < p.tiling.chunks * DFX_CHUNK; i += (int)blockDim.x) {
        if (col0 + i >= p.n_channels)
            break;
        float total = 0.0f, total_square = 0.0f;
        for (int lane = 0; lane < p.tiling.lanes; lane++) {
            int thread = lane * p.tiling.chunks + i / DFX_CHUNK;
            total += sums[i % DFX_CHUNK][thread];
            total_square += squares[i % DFX_CHUNK][thread];
        }
        float offset = total / (float)n_pixels;
        float start = dfx_cuda_widen(p.x.ptr[first * p.x.ld + col0 + i]);
        p.strips[(int64_t)strip * p.n_channels + col0 + i] =
            make_float2(start + offset, fmaxf(total_square - total * offset, 0.0f));
    }
}

typedef struct channel_sums {
    double diff, square; /* of pixels, from `origin` */
} channel_sums;

/* Adds what a channel's strips have from `lane` on, each `lanes`-th. */
static __device__ void add_strips(channel_sums *sums, const group_norm &p, int channel,
                                  double origin, int lane, int lanes) {
    int last = p.n_strips - 1;
    double pixels = (double)p.strip_pixels, pixels_of_last = (double)pixels_of_strip(p, last);
    for (int first = lane; first <= last; first += lanes * ABREAST) {
        float2 pairs[ABREAST];
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (first + k * lanes <= last)
                pairs[k] = p.strips[(int64_t)(first + k * lanes) * p.n_channels + channel];
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (first + k * lanes <= last) {
                double diff = (double)pairs[k].x - origin;
                double part = diff * (first + k * lanes < last ? pixels : pixels_of_last);
                sums->diff += part;
                sums->square += (double)pairs[k].y + diff * part;
            }
    }
}

/* A block a group, and few groups: so blocks are large, and a thread keeps to its channel. */
static __global__ void __launch_bounds__(JOIN_THREADS) join_strips(group_norm p) {
    __shared__ double scratch[JOIN_THREADS / DFX_WARP];
    int width = p.n_channels / p.n_groups, channel0 = (int)blockIdx.x * width;
    int abreast = min(width, JOIN_THREADS), lanes = JOIN_THREADS / abreast;
    int lane = (int)threadIdx.x / abreast;
    double origin = (double)p.strips[channel0].x, count = (double)p.n_pixels * width;
    channel_sums sums = {};
    if (lane < lanes)
        for (int c = (int)threadIdx.x % abreast; c < width; c += abreast)
            add_strips(&sums, p, channel0 + c, origin, lane, lanes);
    double offset = dfx_cuda_block_sum(sums.diff, scratch) / count, mean = origin + offset;
    double variance = dfx_cuda_block_sum(sums.square, scratch) / count - offset * offset;
    if (variance < 0.0) /* by rounding */
        variance = 0.0;
    float rstd = (float)(1.0 / sqrt(variance + (double)p.eps));
    for (int c = channel0 + (int)threadIdx.x; c < channel0 + width; c += (int)blockDim.x) {
        p.mean[c] = (float)mean;
        p.mul[c] = rstd * dfx_cuda_weight(p.w, 0, c);
        p.add[c] = dfx_cuda_weight(p.b, 0, c);
    }
}

static __global__ void __launch_bounds__(DFX_CUDA_THREADS) normalize_pixels(group_norm p) {
    dfx_cuda_place at = dfx_cuda_place_of(p.tiling);
    if (at.n <= 0)
        return;
    float mean[DFX_CHUNK], mul[DFX_CHUNK], add[DFX_CHUNK];
    dfx_cuda_load8(mean, p.mean + at.col, at.n, true);
    dfx_cuda_load8(mul, p.mul + at.col, at.n, true);
    dfx_cuda_load8(add, p.add + at.col, at.n, true);
    int64_t pixel0 = (int64_t)blockIdx.x * p.tiling.lanes * ABREAST + at.lane;
    uint4 words[ABREAST];
#pragma unroll
    for (int k = 0; k < ABREAST; k++)
        if (pixel0 + k * p.tiling.lanes < p.n_pixels)
            words[k] = dfx_cuda_fetch8(p.x, pixel0 + k * p.tiling.lanes, at.col, at.n);
#pragma unroll
    for (int k = 0; k < ABREAST; k++) {
        int64_t pixel = pixel0 + k * p.tiling.lanes;
        if (pixel >= p.n_pixels)
            break;
        float v[DFX_CHUNK];
        dfx_cuda_unpack8(v, words[k]);
#pragma unroll
        for (int j = 0; j < DFX_CHUNK; j++)
            v[j] = dfx_cuda_act(p.act, (v[j] - mean[j]) * mul[j] + add[j]);
        dfx_cuda_store8(p.y, pixel, at.col, at.n, v);
    }
}

static int64_t strip_pixels_of(int64_t n_pixels) {
    int64_t pixels = dfx_cuda_ceil_div(n_pixels, STRIPS_MOST);
    if (pixels < STRIP_PIXELS_LEAST)
        pixels = STRIP_PIXELS_LEAST;
    return pixels;
}

/* Values from one array of coefficients to the next: each begins at 256 bytes. */
static int64_t coefficients_of(int64_t n_channels) {
    return dfx_cuda_ceil_div(n_channels, 64) * 64;
}

static size_t pairs_bytes(const group_norm &p) {
    return dfx_align_up((size_t)p.n_strips * (size_t)p.n_channels * sizeof(float2), 256);
}

/* Shapes and statistics: both ops. */
static group_norm group_norm_of(const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_NORM_X];
    group_norm p = {};
    p.tiling = dfx_cuda_tiling_of(x->cols);
    p.n_pixels = x->rows;
    p.strip_pixels = strip_pixels_of(p.n_pixels);
    p.n_strips = (int)dfx_cuda_ceil_div(p.n_pixels, p.strip_pixels);
    p.n_channels = (int)x->cols;
    p.n_groups = call->p.n_groups;
    p.eps = call->p.eps;
    p.act = call->p.act;
    return p;
}

extern "C" size_t dfx_cuda_groupnorm_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    group_norm p = group_norm_of(call);
    bool stats_only = call->kind == DFX_OP_GROUPNORM_STATS;
    return pairs_bytes(p) +
           (stats_only ? 0 : 3 * (size_t)coefficients_of(p.n_channels) * sizeof(float));
}

/* Mean, mul and add lie at `coefficients`, `stride` values apart. */
static dfx_status find_coefficients(const dfx_cuda *cuda, const dfx_op_call *call,
                                    float *coefficients, int64_t stride, group_norm *p) {
    const dfx_mat *m = call->m;
    const char *op = dfx_op_info_of(call->kind)->name;
    if (m[DFX_NORM_X].cols > INT32_MAX / STRIPS_MOST)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: op %s wants at most %d channels, found %lld", op,
                        INT32_MAX / STRIPS_MOST, (long long)m[DFX_NORM_X].cols);
    p->x = dfx_cuda_view_of(&m[DFX_NORM_X]);
    DFX_TRY(dfx_cuda_weights_of(cuda, op, &m[DFX_NORM_W], 0.0f, &p->w));
    DFX_TRY(dfx_cuda_weights_of(cuda, op, &m[DFX_NORM_B], 0.0f, &p->b));
    p->mean = coefficients;
    p->mul = p->mean + stride;
    p->add = p->mul + stride;
    p->strips = (float2 *)cuda->workspace;

    dim3 strips((unsigned)p->n_strips, p->tiling.n_tiles);
    sum_strips<<<strips, p->tiling.threads, 0, cuda->compute>>>(*p);
    DFX_TRY(dfx_cuda_check(cuda, cudaGetLastError(), "groupnorm, strips"));
    join_strips<<<(unsigned)p->n_groups, JOIN_THREADS, 0, cuda->compute>>>(*p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "groupnorm, groups");
}

extern "C" dfx_status dfx_cuda_groupnorm(dfx_cuda *cuda, const dfx_op_call *call) {
    group_norm p = group_norm_of(call);
    float *coefficients = (float *)((char *)cuda->workspace + pairs_bytes(p));
    DFX_TRY(find_coefficients(cuda, call, coefficients, coefficients_of(p.n_channels), &p));
    p.y = dfx_cuda_view_of(&call->m[0]);
    dim3 pixels = dfx_cuda_blocks(p.tiling, p.n_pixels, ABREAST);
    normalize_pixels<<<pixels, p.tiling.threads, 0, cuda->compute>>>(p);
    return dfx_cuda_check(cuda, cudaGetLastError(), "groupnorm, pixels");
}

extern "C" dfx_status dfx_cuda_groupnorm_stats(dfx_cuda *cuda, const dfx_op_call *call) {
    group_norm p = group_norm_of(call);
    return find_coefficients(cuda, call, (float *)call->m[0].ptr, call->m[0].ld, &p);
}
