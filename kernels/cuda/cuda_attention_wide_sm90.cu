/* ATTENTION on Hopper, heads of 512 (a VAE's) without bias or causal mask: y = softmax(scale q k^T) v, exact, no N^2 buffer.
 *   Bound: arithmetic, 4 Tq Tk D operations. Blocks pass over the keys in step, so that keys and values, 128 MiB of 65536
 *   tokens, come from the second level cache nearly always.
 *
 * A block has 64 queries, whose outputs (64 x 512 in f32) are half of a multiprocessor's registers: 128 of each thread of two
 * groups of four warps. So the work is cut by kind. One group makes scores and, of them, weights: BF16, in shared memory, with
 * what is to fade sums of earlier tiles. Two groups multiply the weights with half of the values' columns each and do nothing
 * else. Two threads of a fourth group copy by TMA: keys as stages of 128 of their 512 columns, values as stages of 16 rows.
 *
 * What keeps the tensor cores busy is order: weights are announced only when the scores of the next keys are all but made.
 * Announced when they are there, they would be multiplied beside those scores, which end later for that, and nothing would go
 * along with the exponentials (kernels/PERF.md).
 *   Exponentials are relative to a base, which rises to the greatest score so far when one exceeds it by a factor of more than
 *   2^SLACK: probabilities in BF16 have the same relative error at any scale, sums are f32, and the base cancels in the end. So
 *   outputs are seldom faded.
 *   Keys are visited from the last tile to the first: only the first visited may be partly masked, and it has a key.
 *
 * Order of the sums depends on shapes alone: the same bits each run. What lies beyond the operands' rows or columns is not
 * read. Code for other targets than sm_90a is an empty kernel, which fits() finds. */
#include "kernels/cuda/cuda_attention_rows.cuh"

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/cuda_tensor_map.h"
}

enum {
    E = 512,
    KEYS = 64,   /* a tile */
    SUMMERS = 2, /* groups that multiply weights with values */
    COLUMNS = E / SUMMERS,
    THREADS = (2 + SUMMERS) * GROUP,
    /* Registers a thread after the start: 65536 of a multiprocessor are 128 for each of 512. */
    PRODUCER_REGISTERS = 24,
    WEIGHER_REGISTERS = 136,
    SUMMER_REGISTERS = 176,
    /* Tiles in shared memory are blocks of 64 columns. */
    BLOCK = 64,
    BLOCKS = E / BLOCK,
    KEY_BLOCKS = 2,  /* in a stage of keys */
    VALUE_ROWS = 16, /* in a stage of values */
    KEY_PARTS = BLOCKS / KEY_BLOCKS,
    VALUE_PARTS = KEYS / VALUE_ROWS,
    STAGE_BYTES = KEY_BLOCKS * KEYS * BLOCK * 2,
    KEY_STAGES = 5,
    VALUE_STAGES = 4,
    TELL_AFTER = 3, /* stages of the next keys */
    SLACK = 8,      /* an exponent of two */
    /* Shared memory: queries | two tiles of weights | stages of keys | of values | two fades of each row, its share | barriers. */
    QUERY_BLOCK_BYTES = ROWS * BLOCK * 2,
    WEIGHTS_BYTES = ROWS * KEYS * 2,
    WEIGHTS_OFF = BLOCKS * QUERY_BLOCK_BYTES,
    KEYS_OFF = WEIGHTS_OFF + 2 * WEIGHTS_BYTES,
    VALUES_OFF = KEYS_OFF + KEY_STAGES * STAGE_BYTES,
    FADES_OFF = VALUES_OFF + VALUE_STAGES * STAGE_BYTES,
    BARRIERS_OFF = FADES_OFF + 3 * ROWS * 4,
    SHARED_BYTES = BARRIERS_OFF + (2 * KEY_STAGES + 2 * VALUE_STAGES + 6) * 8,
};
static_assert(STAGE_BYTES == VALUE_ROWS * E * 2, "stages of keys and of values are of one size");

