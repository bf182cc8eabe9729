/* The feed when things fail: the first, second, third ... call until a clean run. Each failure is one sentence and the
 * documented status, nothing hangs or leaks, and the picture after it is clean. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/feed_rig.h"

enum { HANG_SECONDS = 180, KINDS = 5, NTH_MAX = 200 };

/* From disk, from RAM, both with compressed pages, unified, unified and compressed. */
static feed_rig_shape shape_of(int kind) {
    feed_rig_shape shape = {
        .n_pages = 6, .n_slots = 2, .n_repeats = 3, .resident = 0x9, .n_staging = 2, .small = true};
    shape.in_ram = kind == 1 ? 0x3f : kind == 2 ? 0x16 : 0;
    shape.compressed = kind == 2 ? 0x2c : kind == 4 ? 0x15 : 0;
    shape.unified = kind >= 3;
    return shape;
}

static void feed_nth_allocation_failing_does_not_leak(void **state) {
    tmpdir *dir = *state;
    feed_rig rig;
    for (int kind = 0; kind < KINDS; kind++) {
        feed_rig_shape shape = shape_of(kind);
        feed_rig_init(&rig, dir, 20, &shape);
        size_t held = dfx_mem_held_bytes();
        dfx_status status = DFX_E_NOFIT;
        for (uint64_t nth = 1; status != DFX_OK; nth++) {
            recorder_clear(&dir->log);
            dfx_mem_fail_nth(nth);
            status = feed_rig_open(&rig);
            dfx_mem_fail_nth(0);
            if (status != DFX_OK) {
                assert_int_equal(status, DFX_E_NOFIT);
                said_error(&dir->log, "out of memory");
                assert_int_equal(dfx_mem_held_bytes(), held);
            }
            assert_true(nth < NTH_MAX);
        }
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        feed_rig_close(&rig);
        assert_int_equal(dfx_mem_held_bytes(), held);
        feed_rig_fini(&rig);
    }
}

/* What failed is told once, by status and sentence; a second picture without the fault is clean. */
static void assert_told_and_over(feed_rig *rig, dfx_status found, dfx_status wanted,
                                 const char *words) {
    assert_int_equal(found, wanted);
    said_error(&rig->dir->log, words);
    rig->flaky.first_fault = rig->device.copy_fault = rig->device.pin_fault = 0;
    assert_int_equal(feed_rig_picture(rig, 0), DFX_OK);
    said_error(&rig->dir->log, words);
}

static void feed_nth_read_failing_is_told_once(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < KINDS * 2; kind++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(kind / 2);
        feed_rig_init(&rig, dir, 21, &shape);
        rig.flaky.ring_open = kind % 2 ? -ENOSYS : 0;
        rig.flaky.read_fault = -EIO;
        size_t held = dfx_mem_held_bytes();
        dfx_status status = DFX_E_IO;
        for (uint32_t nth = 1; status != DFX_OK; nth++) {
            rig.flaky.first_fault = nth;
            rig.flaky.n_reads = 0;
            recorder_clear(&dir->log);
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            status = feed_rig_picture(&rig, 0);
            if (status != DFX_OK)
                assert_told_and_over(&rig, status, DFX_E_IO, "nput/output error");
            feed_rig_close(&rig);
            assert_int_equal(dfx_mem_held_bytes(), held);
            assert_true(nth < NTH_MAX);
        }
        feed_rig_fini(&rig);
    }
}

static void feed_nth_copy_failing_is_told_once(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < 3; kind++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(kind);
        feed_rig_init(&rig, dir, 22, &shape);
        dfx_status status = DFX_E_DEVICE;
        for (uint32_t nth = 1; status != DFX_OK; nth++) {
            rig.device.copy_fault = nth;
            rig.device.n_copies = 0;
            recorder_clear(&dir->log);
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            status = feed_rig_picture(&rig, 0);
            if (status != DFX_OK)
                assert_told_and_over(&rig, status, DFX_E_DEVICE, "the device is gone");
            feed_rig_close(&rig);
            assert_true(nth < NTH_MAX);
        }
        feed_rig_fini(&rig);
    }
}

