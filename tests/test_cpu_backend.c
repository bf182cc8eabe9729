/* The device contract of the CPU backend: memory, scratch, refusals, cancelling. What ops compute
 * is tested elsewhere. */
#include "tests/cpu_rig.h"

#include <stdio.h>
#include <string.h>

static dfx_backend *open_backend(rig *r, int n_threads) {
    dfx_backend *be;
    dfx_cpu_options options = {.n_threads = n_threads};
    assert_int_equal(dfx_cpu_backend_open(&options, &r->log.sink, &be), DFX_OK);
    return be;
}

/* 300 rows of x, so that there are several tiles. */
static dfx_op_call linear_call(rig *r) {
    dfx_op_call call = {.kind = DFX_OP_LINEAR};
    call.m[DFX_LINEAR_X] = rig_random(r, 300, 40, 40, 1);
    call.m[DFX_LINEAR_W] = rig_random_weight(r, DFX_DTYPE_BF16, 50, 40, 2);
    call.m[0] = rig_poison(r, 300, 50, 52);
    return call;
}

/* Announce, and hold what the announced calls want. */
static void prepare(dfx_backend *be, const dfx_op_call *call) {
    assert_int_equal(be->vt->prepare(be, call), DFX_OK);
    assert_int_equal(be->vt->workspace_alloc(be), DFX_OK);
}

static void backend_memory_is_aligned_and_all_given_back(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    size_t held = dfx_mem_held_bytes();
    static const size_t sizes[] = {0, 1, 255, 256, 257, 100003};
    dfx_mem mem[DFX_COUNT(sizes)];
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        assert_int_equal(be->vt->alloc(be, sizes[i], "test", &mem[i]), DFX_OK);
        assert_int_equal((uintptr_t)mem[i].ptr % 256, 0);
        assert_int_equal(mem[i].bytes, sizes[i]);
        memset(mem[i].ptr, 0x5a, sizes[i]);
    }
    for (size_t i = 0; i < DFX_COUNT(sizes); i++) {
        be->vt->free(be, &mem[i]);
        assert_null(mem[i].ptr);
    }
    be->vt->free(be, &mem[0]);
    assert_int_equal(dfx_mem_held_bytes(), held);
    be->vt->close(be);
}

static void backend_alloc_of_more_than_there_is_fails(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_mem mem;
    assert_int_equal(be->vt->alloc(be, SIZE_MAX - 8, "test", &mem), DFX_E_NOFIT);
    said_error(&r->log, "out of memory: test needs");
    be->vt->close(be);
}

static void backend_download_returns_what_was_uploaded(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_mem mem;
    char back[5];
    assert_int_equal(be->vt->alloc(be, 5, "test", &mem), DFX_OK);
    assert_int_equal(be->vt->upload(be, mem.ptr, "flux", 5), DFX_OK);
    assert_int_equal(be->vt->download(be, back, mem.ptr, 5), DFX_OK);
    assert_string_equal(back, "flux");
    be->vt->free(be, &mem);
    be->vt->close(be);
}

static void backend_run_unprepared_fails_and_does_not_allocate(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r);
    assert_int_equal(be->vt->run(be, &call), DFX_E_INTERNAL);
    said_error(&r->log, "without being prepared");
    prepare(be, &call);
    size_t held = dfx_mem_held_bytes();
    dfx_mem_fail_nth(1);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    dfx_mem_fail_nth(0);
    assert_int_equal(dfx_mem_held_bytes(), held);
    be->vt->close(be);
}

static void backend_prepare_looks_at_no_address(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 2);
    dfx_op_call call = linear_call(r), bare = call;
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        bare.m[slot].ptr = NULL;
    prepare(be, &bare);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    be->vt->close(be);
}

