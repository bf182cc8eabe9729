/* ATTENTION_CODES on Hopper, heads of 128: y = softmax(scale q_scale key_scale q k^T) v * value_scale + value_mean, q and k
 * int8, v and the weights of softmax E4M3, no N^2 buffer.
 *   Bound: arithmetic, 4 Tq Tk D operations at twice the rate of 16 bits, and the 64 Tq Tk D / 128 instructions of softmax.
 *
 * Blocks, groups, rings and the course over tiles are those of cuda_attention_sm90.cu; how scores become weights is in
 * cuda_attention_weights.cuh. What differs:
 *   A tile is 192 keys in two halves, each with its own scores in registers. While a group makes weights of one half, the
 * tensor cores make scores of the other half and multiply the weights before with values, so a group needs no turn. Weights
 * have two places as well.
 *   Sums of int8 products begin at ZERO_SCORE, so that they are floats as they stand.
 *   Queries have two places, so that scores of the next tile's first keys are made before this one's outputs are written.
 *   Of a cluster of two blocks, each fetches half of the keys of a tile, and 64 of the 128 rows of its values.
 *   Keys are visited in order: only the last tile may be partly masked, and the first half has a key.
 *   Values come transposed, within 16 tokens in the order in which a thread has scores (dfx_v_codes_place); a tile of them is
 * three parts of 64 keys.
 *   The order of products that are being queued and of the arithmetic beside them is ptxas's: a barrier of the group between
 * them costs more than it gains (kernels/PERF.md).
 *
 * Registers of a consumer: 96 scores, 64 outputs, 24 weights, 240 in all. Order of the sums depends on shapes alone: the same
 * bits each run. What lies beyond the operands' rows or columns is not read. Code for other targets than sm_90a is an empty
 * kernel, which fits() finds. */
#include "kernels/cuda/cuda_attention_weights.cuh"
#include "kernels/cuda/cuda_wgmma.cuh"

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/cuda_tensor_map.h"
}

enum {
    KEYS = 2 * HALF,
    STAGES = 3,
    SEATS = 2, /* for the queries of a group */
    PART = 64, /* keys of a part of a tile of values */
    /* Shared memory: queries of each group, twice | stages of keys | stages of values | barriers. */
    QUERIES_BYTES = ROWS * E,
    KEYS_BYTES = KEYS * E,
    PART_BYTES = PART * E,
    KEYS_OFF = SEATS * GROUPS * QUERIES_BYTES,
    VALUES_OFF = KEYS_OFF + STAGES * KEYS_BYTES,
    BARRIERS_OFF = VALUES_OFF + STAGES * KEYS_BYTES,
    SHARED_BYTES = BARRIERS_OFF + (4 * STAGES + 2 * SEATS * GROUPS) * 8,
};

