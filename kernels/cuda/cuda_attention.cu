/* ATTENTION on CUDA: per head y = softmax(scale q k^T + bias) v, and no N^2 buffer.
 *
 * Heads of 64 and 128, which are all that matter for speed: one kernel. A block of four warps holds a tile of queries and
 * passes over the keys, 64 at a time, with the running maximum and sum of each row (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax"; Dao, "FlashAttention-2"). Scores, sums and outputs stay in f32 registers; products
 * are mma.sync on BF16, which every GPU from sm_80 on has.
 *   Bound: arithmetic, 4 Tq Tk D operations. Keys and values of a head are read again for each tile of queries, but from
 *   L2: those of 4608 tokens are 2.4 MB a head of 128.
 *   Tiles: a warp reads every key and value from shared memory for its own rows, so 32 rows a warp (128 queries a block)
 *   halve that traffic against 16. With 64 keys, scores (64 registers a thread) and outputs (128 at E = 128) just fit 255,
 *   with operands that are loaded two steps ahead: with 8 warps on an SM, nothing else hides what a load takes.
 *   Shared memory at E = 128: queries 32 KiB, two stages of keys and values 64 KiB; two blocks share an SM of 228 KiB, one
 *   has an SM of 100 KiB. Where tiles of 128 queries would leave SMs idle, 64 queries a block.
 *
 * Hopper has its own for most calls of heads of 128 and 512: cuda_attention_sm90.cu, cuda_attention_wide_sm90.cu.
 *
 * All other calls (other head sizes, scale <= 0, ld that is no multiple of 8): scores of a block of queries by
 * dfx_cuda_gemm, in at most 64 MiB of workspace, softmax to BF16 probabilities, a second product with v. Bound: memory, 12
 * bytes a score written and read. */
#include <cuda_bf16.h>
#include <math_constants.h>

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/cuda_mma.cuh"

enum {
    WARPS = 4,
    THREADS = 32 * WARPS,
    KEYS = 64,
    CHUNK = 8, /* values in 16 bytes */
    AHEAD = 2, /* steps of 16 by 16 keys or values, before one that uses what is loaded */
};
static const float SLACK = 8;                   /* see rise() */
static const float LOG2E = 1.4426950408889634f; /* exp(x) = exp2(x LOG2E), one instruction */

typedef __nv_bfloat16 bf16;

/* Values of a head begin at head * E in each row. */
struct attention {
    bf16 *y;
    const bf16 *q, *k, *v, *bias; /* bias: NULL when there is none */
    int64_t ldy, ldq, ldk, ldv, ldb;
    int n_queries, n_keys;
    float scale;
    bool causal;
};

/* ---- Instructions */

__device__ static void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* As dfx_cuda_load_matrices, each matrix transposed. */
__device__ static void load_transposed(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ static float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ static uint32_t pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* ---- The kernel. E: head size; M: groups of 16 rows a warp. */

/* Byte offset of 16-byte chunk `chunk` of row `row` of a tile: the same chunk of 8 adjacent rows lies in 8 places of the
 * 128 bytes that the banks span. */
template <int E> __device__ static uint32_t place(int row, int chunk) {
    return (uint32_t)(row * E * 2 + (chunk ^ (row & 7)) * 16);
}

/* From the address of chunk 0 or 1 of a row to that of chunk 2 step or 2 step + 1: an instruction, and no register kept
 * for each step. Tiles begin at multiples of 128. */
__device__ static uint32_t step_right(uint32_t address, int step) {
    return (address ^ (uint32_t)(step % 4 * 32)) + step / 4 * 128;
}

/* Rows first .. first + ROWS of one head to shared memory; zeros from n_rows on. */
template <int E, int ROWS>
__device__ static void fetch(uint32_t tile, const bf16 *src, int64_t ld, int first, int n_rows) {
    constexpr int STEP = THREADS / (E / CHUNK); /* rows fetched at once: a multiple of 8 */
    int row = (int)threadIdx.x / (E / CHUNK), chunk = (int)threadIdx.x % (E / CHUNK);
    int n_there = n_rows - first - row;
    tile += place<E>(row, chunk);
    src += (first + row) * ld + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) {
        dfx_cuda_copy_async(tile + i * E * 2, src, i < n_there);
        src += STEP * ld;
    }
}