static void backend_prepare_of_what_it_cannot_do_fails(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r);
    call.m[DFX_LINEAR_X].dtype = DFX_DTYPE_BF16;
    assert_int_equal(be->vt->prepare(be, &call), DFX_E_DEVICE);
    said_error(&r->log, "op linear wants F32 activations");
    recorder_clear(&r->log);
    call = linear_call(r);
    call.m[DFX_LINEAR_X].ld = INT64_C(1) << 31;
    assert_int_equal(be->vt->prepare(be, &call), DFX_E_DEVICE);
    said_error(&r->log, "below 2^31");
    recorder_clear(&r->log);
    call = linear_call(r);
    call.m[DFX_LINEAR_W].cols--;
    assert_int_equal(be->vt->prepare(be, &call), DFX_E_INTERNAL);
    be->vt->close(be);
}

static void backend_every_allocation_failing_once_leaks_nothing(void **state) {
    rig *r = *state;
    dfx_op_call call = linear_call(r);
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    uint64_t nth = 1;
    for (; status != DFX_OK; nth++) {
        dfx_backend *be;
        dfx_cpu_options options = {.n_threads = 3};
        dfx_mem_fail_nth(nth);
        status = dfx_cpu_backend_open(&options, &r->log.sink, &be);
        if (status == DFX_OK) {
            status = be->vt->prepare(be, &call);
            if (status == DFX_OK)
                status = be->vt->workspace_alloc(be);
            dfx_mem_fail_nth(0);
            be->vt->close(be);
        }
        dfx_mem_fail_nth(0);
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
    assert_true(nth > 4);
}

static void backend_workspace_failing_leaves_run_refused(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r);
    assert_int_equal(be->vt->prepare(be, &call), DFX_OK);
    dfx_mem_fail_nth(1);
    assert_int_equal(be->vt->workspace_alloc(be), DFX_E_NOFIT);
    dfx_mem_fail_nth(0);
    assert_int_equal(be->vt->run(be, &call), DFX_E_INTERNAL);
    assert_int_equal(be->vt->workspace_alloc(be), DFX_OK);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    be->vt->close(be);
}

/* Counting holds nothing; what is held is what was counted, but for the rounding of mimalloc. */
static void backend_workspace_is_as_large_as_counted(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r);
    size_t held = dfx_mem_held_bytes();
    assert_int_equal(be->vt->workspace_bytes(be), 0);
    assert_int_equal(be->vt->prepare(be, &call), DFX_OK);
    size_t counted = be->vt->workspace_bytes(be);
    assert_true(counted > 0);
    assert_int_equal(be->vt->prepare(be, &call), DFX_OK);
    assert_int_equal(be->vt->workspace_bytes(be), counted);
    assert_int_equal(dfx_mem_held_bytes(), held);
    for (int i = 0; i < 2; i++) { /* the second time in place of the first */
        assert_int_equal(be->vt->workspace_alloc(be), DFX_OK);
        assert_in_range(dfx_mem_held_bytes() - held, counted, counted + 4096);
    }
    be->vt->close(be);
}

static void backend_workspace_grows_with_threads(void **state) {
    rig *r = *state;
    dfx_op_call call = linear_call(r);
    size_t counted[2];
    for (int i = 0; i < 2; i++) {
        dfx_backend *be = open_backend(r, 1 + 2 * i);
        assert_int_equal(be->vt->prepare(be, &call), DFX_OK);
        counted[i] = be->vt->workspace_bytes(be);
        be->vt->close(be);
    }
    assert_true(counted[1] > counted[0] && counted[1] <= 3 * counted[0]);
}

static void backend_workspace_free_forgets_what_was_prepared(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r);
    size_t held = dfx_mem_held_bytes();
    be->vt->workspace_free(be);
    prepare(be, &call);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    be->vt->workspace_free(be);
    assert_int_equal(be->vt->workspace_bytes(be), 0);
    assert_int_equal(dfx_mem_held_bytes(), held);
    assert_int_equal(be->vt->run(be, &call), DFX_E_INTERNAL);
    said_error(&r->log, "without being prepared");
    prepare(be, &call);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    be->vt->close(be);
}

/* Prepared for one shape, a run of a larger one has no scratch. */
static void backend_run_of_larger_call_than_prepared_fails(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    dfx_op_call call = linear_call(r), small = call;
    small.m[0].rows = small.m[DFX_LINEAR_X].rows = 1;
    prepare(be, &small);
    assert_int_equal(be->vt->run(be, &small), DFX_OK);
    assert_int_equal(be->vt->run(be, &call), DFX_E_INTERNAL);
    said_error(&r->log, "without being prepared");
    be->vt->close(be);
}

