/* dfx_op_check: one right call of every kind, and each rule of kernels/ops.h broken once. */
#include "kernels/ops.h"
#include "tests/tmpdir.h"

#include <math.h>
#include <string.h>

static dfx_mat mat(dfx_dtype dtype, int64_t rows, int64_t cols) {
    return (dfx_mat){.rows = rows, .cols = cols, .ld = cols + 4, .dtype = dtype};
}

static dfx_mat f32(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_F32, rows, cols);
}

static dfx_mat bf16(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_BF16, rows, cols);
}

static dfx_mat f8(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_F8_E4M3, rows, cols);
}

static dfx_mat i8(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_I8, rows, cols);
}

/* With every operand there that may be, but for those that exclude each other. */
static dfx_op_call right_call(dfx_op_kind kind) {
    dfx_op_call c = {.kind = kind};
    switch (kind) {
    case DFX_OP_LINEAR:
        c = (dfx_op_call){
            kind,
            {f32(5, 6), bf16(5, 7), f8(6, 7), bf16(1, 6), f32(1, 6), f32(5, 6), f32(1, 6)},
            {0}};
        c.p.act = DFX_ACT_QUICK_GELU;
        break;
    case DFX_OP_LAYERNORM:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6), {0}, {0}, f32(1, 6), f32(1, 6)}, {0}};
        break;
    case DFX_OP_QUANTIZE:
        c = (dfx_op_call){kind, {f8(5, 6), bf16(5, 6), f32(1, 5)}, {0}};
        break;
    case DFX_OP_RMSNORM:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6), bf16(1, 6)}, {0}};
        break;
    case DFX_OP_QKNORM_ROPE:
        c = (dfx_op_call){kind, {f32(5, 12), bf16(1, 4), f32(5, 2), f32(5, 2)}, {.n_heads = 3}};
        break;
    case DFX_OP_ATTENTION:
        c = (dfx_op_call){kind,
                          {f32(5, 12), f32(5, 12), f32(8, 12), f32(8, 12), f32(3, 15)},
                          {.n_heads = 3, .scale = 0.5f}};
        break;
    case DFX_OP_KV_CENTER:
        c = (dfx_op_call){kind,
                          {f32(4, 12), bf16(5, 12), bf16(5, 12), f8(1, 4), f32(5, 2), f32(5, 2)},
                          {.n_heads = 3}};
        break;
    case DFX_OP_QK_CODES: /* of queries */
        c = (dfx_op_call){kind,
                          {i8(5, 12), bf16(5, 12), bf16(1, 4), f32(5, 2), f32(5, 2), f32(5, 3)},
                          {.n_heads = 3}};
        break;
    case DFX_OP_V_CODES:
        c = (dfx_op_call){kind, {f8(12, 32), bf16(17, 12), f32(4, 12)}, {.n_heads = 3}};
        break;
    case DFX_OP_ATTENTION_CODES:
        c = (dfx_op_call){kind,
                          {bf16(5, 12), i8(5, 12), i8(17, 12), f8(12, 32), f32(5, 3), f32(4, 12)},
                          {.n_heads = 3, .scale = 0.5f}};
        break;
    case DFX_OP_REL_BIAS:
        c = (dfx_op_call){kind, {f32(3, 9), bf16(32, 3)}, {.n_buckets = 32, .max_distance = 128}};
        break;
    case DFX_OP_ACT:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6)}, {.act = DFX_ACT_SILU}};
        break;
    case DFX_OP_ACT_MUL:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6), f32(5, 6)}, {.act = DFX_ACT_GELU_TANH}};
        break;
    case DFX_OP_ADD:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6), f32(5, 6)}, {0}};
        break;
    case DFX_OP_AXPY:
        c = (dfx_op_call){kind, {f32(5, 6), f32(5, 6), f32(5, 6), f32(1, 1)}, {0}};
        break;
    case DFX_OP_REL_DIFF:
        c = (dfx_op_call){kind, {f32(1, 1), bf16(5, 6), bf16(5, 6)}, {0}};
        break;
    case DFX_OP_SINUSOID:
        c = (dfx_op_call){kind, {f32(5, 6), f32(1, 5)}, {0}};
        break;
    case DFX_OP_CONV2D: /* 5 x 4 pixels, to 10 x 8, padded to 12 x 9, 3 x 3 by 2: 5 x 4 */
        c = (dfx_op_call){
            kind, {f32(20, 6), f32(20, 7), bf16(6, 63), bf16(1, 6), f32(20, 6), f32(3, 7)}, {0}};
        c.p.conv = (dfx_conv_params){
            .h = 5, .w = 4, .k = 3, .stride = 2, .pad_lo = 1, .pad_hi = 0, .upsample = 2};
        break;
    case DFX_OP_GROUPNORM:
        c = (dfx_op_call){
            kind, {f32(5, 6), f32(5, 6), bf16(1, 6), bf16(1, 6)}, {.n_groups = 3, .eps = 1e-6f}};
        break;
    case DFX_OP_GROUPNORM_STATS:
        c = (dfx_op_call){
            kind, {f32(3, 6), bf16(5, 6), bf16(1, 6), bf16(1, 6)}, {.n_groups = 3, .eps = 1e-6f}};
        break;
    case DFX_OP_UNPACK:
        c = (dfx_op_call){kind, {f32(24, 16), f32(6, 64)}, {.h = 4, .w = 6, .mul = 1}};
        break;
    case DFX_OP_PACK:
        c = (dfx_op_call){kind, {f32(6, 64), f32(24, 32)}, {.h = 4, .w = 6, .mul = 1}};
        break;
    case DFX_N_OP_KINDS:
        break;
    }
    return c;
}

