/* Whether a call keeps to the op contract: kernels/ops.h in words, ops.c as data.
 *
 * dfx_op_check looks at every operand by itself first (there or not, type, ld, address span), then at the shapes
 * against each other. After the first part every rows * ld * 8 fits an int64_t, so the second may multiply the
 * dimensions of one operand; products of parameters are checked where they are made. */
#include <math.h>

#include "kernels/ops_internal.h"

#define BIT(slot) (1u << (slot))

/* What is being checked, for the messages. */
typedef struct check {
    const dfx_op_call *call;
    const dfx_sink *sink;
} check;

static const char *op_name(const check *c) {
    return dfx_op_info_of(c->call->kind)->name;
}

static const char *slot_name(const check *c, int slot) {
    return dfx_op_slot_name(c->call->kind, slot);
}

static bool present(const dfx_mat *m) {
    return dfx_op_present(m);
}

/* A parameter, or a relation of shapes, is not as wanted. */
static dfx_status want(const check *c, bool holds, const char *wanted, int64_t found) {
    if (holds)
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted %s, found %lld", op_name(c), wanted,
                    (long long)found);
}

static dfx_status want_finite(const check *c, float value, const char *name) {
    if (isfinite(value))
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted a finite %s, found %g", op_name(c),
                    name, (double)value);
}

static dfx_status want_eps(const check *c) {
    float eps = c->call->p.eps;
    if (isfinite(eps) && eps >= 0)
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted eps >= 0, found %g", op_name(c),
                    (double)eps);
}

static dfx_status want_act(const check *c) {
    unsigned act = c->call->p.act;
    return want(c, act <= DFX_ACT_QUICK_GELU, "a known activation", act);
}

/* An operand that is there is [rows, cols]. */
static dfx_status want_shape(const check *c, int slot, int64_t rows, int64_t cols) {
    const dfx_mat *m = &c->call->m[slot];
    if (!present(m) || (m->rows == rows && m->cols == cols))
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: %s wanted [%lld, %lld], found [%lld, %lld]",
                    op_name(c), slot_name(c, slot), (long long)rows, (long long)cols,
                    (long long)m->rows, (long long)m->cols);
}

/* y, where there is this operand. */
static dfx_status want_e4m3(const check *c, int slot) {
    dfx_dtype dtype = c->call->m[0].dtype;
    if (!present(&c->call->m[slot]) || dtype == DFX_DTYPE_F8_E4M3)
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted y of F8_E4M3 beside %s, found %s",
                    op_name(c), slot_name(c, slot), dfx_dtype_name(dtype));
}

static dfx_status want_like(const check *c, int slot, const dfx_mat *like) {
    return want_shape(c, slot, like->rows, like->cols);
}

static dfx_status want_pair(const check *c, int a, int b) {
    if (present(&c->call->m[a]) == present(&c->call->m[b]))
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted both %s and %s, or neither; found one",
                    op_name(c), slot_name(c, a), slot_name(c, b));
}

static dfx_status check_dtype(const check *c, int slot) {
    dfx_op_kind kind = c->call->kind;
    dfx_dtype dtype = c->call->m[slot].dtype, fixed = dfx_op_fixed_codes(kind, slot);
    const char *wanted = NULL;
    if (fixed != DFX_DTYPE_U8)
        wanted = dtype == fixed ? NULL : dfx_dtype_name(fixed);
    else if (dfx_op_wants_f32(kind, slot))
        wanted = dtype == DFX_DTYPE_F32 ? NULL : "F32";
    else if (dfx_op_codes_scale(c->call, slot))
        wanted = dtype == DFX_DTYPE_I8 || dtype == DFX_DTYPE_F8_E4M3 ? NULL : "I8 or F8_E4M3";
    else if (dfx_op_info_of(kind)->weights & BIT(slot))
        wanted = dfx_dtype_is_numeric(dtype) ? NULL : "a type that can be widened to F32";
    else
        wanted = dtype == DFX_DTYPE_F32 || dtype == DFX_DTYPE_BF16 ? NULL : "F32 or BF16";
    if (!wanted)
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: %s wanted %s, found %s", op_name(c),
                    slot_name(c, slot), wanted, dfx_dtype_name(dtype));
}

