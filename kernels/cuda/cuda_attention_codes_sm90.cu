/* ATTENTION_CODES on Hopper, heads of 128. */
#include "kernels/cuda/cuda_attention_sm90.cuh"
#include "kernels/cuda/cuda_wgmma.cuh"

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/cuda_tensor_map.h"
}

#ifndef V_STAGES
#define V_STAGES 3
#endif
#ifndef V_SUM
#define V_SUM 0 /* 0: of codes as F16; 1: a product with ones */
#endif
#ifndef V_INIT
#define V_INIT 0 /* 0: magic; 1: I2F */
#endif
#ifndef V_BASE
#define V_BASE 88
#endif
#ifndef V_AGAIN
#define V_AGAIN 104
#endif
#ifndef V_RECENTER
#define V_RECENTER 0
#endif
#ifndef V_EXPECT
#define V_EXPECT 0
#endif
#ifndef V_FENCE
#define V_FENCE 0
#endif
#ifndef V_NOSUM
#define V_NOSUM 0
#endif
#ifndef V_NOSLOW
#define V_NOSLOW 0
#endif
#ifndef V_TURNS
#define V_TURNS 0
#endif

enum {
    HALF = 96, /* keys whose scores are in registers at a time */
    KEYS = 2 * HALF,
    STAGES = V_STAGES,
    TURNS = 2, /* of queries: those of the next tile are there before this one ends */
    VALUES_WIDE = 64, /* keys in a row of a tile of values */
    QUERIES_BYTES = ROWS * E,
    KEYS_BYTES = KEYS * E,
    VALUES_PART_BYTES = E * VALUES_WIDE,
    KEYS_OFF = TURNS * GROUPS * QUERIES_BYTES,
    VALUES_OFF = KEYS_OFF + STAGES * KEYS_BYTES,
    ONES_OFF = VALUES_OFF + STAGES * KEYS_BYTES,
    BARRIERS_OFF = ONES_OFF + 1024,
    SHARED_BYTES = BARRIERS_OFF + (4 * STAGES + 2 * TURNS * GROUPS) * 8,
    /* Bits of 1.5 * 2^23: added to an integer below 2^22 they are the bits of the float that is as much greater. */
    ZERO_SCORE = 0x4b400000,
};
/* Codes are the bits of subnormal F16. */
static const float CODE = 0x1p-24f;
static const float OCTAVE = 8, CODE_OF_ONE = 56, CODE_OF_TOP = 88;

/* Values of a head begin at head * E in each row of y. */
struct attention {
    bf16 *y;
    int64_t ldy;
    const float *q_scale;
    int64_t ld_q_scale;
    const float *center;
    int64_t ld_center;
    int n_queries, n_keys, n_heads;
    float scale;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef ring_cursor<STAGES> cursor;
typedef ring_cursor<TURNS> turn_cursor;

struct places {
    uint32_t base;
    __device__ uint32_t queries(int group, int turn) const {
        return base + (turn * GROUPS + group) * QUERIES_BYTES;
    }
    __device__ uint32_t keys(int stage) const { return base + KEYS_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t values(int stage) const { return base + VALUES_OFF + stage * KEYS_BYTES; }
    __device__ uint32_t ones() const { return base + ONES_OFF; }
    __device__ uint32_t barrier(int i) const { return base + BARRIERS_OFF + i * 8; }
    __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
    __device__ uint32_t keys_empty(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t values_full(int stage) const { return barrier(2 * STAGES + stage); }
    __device__ uint32_t values_empty(int stage) const { return barrier(3 * STAGES + stage); }
    __device__ uint32_t queries_full(int group, int turn) const {
        return barrier(4 * STAGES + turn * GROUPS + group);
    }
    __device__ uint32_t queries_empty(int group, int turn) const {
        return barrier(4 * STAGES + (TURNS + turn) * GROUPS + group);
    }
};

/* ---- The producer */

struct maps {
    const CUtensorMap *q, *k, *v;
};

__device__ static void fetch_queries(const places &at, const maps &m, const turn_cursor &turn, int query,
                                     int head) {
    for (int group = 0; group < GROUPS; group++) {
        uint32_t full = at.queries_full(group, turn.stage);
        dfx_barrier_wait(at.queries_empty(group, turn.stage), turn.parity);
        dfx_barrier_arrive_expecting(full, QUERIES_BYTES);
        dfx_tma_load(at.queries(group, turn.stage), m.q, full, 0, query + group * ROWS, head);
    }
}

/* One thread. All stages are empty at first, so it waits for the phase before the first. */
__device__ static void produce(const places &at, const attention &a, const maps &m) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS);
    cursor ring = {0, 1};
    turn_cursor turn = {0, 1};
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        int head = way.head(tile);
#pragma unroll 1
        for (int i = 0; i < way.n_key_tiles; i++) {
            uint32_t keys_full = at.keys_full(ring.stage), values_full = at.values_full(ring.stage);
            dfx_barrier_wait(at.keys_empty(ring.stage), ring.parity);
            dfx_barrier_arrive_expecting(keys_full, KEYS_BYTES);
            dfx_tma_load(at.keys(ring.stage), m.k, keys_full, 0, i * KEYS, head);
            if (i == 0)
                fetch_queries(at, m, turn, way.query(tile), head);
            dfx_barrier_wait(at.values_empty(ring.stage), ring.parity);
            dfx_barrier_arrive_expecting(values_full, KEYS_BYTES);
            for (int part = 0; part < KEYS / VALUES_WIDE; part++)
                dfx_tma_load(at.values(ring.stage) + part * VALUES_PART_BYTES, m.v, values_full,
                             i * KEYS + part * VALUES_WIDE, 0, head);
            ring.next();
        }
        turn.next();
    }
}

