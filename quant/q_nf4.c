/* See q_nf4.h. Whatever multiplies a whole block is done once for it: the 16 products of NF4 and FP4, the row's absmax. */
#include "quant/q_nf4.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static float absmax_of(const dfx_nf4 *q, int64_t block) {
    if (q->absmax)
        return q->absmax[block];
    float product =
        q->nested_quant_map[q->absmax_codes[block]] * q->nested_absmax[block / q->nested_block];
    return product + q->nested_offset;
}

/* Elements [first, first + n) of one block, whose 16 values are known. */
static void look_up(const uint8_t *codes, const float value[DFX_NF4_MAP], int64_t first, int64_t n,
                    float *dst) {
    int64_t i = 0;
    if (first % 2 != 0 && n > 0)
        dst[i++] = value[codes[first / 2] & 15];
    for (; i + 2 <= n; i += 2) {
        uint8_t pair = codes[(first + i) / 2];
        dst[i] = value[pair >> 4];
        dst[i + 1] = value[pair & 15];
    }
    if (i < n)
        dst[i] = value[codes[(first + i) / 2] >> 4];
}

void dfx_nf4_decode(const dfx_nf4 *q, int64_t first, int64_t n, float *dst) {
    float value[DFX_NF4_MAP];
    for (int64_t done = 0, step; done < n; done += step) {
        int64_t at = first + done, block = at / q->block;
        float absmax = absmax_of(q, block);
        step = least(n - done, q->block - at % q->block);
        for (int i = 0; i < DFX_NF4_MAP; i++)
            value[i] = q->quant_map[i] * absmax;
        look_up(q->codes, value, at, step, dst + done);
    }
}

void dfx_llm_int8_decode(const int8_t *codes, const float *row_absmax, int64_t cols, int64_t first,
                         int64_t n, float *dst) {
    for (int64_t done = 0, step; done < n; done += step) {
        int64_t at = first + done;
        float absmax = row_absmax[at / cols];
        step = least(n - done, cols - at % cols);
        for (int64_t i = 0; i < step; i++)
            dst[done + i] = (float)codes[at + i] * absmax / 127.0f;
    }
}
