#include "offload/liveness.h"

#include <stdlib.h>

typedef struct item {
    dfx_buf *buf;
    size_t bytes; /* aligned */
} item;

static int larger_first(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->buf->first_op != y->buf->first_op ? (x->buf->first_op > y->buf->first_op ? 1 : -1)
                                                : (x->buf > y->buf ? 1 : -1);
}

static bool alive_together(const dfx_buf *a, const dfx_buf *b) {
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

/* The lowest offset where `it` overlaps none of the placed items that live while it does. Each collision moves it up
 * to that item's end; it never needs to look below again. */
static size_t lowest_place(const item *placed, size_t n_placed, const item *it) {
    size_t off = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n_placed; i++) {
            const item *other = &placed[i];
            if (alive_together(other->buf, it->buf) && off < other->buf->off + other->bytes &&
                other->buf->off < off + it->bytes) {
                off = other->buf->off + other->bytes;
                moved = true;
            }
        }
    }
    return off;
}

dfx_status dfx_liveness_place(dfx_buf *bufs, uint32_t n_bufs, const dfx_sink *sink,
                              size_t *block_bytes) {
    item *items;
    DFX_TRY(dfx_new_array(sink, n_bufs, "liveness", &items));
    size_t n = 0;
    for (uint32_t i = 1; i < n_bufs; i++)
        if (bufs[i].kind == DFX_BUF_TEMP && bufs[i].first_op != UINT32_MAX)
            items[n++] =
                (item){.buf = &bufs[i], .bytes = dfx_align_up(bufs[i].bytes, DFX_ACT_ALIGN)};
    qsort(items, n, sizeof(*items), larger_first);
    *block_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].buf->off = lowest_place(items, i, &items[i]);
        size_t end = items[i].buf->off + items[i].bytes;
        if (end > *block_bytes)
            *block_bytes = end;
    }
    dfx_free(items);
    return DFX_OK;
}
