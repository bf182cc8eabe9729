/* ATTENTION_CODES on the CPU: one index is one head and a block of queries.
 *
 * Codes of the head's keys are widened into worker scratch, then its values in the order of their tokens, and both products
 * are sgemm's. A score is a sum of whole numbers, which f32 holds exactly up to heads of 1040 columns; weights are f32. Row
 * by row as in cpu_attention.c, nothing of size Tq x Tk is held. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>

enum { BLOCK_QUERIES = 64 };

typedef struct attention {
    const dfx_cpu *cpu;
    const dfx_op_call *call;
    int64_t head; /* values a head */
    int64_t n_blocks, n_keys;
    int64_t scores_floats,
        queries_floats; /* of worker scratch: scores, queries, then keys or values */
} attention;

static int64_t round_up(int64_t n_floats) {
    return (n_floats + DFX_LANES - 1) / DFX_LANES * DFX_LANES;
}

static attention attention_of(const dfx_cpu *cpu, const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    int64_t head = m[0].cols / call->p.n_heads, n_keys = m[DFX_ATTN_K].rows;
    int64_t n_queries = dfx_cpu_min(BLOCK_QUERIES, m[0].rows);
    return (attention){.cpu = cpu,
                       .call = call,
                       .head = head,
                       .n_blocks = dfx_cpu_ceil_div(m[0].rows, BLOCK_QUERIES),
                       .n_keys = n_keys,
                       .scores_floats = round_up(n_queries * n_keys),
                       .queries_floats = round_up(n_queries * head)};
}

dfx_cpu_scratch_need dfx_cpu_attention_codes_scratch(const dfx_op_call *call) {
    attention a = attention_of(NULL, call);
    size_t n = (size_t)(a.scores_floats + a.queries_floats + round_up(a.n_keys * a.head));
    if (dfx_op_is_codes(call, 0))
        n += (size_t)a.queries_floats;
    return (dfx_cpu_scratch_need){.worker_bytes = n * sizeof(float)};
}

/* Rows [row0, row0 + n) of a head of codes, packed. */
static void widen_rows(const dfx_mat *m, int64_t row0, int64_t n, int64_t col, int64_t head,
                       float *to) {
    for (int64_t i = 0; i < n; i++)
        dfx_to_f32(m->dtype, (const char *)m->ptr + (row0 + i) * m->ld + col, to + i * head,
                   (size_t)head);
}

/* values[c, t] = code of value c of token t. */
static void widen_values(const dfx_mat *v, int64_t col, int64_t head, int64_t n_keys,
                         float *values) {
    for (int64_t c = 0; c < head; c++) {
        const uint8_t *codes = (const uint8_t *)v->ptr + (col + c) * v->ld;
        for (int64_t t = 0; t < n_keys; t++)
            values[c * n_keys + t] = dfx_e4m3_to_f32(codes[dfx_v_codes_place(t)]);
    }
}

/* Sums of products of codes to weights, not yet divided by their sum, which is returned. */
static float soften(float *scores, float scale, int64_t n_keys) {
    for (int64_t key = 0; key < n_keys; key++)
        scores[key] *= scale;
    return dfx_cpu_exp_sub_max(scores, n_keys);
}

static void run_block(void *ctx, int64_t index, int worker) {
    const attention *a = ctx;
    const dfx_mat *m = a->call->m, *y = &m[0], *center = &m[DFX_ATTN_CENTER];
    int64_t h = index / a->n_blocks, col = h * a->head;
    int64_t q0 = index % a->n_blocks * BLOCK_QUERIES, qb = dfx_cpu_min(BLOCK_QUERIES, y->rows - q0);
    float *scores = dfx_cpu_worker_scratch(a->cpu, worker), *queries = scores + a->scores_floats;
    const dfx_mat *y_scale = &m[DFX_ATTN_CODES_Y_SCALE];
    float *wide = queries + a->queries_floats, *out = dfx_cpu_f32(y, q0) + col;
    int64_t ldy = y->ld;
    if (y_scale->ptr) {
        out = wide + round_up(a->n_keys * a->head);
        ldy = a->head;
    }
    float sums[BLOCK_QUERIES], key_scale = dfx_cpu_f32(center, DFX_CENTER_KEY_SCALE)[col];
    const float *means = dfx_cpu_f32(center, DFX_CENTER_VALUE) + col;
    const float *scales = dfx_cpu_f32(center, DFX_CENTER_VALUE_SCALE) + col;
    widen_rows(&m[DFX_ATTN_Q], q0, qb, col, a->head, queries);
    widen_rows(&m[DFX_ATTN_K], 0, a->n_keys, col, a->head, wide);
    dfx_cpu_sgemm(&a->cpu->blas, true, qb, a->n_keys, a->head, 1.0f, queries, a->head, wide,
                  a->head, 0.0f, scores, a->n_keys);
    for (int64_t i = 0; i < qb; i++) {
        float query_scale = dfx_cpu_f32(&m[DFX_ATTN_Q_SCALE], q0 + i)[h];
        sums[i] =
            soften(scores + i * a->n_keys, a->call->p.scale * query_scale * key_scale, a->n_keys);
    }
    widen_values(&m[DFX_ATTN_V], col, a->head, a->n_keys, wide);
    dfx_cpu_sgemm(&a->cpu->blas, true, qb, a->head, a->n_keys, 1.0f, scores, a->n_keys, wide,
                  a->n_keys, 0.0f, out, ldy);
    for (int64_t i = 0; i < qb; i++)
        for (int64_t c = 0; c < a->head; c++)
            out[i * ldy + c] = out[i * ldy + c] / sums[i] * scales[c] + means[c];
    if (y_scale->ptr)
        dfx_cpu_codes_by_scales(y, y_scale, q0, qb, col, a->head, out);
}

dfx_status dfx_cpu_attention_codes(dfx_cpu *cpu, const dfx_op_call *call) {
    attention a = attention_of(cpu, call);
    return dfx_pool_run(cpu->pool, a.n_blocks * call->p.n_heads, run_block, &a);
}