/* Values of a head begin at head * E in each row of y. */
struct attention {
    void *y;                                 /* bf16, or codes */
    const float *q_scale, *center, *y_scale; /* y_scale: of codes, or NULL */
    int64_t ldy, ld_q_scale, ld_center;
    int n_queries, n_keys, n_heads;
    float scale;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef dfx_sm90_ring_place<STAGES> cursor;
typedef dfx_sm90_ring_place<SEATS> seat_cursor;

/* ---- Where things are */

/* Addresses in shared memory. A barrier `full` ends its phase when the bytes are there, `empty` when every warp that reads
 * them has. */
struct places {
    uint32_t base;
    __device__ uint32_t queries(int group, int seat) const {
        return base + (seat * GROUPS + group) * QUERIES_BYTES;
    }
    __device__ uint32_t keys(int stage) const { return base + KEYS_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t values(int stage) const { return base + VALUES_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t barrier(int i) const { return base + BARRIERS_OFF + i * 8; }
    __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
    __device__ uint32_t keys_empty(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t values_full(int stage) const { return barrier(2 * STAGES + stage); }
    __device__ uint32_t values_empty(int stage) const { return barrier(3 * STAGES + stage); }
    __device__ uint32_t queries_full(int group, int seat) const {
        return barrier(4 * STAGES + seat * GROUPS + group);
    }
    __device__ uint32_t queries_empty(int group, int seat) const {
        return barrier(4 * STAGES + (SEATS + seat) * GROUPS + group);
    }
};

/* ---- The producer */

struct maps {
    const CUtensorMap *q, *k, *v;
};

__device__ static void fetch_queries(const places &at, const maps &m, const seat_cursor &seat,
                                     int query, int head) {
    for (int group = 0; group < GROUPS; group++) {
        uint32_t full = at.queries_full(group, seat.stage);
        dfx_sm90_wait(at.queries_empty(group, seat.stage), seat.parity);
        dfx_sm90_arrive_expect(full, QUERIES_BYTES);
        dfx_sm90_load(at.queries(group, seat.stage), m.q, full, 0, query + group * ROWS, head);
    }
}

/* This block's share of a box, to all blocks of the cluster. */
template <int CLUSTER>
__device__ static void fetch_share(uint32_t dst, const CUtensorMap *map, uint32_t full, int x,
                                   int y, int head) {
    if (CLUSTER == 1)
        dfx_sm90_load(dst, map, full, x, y, head);
    else
        dfx_sm90_load_all(dst, map, full, x, y, head, (1 << CLUSTER) - 1);
}

template <int CLUSTER>
__device__ static void fetch_keys(const places &at, const maps &m, int stage, int key, int head) {
    const int share = KEYS / CLUSTER;
    int first = rank_in_cluster<CLUSTER>() * share;
    uint32_t full = at.keys_full(stage);
    dfx_sm90_arrive_expect(full, KEYS_BYTES);
    fetch_share<CLUSTER>(at.keys(stage) + first * E, m.k, full, 0, key + first, head);
}

template <int CLUSTER>
__device__ static void fetch_values(const places &at, const maps &m, int stage, int key, int head) {
    const int share = E / CLUSTER;
    int first = rank_in_cluster<CLUSTER>() * share;
    uint32_t full = at.values_full(stage), dst = at.values(stage) + first * PART;
    dfx_sm90_arrive_expect(full, KEYS_BYTES);
    for (int part = 0; part < KEYS / PART; part++)
        fetch_share<CLUSTER>(dst + part * PART_BYTES, m.v, full, key + part * PART, first, head);
}

/* One thread. All stages are empty at first, so it waits for the phase before the first. In a cluster it stays until all are
 * empty again: the others tell so in this block's shared memory. */
template <int CLUSTER>
__device__ static void produce(const places &at, const attention &a, const maps &m) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS, CLUSTER);
    cursor ring = {0, 1};
    seat_cursor seat = {0, 1};
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        int head = way.head(tile);
#pragma unroll 1
        for (int i = 0; i < way.n_key_tiles; i++) {
            dfx_sm90_wait(at.keys_empty(ring.stage), ring.parity);
            fetch_keys<CLUSTER>(at, m, ring.stage, i * KEYS, head);
            if (i == 0)
                fetch_queries(at, m, seat, way.query(tile), head);
            dfx_sm90_wait(at.values_empty(ring.stage), ring.parity);
            fetch_values<CLUSTER>(at, m, ring.stage, i * KEYS, head);
            ring.next();
        }
        seat.next();
    }
    for (int i = 0; CLUSTER > 1 && i < STAGES; i++, ring.next()) {
        dfx_sm90_wait(at.keys_empty(ring.stage), ring.parity);
        dfx_sm90_wait(at.values_empty(ring.stage), ring.parity);
    }
}

/* ---- A consumer */

/* Of a thread: what each half of a tile needs, and outputs. */
struct rows {
    float o[E / 2];
    row_weights w;
    scores s[2];
    weights p[2];
};

__device__ static void hold(scores &s) {
#pragma unroll
    for (int i = 0; i < HALF / 2; i++)
        asm volatile("" : "+r"(s[i])::"memory");
}

__device__ static void hold(weights &p) {
#pragma unroll
    for (int i = 0; i < HALF / 8; i++)
        asm volatile("" : "+r"(p[i / 4][i % 4])::"memory");
}

/* Queues s = q k^T. */
__device__ static void multiply_keys(scores &s, uint32_t queries, uint32_t keys) {
    uint64_t q = dfx_sm90_operand(queries), k = dfx_sm90_operand(keys);
#pragma unroll
    for (int i = 0; i < HALF / 2; i++)
        s[i] = ZERO_SCORE;
    hold(s);
    dfx_sm90_products_begin();
#pragma unroll
    for (int e = 0; e < E / 32; e++)
        dfx_sm90_product(s, q + 2 * e, k + 2 * e, 1);
    dfx_sm90_products_commit();
}

/* Queues o += p v, of one half of a tile. */
template <int WHICH> __device__ static void multiply_values(rows &r, uint32_t values) {
    hold(r.p[WHICH]);
    dfx_sm90_products_begin();
#pragma unroll
    for (int k = 0; k < HALF / 32; k++) {
        int key = WHICH * HALF + 32 * k;
        dfx_sm90_product_of_codes(r.o, r.p[WHICH][k],
                                  dfx_sm90_operand_64(values + key / PART * PART_BYTES) +
                                      key % PART / 16);
    }
    dfx_sm90_products_commit();
}

__device__ static void fade_outputs(rows &r) {
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] *= r.w.fade[i / 2 % 2];
    r.w.fade[0] = r.w.fade[1] = 1;
}

