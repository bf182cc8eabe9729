/* ATTENTION_CODES out of mma.sync, for every device from sm_80 on, heads of 128: y = softmax(scale q_scale key_scale q k^T) v *
 * value_scale + value_mean, q and k int8, v E4M3, no N^2 buffer. Hopper has its own: cuda_attention_codes_sm90.cu.
 *
 * Blocks, warps, tiles and stages are those of cuda_attention.cu. What differs:
 *   Sums of int8 products begin at ZERO_SCORE, so that they are floats as they stand.
 *   Weights are F16, and codes of values become F16, exactly but for a factor: with the weights in E4M3, as Hopper has them,
 * products would be no faster anywhere but where their sums were F16 too, whose range they do not fit. So a result is as near to
 * the exact one as attention in 16 bits is (1.7e-3, the rounding to BF16). A code that is no number counts as 480 where it is
 * widened by arithmetic.
 *   Where products with sums in F16 have twice the rate of those in F32 (GeForce), sums of one tile are in F16, and added up in
 * F32. Each is below 2^15, where F16 ends at 2^16, and rounded four times, to 2^-12 of it.
 *   What a row is divided by is not its greatest weight so far, but stays while weights fit.
 *   Values come transposed, within 16 tokens in the order in which a thread has weights (dfx_v_codes_place): four codes of a
 * word are of the thread's keys 2q, 2q + 1, 2q + 8, 2q + 9, which is what the right operand of m16n8k16 wants.
 *   Bound: arithmetic. Tensor cores, for 32 queries and 64 keys, a quarter multiprocessor: scores 64 products m16n8k32 of 8
 *   clocks (sm_80, 87) or 16 (sm_86, 89, 120), outputs 128 m16n8k16 of as many (with sums in F32 32 instead of 16). In 16 bits
 *   it is 256 products of 8 and 32. Then a thousand instructions, of which widening values is a third.
 *   Shared memory: queries 16 KiB, two stages of keys and values 32 KiB; two blocks share an SM of 100 KiB. Registers: outputs
 *   128, scores 64, weights 32. */
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
    CONVERT_SM = 89,
    /* Bits of 1.5 * 2^23: an integer below 2^22 added to them gives the bits of a float that is as much greater. */
    ZERO_SCORE = 0x4b400000,
};
static const float LOG2E = 1.4426950408889634f; /* exp(x) = exp2(x LOG2E), one instruction */

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

/* Codes 0 and 1, 2 and 3 of a word as F16, 2^-8 of their values. Each goes into the low byte of a half, below a byte of its
 * sign; then exponent and mantissa go where F16 has them, whose exponents are 8 greater for the same number. */
__device__ static void widen(uint32_t codes, uint32_t &low, uint32_t &high) {
    asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(low) : "r"(codes));
    asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(high) : "r"(codes));
    low = low << 7 & 0xbf80bf80;
    high = high << 7 & 0xbf80bf80;
}

