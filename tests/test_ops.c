/* dfx_op_check: one right call of every kind, and each rule of kernels/ops.h broken once. Rules about codes and their scales
 * are in test_ops_codes.c. */
#include "tests/op_calls.h"
#include "tests/tmpdir.h"

#include <math.h>
#include <string.h>

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
    {DFX_OP_QUANTIZE, M(0, dtype), INT, DFX_DTYPE_I8, "y of F8_E4M3 beside least, found I8"},
    {DFX_OP_QUANTIZE, M(3, rows), I64, 5, "least wanted [1, 5], found [5, 5]"},
    {DFX_OP_QUANTIZE, M(3, cols), I64, 6, "least wanted [1, 5], found [1, 6]"},
    {DFX_OP_QUANTIZE, M(3, dtype), INT, DFX_DTYPE_BF16, "least wanted F32, found BF16"},
    {DFX_OP_BOUND, M(0, rows), I64, 2, "y wanted [1, 5], found [2, 5]"},
    {DFX_OP_BOUND, M(0, dtype), INT, DFX_DTYPE_BF16, "y wanted F32, found BF16"},
    {DFX_OP_BOUND, M(1, rows), I64, 2, "x_norm wanted [1, 5], found [2, 5]"},
    {DFX_OP_BOUND, M(1, cols), I64, 6, "x_norm wanted [1, 5], found [1, 6]"},
    {DFX_OP_BOUND, M(1, dtype), INT, DFX_DTYPE_BF16, "x_norm wanted F32, found BF16"},
    {DFX_OP_BOUND, M(2, rows), I64, 2, "w_scale wanted [1, 7], found [2, 7]"},
    {DFX_OP_BOUND, M(2, cols), I64, 8, "b wanted [1, 8], found [1, 7]"},
    {DFX_OP_BOUND, M(2, dtype), INT, DFX_DTYPE_F16, "w_scale wanted F32, found F16"},
    {DFX_OP_BOUND, M(3, rows), I64, 2, "b wanted [1, 7], found [2, 7]"},
    {DFX_OP_BOUND, M(3, cols), I64, 8, "b wanted [1, 7], found [1, 8]"},
    {DFX_OP_BOUND, M(3, dtype), INT, DFX_DTYPE_BOOL, "b wanted a type that can be widened"},
    {DFX_OP_BOUND, M(4, rows), I64, 2, "v_scale wanted [1, 9], found [2, 9]"},
    {DFX_OP_BOUND, M(4, cols), I64, 8, "v_b wanted [1, 8], found [1, 9]"},
    {DFX_OP_BOUND, M(4, dtype), INT, DFX_DTYPE_BF16, "v_scale wanted F32, found BF16"},
    {DFX_OP_BOUND, M(5, rows), I64, 2, "v_b wanted [1, 9], found [2, 9]"},
    {DFX_OP_BOUND, M(5, cols), I64, 7, "v_b wanted [1, 9], found [1, 7]"},
    {DFX_OP_BOUND, M(5, dtype), INT, DFX_DTYPE_C64, "v_b wanted a type that can be widened"},
    {DFX_OP_BOUND, P(scale), FLOAT, NAN, "a finite scale"},
    {DFX_OP_BOUND, P(scale), FLOAT, INFINITY, "a finite scale"},
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
    {DFX_OP_KV_CENTER, M(6, cols), I64, 11, "k2 wanted [7, 12]"},
    {DFX_OP_KV_CENTER, M(7, cols), I64, 6, "w2 wanted [1, 4]"},
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
        cmocka_unit_test_setup_teardown(op_check_half_a_pair_is_told, tmpdir_setup,
                                        tmpdir_teardown),
        cmocka_unit_test_setup_teardown(op_check_weights_beside_modulation_are_told, tmpdir_setup,
                                        tmpdir_teardown),
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
