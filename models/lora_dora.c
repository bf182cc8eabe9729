#include "models/lora_dora.h"

#include <math.h>

enum { PIECE_VALUES = 1 << 20 };

/* |w + scale * up down|^2 of one row. `row`: room for k values. */
static double length2(const float *w, const float *down, const float *up, float scale, int64_t k,
                      int64_t rank, float *row) {
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        row[i] = w[i];
    for (int64_t r = 0; r < rank; r++) {
        float by = scale * up[r];
        for (int64_t i = 0; i < k; i++)
            row[i] += by * down[r * k + i];
    }
    for (int64_t i = 0; i < k; i++)
        sum += (double)row[i] * (double)row[i];
    return sum;
}

void dfx_dora_rescale(const float *w, const float *down, const float *up, const float *magnitude,
                      float scale, int64_t n, int64_t k, int64_t rank, float *row, float *d) {
    for (int64_t i = 0; i < n; i++) {
        double length = sqrt(length2(w + i * k, down, up + i * rank, scale, k, rank, row));
        d[i] = length > 0 ? (float)((double)magnitude[i] / length) : 1;
    }
}

dfx_status dfx_dora_of_part(const dfx_lora *lora, const dfx_lora_part *part, const dfx_tensors *set,
                            const dfx_tensor *weight, const float *scales, const float *down,
                            const float *up, const dfx_sink *sink, float *d) {
    int64_t k = part->k, step = PIECE_VALUES / k > 0 ? PIECE_VALUES / k : 1;
    size_t row_bytes = (size_t)k * dfx_dtype_bytes(weight->dtype);
    float *magnitude = NULL, *wide = NULL;
    unsigned char *codes = NULL;
    dfx_status status;
    step = step < part->n ? step : part->n;
    DFX_TRY_OUT(status, dfx_new_array(sink, (size_t)part->n, "DoRA", &magnitude));
    DFX_TRY_OUT(status, dfx_new_array(sink, (size_t)((step + 1) * k), "DoRA", &wide));
    DFX_TRY_OUT(status, dfx_new_array(sink, (size_t)step * row_bytes, "DoRA", &codes));
    DFX_TRY_OUT(status, dfx_lora_magnitude(lora, part, sink, magnitude));
    for (int64_t row = 0; row < part->n; row += step) {
        int64_t n = part->n - row < step ? part->n - row : step;
        DFX_TRY_OUT(status, dfx_tensors_read_part(set, weight, (uint64_t)row * row_bytes,
                                                  (size_t)n * row_bytes, sink, codes));
        dfx_to_f32(weight->dtype, codes, wide, (size_t)(n * k));
        for (int64_t i = 0; i < n * k; i++)
            wide[i] *= scales[row + i / k];
        dfx_dora_rescale(wide, down, up + row * part->rank, magnitude + row, part->scale, n, k,
                         part->rank, wide + step * k, d + row);
    }
out:
    dfx_free(magnitude);
    dfx_free(wide);
    dfx_free(codes);
    return status;
}
