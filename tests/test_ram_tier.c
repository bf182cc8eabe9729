/* The RAM tier: what is read before there is a plan is not read again, and what two plans keep is read, checked and pinned once.
 * What early reading does wrong is told by the feed, and nothing else is held than plans have booked. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/feed_rig.h"

enum { HANG_SECONDS = 180, NTH_MAX = 300 };

static const feed_rig_shape six_pages = {
    .n_pages = 6, .n_slots = 2, .n_repeats = 3, .resident = 0x9, .n_staging = 2};

/* A system that tells how many bytes have been read, which may be asked while it reads. */
typedef struct counting_os {
    dfx_disk_os os;
    flaky_os *flaky;
    atomic_size_t n_bytes;
    atomic_uint n_results; /* of reads, failed ones too */
} counting_os;

static void count(counting_os *c, int64_t result) {
    atomic_fetch_add(&c->n_bytes, result > 0 ? (size_t)result : 0);
    atomic_fetch_add(&c->n_results, 1);
}

static int counting_open(void *user, const char *path, int flags) {
    counting_os *c = user;
    return c->flaky->os.open(c->flaky, path, flags);
}

static int64_t counting_pread(void *user, int fd, void *dst, size_t bytes, uint64_t off) {
    counting_os *c = user;
    int64_t result = c->flaky->os.pread(c->flaky, fd, dst, bytes, off);
    count(c, result);
    return result;
}

static int counting_ring_open(void *user, uint32_t depth, struct io_uring *ring) {
    counting_os *c = user;
    return c->flaky->os.ring_open(c->flaky, depth, ring);
}

static int counting_ring_buffers(void *user, struct io_uring *ring, const struct iovec *iov,
                                 uint32_t n) {
    counting_os *c = user;
    return c->flaky->os.ring_buffers(c->flaky, ring, iov, n);
}

static int counting_ring_submit(void *user, struct io_uring *ring, uint32_t n_wait) {
    counting_os *c = user;
    return c->flaky->os.ring_submit(c->flaky, ring, n_wait);
}

static int counting_ring_result(void *user, bool direct, void *dst, size_t bytes, int result) {
    counting_os *c = user;
    result = c->flaky->os.ring_result(c->flaky, direct, dst, bytes, result);
    count(c, result);
    return result;
}

static void use_counting(feed_rig *rig, counting_os *c) {
    *c = (counting_os){.flaky = &rig->flaky};
    c->os = (dfx_disk_os){.user = c,
                          .open = counting_open,
                          .pread = counting_pread,
                          .ring_open = counting_ring_open,
                          .ring_buffers = counting_ring_buffers,
                          .ring_submit = counting_ring_submit,
                          .ring_result = counting_ring_result};
    rig->options.os = &c->os;
}

static uint64_t raw_bytes(const feed_rig *rig) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < rig->n_pages; p++)
        bytes += rig->pages[p].codec == DFX_CODEC_RAW ? rig->pages[p].bytes : 0;
    return bytes;
}

static uint64_t tier_bytes(const feed_rig *rig) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < rig->n_pages; p++)
        bytes += dfx_tier_page_at(rig->options.tier, rig->page_idx[p])->mem.bytes;
    return bytes;
}

static uint64_t blocks(uint64_t bytes) {
    return (bytes + DFX_DISK_ALIGN - 1) / DFX_DISK_ALIGN * DFX_DISK_ALIGN;
}

static uint64_t kept_bytes(const feed_rig *rig) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < rig->n_pages; p++)
        bytes += rig->in_ram[p] ? blocks(rig->pages[p].bytes) : 0;
    return bytes;
}

static dfx_status read_early(feed_rig *rig, uint64_t most_bytes) {
    DFX_TRY(feed_rig_open_tier(rig));
    return dfx_tier_read_early(rig->options.tier, &(dfx_tier_early){.page_idx = rig->page_idx,
                                                                    .n_pages = rig->n_pages,
                                                                    .most_bytes = most_bytes});
}

static uint64_t read_so_far(const feed_rig *rig) {
    dfx_feed_stats stats;
    dfx_feed_get_stats(rig->feed, &stats);
    return stats.read_bytes;
}

