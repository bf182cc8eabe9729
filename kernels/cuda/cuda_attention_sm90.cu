/* ATTENTION on Hopper, heads of 128 without bias or causal mask: y = softmax(scale q k^T) v, exact, no N^2 buffer.
 *   Bound: arithmetic, 4 Tq Tk D operations. Keys and values of a head are read from L2, again for each cluster's queries.
 *
 * A block is a producer and two groups of four warps. One thread of the producer copies tiles to shared memory by TMA: the
 * queries of each group, then stages of keys and values, in a ring. Each group has 64 queries, passes over all keys with the
 * running maximum and sum of each row (Milakov and Gimelshein, "Online normalizer calculation for softmax") and keeps scores
 * (f32), probabilities (BF16) and outputs (f32) in registers; products are wgmma. While a group is busy with exponentials the
 * other has the tensor cores: groups take turns in queuing their products, and each queues scores of the next keys before it
 * queues the product with the values of the last (Shah et al., "FlashAttention-3").
 *   Tiles: 192 keys, the most that fit: two stages with the queries are 224 of 227 KiB, and scores (96 registers a thread),
 *   probabilities (48) and outputs (64) fit the 240 that a consumer gets. The larger, the fewer turns: kernels/PERF.md.
 *   Blocks stay on their multiprocessor and take every n-th tile of queries, heads in order, so that few heads' keys and
 *   values are in use at a time, and the producer fetches for the next tile while the last is written.
 *   Two blocks are a cluster (cuda_attention_sm90.cuh), or one. Of two, each fetches 64 of the head's 128 columns of a tile of
 * keys or values, for both.
 *   Keys are visited from the last tile to the first: only the first visited may be partly masked, and it has a key.
 *
 * Order of the sums depends on shapes alone: the same bits each run. What lies beyond the operands' rows or columns is not
 * read. Code for other targets than sm_90a is an empty kernel, which fits() finds. */
#include "kernels/cuda/cuda_attention_sm90.cuh"

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/cuda_tensor_map.h"
}

enum {
    KEYS = 192,
    STAGES = 2,
    /* Shared memory: queries of each group | stages of keys | stages of values | barriers. */
    QUERIES_BYTES = ROWS * E * 2,
    KEYS_BYTES = KEYS * E * 2,
    KEYS_OFF = GROUPS * QUERIES_BYTES,
    VALUES_OFF = KEYS_OFF + STAGES * KEYS_BYTES,
    BARRIERS_OFF = VALUES_OFF + STAGES * KEYS_BYTES,
    SHARED_BYTES = BARRIERS_OFF + (4 * STAGES + 2 * GROUPS) * 8,
    LEAST_QUERIES = 64, /* fewer: most rows of a tile would be nobody's */
};