/* ---- A consumer */

typedef int32_t scores[HALF / 2];
typedef uint32_t weights[HALF / 32][4];

struct rows {
    float o[E / 2];
    float unit[2], lift[2], sum[2], fade[2];
    uint32_t most[2];
};

__device__ static float score(int32_t bits) {
#if V_INIT == 0
    return __int_as_float(bits);
#else
    return bits == (int32_t)0xff800000 ? -CUDART_INF_F : (float)bits;
#endif
}

__device__ static void hold(scores &s) {
#pragma unroll
    for (int i = 0; i < HALF / 2; i++)
        asm volatile("" : "+r"(s[i])::"memory");
}

/* Queues s = q k^T. */
__device__ static void multiply_keys(scores &s, uint32_t queries, uint32_t keys) {
    uint64_t q = dfx_sm90_operand(queries), k = dfx_sm90_operand(keys);
#if V_INIT == 0
#pragma unroll
    for (int i = 0; i < HALF / 2; i++)
        s[i] = ZERO_SCORE;
    hold(s);
#endif
    dfx_wgmma_fence();
#pragma unroll
    for (int e = 0; e < E / 32; e++)
        dfx_sm90_product(s, q + 2 * e, k + 2 * e, V_INIT == 0 || e > 0);
    dfx_wgmma_commit();
}

#if V_SUM == 1
__device__ static void product_with_ones(float (&d)[4], const uint32_t (&a)[4], uint64_t b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#endif

/* Queues o += p v. */
__device__ static void multiply_values(rows &r, const weights &p, float (&total)[4], uint32_t values, int half, uint32_t ones) {
#pragma unroll
    for (int i = 0; i < HALF / 8; i++)
        asm volatile("" : "+r"(const_cast<uint32_t &>(p[i / 4][i % 4]))::"memory");
    dfx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < HALF / 32; k++) {
        int at = half * HALF + 32 * k;
        dfx_sm90_product_of_codes(
            r.o, p[k],
            dfx_sm90_operand_64(values + at / VALUES_WIDE * VALUES_PART_BYTES) +
                at % VALUES_WIDE / 16);
    }
#if V_SUM == 1
#pragma unroll
    for (int k = 0; k < HALF / 32; k++)
        product_with_ones(total, p[k], dfx_sm90_operand_64(ones), k > 0);
#endif
    dfx_wgmma_commit();
}

/* Keys from n_there on get no weight. */
__device__ static void mask(scores &s, int n_there) {
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < HALF / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + column + i % 2 >= n_there)
                s[4 * n + i] = (int32_t)0xff800000;
}

