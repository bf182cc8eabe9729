#include "models/embed.h"

#include <inttypes.h>

/* The builder has seen that the first dimension is the rows. */
static int64_t width_of(const dfx_tensor *t) {
    return (int64_t)t->n_elements / t->shape[0];
}

/* Row `row` of a weight into dst; raw: room for one row as stored. */
static dfx_status read_row(const dfx_program *tables, const dfx_weight *w, int64_t row,
                           const dfx_sink *sink, void *raw, float *dst) {
    int64_t width = width_of(w->tensor), n_rows = (int64_t)w->tensor->n_elements / width;
    size_t row_bytes = (size_t)width * dfx_dtype_bytes(w->dtype);
    if (row < 0 || row >= n_rows)
        return dfx_fail(sink, DFX_E_INTERNAL, "%s: row %" PRId64 " of %" PRId64, w->name, row,
                        n_rows);
    DFX_TRY(dfx_tensors_read_part(tables->tensors, w->tensor, (uint64_t)row * row_bytes, row_bytes,
                                  sink, raw));
    dfx_to_f32(w->dtype, raw, dst, (size_t)width);
    return DFX_OK;
}

dfx_status dfx_embed_rows(const dfx_program *tables, const dfx_weight *table,
                          const dfx_weight *position, const int32_t *ids, int64_t n,
                          const dfx_sink *sink, float *x) {
    int64_t width = width_of(table->tensor);
    float *raw; /* a row as stored (8 bytes a value at the most), then a position */
    DFX_TRY(dfx_new_array(sink, 4 * (size_t)width, "embedding", &raw));
    float *place = raw + 2 * width;
    dfx_status status = DFX_OK;
    for (int64_t i = 0; i < n && status == DFX_OK; i++) {
        float *row = x + i * width;
        DFX_TRY_OUT(status, read_row(tables, table, ids[i], sink, raw, row));
        if (!position)
            continue;
        DFX_TRY_OUT(status, read_row(tables, position, i, sink, raw, place));
        for (int64_t j = 0; j < width; j++)
            row[j] += place[j];
    }
out:
    dfx_free(raw);
    return status;
}
