/* See op_calls.h. */
#include "tests/op_calls.h"

dfx_op_call right_call(dfx_op_kind kind) {
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
        c = (dfx_op_call){kind, {f8(5, 6), bf16(5, 6), f32(1, 5), f32(1, 5)}, {0}};
        break;
    case DFX_OP_BOUND: /* of 5 tokens, 7 rows of weights, and 9 of those of values */
        c = (dfx_op_call){kind,
                          {f32(1, 5), f32(1, 5), f32(1, 7), bf16(1, 7), f32(1, 9), bf16(1, 9)},
                          {.scale = 2.5f}};
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
                          {f32(4, 12), bf16(5, 12), bf16(5, 12), f8(1, 4), f32(5, 2), f32(5, 2),
                           bf16(7, 12), bf16(1, 4)},
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

dfx_op_call call_without(const dfx_op_call *call, int slot) {
    dfx_op_call without = *call;
    without.m[slot] = (dfx_mat){0};
    switch (call->kind) {
    case DFX_OP_LAYERNORM:
        if (slot >= DFX_NORM_SCALE)
            without.m[slot ^ 1] = (dfx_mat){0};
        break;
    case DFX_OP_BOUND:
        if (slot == DFX_BOUND_V_SCALE)
            without.m[DFX_BOUND_V_B] = (dfx_mat){0};
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
