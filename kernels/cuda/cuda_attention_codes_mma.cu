/* ATTENTION_CODES out of mma.sync, for every device from sm_80 on, heads of 128: y = softmax(scale q_scale key_scale q k^T) v *
 * value_scale + value_mean, q and k int8, v E4M3, no N^2 buffer. Hopper has its own: cuda_attention_codes_sm90.cu.
 *
 * Blocks, warps, tiles, and the base that seldom rises are those of cuda_attention.cu. What differs:
 *   Sums of int8 products begin at ZERO_SCORE, so that they are floats as they stand.
 *   Codes of values become F16 in registers, exactly but for a factor of 2^-8; a code that is no number counts as 480. Weights
 * are rounded to F16, so that a result is as near to the exact one as attention in 16 bits is.
 *   Where products with sums in F16 have twice the rate of those in F32 (GeForce), sums of one tile are in F16, and added up in
 * F32. A weight is at most 2^SLACK and a code at most 1.75, so 64 of their products are below 2^15, where F16 ends at 2^16. Each
 * sum is rounded four times, to 2^-12 of it.
 *   Values come transposed, within 16 tokens in the order in which a thread has weights (dfx_v_codes_place): four codes of a
 * word are of the thread's keys 2q, 2q + 1, 2q + 8, 2q + 9, which is what the right operand of m16n8k16 wants.
 *   Bound: arithmetic. Tensor cores, clocks of a quarter multiprocessor for 32 queries and 64 keys: scores 64 products m16n8k32,
 *   outputs 128 m16n8k16; 8 and 8 (sm_80, 87), 16 and 16 (sm_86, 89, 120; 32 with sums in F32). Attention in 16 bits has 256,
 *   of 8 and 32.
 *   Shared memory: queries 16 KiB, two stages of keys and values 32 KiB; two blocks share an SM of 100 KiB. */
#include <cuda_fp16.h>
#include <math_constants.h>

#include "kernels/cuda/cuda_mma.cuh"

extern "C" {
#include "core/sink.h"
#include "kernels/cuda/cuda_internal.h"
}

enum {
    E = 128, /* bytes of a row of queries or keys, too */
    WARPS = 4,
    THREADS = 32 * WARPS,
    KEYS = 64,
    CHUNK = 16,      /* codes, in 16 bytes */
    AHEAD = 2,       /* steps of 32 values by 16 keys, before one that uses what is loaded */
    TILE = KEYS * E, /* bytes */
    /* Bits of 1.5 * 2^23: an integer below 2^22 added to them gives the bits of a float that is as much greater. */
    ZERO_SCORE = 0x4b400000,
};
static const float MOST_WEIGHT = 0x1p12f;       /* see rise() */
static const float LOG2E = 1.4426950408889634f; /* exp(x) = exp2(x LOG2E), one instruction */
static const float CODE_UNIT = 0x1p8f;          /* of a code that has become F16 */

typedef __nv_bfloat16 bf16;

/* Values of a head begin at head * E in each row of y. */
struct attention {
    bf16 *y;
    const char *q, *k, *v;
    const float *q_scale, *center;
    int64_t ldy, ldq, ldk, ldv, ld_q_scale, ld_center;
    int n_queries, n_keys, n_places; /* of a column of v */
    float scale;
};

/* ---- Instructions */

/* c [16,8] += a [16,32] b [32,8] of int8. Lane i holds of c what it holds of other products. */
__device__ static void multiply_codes(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c [16,8] += a [16,16] b [16,8] of F16, c F32 or pairs of F16. */
__device__ static void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ static void multiply_add(uint32_t (&c)[2], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
        "{%0, %1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ static uint4 load_shared(uint32_t src) {
    uint4 word;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "r"(src)
                 : "memory");
    return word;
}

