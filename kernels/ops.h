/* The op contract: what a backend can compute, on which shapes, by which formula.
 *
 * Every operand is a matrix: `rows` x `cols` values, a row's values adjacent, rows `ld` values apart. Tokens, pixels
 * and channels all fit: a sequence is [T, D]; a picture or feature map is [h*w, C] (channels last, pixel row-major).
 * An operand that an op may leave out is a zeroed dfx_mat: no rows, ptr NULL. Weights may have any dtype that the
 * backend can widen and any alignment; activations have the backend's activation dtype and 16-byte aligned rows.
 *
 * Shape letters: T tokens, D width, H heads, E head size, F MLP width, C channels, h w pixels or latents; M N K for
 * products. LayerNorm, RMSNorm, GroupNorm, softmax, RoPE and modulation are evaluated in f32. */
#ifndef DFX_KERNELS_OPS_H
#define DFX_KERNELS_OPS_H

#include <math.h>

#include "core/dtype.h"
#include "core/sink.h"

typedef struct dfx_mat {
    void *ptr;
    int64_t rows, cols;
    int64_t ld; /* values from a row to the next; >= cols */
    dfx_dtype dtype;
} dfx_mat;

typedef enum dfx_act { DFX_ACT_NONE, DFX_ACT_SILU, DFX_ACT_GELU_TANH, DFX_ACT_QUICK_GELU } dfx_act;

/* silu(x) = x * sigmoid(x).  gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 * quick_gelu(x) = x * sigmoid(1.702 x). */