__device__ static uint32_t code_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ static uint32_t add_pairs(uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/* Two codes for each of 24 places of a thread's rows; and what is the greatest so far. */
__device__ static void encode(uint32_t (&pairs)[2][HALF / 8], const scores &s, const rows &r) {
#pragma unroll
    for (int n = 0; n < HALF / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            pairs[half][n] =
                code_pair(fmaf(score(s[4 * n + 2 * half]), r.unit[half], r.lift[half]),
                          fmaf(score(s[4 * n + 2 * half + 1]), r.unit[half], r.lift[half]));
}

__device__ static void find_most(const uint32_t (&pairs)[2][HALF / 8], rows &r) {
#pragma unroll
    for (int n = 0; n < HALF / 8; n += 2)
#pragma unroll
        for (int half = 0; half < 2; half++)
            r.most[half] = __vimax3_u16x2(r.most[half], pairs[half][n], pairs[half][n + 1]);
}

/* Sums of the pairs' weights. */
__device__ static float sum_of(const uint32_t (&pairs)[HALF / 8]) {
    uint32_t sums[HALF / 16];
#pragma unroll
    for (int n = 0; n < HALF / 16; n++)
        sums[n] = add_pairs(pairs[2 * n] << 7, pairs[2 * n + 1] << 7);
    sums[0] = add_pairs(sums[0], sums[1]);
    sums[2] = add_pairs(sums[2], sums[3]);
    sums[4] = add_pairs(sums[4], sums[5]);
    sums[0] = add_pairs(add_pairs(sums[0], sums[2]), sums[4]);
    float2 sum = __half22float2(*(const __half2 *)&sums[0]);
    return sum.x + sum.y;
}

/* The greatest codes of the thread's two rows. */
__device__ static void find_tops(float (&tops)[2], const rows &r) {
    uint32_t both = __vmaxu2(__byte_perm(r.most[0], r.most[1], 0x5410),
                             __byte_perm(r.most[0], r.most[1], 0x7632));
    both = __vmaxu2(both, __shfl_xor_sync(0xffffffff, both, 1));
    both = __vmaxu2(both, __shfl_xor_sync(0xffffffff, both, 2));
    float2 top = __half22float2(*(const __half2 *)&both);
    tops[0] = top.x;
    tops[1] = top.y;
}

/* All weights so far times 2^-octaves. */
__device__ static void lower(rows &r, int half, float octaves, float top) {
    float fade = exp2_fast(-octaves);
    r.lift[half] -= octaves * (OCTAVE * CODE);
    r.sum[half] *= fade;
    r.fade[half] *= fade;
    r.most[half] = __half_as_ushort(__float2half_rn(fmaxf(top - octaves * (OCTAVE * CODE), 0)));
}

/* Scores so great that codes overflow. */
__device__ static void lower_all(rows &r) {
    float tops[2];
    find_tops(tops, r);
#pragma unroll
    for (int half = 0; half < 2; half++)
        lower(r, half, ceilf(fmaxf(tops[half] - V_AGAIN * CODE, 0) * (1 / (OCTAVE * CODE))), tops[half]);
}

__device__ static void lift_all(rows &r) {
    float tops[2];
    find_tops(tops, r);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.fade[half] = 1;
        lower(r, half, -floorf(fmaxf(108 * CODE - tops[half], 0) * (1 / (OCTAVE * CODE))), tops[half]);
    }
}

/* The first scores of a row. */
__device__ static void find_lift(const scores &s, rows &r) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float a = -CUDART_INF_F, b = a;
#pragma unroll
        for (int n = 0; n < HALF / 8; n++) {
            a = fmaxf(a, score(s[4 * n + 2 * half]));
            b = fmaxf(b, score(s[4 * n + 2 * half + 1]));
        }
        a = fmaxf(a, b);
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 1));
        a = fmaxf(a, __shfl_xor_sync(0xffffffff, a, 2));
        r.lift[half] = fmaf(-a, r.unit[half], V_BASE * CODE);
    }
}

__device__ static void fade_outputs(rows &r) {
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] *= r.fade[i / 2 % 2];
}

__device__ static bool overflows(const rows &r) {
    return __any_sync(0xffffffff,
                      ((r.most[0] + 0x00010001) | (r.most[1] + 0x00010001)) & 0xff80ff80);
}