/* All pages are there before there is a feed, which then reads none of them a first time. */
static void tier_reads_before_there_is_a_plan(void **state) {
    static const uint32_t in_ram[] = {0, 0x3f, 0x16};
    for (uint32_t kind = 0; kind < 12; kind++) {
        feed_rig rig;
        counting_os c;
        feed_rig_shape shape = six_pages;
        shape.in_ram = in_ram[kind % 3];
        shape.n_staging = shape.in_ram == 0x3f ? 0 : 2;
        shape.compressed = kind >= 6 ? 0x21 : 0;
        feed_rig_init(&rig, *state, 1 + kind, &shape);
        rig.flaky.ring_open = kind / 3 % 2 ? -ENOSYS : 0;
        use_counting(&rig, &c);
        rig.options.early_bytes = UINT64_MAX;
        assert_int_equal(dfx_timeline_open(&rig.dir->log.sink, &rig.options.timeline), DFX_OK);
        assert_int_equal(read_early(&rig, UINT64_MAX), DFX_OK);
        while (atomic_load(&c.n_bytes) < raw_bytes(&rig))
            usleep(100); /* alarm() ends the test should they never come */
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_true(dfx_timeline_total_ns(rig.options.timeline, DFX_TRACK_DISK) > 0);
        size_t early = atomic_load(&c.n_bytes);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        uint64_t wanted = feed_rig_read_bytes(&rig, true);
        assert_int_equal(read_so_far(&rig), wanted);
        if (kind % 3 == 1 && shape.compressed == 0)
            assert_int_equal(atomic_load(&c.n_bytes), early);
        assert_int_equal(tier_bytes(&rig), kept_bytes(&rig));
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        assert_int_equal(read_so_far(&rig), wanted + feed_rig_read_bytes(&rig, false));
        feed_rig_close(&rig);
        dfx_timeline_close(rig.options.timeline);
        feed_rig_fini(&rig);
        assert_int_equal(recorder_count(&rig.dir->log, DFX_INFO), kind / 3 % 2); /* by the feed */
        said_nothing(&rig.dir->log, DFX_ERROR);
        recorder_clear(&rig.dir->log);
    }
}

/* However far early reading has come when the plan does, and however much room there is beside the plan: each page is shown, and
 * what was read is what the system says. */
static void tier_settles_at_any_moment(void **state) {
    for (uint64_t seed = 100; seed < 130; seed++) {
        feed_rig dice = {.random = seed}, rig;
        feed_rig_shape shape = six_pages;
        shape.in_ram = (uint32_t)feed_rig_random(&dice, 64);
        shape.resident = (uint32_t)feed_rig_random(&dice, 64);
        shape.compressed = seed % 5 ? 0 : (uint32_t)feed_rig_random(&dice, 64);
        shape.unified = seed % 7 == 0;
        feed_rig_init(&rig, *state, seed, &shape);
        rig.flaky.ring_open = seed % 2 ? -ENOSYS : 0;
        rig.options.early_bytes = seed % 3 ? UINT64_MAX : feed_rig_random(&dice, 6 << 20);
        assert_int_equal(read_early(&rig, seed % 4 ? UINT64_MAX : 5 << 20), DFX_OK);
        usleep((useconds_t)feed_rig_random(&dice, 4000));
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_true(tier_bytes(&rig) - kept_bytes(&rig) <= rig.options.early_bytes);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        uint64_t first = read_so_far(&rig), wanted = feed_rig_read_bytes(&rig, true);
        if (rig.options.early_bytes == UINT64_MAX)
            assert_int_equal(first, wanted);
        else
            assert_in_range(first, wanted, wanted + raw_bytes(&rig));
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        assert_int_equal(read_so_far(&rig), first + feed_rig_read_bytes(&rig, false));
        feed_rig_fini(&rig);
        said_nothing(&rig.dir->log, DFX_ERROR);
    }
}