static void feed_nth_pinning_failing_is_told_once(void **state) {
    tmpdir *dir = *state;
    feed_rig rig;
    feed_rig_shape shape = shape_of(0);
    shape.in_ram = 0x3f;
    feed_rig_init(&rig, dir, 27, &shape);
    dfx_status status = DFX_E_NOFIT;
    for (uint32_t nth = 1; status != DFX_OK; nth++) {
        rig.device.pin_fault = nth;
        rig.device.n_pins = 0;
        recorder_clear(&dir->log);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        status = feed_rig_picture(&rig, 0);
        if (status != DFX_OK)
            assert_told_and_over(&rig, status, DFX_E_NOFIT, "the memory is not pinned");
        feed_rig_close(&rig);
        assert_int_equal(rig.device.pinned_bytes, 0);
        assert_true(nth < NTH_MAX);
    }
    feed_rig_fini(&rig);
}

static void feed_short_and_interrupted_reads_change_nothing(void **state) {
    static const int faults[] = {FLAKY_SHORT, -EINTR, -EAGAIN};
    for (size_t i = 0; i < DFX_COUNT(faults) * KINDS * 2; i++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of((int)i / 6);
        feed_rig_init(&rig, *state, 23 + i, &shape);
        rig.flaky.ring_open = i % 2 ? -EPERM : 0;
        rig.flaky.read_fault = faults[i / 2 % 3];
        rig.flaky.first_fault = 1;
        rig.flaky.fault_period = 3;
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        assert_true(rig.flaky.n_faults > 1);
        feed_rig_fini(&rig);
    }
}

static void feed_where_the_system_refuses_shows_the_same_pages(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < KINDS; kind++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(kind);
        feed_rig_init(&rig, dir, 24, &shape);
        for (int refusal = 0; refusal < 7; refusal++) {
            flaky_os *flaky = &rig.flaky;
            flaky_init(flaky);
            flaky->ring_open = refusal == 0 ? -EPERM : refusal == 1 || refusal == 6 ? -ENOSYS : 0;
            flaky->ring_submit = -EPERM;
            flaky->n_ring_submit = refusal == 2 ? FLAKY_FOR_EVER : 0;
            flaky->open_direct = refusal == 3 ? -EINVAL : 0;
            flaky->ring_buffers = refusal == 4 ? -ENOMEM : 0;
            flaky->direct_read = refusal >= 5 ? -EINVAL : 0;
            recorder_clear(&dir->log);
            assert_int_equal(feed_rig_open(&rig), DFX_OK);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
            assert_in_range(recorder_count(&dir->log, DFX_INFO), 0, 2);
            said_nothing(&dir->log, DFX_ERROR);
            feed_rig_close(&rig);
        }
        feed_rig_fini(&rig);
    }
}

static void feed_of_a_file_cut_short_while_running_fails(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < KINDS * 2; kind++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(kind / 2);
        feed_rig_init(&rig, dir, 25, &shape);
        rig.flaky.ring_open = kind % 2 ? -ENOSYS : 0;
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(truncate(rig.path, (off_t)rig.pages[4].off + 1), 0);
        for (int picture = 0; picture < 2; picture++) {
            recorder_clear(&dir->log);
            assert_int_equal(feed_rig_picture(&rig, 0), DFX_E_IO);
            said_error(&dir->log, "the file ends there");
        }
        feed_rig_fini(&rig);
    }
}

static void feed_of_a_missing_file_fails(void **state) {
    tmpdir *dir = *state;
    feed_rig rig;
    feed_rig_shape shape = shape_of(0);
    feed_rig_init(&rig, dir, 26, &shape);
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(unlink(rig.path), 0);
    assert_int_equal(feed_rig_open(&rig), DFX_E_IO);
    said_error(&dir->log, "model");
    assert_int_equal(dfx_mem_held_bytes(), held);
    feed_rig_fini(&rig);
}

/* One byte of the page becomes another. */
static void damage(const feed_rig *rig, uint32_t page_idx) {
    char byte;
    off_t off = (off_t)(rig->pages[page_idx].off + rig->pages[page_idx].stored_bytes / 2);
    int fd = open(rig->path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, off), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, off), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void feed_damaged_page_is_told_once_and_not_shown(void **state) {
    tmpdir *dir = *state;
    for (int kind = 0; kind < KINDS; kind++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(kind);
        feed_rig_init(&rig, dir, 27, &shape);
        damage(&rig, 4);
        recorder_clear(&dir->log);
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(dfx_feed_begin(rig.feed, &(dfx_feed_visits){.first = 0}), DFX_OK);
        assert_int_equal(feed_rig_visits(&rig, 0, 6), DFX_E_FORMAT);
        said_error(&dir->log, "damaged");
        void *base;
        assert_int_equal(dfx_feed_pin(rig.feed, 4, NULL, NULL, &base), DFX_E_FORMAT);
        said_error(&dir->log, "damaged");
        dfx_feed_end(rig.feed);
        damage(
            &rig,
            4); /* once more makes it good again: what failed counts neither as read nor as verified */
        assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
        feed_rig_fini(&rig);
    }
}