/* There or rightly left out; a type of its role; rows that do not overlap; a span of bytes that can be addressed. */
static dfx_status check_operand(const check *c, int slot) {
    const dfx_op_info *info = dfx_op_info_of(c->call->kind);
    const dfx_mat *m = &c->call->m[slot];
    if (slot >= info->n_slots)
        return want(c, !present(m), "no operand beyond its slots", slot);
    if (!present(m)) {
        if (info->optional & BIT(slot))
            return DFX_OK;
        return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted operand %s, found none", op_name(c),
                        slot_name(c, slot));
    }
    int64_t span;
    if (m->rows < 1 || m->cols < 1 || m->ld < m->cols ||
        __builtin_mul_overflow(m->rows, m->ld, &span) || __builtin_mul_overflow(span, 8, &span))
        return dfx_fail(c->sink, DFX_E_INTERNAL,
                        "op %s: %s wanted rows and cols of at least 1, ld >= cols and a size below "
                        "2^63 bytes, found [%lld, %lld] with ld %lld",
                        op_name(c), slot_name(c, slot), (long long)m->rows, (long long)m->cols,
                        (long long)m->ld);
    return check_dtype(c, slot);
}

/* The longest sum of int8 products that cannot leave int32: codes of x are at most 127, of w 128 in magnitude. */
enum { INT8_K_MAX = INT32_MAX / (127 * 128) };

/* Which weights have a scale, and what follows from it. e4m3 without one is a narrow type like any other; int8 codes mean
 * nothing by themselves. */
static dfx_status check_linear_scale(const check *c) {
    const dfx_mat *w = &c->call->m[DFX_LINEAR_W], *scale = &c->call->m[DFX_LINEAR_SCALE];
    bool weight_only = c->call->p.weight_only;
    if (!present(scale)) {
        if (w->dtype != DFX_DTYPE_I8 && !weight_only)
            return DFX_OK;
        return dfx_fail(c->sink, DFX_E_INTERNAL, "op %s: wanted a scale beside %s, found none",
                        op_name(c), weight_only ? "weight_only" : "w of I8");
    }
    if (w->dtype != DFX_DTYPE_I8 && w->dtype != DFX_DTYPE_F8_E4M3)
        return dfx_fail(c->sink, DFX_E_INTERNAL,
                        "op %s: wanted w of I8 or F8_E4M3 beside a scale, found %s", op_name(c),
                        dfx_dtype_name(w->dtype));
    DFX_TRY(want_shape(c, DFX_LINEAR_SCALE, 1, c->call->m[0].cols));
    return want(c, w->dtype != DFX_DTYPE_I8 || weight_only || w->cols <= INT8_K_MAX,
                "int8 products of at most 132104 columns, so that int32 holds their sum", w->cols);
}

static bool is_plain(dfx_dtype dtype) {
    return dtype == DFX_DTYPE_F32 || dtype == DFX_DTYPE_F16 || dtype == DFX_DTYPE_BF16;
}

static dfx_status check_linear_x_scale(const check *c) {
    const dfx_mat *m = c->call->m;
    dfx_dtype x = m[DFX_LINEAR_X].dtype, w = m[DFX_LINEAR_W].dtype;
    if (!present(&m[DFX_LINEAR_X_SCALE]))
        return DFX_OK;
    DFX_TRY(want_shape(c, DFX_LINEAR_X_SCALE, 1, m[0].rows));
    if (present(&m[DFX_LINEAR_SCALE]) ? !c->call->p.weight_only && x == w : is_plain(w))
        return DFX_OK;
    return dfx_fail(c->sink, DFX_E_INTERNAL,
                    "op %s: wanted w of %s with a scale, or of F32, F16 or BF16, beside codes of "
                    "x, found %s",
                    op_name(c), dfx_dtype_name(x), dfx_dtype_name(w));
}