/* A picture that is abandoned: what came early and has not been copied is given back, and read in the next. */
static void tier_gives_back_what_a_picture_leaves(void **state) {
    for (uint32_t n_visits = 0; n_visits < 18; n_visits += 3) {
        feed_rig rig;
        counting_os c;
        feed_rig_shape shape = six_pages;
        shape.in_ram = 0x4;
        feed_rig_init(&rig, *state, 30 + n_visits, &shape);
        use_counting(&rig, &c);
        rig.options.early_bytes = UINT64_MAX;
        assert_int_equal(read_early(&rig, UINT64_MAX), DFX_OK);
        while (atomic_load(&c.n_bytes) < raw_bytes(&rig))
            usleep(100);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_true(tier_bytes(&rig) >= raw_bytes(&rig));
        assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
        assert_int_equal(feed_rig_visits(&rig, 0, n_visits), DFX_OK);
        dfx_feed_end(rig.feed);
        assert_int_equal(tier_bytes(&rig), kept_bytes(&rig));
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        feed_rig_fini(&rig);
    }
}

/* Staging's bytes, as the feed rounds them. */
static uint64_t staging_bytes(const feed_rig *rig) {
    return rig->plan.n_staging * blocks(rig->plan.staging_bytes);
}

static dfx_status read_early_to_block(feed_rig *rig, uint64_t bytes) {
    DFX_TRY(feed_rig_open_tier(rig));
    return dfx_tier_read_early(rig->options.tier, &(dfx_tier_early){.page_idx = rig->page_idx,
                                                                    .n_pages = rig->n_pages,
                                                                    .most_bytes = bytes,
                                                                    .in_block = true});
}

/* Where nothing but staging is to be held, early reading fills it: nothing else is ever held, and still no page is read once more. */
static void tier_reads_into_what_becomes_staging(void **state) {
    enum { BOOKS = 64 << 10 };
    for (uint64_t seed = 200; seed < 225; seed++) {
        feed_rig dice = {.random = seed}, rig;
        feed_rig_shape shape = six_pages;
        shape.resident = (uint32_t)feed_rig_random(&dice, 64);
        shape.compressed = seed % 5 ? 0 : (uint32_t)feed_rig_random(&dice, 64);
        shape.n_staging = 1 + (uint32_t)feed_rig_random(&dice, 3);
        shape.n_slots = 1 + (uint32_t)feed_rig_random(&dice, 3);
        shape.small = seed % 4 == 0;
        feed_rig_init(&rig, *state, seed, &shape);
        rig.flaky.ring_open = seed % 2 ? -ENOSYS : 0;
        uint64_t bytes = staging_bytes(&rig), compressed = 0;
        for (uint32_t p = 0; p < rig.n_pages; p++) /* their buffers are the feed's */
            compressed += rig.pages[p].codec == DFX_CODEC_RAW ? 0 : 3 * blocks(rig.pages[p].bytes);
        size_t held = dfx_mem_held_bytes();
        assert_int_equal(read_early_to_block(&rig, bytes), DFX_OK);
        assert_in_range(dfx_mem_held_bytes() - held, bytes, bytes + BOOKS);
        usleep((useconds_t)feed_rig_random(&dice, 4000));
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_in_range(dfx_mem_held_bytes() - held, bytes, bytes + compressed + BOOKS);
        assert_int_equal(rig.device.pinned_bytes, bytes);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        uint64_t wanted = feed_rig_read_bytes(&rig, true);
        assert_int_equal(read_so_far(&rig), wanted);
        assert_int_equal(tier_bytes(&rig), 0);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        assert_int_equal(read_so_far(&rig), wanted + feed_rig_read_bytes(&rig, false));
        feed_rig_fini(&rig);
        said_nothing(&rig.dir->log, DFX_ERROR);
    }
}

