/* Private to offload/fuse*.c: how products whose values have a bound are known, and where their operands are from. */
#ifndef DFX_OFFLOAD_FUSE_INTERNAL_H
#define DFX_OFFLOAD_FUSE_INTERNAL_H

#include "offload/fuse.h"

enum { DFX_FUSE_NONE = UINT32_MAX };

/* A product of fp8 with this activation and nothing added, so that BOUND knows what its rows may be. */
bool dfx_fuse_is_bounded(const dfx_program *p, const dfx_op *op, dfx_act act);

/* The LAYERNORM of whose codes x of the product is rows; DFX_FUSE_NONE: something else made them. */
uint32_t dfx_fuse_norm_of(const dfx_program *p, uint32_t product);

/* The op before `before` that last wrote to the buffer, or DFX_FUSE_NONE. */
uint32_t dfx_fuse_last_writer(const dfx_program *p, uint32_t before, uint32_t buf);

/* Values of ATTENTION or ATTENTION_CODES as products left them, which is before op *before; NULL: V_CODES made others. */
const dfx_ref *dfx_fuse_values_of(const dfx_program *p, uint32_t attention, uint32_t *before);

static inline bool dfx_fuse_is_attention(const dfx_op *op) {
    return op->kind == DFX_OP_ATTENTION || op->kind == DFX_OP_ATTENTION_CODES;
}

/* QUANTIZE goes, and `bound`, which makes its scales, comes before attention, whose y becomes the first `cols` columns of its codes.
 * As many ops as there were: those from attention to QUANTIZE are one further. */
void dfx_fuse_attention_to_codes(dfx_program *p, uint32_t attention, uint32_t quantize,
                                 const dfx_op *bound, int64_t cols);

/* What has become of ops [first, end) keeps to the contract, or the builder has an error. */
void dfx_fuse_check(dfx_builder *b, uint32_t first, uint32_t end);

#endif