/* s to weights. */
__device__ static bool soften(const scores &s, rows &r, weights &p) {
    uint32_t pairs[2][HALF / 8];
    bool lowered = false;
    encode(pairs, s, r);
    find_most(pairs, r);
#if V_EXPECT
    if (__builtin_expect(overflows(r), 0)) {
#else
    if (overflows(r)) {
#endif
        lowered = true;
        r.fade[0] = r.fade[1] = 1;
        do {
            lower_all(r);
            encode(pairs, s, r);
            find_most(pairs, r);
        } while (overflows(r));
    }
#pragma unroll
    for (int k = 0; k < HALF / 32; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = __byte_perm(pairs[i % 2][4 * k + i / 2 * 2], pairs[i % 2][4 * k + i / 2 * 2 + 1],
                                  0x6420);
#if V_SUM == 0
    r.sum[0] += sum_of(pairs[0]);
    r.sum[1] += sum_of(pairs[1]);
#endif
    return lowered;
}

/* What scores of a thread's rows are multiplied with. */
struct row_units {
    float of[2];
};

__device__ static row_units find_units(const attention &a, const course &way, int tile, int group) {
    int query = way.query(tile) + group * ROWS + row_of_thread(), head = way.head(tile);
    float unit = a.scale * LOG2E * OCTAVE *
                 a.center[DFX_CENTER_KEY_SCALE * a.ld_center + (int64_t)head * E];
    row_units units;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = min(query + 8 * half, a.n_queries - 1);
        units.of[half] = unit * a.q_scale[row * a.ld_q_scale + head];
    }
    return units;
}

__device__ static void begin_rows(rows &r, const row_units &units) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.unit[half] = fminf(fmaxf(units.of[half], 0x1p-100f), 4) * CODE;
        r.sum[half] = 0 * units.of[half];
        r.most[half] = 0;
    }
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        r.o[i] = 0;
}

__device__ static void take_total(rows &r, float (&total)[4]) {
#if V_SUM == 1
    r.sum[0] += total[0];
    r.sum[1] += total[2];
#endif
}

#define ISSUE
#if V_TURNS
#undef ISSUE
#define ISSUE dfx_named_sync(threadIdx.x / GROUP, GROUPS * GROUP)
#define ISSUED dfx_named_arrive(3 - threadIdx.x / GROUP, GROUPS * GROUP)
#elif V_FENCE == 1
#define ISSUED dfx_named_sync(3 + threadIdx.x / GROUP, GROUP)
#elif V_FENCE == 2
#define ISSUED asm volatile("nanosleep.u32 0;" ::: "memory")
#else
#define ISSUED
#endif
/* Behind the first half of a tile's keys: their weights, while there are made scores of the second half and the product with
 * the values before. */
template <bool FIRST>
__device__ static void advance_first(const places &at, rows &r, uint32_t queries, cursor &k, cursor &v,
                                     scores &s0, scores &s1, weights &p0, weights &p1,
                                     float (&total)[4]) {
    ISSUE;
    multiply_keys(s1, queries, at.keys(k.stage) + HALF * E);
    if (!FIRST)
        multiply_values(r, p1, total, at.values(v.stage), 1, at.ones());
    ISSUED;
    if (FIRST)
        find_lift(s0, r);
    bool lowered = soften(s0, r, p0);
    dfx_wgmma_wait<0>();
    hold(s1);
    dfx_hold(r.o);
    release(at.keys_empty(k.stage));
    k.next();
    if (!FIRST) {
        release(at.values_empty(v.stage));
        v.next();
        take_total(r, total);
    }
    if (lowered)
        fade_outputs(r);
}

__device__ static void advance_second(const places &at, rows &r, uint32_t queries, cursor &k, cursor &v,
                                      scores &s0, scores &s1, weights &p0, weights &p1,
                                      float (&total)[4], bool more) {
    if (more)
        dfx_barrier_wait(at.keys_full(k.stage), k.parity);
    ISSUE;
    multiply_keys(s0, queries, at.keys(k.stage));
    dfx_barrier_wait(at.values_full(v.stage), v.parity);
    multiply_values(r, p0, total, at.values(v.stage), 0, at.ones());
    ISSUED;
    bool lowered = soften(s1, r, p1);
    dfx_wgmma_wait<0>();
    hold(s0);
    dfx_hold(r.o);
    take_total(r, total);
    if (lowered)
        fade_outputs(r);
}

__device__ static void store(const attention &a, const rows &r, int query, int head) {
    int column = head * E + (int)threadIdx.x % 4 * 2;
    const float *mean = a.center + DFX_CENTER_VALUE * a.ld_center + column,
                *scale = a.center + DFX_CENTER_VALUE_SCALE * a.ld_center + column;
    float part[2];
    query += row_of_thread();
#pragma unroll
    for (int half = 0; half < 2; half++) {
#if V_SUM == 0
        float sum = sum_of_row(r.sum[half]) * 256;
#else
        float sum = r.sum[half];
#endif
        part[half] = 1 / sum;
    }
    bf16 *y = a.y + query * a.ldy + head * E + (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int n = 0; n < E / 8; n += 4) {
        uint32_t w[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 add = *(const float2 *)(mean + (n + i) * 8),
                   mul = *(const float2 *)(scale + (n + i) * 8);
#pragma unroll
            for (int half = 0; half < 2; half++)
                w[half][i] = pack(fmaf(r.o[4 * (n + i) + 2 * half] * part[half], mul.x, add.x),
                                  fmaf(r.o[4 * (n + i) + 2 * half + 1] * part[half], mul.y, add.y));
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            gather_chunk(w[half]);
            if (query + 8 * half < a.n_queries)
                *(uint4 *)(y + 8 * half * a.ldy + n * 8) =
                    make_uint4(w[half][0], w[half][1], w[half][2], w[half][3]);
        }
    }
}