/* s = q k^T, of the warp's rows of `queries` and all of `keys`. */
template <int E, int M>
__device__ static void multiply_keys(float (&s)[M][KEYS / 8][4], uint32_t queries, uint32_t keys) {
    constexpr int WIDE = KEYS / 16, STEPS = E / 16 * WIDE;
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * M * 16 + lane % 16;
    queries += place<E>(row, lane / 16);
    keys += place<E>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    uint32_t a[2][M][4],
        b[AHEAD + 1][4]; /* of b, keys 0-7: values 0-7 and 8-15; keys 8-15: the same */
#pragma unroll
    for (int m = 0; m < M; m++)
        dfx_cuda_load_matrices(a[0][m], queries + m * 16 * E * 2);
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        dfx_cuda_load_matrices(b[i], step_right(keys, i / WIDE) + i % WIDE * 16 * E * 2);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = 0;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int e = i / WIDE, n = i % WIDE, next = i + AHEAD, now = i % (AHEAD + 1);
        if (next < STEPS)
            dfx_cuda_load_matrices(b[next % (AHEAD + 1)],
                                   step_right(keys, next / WIDE) + next % WIDE * 16 * E * 2);
        if (n == 0 && e + 1 < E / 16)
#pragma unroll
            for (int m = 0; m < M; m++)
                dfx_cuda_load_matrices(a[(e + 1) % 2][m],
                                       step_right(queries, e + 1) + m * 16 * E * 2);
#pragma unroll
        for (int m = 0; m < M; m++) {
            dfx_cuda_multiply_add(s[m][2 * n], a[e % 2][m], b[now][0], b[now][1]);
            dfx_cuda_multiply_add(s[m][2 * n + 1], a[e % 2][m], b[now][2], b[now][3]);
        }
    }
}

/* o += p v, p rounded to BF16: an accumulator of two products side by side is the left operand of the next. */
template <int E, int M>
__device__ static void multiply_values(float (&o)[M][E / 8][4], const float (&p)[M][KEYS / 8][4],
                                       uint32_t values) {
    constexpr int WIDE = E / 16, STEPS = KEYS / 16 * WIDE;
    int lane = threadIdx.x % 32;
    values += place<E>(lane % 16, lane / 16);
    uint32_t a[M][4],
        b[AHEAD + 1][4]; /* of b, values 0-7: keys 0-7 and 8-15; values 8-15: the same */
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        load_transposed(b[i], step_right(values, i % WIDE) + i / WIDE * 16 * E * 2);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int k = i / WIDE, n = i % WIDE, next = i + AHEAD, now = i % (AHEAD + 1);
        if (next < STEPS)
            load_transposed(b[next % (AHEAD + 1)],
                            step_right(values, next % WIDE) + next / WIDE * 16 * E * 2);
        if (n == 0)
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    a[m][j] =
                        pack(p[m][2 * k + j / 2][j % 2 * 2], p[m][2 * k + j / 2][j % 2 * 2 + 1]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            dfx_cuda_multiply_add(o[m][2 * n], a[m], b[now][0], b[now][1]);
            dfx_cuda_multiply_add(o[m][2 * n + 1], a[m], b[now][2], b[now][3]);
        }
    }
}

