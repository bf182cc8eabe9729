/* What the files of the feed share: page_feed.c plays the timetable, page_feed_list.c says what of it a picture has,
 * page_feed_memory.c checks the plan and holds the memory that pages pass through. */
#ifndef DFX_OFFLOAD_PAGE_FEED_INTERNAL_H
#define DFX_OFFLOAD_PAGE_FEED_INTERNAL_H

#include <pthread.h>

#include "offload/disk.h"
#include "offload/page_feed.h"

enum { FEED_ALIGN = DFX_DISK_ALIGN, FEED_STORED_BUFFERS = 2 };

/* How a page comes to its place: from the RAM tier, where it is kept, or where it came early and is once; through staging; read
 * to it. */
typedef enum dfx_feed_way {
    FEED_WAY_RAM,
    FEED_WAY_EARLY,
    FEED_WAY_STAGED,
    FEED_WAY_PLACE
} dfx_feed_way;

/* A page that is being read. */
typedef struct feed_job {
    uint32_t position; /* in the list */
    uint32_t page_idx;
    void *dst;
    void *stored; /* of a compressed page: what is read, to be expanded to dst; else NULL */
    uint64_t asked_ns;
} feed_job;

struct dfx_feed {
    dfx_feed_options o;
    const dfx_sink *sink; /* borrowed */

    /* Of the plan; they do not change after open. Owned. */
    uint32_t *transfer_of; /* [n_visits]: the transfer that brings what the visit uses */

    /* One block. Staging is pinned at once, the RAM tier page by page as it is filled: pinning takes longer than a read may
     * wait to begin. */
    dfx_mem staging;
    bool staging_is_block; /* of the tier, with pages in it that came early */
    size_t staging_stride;
    /* For compressed pages: FEED_STORED_BUFFERS places to read to, and scratch. `stored` begins on a border of `stored_mem`. */
    dfx_mem stored_mem, stored, scratch;
    size_t stored_stride;

    dfx_disk *disk; /* the reader's alone. Owned */

    uint64_t read_ns; /* the reader's alone: when the last page was read and expanded */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[2];
    int n_threads;

    /* Under the lock, all that follows. Arrays owned. */
    bool stop, closing;
    bool copying;      /* a call of the backend is on its way */
    dfx_status status; /* of the picture */
    dfx_feed_visits visits;
    dfx_feed_wait last_wait;
    bool *is_made;      /* [n_transfers]: a permanent page that has come */
    dfx_feed_way *way;  /* [n_transfers]: of this picture, once it is asked for */
    uint32_t *list;     /* [n_transfers]: those of this picture */
    uint32_t *position; /* [n_transfers]: in the list, or UINT32_MAX */
    uint32_t n_list, n_asked, n_read, n_begun, n_placed, n_joined, n_ended;
    uint64_t n_staging_asked, n_staging_begun, n_staging_placed;
    feed_job jobs[DFX_DISK_RANGES_MAX]; /* a ring */
    uint32_t first_job, n_jobs;
    uint32_t next_stored, n_stored_used;
    dfx_feed_stats stats;
};

/* Errors: DFX_E_INTERNAL: a plan that cannot be played with these pages; DFX_E_NOFIT. */
dfx_status dfx_feed_plan_check(dfx_feed *feed);

/* Memory, and the disk that reads into it. Errors: DFX_E_NOFIT, DFX_E_IO. */
dfx_status dfx_feed_memory_init(dfx_feed *feed);
void dfx_feed_memory_fini(dfx_feed *feed); /* after a failed init too */

/* Under the lock, by the reader. Has the buffer nothing in it that came early and is on its way to the device? What lies there and
 * has not been asked for is forgotten. */
bool dfx_feed_buffer_is_empty(dfx_feed *feed, const void *buffer);

/* page_feed_list.c; under the lock. The last visit that is made in this picture and is not after `visit`; DFX_NO_VISIT: none. */
uint32_t dfx_feed_last_made(const dfx_feed *feed, uint32_t visit);
bool dfx_feed_is_held(const dfx_feed *feed, uint32_t visit);
/* Visits that are not made have ended with the one before them. */
void dfx_feed_set_n_ended(dfx_feed *feed, uint32_t n_ended);
void dfx_feed_list_make(dfx_feed *feed);
/* Fewer visits will be made: what is for them alone, and nobody has asked for, leaves the list. */
void dfx_feed_list_drop(dfx_feed *feed);

static inline const dfx_packed_page *dfx_feed_page(const dfx_feed *feed, uint32_t page_idx) {
    return dfx_packed_page_at(feed->o.packed, feed->o.page_idx[page_idx]);
}

/* A page in the RAM tier. */
static inline dfx_tier_page *dfx_feed_held(const dfx_feed *feed, uint32_t page_idx) {
    return dfx_tier_page_at(feed->o.tier, feed->o.page_idx[page_idx]);
}

/* But for what came early. */
static inline dfx_feed_way dfx_feed_way_of(const dfx_feed *feed, uint32_t page_idx) {
    return feed->o.plan->in_ram[page_idx] ? FEED_WAY_RAM
           : feed->o.unified              ? FEED_WAY_PLACE
                                          : FEED_WAY_STAGED;
}

#endif
