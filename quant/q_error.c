/* Error sums. Values are taken in f32 pieces as in q_rows.c; sums run in double over LANES
 * accumulators that are joined in a fixed order, so that reports agree between machines. */
#include "quant/q_error.h"

#include "quant/q_internal.h"

enum { LANES = 8 };

typedef struct row_sums {
    double error_sq[LANES], source_sq[LANES], magnitude[LANES];
    uint64_t n_nonzero;
} row_sums;

DFX_Q_CLONES
static void sum_piece(row_sums *sums, const float *restrict source, const float *restrict decoded,
                      size_t n) {
    uint32_t n_nonzero = 0;
    for (size_t at = 0; at + LANES <= n; at += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            double w = source[at + lane], lost = w - decoded[at + lane];
            sums->error_sq[lane] += lost * lost;
            sums->source_sq[lane] += w * w;
            sums->magnitude[lane] += fabs(w);
            n_nonzero += source[at + lane] != 0.0f;
        }
    for (size_t at = n - n % LANES; at < n; at++) {
        double w = source[at], lost = w - decoded[at];
        sums->error_sq[0] += lost * lost;
        sums->source_sq[0] += w * w;
        sums->magnitude[0] += fabs(w);
        n_nonzero += source[at] != 0.0f;
    }
    sums->n_nonzero += n_nonzero;
}

static double joined(const double lanes[LANES]) {
    double sum = 0.0;
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static row_sums sums_of_row(const dfx_q_rows *rows, int64_t row, dfx_dtype storage,
                            const uint8_t *codes, const float *scale) {
    float source[DFX_Q_CHUNK], decoded[DFX_Q_CHUNK];
    row_sums sums = {0};
    for (int64_t col = 0; col < rows->cols; col += DFX_Q_CHUNK) {
        int64_t left = rows->cols - col, len = left < DFX_Q_CHUNK ? left : DFX_Q_CHUNK;
        size_t at = (size_t)(row * rows->cols + col);
        dfx_to_f32(rows->dtype, (const uint8_t *)rows->src + dfx_dtype_size(rows->dtype, at),
                   source, (size_t)len);
        dfx_q_decode_rows(storage, codes + at * dfx_dtype_bytes(storage), scale, 1, len, decoded);
        sum_piece(&sums, source, decoded, (size_t)len);
    }
    return sums;
}

bool dfx_q_error_rows(dfx_q_error *error, const dfx_q_rows *rows, dfx_qformat format,
                      const void *codes, const float *scales) {
    if (!dfx_dtype_is_numeric(rows->dtype) || format == DFX_Q_STORED ||
        rows->cols % dfx_dtype_block_of(rows->dtype).elements != 0)
        return false;
    dfx_dtype storage = dfx_q_storage(format, rows->dtype);
    for (int64_t row = 0; row < rows->n_rows; row++) {
        const float *scale = scales ? &scales[row] : NULL;
        row_sums sums = sums_of_row(rows, row, storage, codes, scale);
        error->error_sq += joined(sums.error_sq);
        error->source_sq += joined(sums.source_sq);
        if (storage == DFX_DTYPE_I8 &&
            joined(sums.magnitude) < (double)sums.n_nonzero * (double)*scale)
            error->n_outlier_rows++;
    }
    error->n_rows += (uint64_t)rows->n_rows;
    error->n_values += (uint64_t)rows->n_rows * (uint64_t)rows->cols;
    return true;
}

void dfx_q_error_add(dfx_q_error *error, const dfx_q_error *other) {
    error->error_sq += other->error_sq;
    error->source_sq += other->source_sq;
    error->n_values += other->n_values;
    error->n_rows += other->n_rows;
    error->n_outlier_rows += other->n_outlier_rows;
}

double dfx_q_error_relative(const dfx_q_error *error) {
    return error->error_sq > 0.0 ? sqrt(error->error_sq / error->source_sq) : 0.0;
}

double dfx_q_error_snr_db(const dfx_q_error *error) {
    return error->error_sq > 0.0 ? 10.0 * log10(error->source_sq / error->error_sq) : INFINITY;
}
