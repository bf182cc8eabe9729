/* How fast pages come from a disk, read as the feed reads them (offload/disk.h), and how many requests in flight that takes. */
#ifndef DFX_TOOLS_BENCH_DISK_H
#define DFX_TOOLS_BENCH_DISK_H

#include "core/mem.h"
#include "tools/bench_sample.h"

typedef struct dfx_bench_disk {
    dfx_bench_sample rate;    /* bytes a second, at queue_depth */
    dfx_bench_sample latency; /* seconds of a read of 4 KiB with nothing else in flight */
    uint32_t queue_depth;     /* the least of 8, 16 and 32 whose rate is within 3 % of the best */
    uint64_t file_bytes;
    const char *mode; /* a string literal: "io_uring, direct", ... */
} dfx_bench_disk;

/* path: a file that is read, such as a packed model, or a folder, in which a file of 1 GiB is written and removed; it has no
 * name, where the file system can do that. n_runs of each depth, about DFX_BENCH_RUN_SECONDS long.
 * Errors: DFX_E_IO, DFX_E_NOFIT, DFX_E_CANCELLED; DFX_E_USAGE: a file too small to tell anything. */
dfx_status dfx_bench_disk_run(const char *path, uint32_t n_runs, bool (*cancelled)(void *user),
                              const dfx_sink *sink, dfx_bench_disk *out);

#endif
