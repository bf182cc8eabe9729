/* Writing one buffer of a file while the caller fills another. One write at a time.
 *
 *     dfx_write_behind w = {0};
 *     DFX_TRY(dfx_write_behind_wait(&w));                    the buffer of the write before is free again
 *     dfx_write_behind_begin(&w, &file, sink, off, data, n);
 *     ... fill the other buffer ...
 *     DFX_TRY(dfx_write_behind_wait(&w)); */
#ifndef DFX_CORE_WRITE_BEHIND_H
#define DFX_CORE_WRITE_BEHIND_H

#include <pthread.h>

#include "core/file.h"

/* All zero at the start. Must not move while a write runs. */
typedef struct dfx_write_behind {
    pthread_t thread;
    bool running;
    dfx_file_writer *file; /* all below borrowed until wait */
    const dfx_sink *sink;
    const void *data;
    size_t n_bytes;
    uint64_t off;
    dfx_status status;
} dfx_write_behind;

/* Any fault is told by the thread and returned by wait. After wait only. */
void dfx_write_behind_begin(dfx_write_behind *w, dfx_file_writer *file, const dfx_sink *sink,
                            uint64_t off, const void *data, size_t n_bytes);

/* The status of the last write; DFX_OK when there was none. */
dfx_status dfx_write_behind_wait(dfx_write_behind *w);

#endif
