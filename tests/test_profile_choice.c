/* Which profile stands for a device. Memory rates of cards are their vendors' figures; which shipped profile is nearest to them
 * follows from those and from the figures in offload/profiles/. */
#include <stdio.h>
#include <string.h>

#include "offload/profile_choice.h"
#include "tests/tmpdir.h"

static dfx_device_facts gpu(const char *name, int sm, double stated_bytes_per_s) {
    dfx_device_facts f = {.sm = sm,
                          .has_fp8 = sm >= 89,
                          .stated_bytes_per_s = stated_bytes_per_s,
                          .device_bytes = 10ull << 30,
                          .context_bytes = 300 << 20,
                          .driver = "580.159, CUDA 13.0"};
    snprintf(f.name, sizeof(f.name), "%s", name);
    return f;
}

static void chosen(tmpdir *dir, dfx_device_facts facts, const char *wanted, bool has_fp8) {
    dfx_profile p;
    recorder_clear(&dir->log);
    assert_int_equal(dfx_profile_choose(&facts, dir->path, &dir->log.sink, &p), DFX_OK);
    assert_string_equal(p.name, wanted);
    assert_int_equal(p.has_fp8, has_fp8);
    said_words(&dir->log, DFX_DEBUG, wanted);
    said_words(&dir->log, DFX_DEBUG, facts.name);
    said_nothing(&dir->log, DFX_WARN);
}

static void slugged(const char *device, const char *wanted) {
    char slug[DFX_PROFILE_NAME];
    dfx_profile_slug(device, slug);
    assert_string_equal(slug, wanted);
}

static void profile_slug_is_a_name_of_a_file(void **state) {
    slugged("NVIDIA H200", "nvidia-h200");
    slugged("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz, 12 threads",
            "intel-core-i7-9750h-cpu-2.60ghz-12-threads");
    slugged("../../etc/passwd", "etc-passwd");
    slugged("()", "device");
    slugged("", "device");
    slugged("A card whose name goes on and on and on and on and on and on and on, so",
            "a-card-whose-name-goes-on-and-on-and-on-and-on-and-on-and-on-an");
}

static void profile_choice_knows_shipped_cards_by_name(void **state) {
    tmpdir *dir = *state;
    chosen(dir, gpu("NVIDIA H200", 90, 4.8e12), "h200", true);
    chosen(dir, gpu("NVIDIA GeForce RTX 4090", 89, 1.008e12), "rtx4090", true);
    chosen(dir, gpu("NVIDIA GeForce RTX 4070 Laptop GPU", 89, 256e9), "rtx4070", true);
    chosen(dir, gpu("NVIDIA GeForce RTX 3060", 86, 360e9), "rtx3060", false);
    dfx_device_facts orin = gpu("Orin", 87, 204.8e9);
    orin.unified = true;
    chosen(dir, orin, "orin", false);
}

static void profile_choice_takes_the_nearest_memory_else(void **state) {
    tmpdir *dir = *state;
    chosen(dir, gpu("NVIDIA H100 80GB HBM3", 90, 3.35e12), "h200", true);
    chosen(dir, gpu("NVIDIA GeForce RTX 5090", 120, 1.792e12), "rtx4090", true);
    chosen(dir, gpu("NVIDIA GeForce RTX 4060", 89, 272e9), "rtx4070", true); /* a 3060 has no fp8 */
    chosen(dir, gpu("NVIDIA GeForce RTX 3050", 86, 224e9), "rtx3060", false);
    chosen(dir, gpu("NVIDIA A100-SXM4-80GB", 80, 2.039e12), "rtx4090", false);
    chosen(dir, gpu("NVIDIA H2000", 90, 0), "rtx4090", true); /* no H200, and it does not tell */
}

/* Bytes are the device's own. */
static void profile_choice_holds_the_devices_memory(void **state) {
    tmpdir *dir = *state;
    dfx_profile p;
    dfx_device_facts facts = gpu("NVIDIA GeForce RTX 4090", 89, 1.008e12);
    assert_int_equal(dfx_profile_choose(&facts, NULL, &dir->log.sink, &p), DFX_OK);
    assert_int_equal(p.device_bytes, 10ull << 30);
    assert_int_equal(p.context_bytes, 300 << 20);
}

