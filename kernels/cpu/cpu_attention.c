/* ATTENTION on the CPU: one index is one head and a block of queries.
 *
 * The block's scores against all keys that any of its queries may see are made by sgemm in worker scratch
 * [BLOCK_QUERIES, Tk], turned into exponentials row by row, and multiplied with V by sgemm straight into y, or into scratch
 * where y is codes; each row is divided by its sum at the end. Nothing of size Tq x Tk is ever held. Heads are strided views of
 * q, k, v
 * and y. */
#include "kernels/cpu/cpu_internal.h"

#include <string.h>

enum { BLOCK_QUERIES = 64 };

typedef struct attention {
    const dfx_cpu *cpu;
    const dfx_mat *y, *q, *k, *v, *bias, *y_scale;
    int64_t head; /* values a head */
    int64_t n_blocks;
    float scale;
    bool causal;
} attention;

static int64_t block_queries(const dfx_op_call *call) {
    return dfx_cpu_min(BLOCK_QUERIES, call->m[0].rows);
}

/* Worker scratch: scores of a block, and its rows of y where that is codes. */
dfx_cpu_scratch_need dfx_cpu_attention_scratch(const dfx_op_call *call) {
    int64_t n_queries = block_queries(call);
    size_t n_scores = (size_t)(n_queries * call->m[DFX_ATTN_K].rows);
    size_t n_values = (size_t)(n_queries * (call->m[0].cols / call->p.n_heads));
    if (!dfx_op_is_codes(call, 0))
        n_values = 0;
    return (dfx_cpu_scratch_need){.worker_bytes = (n_scores + n_values) * sizeof(float)};
}

static float *head_of(const dfx_mat *m, int64_t row, int64_t head, int64_t head_size) {
    return (float *)m->ptr + row * m->ld + head * head_size;
}

/* Scores of one query to weights, not yet divided by their sum, which is returned. Keys it may not see get 0. */
static float soften(const attention *a, int64_t head, int64_t query, float *scores,
                    int64_t n_keys) {
    int64_t n_seen = a->causal ? dfx_cpu_min(n_keys, query + 1) : n_keys;
    if (a->bias->ptr) {
        const float *bias = (const float *)a->bias->ptr + head * a->bias->ld;
        bias += a->k->rows - 1 - query; /* of key 0 */
        for (int64_t key = 0; key < n_seen; key++)
            scores[key] += bias[key];
    }
    float sum = dfx_cpu_exp_sub_max(scores, n_seen);
    memset(scores + n_seen, 0, (size_t)(n_keys - n_seen) * sizeof(float));
    return sum;
}

static void run_block(void *ctx, int64_t index, int worker) {
    const attention *a = ctx;
    int64_t head = index / a->n_blocks, e = a->head;
    int64_t q0 = index % a->n_blocks * BLOCK_QUERIES,
            qb = dfx_cpu_min(BLOCK_QUERIES, a->q->rows - q0);
    int64_t n_keys = a->causal ? dfx_cpu_min(a->k->rows, q0 + qb) : a->k->rows;
    float *scores = dfx_cpu_worker_scratch(a->cpu, worker);
    float *y = head_of(a->y, q0, head, e), sums[BLOCK_QUERIES];
    int64_t ldy = a->y->ld;
    if (a->y_scale->ptr) {
        y = scores + qb * n_keys;
        ldy = e;
    }
    dfx_cpu_sgemm(&a->cpu->blas, true, qb, n_keys, e, a->scale, head_of(a->q, q0, head, e),
                  a->q->ld, head_of(a->k, 0, head, e), a->k->ld, 0.0f, scores, n_keys);
    for (int64_t i = 0; i < qb; i++)
        sums[i] = soften(a, head, q0 + i, scores + i * n_keys, n_keys);
    dfx_cpu_sgemm(&a->cpu->blas, false, qb, e, n_keys, 1.0f, scores, n_keys,
                  head_of(a->v, 0, head, e), a->v->ld, 0.0f, y, ldy);
    for (int64_t i = 0; i < qb; i++)
        for (int64_t j = 0; j < e; j++)
            y[i * ldy + j] /= sums[i];
    if (a->y_scale->ptr)
        dfx_cpu_codes_by_scales(a->y, a->y_scale, q0, qb, head * e, e, y);
}

dfx_status dfx_cpu_attention(dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    attention a = {.cpu = cpu,
                   .y = &m[0],
                   .q = &m[DFX_ATTN_Q],
                   .k = &m[DFX_ATTN_K],
                   .v = &m[DFX_ATTN_V],
                   .bias = &m[DFX_ATTN_BIAS],
                   .y_scale = &m[DFX_ATTN_Y_SCALE],
                   .head = m[0].cols / call->p.n_heads,
                   .n_blocks = (m[0].rows + BLOCK_QUERIES - 1) / BLOCK_QUERIES,
                   .scale = call->p.scale,
                   .causal = call->p.causal};
    return dfx_pool_run(cpu->pool, a.n_blocks * call->p.n_heads, run_block, &a);
}
