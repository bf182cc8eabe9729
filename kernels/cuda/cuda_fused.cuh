/* One kernel from codes, or BF16, to BF16 (cuda_fused.h), for sm_90a; empty elsewhere. cuda_fused_sm90.cu chooses tiles and launches.
 *
 * A block stays on its multiprocessor and takes one tile of y after another. Roles, by group of four warps: the last one
 * fetches (a warp asks TMA for x and w, a warp widens what belongs to columns), the others multiply. x and w pass through a
 * ring of stages, each 128 bytes of K of the tile's rows and columns; `full` and `empty` are its barriers. The blocks of a
 * cluster lie below each other: each fetches its rows and its share of the common columns, which TMA writes to all of them.
 *
 * t and u are the last stages of a tile, 64 of their columns each. Where x and w are BF16 they are nothing but more of K.
 * Sums of codes get their scales first, in the registers where they are, and then the product of t and u on top.
 *
 * A multiplying warp ends its rows by strips of 32 columns through its own boxes of shared memory: r comes in by TMA, y goes
 * out by TMA, nobody else is waited for.
 *
 * FP8: Hopper's tensor cores add e4m3 products with some 14 bits, so after every 128 of K their sums are added to others in
 * f32. Against exact sums, for normally distributed codes and K of 3072 and 15360, the error is 1.3e-4 of the sums' root mean
 * square, as it is of cuBLASLt; every 256 it is 2.1e-4, every 512 3.4e-4, and without 1.1e-3 and 3.0e-3. */
#ifndef DFX_KERNELS_CUDA_FUSED_CUH
#define DFX_KERNELS_CUDA_FUSED_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_wgmma.cuh"

enum {
    FUSED_GROUP = 128,    /* threads that multiply together */
    FUSED_ROWS = 64,      /* of one product */
    FUSED_K = 128,        /* of a stage: bytes of a row */
    FUSED_LOW_K = 64,     /* the same in values of t and u */
    FUSED_STRIP = 32,     /* columns that a warp ends at a time */
    FUSED_BOX = 1024,     /* bytes of 16 rows of them */
    FUSED_SHARED = 232448 /* bytes that a block can have */
};

/* What x and w are. */
enum fused_in { FUSED_I8, FUSED_F8, FUSED_BF16 };

template <fused_in IN> struct fused_sum { typedef float type; };
template <> struct fused_sum<FUSED_I8> { typedef int32_t type; };

/* What one compiled kernel does. GROUPS multiply, each BLOCKS times 64 rows of N columns. TAKE_TURNS: each of two has a tile of
 * its own, and one multiplies while the other ends its tile; else they share a tile. */
template <fused_in IN_, int GROUPS_, int BLOCKS_, int N_, int STAGES_, int CLUSTER_,
          bool TAKE_TURNS_>
struct fused_shape {
    typedef typename fused_sum<IN_>::type Sum;
    static constexpr fused_in IN = IN_;
    static constexpr bool TAKE_TURNS = TAKE_TURNS_;
    static constexpr int K = IN == FUSED_BF16 ? FUSED_LOW_K : FUSED_K; /* values in a stage */
    static constexpr int GROUPS = GROUPS_, BLOCKS = BLOCKS_, N = N_;
    static constexpr int STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr int M = FUSED_ROWS * BLOCKS * (TAKE_TURNS ? 1 : GROUPS);
    static constexpr int THREADS = (GROUPS + 1) * FUSED_GROUP, WARPS = GROUPS * 4;
    static constexpr int X_BYTES = M * FUSED_K, STAGE_BYTES = (M + N) * FUSED_K;
    static constexpr int STRIPS = N / FUSED_STRIP * BLOCKS;
    /* Shared memory, from the start. */
    static constexpr int BOXES_AT = STAGES * STAGE_BYTES;
    static constexpr int COLUMNS_BYTES = N * 3 * (int)sizeof(float);
    static constexpr int BARRIERS_BYTES = 512;
    static constexpr int FOR_BOXES = FUSED_SHARED - BOXES_AT - 2 * COLUMNS_BYTES - BARRIERS_BYTES;
    static constexpr int MOST_BOXES = FOR_BOXES / (WARPS * FUSED_BOX);
    static constexpr int BOXES = MOST_BOXES < 4 ? MOST_BOXES : 4; /* a warp */
    static constexpr int COLUMNS_AT = BOXES_AT + WARPS * BOXES * FUSED_BOX;
    static constexpr int BARRIERS_AT = COLUMNS_AT + 2 * COLUMNS_BYTES;
    static constexpr int SHARED_BYTES = BARRIERS_AT + BARRIERS_BYTES;
    /* Registers of a thread; together no more than there are at the start. */
    static constexpr int FEWER = GROUPS == 2 ? 24 : 32, MORE = GROUPS == 2 ? 240 : 160;
    static_assert(!TAKE_TURNS || GROUPS == 2, "turns");
    static_assert(IN != FUSED_F8 || BLOCKS == 1, "registers for two sets of sums");
    static_assert(BOXES >= 2, "r wants a second box while the first is in use");
    static_assert((2 * STAGES + 4 + WARPS * BOXES) * 8 <= BARRIERS_BYTES, "barriers");
    static_assert(N % FUSED_STRIP == 0 && N / CLUSTER % 8 == 0, "strips, swizzle");
};