__device__ static float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ static uint32_t pack_f16(float low, float high) {
    __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

__device__ static uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* Codes 0 and 1, 2 and 3 of a word as F16. Each goes into the low byte of a half, below a byte of its sign; then exponent and
 * mantissa go where F16 has them, whose exponents are 8 greater for the same number. */
__device__ static void widen(uint32_t codes, uint32_t &low, uint32_t &high) {
    asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(low) : "r"(codes));
    asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(high) : "r"(codes));
    low = low << 7 & 0xbf80bf80;
    high = high << 7 & 0xbf80bf80;
}

/* threadIdx.x and blockIdx.y, found again where they are used: what follows from them shall not wait in registers for the next
 * tile. */
__device__ static uint32_t thread_now() {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ static uint32_t head_now() {
    uint32_t head;
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(head));
    return head;
}

/* ---- The kernel. M: groups of 16 rows a warp. F16_SUMS: of a tile's products with values. */

/* Byte offset of a chunk of a row of queries or keys: the same chunk of 8 adjacent rows lies in 8 places of the 128 bytes that
 * the banks span. */
__device__ static uint32_t place(int row, int chunk) {
    return (uint32_t)(row * E + (chunk ^ (row & 7)) * CHUNK);
}

/* The same of codes of values, a row being those of the tile's keys in one column. */
__device__ static uint32_t code_place(int col, int chunk) {
    return (uint32_t)(col * KEYS + (chunk ^ (col / 2 % 4)) * CHUNK);
}

/* Rows of 128 codes at once, and of columns of 64 values: multiples of 8. */
enum { FETCHED_ROWS = THREADS / (E / CHUNK), FETCHED_COLS = THREADS / (KEYS / CHUNK) };

/* Queries from `first` on to shared memory; zeros where there are none. */
template <int ROWS>
__device__ static void fetch_queries(uint32_t tile, const attention &a, int head, int first) {
    int row = (int)threadIdx.x / (E / CHUNK), chunk = (int)threadIdx.x % (E / CHUNK);
    const char *src = a.q + (first + row) * a.ldq + head * E + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < ROWS; i += FETCHED_ROWS)
        dfx_cuda_copy_async(tile + place(row + i, chunk), src + i * a.ldq,
                            first + row + i < a.n_queries);
}

/* Keys and codes of values from `key` on; zeros where there are none. */
__device__ static void fetch(uint32_t keys, uint32_t codes, const attention &a, int key) {
    uint32_t thread = thread_now(), head = head_now();
    int row = (int)(thread / (E / CHUNK)), chunk = (int)(thread % (E / CHUNK));
    int col = (int)(thread / (KEYS / CHUNK)), value = (int)(thread % (KEYS / CHUNK));
    const char *k = a.k + (key + row) * a.ldk + head * E + chunk * CHUNK;
    const char *v = a.v + (int64_t)(head * E + col) * a.ldv + key + value * CHUNK;
#pragma unroll
    for (int i = 0; i < KEYS; i += FETCHED_ROWS)
        dfx_cuda_copy_async(keys + place(row + i, chunk), k + i * a.ldk, key + row + i < a.n_keys);
#pragma unroll
    for (int i = 0; i < E; i += FETCHED_COLS)
        dfx_cuda_copy_async(codes + code_place(col + i, value), v + i * a.ldv,
                            key + value * CHUNK < a.n_places);
    dfx_cuda_end_group();
}

/* Scores of a lane, as bits of floats. */
template <int M> struct scores { int32_t of[M][KEYS / 8][4]; };

