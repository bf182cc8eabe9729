/* The feed: every visit sees its page, whole and undisturbed, however pages come; books are kept; pictures may begin late
 * and end early. Faults are in tests/test_page_feed_faults.c. */
#include <string.h>
#include <unistd.h>

#include "tests/feed_rig.h"

enum { HANG_SECONDS = 180 };

static const feed_rig_shape six_pages = {
    .n_pages = 6, .n_slots = 2, .n_repeats = 4, .resident = 0x9, .n_staging = 2};

static void feed_stats(const feed_rig *rig, uint64_t *read_bytes, uint64_t *copied_bytes) {
    dfx_feed_stats stats;
    dfx_feed_get_stats(rig->feed, &stats);
    *read_bytes = stats.read_bytes;
    *copied_bytes = stats.copied_bytes;
}

/* Two pictures: every byte of every visit, and the books against the plan. */
static void play(tmpdir *dir, uint64_t seed, const feed_rig_shape *shape) {
    feed_rig rig;
    uint64_t read_bytes, copied_bytes, wanted_read = 0, wanted_copied = 0;
    feed_rig_init(&rig, dir, seed, shape);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    for (int picture = 0; picture < 2; picture++) {
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        wanted_read += feed_rig_read_bytes(&rig, picture == 0);
        wanted_copied += feed_rig_copied_bytes(&rig, picture == 0);
        feed_stats(&rig, &read_bytes, &copied_bytes);
        assert_int_equal(read_bytes, wanted_read);
        assert_int_equal(copied_bytes, wanted_copied);
    }
    feed_rig_fini(&rig);
    said_nothing(&dir->log, DFX_ERROR);
}

static void feed_from_ram_shows_each_visit_its_page(void **state) {
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x3f;
    shape.n_staging = 0;
    play(*state, 1, &shape);
}

static void feed_from_disk_shows_each_visit_its_page(void **state) {
    play(*state, 2, &six_pages);
}

static void feed_from_ram_and_disk_shows_each_visit_its_page(void **state) {
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x15;
    shape.n_staging = 1;
    play(*state, 3, &shape);
}

static void feed_on_unified_memory_shows_each_visit_its_page(void **state) {
    feed_rig_shape shape = six_pages;
    shape.unified = true;
    play(*state, 4, &shape);
}

static void feed_of_compressed_pages_shows_each_visit_its_page(void **state) {
    feed_rig_shape shape = six_pages;
    shape.compressed = 0x2d;
    shape.in_ram = 0x6;
    play(*state, 5, &shape);
    shape.unified = true;
    play(*state, 6, &shape);
}

static void feed_of_random_plans_shows_each_visit_its_page(void **state) {
    for (uint64_t seed = 100; seed < 160; seed++) {
        feed_rig dice = {.random = seed};
        feed_rig_shape shape = {
            .n_pages = 1 + (uint32_t)feed_rig_random(&dice, FEED_RIG_PAGES_MAX),
            .n_slots = 1 + (uint32_t)feed_rig_random(&dice, 4),
            .n_repeats = 1 + (uint32_t)feed_rig_random(&dice, 5),
            .resident = (uint32_t)(feed_rig_random(&dice, 4096) & feed_rig_random(&dice, 4096)),
            .in_ram = (uint32_t)(feed_rig_random(&dice, 4096) & feed_rig_random(&dice, 4096)),
            .compressed = (uint32_t)(feed_rig_random(&dice, 4096) & feed_rig_random(&dice, 4096)),
            .unified = feed_rig_random(&dice, 4) == 0,
            .n_staging = 1 + (uint32_t)feed_rig_random(&dice, 3),
            .small = true};
        play(*state, seed, &shape);
    }
}

static void feed_books_no_more_pinned_memory_than_the_plan(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.in_ram = 0x15;
    feed_rig_init(&rig, *state, 7, &shape);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK); /* pages in RAM are pinned as they come */
    size_t rounding = (3 + 2) * (DFX_DISK_ALIGN - 1); /* of 3 pages in RAM and 2 staging buffers */
    assert_in_range(rig.device.pinned_bytes, rig.plan.host_bytes, rig.plan.host_bytes + rounding);
    feed_rig_fini(&rig);
}