static dfx_status check_linear_adapter(const check *c) {
    const dfx_mat *m = c->call->m, *t = &m[DFX_LINEAR_T];
    DFX_TRY(want_pair(c, DFX_LINEAR_T, DFX_LINEAR_U));
    if (!present(t))
        return DFX_OK;
    DFX_TRY(want(c, t->cols % DFX_ADAPTER_GRAIN == 0 && t->cols <= DFX_ADAPTER_RANK_MAX,
                 "t of a multiple of 16 columns, at most 512", t->cols));
    DFX_TRY(want_shape(c, DFX_LINEAR_T, m[0].rows, t->cols));
    return want_shape(c, DFX_LINEAR_U, m[0].cols, t->cols);
}

/* Scales by which y is made codes. */
static dfx_status want_y_scale(const check *c) {
    int slot = dfx_op_y_scale_given(c->call->kind);
    DFX_TRY(want_shape(c, slot, 1, c->call->m[0].rows));
    return want_e4m3(c, slot);
}

static dfx_status check_linear_y_scale(const check *c) {
    const dfx_mat *m = c->call->m;
    if (!present(&m[DFX_LINEAR_Y_SCALE]))
        return DFX_OK;
    DFX_TRY(want_y_scale(c));
    return want(c,
                !present(&m[DFX_LINEAR_GATE]) && !present(&m[DFX_LINEAR_R]) &&
                    !present(&m[DFX_LINEAR_T]),
                "no gate, r and t beside y_scale", DFX_LINEAR_Y_SCALE);
}

static dfx_status check_linear(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_shape(c, DFX_LINEAR_X, m[0].rows, m[DFX_LINEAR_W].cols));
    DFX_TRY(want_shape(c, DFX_LINEAR_W, m[0].cols, m[DFX_LINEAR_X].cols));
    DFX_TRY(want_shape(c, DFX_LINEAR_B, 1, m[0].cols));
    DFX_TRY(want_shape(c, DFX_LINEAR_GATE, 1, m[0].cols));
    DFX_TRY(want_like(c, DFX_LINEAR_R, &m[0]));
    DFX_TRY(check_linear_scale(c));
    DFX_TRY(check_linear_x_scale(c));
    DFX_TRY(check_linear_adapter(c));
    DFX_TRY(check_linear_y_scale(c));
    return want_act(c);
}

static dfx_status check_layernorm(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_like(c, DFX_NORM_X, &m[0]));
    for (int slot = DFX_NORM_W; slot <= DFX_NORM_SHIFT; slot++)
        DFX_TRY(want_shape(c, slot, 1, m[0].cols));
    DFX_TRY(want_shape(c, DFX_NORM_Y_SCALE, 1, m[0].rows));
    DFX_TRY(want_shape(c, DFX_NORM_Y_NORM, 1, m[0].rows));
    DFX_TRY(want(c, !present(&m[DFX_NORM_Y_NORM]) || present(&m[DFX_NORM_Y_SCALE]),
                 "y_scale beside y_norm", DFX_NORM_Y_NORM));
    DFX_TRY(want_pair(c, DFX_NORM_SCALE, DFX_NORM_SHIFT));
    DFX_TRY(want(
        c, !present(&m[DFX_NORM_SCALE]) || !(present(&m[DFX_NORM_W]) || present(&m[DFX_NORM_B])),
        "either w and b or scale and shift", DFX_NORM_SCALE));
    return want_eps(c);
}

static dfx_status check_quantize(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_like(c, DFX_QUANTIZE_X, &m[0]));
    DFX_TRY(want_shape(c, DFX_QUANTIZE_LEAST, 1, m[0].rows));
    DFX_TRY(want_e4m3(c, DFX_QUANTIZE_LEAST));
    return want_shape(c, DFX_QUANTIZE_Y_SCALE, 1, m[0].rows);
}