/* Without an operand that may be left out, and what may not be there, or not be missing, beside that. */
static dfx_op_call call_without(const dfx_op_call *call, int slot) {
    dfx_op_call without = *call;
    without.m[slot] = (dfx_mat){0};
    switch (call->kind) {
    case DFX_OP_LAYERNORM:
        if (slot >= DFX_NORM_SCALE)
            without.m[slot ^ 1] = (dfx_mat){0};
        break;
    case DFX_OP_QKNORM_ROPE: /* tables are 2 and 3, or 4 and 5 */
    case DFX_OP_KV_CENTER:
        without.m[slot ^ 1] = (dfx_mat){0};
        break;
    case DFX_OP_QK_CODES:
        if (slot == DFX_QK_CODES_Y_SCALE)
            without.m[DFX_QK_CODES_CENTER] = f32(4, 12);
        else if (slot != DFX_QK_CODES_CENTER)
            without.m[DFX_QK_CODES_COS] = without.m[DFX_QK_CODES_SIN] = (dfx_mat){0};
        break;
    default:
        break;
    }
    return without;
}

static void op_check_right_calls_are_ok(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < DFX_N_OP_KINDS; kind++) {
        dfx_op_call call = right_call((dfx_op_kind)kind);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
        const dfx_op_info *info = dfx_op_info_of((dfx_op_kind)kind);
        for (int slot = 0; slot < info->n_slots; slot++) {
            if (!(info->optional >> slot & 1))
                continue;
            dfx_op_call without = call_without(&call, slot);
            assert_int_equal(dfx_op_check(&without, &dir->log.sink), DFX_OK);
        }
    }
    said_nothing(&dir->log, DFX_ERROR);
}

typedef enum field_type { I64, INT, FLOAT } field_type;

typedef struct breakage {
    dfx_op_kind kind;
    size_t field; /* offset in dfx_op_call */
    field_type type;
    double value;
    const char *words;
} breakage;

#define M(slot, name) offsetof(dfx_op_call, m[slot].name)
#define P(name) offsetof(dfx_op_call, p.name)