/* Values of a head begin at head * E in each row of y. */
struct attention {
    bf16 *y;
    int64_t ldy;
    int n_queries, n_keys;
    float unit; /* scores times this are exponents of two */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Where things are */

/* Addresses in shared memory. A barrier `full` ends its phase when what it tells of is there, `empty` when every warp that reads
 * it has. */
struct places {
    uint32_t base;
    __device__ uint32_t queries() const { return base; }
    __device__ uint32_t weights(int i) const { return base + WEIGHTS_OFF + i * WEIGHTS_BYTES; }
    __device__ uint32_t keys(int stage) const { return base + KEYS_OFF + stage * STAGE_BYTES; }
    __device__ uint32_t values(int stage) const { return base + VALUES_OFF + stage * STAGE_BYTES; }
    /* Of the first row; with the weights of the same index. */
    __device__ uint32_t fades(int i) const { return base + FADES_OFF + i * ROWS * 4; }
    __device__ uint32_t shares() const { return fades(2); }
    __device__ uint32_t barrier(int i) const { return base + BARRIERS_OFF + i * 8; }
    __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
    __device__ uint32_t keys_empty(int stage) const { return barrier(KEY_STAGES + stage); }
    __device__ uint32_t values_full(int stage) const { return barrier(2 * KEY_STAGES + stage); }
    __device__ uint32_t values_empty(int stage) const {
        return barrier(2 * KEY_STAGES + VALUE_STAGES + stage);
    }
    __device__ uint32_t other(int i) const {
        return barrier(2 * KEY_STAGES + 2 * VALUE_STAGES + i);
    }
    __device__ uint32_t weights_full(int i) const { return other(i); }
    __device__ uint32_t weights_empty(int i) const { return other(2 + i); }
    __device__ uint32_t queries_full() const { return other(4); }
    __device__ uint32_t shares_full() const { return other(5); }
};

typedef dfx_sm90_ring_place<KEY_STAGES> key_cursor;
typedef dfx_sm90_ring_place<VALUE_STAGES> value_cursor;
typedef dfx_sm90_ring_place<2> weight_cursor;

__device__ static int n_tiles_of(const attention &a) {
    return (a.n_keys + KEYS - 1) / KEYS;
}

/* ---- The producers: a thread each. All stages are empty at first, so they wait for the phase before the first. */

__device__ static void fetch_keys(const places &at, const attention &a, const CUtensorMap *q,
                                  const CUtensorMap *k, int query, int head) {
    key_cursor ring = {0, 1};
    dfx_sm90_arrive_expect(at.queries_full(), BLOCKS * QUERY_BLOCK_BYTES);
    dfx_sm90_load(at.queries(), q, at.queries_full(), 0, query, head * BLOCKS);
    for (int tile = n_tiles_of(a) - 1; tile >= 0; tile--)
#pragma unroll 1
        for (int part = 0; part < KEY_PARTS; part++) {
            uint32_t full = at.keys_full(ring.stage);
            dfx_sm90_wait(at.keys_empty(ring.stage), ring.parity);
            dfx_sm90_arrive_expect(full, STAGE_BYTES);
            dfx_sm90_load(at.keys(ring.stage), k, full, 0, tile * KEYS,
                          head * BLOCKS + part * KEY_BLOCKS);
            ring.next();
        }
}

__device__ static void fetch_values(const places &at, const attention &a, const CUtensorMap *v,
                                    int head) {
    value_cursor ring = {0, 1};
    for (int tile = n_tiles_of(a) - 1; tile >= 0; tile--)
#pragma unroll 1
        for (int part = 0; part < VALUE_PARTS; part++) {
            uint32_t full = at.values_full(ring.stage);
            dfx_sm90_wait(at.values_empty(ring.stage), ring.parity);
            dfx_sm90_arrive_expect(full, STAGE_BYTES);
            dfx_sm90_load(at.values(ring.stage), v, full, 0, tile * KEYS + part * VALUE_ROWS,
                          head * BLOCKS);
            ring.next();
        }
}

/* ---- The group that weighs */

/* Of a thread. Of each of its two rows: what exponentials are relative to; the lane's part of their sum; what is to fade what
 * was summed before. */
struct scores {
    float s[KEYS / 2];
    float base[2], sum[2], fade[2];
};

/* s = q k^T. Meanwhile, the weights before are told of at `tell`; 0: there are none. */
__device__ static void multiply_keys(const places &at, scores &r, key_cursor &ring, uint32_t tell) {
    uint64_t q = dfx_sm90_tile(at.queries(), 0);
    int last = 0;
#pragma unroll
    for (int part = 0; part < KEY_PARTS; part++) {
        dfx_sm90_wait(at.keys_full(ring.stage), ring.parity);
        uint64_t k = dfx_sm90_tile(at.keys(ring.stage), 0);
        dfx_sm90_products_begin();
#pragma unroll
        for (int i = 0; i < KEY_BLOCKS * 4; i++) {
            int block = part * KEY_BLOCKS + i / 4;
            dfx_sm90_product_bf16(r.s, dfx_sm90_later(q, block * QUERY_BLOCK_BYTES + i % 4 * 32),
                                  dfx_sm90_later(k, i / 4 * KEYS * BLOCK * 2 + i % 4 * 32),
                                  part + i > 0);
        }
        dfx_sm90_products_commit();
        if (part > 0) {
            dfx_sm90_products_wait<1>();
            release(at.keys_empty(last));
        }
        last = ring.stage;
        ring.next();
        if (part + 1 == TELL_AFTER && tell)
            release(tell);
    }
    dfx_sm90_products_wait<0>();
    dfx_sm90_hold(r.s);
    release(at.keys_empty(last));
}

/* Keys from n_there on get no weight. */
__device__ static void mask(scores &r, int n_there) {
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + column + i % 2 >= n_there)
                r.s[4 * n + i] = -CUDART_INF_F;
}

