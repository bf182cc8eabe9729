/* What the files of the CPU backend share. One op a function; each finds its operands in the call by slot, cuts the
 * work into indices that do not depend on the number of threads, and runs them on the pool.
 *
 * Bits: own loops give the same bits on every machine: sums are written with DFX_LANES accumulators joined in a fixed
 * order, so the compiler may use vectors of any width without changing a result. Products through OpenBLAS give the same
 * bits for the same shapes on the same kind of processor. */
#ifndef DFX_KERNELS_CPU_INTERNAL_H
#define DFX_KERNELS_CPU_INTERNAL_H

#include "core/pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_blas.h"

/* Clones of hot loops for wider vectors, chosen at load time. Not under sanitizers, whose start-up they precede. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DFX_SANITIZED)
#define DFX_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DFX_CPU_CLONES
#endif

/* On the innermost loops of products: a sanitized build optimizes them and leaves them unchecked, or its tests take minutes. */
#ifdef DFX_SANITIZED
#define DFX_CPU_INNERMOST __attribute__((no_sanitize("address", "undefined"), optimize("O3")))
#else
#define DFX_CPU_INNERMOST
#endif

enum { DFX_LANES = 16 };

static inline int64_t dfx_cpu_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t dfx_cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What one call wants: per worker, and once for all. Multiples of 64 are made by the caller. */
typedef struct dfx_cpu_scratch_need {
    size_t worker_bytes, shared_bytes;
} dfx_cpu_scratch_need;

typedef struct dfx_cpu {
    dfx_backend base; /* first: a dfx_backend pointer is a dfx_cpu pointer */
    dfx_pool *pool;   /* owned */
    dfx_cpu_blas blas;
    dfx_mem
        scratch; /* owned; n_threads slices of worker_scratch_bytes, then shared_scratch_bytes */
    size_t worker_scratch_bytes, shared_scratch_bytes;
    dfx_cpu_scratch_need wanted; /* by what was prepared */
} dfx_cpu;

/* cpu_describe.c */
void dfx_cpu_describe(const dfx_backend *be, dfx_device_facts *out);

void *dfx_cpu_worker_scratch(const dfx_cpu *cpu, int worker); /* 64-byte aligned */
void *dfx_cpu_shared_scratch(const dfx_cpu *cpu);

/* Row `row` of an activation. */
static inline float *dfx_cpu_f32(const dfx_mat *m, int64_t row) {
    return (float *)m->ptr + row * m->ld;
}

/* A row of `m` as f32: the address itself when it is f32 and 4-byte aligned, else widened into `buf` (m->cols floats). */
const float *dfx_cpu_row(const dfx_mat *m, int64_t row, float *buf);

/* Columns [col, col + cols) of one row of `m`, for dfx_cpu_row and the like; all zero when `m` is left out. */
dfx_mat dfx_cpu_row_part(const dfx_mat *m, int64_t row, int64_t col, int64_t cols);

/* Sum of a[i]*b[i], i < n, in f32 with DFX_LANES accumulators. */
float dfx_cpu_dot(const float *a, const float *b, int64_t n);

/* x[i] = act(x[i]), i < n. */
void dfx_cpu_act(dfx_act act, float *x, int64_t n);

/* x[i] = exp(x[i] - max), returns their sum; max is the greatest x. n >= 1. */
float dfx_cpu_exp_sub_max(float *x, int64_t n);

/* Ops: those with scratch say how much.
 * LINEAR without scales (cpu_linear.c), with scales (cpu_linear_q.c), and of those the int8 product (cpu_linear_int8.c). */
dfx_cpu_scratch_need dfx_cpu_linear_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_linear(dfx_cpu *cpu, const dfx_op_call *call);
dfx_cpu_scratch_need dfx_cpu_linear_q_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_linear_q(dfx_cpu *cpu, const dfx_op_call *call);
dfx_cpu_scratch_need dfx_cpu_linear_int8_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_linear_int8(dfx_cpu *cpu, const dfx_op_call *call);