/* Values of a head begin at head * E in each row of y. */
struct attention {
    void *y;              /* bf16, or codes */
    const float *y_scale; /* of codes, or NULL */
    int64_t ldy;
    int n_queries, n_keys, n_heads;
    float unit; /* scores times this are exponents of two */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Where things are */

/* Addresses in shared memory. Tiles are halves of a head, 64 values wide, one after the other. A barrier `full` ends its phase
 * when the bytes are there, `empty` when every warp that reads them has. */
struct places {
    uint32_t base;
    __device__ uint32_t queries(int group) const { return base + group * QUERIES_BYTES; }
    __device__ uint32_t keys(int stage) const { return base + KEYS_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t values(int stage) const { return base + VALUES_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t barrier(int i) const { return base + BARRIERS_OFF + i * 8; }
    __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
    __device__ uint32_t keys_empty(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t values_full(int stage) const { return barrier(2 * STAGES + stage); }
    __device__ uint32_t values_empty(int stage) const { return barrier(3 * STAGES + stage); }
    __device__ uint32_t queries_full(int group) const { return barrier(4 * STAGES + group); }
    __device__ uint32_t queries_empty(int group) const {
        return barrier(4 * STAGES + GROUPS + group);
    }
};

typedef dfx_sm90_ring_place<STAGES> cursor;

/* ---- The producer */

struct maps {
    const CUtensorMap *q, *k, *v;
};

__device__ static void fetch_queries(const places &at, const maps &m, uint32_t parity, int query,
                                     int head) {
    for (int group = 0; group < GROUPS; group++) {
        uint32_t full = at.queries_full(group);
        dfx_sm90_wait(at.queries_empty(group), parity);
        dfx_sm90_arrive_expect(full, QUERIES_BYTES);
        dfx_sm90_load(at.queries(group), m.q, full, 0, query + group * ROWS, head * (E / 64));
    }
}

/* A tile of keys or values from row `key` on, or this block's share of it to all blocks of the cluster. */
template <int CLUSTER>
__device__ static void fetch_keys(uint32_t dst, const CUtensorMap *map, uint32_t full, int key,
                                  int head) {
    dfx_sm90_arrive_expect(full, KEYS_BYTES);
    if (CLUSTER == 1) {
        dfx_sm90_load(dst, map, full, 0, key, head * (E / 64));
    } else {
        int rank = (int)dfx_sm90_cluster_rank();
        dfx_sm90_load_all(dst + rank * (KEYS_BYTES / CLUSTER), map, full, 0, key,
                          head * (E / 64) + rank, (1 << CLUSTER) - 1);
    }
}

/* One thread. All stages are empty at first, so it waits for the phase before the first. In a cluster it stays until all are
 * empty again: the others tell so in this block's shared memory. */
template <int CLUSTER>
__device__ static void produce(const places &at, const attention &a, const maps &m) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS, CLUSTER);
    cursor ring = {0, 1};
    uint32_t queries_parity = 1;
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        int head = way.head(tile);
#pragma unroll 1
        for (int i = way.n_key_tiles - 1; i >= 0; i--) {
            uint32_t keys_full = at.keys_full(ring.stage), values_full = at.values_full(ring.stage);
            dfx_sm90_wait(at.keys_empty(ring.stage), ring.parity);
            fetch_keys<CLUSTER>(at.keys(ring.stage), m.k, keys_full, i * KEYS, head);
            if (i == way.n_key_tiles - 1)
                fetch_queries(at, m, queries_parity, way.query(tile), head);
            dfx_sm90_wait(at.values_empty(ring.stage), ring.parity);
            fetch_keys<CLUSTER>(at.values(ring.stage), m.v, values_full, i * KEYS, head);
            ring.next();
        }
        queries_parity ^= 1;
    }
    for (int i = 0; CLUSTER > 1 && i < STAGES; i++, ring.next()) {
        dfx_sm90_wait(at.keys_empty(ring.stage), ring.parity);
        dfx_sm90_wait(at.values_empty(ring.stage), ring.parity);
    }
}

/* ---- A consumer */

/* Of a thread. Scores and outputs lie as wgmma leaves them: rows l / 4 and l / 4 + 8 of the warp's 16, which lane l shares with
 * three others. Of each of the two: greatest score so far; the lane's part of the sum of exponentials; what is to fade what
 * was summed with a smaller maximum. */
struct rows {
    float o[E / 2], s[KEYS / 2];
    uint32_t p[KEYS / 4];
    float top[2], sum[2], fade[2];
};

/* Queues s = q k^T. */
__device__ static void multiply_keys(rows &r, uint32_t queries, uint32_t keys) {
    uint64_t q = dfx_sm90_tile(queries, 0), k = dfx_sm90_tile(keys, 0);
#pragma unroll
    for (int e = 0; e < E / 16; e++)
        dfx_sm90_product_bf16(r.s, dfx_sm90_later(q, e / 4 * ROWS * 128 + e % 4 * 32),
                              dfx_sm90_later(k, e / 4 * KEYS * 128 + e % 4 * 32), e > 0);
    dfx_sm90_products_commit();
}

/* Queues o += p v: accumulators of two products side by side are the left operand of the next. */
__device__ static void multiply_values(rows &r, uint32_t values) {
    uint64_t v = dfx_sm90_tile(values, KEYS * 128);
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        dfx_sm90_product_of_rows(r.o, r.p[4 * k], r.p[4 * k + 1], r.p[4 * k + 2], r.p[4 * k + 3],
                                 dfx_sm90_later(v, k * 2048));
    dfx_sm90_products_commit();
}

/* Keys from n_there on get no weight. */
__device__ static void mask(rows &r, int n_there) {
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + column + i % 2 >= n_there)
                r.s[4 * n + i] = -CUDART_INF_F;
}

