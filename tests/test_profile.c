/* Profiles: those that are shipped, files of one's own, and every way in which a file can be wrong. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/profile.h"
#include "offload/profiles.h"
#include "tests/tmpdir.h"

static const char GOOD[] = "# a machine\n"
                           "name = my-machine.2\n"
                           "unified = no   # two memories\n"
                           "has_fp8=yes\n"
                           "\n"
                           "link_bytes_per_s = 12.5e9\r\n"
                           "link_latency_s = 0\n"
                           "disk_bytes_per_s = 2500000000\n"
                           "disk_latency_s = 1.5e-4\n"
                           "disk_queue_depth = 16\n"
                           "bf16_flops = 1e14\n"
                           "int8_flops = 2e14\n"
                           "fp8_flops = 2E+14\n"
                           "attention_flops = 1e14\n"
                           "memory_bytes_per_s = 1e12\n"
                           "launch_s = 3e-6\n"
                           "device_bytes = 17179869184\n"
                           "context_bytes = 0\n"
                           "  host_bytes\t=\t34359738368"; /* no newline at the end */

static dfx_status load(tmpdir *dir, const char *text, dfx_profile *out) {
    char path[TMPDIR_PATH];
    tmpdir_write_text(dir, "a.profile", text);
    recorder_clear(&dir->log);
    return dfx_profile_load(tmpdir_join(dir, "a.profile", path), &dir->log.sink, out);
}

/* GOOD with `from` replaced by `to` is refused with `words`. */
static void broken(tmpdir *dir, const char *from, const char *to, const char *words) {
    char text[sizeof(GOOD) + 256];
    dfx_profile profile;
    const char *at = strstr(GOOD, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
    assert_int_equal(load(dir, text, &profile), DFX_E_FORMAT);
    said_error(&dir->log, words);
    said_error(&dir->log, "a.profile");
}

static void same(const dfx_profile *a, const dfx_profile *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->unified, b->unified);
    assert_int_equal(a->has_fp8, b->has_fp8);
    assert_int_equal(a->sm, b->sm);
    assert_true(a->link_bytes_per_s == b->link_bytes_per_s);
    assert_true(a->link_latency_s == b->link_latency_s);
    assert_true(a->link_slows_compute == b->link_slows_compute);
    assert_true(a->disk_bytes_per_s == b->disk_bytes_per_s);
    assert_true(a->disk_latency_s == b->disk_latency_s);
    assert_int_equal(a->disk_queue_depth, b->disk_queue_depth);
    assert_true(a->bf16_flops == b->bf16_flops);
    assert_true(a->int8_flops == b->int8_flops);
    assert_true(a->fp8_flops == b->fp8_flops);
    assert_true(a->attention_flops == b->attention_flops);
    assert_true(a->memory_bytes_per_s == b->memory_bytes_per_s);
    assert_true(a->launch_s == b->launch_s);
    assert_true(a->device_bytes == b->device_bytes);
    assert_true(a->context_bytes == b->context_bytes);
    assert_true(a->host_bytes == b->host_bytes);
    assert_string_equal(a->device, b->device);
    assert_string_equal(a->driver, b->driver);
    assert_int_equal(a->method, b->method);
}

static void print_and_load_again(tmpdir *dir, const dfx_profile *profile) {
    char *text;
    dfx_profile again;
    assert_int_equal(dfx_profile_print(profile, &dir->log.sink, &text), DFX_OK);
    assert_int_equal(load(dir, text, &again), DFX_OK);
    same(profile, &again);
    dfx_free(text);
}

static void profile_shipped_ones_load_and_print_back(void **state) {
    tmpdir *dir = *state;
    static const char *const names[] = {"cpu", "h200", "orin", "rtx3060", "rtx4070", "rtx4090"};
    assert_int_equal(dfx_shipped_profile_count(), DFX_COUNT(names));
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        dfx_profile profile;
        assert_string_equal(dfx_shipped_profile_at(i).name, names[i]);
        assert_int_equal(dfx_profile_load(names[i], &dir->log.sink, &profile), DFX_OK);
        assert_string_equal(profile.name, names[i]);
        print_and_load_again(dir, &profile);
    }
}

