/* Private to offload/packed*.c: the bytes of one page, made on all cores. A page is cut into runs of rows; a worker reads
 * a run, checks that its numbers are finite, and encodes it in its place. Workers at different points of that keep the
 * disk and the cores busy at the same time, without a thread of their own for reading. */
#ifndef DFX_OFFLOAD_PACKED_FILL_H
#define DFX_OFFLOAD_PACKED_FILL_H

#include "core/pool.h"
#include "offload/packed_layout.h"

typedef struct dfx_fill {
    const dfx_pack_layout *layout; /* borrowed, like all but jobs and scratch */
    const dfx_pack_source *source;
    const dfx_sink *sink;
    dfx_pool *pool;
    size_t run_bytes;          /* of the source, at the most, unless one row is longer */
    size_t scratch_bytes;      /* of one worker */
    dfx_mem scratch;           /* owned; for all workers */
    struct dfx_fill_job *jobs; /* owned */
    size_t cap_jobs;
} dfx_fill;

/* compress: scratch does for dfx_fill_squeeze too. */
dfx_status dfx_fill_init(dfx_fill *fill, const dfx_pack_layout *layout,
                         const dfx_pack_source *source, dfx_pool *pool, bool compress,
                         const dfx_sink *sink);
void dfx_fill_fini(dfx_fill *fill); /* zeroed is fine */

/* All page->page.bytes of `dst`, gaps zeroed. Errors: DFX_E_NUMERIC, DFX_E_IO, DFX_E_CANCELLED. */
dfx_status dfx_fill_page(dfx_fill *fill, const dfx_pack_page *page, void *dst);

/* Compress a filled page into `dst`, of dfx_fill_squeeze_bound bytes. *stored: what it takes.
 * Errors: DFX_E_CANCELLED. */
dfx_status dfx_fill_squeeze(dfx_fill *fill, const void *page, uint64_t page_bytes, void *dst,
                            uint64_t *stored);
static inline uint64_t dfx_fill_squeeze_bound(uint64_t page_bytes) {
    return page_bytes + dfx_packed_n_blocks(page_bytes) * DFX_PACKED_SIZE_BYTES;
}

#endif
