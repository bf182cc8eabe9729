/* CONV2D of 3x3 taps or one on Hopper: products of a warpgroup on windows of a patch of the picture.
 *
 *     y[o,n] = r[o,n] + (b[n] + sum over c ky kx of x'[pixel under tap (ky,kx) of o, c] * W[n,ky,kx,c])
 *
 * x' = x or act((x - mean) * mul + add), rounded to BF16; x y r BF16, y may be r; W anew by cuda_conv.cu, [N, taps C] BF16.
 *   Bound: arithmetic, 2*taps*P*N*C operations on P output pixels; for one tap memory, x and y once.
 *
 * A block stays on its multiprocessor and takes one tile after another: 8 x 32 pixels by N_TILE channels of y. It passes over
 * the channels of x, 64 at a time: their patch, 10 x 34 pixels, comes by TMA (zeros beyond the picture: the padding), is
 * normalized in place, and serves nine steps, one for each tap, whose weights come by TMA through a ring. Eight adjacent pixels
 * of a line are the eight rows that wgmma takes together, and lines are equally far apart: so a tap is another address of
 * the same patch, and nothing is copied.
 *   Upsampled, an output pixel of one parity sees a 3x3 window of x too, some pixels of it twice. A tile is then 8 x 32 pixels
 *   of one parity out of 16 x 64, and its patch the same.
 *   With one tap there is no border. A tile has all channels of y, so it has read its pixels when it writes them, and y may
 *   lie in x.
 *
 * Roles, by groups of four warps: two multiply, 128 pixels each; the third normalizes; of the fourth, a warp fetches patches and
 * a warp weights. The second begins SKEW steps later and stays behind, so that one multiplies while the other writes.
 *   A patch reads 340 pixels for 256: with the weights, 190 KB from L2 for 38 M operations.
 *
 * Order of the sums depends on shapes alone: the same bits each run. Code for other targets than sm_90a is an empty kernel. */
#ifndef DFX_KERNELS_CUDA_CONV_SM90_CUH
#define DFX_KERNELS_CUDA_CONV_SM90_CUH

#include <cuda.h>

#include "kernels/cuda/cuda_conv.cuh"
#include "kernels/cuda/cuda_mma.cuh"
#include "kernels/cuda/cuda_wgmma.cuh"

enum {
    GROUP = 128, /* threads */
    MULTIPLIERS = 2,
    THREADS = (MULTIPLIERS + 2) * GROUP,
    COLUMNS = 8, /* pixels of a tile, across: rows that wgmma takes together */
    BLOCK = 64,  /* pixels of a product */
    BLOCK_LINES = BLOCK / COLUMNS,
    DEPTH = 64, /* channels of x at a time */
    ROW_BYTES = DEPTH * 2,
    CHUNKS = DEPTH / DFX_CHUNK,
    SWIZZLE = 1024,       /* its period, where tiles begin */
    SHARED_MOST = 232448, /* bytes that a block can have */
    /* Registers a thread after the start: 65536 of a multiprocessor are 128 for each of 512. */
    MULTIPLIER_REGISTERS = 216,
    NORMALIZER_REGISTERS = 56,
    FETCHER_REGISTERS = 24,
};

/* What one compiled kernel does. A multiplier has PIXEL_BLOCKS of 64 pixels by N_BLOCKS of N_BLOCK channels of y; STAGES of
 * weights and PATCHES of pixels are in shared memory. */
template <int TAPS_, int PIXEL_BLOCKS_, int N_BLOCKS_, int N_BLOCK_, int STAGES_, int PATCHES_,
          int SKEW_>