/* Scores to units of log2 with their bias added. Query and key of s[0][0][0]: first_query, first_key. */
template <int M>
__device__ static void add_bias(float (&s)[M][KEYS / 8][4], const attention &a, const bf16 *bias,
                                int first_query, int first_key) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first_query + m * 16 + half * 8;
            int n_there = query < a.n_queries ? a.n_keys - first_key : 0;
            const bf16 *at = bias + (first_key - query + a.n_keys - 1);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float add = n * 8 + i < n_there ? __bfloat162float(at[n * 8 + i]) : 0.0f;
                    float &score = s[m][n][2 * half + i];
                    score = LOG2E * (score * a.scale + add);
                }
        }
}

/* Keys beyond the last, or behind a causal mask, get no weight. */
template <int M>
__device__ static void mask(float (&s)[M][KEYS / 8][4], const attention &a, int first_query,
                            int first_key) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first_query + m * 16 + half * 8;
            int n_seen = (a.causal ? min(a.n_keys, query + 1) : a.n_keys) - first_key;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (n * 8 + i >= n_seen)
                        s[m][n][2 * half + i] = -CUDART_INF_F;
        }
}

/* The rows that a lane shares with three others, i / 2 of m: the score that exponentials are relative to, and the lane's part
 * of their sum. */
template <int M> struct row_state { float base[M][2], sum[M][2]; };

/* Raises the base to the greatest score so far, in rows of the warp, if one would exceed its base by a factor of more than
 * 2^SLACK; what was summed before fades. Up to there nothing is lost: probabilities have the same relative error at any
 * scale, f32 holds the sums, and the base cancels in the end. After the first keys this is rare, so outputs are seldom
 * multiplied and lanes seldom compare. All rows see the first key, so the base is no infinity after the first tile. */
template <int E, int M>
__device__ static void rise(const float (&s)[M][KEYS / 8][4], float (&o)[M][E / 8][4],
                            row_state<M> &rows, float unit) {
    float top[M][2];
    bool rises = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float even = s[m][0][2 * half], odd = s[m][0][2 * half + 1];
#pragma unroll
            for (int n = 1; n < KEYS / 8; n++) {
                even = fmaxf(even, s[m][n][2 * half]);
                odd = fmaxf(odd, s[m][n][2 * half + 1]);
            }
            top[m][half] = fmaxf(even, odd);
            rises = rises || (top[m][half] - rows.base[m][half]) * unit > SLACK;
        }
    if (!__any_sync(0xffffffff, rises))
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float base = fmaxf(rows.base[m][half], top[m][half]);
            base = fmaxf(base, __shfl_xor_sync(0xffffffff, base, 1));
            base = fmaxf(base, __shfl_xor_sync(0xffffffff, base, 2));
            float fade = exp2_fast((rows.base[m][half] - base) * unit);
            rows.base[m][half] = base;
            rows.sum[m][half] *= fade;
#pragma unroll
            for (int n = 0; n < E / 8; n++) {
                o[m][n][2 * half] *= fade;
                o[m][n][2 * half + 1] *= fade;
            }
        }
}

/* s to exp2(unit (s - base)). */
template <int M>
__device__ static void soften(float (&s)[M][KEYS / 8][4], row_state<M> &rows, float unit) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float down = -rows.base[m][half] * unit, even = 0, odd = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                float &x = s[m][n][2 * half], &y = s[m][n][2 * half + 1];
                x = exp2_fast(fmaf(x, unit, down));
                y = exp2_fast(fmaf(y, unit, down));
                even += x;
                odd += y;
            }
            rows.sum[m][half] += even + odd;
        }
}

template <int E, int M>
__device__ static void store(const attention &a, bf16 *y, const float (&o)[M][E / 8][4],
                             const row_state<M> &rows, int first_query) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            float share = 1 / sum;
            int query = first_query + m * 16 + half * 8;
            if (query >= a.n_queries)
                continue;
            uint32_t *row = (uint32_t *)(y + query * a.ldy) + threadIdx.x % 4;
#pragma unroll
            for (int n = 0; n < E / 8; n++)
                row[n * 4] = pack(o[m][n][2 * half] * share, o[m][n][2 * half + 1] * share);
        }
}

