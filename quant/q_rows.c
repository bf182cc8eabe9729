/* Rows of a weight: two passes over the source, one for the greatest magnitude and one for the
 * codes, each in pieces that are widened to f32 on the stack. The second pass finds the row in
 * the cache. */
#include "quant/q_rows.h"

#include <inttypes.h>

#include "quant/q_internal.h"

/* As integers, magnitudes order like the floats, then infinity, then NaN; and an integer maximum
 * has no order of evaluation, so vectors of any width agree. */
DFX_Q_CLONES
float dfx_q_absmax(const float *x, size_t n, float absmax) {
    int32_t most = (int32_t)dfx_q_bits(absmax);
    for (size_t i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)(dfx_q_bits(x[i]) & 0x7fffffff);
        most = magnitude > most ? magnitude : most;
    }
    memcpy(&absmax, &most, sizeof(absmax));
    return absmax;
}

/* One row, and the f32 piece of it that is being looked at. */
typedef struct row_reader {
    const uint8_t *src;
    dfx_dtype dtype;
    size_t cols, at, len;
    float piece[DFX_Q_CHUNK];
} row_reader;

/* A pass ends when next_piece() says false; the next call starts over. */
static void aim(row_reader *reader, const dfx_q_rows *rows, int64_t row) {
    reader->dtype = rows->dtype;
    reader->cols = (size_t)rows->cols;
    reader->src =
        (const uint8_t *)rows->src + (size_t)row * dfx_dtype_size(rows->dtype, reader->cols);
    reader->at = reader->len = 0;
}

static bool next_piece(row_reader *reader) {
    reader->at += reader->len;
    if (reader->at >= reader->cols) {
        reader->at = reader->len = 0;
        return false;
    }
    size_t left = reader->cols - reader->at;
    reader->len = left < DFX_Q_CHUNK ? left : DFX_Q_CHUNK;
    return dfx_to_f32(reader->dtype, reader->src + dfx_dtype_size(reader->dtype, reader->at),
                      reader->piece, reader->len);
}

static dfx_status say_bad_value(const dfx_q_rows *rows, int64_t row, row_reader *reader,
                                const dfx_sink *sink) {
    size_t col = 0;
    float value = NAN;
    for (bool found = false; !found && next_piece(reader);)
        for (size_t i = 0; i < reader->len && !found; i++) {
            found = !dfx_q_in_range(fabsf(reader->piece[i]));
            col = reader->at + i;
            value = reader->piece[i];
        }
    return dfx_fail(sink, DFX_E_NUMERIC,
                    "%s: row %" PRId64 ", column %zu is %g; a weight must be finite and below "
                    "2^100 to be converted: the file is damaged, get it again",
                    rows->name, rows->first_row + row, col, (double)value);
}

static void encode_piece(const row_reader *reader, dfx_qformat format, float inverse,
                         uint8_t *row) {
    dfx_dtype storage = dfx_q_storage(format, reader->dtype);
    uint8_t *dst = row + reader->at * dfx_dtype_bytes(storage);
    if (storage == DFX_DTYPE_I8)
        dfx_q_int8_codes(reader->piece, reader->len, inverse, (int8_t *)dst);
    else if (dfx_q_has_row_scale(format))
        dfx_q_fp8_codes(reader->piece, reader->len, inverse, dst);
    else
        dfx_from_f32(storage, reader->piece, dst, reader->len);
}

static bool cuts_blocks(const dfx_q_rows *rows) {
    return rows->cols % dfx_dtype_block_of(rows->dtype).elements != 0;
}

dfx_status dfx_q_encode_rows(const dfx_q_rows *rows, dfx_qformat format, void *codes, float *scales,
                             const dfx_sink *sink) {
    if (format == DFX_Q_STORED || (unsigned)format >= DFX_N_QFORMATS)
        return dfx_fail(sink, DFX_E_INTERNAL, "%s: format %s has no encoding; copy the bytes",
                        rows->name, dfx_q_name(format));
    if (!dfx_dtype_is_numeric(rows->dtype))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %s cannot be converted to %s; keep it as stored",
                        rows->name, dfx_dtype_name(rows->dtype), dfx_q_name(format));
    if (cuts_blocks(rows))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: rows of %" PRId64 " values cut the blocks of %s",
                        rows->name, rows->cols, dfx_dtype_name(rows->dtype));
    bool is_scaled = dfx_q_has_row_scale(format);
    size_t row_bytes = (size_t)rows->cols * dfx_dtype_bytes(dfx_q_storage(format, rows->dtype));
    float code_max = format == DFX_Q_FP8 ? DFX_Q_FP8_MAX : DFX_Q_INT8_MAX;
    row_reader reader;
    for (int64_t row = 0; row < rows->n_rows; row++) {
        float absmax = 0.0f;
        aim(&reader, rows, row);
        while (next_piece(&reader))
            absmax = dfx_q_absmax(reader.piece, reader.len, absmax);
        if (!dfx_q_in_range(absmax))
            return say_bad_value(rows, row, &reader, sink);
        dfx_q_step step = dfx_q_step_of(absmax, code_max);
        while (next_piece(&reader))
            encode_piece(&reader, format, step.inverse, (uint8_t *)codes + (size_t)row * row_bytes);
        if (is_scaled)
            scales[row] = step.scale;
    }
    return DFX_OK;
}

bool dfx_q_decode_rows(dfx_dtype storage, const void *codes, const float *scales, int64_t n_rows,
                       int64_t cols, float *dst) {
    size_t n = (size_t)n_rows * (size_t)cols;
    if (!dfx_to_f32(storage, codes, dst, n))
        return false;
    if (scales)
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t col = 0; col < cols; col++)
                dst[row * cols + col] *= scales[row];
    return true;
}