/* Kinds of ops. Beside each: the operands in slot order ("out" written, "io" read and written), then parameters. */
typedef enum dfx_op_kind {
    /* y = r + gate * act(x W^T + t u^T + b).   out y [M,N]; x [M,K]; W [N,K]; b [N]?; gate [1,N]?; r [M,N]? (may be y itself);
     * t [M,R]? and u [N,R]?, both or none: what adapters of low rank add, t being x A^T. R is a multiple of 16, at most 512.
     * Products accumulate in f32. M <= 64 with weights that are not f32: a row of y is bit for bit the same whatever M is.
     * Quantized: W is I8 or F8_E4M3 codes with `scale` [1,N] f32, W[n,k] = code[n,k] * scale[n].
     *   int8 and fp8 (weight_only false): every row of x is quantized too, as quant/FORMAT.md says (codes cx, scale sx);
     *   product = sx[m] * scale[n] * sum_k cx[m,k] * code[n,k]; the sum is exact in int32 for int8, f32 for fp8.
     *   weight_only: x as it is, product = scale[n] * sum_k x[m,k] * code[n,k] in f32.
     * x_scale [1,M]? f32: x is codes already, with these scales: what QUANTIZE makes of it. They are of the type of W; or W
     * has no scale and is F32, F16 or BF16, and the codes stand for the values that they are codes of.
     * y_scale [1,M]? f32, read: y is F8_E4M3 codes with these scales, nearest(value * (1 / y_scale[m])), no further than +-448, and
     * NaN where the value is; then there is no gate, r, t and u. What a row has whose scale is NaN means nothing. */
    DFX_OP_LINEAR,
    /* y = LN(x) * w + b; or, with scale and shift, y = LN(x) * (1 + scale) + shift.  LN: mean and biased variance over D.
     * out y [T,D] (may be x); x [T,D]; w [D]?; b [D]?; scale [1,D]?; shift [1,D]?; out y_scale [1,T]? f32: y is codes, I8
     * or F8_E4M3, and not x; out y_norm [1,T]? f32, beside y_scale: root of the sum of squares of what became codes.   eps */
    DFX_OP_LAYERNORM,
    /* Codes and scales of rows, as quant/FORMAT.md says.   out y [T,D] I8 or F8_E4M3; x [T,D]; out y_scale [1,T] f32;
     * least [1,T]? f32, with F8_E4M3 alone: y_scale is not below it, y = nearest(x * (1 / y_scale)), and a row of zeros has it
     * for its scale. */
    DFX_OP_QUANTIZE,
    /* Scales for codes of act(x W^T + b) before there are any of its values, by Cauchy and Schwarz: for NONE or an act that is
     * nowhere further from 0 than what it is of, and W of F8_E4M3 codes. E4M3 is a float, so that some octaves of room at the
     * top cost little: codes are as far from values as they would be without until these are 2^-14 of the bound.
     * y[t] = x_norm[t] * scale * max w_scale + max |b| / 448, `scale` being dfx_bound_scale of the columns of W; 1 where that is
     * below 2^-100, NaN where it is not below 2^100. whole: the greatest x_norm is in the place of each, for means of rows.
     * v_scale and v_b: of another product, of as many columns of x, means of whose rows shall have scale y[t] too, as attention
     * makes them: then y[t] is not below max_t (x_norm[t] * scale * max v_scale) + max |v_b| / 448.
     * out y [1,T] f32; x_norm [1,T] f32: LAYERNORM's; w_scale [1,N] f32; b [1,N]?; v_scale [1,N2]? f32; v_b [1,N2]? (not without
     * v_scale).   scale, whole */
    DFX_OP_BOUND,
    /* y = x * rsqrt(mean(x^2) + eps) * w over D.   out y [T,D] (may be x); x [T,D]; w [D]; out y_scale [1,T]? f32: as
     * LAYERNORM has it.   eps */
    DFX_OP_RMSNORM,
    /* Per head: RMSNorm over E with weight w, then rotate pairs (2m, 2m+1) by (cos[t,m], sin[t,m]).
     * io x [T,H*E]; w [E]; cos [T,E/2]?; sin [T,E/2]? (both or none).   n_heads, eps */
    DFX_OP_QKNORM_ROPE,
    /* Per head softmax(scale q k^T + bias) v.   out y [Tq,H*E]; q [Tq,H*E]; k [Tk,H*E]; v [Tk,H*E]; bias [H,2*Tk-1]?:
     * bias[h, key - query + Tk - 1]; y_scale [1,Tq]? f32, read: y is codes by them, as LINEAR has it.   n_heads, scale, causal
     * (key <= query) */
    DFX_OP_ATTENTION,
    /* ATTENTION in 8 bits: the first three make codes, the last one multiplies them. `center` [4,H*E] is what codes of keys and
     * values are made with: a vector taken off keys, one off values, scales of values by column, scales of keys, the same
     * number in all columns of a head. Softmax is the same whatever is taken off all keys, so a sample's mean will do. Rows of
     * y_scale and q_scale have any alignment.
     *
     * KV_CENTER looks at tokens 0, s, 2 s, ... only, s of dfx_kv_sample_step. key = what QKNORM_ROPE makes of k, in f32;
     * y[0] = mean of key; y[1] = mean of v; y[2] = 16 max |v - y[1]| / 448, E4M3 being a float, so that room for values beyond
     * the sample costs nothing; y[3] = max |key - y[0]| / 64 over all columns of the head: codes go to 127, so keys may be
     * twice as great, and one that is cut off does more harm than coarse codes (kernels/PERF.md). A scale that would be 0 is 1.
     * k2 and w2 (both or none): keys of another stream, not rotated, that y[0] is taken off too. They count for y[3] alone,
     * which is no less than max |key2 - y[0]| / 127: all are looked at, so they want no room.
     * out y [4,H*E] f32; k [T,H*E]; v [T,H*E]; w [E]; cos [T,E/2]? f32; sin [T,E/2]? f32 (both or none); k2 [T2,H*E]?;
     * w2 [E]?.   n_heads, eps */
    DFX_OP_KV_CENTER,
    /* z = what QKNORM_ROPE makes of x, in f32. With y_scale (queries): y_scale[t,h] = max_e |z| / 127, 1 where that is 0;
     * y = z / y_scale. With center (keys): y = (z - center[0]) / center[3], no further than +-127. Both rounded, half to even.
     * out y [T,H*E] I8; x [T,H*E]; w [E]; cos [T,E/2]? f32; sin [T,E/2]? f32 (both or none); out y_scale [T,H]? f32;
     * center [4,H*E]? f32 (one of the two).   n_heads, eps */
    DFX_OP_QK_CODES,
    /* Columns of values, in the order that dfx_v_codes_place says: y[c, place(t)] = (v[t,c] - center[1,c]) / center[2,c] as
     * E4M3, no further than +-448. Columns for t in [T, round_up(T,16)) are zeros.
     * out y [H*E,round_up(T,16)] F8_E4M3; v [T,H*E]; center [4,H*E] f32.   n_heads */
    DFX_OP_V_CODES,
    /* Per head, v being codes of V_CODES: softmax(scale q_scale center[3] sum_e q k) v * center[2] + center[1]. A backend may
     * round the weights to E4M3 or F16.
     * out y [Tq,H*E]; q [Tq,H*E] I8; k [Tk,H*E] I8; v [H*E,round_up(Tk,16)] F8_E4M3; q_scale [Tq,H] f32;
     * center [4,H*E] f32; y_scale as in ATTENTION.   n_heads, scale */
    DFX_OP_ATTENTION_CODES,
    /* Relative bias of T5: y[h, d + T - 1] = table[bucket(d), h], d = key - query in (-T, T), bidirectional.
     * out y [H,2T-1]; table [n_buckets,H].   n_buckets, max_distance */
    DFX_OP_REL_BIAS,
    /* y = act(x).   out y [T,D] (may be x); x.   act */
    DFX_OP_ACT,
    /* y = act(a) * b.   out y [T,D] (may be a or b); a; b; out y_scale [1,T]? f32: y is codes, I8 or F8_E4M3, and neither a
     * nor b.   act */
    DFX_OP_ACT_MUL,
    /* y = a + b; b may have one row, added to every row of a.   out y [T,D] (may be a); a; b [T,D] or [1,D] */
    DFX_OP_ADD,
    /* y = x + s * d.   out y (may be x or d); x; d, all [T,D]; s [1,1] f32.  The Euler step. */
    DFX_OP_AXPY,
    /* How far a is from b: y = sum |a - b| / sum |b|, sums over all values in f32 or wider; not finite where b is all zeros.
     * out y [1,1] f32; a [T,D]; b [T,D] */
    DFX_OP_REL_DIFF,
    /* Sinusoid of width D: y[n] = [cos(a f_0..), sin(a f_0..)], a = 1000 t[n], f_i = exp(-ln(10000) i / (D/2)), f32.
     * out y [N,D]; t [1,N] f32 */
    DFX_OP_SINUSOID,
    /* Convolution, channels last, zero padding.   out y [ho*wo,N]; x [h*w,C]; W [N,C*k*k] as stored (N,C,ky,kx); b [N]?;
     * r [ho*wo,N]? added (may be y itself); norm [3,C]? f32.   conv: h, w, k, stride, pad_lo (top and left), pad_hi,
     * upsample (nearest, before padding); act, with norm only.
     * With norm, as GROUPNORM_STATS makes it, act((x - norm[0]) * norm[1] + norm[2]) stands for x, rounded to x's type;
     * the padding is zeros even so. With k, stride and upsample of 1, y may be the first N columns of x. */
    DFX_OP_CONV2D,
    /* y = act((x - mean_g) * rstd_g * w + b), groups of C/G adjacent channels over all pixels, biased variance.
     * out y [h*w,C] (may be x); x; w [C]; b [C].   n_groups, eps, act */
    DFX_OP_GROUPNORM,
    /* What GROUPNORM does to each channel, for the convolution after it: norm[0] = mean_g, norm[1] = rstd_g * w,
     * norm[2] = b.   out norm [3,C] f32; x [h*w,C]; w [C]; b [C].   n_groups, eps */
    DFX_OP_GROUPNORM_STATS,
    /* Tokens to latents: pixel (2r+i, 2c+j), channel z  =  x[r*(w/2)+c, 4z+2i+j] * mul + add.
     * out y [h*w,C]; x [(h/2)*(w/2),4C].   unpack: h, w (latents), mul, add */
    DFX_OP_UNPACK,
    /* The inverse: token values = (pixel value - sub) * mul.   out y [(h/2)*(w/2),4C]; x [h*w,>=C]: the first C channels. */
    DFX_OP_PACK,
    DFX_N_OP_KINDS
} dfx_op_kind;

