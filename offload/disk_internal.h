/* What the three files of the disk share: disk.c splits ranges into pieces and judges results, disk_uring.c and
 * disk_pread.c carry pieces out. The system stands behind a table, so that a test can make any call of it fail. */
#ifndef DFX_OFFLOAD_DISK_INTERNAL_H
#define DFX_OFFLOAD_DISK_INTERNAL_H

#include <sys/uio.h>

#include "offload/disk.h"

struct io_uring;

/* Each returns what the system call returns, with -errno for a failure, and nothing in errno. */
struct dfx_disk_os {
    void *user; /* borrowed; first argument of each */
    int (*open)(void *user, const char *path, int flags);
    int64_t (*pread)(void *user, int fd, void *dst, size_t bytes, uint64_t off);
    int (*ring_open)(void *user, uint32_t depth, struct io_uring *ring);
    int (*ring_buffers)(void *user, struct io_uring *ring, const struct iovec *iov, uint32_t n);
    int (*ring_submit)(void *user, struct io_uring *ring, uint32_t n_wait);
    /* What a read of `bytes` bytes into dst ended with; returns what to believe. */
    int (*ring_result)(void *user, bool direct, void *dst, size_t bytes, int result);
};

/* One request. `want` <= `ask`: a direct read may bring the rest of its last block along. */
typedef struct dfx_disk_piece {
    uint32_t range_idx; /* in disk->ranges */
    bool direct;
    uint64_t off;
    char *dst;
    size_t want, ask;
} dfx_disk_piece;

typedef struct dfx_uring dfx_uring;

struct dfx_disk {
    const dfx_sink *sink; /* borrowed */
    dfx_disk_os os;
    char *path;                 /* owned */
    int buffered_fd, direct_fd; /* direct_fd: -1 where the system would not open it */
    bool direct;                /* direct reads have not been refused */
    bool failed;                /* until drain: results are taken in and not judged */
    uint64_t file_bytes;
    uint32_t queue_depth;
    struct disk_range {
        dfx_disk_range ask;
        size_t cut_bytes;          /* handed out in pieces */
        size_t missing_bytes;      /* not read yet */
    } ranges[DFX_DISK_RANGES_MAX]; /* a ring */
    uint32_t first_range, n_ranges;
    dfx_disk_piece *again; /* owned; [queue_depth]: what is left of pieces that ended early */
    uint32_t n_again;
    dfx_uring *uring; /* owned; NULL: pread */
};

extern const dfx_disk_os dfx_disk_system;

/* Takes the next piece, at most queue_depth of them at a time; false when there is none. */
bool dfx_disk_next_piece(dfx_disk *disk, dfx_disk_piece *out);
/* `result`: bytes or -errno. Keeps what is to be read again. Errors: DFX_E_IO, said. */
dfx_status dfx_disk_piece_ended(dfx_disk *disk, const dfx_disk_piece *piece, int64_t result);
/* The piece was never started. */
void dfx_disk_give_back(dfx_disk *disk, const dfx_disk_piece *piece);

/* *out NULL where io_uring is refused, which is said. Errors: DFX_E_NOFIT. */
dfx_status dfx_uring_open(dfx_disk *disk, const dfx_mem *buffers, uint32_t n_buffers,
                          dfx_uring **out);
void dfx_uring_close(dfx_uring *uring); /* nothing in flight; NULL is fine */
/* Both may set disk->uring to NULL: refused only now. */
dfx_status dfx_uring_step(dfx_disk *disk);
void dfx_uring_drain(dfx_disk *disk);

dfx_status dfx_pread_step(dfx_disk *disk);

#endif