/* Weights of the first half of a tile's keys. Along with them: scores of the second half, and the product with the values that
 * were before, if there are any. */
template <int CLUSTER, bool FIRST>
__device__ static void advance_first(const places &at, rows &r, uint32_t queries, cursor &k,
                                     cursor &v) {
    multiply_keys(r.s[1], queries, at.keys(k.stage) + HALF * E);
    if (FIRST)
        find_lifts(r.s[0], r.w);
    else
        multiply_values<1>(r, at.values(v.stage));
    bool moved = soften(r.s[0], r.w, r.p[0]);
    dfx_sm90_products_wait<0>();
    hold(r.s[1]);
    dfx_sm90_hold(r.o);
    release_to_all<CLUSTER>(empty_of_lane<CLUSTER>(at.keys_empty(k.stage)));
    k.next();
    if (!FIRST) {
        release_to_all<CLUSTER>(empty_of_lane<CLUSTER>(at.values_empty(v.stage)));
        v.next();
    }
    if (moved)
        fade_outputs(r);
}

/* Weights of the second half. Along with them: the product of the first half's with values, and scores of the next keys, of
 * this tile of queries or the next. Where there are no more, they are scores of whatever is there, for nobody: queuing
 * products on a condition is what ptxas does not like. moved: lifts have moved since the weights of the first half. */
__device__ static void advance_second(const places &at, rows &r, uint32_t queries, cursor &k,
                                      cursor &v, bool more, bool moved) {
    if (more)
        dfx_sm90_wait(at.keys_full(k.stage), k.parity);
    multiply_keys(r.s[0], queries, at.keys(k.stage));
    dfx_sm90_wait(at.values_full(v.stage), v.parity);
    multiply_values<0>(r, at.values(v.stage));
    moved |= soften(r.s[1], r.w, r.p[1]);
    dfx_sm90_products_wait<0>();
    hold(r.s[0]);
    dfx_sm90_hold(r.o);
    if (moved)
        fade_outputs(r);
}

template <int CLUSTER> __device__ static void end_values(const places &at, rows &r, cursor &v) {
    multiply_values<1>(r, at.values(v.stage));
    dfx_sm90_products_wait<0>();
    dfx_sm90_hold(r.o);
    release_to_all<CLUSTER>(empty_of_lane<CLUSTER>(at.values_empty(v.stage)));
    v.next();
}

/* Octaves of a step of score, of a thread's rows. */
struct row_units {
    float of[2];
};

__device__ static row_units find_units(const attention &a, const course &way, int tile, int group) {
    int query = way.query(tile) + group * ROWS + row_of_thread(), head = way.head(tile);
    float unit = a.scale * LOG2E * a.center[DFX_CENTER_KEY_SCALE * a.ld_center + (int64_t)head * E];
    row_units units;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = min(query + 8 * half, a.n_queries - 1);
        units.of[half] = unit * a.q_scale[row * a.ld_q_scale + head];
    }
    return units;
}

__device__ static void begin_rows(rows &r, const row_units &units) {
    begin_row(r.w, 0, units.of[0]);
    begin_row(r.w, 1, units.of[1]);
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] = 0;
}

/* To the rows of y from `query` on, which are codes. */
__device__ static void store_as_codes(const attention &a, const rows &r, int query, int head) {
    int col = head * E + (int)threadIdx.x % 4 * 2;
    const float *means = a.center + DFX_CENTER_VALUE * a.ld_center + col;
    const float *scales = a.center + DFX_CENTER_VALUE_SCALE * a.ld_center + col;
    query += row_of_thread();
#pragma unroll
    for (int half = 0; half < 2; half++, query += 8) {
        float part = 1 / (sum_of_row(r.w.sum[half]) * SUM_UNIT);
        bool there = query < a.n_queries;
        float by = __frcp_rn(a.y_scale[there ? query : 0]);
        store_codes((uint8_t *)a.y + query * a.ldy + head * E, by, there, [&](int n, int i) {
            return fmaf(r.o[4 * n + 2 * half + i] * part, scales[n * 8 + i], means[n * 8 + i]);
        });
    }
}