static dfx_status check_bound(const check *c) {
    const dfx_mat *m = c->call->m;
    int64_t n_cols = m[DFX_BOUND_W_SCALE].cols;
    DFX_TRY(want_shape(c, 0, 1, m[0].cols));
    DFX_TRY(want_like(c, DFX_BOUND_X_NORM, &m[0]));
    DFX_TRY(want_shape(c, DFX_BOUND_W_SCALE, 1, n_cols));
    DFX_TRY(want_shape(c, DFX_BOUND_B, 1, n_cols));
    int64_t n_v = m[DFX_BOUND_V_SCALE].cols;
    DFX_TRY(want_shape(c, DFX_BOUND_V_SCALE, 1, n_v));
    DFX_TRY(want_shape(c, DFX_BOUND_V_B, 1, n_v));
    return want_finite(c, c->call->p.scale, "scale");
}

static dfx_status check_rmsnorm(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_like(c, DFX_NORM_X, &m[0]));
    DFX_TRY(want_shape(c, DFX_NORM_W, 1, m[0].cols));
    DFX_TRY(want_shape(c, DFX_RMSNORM_Y_SCALE, 1, m[0].rows));
    return want_eps(c);
}

/* Heads divide the width. */
static dfx_status want_heads(const check *c, int64_t width) {
    int64_t n_heads = c->call->p.n_heads;
    DFX_TRY(want(c, n_heads >= 1, "n_heads >= 1", n_heads));
    return want(c, width % n_heads == 0, "a width that n_heads divides", width);
}

/* Weight of a head's norm, and after it the two tables of RoPE. */
static dfx_status want_norm_rope(const check *c, int w_slot, const dfx_mat *x) {
    int cos = w_slot + 1, sin = w_slot + 2;
    DFX_TRY(want_heads(c, x->cols));
    int64_t head = x->cols / c->call->p.n_heads;
    DFX_TRY(want_shape(c, w_slot, 1, head));
    DFX_TRY(want_pair(c, cos, sin));
    if (present(&c->call->m[cos])) {
        DFX_TRY(want(c, head % 2 == 0, "an even head size", head));
        DFX_TRY(want_shape(c, cos, x->rows, head / 2));
        DFX_TRY(want_shape(c, sin, x->rows, head / 2));
    }
    return want_eps(c);
}

static dfx_status check_qknorm_rope(const check *c) {
    return want_norm_rope(c, DFX_QKNORM_W, &c->call->m[0]);
}

static dfx_status check_kv_center(const check *c) {
    const dfx_mat *k = &c->call->m[DFX_CENTER_K];
    DFX_TRY(want_shape(c, 0, DFX_CENTER_ROWS, k->cols));
    DFX_TRY(want_like(c, DFX_CENTER_V, k));
    DFX_TRY(want_pair(c, DFX_CENTER_K2, DFX_CENTER_W2));
    if (present(&c->call->m[DFX_CENTER_K2])) {
        DFX_TRY(want_heads(c, k->cols));
        DFX_TRY(want_shape(c, DFX_CENTER_K2, c->call->m[DFX_CENTER_K2].rows, k->cols));
        DFX_TRY(want_shape(c, DFX_CENTER_W2, 1, k->cols / c->call->p.n_heads));
    }
    return want_norm_rope(c, DFX_CENTER_W, k);
}

static dfx_status check_qk_codes(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_like(c, DFX_QK_CODES_X, &m[0]));
    DFX_TRY(want_norm_rope(c, DFX_QK_CODES_W, &m[0]));
    DFX_TRY(want_shape(c, DFX_QK_CODES_Y_SCALE, m[0].rows, c->call->p.n_heads));
    DFX_TRY(want_shape(c, DFX_QK_CODES_CENTER, DFX_CENTER_ROWS, m[0].cols));
    bool is_query = present(&m[DFX_QK_CODES_Y_SCALE]);
    return want(c, is_query != present(&m[DFX_QK_CODES_CENTER]), "either y_scale or center",
                is_query ? 2 : 0);
}