struct conv_shape {
    static constexpr int TAPS = TAPS_, PIXEL_BLOCKS = PIXEL_BLOCKS_, N_BLOCKS = N_BLOCKS_;
    static constexpr int N_BLOCK = N_BLOCK_, STAGES = STAGES_, PATCHES = PATCHES_, SKEW = SKEW_;
    static constexpr int BLOCKS = PIXEL_BLOCKS * N_BLOCKS; /* sums of one */
    static constexpr int N_TILE = N_BLOCKS * N_BLOCK;
    static constexpr int LINES = MULTIPLIERS * PIXEL_BLOCKS * BLOCK_LINES;
    static constexpr int BORDER = TAPS == 9 ? 1 : 0; /* pixels around a tile */
    static constexpr int ACROSS = COLUMNS + 2 * BORDER, DOWN = LINES + 2 * BORDER;
    static constexpr int LINE_BYTES = ACROSS * ROW_BYTES, PATCH_LOAD = DOWN * LINE_BYTES;
    static constexpr int N_BLOCK_BYTES = N_BLOCK * ROW_BYTES;
    /* Shared memory: patches | stages | b of each multiplier's channels | barriers. */
    static constexpr int PATCH_BYTES = (PATCH_LOAD + SWIZZLE - 1) / SWIZZLE * SWIZZLE;
    static constexpr int STAGE_BYTES = N_BLOCKS * N_BLOCK_BYTES;
    static constexpr int BIAS_BYTES = N_TILE * (int)sizeof(float);
    static constexpr int STAGES_AT = PATCHES * PATCH_BYTES;
    static constexpr int BIAS_AT = STAGES_AT + STAGES * STAGE_BYTES;
    static constexpr int BARRIERS_AT = BIAS_AT + MULTIPLIERS * BIAS_BYTES;
    static constexpr int SHARED_BYTES = BARRIERS_AT + (2 * STAGES + 3 * PATCHES) * 8;
    static_assert(SHARED_BYTES <= SHARED_MOST, "what a block can have");
    static_assert(TAPS == 9 || TAPS == 1, "taps");
    static_assert(SKEW < STAGES - 1 && SKEW <= TAPS, "a stage is both multipliers'");
};

typedef struct conv_args {
    CUtensorMap x, w;
    dfx_cuda_view y, r;
    dfx_cuda_weights b;
    dfx_cuda_conv_norm norm;
    bool whole; /* channels of y and r are whole chunks at 16 bytes */
    int h, w_in, wo, up;
    int n_channels, n_out;
    int tiles_across, n_out_tiles, n_tiles, n_depths;
} conv_args;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Where things are */

template <class S> struct places {
    uint32_t base;
    __device__ uint32_t patch(int i) const { return base + i * S::PATCH_BYTES; }
    __device__ uint32_t weights(int i) const { return base + S::STAGES_AT + i * S::STAGE_BYTES; }
    __device__ uint32_t barrier(int i) const { return base + S::BARRIERS_AT + i * 8; }
    __device__ uint32_t weights_full(int i) const { return barrier(i); }
    __device__ uint32_t weights_empty(int i) const { return barrier(S::STAGES + i); }
    __device__ uint32_t patch_come(int i) const { return barrier(2 * S::STAGES + i); }
    __device__ uint32_t patch_normal(int i) const {
        return barrier(2 * S::STAGES + S::PATCHES + i);
    }
    __device__ uint32_t patch_empty(int i) const {
        return barrier(2 * S::STAGES + 2 * S::PATCHES + i);
    }
};

/* Barriers of some warps: the second multiplier begins; b of a multiplier's tile. */
enum { START = 1, BIAS = 2 };

/* Tiles of the same pixels follow each other. line, column: in x; y_line, y_column: parities, upsampled. */
struct conv_tile {
    int n0, line, column, y_line, y_column;
    template <class S> __device__ static conv_tile of(const conv_args &a, int i) {
        conv_tile t;
        t.n0 = i % a.n_out_tiles * S::N_TILE;
        i /= a.n_out_tiles;
        t.y_column = i % a.up;
        i /= a.up;
        t.y_line = i % a.up;
        i /= a.up;
        t.column = i % a.tiles_across * COLUMNS;
        t.line = i / a.tiles_across * S::LINES;
        return t;
    }
};

/* The line of a patch, from the tile's first on, that tap `k` of 0 to 2 sees; of columns the same. */
static __device__ int seen(const conv_args &a, int k, int parity) {
    return a.up == 1 ? k : (parity + k + 1) / 2;
}

/* ---- Fetching: a thread each */