static const breakage breakages[] = {
    {DFX_OP_LINEAR, M(0, rows), I64, 0, "op linear: y wanted rows"},
    {DFX_OP_LINEAR, M(0, rows), I64, -5, "op linear: y wanted rows"},
    {DFX_OP_LINEAR, M(1, ld), I64, 6, "op linear: x wanted rows"},
    {DFX_OP_LINEAR, M(2, ld), I64, 0x1p61, "op linear: w wanted rows"},
    {DFX_OP_LINEAR, M(1, dtype), INT, DFX_DTYPE_F16, "x wanted F32 or BF16, found F16"},
    {DFX_OP_LINEAR, M(2, dtype), INT, DFX_DTYPE_C64, "w wanted a type that can be widened"},
    {DFX_OP_LINEAR, M(2, dtype), INT, DFX_N_DTYPES, "w wanted a type that can be widened"},
    {DFX_OP_LINEAR, M(4, dtype), INT, DFX_DTYPE_F8_E4M3, "gate wanted F32 or BF16"},
    {DFX_OP_LINEAR, M(1, rows), I64, 4, "x wanted [5, 7], found [4, 7]"},
    {DFX_OP_LINEAR, M(1, cols), I64, 8, "x wanted [5, 7], found [5, 8]"},
    {DFX_OP_LINEAR, M(2, rows), I64, 5, "w wanted [6, 7], found [5, 7]"},
    {DFX_OP_LINEAR, M(3, rows), I64, 5, "b wanted [1, 6]"},
    {DFX_OP_LINEAR, M(3, cols), I64, 5, "b wanted [1, 6]"},
    {DFX_OP_LINEAR, M(4, rows), I64, 5, "gate wanted [1, 6]"},
    {DFX_OP_LINEAR, M(5, rows), I64, 4, "r wanted [5, 6]"},
    {DFX_OP_LINEAR, M(6, dtype), INT, DFX_DTYPE_BF16, "scale wanted F32, found BF16"},
    {DFX_OP_LINEAR, M(6, rows), I64, 6, "scale wanted [1, 6], found [6, 6]"},
    {DFX_OP_LINEAR, M(6, cols), I64, 1, "scale wanted [1, 6], found [1, 1]"},
    {DFX_OP_LINEAR, M(2, dtype), INT, DFX_DTYPE_BF16,
     "w of I8 or F8_E4M3 beside a scale, found BF16"},
    {DFX_OP_LINEAR, M(2, dtype), INT, DFX_DTYPE_U8, "w of I8 or F8_E4M3 beside a scale, found U8"},
    {DFX_OP_LINEAR, M(2, dtype), INT, DFX_DTYPE_F8_E5M2, "beside a scale, found F8_E5M2"},
    {DFX_OP_LINEAR, P(act), INT, 4, "a known activation, found 4"},
    {DFX_OP_QUANTIZE, M(0, dtype), INT, DFX_DTYPE_F32, "y wanted I8 or F8_E4M3, found F32"},
    {DFX_OP_QUANTIZE, M(1, dtype), INT, DFX_DTYPE_I8, "x wanted F32 or BF16, found I8"},
    {DFX_OP_QUANTIZE, M(1, rows), I64, 4, "x wanted [5, 6], found [4, 6]"},
    {DFX_OP_QUANTIZE, M(2, cols), I64, 6, "y_scale wanted [1, 5], found [1, 6]"},
    {DFX_OP_QUANTIZE, M(2, dtype), INT, DFX_DTYPE_BF16, "y_scale wanted F32, found BF16"},
    {DFX_OP_LAYERNORM, M(1, rows), I64, 4, "x wanted [5, 6]"},
    {DFX_OP_LAYERNORM, M(4, cols), I64, 5, "scale wanted [1, 6]"},
    {DFX_OP_LAYERNORM, M(5, rows), I64, 5, "shift wanted [1, 6]"},
    {DFX_OP_LAYERNORM, P(eps), FLOAT, -1e-6, "eps >= 0"},
    {DFX_OP_LAYERNORM, P(eps), FLOAT, NAN, "eps >= 0"},
    {DFX_OP_RMSNORM, M(1, cols), I64, 5, "x wanted [5, 6]"},
    {DFX_OP_RMSNORM, M(2, cols), I64, 5, "w wanted [1, 6]"},
    {DFX_OP_RMSNORM, P(eps), FLOAT, INFINITY, "eps >= 0"},
    {DFX_OP_QKNORM_ROPE, P(n_heads), INT, 0, "n_heads >= 1"},
    {DFX_OP_QKNORM_ROPE, P(n_heads), INT, 5, "a width that n_heads divides, found 12"},
    {DFX_OP_QKNORM_ROPE, P(n_heads), INT, 4, "w wanted [1, 3]"},
    {DFX_OP_QKNORM_ROPE, M(2, rows), I64, 6, "cos wanted [5, 2]"},
    {DFX_OP_QKNORM_ROPE, M(3, cols), I64, 4, "sin wanted [5, 2]"},
    {DFX_OP_QKNORM_ROPE, P(eps), FLOAT, -1, "eps >= 0"},
    {DFX_OP_ATTENTION, P(n_heads), INT, -1, "n_heads >= 1"},
    {DFX_OP_ATTENTION, P(n_heads), INT, 7, "a width that n_heads divides"},
    {DFX_OP_ATTENTION, M(1, rows), I64, 6, "q wanted [5, 12]"},
    {DFX_OP_ATTENTION, M(2, cols), I64, 11, "k wanted [8, 12]"},
    {DFX_OP_ATTENTION, M(3, rows), I64, 7, "v wanted [8, 12]"},
    {DFX_OP_ATTENTION, M(4, rows), I64, 2, "bias wanted [3, 15]"},
    {DFX_OP_ATTENTION, M(4, cols), I64, 16, "bias wanted [3, 15]"},
    {DFX_OP_ATTENTION, P(scale), FLOAT, NAN, "a finite scale"},
    {DFX_OP_KV_CENTER, M(0, rows), I64, 5, "y wanted [4, 12]"},
    {DFX_OP_KV_CENTER, M(0, dtype), INT, DFX_DTYPE_BF16, "y wanted F32"},
    {DFX_OP_KV_CENTER, M(2, rows), I64, 6, "v wanted [5, 12]"},
    {DFX_OP_KV_CENTER, M(3, cols), I64, 6, "w wanted [1, 4]"},
    {DFX_OP_KV_CENTER, M(4, rows), I64, 6, "cos wanted [5, 2]"},
    {DFX_OP_KV_CENTER, M(5, dtype), INT, DFX_DTYPE_BF16, "sin wanted F32"},
    {DFX_OP_KV_CENTER, P(n_heads), INT, 5, "a width that n_heads divides"},
    {DFX_OP_KV_CENTER, P(eps), FLOAT, -1, "eps >= 0"},
    {DFX_OP_QK_CODES, M(0, dtype), INT, DFX_DTYPE_F8_E4M3, "y wanted I8, found F8_E4M3"},
    {DFX_OP_QK_CODES, M(1, rows), I64, 4, "x wanted [5, 12]"},
    {DFX_OP_QK_CODES, M(2, rows), I64, 3, "w wanted [1, 4]"},
    {DFX_OP_QK_CODES, M(3, cols), I64, 4, "cos wanted [5, 2]"},
    {DFX_OP_QK_CODES, M(4, rows), I64, 4, "sin wanted [5, 2]"},
    {DFX_OP_QK_CODES, M(5, cols), I64, 4, "y_scale wanted [5, 3]"},
    {DFX_OP_QK_CODES, M(5, dtype), INT, DFX_DTYPE_BF16, "y_scale wanted F32"},
    {DFX_OP_QK_CODES, P(eps), FLOAT, NAN, "eps >= 0"},
    {DFX_OP_V_CODES, M(0, cols), I64, 17, "y wanted [12, 32], found [12, 17]"},
    {DFX_OP_V_CODES, M(0, dtype), INT, DFX_DTYPE_I8, "y wanted F8_E4M3, found I8"},
    {DFX_OP_V_CODES, M(2, rows), I64, 3, "center wanted [4, 12]"},
    {DFX_OP_V_CODES, M(2, dtype), INT, DFX_DTYPE_BF16, "center wanted F32"},
    {DFX_OP_V_CODES, P(n_heads), INT, 0, "n_heads >= 1"},
    {DFX_OP_ATTENTION_CODES, M(0, dtype), INT, DFX_DTYPE_I8, "y wanted F32 or BF16"},
    {DFX_OP_ATTENTION_CODES, M(1, dtype), INT, DFX_DTYPE_BF16, "q wanted I8, found BF16"},
    {DFX_OP_ATTENTION_CODES, M(1, rows), I64, 6, "q wanted [5, 12]"},
    {DFX_OP_ATTENTION_CODES, M(2, dtype), INT, DFX_DTYPE_U8, "k wanted I8, found U8"},
    {DFX_OP_ATTENTION_CODES, M(2, cols), I64, 11, "k wanted [17, 12]"},
    {DFX_OP_ATTENTION_CODES, M(3, dtype), INT, DFX_DTYPE_I8, "v wanted F8_E4M3, found I8"},
    {DFX_OP_ATTENTION_CODES, M(3, cols), I64, 17, "v wanted [12, 32]"},
    {DFX_OP_ATTENTION_CODES, M(4, cols), I64, 5, "q_scale wanted [5, 3]"},
    {DFX_OP_ATTENTION_CODES, M(5, rows), I64, 1, "center wanted [4, 12]"},
    {DFX_OP_ATTENTION_CODES, P(n_heads), INT, 7, "a width that n_heads divides"},
    {DFX_OP_ATTENTION_CODES, P(scale), FLOAT, INFINITY, "a finite scale"},
    {DFX_OP_REL_BIAS, P(n_buckets), INT, 2, "an even n_buckets"},
    {DFX_OP_REL_BIAS, P(n_buckets), INT, 31, "an even n_buckets"},
    {DFX_OP_REL_BIAS, P(max_distance), INT, 8, "max_distance beyond n_buckets / 4"},
    {DFX_OP_REL_BIAS, M(0, cols), I64, 8, "2 T - 1 columns"},
    {DFX_OP_REL_BIAS, M(1, rows), I64, 31, "table wanted [32, 3]"},
    {DFX_OP_REL_BIAS, M(1, cols), I64, 2, "table wanted [32, 3]"},
    {DFX_OP_ACT, M(1, rows), I64, 4, "x wanted [5, 6]"},
    {DFX_OP_ACT, P(act), INT, -1, "a known activation"},
    {DFX_OP_ACT_MUL, M(1, cols), I64, 5, "a wanted [5, 6]"},
    {DFX_OP_ACT_MUL, M(2, rows), I64, 1, "b wanted [5, 6]"},
    {DFX_OP_ACT_MUL, P(act), INT, 9, "a known activation"},
    {DFX_OP_ADD, M(1, rows), I64, 1, "a wanted [5, 6]"},
    {DFX_OP_ADD, M(2, rows), I64, 2, "b wanted [5, 6]"},
    {DFX_OP_ADD, M(2, cols), I64, 1, "b wanted [5, 6]"},
    {DFX_OP_AXPY, M(2, rows), I64, 1, "d wanted [5, 6]"},
    {DFX_OP_AXPY, M(3, cols), I64, 2, "s wanted [1, 1]"},
    {DFX_OP_AXPY, M(3, dtype), INT, DFX_DTYPE_BF16, "s wanted F32"},
    {DFX_OP_REL_DIFF, M(0, rows), I64, 2, "y wanted [1, 1]"},
    {DFX_OP_REL_DIFF, M(0, dtype), INT, DFX_DTYPE_BF16, "y wanted F32"},
    {DFX_OP_REL_DIFF, M(2, rows), I64, 1, "b wanted [5, 6]"},
    {DFX_OP_REL_DIFF, M(2, cols), I64, 7, "b wanted [5, 6]"},
    {DFX_OP_SINUSOID, M(0, cols), I64, 7, "an even width"},
    {DFX_OP_SINUSOID, M(1, cols), I64, 4, "t wanted [1, 5]"},
    {DFX_OP_SINUSOID, M(1, dtype), INT, DFX_DTYPE_BF16, "t wanted F32"},
    {DFX_OP_CONV2D, P(conv.k), INT, 0, "k >= 1"},
    {DFX_OP_CONV2D, P(conv.k), INT, 14, "a kernel that fits"},
    {DFX_OP_CONV2D, P(conv.stride), INT, 0, "stride >= 1"},
    {DFX_OP_CONV2D, P(conv.upsample), INT, 0, "upsample >= 1"},
    {DFX_OP_CONV2D, P(conv.pad_lo), INT, 3, "pad_lo in [0, k)"},
    {DFX_OP_CONV2D, P(conv.pad_hi), INT, -1, "pad_hi in [0, k)"},
    {DFX_OP_CONV2D, P(conv.h), I64, 0, "h >= 1"},
    {DFX_OP_CONV2D, P(conv.w), I64, -4, "w >= 1"},
    {DFX_OP_CONV2D, P(conv.h), I64, 0x1p62, "a kernel that fits"},
    {DFX_OP_CONV2D, P(conv.w), I64, 0x1p61, "a kernel that fits"},
    {DFX_OP_CONV2D, P(conv.h), I64, 6, "x wanted [24, 7]"},
    {DFX_OP_CONV2D, P(conv.pad_hi), INT, 2, "y wanted [30, 6]"},
    {DFX_OP_CONV2D, M(1, rows), I64, 19, "x wanted [20, 7]"},
    {DFX_OP_CONV2D, M(0, rows), I64, 19, "y wanted [20, 6]"},
    {DFX_OP_CONV2D, M(2, cols), I64, 62, "w wanted [6, 63]"},
    {DFX_OP_CONV2D, M(3, cols), I64, 7, "b wanted [1, 6]"},
    {DFX_OP_CONV2D, M(4, rows), I64, 1, "r wanted [20, 6]"},
    {DFX_OP_CONV2D, M(5, rows), I64, 2, "norm wanted [3, 7]"},
    {DFX_OP_CONV2D, M(5, cols), I64, 6, "norm wanted [3, 7]"},
    {DFX_OP_CONV2D, M(5, dtype), INT, DFX_DTYPE_BF16, "norm wanted F32"},
    {DFX_OP_CONV2D, P(act), INT, 4, "a known activation"},
    {DFX_OP_GROUPNORM, M(1, rows), I64, 4, "x wanted [5, 6]"},
    {DFX_OP_GROUPNORM, M(2, cols), I64, 5, "w wanted [1, 6]"},
    {DFX_OP_GROUPNORM, M(3, cols), I64, 5, "b wanted [1, 6]"},
    {DFX_OP_GROUPNORM, P(n_groups), INT, 0, "n_groups >= 1"},
    {DFX_OP_GROUPNORM, P(n_groups), INT, 4, "channels that n_groups divides"},
    {DFX_OP_GROUPNORM, P(act), INT, 4, "a known activation"},
    {DFX_OP_GROUPNORM, P(eps), FLOAT, -1, "eps >= 0"},
    {DFX_OP_GROUPNORM_STATS, M(0, rows), I64, 5, "norm wanted [3, 6]"},
    {DFX_OP_GROUPNORM_STATS, M(0, cols), I64, 5, "norm wanted [3, 6]"},
    {DFX_OP_GROUPNORM_STATS, M(0, dtype), INT, DFX_DTYPE_BF16, "norm wanted F32"},
    {DFX_OP_GROUPNORM_STATS, M(2, cols), I64, 5, "w wanted [1, 6]"},
    {DFX_OP_GROUPNORM_STATS, M(3, cols), I64, 5, "b wanted [1, 6]"},
    {DFX_OP_GROUPNORM_STATS, P(n_groups), INT, 4, "channels that n_groups divides"},
    {DFX_OP_GROUPNORM_STATS, P(act), INT, 1, "no act"},
    {DFX_OP_GROUPNORM_STATS, P(eps), FLOAT, -1, "eps >= 0"},
    {DFX_OP_UNPACK, P(h), I64, 3, "an even h"},
    {DFX_OP_UNPACK, P(w), I64, 0, "an even w"},
    {DFX_OP_UNPACK, P(h), I64, 0x1p62, "h * w below"},
    {DFX_OP_UNPACK, M(0, rows), I64, 23, "y wanted [24, 16]"},
    {DFX_OP_UNPACK, M(0, cols), I64, 15, "y wanted [24, 16]"},
    {DFX_OP_UNPACK, M(1, rows), I64, 5, "x wanted [6, 64]"},
    {DFX_OP_UNPACK, M(1, cols), I64, 63, "tokens of 4 C values"},
    {DFX_OP_UNPACK, P(mul), FLOAT, NAN, "a finite mul"},
    {DFX_OP_PACK, M(0, rows), I64, 7, "y wanted [6, 64]"},
    {DFX_OP_PACK, M(1, rows), I64, 20, "x wanted [24, 32]"},
    {DFX_OP_PACK, M(1, cols), I64, 15, "at least C channels in x, found 15"},
    {DFX_OP_PACK, P(add), FLOAT, INFINITY, "a finite add"},
};

