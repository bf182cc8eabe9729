/* Arithmetic that several CPU ops share: widening a row, dot products, exp and the activations.
 *
 * exp is written from adds and multiplies alone, so that loops over it become vector code and every machine gets the
 * same bits. All three activations are x * sigmoid(g(x)) = x / (1 + exp(-g(x))); for gelu_tanh because
 * (1 + tanh u) / 2 = sigmoid(2 u), which keeps its relative accuracy where 1 + tanh u would cancel. */
#include "kernels/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

dfx_mat dfx_cpu_row_part(const dfx_mat *m, int64_t row, int64_t col, int64_t cols) {
    if (!m->ptr)
        return (dfx_mat){0};
    size_t off = (size_t)(row * m->ld + col) * dfx_dtype_bytes(m->dtype);
    return (dfx_mat){(char *)m->ptr + off, 1, cols, m->ld, m->dtype};
}

const float *dfx_cpu_row(const dfx_mat *m, int64_t row, float *buf) {
    const char *src = (const char *)m->ptr + (size_t)(row * m->ld) * dfx_dtype_bytes(m->dtype);
    if (m->dtype == DFX_DTYPE_F32 && (uintptr_t)src % sizeof(float) == 0)
        return (const float *)src;
    dfx_to_f32(m->dtype, src, buf, (size_t)m->cols);
    return buf;
}

static inline float join_sum(float lane[DFX_LANES]) {
    for (int half = DFX_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

DFX_CPU_CLONES float dfx_cpu_dot(const float *a, const float *b, int64_t n) {
    float lane[DFX_LANES] = {0};
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int l = 0; l < DFX_LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += a[i + l] * b[i + l];
    return join_sum(lane);
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2. Taylor to r^7: what is left out is below
 * r^8 / 8! < 6e-9, a tenth of an ulp. 2^n goes in by two factors, so that results fade through the denormals to 0 and
 * grow to infinity; beyond the clamps both have been reached. Comparisons are written so that NaN passes. */
static inline float exp_f32(float x) {
    const float lowest = -104.0f, highest = 89.0f;
    const float to_int =
        12582912.0f; /* 1.5 * 2^23: the low bits of a sum with it are the rounded integer */
    const float log2_e = 0x1.715476p+0f;
    const float ln2_hi = 0x1.63p-1f, ln2_lo = -0x1.bd0106p-13f; /* 10 bits: n * ln2_hi is exact */
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
    float shifted = x * log2_e + to_int;
    float n = shifted - to_int;
    float r = (x - n * ln2_hi) - n * ln2_lo;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    p = p + 1.0f;
    uint32_t bits, to_int_bits = 0x4b400000;
    memcpy(&bits, &shifted, sizeof(bits));
    uint32_t power = bits - to_int_bits;
    uint32_t half = (uint32_t)((int32_t)power >> 1);
    return p * float_of((half + 127) << 23) * float_of((power - half + 127) << 23);
}

DFX_CPU_CLONES static void silu(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_f32(-x[i]));
}

DFX_CPU_CLONES static void gelu_tanh(float *x, int64_t n) {
    const float twice_root = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
    for (int64_t i = 0; i < n; i++) {
        float u = twice_root * (x[i] + 0.044715f * (x[i] * x[i] * x[i]));
        x[i] = x[i] / (1.0f + exp_f32(-u));
    }
}

DFX_CPU_CLONES static void quick_gelu(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_f32(-1.702f * x[i]));
}

void dfx_cpu_act(dfx_act act, float *x, int64_t n) {
    switch (act) {
    case DFX_ACT_NONE:
        return;
    case DFX_ACT_SILU:
        silu(x, n);
        return;
    case DFX_ACT_GELU_TANH:
        gelu_tanh(x, n);
        return;
    case DFX_ACT_QUICK_GELU:
        quick_gelu(x, n);
        return;
    }
}

DFX_CPU_CLONES static float greatest(const float *x, int64_t n) {
    float lane[DFX_LANES], max = -INFINITY;
    for (int l = 0; l < DFX_LANES; l++)
        lane[l] = -INFINITY;
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int l = 0; l < DFX_LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; i + l < n; l++)
        lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; l < DFX_LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

DFX_CPU_CLONES float dfx_cpu_exp_sub_max(float *x, int64_t n) {
    float lane[DFX_LANES] = {0}, max = greatest(x, n);
    int64_t i = 0;
    for (; i + DFX_LANES <= n; i += DFX_LANES)
        for (int l = 0; l < DFX_LANES; l++) {
            x[i + l] = exp_f32(x[i + l] - max);
            lane[l] += x[i + l];
        }
    for (int l = 0; i + l < n; l++) {
        x[i + l] = exp_f32(x[i + l] - max);
        lane[l] += x[i + l];
    }
    return join_sum(lane);
}
