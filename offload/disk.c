/* Ranges into pieces, results into progress.
 *
 *   a range   QUEUED --next_piece, until all is cut--> IN FLIGHT --piece_ended, until none is missing--> DONE
 *   a piece   cut --step--> in flight --piece_ended--> gone, or what is left of it is cut again
 *
 * A piece is direct when its place in the file and in memory are on borders of blocks and its last block lies wholly in
 * the file and in the room of its range; so the unaligned end of a file, or of a place that has a neighbour, is read through
 * the page cache. Pieces in flight and pieces to be read again are never more than queue_depth. */
#include "offload/disk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Without a ring there is one request at a time, so it has to be larger. */
static const size_t PREAD_BLOCK_BYTES = (size_t)8 << 20;

static dfx_status open_files(dfx_disk *disk);
static void lose_direct(dfx_disk *disk, int error);

dfx_status dfx_disk_open(const dfx_disk_options *options, const dfx_sink *sink, dfx_disk **out) {
    dfx_disk *disk;
    dfx_status status;
    DFX_TRY(dfx_new(sink, "disk", &disk));
    disk->sink = sink;
    disk->os = options->os ? *options->os : dfx_disk_system;
    disk->buffered_fd = disk->direct_fd = -1;
    disk->queue_depth = options->queue_depth ? options->queue_depth : DFX_DISK_DEPTH_DEFAULT;
    if (disk->queue_depth > DFX_DISK_DEPTH_MAX)
        disk->queue_depth = DFX_DISK_DEPTH_MAX;
    size_t path_bytes = strlen(options->path) + 1;
    DFX_TRY_OUT(status, dfx_alloc(sink, path_bytes, "disk", (void **)&disk->path));
    memcpy(disk->path, options->path, path_bytes);
    DFX_TRY_OUT(status, dfx_new_array(sink, disk->queue_depth, "disk", &disk->again));
    DFX_TRY_OUT(status, open_files(disk));
    DFX_TRY_OUT(status, dfx_uring_open(disk, options->buffers, options->n_buffers, &disk->uring));
out:
    if (status != DFX_OK)
        dfx_disk_close(disk);
    else
        *out = disk;
    return status;
}

void dfx_disk_close(dfx_disk *disk) {
    if (!disk)
        return;
    dfx_disk_drain(disk);
    dfx_uring_close(disk->uring);
    if (disk->buffered_fd >= 0)
        close(disk->buffered_fd);
    if (disk->direct_fd >= 0)
        close(disk->direct_fd);
    dfx_free(disk->again);
    dfx_free(disk->path);
    dfx_free(disk);
}

static dfx_status open_files(dfx_disk *disk) {
    static const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct stat st;
    disk->buffered_fd = disk->os.open(disk->os.user, disk->path, flags);
    if (disk->buffered_fd < 0)
        return dfx_fail(disk->sink, DFX_E_IO, "%s: cannot open: %s", disk->path,
                        strerror(-disk->buffered_fd));
    if (fstat(disk->buffered_fd, &st) != 0)
        return dfx_fail(disk->sink, DFX_E_IO, "%s: cannot tell its size: %s", disk->path,
                        strerror(errno));
    disk->file_bytes = (uint64_t)st.st_size;
    disk->direct = true;
    disk->direct_fd = disk->os.open(disk->os.user, disk->path, flags | O_DIRECT);
    if (disk->direct_fd < 0)
        lose_direct(disk, -disk->direct_fd);
    return DFX_OK;
}

/* Several requests may be in flight when the first is refused: it is said for that one. */
static void lose_direct(dfx_disk *disk, int error) {
    if (disk->direct)
        dfx_info(disk->sink,
                 "%s: its file system refuses direct reads (%s): reading through the page cache, "
                 "which is slower",
                 disk->path, strerror(error));
    disk->direct = false;
}

dfx_status dfx_disk_submit(dfx_disk *disk, const dfx_disk_range *range) {
    uint64_t end;
    if (disk->n_ranges == DFX_DISK_RANGES_MAX || range->room < range->bytes)
        return dfx_fail(disk->sink, DFX_E_INTERNAL,
                        "%s: wanted at most %d ranges with room for them, found %u and room for "
                        "%zu of %zu bytes",
                        disk->path, DFX_DISK_RANGES_MAX, disk->n_ranges, range->room, range->bytes);
    if (__builtin_add_overflow(range->off, range->bytes, &end) || end > disk->file_bytes)
        return dfx_fail(disk->sink, DFX_E_IO,
                        "%s: cannot read %zu bytes at offset %" PRIu64 ": the file has %" PRIu64,
                        disk->path, range->bytes, range->off, disk->file_bytes);
    uint32_t idx = (disk->first_range + disk->n_ranges++) % DFX_DISK_RANGES_MAX;
    disk->ranges[idx] = (struct disk_range){.ask = *range, .missing_bytes = range->bytes};
    /* Lets the page cache run ahead of reads that are made one by one; a hint that may fail. */
    if (!disk->uring && !disk->direct)
        posix_fadvise(disk->buffered_fd, (off_t)range->off, (off_t)range->bytes,
                      POSIX_FADV_WILLNEED);
    return DFX_OK;
}