/* s = q k^T, of the warp's rows of `queries` and all of `keys`. */
template <int M>
__device__ static void multiply_keys(scores<M> &s, uint32_t queries, uint32_t keys) {
    constexpr int WIDE = KEYS / 16, STEPS = E / 32 * WIDE;
    uint32_t thread = thread_now();
    int lane = (int)(thread % 32), row = (int)(thread / 32) * M * 16 + lane % 16;
    queries += place(row, lane / 16);
    keys += place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    uint32_t a[2][M][4],
        b[AHEAD + 1][4]; /* of b, keys 0-7: values 0-15 and 16-31; keys 8-15: the same */
#pragma unroll
    for (int m = 0; m < M; m++)
        dfx_cuda_load_matrices(a[0][m], queries + m * 16 * E);
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        dfx_cuda_load_matrices(b[i], (keys ^ i / WIDE * 32) + i % WIDE * 16 * E);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s.of[m][n][i] = ZERO_SCORE;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int e = i / WIDE, n = i % WIDE, next = i + AHEAD, now = i % (AHEAD + 1);
        if (next < STEPS)
            dfx_cuda_load_matrices(b[next % (AHEAD + 1)],
                                   (keys ^ next / WIDE * 32) + next % WIDE * 16 * E);
        if (n == 0 && e + 1 < E / 32)
#pragma unroll
            for (int m = 0; m < M; m++)
                dfx_cuda_load_matrices(a[(e + 1) % 2][m], (queries ^ (e + 1) * 32) + m * 16 * E);
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply_codes(s.of[m][2 * n], a[e % 2][m], b[now][0], b[now][1]);
            multiply_codes(s.of[m][2 * n + 1], a[e % 2][m], b[now][2], b[now][3]);
        }
    }
}

/* Keys from n_there on, counted from a lane's first, get no weight. */
template <int M> __device__ static void mask(scores<M> &s, int n_there) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 >= n_there)
                    s.of[m][n][i] = __float_as_int(-CUDART_INF_F);
}

/* The rows that a lane shares with three others, i / 2 of m: the weight of score s is 2^(s unit + lift), sum is the lane's part
 * of their sum. */
template <int M> struct row_state { float unit[M][2], lift[M][2], sum[M][2]; };

/* octaves: of a step of score. Not a number: nor are the outputs. What is steeper than an octave a step is as good as that, and
 * keeps what is rounded off of lifts, which are up to 1.5 * 2^23 octaves, within an octave. */
template <int M>
__device__ static void begin_row(row_state<M> &rows, int m, int half, float octaves) {
    rows.unit[m][half] = fminf(fmaxf(octaves, 0x1p-100f), 1);
    rows.lift[m][half] = CUDART_INF_F;
    rows.sum[m][half] = 0 * octaves;
}

/* Left operands of products with values, 16 keys each. */
template <int M> struct weights { uint32_t of[KEYS / 16][M][4]; };

/* Of 16 rows. sums: of a lane's weights. */
template <int M>
__device__ static void make_weights(const scores<M> &s, const row_state<M> &rows, weights<M> &p,
                                    int m, float (&sums)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float unit = rows.unit[m][half], lift = rows.lift[m][half], even = 0, odd = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            float x = exp2_fast(fmaf(__int_as_float(s.of[m][n][2 * half]), unit, lift));
            float y = exp2_fast(fmaf(__int_as_float(s.of[m][n][2 * half + 1]), unit, lift));
            even += x;
            odd += y;
            p.of[n / 2][m][n % 2 * 2 + half] = pack_f16(x, y);
        }
        sums[half] = even + odd;
    }
}

/* Lowers lifts to where the greatest weight so far is 1, unless it is below; what was summed before fades. */
template <int M>
__device__ static void lower(const scores<M> &s, float (&o)[M][E / 8][4], row_state<M> &rows,
                             int m) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = -CUDART_INF_F;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            top = fmaxf(top, fmaxf(__int_as_float(s.of[m][n][2 * half]),
                                   __int_as_float(s.of[m][n][2 * half + 1])));
        float lift = fminf(rows.lift[m][half], -top * rows.unit[m][half]);
        lift = fminf(lift, __shfl_xor_sync(0xffffffff, lift, 1));
        lift = fminf(lift, __shfl_xor_sync(0xffffffff, lift, 2));
        float fade = exp2_fast(lift - rows.lift[m][half]);
        rows.lift[m][half] = lift;
        rows.sum[m][half] *= fade;
#pragma unroll
        for (int n = 0; n < E / 8; n++) {
            o[m][n][2 * half] *= fade;
            o[m][n][2 * half + 1] *= fade;
        }
    }
}

