/* Weights to codes and back, one row (output channel) at a time.
 *
 *     dfx_q_rows rows = {name, DFX_DTYPE_BF16, src, 0, out_features, in_features};
 *     DFX_TRY(dfx_q_encode_rows(&rows, DFX_Q_INT8, codes, scales, sink));
 *
 * A row depends on no other: cut a tensor into runs of rows and encode them on as many threads
 * as there are; the bytes are the same, on every kind of processor. FORMAT.md, "Rounding and
 * saturation", has the arithmetic. A source that is already I8 or F8 with scales is kept
 * exactly: it is DFX_Q_STORED, its bytes and scales are copied and only ever decoded here.
 * Encoding it again would round twice. */
#ifndef DFX_QUANT_Q_ROWS_H
#define DFX_QUANT_Q_ROWS_H

#include "core/sink.h"
#include "quant/qformat.h"

/* Rows [first_row, first_row + n_rows) of a tensor. */
typedef struct dfx_q_rows {
    const char *name; /* borrowed; for messages */
    dfx_dtype dtype;
    const void *src;   /* borrowed; [n_rows, cols] row-major, no alignment needed */
    int64_t first_row; /* index in the tensor of the first row in `src`; for messages */
    int64_t n_rows, cols;
} dfx_q_rows;

/* Encode into any format but DFX_Q_STORED (which is a copy of bytes).
 * codes   [n_rows, cols] of dfx_q_storage(format), no alignment needed, not overlapping src
 * scales  [n_rows], or NULL for a format without
 * Errors  DFX_E_NUMERIC: a value is NaN, infinite, or 2^100 and more; the sentence names tensor,
 *         row and column, and codes and scales from that row on are not written.   DFX_E_FORMAT:
 *         the source type cannot be widened to f32, or `cols` cuts its blocks.
 * Thread  any; nothing is allocated. */
dfx_status dfx_q_encode_rows(const dfx_q_rows *rows, dfx_qformat format, void *codes, float *scales,
                             const dfx_sink *sink);

/* dst[r, c] = codes[r, c] * scales[r] in f32 (scales NULL: codes as they are). codes [n_rows,
 * cols] of `storage`. False when `storage` cannot be widened. Any thread. */
bool dfx_q_decode_rows(dfx_dtype storage, const void *codes, const float *scales, int64_t n_rows,
                       int64_t cols, float *dst);

/* The activations of one token, x [n], n >= 0: the same arithmetic as a row of weights. Returns
 * the scale. A value that is not finite, or 2^100 and more, gives scale NaN and codes 0, so that
 * it cannot pass unseen. */
float dfx_q_token_int8(const float *x, int64_t n, int8_t *codes);
float dfx_q_token_fp8(const float *x, int64_t n, uint8_t *codes);

/* fp8 of a token whose scale is not to be below `least` (> 0, or NaN), and so not what is best for it. _scaled: of values that
 * have their scale already: codes[i] = e4m3(x[i] * (1 / scale)), no further than +-448, and NaN where that is NaN. */
float dfx_q_token_fp8_least(const float *x, int64_t n, float least, uint8_t *codes);
void dfx_q_token_fp8_scaled(const float *x, int64_t n, float scale, uint8_t *codes);

#endif