/* Without looking at the bytes. */
static dfx_status blind_picture(feed_rig *rig) {
    dfx_status status = dfx_feed_begin(rig->feed, &(dfx_feed_visits){.first = 0});
    for (uint32_t v = 0; status == DFX_OK && v < rig->plan.n_visits; v++) {
        void *base;
        status = dfx_feed_pin(rig->feed, v, NULL, NULL, &base);
        if (status == DFX_OK)
            dfx_feed_unpin(rig->feed, v);
    }
    dfx_feed_end(rig->feed);
    return status;
}

static void feed_verifies_the_first_read_or_each(void **state) {
    tmpdir *dir = *state;
    static const struct {
        dfx_verify verify;
        int kind;
        dfx_status status;
    } cases[] = {{DFX_VERIFY_FIRST, 0, DFX_OK},
                 {DFX_VERIFY_ALWAYS, 0, DFX_E_FORMAT},
                 {DFX_VERIFY_ALWAYS, 1, DFX_OK}, /* in RAM: is not read again */
                 {DFX_VERIFY_ALWAYS, 3, DFX_E_FORMAT}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        feed_rig rig;
        feed_rig_shape shape = shape_of(cases[i].kind);
        feed_rig_init(&rig, dir, 28, &shape);
        rig.options.verify = cases[i].verify;
        assert_int_equal(feed_rig_open(&rig), DFX_OK);
        assert_int_equal(blind_picture(&rig), DFX_OK);
        damage(&rig, 4);
        assert_int_equal(blind_picture(&rig), cases[i].status);
        feed_rig_fini(&rig);
    }
}

static void assert_plan_refused(feed_rig *rig, const char *words) {
    recorder_clear(&rig->dir->log);
    assert_int_equal(feed_rig_open(rig), DFX_E_INTERNAL);
    said_error(&rig->dir->log, words);
}

static void feed_of_a_plan_that_cannot_be_played_is_refused(void **state) {
    feed_rig rig;
    feed_rig_shape shape = shape_of(0);
    feed_rig_init(&rig, *state, 29, &shape);
    uint32_t last = rig.plan.n_transfers - 1;
    dfx_transfer good = rig.transfers[last];

    rig.transfers[last].after_visit = good.for_visit;
    assert_plan_refused(&rig, "waits for it");
    rig.transfers[last] = good;
    rig.transfers[0].after_visit = 1; /* holds up the one for visit 1 */
    assert_plan_refused(&rig, "waits for it");
    rig.transfers[0].after_visit = DFX_NO_VISIT;
    rig.transfers[last].off = rig.plan.arena_bytes - 1;
    assert_plan_refused(&rig, "arena");
    rig.transfers[last] = good;
    rig.transfers[last].page_idx = rig.plan.n_pages;
    assert_plan_refused(&rig, "no page");
    rig.transfers[last] = good;
    rig.visits[0].off += 256;
    assert_plan_refused(&rig, "no transfer brings it");
    rig.visits[0].off -= 256;
    rig.plan.staging_bytes = 1;
    assert_plan_refused(&rig, "staging buffers");
    rig.plan.staging_bytes = 1 << 20;
    rig.page_idx[5] = 6;
    assert_plan_refused(&rig, "not in the packed model");
    rig.page_idx[5] = 5;
    assert_int_equal(feed_rig_open(&rig), DFX_OK);
    assert_int_equal(feed_rig_picture(&rig, 0), DFX_OK);
    feed_rig_fini(&rig);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(feed_nth_allocation_failing_does_not_leak),
        TEST(feed_nth_read_failing_is_told_once),
        TEST(feed_nth_copy_failing_is_told_once),
        TEST(feed_nth_pinning_failing_is_told_once),
        TEST(feed_short_and_interrupted_reads_change_nothing),
        TEST(feed_where_the_system_refuses_shows_the_same_pages),
        TEST(feed_of_a_file_cut_short_while_running_fails),
        TEST(feed_of_a_missing_file_fails),
        TEST(feed_damaged_page_is_told_once_and_not_shown),
        TEST(feed_verifies_the_first_read_or_each),
        TEST(feed_of_a_plan_that_cannot_be_played_is_refused),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