/* Lifts are lowered, in 16 rows, when a sum of a lane's weights shows that one may be too great. Up to there nothing is lost: F16
 * has 14 octaves below 1 at full precision, F32 holds the sums, and the lift cancels in the end. After the first keys this is
 * rare. All rows see the first key, so the lift is no infinity after the first tile. */
template <int M>
__device__ static void soften(const scores<M> &s, float (&o)[M][E / 8][4], row_state<M> &rows,
                              weights<M> &p) {
#pragma unroll
    for (int m = 0; m < M; m++) {
        float sums[2];
        make_weights<M>(s, rows, p, m, sums);
        if (!__all_sync(0xffffffff, sums[0] <= MOST_WEIGHT && sums[1] <= MOST_WEIGHT)) {
            lower<M>(s, o, rows, m);
            make_weights<M>(s, rows, p, m, sums);
        }
        rows.sum[m][0] += sums[0];
        rows.sum[m][1] += sums[1];
    }
}

/* Codes of the tile's values to F16. A thread has 16 keys of some columns. */
__device__ static void widen_values(uint32_t values, uint32_t codes) {
    uint32_t thread = thread_now();
    int col = (int)(thread / (KEYS / CHUNK)), chunk = (int)(thread % (KEYS / CHUNK));
#pragma unroll
    for (int i = 0; i < E; i += FETCHED_COLS) {
        uint4 four = load_shared(codes + code_place(col + i, chunk)), low, high;
        widen(four.x, low.x, high.x);
        widen(four.y, low.y, high.y);
        widen(four.z, low.z, high.z);
        widen(four.w, low.w, high.w);
        dfx_cuda_store_shared(values + place(col + i, 2 * chunk), low);
        dfx_cuda_store_shared(values + place(col + i, 2 * chunk + 1), high);
    }
}

/* Sums of 16 rows and 8 columns of one tile, and how they are added to all. */
template <bool F16_SUMS> struct tile_sums;

template <> struct tile_sums<true> {
    uint32_t of[2];
    __device__ void begin(const float (&)[4]) { of[0] = of[1] = 0; }
    __device__ void end(float (&o)[4]) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 pair = __half22float2(*(const __half2 *)&of[half]);
            o[2 * half] += pair.x;
            o[2 * half + 1] += pair.y;
        }
    }
};

template <> struct tile_sums<false> {
    float of[4];
    __device__ void begin(const float (&o)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            of[i] = o[i];
    }
    __device__ void end(float (&o)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[i] = of[i];
    }
};

/* o += p v. With sums in F16 32 columns at a time, so that few are held; else all, so that no product waits for another. */
template <int M, bool F16_SUMS>
__device__ static void multiply_values(float (&o)[M][E / 8][4], const weights<M> &p,
                                       uint32_t values) {
    constexpr int COLS = F16_SUMS ? 32 : E, WIDE = COLS / 16, STEPS = E / COLS * KEYS / 16 * WIDE;
    int lane = (int)(thread_now() % 32);
    values += place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    auto load = [&](uint32_t(&b)[4], int step) {
        int col = step / (KEYS / 16 * WIDE) * COLS + step % WIDE * 16,
            k = step / WIDE % (KEYS / 16);
        dfx_cuda_load_matrices(b, (values ^ k * 32) + col * E);
    };
    tile_sums<F16_SUMS> sums[M][COLS / 8];
    uint32_t b[AHEAD + 1][4]; /* columns 0-7: keys 0-7 and 8-15; columns 8-15: the same */
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        load(b[i], i);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int k = i / WIDE % (KEYS / 16), n = i % WIDE * 2, now = i % (AHEAD + 1);
        const int group = i / (KEYS / 16 * WIDE) * (COLS / 8);
        if (i + AHEAD < STEPS)
            load(b[(i + AHEAD) % (AHEAD + 1)], i + AHEAD);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                tile_sums<F16_SUMS> &sum = sums[m][n + j];
                if (k == 0)
                    sum.begin(o[m][group + n + j]);
                multiply_add(sum.of, p.of[k][m], b[now][2 * j], b[now][2 * j + 1]);
                if (k == KEYS / 16 - 1)
                    sum.end(o[m][group + n + j]);
            }
    }
}

