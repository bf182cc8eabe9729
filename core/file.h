/* Files: reading whole or in parts, checking, and writing so that nothing is ever half there. */
#ifndef DFX_CORE_FILE_H
#define DFX_CORE_FILE_H

#include "core/mem.h"

/* An open regular file, read with pread. */
typedef struct dfx_file {
    int fd;
    uint64_t bytes; /* size at open */
    char *path;     /* owned */
} dfx_file;

/* Errors: DFX_E_IO (missing, unreadable), DFX_E_FORMAT (a folder, FIFO or device; a FIFO never blocks). */
dfx_status dfx_file_open(const char *path, const dfx_sink *sink, dfx_file *out);
void dfx_file_close(dfx_file *file); /* zeroed file (fd 0 with NULL path) is fine */

/* Exactly `bytes` bytes at `off`, through short reads and EINTR. Errors: DFX_E_IO names file, offset, cause. Any thread. */
dfx_status dfx_file_read(const dfx_file *file, const dfx_sink *sink, uint64_t off, void *dst,
                         size_t bytes);

/* A whole file of at most `max_bytes`, NUL-terminated. *out is owned by the caller (dfx_free). */
dfx_status dfx_file_slurp(const char *path, const dfx_sink *sink, size_t max_bytes, char **out,
                          size_t *out_bytes);

bool dfx_file_exists(const char *path); /* a regular file */
bool dfx_file_is_dir(const char *path);

/* dir "/" name into the caller's buffer. Errors: DFX_E_USAGE when it is longer than the buffer. */
enum { DFX_PATH_BYTES = 4096 };
dfx_status dfx_path_join(const dfx_sink *sink, const char *dir, const char *name,
                         char out[DFX_PATH_BYTES]);

/* Writing: into a temporary name beside the target; commit fsyncs and renames, abort removes. After begin
 * exactly one of commit or abort must follow; commit aborts by itself when it fails.
 *     DFX_TRY(dfx_file_write_begin("a.png", sink, &w));
 *     ... dfx_file_write(&w, sink, data, bytes) ...
 *     DFX_TRY(dfx_file_write_commit(&w, sink)); */
typedef struct dfx_file_writer {
    int fd;
    char *path, *temp_path; /* owned; temp_path NULL: the file has no name yet */
} dfx_file_writer;

dfx_status dfx_file_write_begin(const char *path, const dfx_sink *sink, dfx_file_writer *out);

/* For files of gigabytes: the same, but until commit the file has no name at all where the file system can do that, so that
 * a killed process leaves nothing behind. Elsewhere it has a temporary name. */
dfx_status dfx_file_write_begin_large(const char *path, const dfx_sink *sink, dfx_file_writer *out);

/* Has the disk room for a file of `bytes`? So that a full disk is told before the work. (Room is not taken: writing into
 * space that was allocated before takes twice as long on ext4.) Errors: DFX_E_IO. */
dfx_status dfx_file_write_room(const dfx_file_writer *writer, const dfx_sink *sink, uint64_t bytes);

/* At `off`, whatever was written before; what is skipped reads as zeros. One thread at a time. Errors: DFX_E_IO. */
dfx_status dfx_file_write_at(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                             const void *data, size_t bytes);

/* Writing gigabytes without filling the page cache, where the kernel would spend more time on reclaiming than on writing:
 * start the way to the disk of a piece that was written, and later settle it: wait, and drop it from the cache. Both do nothing
 * where the system cannot. Errors: DFX_E_IO. */
dfx_status dfx_file_write_start(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                                size_t bytes);
dfx_status dfx_file_write_settle(dfx_file_writer *writer, const dfx_sink *sink, uint64_t off,
                                 size_t bytes);

/* The file ends here, shorter or (with zeros) longer than what was written. Errors: DFX_E_IO. */
dfx_status dfx_file_write_end_at(dfx_file_writer *writer, const dfx_sink *sink, uint64_t bytes);

dfx_status dfx_file_write(dfx_file_writer *writer, const dfx_sink *sink, const void *data,
                          size_t bytes);
dfx_status dfx_file_write_commit(dfx_file_writer *writer, const dfx_sink *sink);
void dfx_file_write_abort(dfx_file_writer *writer);

/* Everything of `data` to an open descriptor (standard output). `name` is for the message. */
dfx_status dfx_fd_write(int fd, const char *name, const dfx_sink *sink, const void *data,
                        size_t bytes);

#endif