template <class S> static __device__ void fetch_patches(const places<S> &at, const conv_args &a) {
    dfx_sm90_ring_place<S::PATCHES> p = {0, 1};
    for (int i = (int)blockIdx.x; i < a.n_tiles; i += (int)gridDim.x) {
        conv_tile t = conv_tile::of<S>(a, i);
        for (int d = 0; d < a.n_depths; d++, p.next()) {
            uint32_t come = at.patch_come(p.stage);
            dfx_sm90_wait(at.patch_empty(p.stage), p.parity);
            dfx_sm90_arrive_expect(come, S::PATCH_LOAD);
            dfx_sm90_load(at.patch(p.stage), &a.x, come, d * DEPTH, t.column - S::BORDER,
                          t.line - S::BORDER);
        }
    }
}

template <class S> static __device__ void fetch_weights(const places<S> &at, const conv_args &a) {
    dfx_sm90_ring_place<S::STAGES> w = {0, 1};
    for (int i = (int)blockIdx.x; i < a.n_tiles; i += (int)gridDim.x) {
        conv_tile t = conv_tile::of<S>(a, i);
        for (int d = 0; d < a.n_depths; d++)
#pragma unroll 1
            for (int tap = 0; tap < S::TAPS; tap++, w.next()) {
                uint32_t full = at.weights_full(w.stage);
                dfx_sm90_wait(at.weights_empty(w.stage), w.parity);
                dfx_sm90_arrive_expect(full, S::STAGE_BYTES);
                dfx_sm90_load(at.weights(w.stage), &a.w, full, d * DEPTH, tap, t.n0);
            }
    }
}

/* ---- Normalizing */

static __device__ uint4 load_shared(uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

/* x / (1 + exp(-x)) in five instructions; 0 where the exponential overflows. */
static __device__ float silu(float x) {
    float e, part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.0f + e));
    return x * part;
}

template <bool SILU>
static __device__ uint4 normalize_chunk(const dfx_cuda_norm8 &eight, dfx_act act, uint4 word) {
    if (!SILU)
        return dfx_cuda_normalize8(eight, act, word);
    float v[DFX_CHUNK];
    dfx_cuda_unpack8(v, word);
#pragma unroll
    for (int i = 0; i < DFX_CHUNK; i++)
        v[i] = silu((v[i] - eight.mean[i]) * eight.mul[i] + eight.add[i]);
    return dfx_cuda_pack8(v);
}

/* A thread has the same chunk of every 16th pixel, at the same place of its row, as the swizzle repeats after 8. The padding
 * stays zero. */
template <class S, bool SILU>
static __device__ void normalize_patch(const conv_args &a, uint32_t patch, int channel, int line0,
                                       int column0) {
    enum { STEP = GROUP / CHUNKS, ROWS = S::ACROSS * S::DOWN, ABREAST = 2 };
    const int thread = (int)threadIdx.x % GROUP, first = thread / CHUNKS, chunk = thread % CHUNKS;
    channel += chunk * DFX_CHUNK;
    if (channel >= a.n_channels)
        return;
    const dfx_cuda_norm8 eight = dfx_cuda_norm8_of(a.norm, channel);
    const uint32_t at = patch + (uint32_t)(first * ROW_BYTES + (chunk ^ first % 8) * 16);
#pragma unroll 1
    for (int row = 0; row < ROWS - first; row += ABREAST * STEP) {
        uint4 words[ABREAST] = {};
        bool inside[ABREAST];
#pragma unroll
        for (int k = 0; k < ABREAST; k++) {
            int pixel = first + row + k * STEP;
            int line = line0 + pixel / S::ACROSS, column = column0 + pixel % S::ACROSS;
            inside[k] = pixel < ROWS && line >= 0 && line < a.h && column >= 0 && column < a.w_in;
            if (inside[k])
                words[k] = load_shared(at + (uint32_t)((row + k * STEP) * ROW_BYTES));
        }
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            words[k] = normalize_chunk<SILU>(eight, a.norm.act, words[k]);
#pragma unroll
        for (int k = 0; k < ABREAST; k++)
            if (inside[k])
                dfx_cuda_store_shared(at + (uint32_t)((row + k * STEP) * ROW_BYTES), words[k]);
    }
}