/* Raises the bases of the warp's rows if a score wants one raised. All rows see the first key, so no base is an infinity then. */
__device__ static void rise(scores &r, float unit) {
    float top[2];
    bool rises = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float a = r.s[2 * half], b = r.s[2 * half + 1]; /* two chains, each half as long */
#pragma unroll
        for (int n = 1; n < KEYS / 8; n++) {
            a = fmaxf(a, r.s[4 * n + 2 * half]);
            b = fmaxf(b, r.s[4 * n + 2 * half + 1]);
        }
        top[half] = fmaxf(a, b);
        rises = rises || (top[half] - r.base[half]) * unit > SLACK;
        r.fade[half] = 1;
    }
    if (!__any_sync(0xffffffff, rises))
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float base = fmaxf(r.base[half], top[half]);
        base = fmaxf(base, __shfl_xor_sync(0xffffffff, base, 1));
        base = fmaxf(base, __shfl_xor_sync(0xffffffff, base, 2));
        r.fade[half] = exp2_fast((r.base[half] - base) * unit);
        r.base[half] = base;
        r.sum[half] *= r.fade[half];
    }
}

/* Weights exp2(unit (s - base)), two a word: those of a row that are adjacent. */
__device__ static void soften(scores &r, uint32_t (&weights)[KEYS / 4], float unit) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float down = -r.base[half] * unit, even = 0, odd = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            float x = exp2_fast(fmaf(r.s[4 * n + 2 * half], unit, down));
            float y = exp2_fast(fmaf(r.s[4 * n + 2 * half + 1], unit, down));
            even += x;
            odd += y;
            weights[2 * n + half] = pack(x, y);
        }
        r.sum[half] += even + odd;
    }
}

/* A float of each of the 64 rows to `to`. */
__device__ static void store_rows(uint32_t to, float first, float second) {
    int i = (int)threadIdx.x % 4;
    if (i < 2)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (row_of_thread() + i * 8) * 4),
                     "f"(i ? second : first)
                     : "memory");
}

__device__ static float load_row(uint32_t from, int row) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from + row * 4) : "memory");
    return x;
}

/* Where this lane's row of four fragments is: 16 rows of the warp, 16-byte chunks `chunk` and the next of the tile's rows. */
__device__ static uint32_t fragment_row(uint32_t tile, int chunk) {
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % GROUP / 32 * 16 + lane % 16;
    return tile + row * 128 + ((chunk + lane / 16) ^ row % 8) * 16;
}

__device__ static void store_weights(uint32_t tile, const uint32_t (&weights)[KEYS / 4]) {
#pragma unroll
    for (int chunk = 0; chunk < KEYS / 8; chunk += 2) {
        uint32_t four[4] = {weights[2 * chunk], weights[2 * chunk + 1], weights[2 * chunk + 2],
                            weights[2 * chunk + 3]};
        dfx_sm90_store_fragments(fragment_row(tile, chunk), four);
    }
}