/* The same, as they are. Of sm_89 and later. */
__device__ static void convert(uint32_t codes, uint32_t &low, uint32_t &high) {
    asm("{\n"
        ".reg .b16 a, b;\n"
        "mov.b32 {a, b}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, a;\n"
        "cvt.rn.f16x2.e4m3x2 %1, b;\n"
        "}"
        : "=r"(low), "=r"(high)
        : "r"(codes));
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

/* ---- The kernel. M: groups of 16 rows a warp. */

/* F16_SUMS: of a tile's products with values. CONVERT: codes of values by an instruction of sm_89 and later. */
template <bool SUMS, bool CVT> struct way {
    static constexpr bool F16_SUMS = SUMS, CONVERT = CVT;
    static constexpr float CODE_UNIT = CVT ? 1 : 0x1p8f; /* of a code that has become F16 */
    /* Where lifts are lowered to, as an exponent of two, and what a sum of 16 weights of a lane may be: at most
     * 4 MOST 448 / CODE_UNIT < 2^15 is a sum of 64 products. */
    static constexpr float TOP = CVT ? -6 : 0, MOST = CVT ? 0x1p4f : 0x1p12f;
};

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

/* Keys and values from `key` on to a stage, keys before values; zeros where there are none. */
__device__ static void fetch(uint32_t stage, const attention &a, int key) {
    uint32_t thread = thread_now(), head = head_now();
    int row = (int)(thread / (E / CHUNK)), chunk = (int)(thread % (E / CHUNK));
    int col = (int)(thread / (KEYS / CHUNK)), value = (int)(thread % (KEYS / CHUNK));
    const char *k = a.k + (key + row) * a.ldk + head * E + chunk * CHUNK;
    const char *v = a.v + (int64_t)(head * E + col) * a.ldv + key + value * CHUNK;
#pragma unroll
    for (int i = 0; i < KEYS; i += FETCHED_ROWS)
        dfx_cuda_copy_async(stage + place(row + i, chunk), k + i * a.ldk, key + row + i < a.n_keys);
#pragma unroll
    for (int i = 0; i < E; i += FETCHED_COLS)
        dfx_cuda_copy_async(stage + TILE + code_place(col + i, value), v + i * a.ldv,
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

/* Lowers lifts to where the greatest weight so far is 2^TOP, unless it is below; what was summed before fades. */
template <int M, class W>
__device__ static void lower(const scores<M> &s, float (&o)[M][E / 8][4], row_state<M> &rows,
                             int m) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = -CUDART_INF_F;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            top = fmaxf(top, fmaxf(__int_as_float(s.of[m][n][2 * half]),
                                   __int_as_float(s.of[m][n][2 * half + 1])));
        float lift = fminf(rows.lift[m][half], fmaf(-top, rows.unit[m][half], W::TOP));
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
template <int M, class W>
__device__ static void soften(const scores<M> &s, float (&o)[M][E / 8][4], row_state<M> &rows,
                              weights<M> &p) {
#pragma unroll
    for (int m = 0; m < M; m++) {
        float sums[2];
        make_weights<M>(s, rows, p, m, sums);
        if (!__all_sync(0xffffffff, sums[0] <= W::MOST && sums[1] <= W::MOST)) {
            lower<M, W>(s, o, rows, m);
            make_weights<M>(s, rows, p, m, sums);
        }
        rows.sum[m][0] += sums[0];
        rows.sum[m][1] += sums[1];
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

/* o += p v. With sums in F16 64 columns at a time, so that few are held; else all. */
template <int M, class W>
__device__ static void multiply_values(float (&o)[M][E / 8][4], const weights<M> &p,
                                       uint32_t codes) {
    constexpr int COLS = W::F16_SUMS ? 64 : E, WIDE = COLS / 32, K_STEPS = KEYS / 16;
    constexpr int STEPS = E / COLS * K_STEPS * WIDE;
    codes += code_place((int)(thread_now() % 32), 0);
    auto load = [&](uint32_t(&b)[4], int step) {
        int col = step / (K_STEPS * WIDE) * COLS + step % WIDE * 32, k = step / WIDE % K_STEPS;
        dfx_cuda_load_matrices(b, (codes ^ k * CHUNK) + col * KEYS);
    };
    tile_sums<W::F16_SUMS> sums[M][COLS / 8];
    uint32_t b[2][4]; /* codes of 16 keys: columns 0-7, 8-15, 16-23, 24-31 */
    load(b[0], 0);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int k = i / WIDE % K_STEPS, col = i % WIDE * 4,
                  group = i / (K_STEPS * WIDE) * COLS / 8;
        if (i + 1 < STEPS)
            load(b[(i + 1) % 2], i + 1);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b0, b1;
            if constexpr (W::CONVERT)
                convert(b[i % 2][j], b0, b1);
            else
                widen(b[i % 2][j], b0, b1);
#pragma unroll
            for (int m = 0; m < M; m++) {
                tile_sums<W::F16_SUMS> &sum = sums[m][col + j];
                float(&total)[4] = o[m][group + col + j];
                if (k == 0)
                    sum.begin(total);
                multiply_add(sum.of, p.of[k][m], b0, b1);
                if (k == K_STEPS - 1)
                    sum.end(total);
            }
        }
    }
}

template <int M, class W>
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
            float share = __fdividef(W::CODE_UNIT, sum);
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
    return WARPS * M * 16 * E + 4 * TILE; /* queries | keys, values | keys, values */
}

/* A thread's first row, of the block's. */
template <int M> __device__ static int row_of_thread() {
    uint32_t thread = thread_now();
    return (int)(thread / 32 * M * 16 + thread % 32 / 4);
}

template <int M, class W> __device__ static void attend_tile(const attention &a, uint32_t queries) {
    constexpr int QUERIES = WARPS * M * 16;
    int head = (int)blockIdx.y, query_0 = (int)blockIdx.x * QUERIES;
    uint32_t stages = queries + QUERIES * E;
    fetch_queries<QUERIES>(queries, a, head, query_0);
    fetch(stages, a, 0);

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
        uint32_t stage = stages + key / KEYS % 2 * 2 * TILE;
        scores<M> s;
        weights<M> p;
        dfx_cuda_wait_groups<0>();
        __syncthreads(); /* this stage is there, and no warp reads the other any more */
        if (key + KEYS < a.n_keys)
            fetch(stages + (key / KEYS + 1) % 2 * 2 * TILE, a, key + KEYS);
        multiply_keys<M>(s, queries, stage);
        if (key + KEYS > a.n_keys)
            mask<M>(s, a.n_keys - key - (int)(thread_now() % 4 * 2));
        soften<M, W>(s, o, rows, p);
        multiply_values<M, W>(o, p, stage + TILE);
    }
    store<M, W>(a, o, rows, query_0 + row_of_thread<M>());
}

/* Grid: tiles of queries, heads. */
template <int M, class W>
__global__ static void __launch_bounds__(THREADS, 2) attend(const attention a) {
#if __CUDA_ARCH__ >= 890
    constexpr bool can = true;
#else
    constexpr bool can = !W::CONVERT;
#endif
    if constexpr (can) {
        extern __shared__ __align__(128) unsigned char shared[];
        attend_tile<M, W>(a, dfx_cuda_shared_address(shared));
    }
}

/* ---- Launchers */

typedef way<false, false> f32_way;
typedef way<true, false> f16_way;
typedef way<true, true> converted_way;

/* Products with sums in F32 have half the rate of those in F16 on GeForce and its relatives. Code that was compiled for an older
 * device, and runs on this one, lacks the conversion. */
static dfx_cuda_codes_way best_way(const dfx_cuda *cuda) {
    cudaFuncAttributes attributes;
    if (cuda->sm != 86 && cuda->sm != 89 && cuda->sm < 120)
        return DFX_CUDA_CODES_F32_SUMS;
    return cudaFuncGetAttributes(&attributes, attend<2, converted_way>) == cudaSuccess &&
                   attributes.ptxVersion >= CONVERT_SM
               ? DFX_CUDA_CODES_CONVERTED
               : DFX_CUDA_CODES_F16_SUMS;
}

static bool fits(const dfx_cuda *cuda, const dfx_op_call *call) {
    return cuda->sm >= 80 && call->m[0].cols == (int64_t)call->p.n_heads * E && call->p.scale > 0;
}

/* As TMA and 16-byte accesses want it. */
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

template <int M, class W>
static dfx_status launch(dfx_cuda *cuda, const attention &a, int n_heads) {
    constexpr int QUERIES = WARPS * M * 16;
    cudaError_t error = cudaFuncSetAttribute(
        attend<M, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<M>());
    if (error == cudaSuccess) /* so that two blocks have room */
        error = cudaFuncSetAttribute(attend<M, W>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) {
        dim3 grid((unsigned)((a.n_queries + QUERIES - 1) / QUERIES), (unsigned)n_heads);
        attend<M, W><<<grid, THREADS, shared_bytes<M>(), cuda->compute>>>(a);
        error = cudaGetLastError();
    }
    return dfx_cuda_check(cuda, error, "attention_codes");
}

/* Tiles of 64 queries where those of 128 would leave multiprocessors idle. */
template <class W> static dfx_status launch(dfx_cuda *cuda, const attention &a, int n_heads) {
    bool large = (a.n_queries + 127) / 128 * n_heads >= cuda->n_multiprocessors;
    return large ? launch<2, W>(cuda, a, n_heads) : launch<1, W>(cuda, a, n_heads);
}

extern "C" dfx_status dfx_cuda_attention_codes_mma(dfx_cuda *cuda, const dfx_op_call *call,
                                                   dfx_cuda_codes_way how) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
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
    dfx_cuda_note(cuda, "mma.sync");
    switch (how) {
    case DFX_CUDA_CODES_F16_SUMS:
        return launch<f16_way>(cuda, a, n_heads);
    case DFX_CUDA_CODES_CONVERTED:
        return launch<converted_way>(cuda, a, n_heads);
    case DFX_CUDA_CODES_F32_SUMS:
        break;
    }
    return launch<f32_way>(cuda, a, n_heads);
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
    DFX_TRY(check_aligned(cuda, call));
    return dfx_cuda_attention_codes_sm90_fits(cuda, call)
               ? dfx_cuda_attention_codes_sm90(cuda, call)
               : dfx_cuda_attention_codes_mma(cuda, call, best_way(cuda));
}