static void set_field(dfx_op_call *call, const breakage *b) {
    char *at = (char *)call + b->field;
    int64_t i64 = b->type == FLOAT ? 0 : (int64_t)b->value;
    int i = (int)i64;
    float f = (float)b->value;
    memcpy(at,
           b->type == I64   ? (void *)&i64
           : b->type == INT ? (void *)&i
                            : (void *)&f,
           b->type == I64 ? sizeof(i64) : sizeof(i));
}

static void op_check_each_rule_broken_once_is_told(void **state) {
    tmpdir *dir = *state;
    for (size_t i = 0; i < DFX_COUNT(breakages); i++) {
        dfx_op_call call = right_call(breakages[i].kind);
        set_field(&call, &breakages[i]);
        recorder_clear(&dir->log);
        if (dfx_op_check(&call, &dir->log.sink) != DFX_E_INTERNAL)
            fail_msg("no fault found where '%s' was due", breakages[i].words);
        said_error(&dir->log, breakages[i].words);
        said_error(&dir->log, dfx_op_info_of(call.kind)->name);
    }
}

static void op_check_missing_operand_is_told(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < DFX_N_OP_KINDS; kind++) {
        const dfx_op_info *info = dfx_op_info_of((dfx_op_kind)kind);
        for (int slot = 0; slot < info->n_slots; slot++) {
            if (info->optional >> slot & 1)
                continue;
            dfx_op_call call = right_call((dfx_op_kind)kind);
            call.m[slot] = (dfx_mat){0};
            recorder_clear(&dir->log);
            assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
            said_error(&dir->log, "wanted operand");
        }
    }
}

