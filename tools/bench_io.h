/* How fast the feed brings pages from disk, beside a bare read of the same bytes with the same queue depth. */
#ifndef DFX_TOOLS_BENCH_IO_H
#define DFX_TOOLS_BENCH_IO_H

#include "core/sink.h"
#include "offload/packed.h"
#include "tools/bench_sample.h"

enum { DFX_BENCH_DEVICE_BYTES = 64 };

typedef struct dfx_bench_io_options {
    uint32_t queue_depth; /* 0: the feed's own */
    uint32_t n_runs;
    bool (*cancelled)(void *user);
} dfx_bench_io_options;

typedef struct dfx_bench_io {
    uint32_t n_pages, queue_depth, block_bytes;
    uint64_t bytes;                      /* of one run */
    dfx_bench_sample bare, feed;         /* bytes a second */
    const char *mode;                    /* of the feed: a string literal */
    char device[DFX_BENCH_DEVICE_BYTES]; /* "nvme0n1"; "" where the system does not say */
} dfx_bench_io;

/* Bare and feed in turn, bare first and feed first by turns, after one run of the feed that is not counted: it verifies. Compressed pages are left out.
 * Errors: those of the feed; DFX_E_IO where there is no io_uring or O_DIRECT; DFX_E_USAGE: no pages to read. */
dfx_status dfx_bench_io_run(const dfx_packed *packed, const dfx_bench_io_options *options,
                            const dfx_sink *sink, dfx_bench_io *out);

#endif