__device__ static void weigh(const places &at, const attention &a) {
    int n_tiles = n_tiles_of(a);
    key_cursor ring = {0, 0};
    weight_cursor out = {0, 1};
    scores r;
    r.base[0] = r.base[1] = -CUDART_INF_F;
    r.sum[0] = r.sum[1] = 0;
    uint32_t tell = 0;
    dfx_sm90_wait(at.queries_full(), 0);
#pragma unroll 1
    for (int i = 0; i < n_tiles; i++) {
        uint32_t weights[KEYS / 4];
        multiply_keys(at, r, ring, tell);
        if (i == 0 && a.n_keys % KEYS)
            mask(r, a.n_keys % KEYS);
        rise(r, a.unit);
        soften(r, weights, a.unit);
        dfx_sm90_wait(at.weights_empty(out.stage), out.parity);
        store_weights(at.weights(out.stage), weights);
        store_rows(at.fades(out.stage), r.fade[0], r.fade[1]);
        __syncwarp();
        tell = at.weights_full(out.stage);
        out.next();
    }
    release(tell);
    store_rows(at.shares(), 1 / sum_of_row(r.sum[0]), 1 / sum_of_row(r.sum[1]));
    __syncwarp();
    release(at.shares_full());
}

/* ---- The groups that sum */

/* Of a thread: its rows of COLUMNS outputs, as two products have them. */
struct outputs {
    float o[2][COLUMNS / 4];
};

__device__ static void hold(outputs &r) {
    dfx_sm90_hold(r.o[0]);
    dfx_sm90_hold(r.o[1]);
}

/* Where nothing fades, which is nearly everywhere, nothing is multiplied. */
__device__ static void fade_outputs(outputs &r, float first, float second) {
    if (!__any_sync(0xffffffff, first != 1 || second != 1))
        return;
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
        r.o[0][i] *= i / 2 % 2 ? second : first;
        r.o[1][i] *= i / 2 % 2 ? second : first;
    }
}

/* o += weights v. Weights come to registers: wgmma would read them from shared memory again for each half of the columns. */
__device__ static void multiply_values(const places &at, outputs &r, uint32_t weights,
                                       value_cursor &ring, int group) {
    const uint32_t block_bytes = VALUE_ROWS * BLOCK * 2;
    int last = 0;
    hold(r);
#pragma unroll
    for (int part = 0; part < VALUE_PARTS; part++) {
        uint32_t w[4];
        dfx_sm90_wait(at.values_full(ring.stage), ring.parity);
        dfx_sm90_load_fragments(w, fragment_row(weights, part * 2));
        uint64_t v = dfx_sm90_tile(at.values(ring.stage) + group * COLUMNS / BLOCK * block_bytes,
                                   block_bytes);
        dfx_sm90_products_begin();
#pragma unroll
        for (int half = 0; half < 2; half++)
            dfx_sm90_product_of_rows(r.o[half], w[0], w[1], w[2], w[3],
                                     dfx_sm90_later(v, half * COLUMNS / 2 / BLOCK * block_bytes));
        dfx_sm90_products_commit();
        if (part > 0) {
            dfx_sm90_products_wait<1>();
            release(at.values_empty(last));
        }
        last = ring.stage;
        ring.next();
    }
    dfx_sm90_products_wait<0>();
    hold(r);
    release(at.values_empty(last));
}