/* Visit 8 is page 2 in its second turn. Pages 0 and 3 stay: they are needed again although they would have come before. */
static void feed_begun_late_brings_what_is_needed_from_there(void **state) {
    feed_rig rig;
    uint64_t read_bytes, copied_bytes, wanted = 0;
    feed_rig_init(&rig, *state, 8, &six_pages);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(feed_rig_picture(&rig, 8), DFX_OK);
    for (uint32_t k = 0; k < rig.plan.n_transfers; k++)
        if (rig.transfers[k].once || rig.transfers[k].for_visit >= 8)
            wanted += rig.pages[rig.transfers[k].page_idx].bytes;
    feed_stats(&rig, &read_bytes, &copied_bytes);
    assert_int_equal(copied_bytes, wanted);
    assert_int_equal(read_bytes, wanted);
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    feed_stats(&rig, &read_bytes, &copied_bytes);
    assert_int_equal(copied_bytes, wanted + feed_rig_copied_bytes(&rig, false));
    feed_rig_fini(&rig);
}

static void feed_begun_at_the_end_brings_nothing(void **state) {
    feed_rig rig;
    uint64_t read_bytes, copied_bytes;
    feed_rig_init(&rig, *state, 9, &six_pages);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(feed_rig_picture(&rig, rig.plan.n_visits), DFX_OK);
    feed_stats(&rig, &read_bytes, &copied_bytes);
    assert_int_equal(read_bytes + copied_bytes, 0);
    assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = rig.plan.n_visits + 1}),
                     DFX_E_INTERNAL);
    feed_rig_fini(&rig);
}

static void feed_ended_in_the_middle_plays_the_next_picture(void **state) {
    feed_rig_shape shape = six_pages;
    for (uint32_t kind = 0; kind < 6; kind++) {
        feed_rig rig;
        shape.unified = kind % 3 == 2;
        shape.in_ram = kind % 3 == 1 ? 0x16 : 0;
        shape.compressed = kind >= 3 ? 0x3 : 0;
        shape.small = kind % 2 == 0;
        feed_rig_init(&rig, *state, 200 + kind, &shape);
        for (uint32_t n_visits = 0; n_visits < 24; n_visits += 2) {
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
            assert_int_equal(feed_rig_visits(&rig, 0, n_visits), DFX_OK);
            dfx_feed_end(rig.feed);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            feed_rig_close(&rig);
        }
        feed_rig_fini(&rig);
    }
}

static void feed_closed_at_any_moment_ends(void **state) {
    feed_rig_shape shape = six_pages;
    for (uint32_t kind = 0; kind < 4; kind++) {
        feed_rig rig;
        shape.unified = kind == 3;
        shape.in_ram = kind & 1 ? 0x16 : 0;
        shape.compressed = kind & 2 ? 0x24 : 0;
        shape.small = kind == 1;
        feed_rig_init(&rig, *state, 300 + kind, &shape);
        size_t held = dfx_mem_held_bytes();
        for (uint32_t i = 0; i < 24; i++) {
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            if (i >= 1)
                assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
            if (i >= 4)
                usleep((useconds_t)feed_rig_random(&rig, 1500));
            if (i >= 12)
                assert_int_equal(feed_rig_visits(&rig, 0, (i - 12) * 2), DFX_OK);
            feed_rig_close(&rig);
            assert_int_equal(dfx_mem_held_bytes(), held);
        }
        feed_rig_fini(&rig);
    }
    dfx_feed_close(NULL);
}

typedef struct countdown {
    int n_left;
} countdown;

static bool count_down(void *user) {
    return --((countdown *)user)->n_left < 0;
}

static void feed_pin_that_waits_can_be_cancelled(void **state) {
    feed_rig rig;
    void *base;
    feed_rig_init(&rig, *state, 10, &six_pages);
    rig.device.copy_delay_us = 300000; /* the page takes long, the second question comes before */
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
    countdown asked = {.n_left = 1};
    assert_int_equal(dfx_feed_pin(rig.feed, 0, count_down, &asked, &base), DFX_E_CANCELLED);
    assert_int_equal(asked.n_left, -1);
    dfx_feed_end(rig.feed);
    rig.device.copy_delay_us = 0;
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    said_nothing(&rig.dir->log, DFX_ERROR);
    feed_rig_fini(&rig);
}

