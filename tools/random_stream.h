/* Files of gigabytes whose bytes are made: two buffers, one is filled on all cores while the other is written.
 *
 *     dfx_random_stream s;
 *     DFX_TRY(dfx_random_stream_init(&s, &options, all_bytes, sink));
 *     ... dfx_random_stream_write(&s, path, header, header_bytes, items, n_items, fill, user) for each file ...
 *     dfx_random_stream_fini(&s); */
#ifndef DFX_TOOLS_RANDOM_STREAM_H
#define DFX_TOOLS_RANDOM_STREAM_H

#include "core/pool.h"
#include "core/write_behind.h"

typedef struct dfx_random_options {
    int n_threads; /* 0: one for each usable core */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t all_bytes);
    bool (*cancelled)(void *user);
    void *user;
} dfx_random_options;

/* One tensor of a file: what follows the one before it. */
typedef struct dfx_random_item {
    const void *of; /* the caller's; handed to fill */
    uint64_t bytes;
    size_t unit; /* it is cut at multiples of this */
} dfx_random_item;

/* Bytes [off, off + n_bytes) of an item. Any thread. */
typedef void (*dfx_random_fill)(void *user, const dfx_random_item *item, uint64_t off, uint8_t *dst,
                                size_t n_bytes);

typedef struct dfx_random_stream {
    const dfx_random_options *options; /* borrowed */
    const dfx_sink *sink;
    dfx_pool *pool;
    dfx_mem buffers[2];
    struct dfx_random_piece *pieces; /* owned; of one buffer */
    size_t n_pieces, cap_pieces;
    int filling;
    dfx_write_behind write;
    dfx_file_writer file;
    dfx_random_fill fill;
    void *user;
    uint64_t file_off, done_bytes, all_bytes;
} dfx_random_stream;

/* all_bytes: of the items of all files, for progress and for room on the disk. */
dfx_status dfx_random_stream_init(dfx_random_stream *s, const dfx_random_options *options,
                                  uint64_t all_bytes, const dfx_sink *sink);
void dfx_random_stream_fini(dfx_random_stream *s); /* zeroed is fine */

/* Appears when it is complete. Errors: DFX_E_IO, DFX_E_CANCELLED, DFX_E_NOFIT. */
dfx_status dfx_random_stream_write(dfx_random_stream *s, const char *path, const void *header,
                                   size_t header_bytes, const dfx_random_item *items,
                                   size_t n_items, dfx_random_fill fill, void *user);

#endif