enum {
    DFX_OP_SLOTS = 11,
    DFX_ADAPTER_GRAIN = 16,
    DFX_ADAPTER_RANK_MAX = 512,
    DFX_KV_KEY_TOP = 64,    /* the sample's greatest code of a key */
    DFX_KV_VALUE_ROOM = 16, /* the greatest code of a value, over the sample's */
    DFX_V_CODES_GRAIN = 16, /* V_CODES: columns are a multiple of it, and keep within it */
};

/* One in 16 of the tokens is enough, but 16 are wanted: greatest of fewer say too little of the others. */
static inline int64_t dfx_kv_sample_step(int64_t n_tokens) {
    int64_t step = n_tokens / 16;
    return step < 1 ? 1 : step > 16 ? 16 : step;
}

/* Where V_CODES puts token t: within 16, token 8 b + 2 q + c stands at 4 q + 2 b + c. That is the order in which a thread holds
 * the scores of q k^T, so that these are the left operand of the product with values as they stand. */
static inline int64_t dfx_v_codes_place(int64_t t) {
    int64_t b = t % 16 / 8, q = t % 8 / 2, c = t % 2;
    return t - t % 16 + 4 * q + 2 * b + c;
}

static inline int64_t dfx_v_codes_cols(int64_t n_tokens) {
    return (n_tokens + DFX_V_CODES_GRAIN - 1) / DFX_V_CODES_GRAIN * DFX_V_CODES_GRAIN;
}

