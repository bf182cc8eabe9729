/* What tests of the page feed share: a packed model of random pages, a device made of plain memory, and a small planner.
 *
 *     feed_rig rig;
 *     feed_rig_init(&rig, dir, seed, &shape);
 *     assert_int_equal(feed_rig_open(&rig), DFX_OK);
 *     assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
 *     feed_rig_fini(&rig); */
#ifndef DFX_TESTS_FEED_RIG_H
#define DFX_TESTS_FEED_RIG_H

#include "offload/page_feed.h"
#include "tests/flaky_os.h"
#include "tests/tmpdir.h"

enum { FEED_RIG_PAGES_MAX = 12, FEED_RIG_VISITS_MAX = 256 };

typedef struct fake_copy {
    bool is_held; /* begun and not yet waited for */
    uint32_t number;
    char *dst;
    const char *src;
    size_t bytes;
    uint32_t after_visit;
} fake_copy;

/* A device in host memory that does everything as late as it may: copies when they are waited for or joined, and visits end
 * when a copy or a call waits for them. Places are watched: a copy fails the test when it goes to a pinned one, or to one
 * whose visit has not ended. */
typedef struct fake_device {
    dfx_backend backend;
    const dfx_sink *sink;
    size_t pinned_bytes; /* held now */
    uint32_t n_copies;   /* so far; the copier's thread */
    uint32_t copy_fault; /* this copy, counted from 1, fails; 0: none */
    uint32_t copy_delay_us;
    uint32_t n_pins, pin_fault;    /* as n_copies and copy_fault; the reader's thread */
    char *pinned_from, *pinned_to; /* where a visit is being made; under lock, as what follows */
    char *queued_from[FEED_RIG_VISITS_MAX], *queued_to[FEED_RIG_VISITS_MAX]; /* by visit */
    fake_copy copies[DFX_COPIES_AHEAD];                                      /* a ring, by number */
    uint32_t n_run; /* copies that have been made */
    bool overwritten, too_far;
    pthread_mutex_t lock;
} fake_device;

/* One model, one plan, one device. Fields may be changed before feed_rig_open. */
typedef struct feed_rig {
    tmpdir *dir;
    char path[TMPDIR_PATH];
    flaky_os flaky;
    fake_device device;
    uint64_t random; /* state of the generator */

    dfx_packed *packed; /* owned */
    uint32_t n_pages;
    dfx_packed_page pages[FEED_RIG_PAGES_MAX]; /* as the packed model has them */
    uint32_t page_idx[FEED_RIG_PAGES_MAX];
    unsigned char *wanted[FEED_RIG_PAGES_MAX]; /* owned; the bytes of each page */

    dfx_plan plan;
    dfx_visit visits[FEED_RIG_VISITS_MAX];
    dfx_transfer transfers[FEED_RIG_VISITS_MAX];
    bool in_ram[FEED_RIG_PAGES_MAX], permanent[FEED_RIG_PAGES_MAX], resident[FEED_RIG_PAGES_MAX];

    dfx_feed_options options;
    unsigned char *arena; /* owned, on a border of blocks */
    dfx_feed *feed;       /* owned */
} feed_rig;

typedef struct feed_rig_shape {
    uint32_t n_pages, n_slots, n_repeats;
    uint32_t resident, in_ram, compressed; /* sets of pages, bit p for page p */
    bool unified;
    uint32_t n_staging;
    bool small; /* pages of at most a few blocks, else up to 3 MiB */
} feed_rig_shape;

void feed_rig_init(feed_rig *rig, tmpdir *dir, uint64_t seed, const feed_rig_shape *shape);
void feed_rig_fini(feed_rig *rig); /* closes the feed; the test fails when anything is still held */
uint64_t feed_rig_random(feed_rig *rig, uint64_t below);

/* The feed, and its tier unless there is one. */
dfx_status feed_rig_open(feed_rig *rig);
dfx_status feed_rig_open_tier(feed_rig *rig);
void feed_rig_close(feed_rig *rig);

/* Visits [first, end): pin, look at the page, rest, look again, unpin. Returns the first failure of a pin. */
dfx_status feed_rig_visits(feed_rig *rig, uint32_t first, uint32_t end);
/* begin, all visits, end. */
dfx_status feed_rig_picture(feed_rig *rig, uint32_t first);

/* Sums over the plan's transfers of a picture from visit 0: what the feed must report. first_picture: permanent pages and
 * the RAM tier come too. */
uint64_t feed_rig_copied_bytes(const feed_rig *rig, bool first_picture);
uint64_t feed_rig_read_bytes(const feed_rig *rig, bool first_picture);

#endif
