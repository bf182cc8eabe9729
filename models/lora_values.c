#include "models/lora_values.h"

#include <string.h>

enum { PIECE_VALUES = 1 << 17 }; /* whole blocks of every number type */

bool dfx_lora_matrix_of(const dfx_tensor *tensor, dfx_lora_matrix *out) {
    static const dfx_dtype floats[] = {DFX_DTYPE_F32,     DFX_DTYPE_BF16,    DFX_DTYPE_F16,
                                       DFX_DTYPE_F8_E4M3, DFX_DTYPE_F8_E5M2, DFX_DTYPE_F64};
    bool good = false;
    int rank = tensor->rank;
    for (size_t i = 0; i < DFX_COUNT(floats); i++)
        good |= tensor->dtype == floats[i];
    while (rank > 2 && tensor->shape[rank - 1] == 1)
        rank--;
    if (!good || rank != 2 || tensor->n_elements == 0)
        return false;
    *out = (dfx_lora_matrix){tensor, tensor->shape[0], tensor->shape[1]};
    return true;
}

/* A piece of a tensor on its way: as stored, and widened. */
typedef struct piece_reader {
    const dfx_tensors *set;
    const dfx_tensor *tensor;
    const dfx_sink *sink;
    void *stored;  /* owned */
    float *values; /* owned */
    size_t n_max;
} piece_reader;

static dfx_status reader_begin(piece_reader *r, const dfx_tensors *set, const dfx_tensor *tensor,
                               size_t n_max, const dfx_sink *sink) {
    *r = (piece_reader){.set = set, .tensor = tensor, .sink = sink, .n_max = n_max};
    DFX_TRY(dfx_alloc(sink, dfx_dtype_size(tensor->dtype, n_max), "lora", &r->stored));
    return dfx_new_array(sink, n_max, "lora", &r->values);
}

static void reader_end(piece_reader *r) {
    dfx_free(r->stored);
    dfx_free(r->values);
}

/* Values [first, first + n) into dst; n <= n_max. */
static dfx_status reader_read(const piece_reader *r, uint64_t first, size_t n, float *dst) {
    dfx_dtype dtype = r->tensor->dtype;
    DFX_TRY(dfx_tensors_read_part(r->set, r->tensor, dfx_dtype_size(dtype, first),
                                  dfx_dtype_size(dtype, n), r->sink, r->stored));
    dfx_to_f32(dtype, r->stored, dst, n);
    return DFX_OK;
}

/* Magnitude bits of all values in *any; false when one is not finite. Written for the vectorizer: files hold up to 10^9 values. */
static bool look_at(const float *values, size_t n, uint32_t *any) {
    uint32_t all = 0, bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= 0x7fffffff;
        all |= bits;
        bad |= bits >= 0x7f800000;
    }
    *any |= all;
    return bad == 0;
}

/* Values that begin at `first` of the flat tensor, in runs within one block: groups of columns cut rows, and without them a run is
 * all rows of a group. */
static bool look_at_piece(const dfx_lora_matrix *m, uint64_t first, const float *values, size_t n,
                          dfx_lora_blocks *blocks) {
    int64_t group_cols = m->cols / blocks->n_col_groups;
    int row_group = 0;
    while (n > 0) {
        int64_t row = (int64_t)(first / (uint64_t)m->cols);
        int64_t col = (int64_t)(first % (uint64_t)m->cols);
        while (row >= blocks->row_ends[row_group])
            row_group++;
        int64_t run = blocks->n_col_groups > 1
                          ? group_cols - col % group_cols
                          : (blocks->row_ends[row_group] - row) * m->cols - col;
        size_t n_run = (uint64_t)run < n ? (size_t)run : n;
        uint32_t any = 0;
        if (!look_at(values, n_run, &any))
            return false;
        blocks->used[row_group][col / group_cols] |= any != 0;
        first += n_run;
        values += n_run;
        n -= n_run;
    }
    return true;
}

dfx_status dfx_lora_survey(const dfx_tensors *set, const dfx_lora_matrix *matrix,
                           const dfx_sink *sink, dfx_lora_blocks *blocks) {
    uint64_t n_all = matrix->tensor->n_elements;
    piece_reader r;
    dfx_status status;
    memset(blocks->used, 0, sizeof(blocks->used));
    DFX_TRY_OUT(status, reader_begin(&r, set, matrix->tensor,
                                     n_all < PIECE_VALUES ? (size_t)n_all : PIECE_VALUES, sink));
    for (uint64_t at = 0; at < n_all; at += r.n_max) {
        size_t n = n_all - at < r.n_max ? (size_t)(n_all - at) : r.n_max;
        DFX_TRY_OUT(status, reader_read(&r, at, n, r.values));
        if (!look_at_piece(matrix, at, r.values, n, blocks)) {
            status = dfx_fail(sink, DFX_E_FORMAT,
                              "%s: %.200s: a value is not finite (NaN or infinity): the file is "
                              "damaged, or its training failed",
                              dfx_tensors_file_path(set, matrix->tensor->file_idx),
                              matrix->tensor->name);
            goto out;
        }
    }
out:
    reader_end(&r);
    return status;
}

dfx_status dfx_lora_is_zero(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            bool *out) {
    *out = true;
    if (tensor->n_elements == 0)
        return DFX_OK;
    if (!dfx_dtype_is_numeric(tensor->dtype) || dfx_dtype_bytes(tensor->dtype) == 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %.200s: wanted plain numbers, found %s",
                        dfx_tensors_file_path(set, tensor->file_idx), tensor->name,
                        dfx_dtype_name(tensor->dtype));
    dfx_lora_matrix row = {tensor, 1, (int64_t)tensor->n_elements};
    dfx_lora_blocks blocks = {.n_row_groups = 1, .n_col_groups = 1, .row_ends = {1}};
    DFX_TRY(dfx_lora_survey(set, &row, sink, &blocks));
    *out = !blocks.used[0][0];
    return DFX_OK;
}

dfx_status dfx_lora_read_block(const dfx_tensors *set, const dfx_lora_matrix *matrix, int64_t row,
                               int64_t n_rows, int64_t col, int64_t n_cols, const dfx_sink *sink,
                               float *dst) {
    int64_t rows_at_once = PIECE_VALUES / matrix->cols;
    piece_reader r;
    dfx_status status;
    rows_at_once = rows_at_once < 1 ? 1 : rows_at_once < n_rows ? rows_at_once : n_rows;
    DFX_TRY_OUT(status,
                reader_begin(&r, set, matrix->tensor, (size_t)(rows_at_once * matrix->cols), sink));
    for (int64_t at = 0; at < n_rows; at += rows_at_once) {
        int64_t n = n_rows - at < rows_at_once ? n_rows - at : rows_at_once;
        DFX_TRY_OUT(status, reader_read(&r, (uint64_t)((row + at) * matrix->cols),
                                        (size_t)(n * matrix->cols), r.values));
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + (at + i) * n_cols, r.values + i * matrix->cols + col,
                   (size_t)n_cols * sizeof(*dst));
    }
out:
    reader_end(&r);
    return status;
}
