/* The checks that cuda_check makes of a device as a whole, on one that is made of the CPU. */
#include <string.h>

#include "tests/bf16_device.h"
#include "tests/device_checks.h"

typedef struct seen {
    device_checks checks;
    const char *only; /* part of the names to run; NULL: all */
    int n_passed, n_failed, n_notes;
} seen;

static bool wanted(void *user, const char *name) {
    const seen *s = user;
    return !s->only || strstr(name, s->only);
}

static void verdict(void *user, const char *name, bool ok, const char *why) {
    seen *s = user;
    print_message("%s  %-72s %s\n", ok ? "ok  " : "FAIL", name, why);
    s->n_passed += ok;
    s->n_failed += !ok;
}

static void note(void *user, const char *name, const char *text) {
    seen *s = user;
    print_message("      %-72s %s\n", name, text);
    s->n_notes++;
}

static uint64_t held_bytes(dfx_backend *be) {
    return be->vt->driver_bytes(be);
}

static void begin(seen *s, tmpdir *dir) {
    *s = (seen){.checks = {.sink = &dir->log.sink,
                           .dir = dir,
                           .copy_rows = 8,
                           .held_bytes = held_bytes,
                           .n_allocs = bf16_device_n_allocs,
                           .wanted = wanted,
                           .verdict = verdict,
                           .note = note,
                           .user = s}};
    assert_int_equal(bf16_device_open(2, s->checks.sink, &s->checks.backend), DFX_OK);
}

static void end(seen *s) {
    assert_int_equal(held_bytes(s->checks.backend), 0);
    s->checks.backend->vt->close(s->checks.backend);
}

static void goldens_are_met_in_bf16(void **state) {
    seen s;
    begin(&s, *state);
    device_goldens(&s.checks);
    end(&s);
    assert_int_equal(s.n_failed, 0);
    assert_int_equal(s.n_passed, 23);
}

static void recordings_copies_and_memory_keep_their_promises(void **state) {
    seen s;
    begin(&s, *state);
    device_streams(&s.checks);
    end(&s);
    assert_int_equal(s.n_failed, 0);
    assert_int_equal(s.n_passed, 4);
}

/* The VAE has no rotated heads. */
static void wrong_op_is_seen_where_it_is_used(void **state) {
    seen s;
    begin(&s, *state);
    bf16_device_spoil(s.checks.backend, DFX_OP_QKNORM_ROPE);
    s.only = "GOLDEN flux schnell";
    device_goldens(&s.checks);
    assert_int_equal(s.n_failed, 2);
    assert_true(s.n_notes > 2);
    s.only = "GOLDEN vae encoder";
    device_goldens(&s.checks);
    end(&s);
    assert_int_equal(s.n_failed, 2);
    assert_int_equal(s.n_passed, 2);
}

static int write_models(void **state) {
    return tmpdir_setup(state) == 0 && device_write_models(*state) ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_met_in_bf16),
        cmocka_unit_test(wrong_op_is_seen_where_it_is_used),
        cmocka_unit_test(recordings_copies_and_memory_keep_their_promises),
    };
    return cmocka_run_group_tests(tests, write_models, tmpdir_teardown);
}