template <int M>
__device__ static void store(const attention &a, const float (&o)[M][E / 8][4],
                             const row_state<M> &rows, int first_query) {
    uint32_t column = head_now() * E + thread_now() % 4 * 2;
    const float *means = a.center + DFX_CENTER_VALUE * a.ld_center + column;
    const float *scales = a.center + DFX_CENTER_VALUE_SCALE * a.ld_center + column;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first_query + m * 16 + half * 8;
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            float share = __fdividef(CODE_UNIT, sum);
            bf16 *y = a.y + query * a.ldy + column;
            if (query < a.n_queries)
#pragma unroll
                for (int n = 0; n < E / 8; n++) {
                    float2 mean = *(const float2 *)(means + n * 8);
                    float2 scale = *(const float2 *)(scales + n * 8);
                    *(uint32_t *)(y + n * 8) =
                        pack_bf16(fmaf(o[m][n][2 * half] * share, scale.x, mean.x),
                                  fmaf(o[m][n][2 * half + 1] * share, scale.y, mean.y));
                }
        }
}

template <int M> __host__ __device__ static constexpr int shared_bytes() {
    return WARPS * M * 16 * E +
           4 * TILE; /* queries | keys | codes of values | values, of two bytes */
}

/* A thread's first row, of the block's. */
template <int M> __device__ static int row_of_thread() {
    uint32_t thread = thread_now();
    return (int)(thread / 32 * M * 16 + thread % 32 / 4);
}

/* Grid: tiles of queries, heads. */
template <int M, bool F16_SUMS>
__global__ static void __launch_bounds__(THREADS, 2) attend(const attention a) {
    constexpr int QUERIES = WARPS * M * 16;
    extern __shared__ __align__(128) unsigned char shared[];
    int head = (int)blockIdx.y, query_0 = (int)blockIdx.x * QUERIES;
    uint32_t queries = dfx_cuda_shared_address(shared), keys = queries + QUERIES * E;
    uint32_t codes = keys + TILE, values = codes + TILE;
    fetch_queries<QUERIES>(queries, a, head, query_0);
    fetch(keys, codes, a, 0);

    float o[M][E / 8][4] = {};
    float unit = a.scale * LOG2E * a.center[DFX_CENTER_KEY_SCALE * a.ld_center + head * E];
    row_state<M> rows;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = min(query_0 + row_of_thread<M>() + m * 16 + half * 8, a.n_queries - 1);
            begin_row<M>(rows, m, half, unit * a.q_scale[query * a.ld_q_scale + head]);
        }
#pragma unroll 1
    for (int key = 0; key < a.n_keys; key += KEYS) {
        scores<M> s;
        weights<M> p;
        dfx_cuda_wait_groups<0>();
        __syncthreads(); /* keys and codes are there, and no warp reads values any more */
        multiply_keys<M>(s, queries, keys);
        widen_values(values, codes);
        if (key + KEYS > a.n_keys)
            mask<M>(s, a.n_keys - key - (int)(thread_now() % 4 * 2));
        soften<M>(s, o, rows, p);
        __syncthreads(); /* values are there, and no warp reads keys or codes any more */
        if (key + KEYS < a.n_keys)
            fetch(keys, codes, a, key + KEYS);
        multiply_values<M, F16_SUMS>(o, p, values);
    }
    store<M>(a, o, rows, query_0 + row_of_thread<M>());
}

/* ---- Launchers */

/* GeForce and its relatives: products with sums in F32 have half the rate of those in F16. */
static bool has_slow_f32_sums(int sm) {
    return sm == 86 || sm == 89 || sm >= 120;
}

