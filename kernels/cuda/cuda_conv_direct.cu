/* CONV2D of 3x3 taps on CUDA without columns: the window is taken from a patch of the picture in shared memory.
 *
 *     y[o,n] = r[o,n] + (b[n] + sum over c ky kx of x'[pixel under tap (ky,kx) of o, c] * W[n,ky,kx,c])
 *
 * x' = x or act((x - mean) * mul + add), rounded to BF16; x y r BF16, y may be r; W anew by cuda_conv.cu, [N, 9 C] BF16.
 *   Bound: arithmetic, 18*P*N*C operations on P output pixels.
 *
 * A block of four warps computes 8 x 16 output pixels by N_TILE channels. It passes over the channels of x, 32 at a time:
 * their patch (the pixels under all taps, 10 x 18, or 6 x 10 before upsampling) is normalized once, on the way from registers to
 * shared memory, and serves nine steps, one for each tap, whose weights come by cp.async. While a patch is multiplied, the next is
 * fetched, a slice a step, so that its loads and its arithmetic lie among the products. The rows of a fragment are the 16
 * pixels of one line of the tile, so a tap is another address for ldmatrix, and nothing is copied.
 *   A patch reads 180 pixels for 128: 1.4 times x for each N_TILE channels, instead of the 9 of columns.
 *   Registers: a warp of 64 pixels x 64 channels has 128 sums a thread, so two blocks share an SM. Shared memory: two patches
 *   and three steps of weights, 46.5 KiB: under the 48 that need no asking, and twice in an SM of 100 KiB.
 *
 * Rows of 32 channels are 64 bytes, four chunks, whose order depends on the row, so that no ldmatrix meets a bank twice:
 * see place. Channels of W lie in the fragments so that a lane ends up with 16 (or 8) adjacent ones of a pixel. */
#include "kernels/cuda/cuda_conv.cuh"
#include "kernels/cuda/cuda_mma.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * DFX_WARP,
    LINES = 8,    /* output pixels of a tile, down */
    COLUMNS = 16, /* and across: the rows of a fragment */
    DEPTH = 32,   /* channels of x at a time */
    CHUNKS = DEPTH / DFX_CHUNK,
    ROW_BYTES = DEPTH * 2,
    STAGES = 3,              /* steps of weights in shared memory */
    UNFINISHED = STAGES - 2, /* of them, still on their way when a step begins */
    TAPS = 9,
};

typedef struct direct {
    dfx_cuda_view y, x, r;
    dfx_cuda_weights b;
    dfx_cuda_conv_norm norm;
    const __nv_bfloat16 *w;
    int64_t ldw;
    int h, w_in, ho, wo; /* pixels of x and of y */
    int n_channels, n_out;
    int tiles_across, n_out_tiles;
} direct;

/* Source pixels under a tile. Line and column `i` of the window of output pixel `o` of the tile are those at
 * (o + i + UP - 1) / UP of the patch, which begins a pixel above and left of the tile. */
template <int UP> struct patch_of {
    static constexpr int ACROSS = COLUMNS / UP + 2, DOWN = LINES / UP + 2;
    static constexpr int WORDS = ACROSS * DOWN * CHUNKS;
    static constexpr int SLICES = (WORDS + THREADS - 1) / THREADS;
    static constexpr int BYTES = ACROSS * DOWN * ROW_BYTES;
    static_assert(SLICES <= TAPS, "a slice a step");
};

/* M: fragments of 16 pixels a warp, that is lines; N: fragments of 8 channels a warp; ACROSS: warps side by side. */
template <int M_, int N_, int ACROSS_> struct shape {
    static constexpr int M = M_, N = N_, ACROSS = ACROSS_;
    static constexpr int LANE_CHANNELS = 2 * N; /* adjacent ones that a lane ends up with */
    static constexpr int N_TILE = 8 * N * ACROSS;
    static constexpr int STAGE_BYTES = N_TILE * ROW_BYTES;
    static_assert(M * WARPS / ACROSS == LINES, "the warps cover the tile");
    static_assert(LANE_CHANNELS % DFX_CHUNK == 0, "whole chunks in the epilogue");
};