/* The threads of one group. */
__device__ static void consume(const places &at, const attention &a, int group) {
    const course way(a.n_queries, a.n_keys, a.n_heads, KEYS);
    cursor k = {0, 0}, v = {0, 0};
    turn_cursor turn = {0, 0};
    int n_last = a.n_keys - (way.n_key_tiles - 1) * KEYS;
    scores s0, s1;
    weights p0, p1;
    float total[4] = {0, 0, 0, 0};
    row_units units = find_units(a, way, blockIdx.x, group);
    dfx_barrier_wait(at.queries_full(group, turn.stage), turn.parity);
    dfx_barrier_wait(at.keys_full(k.stage), k.parity);
    multiply_keys(s0, at.queries(group, turn.stage), at.keys(k.stage));
    dfx_wgmma_wait<0>();
    hold(s0);
#if V_TURNS
    if (group == GROUPS - 1)
        ISSUED;
#endif
#pragma unroll 1
    for (int tile = (int)blockIdx.x; tile < way.n_tiles; tile += (int)gridDim.x) {
        rows r;
        int next_tile = tile + (int)gridDim.x;
        bool more = next_tile < way.n_tiles;
        uint32_t queries = at.queries(group, turn.stage);
        begin_rows(r, units);
        units = find_units(a, way, more ? next_tile : tile, group);
        if (way.n_key_tiles == 1)
            mask(s0, n_last);
        advance_first<true>(at, r, queries, k, v, s0, s1, p0, p1, total);
#pragma unroll 1
        for (int i = 1; i < way.n_key_tiles; i++) {
            if (V_RECENTER && i == V_RECENTER) {
                lift_all(r);
                fade_outputs(r);
            }
            advance_second(at, r, queries, k, v, s0, s1, p0, p1, total, true);
            if (i == way.n_key_tiles - 1)
                mask(s0, n_last);
            advance_first<false>(at, r, queries, k, v, s0, s1, p0, p1, total);
        }
        release(at.queries_empty(group, turn.stage));
        mask(s1, n_last - HALF);
        if (more) {
            turn.next();
            dfx_barrier_wait(at.queries_full(group, turn.stage), turn.parity);
        }
        advance_second(at, r, at.queries(group, turn.stage), k, v, s0, s1, p0, p1, total, more);
        multiply_values(r, p1, total, at.values(v.stage), 1, at.ones());
        dfx_wgmma_wait<0>();
        dfx_hold(r.o);
        release(at.values_empty(v.stage));
        v.next();
        take_total(r, total);
        store(a, r, way.query(tile) + group * ROWS, way.head(tile));
    }
}

__device__ static void make_barriers(const places &at) {
    const int warps = GROUP / 32;
    for (int i = 0; i < STAGES; i++) {
        dfx_barrier_init(at.keys_full(i), 1);
        dfx_barrier_init(at.keys_empty(i), GROUPS * warps);
        dfx_barrier_init(at.values_full(i), 1);
        dfx_barrier_init(at.values_empty(i), GROUPS * warps);
    }
    for (int i = 0; i < TURNS * GROUPS; i++) {
        dfx_barrier_init(at.queries_full(i % GROUPS, i / GROUPS), 1);
        dfx_barrier_init(at.queries_empty(i % GROUPS, i / GROUPS), warps);
    }
    dfx_barrier_publish();
}

enum { MOST_THREADS = THREADS };
#else
enum { MOST_THREADS = 32 }; /* of the empty kernel: a launch of THREADS fails */
#endif