/* A picture that does without the first pages, one that is abandoned, a plan with other staging: what came early is in nobody's way. */
static void tier_forgets_what_lies_in_staging_and_is_not_wanted(void **state) {
    for (uint32_t kind = 0; kind < 12; kind++) {
        feed_rig rig;
        counting_os c;
        feed_rig_init(&rig, *state, 40 + kind, &six_pages);
        use_counting(&rig, &c);
        uint64_t bytes = staging_bytes(&rig);
        if (kind == 0)
            rig.plan.n_staging++;
        assert_int_equal(read_early_to_block(&rig, bytes), DFX_OK);
        while (atomic_load(&c.n_bytes) < rig.pages[0].bytes)
            usleep(100);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(rig.device.pinned_bytes, staging_bytes(&rig));
        if (kind % 2) {
            assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
            assert_int_equal(feed_rig_visits(&rig, 0, kind), DFX_OK);
            dfx_feed_end(rig.feed);
        } else {
            assert_int_equal(feed_rig_picture(&rig, kind), DFX_OK);
        }
        assert_int_equal(tier_bytes(&rig), 0);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        feed_rig_fini(&rig);
    }
}

static void tier_of_staging_that_is_not_pinned_is_told(void **state) {
    feed_rig rig;
    feed_rig_init(&rig, *state, 60, &six_pages);
    rig.device.pin_fault = 1;
    assert_int_equal(read_early_to_block(&rig, staging_bytes(&rig)), DFX_OK);
    assert_int_equal(dfx_feed_open(&rig.options, &rig.dir->log.sink, &rig.feed), DFX_E_NOFIT);
    said_error(&rig.dir->log, "the memory is not pinned");
    assert_int_equal(feed_rig_open(&rig), DFX_OK); /* on the same tier */
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    feed_rig_fini(&rig);
}

static void tier_holds_no_more_than_it_may(void **state) {
    feed_rig rig;
    feed_rig_init(&rig, *state, 3, &six_pages);
    uint64_t two = blocks(rig.pages[0].bytes) + blocks(rig.pages[1].bytes);
    const uint64_t most[] = {0, blocks(rig.pages[0].bytes) - 1, two, two + 1};
    const uint64_t held[] = {0, 0, two, two};
    for (size_t i = 0; i < DFX_COUNT(most); i++) {
        size_t before = dfx_mem_held_bytes();
        assert_int_equal(read_early(&rig, most[i]), DFX_OK);
        assert_int_equal(tier_bytes(&rig), held[i]);
        assert_in_range(dfx_mem_held_bytes() - before, held[i], held[i] + (64 << 10));
        feed_rig_close(&rig);
        assert_int_equal(dfx_mem_held_bytes(), before);
    }
    feed_rig_fini(&rig);
}

static void tier_closed_at_any_moment_ends(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x16;
    feed_rig_init(&rig, *state, 4, &shape);
    size_t held = dfx_mem_held_bytes();
    for (uint32_t i = 0; i < 60; i++) {
        rig.flaky.ring_open = i % 2 ? -ENOSYS : 0;
        rig.options.early_bytes = UINT64_MAX;
        assert_int_equal(i % 4 < 2 ? read_early(&rig, UINT64_MAX)
                                   : read_early_to_block(&rig, staging_bytes(&rig)),
                         DFX_OK);
        usleep((useconds_t)feed_rig_random(&rig, 3000));
        if (i % 3)
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
        if (i % 3 == 2)
            assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
        feed_rig_close(&rig);
        assert_int_equal(dfx_mem_held_bytes(), held);
        assert_int_equal(rig.device.pinned_bytes, 0);
    }
    feed_rig_fini(&rig);
    dfx_tier_close(NULL);
}

/* Nobody hears of a read that fails early; the page is read in its turn. */
static void tier_nth_early_read_failing_is_not_told(void **state) {
    for (uint32_t nth = 1; nth <= 6; nth++) { /* each page takes a read at the least */
        feed_rig rig;
        counting_os c;
        feed_rig_init(&rig, *state, 5, &six_pages);
        rig.flaky.read_fault = -EIO;
        rig.flaky.first_fault = nth;
        use_counting(&rig, &c);
        rig.options.early_bytes = UINT64_MAX;
        assert_int_equal(read_early(&rig, UINT64_MAX), DFX_OK);
        while (atomic_load(&c.n_results) < nth)
            usleep(100);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(rig.flaky.n_faults, 1);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        said_nothing(&rig.dir->log, DFX_INFO);
        assert_int_equal(read_so_far(&rig), feed_rig_read_bytes(&rig, true));
        feed_rig_fini(&rig);
    }
}

