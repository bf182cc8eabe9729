/* A right call of every kind of op, without addresses: what tests of the op contract break and take apart.
 *
 *     dfx_op_call call = right_call(DFX_OP_LINEAR);
 *     call.m[DFX_LINEAR_GATE] = f32(5, 6); */
#ifndef DFX_TESTS_OP_CALLS_H
#define DFX_TESTS_OP_CALLS_H

#include "kernels/ops.h"

/* Rows 4 values further apart than they are long. */
static inline dfx_mat mat(dfx_dtype dtype, int64_t rows, int64_t cols) {
    return (dfx_mat){.rows = rows, .cols = cols, .ld = cols + 4, .dtype = dtype};
}

static inline dfx_mat f32(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_F32, rows, cols);
}

static inline dfx_mat bf16(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_BF16, rows, cols);
}

static inline dfx_mat f8(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_F8_E4M3, rows, cols);
}

static inline dfx_mat i8(int64_t rows, int64_t cols) {
    return mat(DFX_DTYPE_I8, rows, cols);
}

/* With every operand there that may be, but for those that exclude each other. */
dfx_op_call right_call(dfx_op_kind kind);

/* Without an operand that may be left out, and what may not be there, or not be missing, beside that. */
dfx_op_call call_without(const dfx_op_call *call, int slot);

#endif