/* sqrt(k) codes of 448 are what a row of W may be at the most; 1/16 more than x is what codes of x may be, and subnormal ones
 * some 2^-13 of it beyond that. */
static inline float dfx_bound_scale(int64_t k) {
    return 1.07f * sqrtf((float)k);
}

/* Slot numbers, by op. Slot 0 is always the output. */
enum {
    DFX_LINEAR_X = 1,
    DFX_LINEAR_W,
    DFX_LINEAR_B,
    DFX_LINEAR_GATE,
    DFX_LINEAR_R,
    DFX_LINEAR_SCALE,
    DFX_LINEAR_X_SCALE,
    DFX_LINEAR_T,
    DFX_LINEAR_U,
    DFX_LINEAR_Y_SCALE,
    DFX_NORM_X = 1,
    DFX_NORM_W,
    DFX_NORM_B,
    DFX_NORM_SCALE,
    DFX_NORM_SHIFT,
    DFX_NORM_Y_SCALE,
    DFX_NORM_Y_NORM,
    DFX_RMSNORM_Y_SCALE = DFX_NORM_W + 1,
    DFX_QUANTIZE_X = 1,
    DFX_QUANTIZE_Y_SCALE,
    DFX_QUANTIZE_LEAST,
    DFX_BOUND_X_NORM = 1,
    DFX_BOUND_W_SCALE,
    DFX_BOUND_B,
    DFX_BOUND_V_SCALE,
    DFX_BOUND_V_B,
    DFX_QKNORM_W = 1,
    DFX_QKNORM_COS,
    DFX_QKNORM_SIN,
    DFX_ATTN_Q = 1,
    DFX_ATTN_K,
    DFX_ATTN_V,
    DFX_ATTN_BIAS,
    DFX_ATTN_Y_SCALE,
    DFX_CENTER_K = 1,
    DFX_CENTER_V,
    DFX_CENTER_W,
    DFX_CENTER_COS,
    DFX_CENTER_SIN,
    DFX_CENTER_K2,
    DFX_CENTER_W2,
    DFX_QK_CODES_X = 1,
    DFX_QK_CODES_W,
    DFX_QK_CODES_COS,
    DFX_QK_CODES_SIN,
    DFX_QK_CODES_Y_SCALE,
    DFX_QK_CODES_CENTER,
    DFX_V_CODES_V = 1,
    DFX_V_CODES_CENTER,
    DFX_ATTN_Q_SCALE = DFX_ATTN_V + 1, /* of ATTENTION_CODES; q, k and v as in ATTENTION */
    DFX_ATTN_CENTER,
    DFX_ATTN_CODES_Y_SCALE,
    DFX_BIN_A = 1,
    DFX_BIN_B,
    DFX_BIN_S,
    DFX_ACT_MUL_Y_SCALE = DFX_BIN_B + 1,
    DFX_CONV_X = 1,
    DFX_CONV_W,
    DFX_CONV_B,
    DFX_CONV_R,
    DFX_CONV_NORM,
};

