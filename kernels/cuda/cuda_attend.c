/* Attention whose y may be codes. Hopper's kernels write them; the others write values to the workspace, of which codes are made
 * then. */
#include "kernels/cuda/cuda_internal.h"

static size_t values_bytes(const dfx_op_call *call) {
    return (size_t)(call->m[0].rows * call->m[0].cols) * dfx_dtype_bytes(DFX_DTYPE_BF16);
}

static size_t own_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    return call->kind == DFX_OP_ATTENTION ? dfx_cuda_attention_workspace(cuda, call) : 0;
}

static bool goes_through_values(const dfx_cuda *cuda, const dfx_op_call *call) {
    if (!dfx_op_is_codes(call, 0))
        return false;
    return !(call->kind == DFX_OP_ATTENTION ? dfx_cuda_attention_sm90_fits(cuda, call)
                                            : dfx_cuda_attention_codes_sm90_fits(cuda, call));
}

static dfx_status run(dfx_cuda *cuda, const dfx_op_call *call) {
    return call->kind == DFX_OP_ATTENTION ? dfx_cuda_attention(cuda, call)
                                          : dfx_cuda_attention_codes(cuda, call);
}

/* The call for values, which lie behind what it wants of the workspace itself. */
static dfx_op_call call_for_values(const dfx_cuda *cuda, const dfx_op_call *call) {
    dfx_op_call values = *call;
    values.m[dfx_op_y_scale_given(call->kind)] = (dfx_mat){0};
    values.m[0].dtype = DFX_DTYPE_BF16;
    values.m[0].ld = call->m[0].cols;
    values.m[0].ptr = (char *)cuda->workspace + dfx_align_up(own_workspace(cuda, &values), 256);
    return values;
}

size_t dfx_cuda_attend_workspace(const dfx_cuda *cuda, const dfx_op_call *call) {
    if (!goes_through_values(cuda, call))
        return own_workspace(cuda, call);
    dfx_op_call values = call_for_values(cuda, call);
    return dfx_align_up(own_workspace(cuda, &values), 256) + values_bytes(call);
}

dfx_status dfx_cuda_attend(dfx_cuda *cuda, const dfx_op_call *call) {
    if (!goes_through_values(cuda, call))
        return run(cuda, call);
    dfx_op_call values = call_for_values(cuda, call);
    DFX_TRY(run(cuda, &values));
    return dfx_cuda_codes_by_scales(cuda, &values.m[0], &call->m[0],
                                    call->m[dfx_op_y_scale_given(call->kind)].ptr);
}