static void backend_pinned_memory_is_aligned_for_direct_reads(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 1);
    size_t held = dfx_mem_held_bytes();
    dfx_mem pinned, device;
    assert_int_equal(be->vt->pinned_alloc(be, 5000, "test", &pinned), DFX_OK);
    assert_int_equal(be->vt->alloc(be, 5000, "test", &device), DFX_OK);
    assert_int_equal((uintptr_t)pinned.ptr % 4096, 0);
    assert_int_equal(pinned.bytes, 5000);
    for (int i = 0; i < 5000; i++)
        ((unsigned char *)pinned.ptr)[i] = (unsigned char)(i * 7);
    assert_int_equal(be->vt->copy_begin(be, 0, DFX_NO_MARK, device.ptr, pinned.ptr, 5000), DFX_OK);
    assert_memory_equal(device.ptr, pinned.ptr, 5000);
    be->vt->pinned_free(be, &pinned);
    be->vt->free(be, &device);
    assert_null(pinned.ptr);
    assert_int_equal(dfx_mem_held_bytes(), held);
    be->vt->close(be);
}

static bool say_yes(void *user) {
    return *(const bool *)user;
}

static void backend_cancelled_run_stops_and_a_later_one_runs(void **state) {
    rig *r = *state;
    dfx_backend *be = open_backend(r, 2);
    dfx_op_call call = linear_call(r);
    bool cancelled = true;
    prepare(be, &call);
    be->vt->set_cancel(be, say_yes, &cancelled);
    assert_int_equal(be->vt->run(be, &call), DFX_E_CANCELLED);
    cancelled = false;
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    cancelled = true;
    be->vt->set_cancel(be, NULL, NULL);
    assert_int_equal(be->vt->run(be, &call), DFX_OK);
    be->vt->close(be);
}

/* Threads are part of the name; MemTotal is what sysconf's pages come from. */
static void backend_describes_the_processor(void **state) {
    rig *r = *state;
    static const char *const endings[] = {", 1 thread", ", 3 threads"};
    for (int i = 0; i < 2; i++) {
        dfx_device_facts facts;
        dfx_backend *be = open_backend(r, i ? 3 : 1);
        be->vt->describe(be, &facts);
        size_t len = strlen(facts.name), end = strlen(endings[i]);
        assert_true(len > end);
        assert_string_equal(facts.name + len - end, endings[i]);
        assert_true(facts.name[0] != ' ' && !strchr(facts.name, '\n'));
        assert_int_equal(facts.sm, 0);
        assert_string_equal(facts.driver, "");
        unsigned long long kib = 0;
        FILE *meminfo = fopen("/proc/meminfo", "r");
        assert_int_equal(fscanf(meminfo, "MemTotal: %llu kB", &kib), 1);
        fclose(meminfo);
        assert_int_equal(facts.device_bytes, kib * 1024 / 2);
        be->vt->close(be);
    }
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(backend_describes_the_processor),
        WITH_RIG(backend_memory_is_aligned_and_all_given_back),
        WITH_RIG(backend_alloc_of_more_than_there_is_fails),
        WITH_RIG(backend_download_returns_what_was_uploaded),
        WITH_RIG(backend_run_unprepared_fails_and_does_not_allocate),
        WITH_RIG(backend_prepare_looks_at_no_address),
        WITH_RIG(backend_prepare_of_what_it_cannot_do_fails),
        WITH_RIG(backend_every_allocation_failing_once_leaks_nothing),
        WITH_RIG(backend_workspace_failing_leaves_run_refused),
        WITH_RIG(backend_workspace_is_as_large_as_counted),
        WITH_RIG(backend_workspace_grows_with_threads),
        WITH_RIG(backend_workspace_free_forgets_what_was_prepared),
        WITH_RIG(backend_run_of_larger_call_than_prepared_fails),
        WITH_RIG(backend_pinned_memory_is_aligned_for_direct_reads),
        WITH_RIG(backend_cancelled_run_stops_and_a_later_one_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
