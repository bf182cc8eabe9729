/* Files through pread and write. Every failure is told with the path and the cause in words; short
 * transfers and EINTR are finished here, so callers see all or an error. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* One transfer stays below what the kernel moves at once (0x7ffff000 bytes). */
static const size_t TRANSFER_BYTES = (size_t)1 << 30;

/* What went wrong, and what to do where that is not plain. */
static const char *cause(int error) {
    switch (error) {
    case ENOENT:
        return "no such file or folder";
    case EACCES:
    case EPERM:
        return "no permission";
    case ENOTDIR:
        return "a part of the path is a file and not a folder";
    case EISDIR:
        return "it is a folder";
    case ENOSPC:
        return "the disk is full; free some space or choose another folder";
    case EDQUOT:
        return "the disk quota is used up; free some space or choose another folder";
    case EFBIG:
        return "the file would be larger than the file system or the limit of the process allows";
    case EROFS:
        return "the file system is read-only; choose another folder";
    case ENAMETOOLONG:
        return "the name is too long";
    case EMFILE:
    case ENFILE:
        return "too many open files; raise the limit (ulimit -n)";
    default:
        return strerror(error);
    }
}

static dfx_status copy_text(const dfx_sink *sink, const char *text, const char *tag, char **out) {
    size_t bytes = strlen(text) + 1;
    void *copy;
    DFX_TRY(dfx_alloc(sink, bytes, tag, &copy));
    *out = memcpy(copy, text, bytes);
    return DFX_OK;
}