static dfx_op_call int8_call(int64_t depth) {
    dfx_op_call call = right_call(DFX_OP_LINEAR);
    call.m[DFX_LINEAR_X] = f32(5, depth);
    call.m[DFX_LINEAR_W] = mat(DFX_DTYPE_I8, 6, depth);
    return call;
}

static void op_check_scaled_weights_are_ok_with_and_without_weight_only(void **state) {
    tmpdir *dir = *state;
    dfx_op_call fp8 = right_call(DFX_OP_LINEAR), int8 = int8_call(7);
    assert_int_equal(dfx_op_check(&int8, &dir->log.sink), DFX_OK);
    fp8.p.weight_only = int8.p.weight_only = true;
    assert_int_equal(dfx_op_check(&fp8, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_op_check(&int8, &dir->log.sink), DFX_OK);
    said_nothing(&dir->log, DFX_ERROR);
}

static void op_check_int8_without_scale_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = int8_call(7);
    call.m[DFX_LINEAR_SCALE] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "op linear: wanted a scale beside w of I8, found none");
}

static void op_check_weight_only_without_scale_is_told(void **state) {
    tmpdir *dir = *state;
    static const dfx_dtype dtypes[] = {DFX_DTYPE_F8_E4M3, DFX_DTYPE_BF16, DFX_DTYPE_I8};
    for (size_t i = 0; i < DFX_COUNT(dtypes); i++) {
        dfx_op_call call = right_call(DFX_OP_LINEAR);
        call.m[DFX_LINEAR_W].dtype = dtypes[i];
        call.m[DFX_LINEAR_SCALE] = (dfx_mat){0};
        call.p.weight_only = true;
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "op linear: wanted a scale beside weight_only, found none");
    }
}