/* Vendor's figures and what was measured: a slip of a digit in a file is found here. */
static void profile_shipped_ones_hold_known_figures(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    assert_int_equal(dfx_profile_load("rtx4090", &dir->log.sink, &p), DFX_OK);
    assert_true(p.link_bytes_per_s == 25e9 && p.has_fp8 && !p.unified);
    assert_true(p.int8_flops < 660e12 && p.fp8_flops < 330e12 && p.bf16_flops < 165e12);
    assert_int_equal(p.sm, 89);
    assert_int_equal(dfx_profile_load("rtx3060", &dir->log.sink, &p), DFX_OK);
    assert_true(!p.has_fp8 && p.int8_flops < 102e12 && p.device_bytes == 12ull << 30);
    assert_int_equal(dfx_profile_load("h200", &dir->log.sink, &p), DFX_OK);
    assert_true(p.link_bytes_per_s == 55.2e9 && p.disk_bytes_per_s == 2e9);
    assert_true(p.int8_flops > 1164e12 && p.int8_flops < 1500e12);
    assert_int_equal(dfx_profile_load("orin", &dir->log.sink, &p), DFX_OK);
    assert_true(p.unified && !p.has_fp8);
}

static void profile_of_a_file_loads(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    assert_int_equal(load(dir, GOOD, &p), DFX_OK);
    same(&p, &(dfx_profile){.name = "my-machine.2",
                            .has_fp8 = true,
                            .link_bytes_per_s = 12500000000.0,
                            .disk_bytes_per_s = 2500000000.0,
                            .disk_latency_s = 0.00015,
                            .disk_queue_depth = 16,
                            .bf16_flops = 1e14,
                            .int8_flops = 2e14,
                            .fp8_flops = 2e14,
                            .attention_flops = 1e14,
                            .memory_bytes_per_s = 1e12,
                            .launch_s = 0.000003,
                            .device_bytes = 17179869184,
                            .host_bytes = 34359738368});
}

/* Profiles of before it was measured have no such line: copies cost nothing then. */
static void profile_without_a_share_has_none(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    char text[sizeof(GOOD) + 64];
    assert_int_equal(load(dir, GOOD, &p), DFX_OK);
    assert_true(p.link_slows_compute == 0);
    snprintf(text, sizeof(text), "%s\nlink_slows_compute = 0.025", GOOD);
    assert_int_equal(load(dir, text, &p), DFX_OK);
    assert_true(p.link_slows_compute == 0.025);
    print_and_load_again(dir, &p);
}

static void profile_with_odd_numbers_prints_back(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    assert_int_equal(load(dir, GOOD, &p), DFX_OK);
    p.link_bytes_per_s = 1e10 / 3;
    p.launch_s = 0.1 + 0.2;
    p.disk_latency_s = 4.9e-324;
    p.host_bytes = UINT64_MAX;
    print_and_load_again(dir, &p);
}

/* Of what it was measured on: texts with blanks and commas. */
static void profile_that_was_measured_prints_back(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    assert_int_equal(load(dir, GOOD, &p), DFX_OK);
    assert_string_equal(p.device, "");
    snprintf(p.device, sizeof(p.device), "NVIDIA GeForce RTX 4090");
    snprintf(p.driver, sizeof(p.driver), "580.159, CUDA 13.0 = new");
    p.method = 65535;
    p.sm = 89;
    print_and_load_again(dir, &p);
    memset(p.device, 'x', sizeof(p.device) - 1);
    print_and_load_again(dir, &p);
}

