/* The disk: exact bytes whatever the borders, the engine and the faults; refusals are survived and said once.
 * Bytes of the file are a formula of their offset, so what is expected needs no file. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/flaky_os.h"
#include "tests/tmpdir.h"

enum { KIB = 1024, BLOCK = DFX_DISK_ALIGN, HANG_SECONDS = 120 };

static unsigned char byte_at(uint64_t off) {
    return (unsigned char)((off * 0x9e3779b97f4a7c15u) >> 56);
}

static void write_file(const tmpdir *dir, size_t bytes) {
    unsigned char *data = malloc(bytes ? bytes : 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(i);
    tmpdir_write(dir, "file", data, bytes);
    free(data);
}

/* Memory on a border of blocks, with a guard behind it. */
static unsigned char *buffer_alloc(size_t bytes) {
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, BLOCK, dfx_align_up(bytes, BLOCK) + BLOCK), 0);
    memset(memory, 0xcd, dfx_align_up(bytes, BLOCK) + BLOCK);
    return memory;
}

static dfx_disk *open_disk(tmpdir *dir, const flaky_os *flaky, uint32_t depth) {
    dfx_disk *disk;
    char path[TMPDIR_PATH];
    dfx_disk_options options = {
        .path = tmpdir_join(dir, "file", path), .queue_depth = depth, .os = &flaky->os};
    assert_int_equal(dfx_disk_open(&options, &dir->log.sink, &disk), DFX_OK);
    return disk;
}

/* Skips a test about refusals where the system itself refuses: a container without io_uring, a file system without direct
 * reads. The file is there. */
static void need_ring_and_direct(tmpdir *dir) {
    flaky_os flaky;
    flaky_init(&flaky);
    dfx_disk *disk = open_disk(dir, &flaky, 0);
    unsigned char *block = buffer_alloc(BLOCK);
    bool has = dfx_disk_submit(disk, &(dfx_disk_range){0, block, BLOCK, BLOCK}) == DFX_OK;
    for (uint32_t n_done = 0; has && n_done == 0;)
        has = dfx_disk_step(disk, &n_done) == DFX_OK;
    has = has && strcmp(dfx_disk_mode(disk), "io_uring, direct") == 0;
    dfx_disk_close(disk);
    free(block);
    recorder_clear(&dir->log);
    if (!has)
        skip();
}

static dfx_status read_all(dfx_disk *disk, uint32_t n_ranges) {
    for (uint32_t n, n_done = 0; n_done < n_ranges; n_done += n)
        DFX_TRY(dfx_disk_step(disk, &n));
    return DFX_OK;
}

static dfx_status read_range(dfx_disk *disk, uint64_t off, void *dst, size_t bytes, size_t room) {
    dfx_disk_range range = {.off = off, .dst = dst, .bytes = bytes, .room = room};
    DFX_TRY(dfx_disk_submit(disk, &range));
    return read_all(disk, 1);
}

static void assert_bytes(const unsigned char *got, uint64_t off, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != byte_at(off + i))
            fail_msg("byte %zu of the range at %llu: found %02x, wanted %02x", i,
                     (unsigned long long)off, got[i], byte_at(off + i));
}

/* The whole file in one range, with room for whole blocks. */
static dfx_status read_file(dfx_disk *disk, size_t bytes) {
    unsigned char *dst = buffer_alloc(bytes);
    dfx_status status = read_range(disk, 0, dst, bytes, dfx_align_up(bytes, BLOCK));
    if (status == DFX_OK)
        assert_bytes(dst, 0, bytes);
    free(dst);
    return status;
}

/* Ring or pread, direct or not. */
static void set_engine(flaky_os *flaky, int engine) {
    flaky_init(flaky);
    flaky->ring_open = engine & 1 ? -ENOSYS : 0;
    flaky->open_direct = engine & 2 ? -EINVAL : 0;
}

