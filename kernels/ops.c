/* The op contract as data: which operands an op has, and what is in them. ops_check.c holds calls against it. */
#include "kernels/ops_internal.h"

#define BIT(slot) (1u << (slot))

typedef struct op_entry {
    dfx_op_info info;
    const char *slots[DFX_OP_SLOTS];
} op_entry;

static const op_entry entries[DFX_N_OP_KINDS] = {
    [DFX_OP_LINEAR] = {{"linear", 11,
                        BIT(DFX_LINEAR_B) | BIT(DFX_LINEAR_GATE) | BIT(DFX_LINEAR_R) |
                            BIT(DFX_LINEAR_SCALE) | BIT(DFX_LINEAR_X_SCALE) | BIT(DFX_LINEAR_T) |
                            BIT(DFX_LINEAR_U) | BIT(DFX_LINEAR_Y_SCALE),
                        false, BIT(DFX_LINEAR_W) | BIT(DFX_LINEAR_B) | BIT(DFX_LINEAR_SCALE)},
                       {"y", "x", "w", "b", "gate", "r", "scale", "x_scale", "t", "u", "y_scale"}},
    [DFX_OP_LAYERNORM] = {{"layernorm", 8,
                           BIT(DFX_NORM_W) | BIT(DFX_NORM_B) | BIT(DFX_NORM_SCALE) |
                               BIT(DFX_NORM_SHIFT) | BIT(DFX_NORM_Y_SCALE) | BIT(DFX_NORM_Y_NORM),
                           false, BIT(DFX_NORM_W) | BIT(DFX_NORM_B)},
                          {"y", "x", "w", "b", "scale", "shift", "y_scale", "y_norm"}},
    [DFX_OP_QUANTIZE] = {{"quantize", 4, BIT(DFX_QUANTIZE_LEAST), false, 0},
                         {"y", "x", "y_scale", "least"}},
    [DFX_OP_BOUND] = {{"bound", 6, BIT(DFX_BOUND_B) | BIT(DFX_BOUND_V_SCALE) | BIT(DFX_BOUND_V_B),
                       false,
                       BIT(DFX_BOUND_W_SCALE) | BIT(DFX_BOUND_B) | BIT(DFX_BOUND_V_SCALE) |
                           BIT(DFX_BOUND_V_B)},
                      {"y", "x_norm", "w_scale", "b", "v_scale", "v_b"}},
    [DFX_OP_RMSNORM] = {{"rmsnorm", 4, BIT(DFX_RMSNORM_Y_SCALE), false, BIT(DFX_NORM_W)},
                        {"y", "x", "w", "y_scale"}},
    [DFX_OP_QKNORM_ROPE] = {{"qknorm_rope", 4, BIT(DFX_QKNORM_COS) | BIT(DFX_QKNORM_SIN), true,
                             BIT(DFX_QKNORM_W)},
                            {"x", "w", "cos", "sin"}},
    [DFX_OP_ATTENTION] = {{"attention", 6, BIT(DFX_ATTN_BIAS) | BIT(DFX_ATTN_Y_SCALE), false, 0},
                          {"y", "q", "k", "v", "bias", "y_scale"}},
    [DFX_OP_KV_CENTER] = {{"kv_center", 8,
                           BIT(DFX_CENTER_COS) | BIT(DFX_CENTER_SIN) | BIT(DFX_CENTER_K2) |
                               BIT(DFX_CENTER_W2),
                           false, BIT(DFX_CENTER_W) | BIT(DFX_CENTER_W2)},
                          {"y", "k", "v", "w", "cos", "sin", "k2", "w2"}},
    [DFX_OP_QK_CODES] = {{"qk_codes", 7,
                          BIT(DFX_QK_CODES_COS) | BIT(DFX_QK_CODES_SIN) |
                              BIT(DFX_QK_CODES_Y_SCALE) | BIT(DFX_QK_CODES_CENTER),
                          false, BIT(DFX_QK_CODES_W)},
                         {"y", "x", "w", "cos", "sin", "y_scale", "center"}},
    [DFX_OP_V_CODES] = {{"v_codes", 3, 0, false, 0}, {"y", "v", "center"}},
    [DFX_OP_ATTENTION_CODES] = {{"attention_codes", 7, BIT(DFX_ATTN_CODES_Y_SCALE), false, 0},
                                {"y", "q", "k", "v", "q_scale", "center", "y_scale"}},
    [DFX_OP_REL_BIAS] = {{"rel_bias", 2, 0, false, BIT(1)}, {"y", "table"}},
    [DFX_OP_ACT] = {{"act", 2, 0, false, 0}, {"y", "x"}},
    [DFX_OP_ACT_MUL] = {{"act_mul", 4, BIT(DFX_ACT_MUL_Y_SCALE), false, 0},
                        {"y", "a", "b", "y_scale"}},
    [DFX_OP_ADD] = {{"add", 3, 0, false, 0}, {"y", "a", "b"}},
    [DFX_OP_AXPY] = {{"axpy", 4, 0, false, 0}, {"y", "x", "d", "s"}},
    [DFX_OP_REL_DIFF] = {{"rel_diff", 3, 0, false, 0}, {"y", "a", "b"}},
    [DFX_OP_SINUSOID] = {{"sinusoid", 2, 0, false, 0}, {"y", "t"}},
    [DFX_OP_CONV2D] = {{"conv2d", 6, BIT(DFX_CONV_B) | BIT(DFX_CONV_R) | BIT(DFX_CONV_NORM), false,
                        BIT(DFX_CONV_W) | BIT(DFX_CONV_B)},
                       {"y", "x", "w", "b", "r", "norm"}},
    [DFX_OP_GROUPNORM] = {{"groupnorm", 4, 0, false, BIT(DFX_NORM_W) | BIT(DFX_NORM_B)},
                          {"y", "x", "w", "b"}},
    [DFX_OP_GROUPNORM_STATS] = {{"groupnorm_stats", 4, 0, false, BIT(DFX_NORM_W) | BIT(DFX_NORM_B)},
                                {"norm", "x", "w", "b"}},
    [DFX_OP_UNPACK] = {{"unpack", 2, 0, false, 0}, {"y", "x"}},
    [DFX_OP_PACK] = {{"pack", 2, 0, false, 0}, {"y", "x"}},
};