/* Every read fails: one sentence, from the feed. */
static void tier_of_a_broken_disk_is_told_once(void **state) {
    static const uint32_t in_ram[] = {0, 0x3f};
    for (uint32_t kind = 0; kind < 4; kind++) {
        feed_rig rig;
        feed_rig_shape shape = six_pages;
        shape.in_ram = in_ram[kind % 2];
        feed_rig_init(&rig, *state, 6, &shape);
        rig.flaky.ring_open = kind < 2 ? -ENOSYS : 0;
        rig.flaky.read_fault = -EIO;
        rig.flaky.first_fault = rig.flaky.fault_period = 1;
        recorder_clear(&rig.dir->log);
        assert_int_equal(read_early(&rig, UINT64_MAX), DFX_OK);
        usleep(kind < 2 ? 2000 : 0);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        said_nothing(&rig.dir->log, DFX_ERROR);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_E_IO);
        said_error(&rig.dir->log, "nput/output error");
        rig.flaky.first_fault = 0;
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        said_error(&rig.dir->log, "nput/output error");
        feed_rig_fini(&rig);
    }
}

static void tier_of_a_missing_file_is_told_by_the_feed(void **state) {
    feed_rig rig;
    feed_rig_init(&rig, *state, 7, &six_pages);
    assert_int_equal(unlink(rig.path), 0);
    assert_int_equal(read_early(&rig, UINT64_MAX), DFX_OK);
    said_nothing(&rig.dir->log, DFX_INFO);
    assert_int_equal(feed_rig_open(&rig), DFX_E_IO);
    said_error(&rig.dir->log, "model");
    feed_rig_fini(&rig);
}

static void tier_nth_allocation_failing_does_not_leak(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x16;
    shape.small = true;
    feed_rig_init(&rig, *state, 8, &shape);
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 2; status != DFX_OK; nth++) { /* each twice: to pages, to a block */
        recorder_clear(&rig.dir->log);
        dfx_mem_fail_nth(nth / 2);
        status =
            nth % 2 ? read_early(&rig, UINT64_MAX) : read_early_to_block(&rig, staging_bytes(&rig));
        if (status == DFX_OK)
            status = feed_rig_open(&rig);
        dfx_mem_fail_nth(0);
        if (status != DFX_OK) {
            assert_int_equal(status, DFX_E_NOFIT);
            said_error(&rig.dir->log, "out of memory");
            feed_rig_close(&rig);
            assert_int_equal(dfx_mem_held_bytes(), held);
        }
        assert_true(nth < NTH_MAX);
    }
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    feed_rig_fini(&rig);
}

/* Another plan of the same pages on the same tier. Staging is for the largest of all. */
static void change_plan(feed_rig *rig, uint32_t in_ram) {
    dfx_plan *plan = &rig->plan;
    plan->staging_bytes = plan->host_bytes = 0;
    for (uint32_t p = 0; p < rig->n_pages; p++) {
        rig->in_ram[p] = in_ram >> p & 1;
        plan->host_bytes += rig->in_ram[p] ? blocks(rig->pages[p].bytes) : 0;
        if (rig->pages[p].bytes > plan->staging_bytes)
            plan->staging_bytes = rig->pages[p].bytes;
    }
    plan->host_bytes += plan->n_staging * plan->staging_bytes;
}

static void open_next(feed_rig *rig, uint32_t in_ram) {
    dfx_feed_close(rig->feed);
    rig->feed = NULL;
    change_plan(rig, in_ram);
    assert_int_equal(feed_rig_open(rig), DFX_OK);
}

/* Of the first picture: without the pages of `there`. */
static uint64_t lacking_bytes(const feed_rig *rig, uint32_t there) {
    uint64_t bytes = feed_rig_read_bytes(rig, true);
    for (uint32_t p = 0; p < rig->n_pages; p++)
        bytes -= there >> p & 1 ? rig->pages[p].stored_bytes : 0;
    return bytes;
}