static dfx_status check_v_codes(const check *c) {
    const dfx_mat *m = c->call->m, *v = &m[DFX_V_CODES_V];
    DFX_TRY(want_heads(c, v->cols));
    DFX_TRY(want_shape(c, 0, v->cols, dfx_v_codes_cols(v->rows)));
    return want_shape(c, DFX_V_CODES_CENTER, DFX_CENTER_ROWS, v->cols);
}

static dfx_status check_attention(const check *c) {
    const dfx_mat *m = c->call->m;
    int64_t n_keys = m[DFX_ATTN_K].rows;
    DFX_TRY(want_heads(c, m[0].cols));
    DFX_TRY(want_like(c, DFX_ATTN_Q, &m[0]));
    DFX_TRY(want_shape(c, DFX_ATTN_K, n_keys, m[0].cols));
    DFX_TRY(want_like(c, DFX_ATTN_V, &m[DFX_ATTN_K]));
    if (present(&m[DFX_ATTN_BIAS])) {
        DFX_TRY(want_shape(c, DFX_ATTN_BIAS, c->call->p.n_heads, 2 * n_keys - 1));
        DFX_TRY(want(c, m[0].rows <= n_keys, "no more queries than keys beside a bias", m[0].rows));
    }
    DFX_TRY(want_y_scale(c));
    return want_finite(c, c->call->p.scale, "scale");
}

static dfx_status check_attention_codes(const check *c) {
    const dfx_mat *m = c->call->m;
    int64_t n_keys = m[DFX_ATTN_K].rows;
    DFX_TRY(want_heads(c, m[0].cols));
    int64_t head = m[0].cols / c->call->p.n_heads;
    DFX_TRY(want(c, head <= INT8_K_MAX, "heads of at most 132104 columns", head));
    DFX_TRY(want_like(c, DFX_ATTN_Q, &m[0]));
    DFX_TRY(want_shape(c, DFX_ATTN_K, n_keys, m[0].cols));
    DFX_TRY(want_shape(c, DFX_ATTN_V, m[0].cols, dfx_v_codes_cols(n_keys)));
    DFX_TRY(want_shape(c, DFX_ATTN_Q_SCALE, m[0].rows, c->call->p.n_heads));
    DFX_TRY(want_shape(c, DFX_ATTN_CENTER, DFX_CENTER_ROWS, m[0].cols));
    DFX_TRY(want_y_scale(c));
    return want_finite(c, c->call->p.scale, "scale");
}

/* Half of the buckets look back, half ahead; half of those hold one distance each, the others grow in logarithms
 * from there to max_distance. */
static dfx_status check_rel_bias(const check *c) {
    const dfx_mat *m = c->call->m;
    int64_t n_buckets = c->call->p.n_buckets, max_distance = c->call->p.max_distance;
    DFX_TRY(want(c, n_buckets >= 4 && n_buckets % 2 == 0, "an even n_buckets of at least 4",
                 n_buckets));
    DFX_TRY(
        want(c, max_distance > n_buckets / 4, "max_distance beyond n_buckets / 4", max_distance));
    DFX_TRY(want(c, m[0].cols % 2 == 1, "2 T - 1 columns in y", m[0].cols));
    return want_shape(c, 1, n_buckets, m[0].rows);
}

static dfx_status check_elementwise(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want_like(c, DFX_BIN_A, &m[0]));
    switch (c->call->kind) {
    case DFX_OP_ADD:
        return want_shape(c, DFX_BIN_B, m[DFX_BIN_B].rows == 1 ? 1 : m[0].rows, m[0].cols);
    case DFX_OP_AXPY:
        DFX_TRY(want_like(c, DFX_BIN_B, &m[0]));
        return want_shape(c, DFX_BIN_S, 1, 1);
    default: /* ACT and ACT_MUL */
        DFX_TRY(want_like(c, DFX_BIN_B, &m[0]));
        DFX_TRY(want_shape(c, DFX_ACT_MUL_Y_SCALE, 1, m[0].rows));
        return want_act(c);
    }
}

