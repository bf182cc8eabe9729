/* Pieces through io_uring, queue_depth of them in flight.
 *
 *   a slot   FREE --put--> PUT --the kernel takes it in submit--> IN KERNEL --reap--> FREE
 *
 * Of the slots that are not free, the io_uring_sq_ready() put last are PUT, all others IN KERNEL. Nothing that the kernel
 * still writes to is ever let go: drain and lose_ring wait for IN KERNEL to be empty.
 * liburing returns -errno and leaves errno alone. */
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "offload/disk_internal.h"

enum { FILE_BUFFERED, FILE_DIRECT, REFUSALS_MAX = 100 };

struct dfx_uring {
    struct io_uring ring;
    bool ring_is_open;
    bool has_files;         /* registered */
    dfx_disk_piece *pieces; /* owned; [queue_depth]; a slot each */
    uint32_t *free_slots;   /* owned; [queue_depth]; a stack */
    bool *is_busy;          /* owned; [queue_depth] */
    uint32_t n_free, n_slots;
    struct iovec *buffers; /* owned; registered */
    uint32_t n_buffers;    /* 0: not registered */
    uint32_t n_refused;    /* times in a row that the kernel had no room */
};

static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* The cure is named where it is known. */
static void say_refused(const dfx_disk *disk, int error) {
    dfx_info(disk->sink, "%s: io_uring is refused (%s%s): reading with pread, which may be slower",
             disk->path, strerror(error),
             error == EPERM    ? "; a container's seccomp profile or kernel.io_uring_disabled"
             : error == ENOSYS ? "; the kernel or a sandbox has none"
             : error == ENOMEM ? "; see ulimit -l"
                               : "");
}

/* Only a saving of time: reads work without. The kernel counts the buffers against RLIMIT_MEMLOCK. */
static dfx_status register_buffers(dfx_disk *disk, dfx_uring *u, const dfx_mem *buffers,
                                   uint32_t n_buffers) {
    struct rlimit limit = {0};
    uint64_t bytes = 0;
    if (n_buffers == 0)
        return DFX_OK;
    DFX_TRY(dfx_new_array(disk->sink, n_buffers, "disk", &u->buffers));
    for (uint32_t i = 0; i < n_buffers; i++) {
        u->buffers[i] = (struct iovec){buffers[i].ptr, buffers[i].bytes};
        bytes += buffers[i].bytes;
    }
    int rc = disk->os.ring_buffers(disk->os.user, &u->ring, u->buffers, n_buffers);
    if (rc == 0) {
        u->n_buffers = n_buffers;
        return DFX_OK;
    }
    getrlimit(RLIMIT_MEMLOCK, &limit);
    dfx_debug(disk->sink,
              "%s: %" PRIu64 " bytes of buffers are not registered with io_uring (%s; the limit "
              "of locked memory, ulimit -l, is %" PRIu64 " bytes): reading without",
              disk->path, bytes, strerror(-rc), (uint64_t)limit.rlim_cur);
    return DFX_OK;
}

dfx_status dfx_uring_open(dfx_disk *disk, const dfx_mem *buffers, uint32_t n_buffers,
                          dfx_uring **out) {
    dfx_uring *u;
    dfx_status status;
    *out = NULL;
    DFX_TRY(dfx_new(disk->sink, "disk", &u));
    u->n_slots = u->n_free = disk->queue_depth;
    DFX_TRY_OUT(status, dfx_new_array(disk->sink, u->n_slots, "disk", &u->pieces));
    DFX_TRY_OUT(status, dfx_new_array(disk->sink, u->n_slots, "disk", &u->free_slots));
    DFX_TRY_OUT(status, dfx_new_array(disk->sink, u->n_slots, "disk", &u->is_busy));
    for (uint32_t i = 0; i < u->n_slots; i++)
        u->free_slots[i] = i;
    int rc = disk->os.ring_open(disk->os.user, disk->queue_depth, &u->ring);
    if (rc < 0) {
        say_refused(disk, -rc);
        goto out;
    }
    u->ring_is_open = true;
    int files[] = {[FILE_BUFFERED] = disk->buffered_fd, [FILE_DIRECT] = disk->direct_fd};
    u->has_files = io_uring_register_files(&u->ring, files, DFX_COUNT(files)) == 0;
    DFX_TRY_OUT(status, register_buffers(disk, u, buffers, n_buffers));
    *out = u;
    return DFX_OK;
out:
    dfx_uring_close(u);
    return status;
}

void dfx_uring_close(dfx_uring *u) {
    if (!u)
        return;
    if (u->ring_is_open)
        io_uring_queue_exit(&u->ring);
    dfx_free(u->buffers);
    dfx_free(u->is_busy);
    dfx_free(u->free_slots);
    dfx_free(u->pieces);
    dfx_free(u);
}