static void profile_choice_of_a_processor_is_cpu(void **state) {
    tmpdir *dir = *state;
    chosen(dir, gpu("H200 of the processors, 2 threads", 0, 0), "cpu", false);
}

/* The measured profile of `facts` in the folder; `edit` may spoil it. */
static void write_measured(tmpdir *dir, const dfx_device_facts *facts,
                           void (*edit)(dfx_profile *profile)) {
    char path[DFX_PATH_BYTES], *text;
    dfx_profile p;
    assert_int_equal(dfx_profile_load("h200", &dir->log.sink, &p), DFX_OK);
    snprintf(p.name, sizeof(p.name), "mine");
    snprintf(p.device, sizeof(p.device), "%s", facts->name);
    snprintf(p.driver, sizeof(p.driver), "%s", facts->driver);
    p.method = DFX_PROFILE_METHOD;
    p.launch_s = 7e-6;
    if (edit)
        edit(&p);
    assert_int_equal(dfx_profile_print(&p, &dir->log.sink, &text), DFX_OK);
    assert_int_equal(dfx_profile_path(dir->path, facts->name, &dir->log.sink, path), DFX_OK);
    tmpdir_write_text(dir, strrchr(path, '/') + 1, text);
    dfx_free(text);
}

static void profile_choice_prefers_what_was_measured(void **state) {
    tmpdir *dir = *state;
    dfx_device_facts facts = gpu("NVIDIA GeForce RTX 4090", 89, 1.008e12);
    dfx_profile p;
    write_measured(dir, &facts, NULL);
    assert_int_equal(dfx_profile_choose(&facts, dir->path, &dir->log.sink, &p), DFX_OK);
    assert_string_equal(p.name, "mine");
    assert_true(p.launch_s == 7e-6);
    said_words(&dir->log, DFX_DEBUG, "machine-nvidia-geforce-rtx-4090.profile, measured");
    chosen(dir, gpu("NVIDIA GeForce RTX 3060", 86, 360e9), "rtx3060", false); /* another card */
}

static void older_driver(dfx_profile *p) {
    snprintf(p->driver, sizeof(p->driver), "570.1, CUDA 12.8");
}

static void older_method(dfx_profile *p) {
    p->method = DFX_PROFILE_METHOD - 1;
}

/* Another device whose slug is the same. */
static void other_device(dfx_profile *p) {
    snprintf(p->device, sizeof(p->device), "nvidia geforce rtx 4090");
}

static void profile_choice_leaves_stale_ones_alone(void **state) {
    tmpdir *dir = *state;
    dfx_device_facts facts = gpu("NVIDIA GeForce RTX 4090", 89, 1.008e12);
    write_measured(dir, &facts, older_driver);
    chosen(dir, facts, "rtx4090", true);
    said_words(&dir->log, DFX_DEBUG, "of another driver");
    write_measured(dir, &facts, older_method);
    chosen(dir, facts, "rtx4090", true);
    said_words(&dir->log, DFX_DEBUG, "of another version");
    write_measured(dir, &facts, other_device);
    chosen(dir, facts, "rtx4090", true);
    said_words(&dir->log, DFX_DEBUG, "of another device");
}

static void profile_choice_warns_of_a_broken_one(void **state) {
    tmpdir *dir = *state;
    dfx_device_facts facts = gpu("NVIDIA H200", 90, 4.8e12);
    dfx_profile p;
    tmpdir_write_text(dir, "machine-nvidia-h200.profile", "name = mine\n");
    assert_int_equal(dfx_profile_choose(&facts, dir->path, &dir->log.sink, &p), DFX_OK);
    assert_string_equal(p.name, "h200");
    said_words(&dir->log, DFX_WARN, "unified is missing");
    said_words(&dir->log, DFX_WARN, "measure again");
    said_nothing(&dir->log, DFX_ERROR);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_slug_is_a_name_of_a_file),
        TEST(profile_choice_knows_shipped_cards_by_name),
        TEST(profile_choice_takes_the_nearest_memory_else),
        TEST(profile_choice_holds_the_devices_memory),
        TEST(profile_choice_of_a_processor_is_cpu),
        TEST(profile_choice_prefers_what_was_measured),
        TEST(profile_choice_leaves_stale_ones_alone),
        TEST(profile_choice_warns_of_a_broken_one),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
