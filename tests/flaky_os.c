/* See tests/flaky_os.h. A short read also spoils what was read and is not told of, so that only reading it again helps. */
#include "tests/flaky_os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int flaky_open(void *user, const char *path, int flags) {
    flaky_os *flaky = user;
    if (flags & O_DIRECT && flaky->open_direct)
        return flaky->open_direct;
    return dfx_disk_system.open(NULL, path, flags);
}

static bool fault_is_due(flaky_os *flaky) {
    uint32_t n = ++flaky->n_reads, first = flaky->first_fault;
    bool due = first && (n == first || (n > first && flaky->fault_period &&
                                        (n - first) % flaky->fault_period == 0));
    flaky->n_faults += due;
    return due;
}

static int64_t read_result(flaky_os *flaky, void *dst, size_t bytes, int64_t result) {
    flaky->n_asked_bytes += bytes;
    if (!fault_is_due(flaky))
        return result;
    if (flaky->read_fault != FLAKY_SHORT)
        return flaky->read_fault;
    if (result <= 1)
        return result;
    /* Now and then a whole number of blocks, as a file system would, else anything. */
    int64_t part = flaky->n_faults % 2 ? result / 3 : result / 2 / DFX_DISK_ALIGN * DFX_DISK_ALIGN;
    part = part > 0 ? part : 1;
    memset((char *)dst + part, 0xee, (size_t)(result - part));
    return part;
}

static int64_t flaky_pread(void *user, int fd, void *dst, size_t bytes, uint64_t off) {
    flaky_os *flaky = user;
    if (flaky->direct_read && fcntl(fd, F_GETFL) & O_DIRECT)
        return flaky->direct_read;
    return read_result(flaky, dst, bytes, dfx_disk_system.pread(NULL, fd, dst, bytes, off));
}

static int flaky_ring_open(void *user, uint32_t depth, struct io_uring *ring) {
    flaky_os *flaky = user;
    return flaky->ring_open ? flaky->ring_open : dfx_disk_system.ring_open(NULL, depth, ring);
}

static int flaky_ring_buffers(void *user, struct io_uring *ring, const struct iovec *iov,
                              uint32_t n) {
    flaky_os *flaky = user;
    flaky->n_registered += n;
    return flaky->ring_buffers ? flaky->ring_buffers
                               : dfx_disk_system.ring_buffers(NULL, ring, iov, n);
}

static int flaky_ring_submit(void *user, struct io_uring *ring, uint32_t n_wait) {
    flaky_os *flaky = user;
    if (flaky->n_submits++ < flaky->n_ring_submit)
        return flaky->ring_submit;
    return dfx_disk_system.ring_submit(NULL, ring, n_wait);
}

static int flaky_ring_result(void *user, bool direct, void *dst, size_t bytes, int result) {
    flaky_os *flaky = user;
    if (flaky->direct_read && direct)
        return flaky->direct_read;
    return (int)read_result(flaky, dst, bytes, result);
}

void flaky_init(flaky_os *flaky) {
    *flaky = (flaky_os){.os = {.user = flaky,
                               .open = flaky_open,
                               .pread = flaky_pread,
                               .ring_open = flaky_ring_open,
                               .ring_buffers = flaky_ring_buffers,
                               .ring_submit = flaky_ring_submit,
                               .ring_result = flaky_ring_result}};
}