/* Index of the registered buffer that holds the piece, or -1. */
static int buffer_of(const dfx_uring *u, const dfx_disk_piece *piece) {
    for (uint32_t i = 0; i < u->n_buffers; i++) {
        const char *base = u->buffers[i].iov_base;
        if (piece->dst >= base && piece->dst + piece->ask <= base + u->buffers[i].iov_len)
            return (int)i;
    }
    return -1;
}

/* There is an entry for every slot: the ring has at least queue_depth. */
static void put(dfx_disk *disk, dfx_uring *u, const dfx_disk_piece *piece) {
    uint32_t slot = u->free_slots[--u->n_free];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    int buffer = buffer_of(u, piece), fd = piece->direct ? disk->direct_fd : disk->buffered_fd;
    if (u->has_files)
        fd = piece->direct ? FILE_DIRECT : FILE_BUFFERED;
    if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, piece->dst, (unsigned)piece->ask, piece->off, buffer);
    else
        io_uring_prep_read(sqe, fd, piece->dst, (unsigned)piece->ask, piece->off);
    if (u->has_files)
        sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = slot;
    u->pieces[slot] = *piece;
    u->is_busy[slot] = true;
}

static uint32_t n_in_kernel(const dfx_uring *u) {
    return u->n_slots - u->n_free - io_uring_sq_ready(&u->ring);
}

/* A ring that refuses even a buffered read (kernels before 5.6 know no such request) is no use. */
static bool refuses_reads(const dfx_disk_piece *piece, int result) {
    return !piece->direct && (result == -EINVAL || result == -EOPNOTSUPP);
}

/* Takes in all results there are. *refused: set to the error of a read that the ring cannot do. */
static dfx_status reap(dfx_disk *disk, dfx_uring *u, int *refused) {
    struct io_uring_cqe *cqe;
    dfx_status status = DFX_OK;
    bool tired = false;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        uint32_t slot = (uint32_t)cqe->user_data;
        dfx_disk_piece piece = u->pieces[slot];
        int result =
            disk->os.ring_result(disk->os.user, piece.direct, piece.dst, piece.ask, cqe->res);
        io_uring_cqe_seen(&u->ring, cqe);
        u->is_busy[slot] = false;
        u->free_slots[u->n_free++] = slot;
        tired |= result == -EAGAIN;
        if (refuses_reads(&piece, result)) {
            *refused = -result;
            dfx_disk_give_back(disk, &piece);
            continue;
        }
        dfx_status ended = dfx_disk_piece_ended(disk, &piece, result);
        status = status != DFX_OK ? status : ended;
    }
    if (tired)
        rest();
    return status;
}

/* Wait for the kernel's own, then go on with pread. */
static dfx_status lose_ring(dfx_disk *disk, int error) {
    dfx_uring *u = disk->uring;
    struct io_uring_cqe *cqe;
    dfx_status status = DFX_OK;
    while (n_in_kernel(u) > 0) {
        int rc = io_uring_wait_cqe(&u->ring, &cqe);
        if (rc < 0 && rc != -EINTR)
            rest();
        dfx_status ended = reap(disk, u, &error);
        status = status != DFX_OK ? status : ended;
    }
    for (uint32_t slot = 0; slot < u->n_slots; slot++)
        if (u->is_busy[slot])
            dfx_disk_give_back(disk, &u->pieces[slot]);
    disk->uring = NULL;
    dfx_uring_close(u);
    say_refused(disk, error);
    return status;
}

/* Hands over what was put, waits for a result and takes in what is there. */
static dfx_status turn(dfx_disk *disk, dfx_uring *u) {
    struct io_uring_cqe *cqe;
    int refused = 0, rc = disk->os.ring_submit(disk->os.user, &u->ring, 1);
    if (rc == -EAGAIN || rc == -EBUSY) { /* the kernel has no room now */
        if (n_in_kernel(u) > 0)
            io_uring_wait_cqe(&u->ring, &cqe);
        else if (++u->n_refused < REFUSALS_MAX)
            rest();
        else
            return lose_ring(disk, -rc);
    } else if (rc < 0 && rc != -EINTR) {
        return lose_ring(disk, -rc);
    } else {
        u->n_refused = 0;
    }
    dfx_status status = reap(disk, u, &refused);
    if (status == DFX_OK && refused)
        status = lose_ring(disk, refused);
    return status;
}

dfx_status dfx_uring_step(dfx_disk *disk) {
    dfx_uring *u = disk->uring;
    dfx_disk_piece piece;
    while (u->n_free > 0 && dfx_disk_next_piece(disk, &piece))
        put(disk, u, &piece);
    return turn(disk, u);
}

/* Entries that were put and not taken are handed over too: the ring must not hold them for later. */
void dfx_uring_drain(dfx_disk *disk) {
    while (disk->uring && disk->uring->n_free < disk->uring->n_slots)
        turn(disk, disk->uring);
}