/* Byte offset of a chunk of a row. The 128 bytes that the banks span are two rows; eight rows of an ldmatrix, whose `turn`s
 * have all values of 0 to 3 for odd and for even rows, lie in eight places of them. */
static __device__ uint32_t place(int row, int chunk, int turn) {
    return (uint32_t)(row * ROW_BYTES + (chunk ^ (turn & 3)) * 16);
}

/* ---- The patch */

/* Where word `i` of a patch is in x. */
template <int UP> struct patch_word {
    int pixel, chunk, line, column;
    __device__ patch_word(int i, int line0, int column0) {
        pixel = i / CHUNKS;
        chunk = i % CHUNKS;
        line = line0 + pixel / patch_of<UP>::ACROSS;
        column = column0 + pixel % patch_of<UP>::ACROSS;
    }
    __device__ bool inside(const direct &d) const {
        return line >= 0 && line < d.h && column >= 0 && column < d.w_in;
    }
};

/* The thread's word of slice `slice`, channels from `channel0` on; (line0, column0) is the patch's first pixel. */
template <int UP>
static __device__ uint4 fetch_slice(const direct &d, int slice, int channel0, int line0,
                                    int column0) {
    int i = slice * THREADS + (int)threadIdx.x;
    patch_word<UP> at(i, line0, column0);
    if (i >= patch_of<UP>::WORDS || !at.inside(d))
        return make_uint4(0, 0, 0, 0);
    int64_t pixel = (int64_t)at.line * d.w_in + at.column;
    return *(const uint4 *)(d.x.ptr + pixel * d.x.ld + channel0 + at.chunk * DFX_CHUNK);
}

/* The same word, normalized, to shared memory. The padding stays zero. */
template <int UP>
static __device__ void store_slice(const direct &d, int slice, int channel0, int line0, int column0,
                                   uint4 word, uint32_t patch) {
    int i = slice * THREADS + (int)threadIdx.x;
    patch_word<UP> at(i, line0, column0);
    if (i >= patch_of<UP>::WORDS)
        return;
    if (at.inside(d))
        word = dfx_cuda_normalize8(d.norm, channel0 + at.chunk * DFX_CHUNK, word);
    dfx_cuda_store_shared(patch + place(at.pixel, at.chunk, at.pixel >> 1), word);
}

/* ---- Weights */

/* A place in the order of steps: all taps of 32 channels, then of the next. */
typedef struct step {
    int tap, channel0;
} step;

static __device__ void advance(step *s) {
    s->tap++;
    if (s->tap == TAPS) {
        s->tap = 0;
        s->channel0 += DEPTH;
    }
}

/* Weights of a step in the background; zeros where there are no such channels of y. */
template <typename S>
static __device__ void fetch_weights(const direct &d, step s, int n0, uint32_t stage) {
    const __nv_bfloat16 *src = d.w + (int64_t)s.tap * d.n_channels + s.channel0;
#pragma unroll
    for (int i = (int)threadIdx.x; i < S::N_TILE * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        dfx_cuda_copy_async(stage + place(row, chunk, row / S::LANE_CHANNELS),
                            src + (n0 + row) * d.ldw + chunk * DFX_CHUNK, n0 + row < d.n_out);
    }
}

/* ---- Products */

