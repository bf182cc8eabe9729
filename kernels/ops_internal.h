/* Private to kernels/ops*.c. */
#ifndef DFX_KERNELS_OPS_INTERNAL_H
#define DFX_KERNELS_OPS_INTERNAL_H

#include "kernels/ops.h"

static inline bool dfx_op_present(const dfx_mat *m) {
    return m->rows != 0 || m->cols != 0;
}

const char *dfx_op_slot_name(dfx_op_kind kind, int slot);

/* The scales of the codes that the operand is, by slot; 0: it is no codes. */
int dfx_op_codes_scale(const dfx_op_call *call, int slot);

/* The type of the operand where an op has codes of that type only; U8: it has not. */
dfx_dtype dfx_op_fixed_codes(dfx_op_kind kind, int slot);

#endif