static void disk_reads_exact_bytes_at_all_borders(void **state) {
    tmpdir *dir = *state;
    static const size_t sizes[] = {1, 4095, 4096, 4097, 40960, 40961, 40959, 3000 * KIB + 1};
    for (size_t s = 0; s < DFX_COUNT(sizes); s++) {
        size_t size = sizes[s];
        write_file(dir, size);
        const size_t ranges[][2] = {{0, size},           {size - 1, 1},        {0, 1},
                                    {size / 2, 0},       {size / 3, size / 2}, {4095 % size, 2},
                                    {0, size - size / 5}};
        for (int engine = 0; engine < 4; engine++) {
            flaky_os flaky;
            set_engine(&flaky, engine);
            dfx_disk *disk = open_disk(dir, &flaky, engine == 0 ? 1 : 3);
            for (size_t r = 0; r < DFX_COUNT(ranges) * 2; r++) {
                size_t off = ranges[r / 2][0], bytes = ranges[r / 2][1], shift = r % 2 * 16;
                if (off + bytes > size)
                    continue;
                unsigned char *dst = buffer_alloc(bytes + shift);
                assert_int_equal(read_range(disk, off, dst + shift, bytes, bytes), DFX_OK);
                assert_bytes(dst + shift, off, bytes);
                assert_int_equal(dst[shift + bytes], 0xcd); /* no room: nothing behind it changed */
                free(dst);
            }
            dfx_disk_close(disk);
        }
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static void disk_with_room_reads_the_last_block_whole(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    flaky_init(&flaky);
    write_file(dir, 64 * KIB);
    need_ring_and_direct(dir);
    dfx_disk *disk = open_disk(dir, &flaky, 0);
    unsigned char *dst = buffer_alloc(10000);
    assert_int_equal(read_range(disk, 4096, dst, 10000, 12288), DFX_OK);
    assert_bytes(dst, 4096, 10000);
    assert_int_equal(flaky.n_reads, 1);
    assert_int_equal(flaky.n_asked_bytes, 12288);
    free(dst);
    dfx_disk_close(disk);
}

static void disk_many_ranges_end_in_order(void **state) {
    tmpdir *dir = *state;
    enum { N = DFX_DISK_RANGES_MAX, BYTES = 300 * KIB + 7 };
    static const uint32_t depths[] = {1, 2, 5, 4096};
    write_file(dir, N * BYTES);
    for (size_t d = 0; d < DFX_COUNT(depths) * 2; d++) {
        flaky_os flaky;
        set_engine(&flaky, d % 2);
        dfx_disk *disk = open_disk(dir, &flaky, depths[d / 2]);
        unsigned char *dst[N];
        for (uint32_t i = 0; i < N; i++) {
            dst[i] = buffer_alloc(BYTES);
            assert_int_equal(
                dfx_disk_submit(disk, &(dfx_disk_range){i * BYTES, dst[i], BYTES, BYTES}), DFX_OK);
        }
        for (uint32_t n_told = 0, n; n_told < N; n_told += n) {
            assert_int_equal(dfx_disk_step(disk, &n), DFX_OK);
            for (uint32_t i = n_told; i < n_told + n; i++)
                assert_bytes(dst[i], i * BYTES, BYTES);
        }
        for (uint32_t i = 0; i < N; i++)
            free(dst[i]);
        dfx_disk_close(disk);
    }
}

static void disk_bad_range_is_refused(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    flaky_init(&flaky);
    char byte;
    write_file(dir, 100);
    dfx_disk *disk = open_disk(dir, &flaky, 0);
    assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){100, &byte, 1, 1}), DFX_E_IO);
    said_error(&dir->log, "the file has 100");
    recorder_clear(&dir->log);
    assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){UINT64_MAX, &byte, 1, 1}), DFX_E_IO);
    recorder_clear(&dir->log);
    assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){0, &byte, 1, 0}), DFX_E_INTERNAL);
    for (uint32_t i = 0; i < DFX_DISK_RANGES_MAX; i++)
        assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){0, &byte, 1, 1}), DFX_OK);
    assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){0, &byte, 1, 1}), DFX_E_INTERNAL);
    dfx_disk_close(disk);
}

static void disk_missing_file_fails(void **state) {
    tmpdir *dir = *state;
    dfx_disk *disk;
    char path[TMPDIR_PATH];
    dfx_disk_options options = {.path = tmpdir_join(dir, "none", path)};
    assert_int_equal(dfx_disk_open(&options, &dir->log.sink, &disk), DFX_E_IO);
    said_error(&dir->log, "none");
}

/* The file is read right, the mode is told, and the refusal is said once with these words. */
static void assert_survives(tmpdir *dir, const flaky_os *flaky, const char *mode,
                            const char *words) {
    enum { BYTES = 5000 * KIB };
    recorder_clear(&dir->log);
    dfx_disk *disk = open_disk(dir, flaky, 4);
    assert_int_equal(read_file(disk, BYTES), DFX_OK);
    assert_int_equal(read_file(disk, BYTES), DFX_OK);
    assert_string_equal(dfx_disk_mode(disk), mode);
    said_words(&dir->log, DFX_INFO, words);
    assert_int_equal(recorder_count(&dir->log, DFX_INFO), 1);
    said_nothing(&dir->log, DFX_WARN);
    said_nothing(&dir->log, DFX_ERROR);
    dfx_disk_close(disk);
}