typedef struct fused_args {
    CUtensorMap x, w, t, u, r, y;
    const float *xs, *ws;     /* of codes */
    dfx_cuda_weights b, gate; /* gate: 1 where there is none */
    int m, n;
    int n_stages, n_low,
        rank; /* a tile has so many stages; n_low of them, the last, are of t and u [.., rank] */
    int rows, cols, band; /* in tiles, rows in those of a cluster; `band` rows are done together */
    bool has_r;
} fused_args;

typedef struct fused_tile {
    int row, col;
} fused_tile;

/* By columns within bands of rows, so that what blocks fetch at the same time is the same. */
template <class S> static __device__ inline fused_tile fused_tile_of(const fused_args &a, int i) {
    int in_band = a.band * a.cols, first = i / in_band * a.band, local = i % in_band;
    int rows = min(a.band, a.rows - first);
    int rank = S::CLUSTER > 1 ? (int)dfx_sm90_cluster_rank() : 0;
    return {((first + local % rows) * S::CLUSTER + rank) * S::M, local / rows * S::N};
}

template <class S> struct fused_barriers {
    uint32_t at;
    __device__ uint32_t full(int stage) const { return at + 8 * stage; }
    __device__ uint32_t empty(int stage) const { return at + 8 * (S::STAGES + stage); }
    __device__ uint32_t columns_full(int i) const { return at + 8 * (2 * S::STAGES + i); }
    __device__ uint32_t columns_empty(int i) const { return at + 8 * (2 * S::STAGES + 2 + i); }
    __device__ uint32_t box(int warp, int i) const {
        return at + 8 * (2 * S::STAGES + 4 + warp * S::BOXES + i);
    }
};