template <class S, bool SILU>
static __device__ void normalize(const places<S> &at, const conv_args &a) {
    dfx_sm90_ring_place<S::PATCHES> p = {0, 0};
    for (int i = (int)blockIdx.x; i < a.n_tiles; i += (int)gridDim.x) {
        conv_tile t = conv_tile::of<S>(a, i);
        for (int d = 0; d < a.n_depths; d++, p.next()) {
            dfx_sm90_wait(at.patch_come(p.stage), p.parity);
            normalize_patch<S, SILU>(a, at.patch(p.stage), d * DEPTH, t.line - S::BORDER,
                                     t.column - S::BORDER);
            dfx_sm90_publish();
            __syncwarp();
            if (threadIdx.x % DFX_WARP == 0)
                dfx_sm90_arrive(at.patch_normal(p.stage));
        }
    }
}

/* ---- Multiplying */

static __device__ void release(uint32_t empty) {
    if (threadIdx.x % DFX_WARP == 0)
        dfx_sm90_arrive(empty);
}

/* A multiplier's places in the rings, and what it has not given back yet. */
template <class S> struct multiplier {
    int group;
    dfx_sm90_ring_place<S::STAGES> w;
    dfx_sm90_ring_place<S::PATCHES> p;
    int steps_alone; /* until the other begins */
};

/* Queues the products of a step. */
template <class S>
static __device__ void queue_step(float (&sums)[S::BLOCKS][S::N_BLOCK / 2], uint32_t pixels,
                                  uint32_t weights, bool add) {
    uint64_t x = dfx_sm90_part(pixels, S::LINE_BYTES);
    uint64_t w = dfx_sm90_part(weights, 8 * ROW_BYTES);
#pragma unroll
    for (int d = 0; d < DEPTH / 16; d++)
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++)
            dfx_sm90_product_bf16(
                sums[i], dfx_sm90_later(x, i / S::N_BLOCKS * BLOCK_LINES * S::LINE_BYTES + d * 32),
                dfx_sm90_later(w, i % S::N_BLOCKS * S::N_BLOCK_BYTES + d * 32), d > 0 || add);
    dfx_sm90_products_commit();
}

/* All steps of a tile; the last may be unfinished. Stages and patches are given back a step later, so that products of two
 * steps are always queued. */
template <class S>
static __device__ void multiply(float (&sums)[S::BLOCKS][S::N_BLOCK / 2], const places<S> &at,
                                const conv_args &a, const conv_tile &t, multiplier<S> &m,
                                int &last_stage, int &last_patch) {
    const uint32_t group_off = (uint32_t)(m.group * S::PIXEL_BLOCKS * BLOCK_LINES * S::LINE_BYTES);
    last_stage = last_patch = -1;
#pragma unroll 1
    for (int d = 0; d < a.n_depths; d++, m.p.next()) {
        dfx_sm90_wait(a.norm.mean ? at.patch_normal(m.p.stage) : at.patch_come(m.p.stage),
                      m.p.parity);
#pragma unroll 1
        for (int tap = 0; tap < S::TAPS; tap++, m.w.next()) {
            int line = S::BORDER ? seen(a, tap / 3, t.y_line) : 0;
            int column = S::BORDER ? seen(a, tap % 3, t.y_column) : 0;
            dfx_sm90_wait(at.weights_full(m.w.stage), m.w.parity);
            dfx_sm90_products_begin();
            queue_step<S>(sums,
                          at.patch(m.p.stage) + group_off +
                              (uint32_t)(line * S::LINE_BYTES + column * ROW_BYTES),
                          at.weights(m.w.stage), d + tap > 0);
            dfx_sm90_products_wait<1>();
            if (last_stage >= 0)
                release(at.weights_empty(last_stage));
            if (tap == 0 && last_patch >= 0)
                release(at.patch_empty(last_patch));
            last_stage = m.w.stage;
            if (m.steps_alone > 0 && --m.steps_alone == 0)
                dfx_sm90_meet_arrive(START, MULTIPLIERS * GROUP);
        }
        last_patch = m.p.stage;
    }
}

static __device__ uint32_t pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof(word));
    return word;
}