static void disk_without_io_uring_reads_with_pread(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    write_file(dir, 5000 * KIB);
    need_ring_and_direct(dir);
    static const struct {
        int error;
        const char *cure;
    } cases[] = {{-EPERM, "seccomp"}, {-ENOSYS, "kernel"}, {-ENOMEM, "ulimit -l"}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        flaky_init(&flaky);
        flaky.ring_open = cases[i].error;
        assert_survives(dir, &flaky, "pread, direct", cases[i].cure);
        flaky_init(&flaky); /* a filter may let the ring be made and refuse to enter it */
        flaky.ring_submit = cases[i].error;
        flaky.n_ring_submit = FLAKY_FOR_EVER;
        assert_survives(dir, &flaky, "pread, direct", cases[i].cure);
    }
}

static void disk_ring_refused_in_the_middle_reads_on(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 5000 * KIB };
    write_file(dir, BYTES);
    need_ring_and_direct(dir);
    for (int n = 2; n < 6; n++) {
        flaky_os flaky;
        flaky_init(&flaky);
        dfx_disk *disk = open_disk(dir, &flaky, 3);
        unsigned char *dst = buffer_alloc(BYTES);
        uint32_t n_done = 0;
        assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){0, dst, BYTES, BYTES}), DFX_OK);
        for (int i = 0; n_done == 0; i++) {
            if (i == n) {
                flaky.ring_submit = -EPERM;
                flaky.n_ring_submit = FLAKY_FOR_EVER;
            }
            assert_int_equal(dfx_disk_step(disk, &n_done), DFX_OK);
        }
        assert_bytes(dst, 0, BYTES);
        free(dst);
        dfx_disk_close(disk);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static void disk_kernel_without_room_is_asked_again(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    write_file(dir, 5000 * KIB);
    need_ring_and_direct(dir);
    for (uint32_t n = 1; n < 20; n += 6) {
        flaky_init(&flaky);
        flaky.ring_submit = n % 2 ? -EAGAIN : -EBUSY;
        flaky.n_ring_submit = n;
        dfx_disk *disk = open_disk(dir, &flaky, 4);
        assert_int_equal(read_file(disk, 5000 * KIB), DFX_OK);
        assert_non_null(strstr(dfx_disk_mode(disk), "io_uring"));
        dfx_disk_close(disk);
    }
    flaky_init(&flaky);
    flaky.ring_submit = -EAGAIN;
    flaky.n_ring_submit = FLAKY_FOR_EVER;
    assert_survives(dir, &flaky, "pread, direct", "io_uring is refused");
}

static void disk_without_direct_reads_uses_the_page_cache(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    write_file(dir, 5000 * KIB);
    need_ring_and_direct(dir);
    static const int errors[] = {-EINVAL, -EOPNOTSUPP};
    for (size_t i = 0; i < DFX_COUNT(errors); i++) {
        flaky_init(&flaky);
        flaky.open_direct = errors[i];
        assert_survives(dir, &flaky, "io_uring", "refuses direct reads");
        flaky_init(&flaky); /* the descriptor is given, the first reads fail: four are in flight */
        flaky.direct_read = errors[i];
        assert_survives(dir, &flaky, "io_uring", "refuses direct reads");
        flaky_init(&flaky); /* only the second: those before and after it were good */
        flaky.read_fault = errors[i];
        flaky.first_fault = 2;
        assert_survives(dir, &flaky, "io_uring", "refuses direct reads");
    }
}

static void disk_without_ring_and_direct_reads_says_both(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    flaky_init(&flaky);
    flaky.ring_open = -EPERM;
    flaky.direct_read = -EINVAL;
    write_file(dir, 5000 * KIB);
    need_ring_and_direct(dir);
    dfx_disk *disk = open_disk(dir, &flaky, 4);
    assert_int_equal(read_file(disk, 5000 * KIB), DFX_OK);
    assert_string_equal(dfx_disk_mode(disk), "pread");
    assert_int_equal(recorder_count(&dir->log, DFX_INFO), 2);
    dfx_disk_close(disk);
}