/* 132104 * 127 * 128 = 2^31 - 1024; with one column more it is 2^31 + 15232. */
static void op_check_int8_sum_beyond_int32_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call longest = int8_call(132104), longer = int8_call(132105);
    assert_int_equal(dfx_op_check(&longest, &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_op_check(&longer, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "so that int32 holds their sum, found 132105");
    longer.p.weight_only = true;
    assert_int_equal(dfx_op_check(&longer, &dir->log.sink), DFX_OK);
}

static void op_check_half_a_pair_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call norm = right_call(DFX_OP_LAYERNORM);
    norm.m[DFX_NORM_SHIFT] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&norm, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "both scale and shift");
    recorder_clear(&dir->log);
    dfx_op_call rope = right_call(DFX_OP_QKNORM_ROPE);
    rope.m[DFX_QKNORM_COS] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&rope, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "both cos and sin");
}

static void op_check_weights_beside_modulation_are_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_LAYERNORM);
    call.m[DFX_NORM_B] = f32(1, 6);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "either w and b or scale and shift");
}

static void op_check_codes_have_scales_beside_them(void **state) {
    tmpdir *dir = *state;
    static const dfx_op_kind kinds[] = {DFX_OP_LAYERNORM, DFX_OP_RMSNORM, DFX_OP_ACT_MUL};
    for (size_t i = 0; i < DFX_COUNT(kinds); i++) {
        dfx_op_call call = right_call(kinds[i]);
        int y_scale = dfx_op_y_scale(kinds[i]);
        call.m[y_scale] = f32(1, 5);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y wanted I8 or F8_E4M3, found F32");
        call.m[0] = f8(5, 6);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
        assert_true(dfx_op_is_codes(&call, 0));
        assert_false(dfx_op_is_codes(&call, 1));
        call.m[y_scale] = f32(1, 6);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y_scale wanted [1, 5], found [1, 6]");
        call.m[y_scale] = bf16(1, 5);
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y_scale wanted F32, found BF16");
        call.m[y_scale] = (dfx_mat){0};
        recorder_clear(&dir->log);
        assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
        said_error(&dir->log, "y wanted F32 or BF16, found F8_E4M3");
    }
}

