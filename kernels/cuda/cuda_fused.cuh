/* One kernel from codes, or BF16, to BF16 or codes (cuda_fused.h), for sm_90a; empty elsewhere. cuda_fused_sm90.cu chooses tiles and launches.
 *
 * A block stays on its multiprocessor and takes one tile of y after another. Roles, by group of four warps: the last one
 * fetches (a warp asks TMA for x and w, a warp widens what belongs to columns), the others multiply. x and w pass through a
 * ring of stages, each 128 bytes of K of the tile's rows and columns; `full` and `empty` are its barriers. The blocks of a
 * cluster lie below each other: each fetches its rows and its share of the common columns, which TMA writes to all of them.
 *
 * t and u are the last stages of a tile, 64 of their columns each. Where x and w are BF16 they are nothing but more of K.
 * Sums of codes get their scales first, in the registers where they are, and then the product of t and u on top.
 *
 * Shapes are in cuda_fused_shape.cuh, what comes after a tile's sums in cuda_fused_end.cuh.
 *
 * FP8: Hopper's tensor cores add e4m3 products with some 14 bits. Against exact sums, for normally distributed codes, also where
 * all of x are positive, the error is a part of the sums' root mean square that grows with K: 3.3e-4 for 512, 5e-4 for 1024,
 * 1.1e-3 for 3072, 3.0e-3 for 15360. One rounding to BF16 is 1.7e-3, rounding x and w to e4m3 some 3.7e-2, beside which it does
 * not count. Adding parts of K in f32 would want registers for a second set of sums, which smaller tiles and ends that are not
 * hidden pay for: a tenth of the time (kernels/PERF.md). */
#ifndef DFX_KERNELS_CUDA_FUSED_CUH
#define DFX_KERNELS_CUDA_FUSED_CUH

#include "kernels/cuda/cuda_fused_end.cuh"

/* ---- fetching ---- */

/* Columns from `k` on of the tile's rows and of its columns, to the next stage. */
template <class S>
static __device__ inline void fetch_stage(const CUtensorMap *x_map, const CUtensorMap *w_map, int k,
                                          const fused_tile &tile, uint32_t shared,
                                          fused_barriers<S> barriers,
                                          fused_place<S::STAGES> &place) {
    constexpr uint16_t everyone = (1 << S::CLUSTER) - 1;
    int rank = S::CLUSTER > 1 ? (int)dfx_sm90_cluster_rank() : 0;
    uint32_t x = shared + place.stage * S::STAGE_BYTES, full = barriers.full(place.stage);
    int cols = tile.half ? S::N / 2 : S::N, share = cols / S::CLUSTER;
    dfx_sm90_wait_loop(barriers.empty(place.stage), place.parity ^ 1);
    dfx_sm90_arrive_expect(full, S::X_BYTES + cols * FUSED_K);
    dfx_sm90_load(x, x_map, full, k, tile.row);
    for (int i = rank * share; i < (rank + 1) * share; i += S::W_BOX) {
        uint32_t w = x + S::X_BYTES + i * FUSED_K;
        if (S::CLUSTER > 1)
            dfx_sm90_load_all(w, w_map, full, k, tile.col + i, everyone);
        else
            dfx_sm90_load(w, w_map, full, k, tile.col + i);
    }
    place.next();
}

