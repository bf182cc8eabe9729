/* What the arithmetic of an op comes to. Products and attention are counted; all else is bound by memory. */
#include "kernels/ops.h"

/* Query-key pairs that a causal mask leaves, of n_queries by n_keys. */
static double causal_pairs(double n_queries, double n_keys) {
    double slope = n_queries < n_keys ? n_queries : n_keys;
    return slope * (slope + 1) / 2 + (n_queries - slope) * n_keys;
}

double dfx_op_flops(const dfx_op_call *call) {
    const dfx_mat *m = call->m;
    double n_out = (double)m[0].rows * (double)m[0].cols;
    switch (call->kind) {
    case DFX_OP_LINEAR:
        return 2 * n_out * (double)(m[DFX_LINEAR_X].cols + m[DFX_LINEAR_T].cols);
    case DFX_OP_CONV2D:
        return 2 * n_out * (double)m[DFX_CONV_W].cols;
    case DFX_OP_ATTENTION:
    case DFX_OP_ATTENTION_CODES: {
        double n_queries = (double)m[0].rows, n_keys = (double)m[DFX_ATTN_K].rows;
        double pairs = call->p.causal ? causal_pairs(n_queries, n_keys) : n_queries * n_keys;
        return 4 * pairs * (double)m[0].cols; /* scores, and values */
    }
    default:
        return n_out; /* bound by memory: one for each value written */
    }
}