static dfx_status check_rel_diff(const check *c) {
    DFX_TRY(want_shape(c, 0, 1, 1));
    return want_like(c, DFX_BIN_B, &c->call->m[DFX_BIN_A]);
}

static dfx_status check_sinusoid(const check *c) {
    const dfx_mat *m = c->call->m;
    DFX_TRY(want(c, m[0].cols % 2 == 0, "an even width", m[0].cols));
    return want_shape(c, 1, 1, m[0].rows);
}

/* Pixels along one side after upsampling, padding and stride; 0 when the kernel does not fit or a number overflows. */
static int64_t conv_side(int64_t side, const dfx_conv_params *p) {
    int64_t wide;
    if (__builtin_mul_overflow(side, (int64_t)p->upsample, &wide) ||
        __builtin_add_overflow(wide, (int64_t)p->pad_lo + p->pad_hi, &wide) || wide < p->k)
        return 0;
    return (wide - p->k) / p->stride + 1;
}

static dfx_status check_conv2d(const check *c) {
    const dfx_mat *m = c->call->m;
    const dfx_conv_params *p = &c->call->p.conv;
    DFX_TRY(want(c, p->k >= 1, "k >= 1", p->k));
    DFX_TRY(want(c, p->stride >= 1, "stride >= 1", p->stride));
    DFX_TRY(want(c, p->upsample >= 1, "upsample >= 1", p->upsample));
    DFX_TRY(want(c, p->pad_lo >= 0 && p->pad_lo < p->k, "pad_lo in [0, k)", p->pad_lo));
    DFX_TRY(want(c, p->pad_hi >= 0 && p->pad_hi < p->k, "pad_hi in [0, k)", p->pad_hi));
    DFX_TRY(want(c, p->h >= 1, "h >= 1", p->h));
    DFX_TRY(want(c, p->w >= 1, "w >= 1", p->w));
    int64_t n_in, n_out, n_taps;
    int64_t ho = conv_side(p->h, p), wo = conv_side(p->w, p);
    if (__builtin_mul_overflow(p->h, p->w, &n_in) || __builtin_mul_overflow(ho, wo, &n_out) ||
        n_out == 0 || __builtin_mul_overflow(m[DFX_CONV_X].cols, (int64_t)p->k * p->k, &n_taps))
        return dfx_fail(c->sink, DFX_E_INTERNAL,
                        "op %s: wanted a kernel that fits the padded picture, found k %d on %lld x "
                        "%lld",
                        op_name(c), p->k, (long long)p->h, (long long)p->w);
    DFX_TRY(want_shape(c, DFX_CONV_X, n_in, m[DFX_CONV_X].cols));
    DFX_TRY(want_shape(c, 0, n_out, m[DFX_CONV_W].rows));
    DFX_TRY(want_shape(c, DFX_CONV_W, m[0].cols, n_taps));
    DFX_TRY(want_shape(c, DFX_CONV_B, 1, m[0].cols));
    DFX_TRY(want_like(c, DFX_CONV_R, &m[0]));
    DFX_TRY(want_shape(c, DFX_CONV_NORM, 3, m[DFX_CONV_X].cols));
    DFX_TRY(want(c, present(&m[DFX_CONV_NORM]) || c->call->p.act == DFX_ACT_NONE,
                 "no act without norm", c->call->p.act));
    return want_act(c);
}

/* Both of them: STATS has three rows for y, whatever x has. */
static dfx_status check_groupnorm(const check *c) {
    const dfx_mat *m = c->call->m;
    int64_t n_groups = c->call->p.n_groups;
    if (c->call->kind == DFX_OP_GROUPNORM_STATS) {
        DFX_TRY(want_shape(c, 0, 3, m[DFX_NORM_X].cols));
        DFX_TRY(want(c, c->call->p.act == DFX_ACT_NONE, "no act", c->call->p.act));
    } else {
        DFX_TRY(want_like(c, DFX_NORM_X, &m[0]));
    }
    DFX_TRY(want_shape(c, DFX_NORM_W, 1, m[0].cols));
    DFX_TRY(want_shape(c, DFX_NORM_B, 1, m[0].cols));
    DFX_TRY(want(c, n_groups >= 1, "n_groups >= 1", n_groups));
    DFX_TRY(want(c, m[0].cols % n_groups == 0, "channels that n_groups divides", m[0].cols));
    DFX_TRY(want_act(c));
    return want_eps(c);
}