static void profile_faults_are_named(void **state) {
    tmpdir *dir = *state;
    broken(dir, "bf16_flops", "bf17_flops", "line 11: a profile has no \"bf17_flops\"");
    broken(dir, "launch_s = 3e-6\n", "", "launch_s is missing");
    broken(dir, "launch_s = 3e-6\n", "launch_s = 3e-6\nunified = no\n",
           "line 17: unified is given twice, first in line 3");
    broken(dir, "launch_s = 3e-6\n", "launch_s 3e-6\n", "line 16: wanted name = value");
    broken(dir, "= 12.5e9", "= fast", "line 6: link_bytes_per_s: wanted a number above 0");
    broken(dir, "= 12.5e9", "= 12.5e9x", "found \"12.5e9x\"");
    broken(dir, "= 12.5e9", "= 12.5 GB/s", "found \"12.5 GB/s\"");
    broken(dir, "= 12.5e9", "= 12,5e9", "found \"12,5e9\"");
    broken(dir, "= 12.5e9", "= 1e9e9", "found \"1e9e9\"");
    broken(dir, "= 12.5e9", "= -12.5e9", "found \"-12.5e9\"");
    broken(dir, "= 12.5e9", "= 0", "wanted a number above 0");
    broken(dir, "= 12.5e9", "= 0x10", "found \"0x10\"");
    broken(dir, "= 12.5e9", "= inf", "found \"inf\"");
    broken(dir, "= 12.5e9", "= nan", "found \"nan\"");
    broken(dir, "= 12.5e9", "= 1e999", "found \"1e999\"");
    broken(dir, "= 12.5e9", "=", "found \"\"");
    broken(dir, "= 1.5e-4", "= -1", "line 9: disk_latency_s: wanted a number of seconds from 0");
    broken(dir, "= 16\n", "= 0\n", "disk_queue_depth: wanted a whole number from 1 to 4096");
    broken(dir, "= 16\n", "= 4097\n", "found \"4097\"");
    broken(dir, "= 17179869184", "= 16G", "device_bytes: wanted a whole number of bytes above 0");
    broken(dir, "= 17179869184", "= 18446744073709551616", "found \"18446744073709551616\"");
    broken(dir, "= 17179869184", "= 0", "device_bytes: wanted");
    broken(dir, "context_bytes = 0", "context_bytes = 17179869184", "leave nothing");
    broken(dir, "unified = no ", "unified = maybe ", "unified: wanted yes or no");
    broken(dir, "fp8_flops = 2E+14", "fp8_flops = 0", "has_fp8 is yes and fp8_flops is 0");
    broken(dir, "my-machine.2", "my machine", "name: wanted a name");
    broken(dir, "launch_s = 3e-6\n", "launch_s = 3e-6\nlink_slows_compute = 2 %\n",
           "line 17: link_slows_compute: wanted a share from 0 such as 0.02");
    broken(dir, "launch_s = 3e-6\n", "launch_s = 3e-6\ndevice =\n",
           "line 17: device: wanted a text of 1 to 127 bytes");
    broken(dir, "launch_s = 3e-6\n", "launch_s = 3e-6\nmethod = 0\n",
           "line 17: method: wanted a whole number from 1 to 65535");
}

static void profile_with_a_zero_byte_is_refused(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH];
    dfx_profile p;
    tmpdir_write(dir, "a.profile", "name = a\0b\n", 11);
    assert_int_equal(dfx_profile_load(tmpdir_join(dir, "a.profile", path), &dir->log.sink, &p),
                     DFX_E_FORMAT);
    said_error(&dir->log, "zero byte");
}

static void profile_of_unknown_name_lists_those_there_are(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    assert_int_equal(dfx_profile_load("rtx9999", &dir->log.sink, &p), DFX_E_USAGE);
    said_error(&dir->log, "cpu, h200, orin, rtx3060, rtx4070, rtx4090");
    said_error(&dir->log, "\"rtx9999\"");
}

/* In a locale whose decimal point is a comma. */
static void profile_numbers_do_not_depend_on_the_locale(void **state) {
    tmpdir *dir = *state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *got = NULL;
    dfx_profile p;
    for (size_t i = 0; !got && i < DFX_COUNT(commas); i++)
        got = setlocale(LC_ALL, commas[i]);
    if (!got)
        skip();
    assert_string_equal(localeconv()->decimal_point, ",");
    assert_int_equal(load(dir, GOOD, &p), DFX_OK);
    assert_true(p.link_bytes_per_s == 12500000000.0);
    print_and_load_again(dir, &p);
    assert_string_equal(localeconv()->decimal_point, ","); /* left as it was */
    setlocale(LC_ALL, "C");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(profile_shipped_ones_load_and_print_back),
        TEST(profile_shipped_ones_hold_known_figures),
        TEST(profile_of_a_file_loads),
        TEST(profile_without_a_share_has_none),
        TEST(profile_with_odd_numbers_prints_back),
        TEST(profile_that_was_measured_prints_back),
        TEST(profile_faults_are_named),
        TEST(profile_with_a_zero_byte_is_refused),
        TEST(profile_of_unknown_name_lists_those_there_are),
        TEST(profile_numbers_do_not_depend_on_the_locale),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