/* To the rows of y from `query` on: 64 adjacent bytes of a row by four lanes. */
__device__ static void store(const attention &a, const rows &r, int query, int head) {
    int lane = (int)threadIdx.x % 4;
    const float *means = a.center + DFX_CENTER_VALUE * a.ld_center + head * E + lane * 2;
    const float *scales = a.center + DFX_CENTER_VALUE_SCALE * a.ld_center + head * E + lane * 2;
    float part[2];
    query += row_of_thread();
#pragma unroll
    for (int half = 0; half < 2; half++)
        part[half] = 1 / (sum_of_row(r.w.sum[half]) * SUM_UNIT);
    bf16 *y = (bf16 *)a.y + query * a.ldy + head * E + lane * 8;
#pragma unroll
    for (int n = 0; n < E / 8; n += 4) {
        uint32_t words[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 mean = *(const float2 *)(means + (n + i) * 8),
                   scale = *(const float2 *)(scales + (n + i) * 8);
            const float *o = r.o + 4 * (n + i);
#pragma unroll
            for (int half = 0; half < 2; half++)
                words[half][i] = pack(fmaf(o[2 * half] * part[half], scale.x, mean.x),
                                      fmaf(o[2 * half + 1] * part[half], scale.y, mean.y));
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t(&w)[4] = words[half];
            dfx_sm90_transpose(words[half]);
            if (query + 8 * half < a.n_queries)
                *(uint4 *)(y + 8 * half * a.ldy + n * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

/* All keys of one tile of queries, of which the first scores are there. */
template <int CLUSTER>
__device__ static void attend_tile(const places &at, const attention &a, const course &way, rows &r,
                                   int group, seat_cursor &seat, cursor &k, cursor &v, bool more) {
    uint32_t queries = at.queries(group, seat.stage);
    int n_last = a.n_keys - (way.n_key_tiles - 1) * KEYS;
    if (way.n_key_tiles == 1)
        mask(r.s[0], n_last);
    advance_first<CLUSTER, true>(at, r, queries, k, v);
#pragma unroll 1
    for (int i = 1; i < way.n_key_tiles; i++) {
        if (i == MANY_TILES)
            raise_lifts(r.w);
        advance_second(at, r, queries, k, v, true, i == MANY_TILES);
        if (i == way.n_key_tiles - 1)
            mask(r.s[0], n_last);
        advance_first<CLUSTER, false>(at, r, queries, k, v);
    }
    release(at.queries_empty(group, seat.stage));
    mask(r.s[1], n_last - HALF);
    if (more) {
        seat.next();
        dfx_sm90_wait(at.queries_full(group, seat.stage), seat.parity);
    }
    advance_second(at, r, at.queries(group, seat.stage), k, v, more, false);
    end_values<CLUSTER>(at, r, v);
}

/* The threads of one group. */
template <int CLUSTER>
__device__ static void consume(const places &at, const attention &a, int group) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS, CLUSTER);
    cursor k = {0, 0}, v = {0, 0};
    seat_cursor seat = {0, 0};
    rows r;
    row_units units = find_units(a, way, (int)blockIdx.x, group);
    dfx_sm90_wait(at.queries_full(group, seat.stage), seat.parity);
    dfx_sm90_wait(at.keys_full(k.stage), k.parity);
    multiply_keys(r.s[0], at.queries(group, seat.stage), at.keys(k.stage));
    dfx_sm90_products_wait<0>();
    hold(r.s[0]);
#pragma unroll 1
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        bool more = tile + (int)gridDim.x < way.n_tiles;
        begin_rows(r, units);
        units = find_units(a, way, more ? tile + (int)gridDim.x : tile, group);
        attend_tile<CLUSTER>(at, a, way, r, group, seat, k, v, more);
        if (a.y_scale)
            store_as_codes(a, r, way.query(tile) + group * ROWS, way.head(tile));
        else
            store(a, r, way.query(tile) + group * ROWS, way.head(tile));
    }
}

template <int CLUSTER> __device__ static void make_barriers(const places &at) {
    const int warps = GROUP / 32;
    for (int i = 0; i < STAGES; i++) {
        dfx_sm90_barrier_init(at.keys_full(i), 1);
        dfx_sm90_barrier_init(at.keys_empty(i), CLUSTER * GROUPS * warps);
        dfx_sm90_barrier_init(at.values_full(i), 1);
        dfx_sm90_barrier_init(at.values_empty(i), CLUSTER * GROUPS * warps);
    }
    for (int i = 0; i < SEATS * GROUPS; i++) {
        dfx_sm90_barrier_init(at.queries_full(i % GROUPS, i / GROUPS), 1);
        dfx_sm90_barrier_init(at.queries_empty(i % GROUPS, i / GROUPS), warps);
    }
    dfx_sm90_barrier_publish();
}

enum { MOST_THREADS = THREADS };
#else
enum { MOST_THREADS = 32 }; /* of the empty kernel: a launch of THREADS fails */
#endif

template <int CLUSTER>
__global__ static void __launch_bounds__(MOST_THREADS, 1)
    attend(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
           const __grid_constant__ CUtensorMap map_v, const attention a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const places at = {(uint32_t)__cvta_generic_to_shared(shared)};
    int group = __shfl_sync(0xffffffff, (int)threadIdx.x / GROUP, 0); /* known to be a warp's */
    if (threadIdx.x == 0)
        make_barriers<CLUSTER>(at);
    __syncthreads();
    if (CLUSTER > 1)
        dfx_sm90_cluster_meet();
    if (group == 0) {
        dfx_sm90_registers_fewer<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce<CLUSTER>(at, a, {&map_q, &map_k, &map_v});
    } else {
        dfx_sm90_registers_more<CONSUMER_REGISTERS>();
        consume<CLUSTER>(at, a, group - 1);
    }
#endif
}

/* ---- Launcher */

static bool is_in_build() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, attend<2>) == cudaSuccess &&
           attributes.maxThreadsPerBlock >= THREADS;
}

