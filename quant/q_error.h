/* How far decoded weights are from their source: for a row, a tensor, a block or a model, by
 * adding up.
 *
 *     dfx_q_error tensor = {0};
 *     dfx_q_error_rows(&tensor, &rows, DFX_Q_INT8, codes, scales); -- for each run of rows
 *     dfx_q_error_add(&model, &tensor);
 *     printf("%.1f dB", dfx_q_error_snr_db(&tensor));
 *
 * Outliers. An int8 row has one step, absmax / 127. A row is flagged when the mean magnitude of
 * its nonzero values is below that step: its ordinary weights have become -1, 0 and 1. Without
 * outliers absmax is about 4 times the mean (Gaussian row of 3072: 4.4), so a flag says that
 * outliers cost more than 20 log10(127 / 4) = 30 dB. The mean magnitude, not the root mean
 * square: the square lets a few outliers raise the very thing they are measured against. */
#ifndef DFX_QUANT_Q_ERROR_H
#define DFX_QUANT_Q_ERROR_H

#include "quant/q_rows.h"

/* Sums; all zero at the start. */
typedef struct dfx_q_error {
    double error_sq;  /* sum of (w - decoded)^2 */
    double source_sq; /* sum of w^2 */
    uint64_t n_values, n_rows, n_outlier_rows;
} dfx_q_error;

/* Add rows and their encoding. Outlier rows are looked for where the codes are int8. False, and
 * nothing added, when the source type cannot be widened, its blocks are cut, or `format` is DFX_Q_STORED
 * (no error to measure). */
bool dfx_q_error_rows(dfx_q_error *error, const dfx_q_rows *rows, dfx_qformat format,
                      const void *codes, const float *scales);

void dfx_q_error_add(dfx_q_error *error, const dfx_q_error *other);

/* sqrt(error / source); 0 when nothing was lost, also for a source of zeros. */
double dfx_q_error_relative(const dfx_q_error *error);

/* 10 log10(source / error) in dB; +infinity when nothing was lost. */
double dfx_q_error_snr_db(const dfx_q_error *error);

#endif