/* Rows of a `center`. */
enum {
    DFX_CENTER_KEY,
    DFX_CENTER_VALUE,
    DFX_CENTER_VALUE_SCALE,
    DFX_CENTER_KEY_SCALE,
    DFX_CENTER_ROWS
};

typedef struct dfx_conv_params {
    int64_t h, w; /* of x, before upsampling */
    int k, stride, pad_lo, pad_hi, upsample;
} dfx_conv_params;

typedef struct dfx_op_params {
    dfx_act act;
    int n_heads, n_groups, n_buckets, max_distance;
    bool causal;
    bool weight_only; /* LINEAR with scale: x is not quantized */
    bool whole;       /* BOUND: of all rows */
    float eps, scale;
    float mul, add; /* pack and unpack; PACK subtracts `add` first, then multiplies */
    int64_t h, w;   /* pack and unpack: latents */
    dfx_conv_params conv;
} dfx_op_params;

/* An op whose operands have addresses: what a backend runs. */
typedef struct dfx_op_call {
    dfx_op_kind kind;
    dfx_mat m[DFX_OP_SLOTS];
    dfx_op_params p;
} dfx_op_call;

typedef struct dfx_op_info {
    const char *name;
    uint8_t n_slots;
    uint16_t optional; /* bit i: slot i may be absent */
    bool inout;        /* slot 0 is read too */
    uint16_t weights;  /* bit i: slot i is a weight: any dtype that can be widened, any alignment */
} dfx_op_info;

const dfx_op_info *dfx_op_info_of(dfx_op_kind kind);

/* Shapes and types agree with the contract above. Checked once, when a program is built.
 * Errors: DFX_E_INTERNAL naming the op, the slot, wanted and found. Pointers are not looked at. */
dfx_status dfx_op_check(const dfx_op_call *call, const dfx_sink *sink);

/* Of an operand that is there: it is F32 whatever activations are; it is codes, with scales in another operand. */
bool dfx_op_wants_f32(dfx_op_kind kind, int slot);
bool dfx_op_is_codes(const dfx_op_call *call, int slot);

/* The slot for the scales, one a row, that the op makes of an output that is codes; 0: it makes none. */
int dfx_op_y_scale(dfx_op_kind kind);

/* The slot for the scales, one a row, by which the op makes y codes where they are there; 0: it has none. */
int dfx_op_y_scale_given(dfx_op_kind kind);

/* Multiply-adds count two. For plans, progress and benchmarks. */
double dfx_op_flops(const dfx_op_call *call);

#endif