/* UNPACK and PACK: one side is [h*w, C] latents, the other [(h/2)*(w/2), 4C] tokens. */
static dfx_status check_packing(const check *c) {
    bool unpack = c->call->kind == DFX_OP_UNPACK;
    int tokens = unpack ? 1 : 0, latents = unpack ? 0 : 1;
    const dfx_mat *m = c->call->m;
    int64_t h = c->call->p.h, w = c->call->p.w, n_latents;
    DFX_TRY(want(c, h >= 2 && h % 2 == 0, "an even h", h));
    DFX_TRY(want(c, w >= 2 && w % 2 == 0, "an even w", w));
    DFX_TRY(want(c, !__builtin_mul_overflow(h, w, &n_latents), "h * w below 2^63", h));
    DFX_TRY(want(c, m[tokens].cols % 4 == 0, "tokens of 4 C values", m[tokens].cols));
    int64_t channels = m[tokens].cols / 4;
    DFX_TRY(want_shape(c, tokens, n_latents / 4, m[tokens].cols));
    if (unpack)
        DFX_TRY(want_shape(c, latents, n_latents, channels));
    else {
        DFX_TRY(want_shape(c, latents, n_latents, m[latents].cols));
        DFX_TRY(want(c, m[latents].cols >= channels, "at least C channels in x", m[latents].cols));
    }
    DFX_TRY(want_finite(c, c->call->p.mul, "mul"));
    return want_finite(c, c->call->p.add, "add");
}

dfx_status dfx_op_check(const dfx_op_call *call, const dfx_sink *sink) {
    if ((unsigned)call->kind >= DFX_N_OP_KINDS)
        return dfx_fail(sink, DFX_E_INTERNAL, "op: wanted a kind below %d, found %u",
                        DFX_N_OP_KINDS, (unsigned)call->kind);
    check c = {call, sink};
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        DFX_TRY(check_operand(&c, slot));
    switch (call->kind) {
    case DFX_OP_LINEAR:
        return check_linear(&c);
    case DFX_OP_LAYERNORM:
        return check_layernorm(&c);
    case DFX_OP_QUANTIZE:
        return check_quantize(&c);
    case DFX_OP_BOUND:
        return check_bound(&c);
    case DFX_OP_RMSNORM:
        return check_rmsnorm(&c);
    case DFX_OP_QKNORM_ROPE:
        return check_qknorm_rope(&c);
    case DFX_OP_ATTENTION:
        return check_attention(&c);
    case DFX_OP_KV_CENTER:
        return check_kv_center(&c);
    case DFX_OP_QK_CODES:
        return check_qk_codes(&c);
    case DFX_OP_V_CODES:
        return check_v_codes(&c);
    case DFX_OP_ATTENTION_CODES:
        return check_attention_codes(&c);
    case DFX_OP_REL_BIAS:
        return check_rel_bias(&c);
    case DFX_OP_ACT:
    case DFX_OP_ACT_MUL:
    case DFX_OP_ADD:
    case DFX_OP_AXPY:
        return check_elementwise(&c);
    case DFX_OP_REL_DIFF:
        return check_rel_diff(&c);
    case DFX_OP_SINUSOID:
        return check_sinusoid(&c);
    case DFX_OP_CONV2D:
        return check_conv2d(&c);
    case DFX_OP_GROUPNORM:
    case DFX_OP_GROUPNORM_STATS:
        return check_groupnorm(&c);
    case DFX_OP_UNPACK:
    case DFX_OP_PACK:
        return check_packing(&c);
    case DFX_N_OP_KINDS:
        break;
    }
    return DFX_E_INTERNAL;
}
