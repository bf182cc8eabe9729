/* See attended_seen.h. */
#include "tests/attended_seen.h"

#include <math.h>

enum { T = MLP_T, A = MLP_A, H = ATTENDED_H, E = ATTENDED_E };

/* Softmax of scores over all of n keys; means of values, of one head. */
static void attend(attended_seen *a, int n, int h) {
    for (int t = 0; t < n; t++) {
        double p[T], max = -INFINITY, sum = 0;
        for (int s = 0; s < n; s++) {
            p[s] = 0;
            for (int i = h * E; i < (h + 1) * E; i++)
                p[s] += a->q[t * A + i] * a->k[s * A + i] / sqrt(E);
            max = fmax(max, p[s]);
        }
        for (int s = 0; s < n; s++)
            sum += p[s] = exp(p[s] - max);
        for (int i = h * E; i < (h + 1) * E; i++) {
            a->want[t * A + i] = 0;
            for (int s = 0; s < n; s++)
                a->want[t * A + i] += p[s] / sum * a->v[s * A + i];
        }
    }
}

static double at(const dfx_mat *m, int64_t row, int64_t col) {
    return (double)((const float *)m->ptr)[row * m->ld + col];
}

/* q, k and v as ATTENTION has them. */
static void read_values(attended_seen *a, const dfx_mat *m, int n) {
    for (int i = 0; i < n * A; i++) {
        a->q[i] = at(&m[DFX_ATTN_Q], i / A, i % A);
        a->k[i] = at(&m[DFX_ATTN_K], i / A, i % A);
        a->v[i] = at(&m[DFX_ATTN_V], i / A, i % A);
    }
}

/* What codes of ATTENTION_CODES stand for. */
static void decode_operands(attended_seen *a, const dfx_mat *m, int n) {
    const dfx_mat *q = &m[DFX_ATTN_Q], *k = &m[DFX_ATTN_K], *v = &m[DFX_ATTN_V];
    const dfx_mat *center = &m[DFX_ATTN_CENTER];
    for (int i = 0; i < n * A; i++) {
        int t = i / A, c = i % A;
        uint8_t value = ((const uint8_t *)v->ptr)[c * v->ld + dfx_v_codes_place(t)];
        a->q[i] = ((const int8_t *)q->ptr)[t * q->ld + c] * at(&m[DFX_ATTN_Q_SCALE], t, c / E);
        a->k[i] = ((const int8_t *)k->ptr)[t * k->ld + c] * at(center, DFX_CENTER_KEY_SCALE, c);
        a->v[i] = (double)dfx_e4m3_to_f32(value) * at(center, DFX_CENTER_VALUE_SCALE, c) +
                  at(center, DFX_CENTER_VALUE, c);
    }
}

void attended_look(attended_seen *a, const dfx_op_call *call) {
    int n = (int)call->m[0].rows;
    if (call->kind == DFX_OP_ATTENTION)
        read_values(a, call->m, n);
    else if (call->kind == DFX_OP_ATTENTION_CODES)
        decode_operands(a, call->m, n);
    else
        return;
    for (int i = 0; i < n * A; i++)
        a->greatest = fmax(a->greatest, fabs(a->v[i]));
    for (int h = 0; h < H; h++)
        attend(a, n, h);
}