static bool fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    return cuda->sm >= 80 && call->m[0].cols == (int64_t)call->p.n_heads * E && call->p.scale > 0;
}

/* As 16-byte accesses want it. */
static dfx_status check_aligned(const dfx_cuda *cuda, const dfx_op_call *call) {
    for (int slot = 0; slot <= DFX_ATTN_CENTER; slot++) {
        const dfx_mat *m = &call->m[slot];
        size_t row_bytes = (size_t)m->ld * dfx_dtype_bytes(m->dtype);
        if (slot != DFX_ATTN_Q_SCALE && ((uintptr_t)m->ptr % 16 != 0 || row_bytes % 16 != 0))
            return dfx_fail(cuda->base.sink, DFX_E_INTERNAL,
                            "cuda: op attention_codes wants rows at multiples of 16 bytes, those "
                            "of operand %d are at %p, %zu bytes apart",
                            slot, m->ptr, row_bytes);
    }
    return DFX_OK;
}

template <int M, bool F16_SUMS>
static dfx_status launch(dfx_cuda *cuda, const attention &a, int n_heads) {
    constexpr int QUERIES = WARPS * M * 16;
    cudaError_t error = cudaFuncSetAttribute(
        attend<M, F16_SUMS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<M>());
    if (error == cudaSuccess) /* so that two blocks have room */
        error = cudaFuncSetAttribute(attend<M, F16_SUMS>,
                                     cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) {
        dim3 grid((unsigned)((a.n_queries + QUERIES - 1) / QUERIES), (unsigned)n_heads);
        attend<M, F16_SUMS><<<grid, THREADS, shared_bytes<M>(), cuda->compute>>>(a);
        error = cudaGetLastError();
    }
    return dfx_cuda_check(cuda, error, "attention_codes");
}

extern "C" dfx_status dfx_cuda_attention_codes_mma(dfx_cuda *cuda, const dfx_op_call *call,
                                                   bool f16_sums) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    DFX_TRY(check_aligned(cuda, call));
    attention a = {.y = (bf16 *)m[0].ptr,
                   .q = (const char *)q->ptr,
                   .k = (const char *)k->ptr,
                   .v = (const char *)v->ptr,
                   .q_scale = (const float *)m[DFX_ATTN_Q_SCALE].ptr,
                   .center = (const float *)m[DFX_ATTN_CENTER].ptr,
                   .ldy = m[0].ld,
                   .ldq = q->ld,
                   .ldk = k->ld,
                   .ldv = v->ld,
                   .ld_q_scale = m[DFX_ATTN_Q_SCALE].ld,
                   .ld_center = m[DFX_ATTN_CENTER].ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .n_places = (int)v->cols,
                   .scale = call->p.scale};
    int n_heads = call->p.n_heads;
    bool large = (q->rows + 127) / 128 * n_heads >= cuda->n_multiprocessors;
    if (f16_sums)
        return large ? launch<2, true>(cuda, a, n_heads) : launch<1, true>(cuda, a, n_heads);
    return large ? launch<2, false>(cuda, a, n_heads) : launch<1, false>(cuda, a, n_heads);
}

extern "C" dfx_status dfx_cuda_attention_codes_prepare(dfx_cuda *cuda, const dfx_op_call *call) {
    if (fits(cuda, call))
        return DFX_OK;
    return dfx_fail(
        cuda->base.sink, DFX_E_DEVICE,
        "cuda: attention in 8 bits needs a GPU of sm_80 or later and heads of %d, found "
        "sm_%d and heads of %lld; leave --attention-bits at 16",
        E, cuda->sm, (long long)(call->m[0].cols / call->p.n_heads));
}

extern "C" dfx_status dfx_cuda_attention_codes(dfx_cuda *cuda, const dfx_op_call *call) {
    return dfx_cuda_attention_codes_sm90_fits(cuda, call)
               ? dfx_cuda_attention_codes_sm90(cuda, call)
               : dfx_cuda_attention_codes_mma(cuda, call, has_slow_f32_sums(cuda->sm));
}