static uint32_t n_bits(uint32_t set) {
    return (uint32_t)__builtin_popcount(set);
}

/* What both plans keep is neither read nor pinned again. */
static void tier_keeps_what_the_next_plan_wants_too(void **state) {
    static const uint32_t plans[] = {0x3f, 0x16, 0x34, 0x0b, 0, 0x3f, 0x3f};
    for (int compressed = 0; compressed < 2; compressed++) {
        feed_rig rig;
        feed_rig_shape shape = six_pages;
        uint32_t there = 0;
        shape.compressed = compressed ? 0x12 : 0;
        feed_rig_init(&rig, *state, 9, &shape);
        for (size_t i = 0; i < DFX_COUNT(plans); i++) {
            uint32_t n_pins = rig.device.n_pins;
            open_next(&rig, plans[i]);
            assert_int_equal(tier_bytes(&rig), kept_bytes(&rig));
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            assert_int_equal(read_so_far(&rig), lacking_bytes(&rig, there & plans[i]));
            assert_int_equal(rig.device.n_pins - n_pins, n_bits(plans[i] & ~there));
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            there = plans[i];
        }
        feed_rig_fini(&rig);
        said_nothing(&rig.dir->log, DFX_ERROR);
    }
}

/* Ballast lifts what is held to the peak, so that whatever is held beyond shows in the peak. */
static void tier_between_two_plans_holds_no_more_than_the_larger(void **state) {
    static const uint32_t plans[] = {0x07, 0x38, 0x3f, 0x07, 0x30, 0x0f};
    enum { BOOKS = 64 << 10 }; /* the feed's own, and rounding of staging */
    feed_rig rig;
    feed_rig_init(&rig, *state, 10, &six_pages);
    uint64_t before = 0;
    for (size_t i = 0; i < DFX_COUNT(plans); i++) {
        dfx_mem ballast = {0};
        size_t held = dfx_mem_held_bytes(), peak = dfx_mem_peak_bytes();
        if (i > 0)
            assert_int_equal(dfx_mem_map(NULL, peak - held + 1, "ballast", &ballast), DFX_OK);
        peak = dfx_mem_peak_bytes();
        open_next(&rig, plans[i]);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        uint64_t now = rig.plan.host_bytes, growth = now > before ? now - before : 0;
        size_t rounded = rig.plan.staging_bytes * 2 / 4; /* the allocator's, of staging */
        if (i > 0)
            assert_in_range(dfx_mem_peak_bytes(), peak, peak + growth + rounded + BOOKS);
        dfx_mem_unmap(&ballast);
        before = now;
    }
    feed_rig_fini(&rig);
}

/* All memory is there when the feed is: pictures take none. */
static void tier_allocates_nothing_in_pictures(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x16;
    feed_rig_init(&rig, *state, 11, &shape);
    for (uint32_t plan = 0; plan < 3; plan++) {
        open_next(&rig, 0x16u << plan & 0x3f);
        dfx_mem_fail_nth(1);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        void *block = NULL;
        assert_int_equal(dfx_alloc(NULL, 1, "test", &block), DFX_E_NOFIT); /* nobody else did */
        assert_null(block);
    }
    feed_rig_fini(&rig);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(tier_reads_before_there_is_a_plan),
        TEST(tier_settles_at_any_moment),
        TEST(tier_gives_back_what_a_picture_leaves),
        TEST(tier_reads_into_what_becomes_staging),
        TEST(tier_forgets_what_lies_in_staging_and_is_not_wanted),
        TEST(tier_of_staging_that_is_not_pinned_is_told),
        TEST(tier_holds_no_more_than_it_may),
        TEST(tier_closed_at_any_moment_ends),
        TEST(tier_nth_early_read_failing_is_not_told),
        TEST(tier_of_a_broken_disk_is_told_once),
        TEST(tier_of_a_missing_file_is_told_by_the_feed),
        TEST(tier_nth_allocation_failing_does_not_leak),
        TEST(tier_keeps_what_the_next_plan_wants_too),
        TEST(tier_between_two_plans_holds_no_more_than_the_larger),
        TEST(tier_allocates_nothing_in_pictures),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