template <int E, int M> __host__ __device__ static constexpr int shared_bytes() {
    return (WARPS * M * 16 + 4 * KEYS) * E * 2; /* queries | keys, values | keys, values */
}

/* Grid: tiles of queries, heads. */
template <int E, int M>
__global__ static void __launch_bounds__(THREADS) attend(const attention a) {
    constexpr int QUERIES = WARPS * M * 16, TILE = KEYS * E * 2; /* bytes */
    extern __shared__ __align__(128) unsigned char shared[];
    int head = (int)blockIdx.y, query_0 = (int)blockIdx.x * QUERIES;
    int first_query = query_0 + (int)threadIdx.x / 32 * M * 16 + (int)threadIdx.x % 32 / 4;
    int column = (int)threadIdx.x % 4 * 2; /* of a lane's first score */
    const bf16 *k = a.k + head * E, *v = a.v + head * E;
    const bf16 *bias = a.bias ? a.bias + head * a.ldb : NULL;
    float unit = bias ? 1.0f : a.scale * LOG2E;
    int n_keys = a.causal ? min(a.n_keys, query_0 + QUERIES) : a.n_keys;

    uint32_t queries = dfx_cuda_shared_address(shared), stages = queries + QUERIES * E * 2;
    fetch<E, QUERIES>(queries, a.q + head * E, a.ldq, query_0, a.n_queries);
    fetch<E, KEYS>(stages, k, a.ldk, 0, a.n_keys);
    fetch<E, KEYS>(stages + TILE, v, a.ldv, 0, a.n_keys);

    float o[M][E / 8][4] = {};
    row_state<M> rows;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            rows.base[m][half] = -CUDART_INF_F;
            rows.sum[m][half] = 0;
        }
    for (int key = 0; key < n_keys; key += KEYS) {
        uint32_t stage = stages + key / KEYS % 2 * 2 * TILE,
                 next = stages + (key / KEYS + 1) % 2 * 2 * TILE;
        wait_for_copies();
        __syncthreads(); /* this stage is there, and no warp reads the other any more */
        if (key + KEYS < n_keys) {
            fetch<E, KEYS>(next, k, a.ldk, key + KEYS, a.n_keys);
            fetch<E, KEYS>(next + TILE, v, a.ldv, key + KEYS, a.n_keys);
        }
        float s[M][KEYS / 8][4];
        multiply_keys<E, M>(s, queries, stage);
        if (bias)
            add_bias<M>(s, a, bias, first_query, key + column);
        if (key + KEYS > a.n_keys || (a.causal && key + KEYS > query_0))
            mask<M>(s, a, first_query, key + column);
        rise<E, M>(s, o, rows, unit);
        soften<M>(s, rows, unit);
        multiply_values<E, M>(o, s, stage + TILE);
    }
    store<E, M>(a, a.y + head * E, o, rows, first_query);
}

/* ---- Any head size: softmax of rows of scores */

enum { ROW_THREADS = 256 };

/* Both parts of the online sum, over a block. */
__device__ static void reduce_row(float &top, float &sum) {
    __shared__ float tops[ROW_THREADS / 32], sums[ROW_THREADS / 32];
    for (int part = 0; part < 2; part++) {
        for (int other = part ? ROW_THREADS / 64 : 16; other > 0; other /= 2) {
            float top2 = __shfl_xor_sync(0xffffffff, top, other);
            float sum2 = __shfl_xor_sync(0xffffffff, sum, other), both = fmaxf(top, top2);
            /* A thread that saw nothing has -inf and 0. */
            sum = (sum > 0 ? sum * exp2_fast((top - both) * LOG2E) : sum) +
                  (sum2 > 0 ? sum2 * exp2_fast((top2 - both) * LOG2E) : sum2);
            top = both;
        }
        if (part)
            return;
        if (threadIdx.x % 32 == 0) {
            tops[threadIdx.x / 32] = top;
            sums[threadIdx.x / 32] = sum;
        }
        __syncthreads();
        top = tops[threadIdx.x % (ROW_THREADS / 32)];
        sum = sums[threadIdx.x % (ROW_THREADS / 32)];
    }
}