/* o times the rows' shares to the rows of y from `query` on: 64 adjacent bytes of a row by four lanes. */
__device__ static void store(const places &at, const attention &a, const outputs &r, int query,
                             int column) {
    column += (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = row_of_thread() + half * 8;
        float share = load_row(at.shares(), row);
        bf16 *y = a.y + (query + row) * a.ldy + column;
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n += 4) {
            const float *o = &r.o[n / 16][n % 16 * 4 + 2 * half];
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = pack(o[4 * i] * share, o[4 * i + 1] * share);
            dfx_sm90_transpose(w);
            if (query + row < a.n_queries)
                *(uint4 *)(y + n * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

__device__ static void sum_up(const places &at, const attention &a, int query, int head,
                              int group) {
    int n_tiles = n_tiles_of(a), row = row_of_thread();
    value_cursor ring = {0, 0};
    weight_cursor in = {0, 0};
    outputs r;
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++)
        r.o[0][i] = r.o[1][i] = 0;
#pragma unroll 1
    for (int i = 0; i < n_tiles; i++) {
        dfx_sm90_wait(at.weights_full(in.stage), in.parity);
        fade_outputs(r, load_row(at.fades(in.stage), row), load_row(at.fades(in.stage), row + 8));
        multiply_values(at, r, at.weights(in.stage), ring, group);
        release(at.weights_empty(in.stage));
        in.next();
    }
    dfx_sm90_wait(at.shares_full(), 0);
    store(at, a, r, query, head * E + group * COLUMNS);
}

__device__ static void make_barriers(const places &at) {
    const int warps = GROUP / 32;
    for (int i = 0; i < KEY_STAGES; i++) {
        dfx_sm90_barrier_init(at.keys_full(i), 1);
        dfx_sm90_barrier_init(at.keys_empty(i), warps);
    }
    for (int i = 0; i < VALUE_STAGES; i++) {
        dfx_sm90_barrier_init(at.values_full(i), 1);
        dfx_sm90_barrier_init(at.values_empty(i), SUMMERS * warps);
    }
    for (int i = 0; i < 2; i++) {
        dfx_sm90_barrier_init(at.weights_full(i), warps);
        dfx_sm90_barrier_init(at.weights_empty(i), SUMMERS * warps);
    }
    dfx_sm90_barrier_init(at.queries_full(), 1);
    dfx_sm90_barrier_init(at.shares_full(), warps);
    dfx_sm90_barrier_publish();
}

enum { MOST_THREADS = THREADS };
#else
enum { MOST_THREADS = 32 }; /* of the empty kernel: a launch of THREADS fails */
#endif

/* Grid: tiles of queries, heads. */
__global__ static void __launch_bounds__(MOST_THREADS, 1)
    attend(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
           const __grid_constant__ CUtensorMap map_v, const attention a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const places at = {(uint32_t)__cvta_generic_to_shared(shared)};
    int group = __shfl_sync(0xffffffff, (int)threadIdx.x / GROUP, 0); /* known to be a warp's */
    int query = (int)blockIdx.x * ROWS, head = (int)blockIdx.y;
    if (threadIdx.x == 0)
        make_barriers(at);
    __syncthreads();
    if (group == 0) {
        dfx_sm90_registers_fewer<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            fetch_keys(at, a, &map_q, &map_k, query, head);
        else if (threadIdx.x == 32)
            fetch_values(at, a, &map_v, head);
    } else if (group == 1) {
        dfx_sm90_registers_more<WEIGHER_REGISTERS>();
        weigh(at, a);
    } else {
        dfx_sm90_registers_more<SUMMER_REGISTERS>();
        sum_up(at, a, query, head, group - 2);
    }
#endif
}

/* ---- Launcher */

static bool is_in_build() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, attend) == cudaSuccess &&
           attributes.maxThreadsPerBlock >= THREADS;
}

extern "C" bool dfx_cuda_attention_wide_fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    const int most_rows = 1 << 30, most_heads = 65535; /* rows of a last tile in int; grid */
    const dfx_mat *m = call->m;
    bool fits = true;
    for (int slot = 0; slot <= DFX_ATTN_V; slot++)
        fits = fits && m[slot].ld % 8 == 0 && m[slot].rows < most_rows;
    return fits && cuda->sm == 90 && m[0].cols == (int64_t)call->p.n_heads * E &&
           !m[DFX_ATTN_BIAS].rows && !call->p.causal && call->p.scale > 0 &&
           call->p.n_heads <= most_heads && is_in_build();
}

extern "C" dfx_status dfx_cuda_attention_wide(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    CUtensorMap map_q, map_k, map_v;
    DFX_TRY(dfx_cuda_map_heads(cuda, q, ROWS, BLOCKS, &map_q));
    DFX_TRY(dfx_cuda_map_heads(cuda, k, KEYS, KEY_BLOCKS, &map_k));
    DFX_TRY(dfx_cuda_map_heads(cuda, v, VALUE_ROWS, BLOCKS, &map_v));
    attention a = {.y = (bf16 *)m[0].ptr,
                   .ldy = m[0].ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .unit = call->p.scale * LOG2E};
    dfx_cuda_note(cuda, "wgmma");
    cudaError_t error =
        cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (error == cudaSuccess) {
        dim3 grid((unsigned)((a.n_queries + ROWS - 1) / ROWS), (unsigned)call->p.n_heads);
        attend<<<grid, THREADS, SHARED_BYTES, cuda->compute>>>(map_q, map_k, map_v, a);
        error = cudaGetLastError();
    }
    return dfx_cuda_check(cuda, error, "attention");
}