/* A place in the ring. */
template <class S> struct fused_place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void move(int n) {
        stage += n;
        parity ^= (stage / S::STAGES) & 1;
        stage %= S::STAGES;
    }
    __device__ void next(void) {
        if (++stage == S::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ---- fetching ---- */

/* Columns from `k` on of the tile's rows and of its columns, to the next stage. */
template <class S>
static __device__ inline void fetch_stage(const CUtensorMap *x_map, const CUtensorMap *w_map, int k,
                                          const fused_tile &tile, uint32_t shared,
                                          fused_barriers<S> barriers, fused_place<S> &place) {
    constexpr int share = S::N / S::CLUSTER;
    constexpr uint16_t everyone = (1 << S::CLUSTER) - 1;
    int rank = S::CLUSTER > 1 ? (int)dfx_sm90_cluster_rank() : 0;
    uint32_t x = shared + place.stage * S::STAGE_BYTES, full = barriers.full(place.stage);
    uint32_t w = x + S::X_BYTES + rank * share * FUSED_K;
    dfx_sm90_wait(barriers.empty(place.stage), place.parity ^ 1);
    dfx_sm90_arrive_expect(full, S::STAGE_BYTES);
    dfx_sm90_load(x, x_map, full, k, tile.row);
    if (S::CLUSTER > 1)
        dfx_sm90_load_all(w, w_map, full, k, tile.col + rank * share, everyone);
    else
        dfx_sm90_load(w, w_map, full, k, tile.col);
    place.next();
}

template <class S, bool LOW>
static __device__ inline void fetch_operands(const fused_args &a, uint32_t shared,
                                             fused_barriers<S> barriers) {
    fused_place<S> place;
    int n_first = LOW ? a.n_stages - a.n_low : a.n_stages;
    for (int i = blockIdx.x / S::CLUSTER; i < a.rows * a.cols; i += gridDim.x / S::CLUSTER) {
        fused_tile tile = fused_tile_of<S>(a, i);
        for (int k = 0; k < n_first; k++)
            fetch_stage(&a.x, &a.w, k * S::K, tile, shared, barriers, place);
        for (int k = 0; LOW && k < a.n_low; k++)
            fetch_stage(&a.t, &a.u, k * FUSED_LOW_K, tile, shared, barriers, place);
    }
}

/* Of every column: ws and b beside each other, then gate. */
template <class S>
static __device__ inline void fetch_columns(const fused_args &a, char *columns,
                                            fused_barriers<S> barriers) {
    int lane = threadIdx.x % DFX_WARP, n = 0;
    for (int i = blockIdx.x / S::CLUSTER; i < a.rows * a.cols; i += gridDim.x / S::CLUSTER, n++) {
        int tile_col = fused_tile_of<S>(a, i).col, buffer = n & 1;
        float2 *ends = (float2 *)(columns + buffer * S::COLUMNS_BYTES);
        float *gates = (float *)(ends + S::N);
        dfx_sm90_wait(barriers.columns_empty(buffer), (n >> 1 & 1) ^ 1);
        for (int c = lane; c < S::N; c += DFX_WARP) {
            int col = tile_col + c;
            bool inside = col < a.n;
            ends[c] = make_float2(inside && S::IN != FUSED_BF16 ? a.ws[col] : 0.0f,
                                  inside ? dfx_cuda_weight(a.b, 0, col) : 0.0f);
            gates[c] = inside && a.gate.ptr ? dfx_cuda_weight(a.gate, 0, col) : 1.0f;
        }
        dfx_sm90_arrive(barriers.columns_full(buffer));
    }
}

/* ---- multiplying ---- */

template <class S> static __device__ inline void release(fused_barriers<S> barriers, int stage) {
    uint32_t lane = threadIdx.x % DFX_WARP;
    if (S::CLUSTER == 1 && lane == 0)
        dfx_sm90_arrive(barriers.empty(stage));
    else if (S::CLUSTER > 1 && lane < S::CLUSTER)
        dfx_sm90_arrive_at(barriers.empty(stage), lane);
}

/* The barrier at which a group waits for its turn to multiply: a barrier of the ring cannot tell phases two apart. */
static __device__ inline int turn_of(int group) {
    return 1 + group;
}

/* One stage, onto sums unless it is the first. */
template <class S, typename Sum>
static __device__ inline void multiply_step(Sum (&sums)[S::N / 2], uint64_t x, uint64_t w,
                                            int add) {
    if constexpr (S::IN == FUSED_BF16)
        dfx_sm90_product_bf16(sums, x, w, add);
    else
        dfx_sm90_product(sums, x, w, add);
}

template <class S> static __device__ inline void give_turn(void) {
    if (S::TAKE_TURNS)
        dfx_sm90_meet_arrive(turn_of(1 - (int)threadIdx.x / FUSED_GROUP), 2 * FUSED_GROUP);
}

/* Stages are given back one later, so that products of two are always queued. The other group may have its turn when no stage
 * of this tile is waited for any more: n_after follow, which multiply_low waits for; if it is one it is waited for here, so
 * that the other group multiplies while this one gives its sums their scales. */
template <class S, typename Sum>
static __device__ inline void multiply(Sum (&sums)[S::BLOCKS][S::N / 2], int n_stages, int n_after,
                                       uint32_t x, uint32_t w, fused_barriers<S> barriers,
                                       fused_place<S> &place) {
    int last = 0;
    for (int k = 0; k < n_stages; k++, place.next()) {
        uint32_t at = place.stage * S::STAGE_BYTES;
        dfx_sm90_wait(barriers.full(place.stage), place.parity);
        dfx_sm90_products_begin();
        uint64_t x_at = dfx_sm90_operand(x + at), w_at = dfx_sm90_operand(w + at);
#pragma unroll
        for (int step = 0; step < 4; step++)
#pragma unroll
            for (int block = 0; block < S::BLOCKS; block++)
                multiply_step<S>(sums[block], x_at + 2 * step + block * (FUSED_ROWS * FUSED_K / 16),
                                 w_at + 2 * step, k | step);
        dfx_sm90_products_commit();
        dfx_sm90_products_wait<1>();
        if (k > 0)
            release(barriers, last);
        last = place.stage;
    }
    if (S::TAKE_TURNS && n_after == 1)
        dfx_sm90_wait(barriers.full(place.stage), place.parity);
    if (n_after <= 1)
        give_turn<S>();
    dfx_sm90_products_wait<0>();
    release(barriers, last);
}

/* With sums in f32 beside those of the tensor cores. While a group adds, the others multiply. */
template <class S>
static __device__ inline void multiply_rounded(float (&sums)[S::N / 2], int n_stages, uint32_t x,
                                               uint32_t w, fused_barriers<S> barriers,
                                               fused_place<S> &place) {
    float stage_sums[S::N / 2];
#pragma unroll
    for (int i = 0; i < S::N / 2; i++)
        sums[i] = 0.0f;
    for (int k = 0; k < n_stages; k++, place.next()) {
        uint32_t at = place.stage * S::STAGE_BYTES;
        dfx_sm90_wait(barriers.full(place.stage), place.parity);
        uint64_t x_at = dfx_sm90_operand(x + at), w_at = dfx_sm90_operand(w + at);
        dfx_sm90_products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++)
            dfx_sm90_product(stage_sums, x_at + 2 * step, w_at + 2 * step, step);
        dfx_sm90_products_commit();
        dfx_sm90_products_wait<0>();
        release(barriers, place.stage);
#pragma unroll
        for (int i = 0; i < S::N / 2; i++)
            sums[i] += stage_sums[i];
    }
}

/* t u^T onto values, which are as scale_sums leaves them: the stages behind those of codes, 32 columns at a time, of which
 * the last may be half zeros. */
template <class S>
static __device__ inline void multiply_low(typename S::Sum (&values)[S::BLOCKS][S::N / 2],
                                           const fused_args &a, uint32_t x, uint32_t w,
                                           fused_barriers<S> barriers, fused_place<S> &place) {
    for (int left = a.rank, half = 0; left > 0; left -= 32, half ^= 1) {
        uint32_t at = place.stage * S::STAGE_BYTES;
        dfx_sm90_wait(barriers.full(place.stage), place.parity);
        if (left <= FUSED_LOW_K && !half && a.n_low > 1)
            give_turn<S>();
        uint64_t t_at = dfx_sm90_operand(x + at) + 4 * half;
        uint64_t u_at = dfx_sm90_operand(w + at) + 4 * half;
        dfx_sm90_products_begin();
#pragma unroll
        for (int step = 0; step < 2; step++)
#pragma unroll
            for (int block = 0; block < S::BLOCKS; block++)
                dfx_sm90_product_bf16(values[block],
                                      t_at + 2 * step + block * (FUSED_ROWS * FUSED_K / 16),
                                      u_at + 2 * step, 1);
        dfx_sm90_products_commit();
        dfx_sm90_products_wait<0>();
        if (half || left <= 32) {
            release(barriers, place.stage);
            place.next();
        }
    }
}

/* ---- ending ---- */

/* A warp's rows of a tile: 16 of every block. */
template <class S> struct fused_end {
    const fused_args &a;
    fused_barriers<S> barriers;
    uint32_t boxes;     /* its own */
    int warp, row, col; /* row: its first one */

    __device__ void fetch_r(int strip) const {
        int box = strip % S::BOXES, block = strip / (S::N / FUSED_STRIP);
        uint32_t barrier = barriers.box(warp, box);
        dfx_sm90_arrive_expect(barrier, FUSED_BOX);
        dfx_sm90_load(boxes + box * FUSED_BOX, &a.r, barrier,
                      col + strip % (S::N / FUSED_STRIP) * FUSED_STRIP, row + block * FUSED_ROWS);
    }

    __device__ void store_y(int strip) const {
        int block = strip / (S::N / FUSED_STRIP);
        int to_row = row + block * FUSED_ROWS,
            to_col = col + strip % (S::N / FUSED_STRIP) * FUSED_STRIP;
        if (to_row < a.m && to_col < a.n)
            dfx_sm90_store(&a.y, boxes + strip % S::BOXES * FUSED_BOX, to_col, to_row);
        dfx_sm90_store_commit();
    }
};

static __device__ inline float2 fused_widen(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

static __device__ inline float fused_scaled(float sum, float xs, float ws) {
    return __fmul_rn(__fmul_rn(sum, xs), ws);
}

/* Of a tile's columns: ws and b of a pair of columns that is a thread's. */
static __device__ inline float4 fused_ends(const char *columns, int col) {
    return ((const float4 *)columns)[col / 2 + (int)threadIdx.x % 4];
}

/* Sums of codes become the values in f32 that they stand for: their bits, in the same registers. */
template <class S>
static __device__ inline void scale_sums(typename S::Sum (&sums)[S::BLOCKS][S::N / 2],
                                         const float (&xs)[S::BLOCKS][2], const char *columns) {
#pragma unroll
    for (int chunk = 0; chunk < S::N / 8; chunk++) {
        float4 end = fused_ends(columns, chunk * 8);
#pragma unroll
        for (int i = 0; i < S::BLOCKS * 4; i++) {
            int block = i / 4, at = chunk * 4 + i % 4;
            float value =
                fused_scaled((float)sums[block][at], xs[block][i % 4 / 2], i % 2 ? end.z : end.x);
            memcpy(&sums[block][at], &value, sizeof(value));
        }
    }
}

/* SCALED: sums are values, as scale_sums leaves them. Adding -0 changes no value, so it stands for r where there is none; nor does 1 as a
 * gate. */
template <class S, bool GELU, bool SCALED, typename Sum>
static __device__ inline void end_strip(const fused_end<S> &e, const Sum *sums, const float *xs,
                                        const char *columns, int strip, uint32_t &box_parities) {
    const uint32_t minus_zeros = 0x80008000u;
    int lane = threadIdx.x % DFX_WARP, box = strip % S::BOXES;
    int local = lane % 8 + (lane / 8 % 2) * 8;
    uint32_t at =
        e.boxes + box * FUSED_BOX + local * 2 * FUSED_STRIP + ((lane / 16) ^ (local / 2 % 4)) * 16;
    uint32_t words[FUSED_STRIP / 16][4];
#pragma unroll
    for (int i = 0; i < FUSED_STRIP / 16 * 4; i++)
        words[i / 4][i % 4] = minus_zeros;
    if (!GELU && e.a.has_r) {
        dfx_sm90_wait(e.barriers.box(e.warp, box), box_parities >> box & 1);
        box_parities ^= 1u << box;
#pragma unroll
        for (int i = 0; i < FUSED_STRIP / 16; i++)
            dfx_sm90_load_fragments(words[i], at ^ i * 32);
    }
    const dfx_act act = GELU ? DFX_ACT_GELU_TANH : DFX_ACT_NONE;
    const float2 *gates = (const float2 *)(columns + S::N * sizeof(float2));
#pragma unroll
    for (int chunk = 0; chunk < FUSED_STRIP / 8; chunk++) {
        int col = strip % (S::N / FUSED_STRIP) * FUSED_STRIP + chunk * 8;
        float4 end = fused_ends(columns, col);
        float2 gate = GELU ? make_float2(1.0f, 1.0f) : gates[col / 2 + lane % 4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Sum *pair_sums = sums + chunk * 4 + half * 2;
            float v0 = (float)pair_sums[0], v1 = (float)pair_sums[1];
            if (SCALED) {
                memcpy(&v0, &pair_sums[0], sizeof(v0));
                memcpy(&v1, &pair_sums[1], sizeof(v1));
            } else {
                v0 = fused_scaled(v0, xs[half], end.x);
                v1 = fused_scaled(v1, xs[half], end.z);
            }
            v0 = dfx_cuda_act(act, __fadd_rn(v0, end.y));
            v1 = dfx_cuda_act(act, __fadd_rn(v1, end.w));
            uint32_t &word = words[chunk / 2][chunk % 2 * 2 + half];
            if (!GELU) {
                float2 r = fused_widen(word);
                v0 = __fadd_rn(r.x, __fmul_rn(v0, gate.x));
                v1 = __fadd_rn(r.y, __fmul_rn(v1, gate.y));
            }
            __nv_bfloat162 rounded = __floats2bfloat162_rn(v0, v1);
            memcpy(&word, &rounded, sizeof(word));
        }
    }
    if (GELU || !e.a.has_r) { /* an earlier strip may still be leaving the box */
        if (lane == 0)
            dfx_sm90_store_wait<S::BOXES - 1>();
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < FUSED_STRIP / 16; i++)
        dfx_sm90_store_fragments(at ^ i * 32, words[i]);
    dfx_sm90_publish();
    __syncwarp();
    if (lane == 0) {
        e.store_y(strip);
        int next = strip - 1 + S::BOXES; /* goes where the strip before this one is leaving */
        if (!GELU && e.a.has_r && strip > 0 && next < S::STRIPS) {
            dfx_sm90_store_wait<1>();
            e.fetch_r(next);
        }
    }
}

/* All strips of a warp's rows. */
template <class S, bool GELU, bool SCALED, typename Sum>
static __device__ inline void end_rows(const fused_end<S> &e,
                                       const Sum (&sums)[S::BLOCKS][S::N / 2],
                                       const float (&xs)[S::BLOCKS][2], const char *columns,
                                       uint32_t &box_parities) {
#pragma unroll
    for (int strip = 0; strip < S::STRIPS; strip++) {
        constexpr int a_block = S::N / FUSED_STRIP;
        end_strip<S, GELU, SCALED>(e, &sums[strip / a_block][strip % a_block * (FUSED_STRIP / 2)],
                                   xs[strip / a_block], columns, strip, box_parities);
    }
}

template <class S, bool GELU, bool LOW>
static __device__ inline void multiply_tiles(const fused_args &a, char *shared,
                                             fused_barriers<S> barriers) {
    int group = threadIdx.x / FUSED_GROUP, warp = threadIdx.x / DFX_WARP,
        lane = threadIdx.x % DFX_WARP;
    int group_row = S::TAKE_TURNS ? 0 : group * S::BLOCKS * FUSED_ROWS;
    int step = gridDim.x / S::CLUSTER, n_tiles = a.rows * a.cols;
    constexpr bool plain = S::IN == FUSED_BF16; /* all stages are of one kind */
    int n_after = LOW && !plain ? a.n_low : 0;
    uint32_t ring = dfx_sm90_address(shared), x = ring + group_row * FUSED_K, w = ring + S::X_BYTES;
    uint32_t box_parities = 0;
    int n = S::TAKE_TURNS ? group : 0, each = S::TAKE_TURNS ? S::GROUPS : 1;
    fused_place<S> place;
    if (S::TAKE_TURNS)
        place.move(group * a.n_stages);
    if (S::TAKE_TURNS && group == 1)
        dfx_sm90_meet_arrive(turn_of(0), 2 * FUSED_GROUP);
    for (int i = blockIdx.x / S::CLUSTER + n * step; i < n_tiles; i += each * step, n += each) {
        fused_tile tile = fused_tile_of<S>(a, i);
        typename S::Sum sums[S::BLOCKS][S::N / 2];
        float xs[S::BLOCKS][2];
        fused_end<S> e = {a,
                          barriers,
                          ring + S::BOXES_AT + (warp * S::BOXES) * FUSED_BOX,
                          warp,
                          tile.row + group_row + warp % 4 * 16,
                          tile.col};
#pragma unroll
        for (int j = 0; j < S::BLOCKS * 2; j++) {
            int row = e.row + j / 2 * FUSED_ROWS + j % 2 * 8 + lane / 4;
            xs[j / 2][j % 2] = !plain && row < a.m ? a.xs[row] : 0.0f;
        }
        if (lane == 0) {
            dfx_sm90_store_wait<0>();
            if (!GELU && a.has_r)
#pragma unroll
                for (int strip = 0; strip < S::BOXES && strip < S::STRIPS; strip++)
                    e.fetch_r(strip);
        }
        __syncwarp();
        if (S::TAKE_TURNS)
            dfx_sm90_meet(turn_of(group), 2 * FUSED_GROUP);
        if constexpr (S::IN == FUSED_F8)
            multiply_rounded<S>(sums[0], a.n_stages - n_after, x, w, barriers, place);
        else
            multiply<S>(sums, a.n_stages - n_after, n_after, x, w, barriers, place);
        const char *columns = shared + S::COLUMNS_AT + (n & 1) * S::COLUMNS_BYTES;
        dfx_sm90_wait(barriers.columns_full(n & 1), n >> 1 & 1);
        if constexpr (LOW && !plain) {
            scale_sums<S>(sums, xs, columns);
            multiply_low<S>(sums, a, x, w, barriers, place);
            end_rows<S, GELU, true>(e, sums, xs, columns, box_parities);
        } else {
            end_rows<S, GELU, plain>(e, sums, xs, columns, box_parities);
        }
        if (S::TAKE_TURNS)
            place.move((S::GROUPS - 1) * a.n_stages);
        if (lane == 0)
            dfx_sm90_arrive(barriers.columns_empty(n & 1));
    }
    if (lane == 0)
        dfx_sm90_store_wait<0>();
}

/* ---- the kernel ---- */

template <class S>
static __device__ inline void make_barriers(const fused_args &a, fused_barriers<S> barriers) {
    constexpr int warps = S::TAKE_TURNS ? 4 : S::WARPS;
    for (int i = 0; i < S::STAGES; i++) {
        dfx_sm90_barrier_init(barriers.full(i), 1);
        dfx_sm90_barrier_init(barriers.empty(i), warps * S::CLUSTER);
    }
    for (int i = 0; i < 2; i++) {
        dfx_sm90_barrier_init(barriers.columns_full(i), DFX_WARP);
        dfx_sm90_barrier_init(barriers.columns_empty(i), warps);
    }
    for (int i = 0; i < S::WARPS * S::BOXES; i++)
        dfx_sm90_barrier_init(barriers.box(i / S::BOXES, i % S::BOXES), 1);
    dfx_sm90_barrier_publish();
    dfx_sm90_map_prefetch(&a.x);
    dfx_sm90_map_prefetch(&a.w);
    dfx_sm90_map_prefetch(&a.y);
}

/* LOW: with t and u. */
template <class S, bool GELU, bool LOW>
static __global__ void __launch_bounds__(S::THREADS, 1)
    fused_product(const __grid_constant__ fused_args a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char shared[];
    fused_barriers<S> barriers = {dfx_sm90_address(shared) + S::BARRIERS_AT};
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / DFX_WARP, 0);
    if (threadIdx.x == 0)
        make_barriers(a, barriers);
    __syncthreads();
    if (S::CLUSTER > 1)
        dfx_sm90_cluster_meet();
    if (warp >= S::WARPS) {
        dfx_sm90_registers_fewer<S::FEWER>();
        if (warp == S::WARPS && threadIdx.x % DFX_WARP == 0)
            fetch_operands<S, LOW>(a, dfx_sm90_address(shared), barriers);
        else if (warp == S::WARPS + 1)
            fetch_columns(a, shared + S::COLUMNS_AT, barriers);
    } else {
        dfx_sm90_registers_more<S::MORE>();
        multiply_tiles<S, GELU, LOW>(a, shared, barriers);
    }
    if (S::CLUSTER > 1) /* others may still write to this block's shared memory */
        dfx_sm90_cluster_meet();
#endif
}

#endif