/* p[i, key] = softmax over keys of (s[i, key] + bias), i being query first_query + i. Grid: rows. bias: of key 0, query 0. */
__global__ static void __launch_bounds__(ROW_THREADS)
    soften_rows(const float *s, bf16 *p, int64_t ld, int64_t n_keys, int64_t first_query,
                bool causal, const bf16 *bias) {
    int64_t query = first_query + blockIdx.x;
    int64_t n_seen = causal ? min(n_keys, query + 1) : n_keys;
    s += blockIdx.x * ld;
    p += blockIdx.x * ld;
    bias = bias ? bias - query : NULL;
    float top = -CUDART_INF_F, sum = 0;
    for (int64_t key = threadIdx.x; key < n_seen; key += ROW_THREADS) {
        float x = s[key] + (bias ? __bfloat162float(bias[key]) : 0), both = fmaxf(top, x);
        sum = sum * exp2_fast((top - both) * LOG2E) + exp2_fast((x - both) * LOG2E);
        top = both;
    }
    reduce_row(top, sum);
    for (int64_t key = threadIdx.x; key < n_keys; key += ROW_THREADS) {
        float x = key < n_seen ? s[key] + (bias ? __bfloat162float(bias[key]) : 0) : -CUDART_INF_F;
        p[key] = __float2bfloat16_rn(exp2_fast((x - top) * LOG2E) / sum);
    }
}

/* ---- Launchers */

static int64_t head_size(const dfx_op_call *call) {
    return call->m[0].cols / call->p.n_heads;
}

/* By shape alone: the same answer when a call is prepared and when it has addresses. */
static bool is_flash(const dfx_op_call *call) {
    bool aligned = true, small = true;
    for (int slot = 0; slot <= DFX_ATTN_V; slot++) {
        aligned = aligned && call->m[slot].ld % CHUNK == 0;
        small = small && call->m[slot].rows < 1 << 30;
    }
    int64_t e = head_size(call);
    return (e == 64 || e == 128) && call->p.scale > 0 && aligned && small;
}

template <int E, int M> static dfx_status launch(dfx_cuda *cuda, const attention &a, int n_heads) {
    constexpr int QUERIES = WARPS * M * 16;
    cudaError_t error = cudaFuncSetAttribute(
        attend<E, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<E, M>());
    if (error == cudaSuccess) {
        dim3 grid((unsigned)((a.n_queries + QUERIES - 1) / QUERIES), (unsigned)n_heads);
        attend<E, M><<<grid, THREADS, shared_bytes<E, M>(), cuda->compute>>>(a);
        error = cudaGetLastError();
    }
    return dfx_cuda_check(cuda, error, "attention");
}

static dfx_status run_flash(dfx_cuda *cuda, const dfx_op_call *call) {
    const dfx_mat *m = call->m, *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    const dfx_mat *bias = &m[DFX_ATTN_BIAS];
    attention a = {.y = (bf16 *)m[0].ptr,
                   .q = (const bf16 *)q->ptr,
                   .k = (const bf16 *)k->ptr,
                   .v = (const bf16 *)v->ptr,
                   .bias = (const bf16 *)bias->ptr,
                   .ldy = m[0].ld,
                   .ldq = q->ld,
                   .ldk = k->ld,
                   .ldv = v->ld,
                   .ldb = bias->ld,
                   .n_queries = (int)q->rows,
                   .n_keys = (int)k->rows,
                   .scale = call->p.scale,
                   .causal = call->p.causal};
    int n_heads = call->p.n_heads;
    dfx_cuda_note(cuda, "mma.sync");
    bool large = (q->rows + 127) / 128 * n_heads >= cuda->n_multiprocessors;
    if (head_size(call) == 64)
        return large ? launch<64, 2>(cuda, a, n_heads) : launch<64, 1>(cuda, a, n_heads);
    return large ? launch<128, 2>(cuda, a, n_heads) : launch<128, 1>(cuda, a, n_heads);
}