/* cpu_quantize.c; dfx_cpu_quantize_row: codes [n] of `to` from x [n], returns their scale. */
dfx_status dfx_cpu_quantize(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_bound(dfx_cpu *cpu, const dfx_op_call *call);

/* Rows [row0, row0 + rows), columns [col, col + cols) of y, F8_E4M3, by y_scale [1, rows of y], from packed values. */
void dfx_cpu_codes_by_scales(const dfx_mat *y, const dfx_mat *y_scale, int64_t row0, int64_t rows,
                             int64_t col, int64_t cols, const float *values);
float dfx_cpu_quantize_row(dfx_dtype to, const float *x, int64_t n, void *codes);

/* Where row t of an output goes that may be codes: the output, or the start of the worker's scratch (y->cols floats), of which
 * row_done then makes codes and scale. */
float *dfx_cpu_row_out(const dfx_cpu *cpu, const dfx_op_call *call, int64_t t, int worker);
void dfx_cpu_row_done(const dfx_op_call *call, int64_t t, const float *row);

/* LINEAR of `x` [M,K] f32 in place of the call's, in the scratch of dfx_cpu_linear_scratch; products of row m are
 * multiplied by row_scales[m] (NULL: not). */
dfx_status dfx_cpu_linear_products(dfx_cpu *cpu, const dfx_op_call *call, const dfx_mat *x,
                                   const float *row_scales);

/* cpu_conv.c, cpu_attention.c */
dfx_cpu_scratch_need dfx_cpu_conv2d_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_conv2d(dfx_cpu *cpu, const dfx_op_call *call);
dfx_cpu_scratch_need dfx_cpu_attention_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_attention(dfx_cpu *cpu, const dfx_op_call *call);

/* cpu_norm.c, cpu_rope.c */
dfx_cpu_scratch_need dfx_cpu_norm_scratch(const dfx_op_call *call); /* all norms and QKNORM_ROPE */
dfx_status dfx_cpu_layernorm(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_rmsnorm(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_groupnorm(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_groupnorm_stats(dfx_cpu *cpu, const dfx_op_call *call);

/* What GROUPNORM does to a pixel, coefficients as in GROUPNORM_STATS: y[c] = act((x[c] - mean[c]) * mul[c] + add[c]),
 * c < n. y may be x. */
void dfx_cpu_norm_pixel(float *y, const float *x, const float *mean, const float *mul,
                        const float *add, dfx_act act, int64_t n);

dfx_status dfx_cpu_qknorm_rope(dfx_cpu *cpu, const dfx_op_call *call);

/* What QKNORM_ROPE makes of one head of token t, for ops that go on from there: y may be x. _of: from the slot of the weight,
 * behind which the tables are; the weight is widened into the start of shared scratch. */
typedef struct dfx_cpu_norm_rope {
    const float *w;           /* [head] */
    const dfx_mat *cos, *sin; /* ptr NULL: no rotation */
    int64_t head;
    float eps;
} dfx_cpu_norm_rope;
dfx_cpu_norm_rope dfx_cpu_norm_rope_of(const dfx_cpu *cpu, const dfx_op_call *call, int w_slot);
void dfx_cpu_norm_rope_head(float *y, const float *x, const dfx_cpu_norm_rope *p, int64_t t);

/* cpu_qkv_codes.c, cpu_attention_codes.c */
dfx_cpu_scratch_need dfx_cpu_qkv_codes_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_kv_center(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_qk_codes(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_v_codes(dfx_cpu *cpu, const dfx_op_call *call);
dfx_cpu_scratch_need dfx_cpu_attention_codes_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_attention_codes(dfx_cpu *cpu, const dfx_op_call *call);

/* cpu_rel_diff.c */
dfx_cpu_scratch_need dfx_cpu_rel_diff_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_rel_diff(dfx_cpu *cpu, const dfx_op_call *call);

/* cpu_pointwise.c, cpu_rel_bias.c, cpu_layout.c */
dfx_status dfx_cpu_act_op(dfx_cpu *cpu, const dfx_op_call *call);
dfx_cpu_scratch_need dfx_cpu_act_mul_scratch(const dfx_op_call *call);
dfx_status dfx_cpu_act_mul(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_add(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_axpy(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_sinusoid(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_rel_bias(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_pack(dfx_cpu *cpu, const dfx_op_call *call);
dfx_status dfx_cpu_unpack(dfx_cpu *cpu, const dfx_op_call *call);

#endif
