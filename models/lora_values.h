/* Values of a LoRA file's tensors, in pieces, so that looking through a file takes no memory of its size. */
#ifndef DFX_MODELS_LORA_VALUES_H
#define DFX_MODELS_LORA_VALUES_H

#include "core/safetensors.h"

/* A tensor as a matrix; sides of 1 that follow the second are squeezed ([r, in, 1, 1] of convolutions). */
typedef struct dfx_lora_matrix {
    const dfx_tensor *tensor;
    int64_t rows, cols;
} dfx_lora_matrix;

/* False for a type that is no float, other ranks, and sides of 0. */
bool dfx_lora_matrix_of(const dfx_tensor *tensor, dfx_lora_matrix *out);

enum { DFX_LORA_GROUPS_MAX = 4 };

/* Which blocks of a matrix hold a value that is not zero. Rows are cut at row_ends[n_row_groups], ascending, the last of them
 * the number of rows; columns into n_col_groups equal parts, of which their number is a multiple. */
typedef struct dfx_lora_blocks {
    int n_row_groups, n_col_groups;
    int64_t row_ends[DFX_LORA_GROUPS_MAX];
    bool used[DFX_LORA_GROUPS_MAX][DFX_LORA_GROUPS_MAX];
} dfx_lora_blocks;

/* Fills blocks->used. Errors: DFX_E_FORMAT names the tensor when a value is not finite; DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_lora_survey(const dfx_tensors *set, const dfx_lora_matrix *matrix,
                           const dfx_sink *sink, dfx_lora_blocks *blocks);

/* The same for a tensor of any shape as one block. */
dfx_status dfx_lora_is_zero(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            bool *out);

/* dst [n_rows, n_cols]: rows [row, row + n_rows) and columns [col, col + n_cols). Any thread. */
dfx_status dfx_lora_read_block(const dfx_tensors *set, const dfx_lora_matrix *matrix, int64_t row,
                               int64_t n_rows, int64_t col, int64_t n_cols, const dfx_sink *sink,
                               float *dst);

#endif