static void op_check_qk_codes_have_one_kind_of_scale(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_QK_CODES);
    call.m[DFX_QK_CODES_CENTER] = f32(4, 12);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "either y_scale or center");
    call.m[DFX_QK_CODES_Y_SCALE] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[DFX_QK_CODES_CENTER] = (dfx_mat){0};
    recorder_clear(&dir->log);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "either y_scale or center");
}

static void op_check_head_beyond_int32_sums_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_ATTENTION_CODES);
    call.p.n_heads = 1;
    call.m[0].cols = 132105; /* as of int8 products */
    call.m[0].ld = 132112;
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "heads of at most 132104 columns, found 132105");
}

static void op_is_codes_names_operands_of_attention_in_8_bits(void **state) {
    static const struct {
        dfx_op_kind kind;
        unsigned slots; /* bit i: slot i is codes */
    } cases[] = {{DFX_OP_KV_CENTER, 0},
                 {DFX_OP_QK_CODES, 1},
                 {DFX_OP_V_CODES, 1},
                 {DFX_OP_ATTENTION_CODES, 1 << 1 | 1 << 2 | 1 << 3},
                 {DFX_OP_ATTENTION, 0}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        dfx_op_call call = right_call(cases[i].kind);
        for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
            assert_int_equal(dfx_op_is_codes(&call, slot), cases[i].slots >> slot & 1);
    }
}