const dfx_op_info *dfx_op_info_of(dfx_op_kind kind) {
    return &entries[kind].info;
}

const char *dfx_op_slot_name(dfx_op_kind kind, int slot) {
    return entries[kind].slots[slot];
}

int dfx_op_y_scale(dfx_op_kind kind) {
    switch (kind) {
    case DFX_OP_LAYERNORM:
        return DFX_NORM_Y_SCALE;
    case DFX_OP_RMSNORM:
        return DFX_RMSNORM_Y_SCALE;
    case DFX_OP_ACT_MUL:
        return DFX_ACT_MUL_Y_SCALE;
    case DFX_OP_QUANTIZE:
        return DFX_QUANTIZE_Y_SCALE;
    default:
        return 0;
    }
}

int dfx_op_y_scale_given(dfx_op_kind kind) {
    switch (kind) {
    case DFX_OP_LINEAR:
        return DFX_LINEAR_Y_SCALE;
    case DFX_OP_ATTENTION:
        return DFX_ATTN_Y_SCALE;
    case DFX_OP_ATTENTION_CODES:
        return DFX_ATTN_CODES_Y_SCALE;
    default:
        return 0;
    }
}

int dfx_op_codes_scale(const dfx_op_call *call, int slot) {
    int scale = slot == 0 ? dfx_op_y_scale(call->kind) : 0;
    if (slot == 0 && !scale)
        scale = dfx_op_y_scale_given(call->kind);
    if (call->kind == DFX_OP_LINEAR && slot == DFX_LINEAR_X)
        scale = DFX_LINEAR_X_SCALE;
    if (!scale)
        return 0;
    return call->kind == DFX_OP_QUANTIZE || dfx_op_present(&call->m[scale]) ? scale : 0;
}

dfx_dtype dfx_op_fixed_codes(dfx_op_kind kind, int slot) {
    switch (kind) {
    case DFX_OP_QK_CODES:
        return slot == 0 ? DFX_DTYPE_I8 : DFX_DTYPE_U8;
    case DFX_OP_V_CODES:
        return slot == 0 ? DFX_DTYPE_F8_E4M3 : DFX_DTYPE_U8;
    case DFX_OP_ATTENTION_CODES:
        return slot == DFX_ATTN_Q || slot == DFX_ATTN_K ? DFX_DTYPE_I8
               : slot == DFX_ATTN_V                     ? DFX_DTYPE_F8_E4M3
                                                        : DFX_DTYPE_U8;
    default:
        return DFX_DTYPE_U8;
    }
}

bool dfx_op_wants_f32(dfx_op_kind kind, int slot) {
    switch (kind) {
    case DFX_OP_KV_CENTER:
        return slot == 0 || slot == DFX_CENTER_COS || slot == DFX_CENTER_SIN;
    case DFX_OP_QK_CODES:
        return slot >= DFX_QK_CODES_COS;
    case DFX_OP_V_CODES:
        return slot == DFX_V_CODES_CENTER;
    case DFX_OP_ATTENTION_CODES:
        return slot >= DFX_ATTN_Q_SCALE;
    case DFX_OP_AXPY:
        return slot == DFX_BIN_S;
    case DFX_OP_SINUSOID:
        return slot == 1;
    case DFX_OP_LINEAR:
        return slot == DFX_LINEAR_SCALE || slot == DFX_LINEAR_X_SCALE || slot == DFX_LINEAR_Y_SCALE;
    case DFX_OP_LAYERNORM:
        return slot == DFX_NORM_Y_SCALE || slot == DFX_NORM_Y_NORM;
    case DFX_OP_QUANTIZE:
        return slot == DFX_QUANTIZE_Y_SCALE || slot == DFX_QUANTIZE_LEAST;
    case DFX_OP_BOUND:
        return slot != DFX_BOUND_B && slot != DFX_BOUND_V_B;
    case DFX_OP_ATTENTION:
        return slot == DFX_ATTN_Y_SCALE;
    case DFX_OP_CONV2D:
        return slot == DFX_CONV_NORM;
    case DFX_OP_GROUPNORM_STATS:
    case DFX_OP_REL_DIFF:
        return slot == 0;
    default:
        return slot != 0 && slot == dfx_op_y_scale(kind);
    }
}

bool dfx_op_is_codes(const dfx_op_call *call, int slot) {
    return dfx_op_codes_scale(call, slot) != 0 ||
           dfx_op_fixed_codes(call->kind, slot) != DFX_DTYPE_U8;
}