/* sums += the patch under `tap` times the weights. line: the warp's first; n: its first channel in the tile. */
template <int UP, typename S>
static __device__ void multiply(float (&sums)[S::M][S::N][4], uint32_t patch, uint32_t stage,
                                int tap, int line, int n) {
    int lane = (int)threadIdx.x % DFX_WARP;
    int column = (lane % 16 + tap % 3 + UP - 1) / UP;
    uint32_t pixels[S::M];
#pragma unroll
    for (int m = 0; m < S::M; m++) {
        int row = (line + m + tap / 3 + UP - 1) / UP * patch_of<UP>::ACROSS + column;
        pixels[m] = patch + place(row, lane / 16, row >> 1);
    }
    /* Rows of matrix i / 8 are the channels of one fragment's columns: column c of fragment f is channel
     * c / 2 * LANE_CHANNELS + 2 f + c % 2. */
    int c = lane % 8, row = n + c / 2 * S::LANE_CHANNELS + lane / 16 * 2 + c % 2;
    uint32_t weights = stage + place(row, lane / 8 % 2, row / S::LANE_CHANNELS);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t a[S::M][4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            dfx_cuda_load_matrices(a[m], pixels[m] ^ (uint32_t)(k * 32));
#pragma unroll
        for (int f = 0; f < S::N; f += 2) {
            uint32_t b[4]; /* fragment f: channels 0-7 and 8-15 of x; the next fragment: the same */
            dfx_cuda_load_matrices(b,
                                   (weights ^ (uint32_t)(k * 32)) + (uint32_t)(f * 2 * ROW_BYTES));
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                dfx_cuda_multiply_add(sums[m][f], a[m], b[0], b[1]);
                dfx_cuda_multiply_add(sums[m][f + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* y = r + (sums + b). line, column: of the tile's first pixel that is the lane's; n: the lane's first channel. */
template <typename S>
static __device__ void finish(const direct &d, const float (&sums)[S::M][S::N][4], int line,
                              int column, int n) {
#pragma unroll
    for (int j = 0; j < S::LANE_CHANNELS; j += DFX_CHUNK) {
        int n_there = d.n_out - (n + j);
        if (n_there <= 0)
            return;
        float bias[DFX_CHUNK];
        dfx_cuda_load8(bias, d.b, 0, n + j, n_there);
#pragma unroll
        for (int i = 0; i < 2 * S::M; i++) {
            int m = i / 2, half = i % 2;
            if (line + m >= d.ho || column + half * 8 >= d.wo)
                continue;
            int64_t pixel = (int64_t)(line + m) * d.wo + column + half * 8;
            float v[DFX_CHUNK], r[DFX_CHUNK] = {};
            if (d.r.ptr)
                dfx_cuda_load8(r, d.r, pixel, n + j, n_there);
#pragma unroll
            for (int e = 0; e < DFX_CHUNK; e++)
                v[e] = r[e] + (sums[m][(j + e) / 2][half * 2 + e % 2] + bias[e]);
            dfx_cuda_store8(d.y, pixel, n + j, n_there, v);
        }
    }
}

/* ---- The kernel. Grid: tiles of the picture, row-major, each with all its tiles of channels, which read the same pixels. */

template <int UP, typename S>
static __global__ void __launch_bounds__(THREADS, 2) convolve(direct d) {
    __shared__ __align__(
        128) unsigned char memory[2 * patch_of<UP>::BYTES + STAGES * S::STAGE_BYTES];
    const uint32_t patches = dfx_cuda_shared_address(memory);
    const uint32_t stages = patches + 2 * patch_of<UP>::BYTES;
    const int n0 = (int)(blockIdx.x % (unsigned)d.n_out_tiles) * S::N_TILE;
    const int tile = (int)(blockIdx.x / (unsigned)d.n_out_tiles);
    const int line = tile / d.tiles_across * LINES, column = tile % d.tiles_across * COLUMNS;
    const int line0 = line / UP - 1, column0 = column / UP - 1; /* of the patch, in x */
    const int warp = (int)threadIdx.x / DFX_WARP, lane = (int)threadIdx.x % DFX_WARP;
    const int warp_line = warp / S::ACROSS * S::M, warp_n = warp % S::ACROSS * S::N * 8;

    step next = {0, 0}; /* whose weights to fetch */
    for (int i = 0; i < STAGES - 1; i++) {
        fetch_weights<S>(d, next, n0, stages + i * S::STAGE_BYTES);
        dfx_cuda_end_group();
        advance(&next);
    }
    for (int slice = 0; slice < patch_of<UP>::SLICES; slice++)
        store_slice<UP>(d, slice, 0, line0, column0, fetch_slice<UP>(d, slice, 0, line0, column0),
                        patches);

    float sums[S::M][S::N][4] = {};
    int stage = 0, buffer = 0;
    for (int channel0 = 0; channel0 < d.n_channels; channel0 += DEPTH, buffer ^= 1) {
        for (int tap = 0; tap < TAPS; tap++) {
            /* This step's weights have come, as far as this thread fetched them; behind the barrier the others' have, the
             * patch is whole, and nobody reads the step before this one any more. */
            dfx_cuda_wait_groups<UNFINISHED>();
            __syncthreads();
            if (next.channel0 < d.n_channels)
                fetch_weights<S>(d, next, n0,
                                 stages + (stage + STAGES - 1) % STAGES * S::STAGE_BYTES);
            dfx_cuda_end_group();
            advance(&next);
            bool slice = tap < patch_of<UP>::SLICES && channel0 + DEPTH < d.n_channels;
            uint4 word = make_uint4(0, 0, 0, 0);
            if (slice)
                word = fetch_slice<UP>(d, tap, channel0 + DEPTH, line0, column0);
            multiply<UP, S>(sums, patches + buffer * patch_of<UP>::BYTES,
                            stages + stage * S::STAGE_BYTES, tap, warp_line, warp_n);
            if (slice)
                store_slice<UP>(d, tap, channel0 + DEPTH, line0, column0, word,
                                patches + (buffer ^ 1) * patch_of<UP>::BYTES);
            stage = (stage + 1) % STAGES;
        }
    }
    finish<S>(d, sums, line + warp_line, column + lane / 4,
              n0 + warp_n + lane % 4 * S::LANE_CHANNELS);
}

/* ---- Launcher */

typedef shape<4, 8, 2> wide;   /* 128 channels of y a block */
typedef shape<2, 4, 1> narrow; /* 32, for the last layer's three */

/* By shape alone: the same answer when a call is prepared and when it has addresses. */
extern "C" bool dfx_cuda_conv_is_direct(const dfx_op_call *call) {
    const dfx_mat *x = &call->m[DFX_CONV_X];
    const dfx_conv_params *p = &call->p.conv;
    return p->k == 3 && p->stride == 1 && p->pad_lo == 1 && p->pad_hi == 1 && p->upsample <= 2 &&
           x->cols % DEPTH == 0 && x->ld % DFX_CHUNK == 0;
}

template <int UP, typename S> static void launch(const dfx_cuda *cuda, direct d) {
    d.n_out_tiles = (int)dfx_cuda_ceil_div(d.n_out, S::N_TILE);
    int64_t n_tiles = dfx_cuda_ceil_div(d.ho, LINES) * d.tiles_across;
    convolve<UP, S><<<(unsigned)(n_tiles * d.n_out_tiles), THREADS, 0, cuda->compute>>>(d);
}

extern "C" dfx_status dfx_cuda_conv_direct(dfx_cuda *cuda, const dfx_op_call *call, const void *w,
                                           int64_t ldw) {
    const dfx_mat *m = call->m;
    const dfx_conv_params *p = &call->p.conv;
    direct d = {};
    d.y = dfx_cuda_view_of(&m[0]);
    d.x = dfx_cuda_view_of(&m[DFX_CONV_X]);
    d.r = dfx_cuda_view_of(&m[DFX_CONV_R]);
    DFX_TRY(dfx_cuda_weights_of(cuda, "conv2d", &m[DFX_CONV_B], 0.0f, &d.b));
    d.norm = dfx_cuda_conv_norm_of(call);
    d.w = (const __nv_bfloat16 *)w;
    d.ldw = ldw;
    d.h = (int)p->h;
    d.w_in = (int)p->w;
    d.ho = d.h * p->upsample;
    d.wo = d.w_in * p->upsample;
    d.n_channels = (int)m[DFX_CONV_X].cols;
    d.n_out = (int)m[0].cols;
    d.tiles_across = (int)dfx_cuda_ceil_div(d.wo, COLUMNS);
    bool few = d.n_out <= narrow::N_TILE;
    if (p->upsample == 1)
        few ? launch<1, narrow>(cuda, d) : launch<1, wide>(cuda, d);
    else
        few ? launch<2, narrow>(cuda, d) : launch<2, wide>(cuda, d);
    return dfx_cuda_check(cuda, cudaGetLastError(), "conv2d, direct");
}