/* A lane's two pixels of 64, from line `line` of x on. */
struct lane_pixels {
    int64_t index[2]; /* of y */
    bool inside[2];
    __device__ lane_pixels(const conv_args &a, const conv_tile &t, int line) {
        const int lane = (int)threadIdx.x % DFX_WARP, warp = (int)threadIdx.x % GROUP / DFX_WARP;
        const int column = t.column + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int l = line + 2 * warp + half;
            inside[half] = l < a.h && column < a.w_in;
            index[half] = (int64_t)(l * a.up + t.y_line) * a.wo + column * a.up + t.y_column;
        }
    }
};

/* r of 64 pixels, channels from n on, of which a lane takes every fourth chunk. Zeros where there is none. */
template <class S>
static __device__ void fetch_r(const conv_args &a, uint4 (&r)[2][S::N_BLOCK / 32],
                               const lane_pixels &pixels, int n) {
    n += (int)threadIdx.x % 4 * DFX_CHUNK;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const __nv_bfloat16 *src = a.r.ptr + pixels.index[half] * a.r.ld + n;
#pragma unroll
        for (int j = 0; j < S::N_BLOCK / 32; j++) {
            r[half][j] = make_uint4(0, 0, 0, 0);
            if (a.whole && a.r.ptr && pixels.inside[half] && n + j * 32 < a.n_out)
                r[half][j] = *(const uint4 *)(src + j * 32);
        }
    }
}

/* y = r + (sums + b) for 64 pixels, channels from n on. A lane has of its two pixels the pairs of channels at 2 (lane % 4) of every
 * eight; they go to memory as chunks, as r comes. */
template <class S>
static __device__ void finish(const conv_args &a, const float (&sums)[S::N_BLOCK / 2],
                              const uint4 (&r)[2][S::N_BLOCK / 32], const lane_pixels &pixels,
                              const float *bias, int n) {
    const int quarter = (int)threadIdx.x % 4;
    bias += quarter * 2;
    n += quarter * DFX_CHUNK;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        __nv_bfloat16 *dst = a.y.ptr + pixels.index[half] * a.y.ld + n;
#pragma unroll
        for (int j = 0; j < S::N_BLOCK / 32; j++) {
            uint32_t words[4] = {r[half][j].x, r[half][j].y, r[half][j].z, r[half][j].w};
            dfx_sm90_transpose(words);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *s = &sums[(4 * j + i) * 4 + 2 * half];
                float2 b = *(const float2 *)(bias + j * 32 + i * DFX_CHUNK);
                words[i] = pack(__uint_as_float(words[i] << 16) + (s[0] + b.x),
                                __uint_as_float(words[i] & 0xffff0000u) + (s[1] + b.y));
            }
            dfx_sm90_transpose(words);
            if (pixels.inside[half] && n + j * 32 < a.n_out)
                *(uint4 *)(dst + j * 32) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

/* The same where channels are no whole chunks, or not aligned. */
template <class S>
static __device__ void finish_odd(const conv_args &a, const float (&sums)[S::N_BLOCK / 2],
                                  const lane_pixels &pixels, const float *bias, int n) {
#pragma unroll
    for (int i = 0; i < S::N_BLOCK / 2; i++) {
        int half = i / 2 % 2, channel = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
        if (!pixels.inside[half] || n + channel >= a.n_out)
            continue;
        float r = 0.0f;
        if (a.r.ptr)
            r = dfx_cuda_widen(a.r.ptr[pixels.index[half] * a.r.ld + n + channel]);
        a.y.ptr[pixels.index[half] * a.y.ld + n + channel] =
            __float2bfloat16_rn(r + (sums[i] + bias[channel]));
    }
}

/* b of a tile's channels to shared memory; 0 where there are none. */
template <class S>
static __device__ void fetch_bias(const conv_args &a, const conv_tile &t, float *bias) {
#pragma unroll
    for (int i = (int)threadIdx.x % GROUP; i < S::N_TILE; i += GROUP)
        bias[i] = t.n0 + i < a.n_out ? dfx_cuda_weight(a.b, 0, t.n0 + i) : 0.0f;
}

template <class S>
static __device__ void multiply_tiles(const places<S> &at, const conv_args &a, int group,
                                      unsigned char *shared) {
    float *bias = (float *)(shared + S::BIAS_AT + group * S::BIAS_BYTES);
    multiplier<S> m = {group, {0, 0}, {0, 0}, group == 0 ? S::SKEW : 0};
    if (S::SKEW > 0 && group == 1)
        dfx_sm90_meet(START, MULTIPLIERS * GROUP);
    for (int tile = (int)blockIdx.x; tile < a.n_tiles; tile += (int)gridDim.x) {
        const conv_tile t = conv_tile::of<S>(a, tile);
        float sums[S::BLOCKS][S::N_BLOCK / 2];
        uint4 r[2][S::N_BLOCK / 32]; /* of a block: all would be too many registers */
        int last_stage, last_patch;
        dfx_sm90_meet(BIAS + group, GROUP); /* the last tile's is read */
        fetch_bias<S>(a, t, bias);
        multiply<S>(sums, at, a, t, m, last_stage, last_patch);
        const int line = t.line + group * S::PIXEL_BLOCKS * BLOCK_LINES;
        fetch_r<S>(a, r, lane_pixels(a, t, line), t.n0);
        dfx_sm90_products_wait<0>();
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++)
            dfx_sm90_hold(sums[i]);
        release(at.weights_empty(last_stage));
        release(at.patch_empty(last_patch));
        dfx_sm90_meet(BIAS + group, GROUP); /* this tile's is written */
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++) {
            const lane_pixels pixels(a, t, line + i / S::N_BLOCKS * BLOCK_LINES);
            int n = i % S::N_BLOCKS * S::N_BLOCK;
            if (i > 0)
                fetch_r<S>(a, r, pixels, t.n0 + n);
            if (a.whole)
                finish<S>(a, sums[i], r, pixels, bias + n, t.n0 + n);
            else
                finish_odd<S>(a, sums[i], pixels, bias + n, t.n0 + n);
        }
    }
}