__device__ static void raise_top(rows &r, float unit) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float a = r.top[half], b = a; /* two chains, each half as long */
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            a = fmaxf(a, r.s[4 * n + 2 * half]);
            b = fmaxf(b, r.s[4 * n + 2 * half + 1]);
        }
        a = fmaxf(a, b);
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 1));
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 2));
        r.fade[half] = exp2_fast((r.top[half] - a) * unit);
        r.top[half] = a;
    }
}

/* s to exp2(unit (s - greatest so far)), and p from it. */
__device__ static void soften(rows &r, float unit) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float down = -r.top[half] * unit, even = 0, odd = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            float &x = r.s[4 * n + 2 * half], &y = r.s[4 * n + 2 * half + 1];
            x = exp2_fast(fmaf(x, unit, down));
            y = exp2_fast(fmaf(y, unit, down));
            even += x;
            odd += y;
        }
        r.sum[half] = r.sum[half] * r.fade[half] + (even + odd);
    }
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        r.p[i] = pack(r.s[2 * i], r.s[2 * i + 1]);
}

__device__ static void fade_outputs(rows &r) {
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] *= r.fade[i / 2 % 2];
}

/* o / sum to the rows of y from `query` on: 64 adjacent bytes of a row by four lanes, or its codes. */
__device__ static void store(const attention &a, const rows &r, int query, int head) {
    query += row_of_thread();
#pragma unroll
    for (int half = 0; half < 2; half++, query += 8) {
        float part = 1 / sum_of_row(r.sum[half]);
        if (a.y_scale) {
            bool there = query < a.n_queries;
            float by = __frcp_rn(a.y_scale[there ? query : 0]);
            store_codes((uint8_t *)a.y + query * a.ldy + head * E, by, there,
                        [&](int n, int i) { return r.o[4 * n + 2 * half + i] * part; });
            continue;
        }
        bf16 *y = (bf16 *)a.y + query * a.ldy + head * E + (int)threadIdx.x % 4 * 8;
#pragma unroll
        for (int n = 0; n < E / 8; n += 4) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = pack(r.o[4 * (n + i) + 2 * half] * part,
                            r.o[4 * (n + i) + 2 * half + 1] * part);
            dfx_sm90_transpose(w);
            if (query < a.n_queries)
                *(uint4 *)(y + n * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

/* Named barriers 1 and 2: the turn of group 0 and of group 1. */
__device__ static void take_turn(int group) {
    dfx_sm90_meet(1 + group, GROUPS * GROUP);
}

__device__ static void pass_turn(int group) {
    dfx_sm90_meet_arrive(1 + (group + 1) % GROUPS, GROUPS * GROUP);
}

/* Scores of the first keys, which nothing goes along with. */
template <int CLUSTER>
__device__ static void begin_rows(const places &at, const attention &a, rows &r, int group,
                                  cursor &k) {
    uint32_t keys_empty = empty_of_lane<CLUSTER>(at.keys_empty(k.stage));
    dfx_sm90_wait(at.keys_full(k.stage), k.parity);
    dfx_sm90_products_begin();
    multiply_keys(r, at.queries(group), at.keys(k.stage));
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.top[half] = -CUDART_INF_F;
        r.sum[half] = 0;
    }
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] = 0;
    dfx_sm90_products_wait<0>();
    dfx_sm90_hold(r.s);
    release_to_all<CLUSTER>(keys_empty);
    k.next();
    if (a.n_keys % KEYS)
        mask(r, a.n_keys % KEYS);
    raise_top(r, a.unit);
    soften(r, a.unit);
}

/* Scores of the next keys, and the product with the values of the last. The new maximum is found before that product is
 * waited for; exponentials are not, as they have the other group's products to go along with. */
template <int CLUSTER>
__device__ static void advance(const places &at, const attention &a, rows &r, int group, cursor &k,
                               cursor &v) {
    uint32_t keys_empty = empty_of_lane<CLUSTER>(at.keys_empty(k.stage));
    uint32_t values_empty = empty_of_lane<CLUSTER>(at.values_empty(v.stage));
    take_turn(group);
    dfx_sm90_wait(at.keys_full(k.stage), k.parity);
    dfx_sm90_hold(r.o);
    dfx_sm90_products_begin();
    multiply_keys(r, at.queries(group), at.keys(k.stage));
    dfx_sm90_wait(at.values_full(v.stage), v.parity);
    dfx_sm90_products_begin();
    multiply_values(r, at.values(v.stage));
    pass_turn(group);
    dfx_sm90_products_wait<1>();
    dfx_sm90_hold(r.s);
    release_to_all<CLUSTER>(keys_empty);
    k.next();
    raise_top(r, a.unit);
    dfx_sm90_products_wait<0>();
    dfx_sm90_hold(r.o);
    release_to_all<CLUSTER>(values_empty);
    v.next();
    soften(r, a.unit);
    fade_outputs(r);
}

template <int CLUSTER> __device__ static void end_rows(const places &at, rows &r, cursor &v) {
    uint32_t values_empty = empty_of_lane<CLUSTER>(at.values_empty(v.stage));
    dfx_sm90_wait(at.values_full(v.stage), v.parity);
    dfx_sm90_hold(r.o);
    dfx_sm90_products_begin();
    multiply_values(r, at.values(v.stage));
    dfx_sm90_products_wait<0>();
    dfx_sm90_hold(r.o);
    release_to_all<CLUSTER>(values_empty);
    v.next();
}

/* The threads of one group. */
template <int CLUSTER>
__device__ static void consume(const places &at, const attention &a, int group) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS, CLUSTER);
    cursor k = {0, 0}, v = {0, 0};
    uint32_t queries_parity = 0;
    if (group == GROUPS - 1)
        pass_turn(group);
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        rows r;
        dfx_sm90_wait(at.queries_full(group), queries_parity);
        begin_rows<CLUSTER>(at, a, r, group, k);
