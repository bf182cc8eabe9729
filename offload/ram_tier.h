/* RAM tier: pages of a packed model in the host's memory, each in a block of its own, as they are on the device. It belongs to
 * the model and outlives plans: what the next plan keeps too stays here, read, checked and pinned.
 *
 *     DFX_TRY(dfx_tier_open(&(dfx_tier_options){.packed = packed}, sink, &tier));
 *     DFX_TRY(dfx_tier_read_early(tier, &early));                      no device is needed, nor a plan
 *     ... the device, programs, a plan ...
 *     DFX_TRY(dfx_feed_open(&(dfx_feed_options){.tier = tier, ...}));  want and settle are the feed's
 *     ... pictures; another plan, another feed ...
 *     dfx_tier_close(tier);                                            before the backend is closed
 *
 *   a page   ABSENT --read_early, settle--> HELD --read--> LOADED --the feed--> VERIFIED --> PINNED
 *            any of these --want, settle, drop_taken, drop_early: the plan does not keep it--> ABSENT
 *
 * Early reading takes pages in the order given, from the moment of the call on, on a thread of its own. A fault ends it without
 * a word: the feed meets that again, in its turn, and tells it. Pages that came early and that the plan does not keep are
 * copied from here instead of being read, once, and given back.
 * Thread: one at a time. While a feed is open `loaded` is under its lock, `verified` and `pinned` are its copier's. */
#ifndef DFX_OFFLOAD_RAM_TIER_H
#define DFX_OFFLOAD_RAM_TIER_H

#include "core/timeline.h"
#include "kernels/backend.h"
#include "offload/disk.h"
#include "offload/packed.h"

typedef struct dfx_tier dfx_tier;

typedef struct dfx_tier_options {
    const dfx_packed *packed; /* borrowed until close */
    const dfx_disk_os *os;    /* of early reading; NULL: the system. Borrowed until close */
    dfx_timeline *timeline;   /* of early reading; borrowed until close; NULL: none */
} dfx_tier_options;

typedef struct dfx_tier_page {
    dfx_mem mem;   /* owned by the tier; ptr NULL: the page is not here */
    bool in_block; /* mem is part of the early block, and changes only when nobody reads pages */
    bool kept;     /* by the plan */
    bool loaded;   /* has been read, or the feed is reading it */
    bool verified; /* since it is here; of a page that is not, since the plan is */
    bool pinned;
} dfx_tier_page;

/* Errors: DFX_E_NOFIT. */
dfx_status dfx_tier_open(const dfx_tier_options *options, const dfx_sink *sink, dfx_tier **out);
void dfx_tier_close(dfx_tier *tier); /* at any moment but while a feed is open; NULL is fine */

typedef struct dfx_tier_early {
    const uint32_t *page_idx; /* [n_pages]: of the packed file; borrowed for the call */
    uint32_t n_pages;
    uint64_t most_bytes; /* that they take together */
    bool in_block;       /* of one block of as many, which can become staging: take_block */
} dfx_tier_early;

/* Begin to read the pages, in this order, as far as there is room. Those that are compressed are passed over, since they are
 * expanded through memory that the feed has; in a block the first of them is the end. Once, before want. Errors: DFX_E_NOFIT. */
dfx_status dfx_tier_read_early(dfx_tier *tier, const dfx_tier_early *early);

/* A plan keeps these pages, by index in the packed file. Of the others none stays but what came early and is not settled. The
 * backend, which pages will be pinned with, is borrowed until close. */
void dfx_tier_want(dfx_tier *tier, const bool *is_kept, dfx_backend *backend);
/* The early block, if there is one: {0} otherwise. Once taken it is the caller's, to be given to dfx_mem_unmap after drop_early, and
 * what came early lies in it; if it is not, settle gives it back with all that. */
dfx_mem dfx_tier_block(const dfx_tier *tier);
void dfx_tier_take_block(dfx_tier *tier);

/* Early reading ends: what has been asked for comes in. Of what it brought and the plan does not keep as much stays as goes into
 * early_bytes, and what lies in a block that was taken. Then all pages that are kept get their memory, and nothing is allocated
 * from here on. Errors: DFX_E_NOFIT. */
dfx_status dfx_tier_settle(dfx_tier *tier, uint64_t early_bytes);

/* By index in the packed file; borrowed until close. */
dfx_tier_page *dfx_tier_page_at(dfx_tier *tier, uint32_t packed_idx);
/* Whole blocks of the disk: what its memory has. */
size_t dfx_tier_page_bytes(const dfx_tier *tier, uint32_t packed_idx);

/* So that the device may copy from it at full speed; reads have touched it, which makes that quick. The block is pinned by who
 * took it. Errors: DFX_E_NOFIT. */
dfx_status dfx_tier_pin(dfx_tier *tier, uint32_t packed_idx);
/* Pages that came early and that the plan does not keep are given back: one that the feed has taken, which is no longer `loaded`,
 * and has copied (in a block it stays where it is); all that are left, when early reading has ended. */
void dfx_tier_drop_taken(dfx_tier *tier, uint32_t packed_idx);
void dfx_tier_drop_early(dfx_tier *tier);

/* What early reading has read since the last call; settled. */
uint64_t dfx_tier_take_read_bytes(dfx_tier *tier);

#endif