__global__ static void __launch_bounds__(MOST_THREADS, 1)
    attend(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
           const __grid_constant__ CUtensorMap map_v, const attention a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const places at = {(uint32_t)__cvta_generic_to_shared(shared)};
    int group = __shfl_sync(0xffffffff, (int)threadIdx.x / GROUP, 0); /* known to be a warp's */
    if (threadIdx.x == 0)
        make_barriers(at);
#if V_SUM == 1
    ((uint16_t *)(shared + ONES_OFF))[threadIdx.x] = 0x3838;
    dfx_shared_publish();
#endif
    __syncthreads();
    if (group == 0) {
        dfx_registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce(at, a, {&map_q, &map_k, &map_v});
    } else {
        dfx_registers_take<CONSUMER_REGISTERS>();
        consume(at, a, group - 1);
    }
#endif
}

/* ---- Launcher */

static bool is_in_build() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, attend) == cudaSuccess &&
           attributes.maxThreadsPerBlock >= THREADS;
}

extern "C" bool dfx_cuda_attention_codes_fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    bool aligned = (uintptr_t)m[0].ptr % 16 == 0 && m[0].ld % 8 == 0;
    for (int slot = DFX_ATTN_Q; slot <= DFX_ATTN_V; slot++)
        aligned = aligned && (uintptr_t)m[slot].ptr % 16 == 0 && m[slot].ld % 16 == 0;
    aligned = aligned && (uintptr_t)m[DFX_ATTN_CENTER].ptr % 8 == 0 && m[DFX_ATTN_CENTER].ld % 2 == 0;
    return cuda->sm == 90 && m[0].cols == (int64_t)call->p.n_heads * E && call->p.scale > 0 &&
           m[0].rows >= LEAST_QUERIES && m[DFX_ATTN_K].rows >= LEAST_QUERIES && aligned &&
           is_in_build();
}

/* A tensor of heads: `wide` bytes by `high` rows of one head are a tile. */
static dfx_status describe(const dfx_cuda *cuda, const dfx_mat *m, const cuuint64_t size[3],
                           cuuint64_t head_stride, int wide, int high, CUtensorMap *out) {
    dfx_cuda_encode_fn encode;
    DFX_TRY(dfx_cuda_find_encode(cuda, "attention_codes", &encode));
    cuuint64_t stride_bytes[2] = {(cuuint64_t)m->ld, head_stride};
    cuuint32_t box[3] = {(cuuint32_t)wide, (cuuint32_t)high, 1}, step[3] = {1, 1, 1};
    CUresult result =
        encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, m->ptr, size, stride_bytes, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE,
               wide == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return dfx_fail(cuda->base.sink, DFX_E_DEVICE,
                        "cuda: attention_codes: the driver takes no tensor of %lld rows, %lld "
                        "apart, for TMA (error %d)",
                        (long long)m->rows, (long long)m->ld, (int)result);
    return DFX_OK;
}

extern "C" dfx_status dfx_cuda_attention_codes(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V],
                  *q_scale = &m[DFX_ATTN_Q_SCALE], *center = &m[DFX_ATTN_CENTER];
    cuuint64_t n_heads = (cuuint64_t)call->p.n_heads;
    const cuuint64_t q_size[3] = {E, (cuuint64_t)q->rows, n_heads},
                     k_size[3] = {E, (cuuint64_t)k->rows, n_heads},
                     v_size[3] = {(cuuint64_t)v->cols, E, n_heads};
    CUtensorMap map_q, map_k, map_v;
    DFX_TRY(describe(cuda, q, q_size, E, E, ROWS, &map_q));
    DFX_TRY(describe(cuda, k, k_size, E, E, KEYS, &map_k));
    DFX_TRY(describe(cuda, v, v_size, E * (cuuint64_t)v->ld, VALUES_WIDE, E, &map_v));
    attention a = {.y = (bf16 *)m[0].ptr,
                   .ldy = m[0].ld,
                   .q_scale = (const float *)q_scale->ptr,
                   .ld_q_scale = q_scale->ld,
                   .center = (const float *)center->ptr,
                   .ld_center = center->ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .n_heads = call->p.n_heads,
                   .scale = call->p.scale};
    cudaError_t error =
        cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (error == cudaSuccess) {
        int n_tiles = (a.n_queries + QUERIES - 1) / QUERIES * a.n_heads;
        int n_blocks = n_tiles < cuda->n_multiprocessors ? n_tiles : cuda->n_multiprocessors;
        attend<<<n_blocks, THREADS, SHARED_BYTES, cuda->compute>>>(map_q, map_k, map_v, a);
        error = cudaGetLastError();
    }
    return dfx_cuda_check(cuda, error, "attention_codes");
}