/* ---- The kernel */

template <class S> static __device__ void make_barriers(const places<S> &at) {
    const int warps = GROUP / DFX_WARP;
    for (int i = 0; i < S::STAGES; i++) {
        dfx_sm90_barrier_init(at.weights_full(i), 1);
        dfx_sm90_barrier_init(at.weights_empty(i), MULTIPLIERS * warps);
    }
    for (int i = 0; i < S::PATCHES; i++) {
        dfx_sm90_barrier_init(at.patch_come(i), 1);
        dfx_sm90_barrier_init(at.patch_normal(i), warps);
        dfx_sm90_barrier_init(at.patch_empty(i), MULTIPLIERS * warps);
    }
    dfx_sm90_barrier_publish();
}

enum { MOST_THREADS = THREADS };
#else
enum { MOST_THREADS = 32 }; /* of the empty kernel: a launch of THREADS fails */
#endif

template <class S>
static __global__ void __launch_bounds__(MOST_THREADS, 1)
    convolve_sm90(const __grid_constant__ conv_args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const places<S> at = {(uint32_t)__cvta_generic_to_shared(shared)};
    int group = __shfl_sync(0xffffffff, (int)threadIdx.x / GROUP, 0); /* known to be a warp's */
    if (threadIdx.x == 0)
        make_barriers(at);
    __syncthreads();
    if (group < MULTIPLIERS) {
        dfx_sm90_registers_more<MULTIPLIER_REGISTERS>();
        multiply_tiles(at, a, group, shared);
    } else if (group == MULTIPLIERS) {
        dfx_sm90_registers_fewer<NORMALIZER_REGISTERS>();
        if (a.norm.mean && a.norm.act == DFX_ACT_SILU)
            normalize<S, true>(at, a);
        else if (a.norm.mean)
            normalize<S, false>(at, a);
    } else {
        dfx_sm90_registers_fewer<FETCHER_REGISTERS>();
        if (threadIdx.x % GROUP == 0)
            fetch_patches(at, a);
        else if (threadIdx.x % GROUP == DFX_WARP)
            fetch_weights(at, a);
    }
#endif
}

#endif