/* Queries at a time, and where their probabilities lie behind their scores; both [n_queries, ld]. */
struct block_plan {
    int64_t n_queries, ld;
    size_t probabilities_off, bytes;
};

static block_plan plan_blocks(const dfx_op_call *call) {
    const int64_t most_bytes = INT64_C(64) << 20, pair = sizeof(float) + sizeof(bf16);
    int64_t ld = (int64_t)dfx_align_up((size_t)call->m[DFX_ATTN_K].rows, 64);
    int64_t n = most_bytes / (ld * pair);
    n = n >= 64 ? n / 64 * 64 : n > 1 ? n : 1;
    if (n > call->m[0].rows)
        n = call->m[0].rows;
    size_t off = dfx_align_up((size_t)(n * ld) * sizeof(float), 256);
    return {n, ld, off, off + (size_t)(n * ld) * sizeof(bf16)};
}

static bf16 *part(const dfx_mat *m, int64_t row, int64_t col) {
    return (bf16 *)m->ptr + row * m->ld + col;
}

static dfx_status run_block(dfx_cuda *cuda, const dfx_op_call *call, const block_plan *plan,
                            int head, int64_t query, int64_t n) {
    const dfx_mat *m = call->m, *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V], *bias = &m[DFX_ATTN_BIAS];
    int64_t e = head_size(call), col = head * e;
    int64_t n_keys = call->p.causal ? min(k->rows, query + n) : k->rows;
    float *scores = (float *)cuda->workspace;
    bf16 *probabilities = (bf16 *)((char *)cuda->workspace + plan->probabilities_off);
    DFX_TRY(dfx_cuda_gemm(cuda, true, n, n_keys, e, call->p.scale, part(&m[DFX_ATTN_Q], query, col),
                          m[DFX_ATTN_Q].ld, part(k, 0, col), k->ld, scores, plan->ld, true));
    soften_rows<<<(unsigned)n, ROW_THREADS, 0, cuda->compute>>>(
        scores, probabilities, plan->ld, n_keys, query, call->p.causal,
        bias->ptr ? part(bias, head, k->rows - 1) : NULL);
    DFX_TRY(dfx_cuda_check(cuda, cudaGetLastError(), "attention: softmax"));
    return dfx_cuda_gemm(cuda, false, n, e, n_keys, 1.0f, probabilities, plan->ld, part(v, 0, col),
                         v->ld, part(&m[0], query, col), m[0].ld, false);
}

static dfx_status run_blocks(dfx_cuda *cuda, const dfx_op_call *call) {
    block_plan plan = plan_blocks(call);
    for (int head = 0; head < call->p.n_heads; head++)
        for (int64_t query = 0; query < call->m[0].rows; query += plan.n_queries) {
            int64_t n = min(plan.n_queries, call->m[0].rows - query);
            DFX_TRY(run_block(cuda, call, &plan, head, query, n));
        }
    return DFX_OK;
}

extern "C" size_t dfx_cuda_attention_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    return is_flash(call) || dfx_cuda_attention_wide_fits(cuda, call) ? 0 : plan_blocks(call).bytes;
}

extern "C" dfx_status dfx_cuda_attention(dfx_cuda *cuda, const dfx_op_call *call) {
    if (dfx_cuda_attention_wide_fits(cuda, call))
        return dfx_cuda_attention_wide(cuda, call);
    if (!is_flash(call))
        return run_blocks(cuda, call);
    return dfx_cuda_attention_sm90_fits(cuda, call) ? dfx_cuda_attention_sm90(cuda, call)
                                                    : run_flash(cuda, call);
}
