/* Liveness: places the temps of a program in one activation block, so that two whose lifetimes meet never overlap. */
#ifndef DFX_OFFLOAD_LIVENESS_H
#define DFX_OFFLOAD_LIVENESS_H

#include "offload/program.h"

/* Sets `off` of every TEMP in bufs[1 .. n_bufs) and the bytes of the block. Lifetimes [first_op, last_op] include both
 * ends, so an op's output never lies on its inputs unless they are one buffer. Offsets are multiples of DFX_ACT_ALIGN.
 * Largest first, each at the lowest place that is free for its whole life; O(n^2). */
dfx_status dfx_liveness_place(dfx_buf *bufs, uint32_t n_bufs, const dfx_sink *sink,
                              size_t *block_bytes);

#endif