static void op_check_act_of_a_convolution_without_norm_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_CONV2D);
    call.p.act = DFX_ACT_SILU;
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_OK);
    call.m[DFX_CONV_NORM] = (dfx_mat){0};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "no act without norm");
}

static void op_check_operand_beyond_slots_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_ACT);
    call.m[2] = f32(5, 6);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "no operand beyond its slots");
}

static void op_check_odd_head_with_rope_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_QKNORM_ROPE);
    call.p.n_heads = 4;
    call.m[DFX_QKNORM_W] = f32(1, 3);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "an even head size");
}

static void op_check_bias_with_more_queries_than_keys_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = right_call(DFX_OP_ATTENTION);
    call.m[0] = call.m[DFX_ATTN_Q] = f32(9, 12);
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "no more queries than keys");
}

static void op_check_unknown_kind_is_told(void **state) {
    tmpdir *dir = *state;
    dfx_op_call call = {.kind = (dfx_op_kind)77};
    assert_int_equal(dfx_op_check(&call, &dir->log.sink), DFX_E_INTERNAL);
    said_error(&dir->log, "found 77");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(op_check_right_calls_are_ok, tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_each_rule_broken_once_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_missing_operand_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_scaled_weights_are_ok_with_and_without_weight_only,
                                        tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_int8_without_scale_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_weight_only_without_scale_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_int8_sum_beyond_int32_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_half_a_pair_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_weights_beside_modulation_are_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_codes_have_scales_beside_them, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_qk_codes_have_one_kind_of_scale, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_head_beyond_int32_sums_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test(op_is_codes_names_operands_of_attention_in_8_bits),
        cmocka_unit_test_setup_teardown(op_check_act_of_a_convolution_without_norm_is_told,
                                        tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_operand_beyond_slots_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_odd_head_with_rope_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_bias_with_more_queries_than_keys_is_told,
                                        tmpdir_setup, tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_unknown_kind_is_told, tmpdir_setup,
                                        tmpdir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