/* Kernels before 5.6 have a ring that knows no plain read: each ends with EINVAL. */
static void disk_ring_that_cannot_read_is_given_up(void **state) {
    tmpdir *dir = *state;
    flaky_os flaky;
    flaky_init(&flaky);
    flaky.open_direct = -EINVAL;
    flaky.read_fault = -EINVAL;
    flaky.first_fault = 1;
    write_file(dir, 100 * KIB); /* one read: pread is not told the fault */
    need_ring_and_direct(dir);
    dfx_disk *disk = open_disk(dir, &flaky, 4);
    assert_int_equal(read_file(disk, 100 * KIB), DFX_OK);
    assert_string_equal(dfx_disk_mode(disk), "pread");
    dfx_disk_close(disk);
}

static void disk_buffers_over_the_lock_limit_are_read_into_all_the_same(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 200 * KIB };
    char path[TMPDIR_PATH];
    unsigned char *dst = buffer_alloc(BYTES);
    dfx_mem buffer = {.ptr = dst, .bytes = BYTES};
    write_file(dir, BYTES);
    need_ring_and_direct(dir);
    static const int errors[] = {0, -ENOMEM};
    for (size_t i = 0; i < DFX_COUNT(errors); i++) {
        flaky_os flaky;
        dfx_disk *disk;
        flaky_init(&flaky);
        flaky.ring_buffers = errors[i];
        dfx_disk_options options = {.path = tmpdir_join(dir, "file", path),
                                    .buffers = &buffer,
                                    .n_buffers = 1,
                                    .os = &flaky.os};
        assert_int_equal(dfx_disk_open(&options, &dir->log.sink, &disk), DFX_OK);
        memset(dst, 0xcd, BYTES);
        assert_int_equal(read_range(disk, 0, dst, BYTES, BYTES), DFX_OK);
        assert_bytes(dst, 0, BYTES);
        assert_int_equal(recorder_count(&dir->log, DFX_DEBUG), i);
        dfx_disk_close(disk);
    }
    said_words(&dir->log, DFX_DEBUG, "ulimit -l");
    said_nothing(&dir->log, DFX_INFO);
    free(dst);
}

static void disk_short_and_interrupted_reads_are_finished(void **state) {
    tmpdir *dir = *state;
    static const int faults[] = {FLAKY_SHORT, -EINTR, -EAGAIN};
    static const uint32_t periods[] = {2, 3, 7};
    enum { BYTES = 5000 * KIB + 123 };
    write_file(dir, BYTES);
    for (size_t i = 0; i < DFX_COUNT(faults) * DFX_COUNT(periods) * 4; i++) {
        flaky_os flaky;
        set_engine(&flaky, i % 4);
        flaky.read_fault = faults[i / 4 % 3];
        flaky.first_fault = 1;
        flaky.fault_period = periods[i / 12];
        dfx_disk *disk = open_disk(dir, &flaky, 4);
        const char *mode = dfx_disk_mode(disk);
        assert_int_equal(read_file(disk, BYTES), DFX_OK);
        assert_true(flaky.n_faults > 0);
        assert_string_equal(dfx_disk_mode(disk), mode); /* none of these is a refusal */
        dfx_disk_close(disk);
    }
    said_nothing(&dir->log, DFX_ERROR);
}

static void disk_nth_read_failing_is_told_once(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 9000 * KIB };
    write_file(dir, BYTES);
    for (int engine = 0; engine < 2; engine++) {
        dfx_status status = DFX_E_IO;
        for (uint32_t nth = 1; status != DFX_OK; nth++) {
            flaky_os flaky;
            set_engine(&flaky, engine);
            flaky.read_fault = -EIO;
            flaky.first_fault = nth;
            flaky.fault_period = 1; /* those in flight beside it fail too */
            recorder_clear(&dir->log);
            size_t held = dfx_mem_held_bytes();
            dfx_disk *disk = open_disk(dir, &flaky, 4);
            status = read_file(disk, BYTES);
            if (status != DFX_OK) {
                assert_int_equal(status, DFX_E_IO);
                said_error(&dir->log, "nput/output error");
            }
            dfx_disk_drain(disk);
            flaky.first_fault = 0;
            assert_int_equal(read_file(disk, BYTES), DFX_OK);
            dfx_disk_close(disk);
            assert_int_equal(dfx_mem_held_bytes(), held);
            assert_true(nth < 100);
        }
    }
}

