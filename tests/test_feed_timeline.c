/* What the feed tells of its time: spans of reads and copies, and what a visit waited for. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "tests/feed_rig.h"

enum { HANG_SECONDS = 180, DELAY_US = 20000 };

static const feed_rig_shape six_pages = {
    .n_pages = 6, .n_slots = 2, .n_repeats = 4, .resident = 0x9, .n_staging = 2};

/* Of one track: how many, how many bytes; the test fails when one begins before the one before it has ended. */
static uint32_t sum_track(json_t *root, dfx_track track, uint64_t *n_bytes) {
    json_t *event;
    size_t i;
    double end = 0;
    uint32_t n = 0;
    *n_bytes = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0 ||
            json_integer_value(json_object_get(event, "tid")) != track + 1)
            continue;
        double begin = json_number_value(json_object_get(event, "ts"));
        assert_true(begin >= end - 0.0005); /* half of a nanosecond: the numbers are doubles */
        end = begin + json_number_value(json_object_get(event, "dur"));
        assert_int_equal(strncmp(json_string_value(json_object_get(event, "name")), "step/p", 6),
                         0);
        *n_bytes +=
            (uint64_t)json_integer_value(json_object_get(json_object_get(event, "args"), "bytes"));
        n++;
    }
    return n;
}

static json_t *written(feed_rig *rig, dfx_timeline *timeline) {
    char path[TMPDIR_PATH];
    tmpdir_join(rig->dir, "run.json", path);
    assert_int_equal(dfx_timeline_write(timeline, path, &rig->dir->log.sink), DFX_OK);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static void play(tmpdir *dir, uint64_t seed, const feed_rig_shape *shape, bool direct) {
    feed_rig rig;
    uint64_t read_bytes, copied_bytes;
    uint32_t n_reads = 0, n_copies = 0;
    feed_rig_init(&rig, dir, seed, shape);
    if (!direct)
        rig.flaky.ring_open = -ENOSYS;
    assert_int_equal(dfx_timeline_open(&dir->log.sink, &rig.options.timeline), DFX_OK);
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    for (uint32_t k = 0; k < rig.plan.n_transfers; k++) {
        bool in_ram = rig.in_ram[rig.transfers[k].page_idx];
        n_reads += !in_ram || rig.transfers[k].for_visit < rig.n_pages; /* its first turn */
        n_copies += in_ram || !shape->unified;
    }
    json_t *root = written(&rig, rig.options.timeline);
    assert_int_equal(sum_track(root, DFX_TRACK_DISK, &read_bytes), n_reads);
    assert_int_equal(sum_track(root, DFX_TRACK_COPY, &copied_bytes), n_copies);
    assert_int_equal(read_bytes, feed_rig_read_bytes(&rig, true));
    assert_int_equal(copied_bytes, feed_rig_copied_bytes(&rig, true));
    json_decref(root);
    feed_rig_close(&rig);
    dfx_timeline_close(rig.options.timeline);
    feed_rig_fini(&rig);
}

static void feed_records_each_read_and_each_copy(void **state) {
    feed_rig_shape shape = six_pages;
    play(*state, 1, &shape, true);
    play(*state, 2, &shape, false);
    shape.in_ram = 0x16;
    play(*state, 3, &shape, true);
    shape.compressed = 0x2c;
    play(*state, 4, &shape, true);
    shape.unified = true;
    play(*state, 5, &shape, true);
}

/* A disk whose reads take long. */
static int slow_ring_submit(void *user, struct io_uring *ring, uint32_t n_wait) {
    if (n_wait)
        usleep(DELAY_US);
    return ((flaky_os *)user)->os.ring_submit(user, ring, n_wait);
}

static int64_t slow_pread(void *user, int fd, void *dst, size_t bytes, uint64_t off) {
    usleep(DELAY_US);
    return ((flaky_os *)user)->os.pread(user, fd, dst, bytes, off);
}

static dfx_feed_stats stats_of(feed_rig *rig) {
    dfx_feed_stats stats;
    assert_int_equal(feed_rig_open(rig), DFX_OK);
    assert_int_equal(feed_rig_picture(rig, 0), DFX_OK);
    dfx_feed_get_stats(rig->feed, &stats);
    feed_rig_fini(rig);
    assert_true(stats.disk_wait_seconds >= 0 && stats.link_wait_seconds >= 0);
    assert_true(stats.disk_wait_seconds + stats.link_wait_seconds <= stats.wait_seconds + 1e-6);
    return stats;
}

static void feed_from_a_slow_disk_waits_for_the_disk(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.small = true;
    feed_rig_init(&rig, *state, 6, &shape);
    dfx_disk_os slow = rig.flaky.os;
    slow.ring_submit = slow_ring_submit;
    slow.pread = slow_pread;
    rig.options.os = &slow;
    dfx_feed_stats stats = stats_of(&rig);
    assert_true(stats.wait_seconds > 1e-6 * DELAY_US);
    assert_true(stats.disk_wait_seconds > 0.7 * stats.wait_seconds);
}

/* 18 copies or so, of which the two places let none run far ahead. */
static void feed_over_a_slow_link_waits_for_the_link(void **state) {
    feed_rig rig;
    feed_rig_shape shape = six_pages;
    shape.small = true;
    for (int kind = 0; kind < 2; kind++) {
        shape.in_ram =
            kind
                ? 0x3f
                : 0; /* from disk staging fills up: the page that is not read waits for the link, too */
        feed_rig_init(&rig, *state, 7, &shape);
        rig.device.copy_delay_us = DELAY_US;
        dfx_feed_stats stats = stats_of(&rig);
        assert_true(stats.wait_seconds > 10e-6 * DELAY_US);
        assert_true(stats.link_wait_seconds > 0.7 * stats.wait_seconds);
    }
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    alarm(HANG_SECONDS); /* a feed that waits for ever ends the test */
    const struct CMUnitTest tests[] = {
        WITH_DIR(feed_records_each_read_and_each_copy),
        WITH_DIR(feed_from_a_slow_disk_waits_for_the_disk),
        WITH_DIR(feed_over_a_slow_link_waits_for_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
