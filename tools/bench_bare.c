/* See bench_bare.h. Buffer i belongs to the requests i, i + depth, i + 2 depth ... A request that ends is followed by the
 * next one in its buffer, so queue_depth of them are always in flight. */
#include "tools/bench_bare.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "tools/bench_sample.h"

enum { ALIGN = 4096 };

typedef struct bare {
    const dfx_bench_bare *what;
    const dfx_sink *sink;
    struct io_uring ring;
    struct iovec *buffers; /* owned */
    uint64_t next;         /* from what->off */
    uint64_t n_in_flight;
} bare;

static dfx_status refused(const bare *b, const char *what, int error) {
    return dfx_fail(b->sink, DFX_E_IO,
                    "%s: cannot be measured: %s: %s; a bare read needs io_uring and O_DIRECT",
                    b->what->path, what, strerror(error));
}

static void put(bare *b, uint32_t buffer) {
    uint64_t left = b->what->bytes - b->next;
    unsigned bytes = left < b->what->block_bytes ? (unsigned)left : b->what->block_bytes;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);
    io_uring_prep_read_fixed(sqe, 0, b->buffers[buffer].iov_base, bytes, b->what->off + b->next,
                             (int)buffer);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = (uint64_t)bytes << 32 | buffer;
    b->next += bytes;
    b->n_in_flight++;
}

/* One result; a short read is an error here: the file is long enough. */
static dfx_status take(bare *b, struct io_uring_cqe *cqe) {
    uint32_t buffer = (uint32_t)cqe->user_data, bytes = (uint32_t)(cqe->user_data >> 32);
    int result = cqe->res;
    io_uring_cqe_seen(&b->ring, cqe);
    b->n_in_flight--;
    if (result < 0 || (uint32_t)result != bytes)
        return refused(b, "read", result < 0 ? -result : ENODATA);
    if (b->next < b->what->bytes)
        put(b, buffer);
    return DFX_OK;
}

static dfx_status loop(bare *b) {
    dfx_status status = DFX_OK;
    struct io_uring_cqe *cqe;
    for (uint32_t i = 0; i < b->what->queue_depth && b->next < b->what->bytes; i++)
        put(b, i);
    while (b->n_in_flight > 0) {
        int rc = io_uring_submit_and_wait(&b->ring, 1);
        if (rc < 0 && rc != -EINTR)
            return refused(b, "io_uring", -rc);
        if (status == DFX_OK && b->what->cancelled(NULL)) {
            status = DFX_E_CANCELLED;
            b->next = b->what->bytes; /* nothing more is put */
        }
        while (io_uring_peek_cqe(&b->ring, &cqe) == 0) {
            dfx_status taken = take(b, cqe);
            if (status == DFX_OK && taken != DFX_OK) {
                status = taken;
                b->next = b->what->bytes;
            }
        }
    }
    return status;
}

static dfx_status set_up_and_loop(bare *b, int fd, double *seconds) {
    uint32_t depth = b->what->queue_depth;
    int rc = io_uring_queue_init(depth, &b->ring, 0);
    if (rc < 0)
        return refused(b, "io_uring", -rc);
    dfx_status status = DFX_OK;
    if ((rc = io_uring_register_files(&b->ring, &fd, 1)) < 0)
        status = refused(b, "registering the file", -rc);
    else if ((rc = io_uring_register_buffers(&b->ring, b->buffers, depth)) < 0)
        status = refused(b, "registering buffers (ulimit -l)", -rc);
    double began = dfx_bench_seconds();
    if (status == DFX_OK)
        status = loop(b);
    *seconds = dfx_bench_seconds() - began;
    io_uring_queue_exit(&b->ring);
    return status;
}

dfx_status dfx_bench_bare_read(const dfx_bench_bare *what, const dfx_sink *sink, double *seconds) {
    bare b = {.what = what, .sink = sink};
    dfx_mem memory = {0};
    dfx_status status;
    size_t stride = dfx_align_up(what->block_bytes, ALIGN);
    int fd = open(what->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        return refused(&b, "open", errno);
    DFX_TRY_OUT(status, dfx_new_array(sink, what->queue_depth, "bench", &b.buffers));
    DFX_TRY_OUT(status, dfx_mem_alloc(sink, what->queue_depth * stride + ALIGN, "bench", &memory));
    for (uint32_t i = 0; i < what->queue_depth; i++)
        b.buffers[i] = (struct iovec){
            (char *)dfx_align_up((uintptr_t)memory.ptr, ALIGN) + i * stride, what->block_bytes};
    status = set_up_and_loop(&b, fd, seconds);
out:
    dfx_mem_free(&memory);
    dfx_free(b.buffers);
    close(fd);
    return status;
}