extern "C" bool dfx_cuda_attention_codes_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    bool fits = cuda->sm == 90 && call->m[0].cols == (int64_t)call->p.n_heads * E &&
                call->p.scale > 0 && is_in_build();
    if (!fits)
        cudaGetLastError(); /* of a kernel that is not in the build; told here, and not by the next launch */
    return fits;
}

/* A tensor of heads, of which `wide` bytes by `high` rows are a tile. */
static dfx_status describe(const dfx_cuda *cuda, const dfx_mat *m, const cuuint64_t (&size)[3],
                           int64_t head_stride, int wide, int high, CUtensorMap *out) {
    dfx_cuda_encode_fn encode;
    DFX_TRY(dfx_cuda_find_encode(cuda, "attention_codes", &encode));
    cuuint64_t stride_bytes[2] = {(cuuint64_t)m->ld, (cuuint64_t)head_stride};
    cuuint32_t box[3] = {(cuuint32_t)wide, (cuuint32_t)high, 1}, step[3] = {1, 1, 1};
    CUresult result = encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, m->ptr, size, stride_bytes, box,
                             step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             wide == E ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: attention_codes: the driver takes no tensor of %lld rows, %lld "
                        "apart, for TMA (error %d)",
                        (long long)m->rows, (long long)m->ld, (int)result);
    return DFX_OK;
}

extern "C" dfx_status dfx_cuda_attention_codes_sm90(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    cuuint64_t n_heads = (cuuint64_t)call->p.n_heads;
    const cuuint64_t q_size[3] = {E, (cuuint64_t)q->rows, n_heads},
                     k_size[3] = {E, (cuuint64_t)k->rows, n_heads},
                     v_size[3] = {(cuuint64_t)v->cols, E, n_heads};
    CUtensorMap map_q, map_k, map_v;
    int cluster = cluster_of(cuda->n_multiprocessors, (int)q->rows, call->p.n_heads);
    DFX_TRY(describe(cuda, q, q_size, E, E, ROWS, &map_q));
    DFX_TRY(describe(cuda, k, k_size, E, E, KEYS / cluster, &map_k));
    DFX_TRY(describe(cuda, v, v_size, E * v->ld, PART, E / cluster, &map_v));
    attention a = {.y = m[0].ptr,
                   .q_scale = (const float *)m[DFX_ATTN_Q_SCALE].ptr,
                   .center = (const float *)m[DFX_ATTN_CENTER].ptr,
                   .y_scale = (const float *)m[DFX_ATTN_CODES_Y_SCALE].ptr,
                   .ldy = m[0].ld,
                   .ld_q_scale = m[DFX_ATTN_Q_SCALE].ld,
                   .ld_center = m[DFX_ATTN_CENTER].ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .n_heads = call->p.n_heads,
                   .scale = call->p.scale};
    dfx_cuda_note(cuda, "wgmma%s", cluster == 2 ? ", clusters of 2" : "");
    cudaError_t error =
        launch_clusters(cuda, cluster == 2 ? attend<2> : attend<1>, cluster, a.n_queries, a.n_heads,
                        SHARED_BYTES, map_q, map_k, map_v, a);
    return dfx_cuda_check(cuda, error, "attention_codes");
}
