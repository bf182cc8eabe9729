/* Pieces one by one with pread: slower than a ring, and allowed everywhere. Also the table of the system's own calls. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <time.h>
#include <unistd.h>

#include "offload/disk_internal.h"

/* A read that would have to wait ends with EAGAIN on some network file systems only; it is tried again after a rest. */
dfx_status dfx_pread_step(dfx_disk *disk) {
    static const struct timespec rest = {.tv_nsec = 1000000};
    dfx_disk_piece piece;
    if (!dfx_disk_next_piece(disk, &piece))
        return DFX_OK;
    int fd = piece.direct ? disk->direct_fd : disk->buffered_fd;
    int64_t result = disk->os.pread(disk->os.user, fd, piece.dst, piece.ask, piece.off);
    if (result == -EAGAIN)
        nanosleep(&rest, NULL);
    return dfx_disk_piece_ended(disk, &piece, result);
}

static int system_open(void *user, const char *path, int flags) {
    int fd = open(path, flags);
    return fd < 0 ? -errno : fd;
}

static int64_t system_pread(void *user, int fd, void *dst, size_t bytes, uint64_t off) {
    ssize_t got = pread(fd, dst, bytes, (off_t)off);
    return got < 0 ? -errno : got;
}

static int system_ring_open(void *user, uint32_t depth, struct io_uring *ring) {
    return io_uring_queue_init(depth, ring, 0);
}

static int system_ring_buffers(void *user, struct io_uring *ring, const struct iovec *iov,
                               uint32_t n) {
    return io_uring_register_buffers(ring, iov, n);
}

static int system_ring_submit(void *user, struct io_uring *ring, uint32_t n_wait) {
    return io_uring_submit_and_wait(ring, n_wait);
}

static int system_ring_result(void *user, bool direct, void *dst, size_t bytes, int result) {
    return result;
}

const dfx_disk_os dfx_disk_system = {
    .open = system_open,
    .pread = system_pread,
    .ring_open = system_ring_open,
    .ring_buffers = system_ring_buffers,
    .ring_submit = system_ring_submit,
    .ring_result = system_ring_result,
};
