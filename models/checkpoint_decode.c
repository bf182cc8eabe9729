/* The values of a stored weight, a run of elements at a time, out of the bytes of the file. */
#include <string.h>

#include "models/checkpoint_internal.h"
#include "quant/q_nf4.h"

int64_t dfx_storage_unit(const dfx_storage *s) {
    if (s->kind == DFX_STORE_ROTATED)
        return s->group;
    return s->kind == DFX_STORE_4BIT ? s->block : dfx_dtype_block_of(s->code_dtype).elements;
}

static int64_t cols_of(const dfx_storage *s) {
    int64_t cols = 1;
    for (int i = 1; i < s->rank; i++)
        cols *= s->shape[i];
    return cols;
}

static dfx_status read_values(const dfx_storage *s, const dfx_tensors *set, const dfx_sink *sink,
                              int64_t first, int64_t n, float *dst) {
    uint8_t stored[DFX_STORAGE_CHUNK * sizeof(double)];
    size_t bytes = dfx_dtype_size(s->code_dtype, (size_t)n);
    DFX_TRY(dfx_tensors_read_part(set, s->codes, dfx_dtype_size(s->code_dtype, (size_t)first),
                                  bytes, sink, stored));
    dfx_to_f32(s->code_dtype, stored, dst, (size_t)n);
    return DFX_OK;
}

static void scale_values(const dfx_storage *s, int64_t first, int64_t n, float *dst) {
    int64_t cols = cols_of(s);
    for (int64_t i = 0; i < n;) {
        int64_t row = (first + i) / cols, end = (row + 1) * cols - first;
        float scale = s->scales[s->n_scales == 1 ? 0 : row];
        for (; i < end && i < n; i++)
            dst[i] *= scale;
    }
}

/* x times the Kronecker power of H = 1/2 [[1,1,1,-1], [1,1,-1,1], [1,-1,1,1], [-1,1,1,1]], one factor after the other. H is
 * symmetric and its own inverse, and so is the power: this undoes the rotation. A row of H x is half the sum of x, less the
 * value that has the minus sign: sum/2 - x[3 - row]. */
static void rotate(float *x, int64_t n) {
    for (int64_t stride = 1; stride < n; stride *= 4)
        for (int64_t base = 0; base < n; base += 4 * stride)
            for (int64_t i = base; i < base + stride; i++) {
                float v[4], half = 0;
                for (int64_t k = 0; k < 4; k++) {
                    v[k] = x[i + k * stride];
                    half += 0.5f * v[k];
                }
                for (int64_t k = 0; k < 4; k++)
                    x[i + k * stride] = half - v[3 - k];
            }
}

/* Whole blocks, so an absmax that is codes can be decoded for these blocks alone. */
static dfx_status read_4bit(const dfx_storage *s, const dfx_tensors *set, const dfx_sink *sink,
                            int64_t first, int64_t n, float *dst) {
    enum { BLOCKS_MAX = DFX_STORAGE_CHUNK / 2 };
    uint8_t codes[DFX_STORAGE_CHUNK / 2 + 1], nested[BLOCKS_MAX];
    float absmax[BLOCKS_MAX];
    int64_t block0 = first / s->block, n_blocks = (n + s->block - 1) / s->block;
    DFX_TRY(dfx_tensors_read_part(set, s->codes, (uint64_t)first / 2, (size_t)(n + 1) / 2, sink,
                                  codes));
    if (!s->nested_map) {
        DFX_TRY(dfx_tensors_read_part(set, s->absmax, (uint64_t)block0 * sizeof(*absmax),
                                      (size_t)n_blocks * sizeof(*absmax), sink, absmax));
    } else {
        DFX_TRY(dfx_tensors_read_part(set, s->absmax, (uint64_t)block0, (size_t)n_blocks, sink,
                                      nested));
        for (int64_t b = 0; b < n_blocks; b++)
            absmax[b] =
                s->nested_map[nested[b]] * s->nested_absmax[(block0 + b) / s->nested_block] +
                s->nested_offset;
    }
    dfx_nf4 q = {.codes = codes, .quant_map = s->quant_map, .absmax = absmax, .block = s->block};
    dfx_nf4_decode(&q, 0, n, dst);
    return DFX_OK;
}

dfx_status dfx_storage_decode(const dfx_storage *s, const dfx_tensors *set, const dfx_sink *sink,
                              int64_t first, int64_t n, float *dst) {
    if (s->kind == DFX_STORE_4BIT)
        return read_4bit(s, set, sink, first, n, dst);
    DFX_TRY(read_values(s, set, sink, first, n, dst));
    if (s->kind != DFX_STORE_PLAIN)
        scale_values(s, first, n, dst);
    for (int64_t i = 0; s->kind == DFX_STORE_ROTATED && i < n; i += s->group)
        rotate(dst + i, s->group);
    return DFX_OK;
}
