/* Disk: reads ranges of one file into given buffers, many requests in flight, driven by one thread.
 *
 *     DFX_TRY(dfx_disk_open(&(dfx_disk_options){.path = path}, sink, &disk));
 *     DFX_TRY(dfx_disk_submit(disk, &(dfx_disk_range){.off = off, .dst = dst, .bytes = n, .room = n}));
 *     for (uint32_t n_done = 0; n_done == 0;)
 *         DFX_TRY(dfx_disk_step(disk, &n_done));
 *     dfx_disk_close(disk);
 *
 * io_uring with O_DIRECT, registered files and buffers where the system has them; where it refuses one of these, when
 * the file is opened or at the first read, the next plainer way is taken and that is said once.
 * What lies on borders of DFX_DISK_ALIGN, in the file and in memory, is read directly, everything else through the
 * page cache; only speed depends on it. Thread: one at a time. */
#ifndef DFX_OFFLOAD_DISK_H
#define DFX_OFFLOAD_DISK_H

#include "core/mem.h"

enum {
    DFX_DISK_ALIGN = 4096,
    DFX_DISK_BLOCK_BYTES = 1 << 20, /* of one request */
    DFX_DISK_DEPTH_DEFAULT = 32,
    DFX_DISK_DEPTH_MAX = 4096,
    DFX_DISK_RANGES_MAX = 16 /* submitted and not told as done */
};

typedef struct dfx_disk dfx_disk;
typedef struct dfx_disk_os
    dfx_disk_os; /* offload/disk_internal.h: what tests put in place of the system */

typedef struct dfx_disk_options {
    const char *path;
    uint32_t queue_depth; /* requests in flight; 0: DFX_DISK_DEPTH_DEFAULT */
    const dfx_mem *
        buffers; /* that are read into again and again; registered with the ring; live until close */
    uint32_t n_buffers;
    const dfx_disk_os *os; /* NULL: the system */
} dfx_disk_options;

/* `room` >= bytes: what may be written at dst. A direct read fills whole blocks, and uses the room for it. */
typedef struct dfx_disk_range {
    uint64_t off;
    void *dst;
    size_t bytes, room;
} dfx_disk_range;

/* Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_disk_open(const dfx_disk_options *options, const dfx_sink *sink, dfx_disk **out);
void dfx_disk_close(dfx_disk *disk); /* drains; NULL is fine */

/* Queue a range; does not wait. Errors: DFX_E_IO: it does not lie in the file; DFX_E_INTERNAL: more than
 * DFX_DISK_RANGES_MAX. */
dfx_status dfx_disk_submit(dfx_disk *disk, const dfx_disk_range *range);

/* Start what may be started, wait until a request has ended. *n_done: ranges that are complete now and were not before;
 * they are told in the order of submission. Call it while ranges are queued.
 * Errors: DFX_E_IO: said once; dfx_disk_drain must follow. */
dfx_status dfx_disk_step(dfx_disk *disk, uint32_t *n_done);

/* Forget all ranges; returns when nothing writes to their memory any more. The disk can be used again. */
void dfx_disk_drain(dfx_disk *disk);

/* "io_uring, direct", "io_uring", "pread, direct" or "pread": how it reads by now. A string literal. */
const char *dfx_disk_mode(const dfx_disk *disk);

#endif