static const char *kind_text(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* O_NONBLOCK: opening a FIFO without a writer must not wait. Regular files do not care. */
dfx_status dfx_file_open(const char *path, const dfx_sink *sink, dfx_file *out) {
    struct stat st;
    dfx_status status;
    *out = (dfx_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return dfx_fail(sink, DFX_E_IO, "%s: cannot open: %s", path, cause(errno));
    if (fstat(fd, &st) != 0)
        status = dfx_fail(sink, DFX_E_IO, "%s: cannot tell its size: %s", path, cause(errno));
    else if (!S_ISREG(st.st_mode))
        status = dfx_fail(sink, DFX_E_FORMAT, "%s: wanted a regular file, found %s", path,
                          kind_text(st.st_mode));
    else
        status = copy_text(sink, path, "file", &out->path);
    if (status != DFX_OK) {
        close(fd);
        return status;
    }
    out->fd = fd;
    out->bytes = (uint64_t)st.st_size;
    return DFX_OK;
}

void dfx_file_close(dfx_file *file) {
    if (file->path)
        close(file->fd);
    dfx_free(file->path);
    *file = (dfx_file){0};
}

dfx_status dfx_file_read(const dfx_file *file, const dfx_sink *sink, uint64_t off, void *dst,
                         size_t bytes) {
    size_t done = 0;
    uint64_t end;
    if (__builtin_add_overflow(off, bytes, &end) || end > INT64_MAX)
        return dfx_fail(sink, DFX_E_IO,
                        "%s: cannot read %zu bytes at offset %" PRIu64 ": past the end of any file",
                        file->path, bytes, off);
    while (done < bytes) {
        size_t want = bytes - done < TRANSFER_BYTES ? bytes - done : TRANSFER_BYTES;
        ssize_t got = pread(file->fd, (char *)dst + done, want, (off_t)(off + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return dfx_fail(sink, DFX_E_IO, "%s: cannot read %zu bytes at offset %" PRIu64 ": %s",
                            file->path, bytes - done, off + done,
                            got < 0 ? cause(errno) : "the file ends there");
        done += (size_t)got;
    }
    return DFX_OK;
}

dfx_status dfx_file_slurp(const char *path, const dfx_sink *sink, size_t max_bytes, char **out,
                          size_t *out_bytes) {
    dfx_file file;
    void *text = NULL;
    DFX_TRY(dfx_file_open(path, sink, &file));
    dfx_status status = DFX_OK;
    if (file.bytes > max_bytes || file.bytes == SIZE_MAX)
        status = dfx_fail(sink, DFX_E_FORMAT,
                          "%s: a file of %" PRIu64 " bytes where at most %zu make sense", path,
                          file.bytes, max_bytes);
    if (status == DFX_OK)
        status = dfx_alloc(sink, (size_t)file.bytes + 1, "file", &text);
    if (status == DFX_OK)
        status = dfx_file_read(&file, sink, 0, text, (size_t)file.bytes);
    if (status == DFX_OK) {
        *out = text;
        *out_bytes = (size_t)file.bytes;
    } else {
        dfx_free(text);
    }
    dfx_file_close(&file);
    return status;
}

bool dfx_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool dfx_file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

dfx_status dfx_path_join(const dfx_sink *sink, const char *dir, const char *name,
                         char out[DFX_PATH_BYTES]) {
    size_t len = strlen(dir);
    const char *slash = len > 0 && dir[len - 1] == '/' ? "" : "/";
    int wanted = snprintf(out, DFX_PATH_BYTES, "%s%s%s", dir, slash, name);
    if (wanted < 0 || wanted >= DFX_PATH_BYTES)
        return dfx_fail(sink, DFX_E_USAGE, "%.100s...: a path of %d bytes where at most %d fit",
                        dir, wanted, DFX_PATH_BYTES - 1);
    return DFX_OK;
}

/* Length of a path's folder with its final '/'; 0 for the current one. */
static size_t folder_bytes(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

enum { TEMP_NAME_BYTES = 48, TRIES = 10000 };

static void temp_name(char name[TEMP_NAME_BYTES], unsigned counter) {
    snprintf(name, TEMP_NAME_BYTES, ".dfx-%ld-%u.tmp", (long)getpid(), counter);
}

/* Create a file that did not exist, beside `path`. Its name does not grow with the target's, so
 * every legal one works; O_EXCL settles races with other threads and leftovers of a crash. */
static dfx_status open_temp(const char *path, const dfx_sink *sink, char **out_path, int *out_fd) {
    size_t dir_bytes = folder_bytes(path), cap = dir_bytes + TEMP_NAME_BYTES;
    void *block;
    DFX_TRY(dfx_alloc(sink, cap, "file", &block));
    char *temp = memcpy(block, path, dir_bytes);
    int fd = -1;
    for (unsigned counter = 0; fd < 0 && counter < TRIES; counter++) {
        temp_name(temp + dir_bytes, counter);
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST && errno != EINTR)
            break;
    }
    if (fd < 0) {
        int error = errno;
        dfx_free(temp);
        return dfx_fail(sink, DFX_E_IO, "%s: cannot create: %s", path, cause(error));
    }
    *out_path = temp;
    *out_fd = fd;
    return DFX_OK;
}

/* What both begins have in common: the target may become a regular file. */
static dfx_status check_target(const char *path, const dfx_sink *sink, dfx_file_writer *out) {
    struct stat st;
    *out = (dfx_file_writer){.fd = -1};
    size_t dir_bytes = folder_bytes(path);
    if (path[dir_bytes] == '\0')
        return dfx_fail(sink, DFX_E_IO, "%s: cannot create: the path names no file", path);
    if (strlen(path + dir_bytes) > 255)
        return dfx_fail(sink, DFX_E_IO, "%s: cannot create: %s", path, cause(ENAMETOOLONG));
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return dfx_fail(sink, DFX_E_IO, "%s: cannot create: it is %s", path, kind_text(st.st_mode));
    return copy_text(sink, path, "file", &out->path);
}

dfx_status dfx_file_write_begin(const char *path, const dfx_sink *sink, dfx_file_writer *out) {
    DFX_TRY(check_target(path, sink, out));
    dfx_status status = open_temp(path, sink, &out->temp_path, &out->fd);
    if (status != DFX_OK)
        dfx_file_write_abort(out);
    return status;
}

/* The folder of a path; false when it does not fit. */
static bool folder_of(const char *path, char dir[DFX_PATH_BYTES]) {
    size_t dir_bytes = folder_bytes(path);
    if (dir_bytes >= DFX_PATH_BYTES)
        return false;
    *(char *)mempcpy(dir, dir_bytes ? path : ".", dir_bytes ? dir_bytes : 1) = '\0';
    return true;
}

/* An open file that gets its name later goes through /proc: without that it would never get one. */
enum { FD_PATH_BYTES = 40 };
static bool fd_path(int fd, char text[FD_PATH_BYTES]) {
    snprintf(text, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
    return access(text, F_OK) == 0;
}

dfx_status dfx_file_write_begin_large(const char *path, const dfx_sink *sink,
                                      dfx_file_writer *out) {
    char dir[DFX_PATH_BYTES], self[FD_PATH_BYTES];
    DFX_TRY(check_target(path, sink, out));
    if (folder_of(path, dir))
        out->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (out->fd >= 0 && fd_path(out->fd, self))
        return DFX_OK;
    if (out->fd >= 0)
        close(out->fd);
    out->fd = -1;
    dfx_status status = open_temp(path, sink, &out->temp_path, &out->fd);
    if (status != DFX_OK)
        dfx_file_write_abort(out);
    return status;
}

dfx_status dfx_file_write_room(const dfx_file_writer *writer, const dfx_sink *sink,
                               uint64_t bytes) {
    struct statvfs st;
    uint64_t room;
    if (fstatvfs(writer->fd, &st) != 0 || st.f_blocks == 0 || /* a file system that cannot tell */
        __builtin_mul_overflow((uint64_t)st.f_bavail, (uint64_t)st.f_frsize, &room) ||
        bytes <= room)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_IO,
                    "%s: cannot write: it needs %" PRIu64 " bytes and the disk has %" PRIu64
                    " left; free some space or choose another folder",
                    writer->path, bytes, room);
}

dfx_status dfx_file_write_at(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                             const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < TRANSFER_BYTES ? bytes - done : TRANSFER_BYTES;
        ssize_t put = pwrite(writer->fd, (const char *)data + done, want, (off_t)(off + done));
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            return dfx_fail(sink, DFX_E_IO, "%s: cannot write: %s", writer->path, cause(errno));
    }
    return DFX_OK;
}

/* A fault of the disk that is told here is not told again by fsync. */
static dfx_status sync_range(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                             size_t bytes, unsigned how) {
    if (sync_file_range(writer->fd, (off_t)off, (off_t)bytes, how) == 0)
        return DFX_OK;
    if (errno != EIO && errno != ENOSPC && errno != EDQUOT)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_IO, "%s: cannot write: %s", writer->path, cause(errno));
}

dfx_status dfx_file_write_start(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                                size_t bytes) {
    return sync_range(writer, sink, off, bytes, SYNC_FILE_RANGE_WRITE);
}

dfx_status dfx_file_write_settle(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                                 size_t bytes) {
    DFX_TRY(sync_range(writer, sink, off, bytes,
                       SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                           SYNC_FILE_RANGE_WAIT_AFTER));
    posix_fadvise(writer->fd, (off_t)off, (off_t)bytes, POSIX_FADV_DONTNEED);
    return DFX_OK;
}

dfx_status dfx_file_write_end_at(dfx_file_writer *writer, const dfx_sink *sink, uint64_t bytes) {
    if (ftruncate(writer->fd, (off_t)bytes) != 0)
        return dfx_fail(sink, DFX_E_IO, "%s: cannot write: %s", writer->path, cause(errno));
    return DFX_OK;
}

dfx_status dfx_file_write(dfx_file_writer *writer, const dfx_sink *sink, const void *data,
                          size_t bytes) {
    return dfx_fd_write(writer->fd, writer->path, sink, data, bytes);
}

/* The rename is done; a folder that cannot be synced only weakens what a power cut leaves. */
static void sync_folder(const char *path, const dfx_sink *sink) {
    char dir[DFX_PATH_BYTES];
    if (!folder_of(path, dir))
        return;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        dfx_warn(sink, "%s: written, but may not survive a power cut: cannot sync its folder: %s",
                 path, cause(errno));
    if (fd >= 0)
        close(fd);
}

/* Give a file without a name a temporary one, from which it is renamed over the target: a link cannot replace. */
static int name_file(dfx_file_writer *writer) {
    char self[FD_PATH_BYTES];
    size_t dir_bytes = folder_bytes(writer->path);
    void *block;
    if (dfx_alloc(NULL, dir_bytes + TEMP_NAME_BYTES, "file", &block) != DFX_OK)
        return ENOMEM;
    char *temp = memcpy(block, writer->path, dir_bytes);
    int error = EEXIST;
    fd_path(writer->fd, self);
    for (unsigned counter = 0; error == EEXIST && counter < TRIES; counter++) {
        temp_name(temp + dir_bytes, counter);
        error = linkat(AT_FDCWD, self, AT_FDCWD, temp, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    }
    if (error)
        dfx_free(temp);
    else
        writer->temp_path = temp;
    return error;
}

dfx_status dfx_file_write_commit(dfx_file_writer *writer, const dfx_sink *sink) {
    int error = 0, fd = writer->fd;
    if (fsync(fd) != 0)
        error = errno;
    if (!error && !writer->temp_path)
        error = name_file(writer);
    writer->fd = -1;
    if (close(fd) != 0 && errno != EINTR && !error)
        error = errno;
    if (!error && rename(writer->temp_path, writer->path) != 0)
        error = errno;
    dfx_status status = DFX_OK;
    if (error) {
        status = dfx_fail(sink, error == ENOMEM ? DFX_E_NOFIT : DFX_E_IO, "%s: cannot write: %s",
                          writer->path, cause(error));
    } else {
        sync_folder(writer->path, sink);
        dfx_free(writer->temp_path); /* it has become the target: nothing to remove */
        writer->temp_path = NULL;
    }
    dfx_file_write_abort(writer);
    return status;
}

void dfx_file_write_abort(dfx_file_writer *writer) {
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temp_path)
        unlink(writer->temp_path);
    dfx_free(writer->temp_path);
    dfx_free(writer->path);
    *writer = (dfx_file_writer){.fd = -1};
}

dfx_status dfx_fd_write(int fd, const char *name, const dfx_sink *sink, const void *data,
                        size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        size_t want = bytes - done < TRANSFER_BYTES ? bytes - done : TRANSFER_BYTES;
        ssize_t put = write(fd, (const char *)data + done, want);
        if (put >= 0) {
            done += (size_t)put;
        } else if (errno == EAGAIN) { /* a pipe that its other owner made non-blocking */
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return dfx_fail(sink, DFX_E_IO, "%s: cannot write: %s", name, cause(errno));
        }
    }
    return DFX_OK;
}
