#include "tools/random_stream.h"

enum { BUFFER_BYTES = 64 << 20, PIECE_BYTES = 1 << 20 };

/* A run of bytes of one item, on its way through a buffer. */
typedef struct dfx_random_piece {
    const dfx_random_item *item;
    uint64_t off; /* in the item */
    size_t at, n_bytes;
} piece;

dfx_status dfx_random_stream_init(dfx_random_stream *s, const dfx_random_options *options,
                                  uint64_t all_bytes, const dfx_sink *sink) {
    *s = (dfx_random_stream){.options = options, .sink = sink, .all_bytes = all_bytes};
    dfx_status status = dfx_pool_open(sink, options->n_threads, &s->pool);
    if (status == DFX_OK)
        dfx_pool_set_cancel(s->pool, options->cancelled, options->user);
    for (int i = 0; i < 2 && status == DFX_OK; i++)
        status = dfx_mem_alloc(sink, BUFFER_BYTES, "random model", &s->buffers[i]);
    if (status != DFX_OK)
        dfx_random_stream_fini(s);
    return status;
}

void dfx_random_stream_fini(dfx_random_stream *s) {
    for (int i = 0; i < 2; i++)
        dfx_mem_free(&s->buffers[i]);
    dfx_pool_close(s->pool);
    dfx_free(s->pieces);
    *s = (dfx_random_stream){0};
}

static void fill_piece(void *ctx, int64_t index, int worker) {
    dfx_random_stream *s = ctx;
    const piece *p = &s->pieces[index];
    uint8_t *to = (uint8_t *)s->buffers[s->filling].ptr + p->at;
    s->fill(s->user, p->item, p->off, to, p->n_bytes);
}

/* Fill what has been gathered, and let it be written. */
static dfx_status flush(dfx_random_stream *s) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < s->n_pieces; i++)
        n_bytes += s->pieces[i].n_bytes;
    DFX_TRY(dfx_pool_run(s->pool, (int64_t)s->n_pieces, fill_piece, s));
    DFX_TRY(dfx_write_behind_wait(&s->write));
    dfx_write_behind_begin(&s->write, &s->file, s->sink, s->file_off, s->buffers[s->filling].ptr,
                           n_bytes);
    s->file_off += n_bytes;
    s->filling = 1 - s->filling;
    s->n_pieces = 0;
    s->done_bytes += n_bytes;
    if (s->options->progress)
        s->options->progress(s->options->user, s->done_bytes, s->all_bytes);
    return DFX_OK;
}

static dfx_status write_items(dfx_random_stream *s, const dfx_random_item *items, size_t n_items) {
    size_t used = 0;
    for (size_t i = 0; i < n_items; i++) {
        uint64_t most = PIECE_BYTES / items[i].unit * items[i].unit;
        for (uint64_t off = 0; off < items[i].bytes;) {
            uint64_t n = items[i].bytes - off < most ? items[i].bytes - off : most;
            if (used + n > BUFFER_BYTES) {
                DFX_TRY(flush(s));
                used = 0;
            }
            DFX_TRY(dfx_grow(s->sink, s->n_pieces + 1, sizeof(*s->pieces), "random model",
                             &s->cap_pieces, (void **)&s->pieces));
            s->pieces[s->n_pieces++] =
                (piece){.item = &items[i], .off = off, .at = used, .n_bytes = (size_t)n};
            used += (size_t)n;
            off += n;
        }
    }
    return flush(s);
}

dfx_status dfx_random_stream_write(dfx_random_stream *s, const char *path, const void *header,
                                   size_t header_bytes, const dfx_random_item *items,
                                   size_t n_items, dfx_random_fill fill, void *user) {
    s->fill = fill;
    s->user = user;
    s->file_off = header_bytes;
    s->n_pieces = 0;
    DFX_TRY(dfx_file_write_begin_large(path, s->sink, &s->file));
    dfx_status status = dfx_file_write_room(&s->file, s->sink, s->all_bytes - s->done_bytes);
    if (status == DFX_OK)
        status = dfx_file_write_at(&s->file, s->sink, 0, header, header_bytes);
    if (status == DFX_OK)
        status = write_items(s, items, n_items);
    dfx_status written = dfx_write_behind_wait(&s->write);
    status = status != DFX_OK ? status : written;
    s->write = (dfx_write_behind){0};
    if (status == DFX_OK)
        return dfx_file_write_commit(&s->file, s->sink);
    dfx_file_write_abort(&s->file);
    return status;
}