static void feed_pin_out_of_turn_is_refused(void **state) {
    feed_rig rig;
    void *base;
    feed_rig_init(&rig, *state, 11, &six_pages);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(dfx_feed_pin(rig.feed, 0, NULL, NULL, &base), DFX_E_INTERNAL);
    assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 3}), DFX_OK);
    assert_int_equal(dfx_feed_pin(rig.feed, 2, NULL, NULL, &base), DFX_E_INTERNAL);
    assert_int_equal(dfx_feed_pin(rig.feed, rig.plan.n_visits, NULL, NULL, &base), DFX_E_INTERNAL);
    dfx_feed_end(rig.feed);
    assert_int_equal(dfx_feed_pin(rig.feed, 3, NULL, NULL, &base), DFX_E_INTERNAL);
    feed_rig_fini(&rig);
}

/* Repetitions that a picture does without: their pages do not come, and what waits for their end waits for the visit before
 * them. Any of them, in any order of pictures. */
static void feed_skips_visits(void **state) {
    static const dfx_feed_visits pictures[] = {
        {.first = 0, .skip_from = 12, .skip_to = 18}, {.first = 0, .skip_from = 6, .skip_to = 18},
        {.first = 3, .skip_from = 8, .skip_to = 24},  {.first = 0, .skip_from = 0, .skip_to = 13},
        {.first = 0, .skip_from = 24, .skip_to = 24}, {.first = 6, .skip_from = 7, .skip_to = 23}};
    feed_rig rig;
    feed_rig_init(&rig, *state, 13, &six_pages);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    for (size_t i = 0; i < DFX_COUNT(pictures); i++) {
        const dfx_feed_visits *v = &pictures[i];
        dfx_feed_stats before, after;
        uint64_t streamed = 0;
        dfx_feed_get_stats(rig.feed, &before);
        assert_int_equal(dfx_feed_begin(rig.feed, v), DFX_OK);
        assert_int_equal(
            feed_rig_visits(&rig, v->first, v->skip_from > v->first ? v->skip_from : v->first),
            DFX_OK);
        assert_int_equal(
            feed_rig_visits(&rig, v->skip_to > v->first ? v->skip_to : v->first, rig.plan.n_visits),
            DFX_OK);
        dfx_feed_end(rig.feed);
        dfx_feed_get_stats(rig.feed, &after);
        for (uint32_t visit = v->first; visit < rig.plan.n_visits; visit++) {
            uint32_t p = rig.visits[visit].page_idx;
            if ((visit < v->skip_from || visit >= v->skip_to) && !rig.resident[p])
                streamed += rig.pages[p].bytes;
        }
        if (i > 0) /* the resident pages came in the first */
            assert_int_equal(after.copied_bytes - before.copied_bytes, streamed);
    }
    feed_rig_fini(&rig);
}

/* What has been moved so far: read of staged pages, which all are. */
static uint64_t read_so_far(const feed_rig *rig) {
    dfx_feed_stats stats;
    dfx_feed_get_stats(rig->feed, &stats);
    return stats.read_bytes;
}

static uint64_t streamed_in(const feed_rig *rig, uint32_t first, uint32_t end) {
    uint64_t bytes = 0;
    for (uint32_t v = first; v < end; v++)
        bytes +=
            rig->resident[rig->visits[v].page_idx] ? 0 : rig->pages[rig->visits[v].page_idx].bytes;
    return bytes;
}

/* Of four repetitions the last ones turn out not to be made, when the one before them begins: nothing was read for them, though
 * there was time and room for it, and what is behind them comes. Whether a page stays, or is kept in RAM, does not matter. */
