/* The yardstick of `bench io`: a bare loop over io_uring, with nothing of the feed in it. */
#ifndef DFX_TOOLS_BENCH_BARE_H
#define DFX_TOOLS_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sink.h"

typedef struct dfx_bench_bare {
    const char *path;
    uint64_t off, bytes; /* off on a border of blocks of the disk; bytes read in whole blocks */
    uint32_t queue_depth, block_bytes;
    bool (*cancelled)(void *user);
} dfx_bench_bare;

/* Read it once, in order, with O_DIRECT and registered file and buffers. Errors: DFX_E_IO, also where the system refuses
 * one of these; DFX_E_NOFIT; DFX_E_CANCELLED. */
dfx_status dfx_bench_bare_read(const dfx_bench_bare *what, const dfx_sink *sink, double *seconds);

#endif