static void disk_file_cut_short_while_open_fails(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 3000 * KIB };
    static const size_t left[] = {0, 1, 4096, 5000, 1 << 20, BYTES - 1};
    char path[TMPDIR_PATH];
    for (size_t i = 0; i < DFX_COUNT(left) * 4; i++) {
        flaky_os flaky;
        set_engine(&flaky, i % 4);
        write_file(dir, BYTES);
        recorder_clear(&dir->log);
        dfx_disk *disk = open_disk(dir, &flaky, 4);
        assert_int_equal(truncate(tmpdir_join(dir, "file", path), (off_t)left[i / 4]), 0);
        assert_int_equal(read_file(disk, BYTES), DFX_E_IO);
        said_error(&dir->log, "the file ends there");
        dfx_disk_close(disk);
    }
}

static void disk_nth_allocation_failing_does_not_leak(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], memory[4096];
    dfx_mem buffer = {.ptr = memory, .bytes = sizeof(memory)};
    dfx_disk_options options = {
        .path = tmpdir_join(dir, "file", path), .buffers = &buffer, .n_buffers = 1};
    write_file(dir, 100);
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_disk *disk = NULL;
        recorder_clear(&dir->log);
        dfx_mem_fail_nth(nth);
        status = dfx_disk_open(&options, &dir->log.sink, &disk);
        dfx_mem_fail_nth(0);
        if (status != DFX_OK) {
            assert_int_equal(status, DFX_E_NOFIT);
            said_error(&dir->log, "out of memory");
        }
        dfx_disk_close(disk);
        assert_int_equal(dfx_mem_held_bytes(), held);
        assert_true(nth < 100);
    }
}

static void disk_drained_in_the_middle_writes_no_more(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 6000 * KIB };
    write_file(dir, BYTES);
    for (int i = 0; i < 8; i++) {
        flaky_os flaky;
        set_engine(&flaky, i % 4);
        dfx_disk *disk = open_disk(dir, &flaky, 8);
        unsigned char *dst = buffer_alloc(BYTES);
        uint32_t n_done;
        assert_int_equal(dfx_disk_submit(disk, &(dfx_disk_range){0, dst, BYTES, BYTES}), DFX_OK);
        if (i >= 4)
            assert_int_equal(dfx_disk_step(disk, &n_done), DFX_OK);
        dfx_disk_drain(disk);
        free(dst); /* a sanitizer would see a late write of pread, the next read one of the ring */
        assert_int_equal(read_file(disk, BYTES), DFX_OK);
        dfx_disk_close(disk);
    }
}

static void ignore_signal(int number) {}

static void disk_read_under_signals_is_whole(void **state) {
    tmpdir *dir = *state;
    enum { BYTES = 20000 * KIB };
    write_file(dir, BYTES);
    struct sigaction act = {.sa_handler = ignore_signal}, before;
    struct itimerval each_ms = {{0, 1000}, {0, 1000}}, off = {0};
    assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
    for (int engine = 0; engine < 4; engine++) {
        flaky_os flaky;
        set_engine(&flaky, engine);
        dfx_disk *disk = open_disk(dir, &flaky, 4);
        setitimer(ITIMER_REAL, &each_ms, NULL);
        dfx_status status = read_file(disk, BYTES);
        setitimer(ITIMER_REAL, &off, NULL);
        assert_int_equal(status, DFX_OK);
        dfx_disk_close(disk);
    }
    sigaction(SIGALRM, &before, NULL);
    alarm(HANG_SECONDS); /* setitimer has taken its place */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(disk_reads_exact_bytes_at_all_borders),
        TEST(disk_with_room_reads_the_last_block_whole),
        TEST(disk_many_ranges_end_in_order),
        TEST(disk_bad_range_is_refused),
        TEST(disk_missing_file_fails),
        TEST(disk_without_io_uring_reads_with_pread),
        TEST(disk_ring_refused_in_the_middle_reads_on),
        TEST(disk_kernel_without_room_is_asked_again),
        TEST(disk_without_direct_reads_uses_the_page_cache),
        TEST(disk_without_ring_and_direct_reads_says_both),
        TEST(disk_ring_that_cannot_read_is_given_up),
        TEST(disk_buffers_over_the_lock_limit_are_read_into_all_the_same),
        TEST(disk_short_and_interrupted_reads_are_finished),
        TEST(disk_nth_read_failing_is_told_once),
        TEST(disk_file_cut_short_while_open_fails),
        TEST(disk_nth_allocation_failing_does_not_leak),
        TEST(disk_drained_in_the_middle_writes_no_more),
        TEST(disk_read_under_signals_is_whole),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