static void feed_reads_nothing_that_is_held(void **state) {
    enum { REPEATS = 5, PAGES = 3 };
    for (uint32_t resident = 0; resident < 2; resident++)
        for (uint32_t n_made = 2; n_made < REPEATS; n_made++) {
            feed_rig rig;
            feed_rig_shape shape = {.n_pages = PAGES,
                                    .n_slots = PAGES,
                                    .n_repeats = REPEATS,
                                    .n_staging = 3,
                                    .resident = resident,
                                    .small = true};
            feed_rig_init(&rig, *state, 14, &shape);
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK); /* what stays has come */
            uint64_t before = read_so_far(&rig), most = 0;
            uint32_t end = (REPEATS - 1) * PAGES; /* the last is behind those that are left out */
            dfx_feed_visits visits = {.skip_from = end, .skip_to = end, .hold_from = 2 * PAGES};
            assert_int_equal(dfx_feed_begin(rig.feed, &visits), DFX_OK);
            for (uint32_t k = 0; k < n_made; k++) {
                uint32_t next = (k + 1) * PAGES;
                bool last = k + 1 == n_made;
                if (k > 0)
                    assert_int_equal(
                        dfx_feed_decide(rig.feed, last ? next : end, last ? 0 : next + PAGES),
                        DFX_OK);
                assert_int_equal(feed_rig_visits(&rig, k * PAGES, next), DFX_OK);
                if (last)
                    break;
                usleep(3000); /* the reader could */
                most = streamed_in(&rig, 0, next + PAGES);
                assert_true(read_so_far(&rig) - before <= most);
            }
            assert_int_equal(feed_rig_visits(&rig, end, rig.plan.n_visits), DFX_OK);
            dfx_feed_end(rig.feed);
            assert_int_equal(read_so_far(&rig) - before,
                             streamed_in(&rig, 0, n_made * PAGES) +
                                 streamed_in(&rig, end, rig.plan.n_visits));
            said_nothing(&rig.dir->log, DFX_ERROR);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            feed_rig_fini(&rig);
        }
}

/* Held visits are not pinned; what was said of the picture is not taken back. */
static void feed_decides_forward_only(void **state) {
    static const struct {
        uint32_t skip_from, hold_from;
        bool good;
    } rows[] = {{18, 11, false}, {18, 12, true}, {19, 12, false}, {11, 12, false}, {17, 18, true},
                {17, 17, false}, {17, 0, true},  {16, 0, false},  {17, 20, false}, {17, 0, true}};
    feed_rig rig;
    void *base;
    feed_rig_init(&rig, *state, 15, &six_pages);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(
        dfx_feed_begin(rig.feed,
                       &(dfx_feed_visits){.skip_from = 18, .skip_to = 18, .hold_from = 12}),
        DFX_OK);
    assert_int_equal(dfx_feed_pin(rig.feed, 12, NULL, NULL, &base), DFX_E_INTERNAL);
    said_error(&rig.dir->log, "held");
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        recorder_clear(&rig.dir->log);
        assert_int_equal(dfx_feed_decide(rig.feed, rows[i].skip_from, rows[i].hold_from),
                         rows[i].good ? DFX_OK : DFX_E_INTERNAL);
        if (!rows[i].good)
            said_error(&rig.dir->log, "page feed: visits from");
    }
    dfx_feed_end(rig.feed);
    feed_rig_fini(&rig);
}

/* Two visits, two places, both transfers possible at once: reading must not wait for the first visit. */
static void feed_reads_ahead_of_the_visit(void **state) {
    feed_rig rig;
    dfx_feed_stats stats = {0};
    feed_rig_shape shape = {.n_pages = 2, .n_slots = 2, .n_repeats = 1, .n_staging = 1};
    feed_rig_init(&rig, *state, 12, &shape);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
    while (stats.copied_bytes < feed_rig_copied_bytes(&rig, true)) {
        usleep(1000); /* alarm() ends the test should it never come */
        dfx_feed_get_stats(rig.feed, &stats);
    }
    assert_int_equal(feed_rig_visits(&rig, 0, 2), DFX_OK);
    dfx_feed_end(rig.feed);
    feed_rig_fini(&rig);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(feed_from_ram_shows_each_visit_its_page),
        TEST(feed_from_disk_shows_each_visit_its_page),
        TEST(feed_from_ram_and_disk_shows_each_visit_its_page),
        TEST(feed_on_unified_memory_shows_each_visit_its_page),
        TEST(feed_of_compressed_pages_shows_each_visit_its_page),
        TEST(feed_of_random_plans_shows_each_visit_its_page),
        TEST(feed_books_no_more_pinned_memory_than_the_plan),
        TEST(feed_begun_late_brings_what_is_needed_from_there),
        TEST(feed_begun_at_the_end_brings_nothing),
        TEST(feed_ended_in_the_middle_plays_the_next_picture),
        TEST(feed_closed_at_any_moment_ends),
        TEST(feed_pin_that_waits_can_be_cancelled),
        TEST(feed_pin_out_of_turn_is_refused),
        TEST(feed_skips_visits),
        TEST(feed_reads_nothing_that_is_held),
        TEST(feed_decides_forward_only),
        TEST(feed_reads_ahead_of_the_visit),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
