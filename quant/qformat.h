/* The number formats a weight can have in a packed model.
 *
 * stored  the source's own bytes; also what sources stay that are already 8 bits wide with scales
 * int8    codes with one f32 scale per row (output channel); activations become int8 per
 *         token at run time
 * int8wo  the same bytes; activations stay bf16 ("weight-only")
 * fp8     e4m3 codes with one f32 scale per row; activations become e4m3 per token
 * A row of a weight is one output channel: [rows, cols] is [out, in]. FORMAT.md: the arithmetic. */
#ifndef DFX_QUANT_QFORMAT_H
#define DFX_QUANT_QFORMAT_H

#include "core/dtype.h"

/*    name    text      bytes are      scale per row */
#define DFX_Q_LIST(X)                    \
    X(STORED, "stored", DFX_N_DTYPES, 0) \
    X(F32, "f32", DFX_DTYPE_F32, 0)      \
    X(BF16, "bf16", DFX_DTYPE_BF16, 0)   \
    X(INT8, "int8", DFX_DTYPE_I8, 1)     \
    X(INT8WO, "int8wo", DFX_DTYPE_I8, 1) \
    X(FP8, "fp8", DFX_DTYPE_F8_E4M3, 1)

#define DFX_Q_ENUM(name, text, dtype, scaled) DFX_Q_##name,
typedef enum dfx_qformat { DFX_Q_LIST(DFX_Q_ENUM) DFX_N_QFORMATS } dfx_qformat;
#undef DFX_Q_ENUM

const char *dfx_q_name(dfx_qformat format);

/* By the text above, as on the command line. False, and *out untouched, for any other. */
bool dfx_q_parse(const char *name, dfx_qformat *out);

/* Type of the bytes when a tensor of type `source` is put into `format`. */
dfx_dtype dfx_q_storage(dfx_qformat format, dfx_dtype source);

/* The format that leaves a tensor of this type as it is: DFX_Q_STORED, and DFX_Q_BF16 for the block types of ggml, which
 * packed models do not have. */
dfx_qformat dfx_q_unchanged(dfx_dtype source);

/* Whether a tensor of f32 scales, one for each row, goes with the codes. */
bool dfx_q_has_row_scale(dfx_qformat format);

#endif