template <class S, bool LOW>
static __device__ inline void fetch_operands(const fused_args &a, uint32_t shared,
                                             fused_barriers<S> barriers) {
    fused_place<S::STAGES> place;
    int n_first = LOW ? a.n_stages - a.n_low : a.n_stages;
    for (int i = blockIdx.x / S::CLUSTER; i < a.n_parts; i += gridDim.x / S::CLUSTER) {
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
    for (int i = blockIdx.x / S::CLUSTER; i < a.n_parts; i += gridDim.x / S::CLUSTER, n++) {
        int tile_col = fused_tile_of<S>(a, i).col, buffer = n & 1;
        float2 *ends = (float2 *)(columns + buffer * S::COLUMNS_BYTES);
        float *gates = (float *)((char *)ends + S::GATES_AT);
        dfx_sm90_wait_loop(barriers.columns_empty(buffer), (n >> 1 & 1) ^ 1);
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
        dfx_sm90_arrive_there(dfx_sm90_barrier_at(barriers.empty(stage), lane));
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
                                       fused_place<S::STAGES> &place) {
    int last = 0;
    for (int k = 0; k < n_stages; k++, place.next()) {
        uint32_t at = place.stage * S::STAGE_BYTES;
        dfx_sm90_wait_loop(barriers.full(place.stage), place.parity);
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
        dfx_sm90_wait_loop(barriers.full(place.stage), place.parity);
    if (n_after <= 1)
        give_turn<S>();
    dfx_sm90_products_wait<0>();
    release(barriers, last);
}

/* t u^T onto values, which are as scale_sums leaves them: the stages behind those of codes, 32 columns at a time, of which
 * the last may be half zeros. */
template <class S>
static __device__ inline void multiply_low(typename S::Sum (&values)[S::BLOCKS][S::N / 2],
                                           const fused_args &a, uint32_t x, uint32_t w,
                                           fused_barriers<S> barriers,
                                           fused_place<S::STAGES> &place) {
    for (int left = a.rank, half = 0; left > 0; left -= 32, half ^= 1) {
        uint32_t at = place.stage * S::STAGE_BYTES;
        dfx_sm90_wait_loop(barriers.full(place.stage), place.parity);
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

/* ---- tiles, one after another ---- */

/* How far a group is. */
template <int STAGES> struct fused_progress {
    int i, n; /* its next tile, and how many there were before, the other group's too */
    fused_place<STAGES> place;
    uint32_t box_parities;
};

/* The tiles before `end`. S: fused_half where they are halves. */
template <class S, fused_then THEN, bool LOW>
static __device__ inline void multiply_tiles(const fused_args &a, char *shared,
                                             fused_barriers<S> barriers, int end,
                                             fused_progress<S::STAGES> &progress) {
    int group = threadIdx.x / FUSED_GROUP, warp = threadIdx.x / DFX_WARP,
        lane = threadIdx.x % DFX_WARP;
    int group_row = S::TAKE_TURNS ? 0 : group * S::BLOCKS * FUSED_ROWS;
    int step = gridDim.x / S::CLUSTER, each = S::TAKE_TURNS ? S::GROUPS : 1;
    constexpr bool plain = S::IN == FUSED_BF16; /* all stages are of one kind */
    int n_after = LOW && !plain ? a.n_low : 0;
    uint32_t ring = dfx_sm90_address(shared), x = ring + group_row * FUSED_K, w = ring + S::X_BYTES;
    uint32_t box_parities = progress.box_parities;
    int i = progress.i, n = progress.n;
    fused_place<S::STAGES> place = progress.place;
    for (; i < end; i += each * step, n += each) {
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
            if (THEN == FUSED_GELU_CODES)
                e.inverse[j / 2][j % 2] = row < a.m ? __frcp_rn(a.ys[row]) : 0.0f;
        }
        if (lane == 0) {
            dfx_sm90_store_wait<0>();
            if (THEN == FUSED_VALUES && a.has_r)
#pragma unroll
                for (int strip = 0; strip < S::BOXES && strip < S::STRIPS; strip++)
                    e.fetch_r(strip);
        }
        __syncwarp();
        if (S::TAKE_TURNS)
            dfx_sm90_meet(turn_of(group), 2 * FUSED_GROUP);
        multiply<S>(sums, a.n_stages - n_after, n_after, x, w, barriers, place);
        const char *columns = shared + S::COLUMNS_AT + (n & 1) * S::COLUMNS_BYTES;
        dfx_sm90_wait_loop(barriers.columns_full(n & 1), n >> 1 & 1);
        if constexpr (LOW && !plain) {
            scale_sums<S>(sums, xs, columns);
            multiply_low<S>(sums, a, x, w, barriers, place);
            end_rows<S, THEN, true>(e, sums, xs, columns, box_parities);
        } else {
            end_rows<S, THEN, plain>(e, sums, xs, columns, box_parities);
        }
        if (S::TAKE_TURNS)
            place.move((S::GROUPS - 1) * a.n_stages);
        if (lane == 0)
            dfx_sm90_arrive(barriers.columns_empty(n & 1));
    }
    progress = {i, n, place, box_parities};
}

template <class S, fused_then THEN, bool LOW>
static __device__ inline void multiply_all(const fused_args &a, char *shared,
                                           fused_barriers<S> barriers) {
    int group = threadIdx.x / FUSED_GROUP, first = S::TAKE_TURNS ? group : 0;
    fused_progress<S::STAGES> progress = {};
    progress.i = (blockIdx.x + first * gridDim.x) / S::CLUSTER;
    progress.n = first;
    if (S::TAKE_TURNS)
        progress.place.move(group * a.n_stages);
    if (S::TAKE_TURNS && group == S::GROUPS - 1)
        dfx_sm90_meet_arrive(turn_of(0), 2 * FUSED_GROUP);
    multiply_tiles<S, THEN, LOW>(a, shared, barriers, a.n_whole, progress);
    if constexpr (S::HALVES)
        multiply_tiles<fused_half<S>, THEN, LOW>(a, shared, {barriers.at}, a.n_parts, progress);
    if (threadIdx.x % DFX_WARP == 0)
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
template <class S, fused_then THEN, bool LOW>
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
        multiply_all<S, THEN, LOW>(a, shared, barriers);
    }
    if (S::CLUSTER > 1) /* others may still write to this block's shared memory */
        dfx_sm90_cluster_meet();
#endif
}

#endif
