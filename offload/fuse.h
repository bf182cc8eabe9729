/* Fuse: ops that one kernel does better than two. Meaning does not change; bits may, where a value is no longer rounded to the
 * activation type between the two.
 *
 *   LAYERNORM, RMSNORM or ACT_MUL, whose result only QUANTIZE reads   the same op, making codes
 *   LINEAR with GELU in fp8, whose result only QUANTIZE reads         the same op, making codes by a bound (fuse_bound.c)
 *   ATTENTION of values of two such products, likewise                the same (fuse_streams.c) */
#ifndef DFX_OFFLOAD_FUSE_H
#define DFX_OFFLOAD_FUSE_H

#include "offload/builder.h"

/* Before buffers are placed. Ops that are left move up; buffers that nobody names any more stay, unplaced. */
void dfx_fuse_ops(dfx_program *program);

/* After dfx_fuse_ops. Errors stick to the builder. */
void dfx_fuse_bounds(dfx_builder *b);
void dfx_fuse_streams(dfx_builder *b);

#endif