#pragma unroll 1
        for (int i = 1; i < way.n_key_tiles; i++)
            advance<CLUSTER>(at, a, r, group, k, v);
        release(at.queries_empty(group));
        end_rows<CLUSTER>(at, r, v);
        store(a, r, way.query(tile) + group * ROWS, way.head(tile));
        queries_parity ^= 1;
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
    for (int i = 0; i < GROUPS; i++) {
        dfx_sm90_barrier_init(at.queries_full(i), 1);
        dfx_sm90_barrier_init(at.queries_empty(i), warps);
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

extern "C" bool dfx_cuda_attention_sm90_fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    bool aligned = true; /* as TMA and 16-byte stores want it */
    for (int slot = 0; slot <= DFX_ATTN_V; slot++)
        aligned = aligned && (uintptr_t)m[slot].ptr % 16 == 0 && m[slot].ld % 8 == 0;
    return cuda->sm == 90 && m[0].cols == (int64_t)call->p.n_heads * E && !m[DFX_ATTN_BIAS].ptr &&
           !call->p.causal && call->p.scale > 0 && m[0].rows >= LEAST_QUERIES && aligned &&
           is_in_build();
}

extern "C" dfx_status dfx_cuda_attention_sm90(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    CUtensorMap map_q, map_k, map_v;
    int cluster = cluster_of(cuda->n_multiprocessors, (int)q->rows, call->p.n_heads);
    int share = E / 64 / cluster; /* halves that a block fetches */
    DFX_TRY(dfx_cuda_map_heads(cuda, q, ROWS, E / 64, &map_q));
    DFX_TRY(dfx_cuda_map_heads(cuda, k, KEYS, share, &map_k));
    DFX_TRY(dfx_cuda_map_heads(cuda, v, KEYS, share, &map_v));
    attention a = {.y = m[0].ptr,
                   .y_scale = (const float *)m[DFX_ATTN_Y_SCALE].ptr,
                   .ldy = m[0].ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .n_heads = call->p.n_heads,
                   .unit = call->p.scale * LOG2E};
    dfx_cuda_note(cuda, "wgmma%s", cluster == 2 ? ", clusters of 2" : "");
    cudaError_t error =
        launch_clusters(cuda, cluster == 2 ? attend<2> : attend<1>, cluster, a.n_queries, a.n_heads,
                        SHARED_BYTES, map_q, map_k, map_v, a);
    return dfx_cuda_check(cuda, error, "attention");
}
