/* What the two files of the tier share: ram_tier.c holds the pages, ram_tier_early.c reads some of them before there is a plan. */
#ifndef DFX_OFFLOAD_RAM_TIER_INTERNAL_H
#define DFX_OFFLOAD_RAM_TIER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "offload/ram_tier.h"

struct dfx_tier {
    dfx_tier_options o;
    const dfx_sink *sink; /* borrowed */
    dfx_backend *backend; /* borrowed; NULL: nothing is pinned */
    dfx_tier_page *pages; /* owned; [n_pages] of the packed file */
    uint32_t n_pages;

    /* Of early reading, whose pages have their memory. `loaded` of them and read_bytes are the thread's until it is joined. */
    uint32_t *early; /* owned; [n_early], in the order of reading; until settle */
    uint32_t n_early;
    dfx_mem block;       /* owned until it is taken */
    bool block_is_taken; /* since the last settle */
    uint64_t read_bytes;
    dfx_disk *disk; /* owned */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop; /* ask for no more */
    atomic_bool drop; /* nor wait for what was asked for */
};

dfx_status dfx_tier_hold(dfx_tier *tier, uint32_t packed_idx); /* its memory; DFX_E_NOFIT */

/* No thread is there after it. `drop`: what has been asked for does not come in. */
void dfx_tier_stop_early(dfx_tier *tier, bool drop);

#endif