dfx_status dfx_disk_step(dfx_disk *disk, uint32_t *n_done) {
    *n_done = 0;
    if (disk->n_ranges > 0 && disk->ranges[disk->first_range].missing_bytes > 0)
        DFX_TRY(disk->uring ? dfx_uring_step(disk) : dfx_pread_step(disk));
    while (disk->n_ranges > 0 && disk->ranges[disk->first_range].missing_bytes == 0) {
        disk->first_range = (disk->first_range + 1) % DFX_DISK_RANGES_MAX;
        disk->n_ranges--;
        ++*n_done;
    }
    return DFX_OK;
}

void dfx_disk_drain(dfx_disk *disk) {
    disk->failed = true;
    if (disk->uring)
        dfx_uring_drain(disk);
    disk->n_again = disk->n_ranges = 0;
    disk->failed = false;
}

static bool is_aligned(uint64_t value) {
    return value % DFX_DISK_ALIGN == 0;
}

/* The piece at `cut_bytes` of the range, at most `block` bytes long. */
static dfx_disk_piece cut(const dfx_disk *disk, uint32_t range_idx, size_t block) {
    const struct disk_range *range = &disk->ranges[range_idx];
    size_t at = range->cut_bytes, left = range->ask.bytes - at;
    dfx_disk_piece piece = {.range_idx = range_idx,
                            .off = range->ask.off + at,
                            .dst = (char *)range->ask.dst + at,
                            .want = left < block ? left : block};
    piece.ask = piece.want;
    if (disk->direct && is_aligned(piece.off) && is_aligned((uintptr_t)piece.dst)) {
        size_t down = piece.want / DFX_DISK_ALIGN * DFX_DISK_ALIGN;
        size_t up = dfx_align_up(piece.want, DFX_DISK_ALIGN);
        if (up <= range->ask.room - at && up <= disk->file_bytes - piece.off)
            piece.ask = up;
        else
            piece.want = piece.ask = down > 0 ? down : piece.want;
        piece.direct = is_aligned(piece.ask);
    }
    return piece;
}

bool dfx_disk_next_piece(dfx_disk *disk, dfx_disk_piece *out) {
    if (disk->n_again > 0) {
        *out = disk->again[--disk->n_again];
        return true;
    }
    for (uint32_t i = 0; i < disk->n_ranges; i++) {
        uint32_t idx = (disk->first_range + i) % DFX_DISK_RANGES_MAX;
        struct disk_range *range = &disk->ranges[idx];
        if (range->cut_bytes == range->ask.bytes)
            continue;
        *out = cut(disk, idx, disk->uring ? DFX_DISK_BLOCK_BYTES : PREAD_BLOCK_BYTES);
        range->cut_bytes += out->want;
        return true;
    }
    return false;
}

void dfx_disk_give_back(dfx_disk *disk, const dfx_disk_piece *piece) {
    disk->again[disk->n_again++] = *piece;
}

static dfx_status cannot_read(dfx_disk *disk, const dfx_disk_piece *piece, int error) {
    disk->failed = true;
    if (error == 0)
        return dfx_fail(disk->sink, DFX_E_IO,
                        "%s: cannot read %zu bytes at offset %" PRIu64 ": the file ends there and "
                        "had %" PRIu64 " bytes when it was opened; it must not change while in use",
                        disk->path, piece->want, piece->off, disk->file_bytes);
    return dfx_fail(disk->sink, DFX_E_IO,
                    "%s: cannot read %zu bytes at offset %" PRIu64 ": %s; check the disk, then "
                    "copy the file again",
                    disk->path, piece->want, piece->off, strerror(error));
}

/* What is left goes on directly only from a border of blocks. A file that was cut short inside a block would give the
 * same short direct read for ever; the page cache tells its end. */
dfx_status dfx_disk_piece_ended(dfx_disk *disk, const dfx_disk_piece *piece, int64_t result) {
    if (disk->failed)
        return DFX_OK;
    dfx_disk_piece left = *piece;
    if (result > 0) {
        size_t got = (uint64_t)result < piece->want ? (size_t)result : piece->want;
        disk->ranges[piece->range_idx].missing_bytes -= got;
        if (got == piece->want)
            return DFX_OK;
        left.off += got;
        left.dst += got;
        left.want -= got;
        left.ask -= got;
        if (!is_aligned(got))
            left.direct = false;
    } else if (piece->direct && (result == -EINVAL || result == -EOPNOTSUPP)) {
        lose_direct(disk, (int)-result);
        left.direct = false;
    } else if (piece->direct && result == 0) {
        left.direct = false;
    } else if (result != -EINTR && result != -EAGAIN) {
        return cannot_read(disk, piece, (int)-result);
    }
    if (!left.direct)
        left.ask = left.want;
    dfx_disk_give_back(disk, &left);
    return DFX_OK;
}

const char *dfx_disk_mode(const dfx_disk *disk) {
    if (disk->uring)
        return disk->direct ? "io_uring, direct" : "io_uring";
    return disk->direct ? "pread, direct" : "pread";
}
