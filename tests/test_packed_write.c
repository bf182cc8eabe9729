/* Writer of packed models: layout by hand arithmetic, bytes by quant/FORMAT.md's example, and what is left after failures. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/builder.h"
#include "tests/pack_rig.h"

static const dfx_pack_options INT8 = {.quant = DFX_Q_INT8, .n_threads = 2, .source = "here"};

/* source.safetensors, model_index.json, transformer/ */
enum { N_SOURCE_ENTRIES = 3 };

static void nothing_is_left(const pack_rig *r) {
    assert_int_equal(tmpdir_count_entries(r->dir, "."), N_SOURCE_ENTRIES);
}

static uint64_t read_u64(const char *p) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return value;
}

/* ---- layout ---- */

static void pack_int8_pages_lie_where_arithmetic_says(void **state) {
    pack_rig *r = *state;
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    /* codes 96 * 64, scales 96 * 4, bias 96 * 2, norm 8 * 64 * 2: all multiples of 64 */
    static const uint64_t bytes[] = {6144 + 384 + 192 + 1024, 768 + 64, 2048 * 64 * 2};
    static const char *const names[] = {"step/transformer_blocks.0", "step/proj_out",
                                        "step/proj_out~2"};
    dfx_packed *packed = prig_open(r, "out");
    assert_int_equal(dfx_packed_n_pages(packed), 3);
    uint64_t off = 0;
    for (size_t i = 0; i < 3; i++) {
        const dfx_packed_page *page = dfx_packed_page_at(packed, i);
        assert_string_equal(page->name, names[i]);
        assert_string_equal(dfx_packed_component(packed, i), "transformer");
        assert_int_equal(page->bytes, bytes[i]);
        assert_int_equal(page->stored_bytes, bytes[i]);
        assert_int_equal(page->off % 4096, 0);
        if (i > 0)
            assert_int_equal(page->off, off);
        off = (page->off + bytes[i] + 4095) / 4096 * 4096;
        assert_int_equal(dfx_packed_page_of(packed, &r->program, (uint32_t)i), (int64_t)i);
    }
    assert_int_equal(dfx_packed_find_page(packed, "step", "transformer_blocks.0"), 0);
    assert_int_equal(dfx_packed_find_page(packed, "cond", "transformer_blocks.0"), -1);
    assert_int_equal(dfx_packed_quant(packed), DFX_Q_INT8);
    assert_string_equal(dfx_packed_source(packed), "here");

    size_t file_bytes;
    char *file = tmpdir_slurp(r->dir, "out", &file_bytes);
    assert_int_equal(file_bytes, off);
    assert_int_equal((8 + read_u64(file)) % 4096, 0);
    assert_int_equal(memcmp(file + 8, "{\"__metadata__\":{", 17), 0);
    free(file);
    dfx_packed_close(packed);
}

static void pack_int8_example_row_has_the_documented_codes(void **state) {
    pack_rig *r = *state;
    static const int8_t codes[] = {64, -32, 16, 127, 0};
    float scale;
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    uint8_t *page = prig_page(r, packed, 0);
    assert_memory_equal(page, codes, sizeof(codes));
    memcpy(&scale, page + 6144, sizeof(scale));
    assert_true(scale == 0x1.020408p-6f);
    free(page);
    dfx_packed_close(packed);
}

static void pack_fp8_example_row_has_the_documented_codes(void **state) {
    pack_rig *r = *state;
    static const uint8_t codes[] = {0x76, 0xee, 0x66, 0x7e, 0};
    float scale;
    assert_int_equal(prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_FP8}, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    uint8_t *page = prig_page(r, packed, 0);
    assert_memory_equal(page, codes, sizeof(codes));
    memcpy(&scale, page + 6144, sizeof(scale));
    assert_true(scale == 0x1.24924ap-8f);
    free(page);
    dfx_packed_close(packed);
}

static void pack_bf16_narrows_f32_and_keeps_bf16(void **state) {
    pack_rig *r = *state;
    assert_int_equal(prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_BF16}, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    const dfx_tensor *made = dfx_tensors_find(set, "proj_out.weight");
    const dfx_tensor *source = dfx_tensors_find(r->set, "proj_out.weight");
    float got[3 * PRIG_COLS], want[3 * PRIG_COLS];
    assert_int_equal(made->dtype, DFX_DTYPE_BF16);
    assert_int_equal(dfx_tensors_read_f32(set, made, r->sink, got), DFX_OK);
    assert_int_equal(dfx_tensors_read_f32(r->set, source, r->sink, want), DFX_OK);
    assert_memory_equal(got, want, sizeof(got)); /* the rig's values are exact in bf16 */
    assert_null(dfx_tensors_find(set, "transformer_blocks.0.attn.to_q.weight_scale"));
    dfx_packed_close(packed);
}

static void pack_stored_copies_every_byte(void **state) {
    pack_rig *r = *state;
    assert_int_equal(prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_STORED}, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    assert_int_equal(dfx_tensors_count(set), 6);
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i), *from = dfx_tensors_find(r->set, t->name);
        char *a = malloc(t->bytes), *b = malloc(t->bytes);
        assert_non_null(from);
        assert_int_equal(t->bytes, from->bytes);
        assert_int_equal(dfx_tensors_read(set, t, r->sink, a), DFX_OK);
        assert_int_equal(dfx_tensors_read(r->set, from, r->sink, b), DFX_OK);
        assert_memory_equal(a, b, t->bytes);
        free(a);
        free(b);
    }
    dfx_packed_close(packed);
}

static void pack_keep_pattern_leaves_tensor_as_stored(void **state) {
    pack_rig *r = *state;
    dfx_pack_options o = INT8;
    o.keep = (const char *const[]){"*.to_q.weight"};
    o.n_keep = 1;
    assert_int_equal(prig_pack(r, &o, "out"), DFX_OK);
    assert_int_equal(r->report.n_quantized, 0);
    dfx_packed *packed = prig_open(r, "out");
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    assert_int_equal(dfx_tensors_find(set, "transformer_blocks.0.attn.to_q.weight")->dtype,
                     DFX_DTYPE_BF16);
    dfx_packed_close(packed);
}

/* What the runtime will do: build from the packed tensors, and find every page as built. */
static void pack_layout_equals_builder(void **state) {
    pack_rig *r = *state;
    static const dfx_qformat formats[] = {DFX_Q_STORED, DFX_Q_BF16, DFX_Q_INT8, DFX_Q_INT8WO,
                                          DFX_Q_FP8};
    for (size_t i = 0; i < 2 * DFX_COUNT(formats); i++) {
        dfx_pack_options o = {.quant = formats[i / 2], .compress = i % 2};
        dfx_program program;
        assert_int_equal(prig_pack(r, &o, "out"), DFX_OK);
        dfx_packed *packed = prig_open(r, "out");
        assert_int_equal(prig_build(dfx_packed_tensors(packed, "transformer"), r->sink, &program),
                         DFX_OK);
        for (uint32_t p = 0; p < program.n_pages; p++) {
            assert_int_equal(dfx_packed_check_page(packed, &program, p, r->sink), DFX_OK);
            free(prig_page(r, packed, p));
        }
        dfx_program_fini(&program);
        dfx_packed_close(packed);
    }
}

static void pack_small_files_come_back_from_bundle(void **state) {
    pack_rig *r = *state;
    char *text;
    size_t bytes;
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    dfx_bundle bundle = dfx_packed_bundle(packed);
    assert_true(dfx_bundle_has(&bundle, "transformer/config.json"));
    assert_false(dfx_bundle_has(&bundle, "vae/config.json"));
    assert_int_equal(dfx_bundle_slurp(&bundle, "model_index.json", r->sink, 1000, &text, &bytes),
                     DFX_OK);
    assert_string_equal(text, "{\"_class_name\": \"FluxPipeline\"}\n");
    dfx_free(text);
    dfx_packed_close(packed);
}

static void pack_bytes_do_not_depend_on_threads(void **state) {
    pack_rig *r = *state;
    for (int compress = 0; compress < 2; compress++) {
        dfx_pack_options one = {.quant = DFX_Q_INT8, .n_threads = 1, .compress = compress};
        dfx_pack_options many = {.quant = DFX_Q_INT8, .n_threads = 5, .compress = compress};
        size_t bytes_a, bytes_b;
        assert_int_equal(prig_pack(r, &one, "a"), DFX_OK);
        assert_int_equal(prig_pack(r, &many, "b"), DFX_OK);
        char *a = tmpdir_slurp(r->dir, "a", &bytes_a), *b = tmpdir_slurp(r->dir, "b", &bytes_b);
        assert_int_equal(bytes_a, bytes_b);
        assert_memory_equal(a, b, bytes_a);
        free(a);
        free(b);
    }
}

static void pack_compress_keeps_what_pays(void **state) {
    pack_rig *r = *state;
    dfx_pack_options o = {.quant = DFX_Q_INT8, .compress = true};
    assert_int_equal(prig_pack(r, &o, "out"), DFX_OK);
    assert_int_equal(r->report.n_compressed, 2); /* F32 that is exact in bf16 is half zeros */
    dfx_packed *packed = prig_open(r, "out");
    const dfx_packed_page *codes = dfx_packed_page_at(packed, 0), *tail;
    tail = dfx_packed_page_at(packed, 2); /* zeros, nearly all */
    assert_int_equal(codes->codec, DFX_CODEC_RAW);
    assert_int_equal(tail->codec, DFX_CODEC_LZ4_PLANES);
    assert_true(tail->stored_bytes < tail->bytes / 10);
    uint8_t *page = prig_page(r, packed, 2);
    uint16_t want[PRIG_COLS];
    const dfx_tensor *t = dfx_tensors_find(r->set, "tail.weight");
    assert_int_equal(dfx_tensors_read_part(r->set, t, 0, sizeof(want), r->sink, want), DFX_OK);
    assert_memory_equal(page, want, sizeof(want));
    free(page);
    dfx_packed_close(packed);
}

static void pack_dry_run_tells_what_is_then_written(void **state) {
    pack_rig *r = *state;
    struct stat st;
    char path[TMPDIR_PATH];
    assert_int_equal(prig_pack(r, &INT8, NULL), DFX_OK);
    dfx_pack_report dry = r->report;
    nothing_is_left(r);
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    assert_int_equal(stat(tmpdir_join(r->dir, "out", path), &st), 0);
    assert_int_equal(dry.file_bytes, st.st_size);
    assert_int_equal(dry.n_quantized, 1);
    assert_int_equal(dry.n_tensors, 6);
    assert_int_equal(dry.n_pages, 3);
    assert_int_equal(dry.page_bytes_max, 2048 * 64 * 2);
    /* the pages as the source has them, and 32 + 2 bytes of files */
    assert_int_equal(dry.source_bytes,
                     96 * 64 * 2 + 96 * 2 + 8 * 64 * 2 + 768 + 12 + 2048 * 64 * 2 + 32 + 2);
    assert_int_equal(r->report.source_bytes, dry.source_bytes);
}

static void pack_unread_tensor_is_left_out_with_a_warning(void **state) {
    pack_rig *r = *state;
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    said_words(&r->dir->log, DFX_WARN, "spare.weight");
    dfx_packed *packed = prig_open(r, "out");
    assert_null(dfx_tensors_find(dfx_packed_tensors(packed, "transformer"), "spare.weight"));
    dfx_packed_close(packed);
}

static dfx_status ramp(void *user, const char *component, const dfx_tensor *t, uint64_t off,
                       void *dst, size_t n_bytes) {
    assert_string_equal(component, "transformer");
    assert_true(off + n_bytes <= t->bytes);
    memset(dst, *(int *)user, n_bytes);
    return DFX_OK;
}

static void pack_weights_of_a_rule_need_no_file(void **state) {
    pack_rig *r = *state;
    char path[TMPDIR_PATH];
    int byte = 0x3c;
    const dfx_program *program = &r->program;
    dfx_pack_source source = {.programs = &program,
                              .components = (const char *const[]){"transformer"},
                              .n_programs = 1,
                              .read = ramp,
                              .read_user = &byte};
    dfx_pack_options o = {.quant = DFX_Q_STORED};
    assert_int_equal(
        dfx_pack_write(&source, &o, tmpdir_join(r->dir, "out", path), r->sink, &r->report), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    uint8_t *page = prig_page(r, packed, 1);
    for (size_t i = 0; i < 768 + 12; i++)
        assert_int_equal(page[i], 0x3c);
    for (size_t i = 768 + 12; i < 768 + 64; i++)
        assert_int_equal(page[i], 0);
    free(page);
    dfx_packed_close(packed);
}

/* ---- failures ---- */

static void pack_nan_in_converted_weight_is_named(void **state) {
    pack_rig *r = *state;
    prig_spoil(r, "transformer_blocks.0.attn.to_q.weight", 7, 5, 0x7fc0);
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_E_NUMERIC);
    said_error(&r->dir->log, "transformer.transformer_blocks.0.attn.to_q.weight");
    said_error(&r->dir->log, "row 7, column 5");
    nothing_is_left(r);
}

static void pack_infinity_in_copied_weight_is_named(void **state) {
    pack_rig *r = *state;
    prig_spoil(r, "transformer_blocks.0.norm1.linear.weight", 3, 60, 0xff80);
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_E_NUMERIC);
    said_error(&r->dir->log, "transformer.transformer_blocks.0.norm1.linear.weight");
    said_error(&r->dir->log, "row 3, column 60 is infinite");
    nothing_is_left(r);
}

static void pack_onto_own_source_is_refused(void **state) {
    pack_rig *r = *state;
    char source[TMPDIR_PATH], other[TMPDIR_PATH];
    size_t before, after;
    free(tmpdir_slurp(r->dir, "source.safetensors", &before));
    assert_int_equal(prig_pack(r, &INT8, "source.safetensors"), DFX_E_USAGE);
    said_error(&r->dir->log, "source.safetensors");
    recorder_clear(&r->dir->log);
    assert_int_equal(prig_pack(r, &INT8, "model_index.json"), DFX_E_USAGE);
    tmpdir_join(r->dir, "source.safetensors", source);
    assert_int_equal(symlink(source, tmpdir_join(r->dir, "alias", other)), 0);
    assert_int_equal(prig_pack(r, &INT8, "alias"), DFX_E_USAGE);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(link(source, other), 0);
    assert_int_equal(prig_pack(r, &INT8, "alias"), DFX_E_USAGE);
    assert_int_equal(unlink(other), 0);
    free(tmpdir_slurp(r->dir, "source.safetensors", &after));
    assert_int_equal(before, after);
    nothing_is_left(r);
}

static bool cancel_now(void *user) {
    return *(bool *)user;
}

static void cancel_after_first_page(void *user, uint64_t done, uint64_t all) {
    assert_true(done > 0 && done <= all);
    *(bool *)user = true;
}

static void pack_cancelled_leaves_nothing(void **state) {
    pack_rig *r = *state;
    bool cancelled = false;
    dfx_pack_options o = INT8;
    o.cancelled = cancel_now;
    o.progress = cancel_after_first_page;
    o.user = &cancelled;
    assert_int_equal(prig_pack(r, &o, "out"), DFX_E_CANCELLED);
    assert_true(cancelled);
    nothing_is_left(r);
}

/* A limit on the size of files is a full disk that every machine has. */
static void pack_full_disk_leaves_nothing(void **state) {
    pack_rig *r = *state;
    struct rlimit old, small;
    tmpdir_write_text(r->dir, "out", "an older model");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (int compress = 0; compress < 2; compress++) {
        dfx_pack_options o = {.quant = DFX_Q_STORED, .compress = compress};
        small = (struct rlimit){.rlim_cur = 10000, .rlim_max = old.rlim_max};
        recorder_clear(&r->dir->log);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        dfx_status status = prig_pack(r, &o, "out");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, DFX_E_IO);
        said_error(&r->dir->log, "out: cannot ");
        char *text = tmpdir_slurp(r->dir, "out", NULL);
        assert_string_equal(text, "an older model");
        free(text);
        assert_int_equal(tmpdir_count_entries(r->dir, "."), N_SOURCE_ENTRIES + 1);
    }
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    assert_int_equal(tmpdir_count_entries(r->dir, "."), N_SOURCE_ENTRIES + 1);
}

static void die(void *user, uint64_t done, uint64_t all) {
    kill(getpid(), SIGKILL);
}

static void pack_killed_leaves_nothing_that_is_a_model(void **state) {
    pack_rig *r = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dfx_pack_options o = INT8;
        o.progress = die;
        prig_pack(r, &o, "out");
        _exit(1);
    }
    int how;
    char path[TMPDIR_PATH];
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_false(dfx_file_exists(tmpdir_join(r->dir, "out", path)));
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    assert_true(dfx_packed_is(path));
}

/* On file systems that cannot hide a file, a killed pack leaves this. Here it is made by hand. */
static void packed_is_refuses_a_file_without_header(void **state) {
    pack_rig *r = *state;
    size_t bytes;
    char path[TMPDIR_PATH];
    assert_int_equal(prig_pack(r, &INT8, "out"), DFX_OK);
    char *file = tmpdir_slurp(r->dir, "out", &bytes);
    memset(file, 0, 4096);
    tmpdir_write(r->dir, ".dfx-1-0.tmp", file, bytes);
    free(file);
    assert_false(dfx_packed_is(tmpdir_join(r->dir, ".dfx-1-0.tmp", path)));
}

static uint64_t last_done, last_all;
static void note(void *user, uint64_t done, uint64_t all) {
    assert_true(done > last_done);
    last_done = done;
    last_all = all;
}

static void pack_progress_ends_at_all_bytes(void **state) {
    pack_rig *r = *state;
    dfx_pack_options o = INT8;
    o.progress = note;
    last_done = 0;
    assert_int_equal(prig_pack(r, &o, "out"), DFX_OK);
    assert_int_equal(last_done, last_all);
    assert_int_equal(last_all + 32 + 2, r->report.source_bytes);
}

static void pack_weight_in_two_pages_is_refused(void **state) {
    pack_rig *r = *state;
    dfx_builder b;
    dfx_program program;
    dfx_build_env env = {.tensors = r->set, .act_dtype = DFX_DTYPE_F32, .sink = r->sink};
    dfx_builder_init(&b, "step", "transformer", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", 1, PRIG_COLS, DFX_DTYPE_F32);
    for (int i = 0; i < 2; i++) {
        dfx_builder_page(&b, "page%d", i);
        dfx_builder_scope(&b, "%s", "");
        dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "proj_out", .n = 3});
    }
    assert_int_equal(dfx_builder_finish(&b, &program), DFX_OK);
    assert_int_equal(prig_pack_program(r, &program, &INT8, "out"), DFX_E_INTERNAL);
    said_error(&r->dir->log, "transformer.proj_out.");
    dfx_program_fini(&program);
    nothing_is_left(r);
}

static void pack_memory_is_two_pages_and_runs(void **state) {
    pack_rig *r = *state;
    size_t before = dfx_mem_peak_bytes();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_BF16, .n_threads = 2, .compress = i},
                      "out"),
            DFX_OK);
    /* two pages, two runs of at most 2 MiB, and less than 1 MB of tables */
    size_t bound = 2 * r->report.page_bytes_max + 2 * (2 << 20) + 1000000;
    assert_true(dfx_mem_peak_bytes() <= (before > bound ? before : bound));
}

static void pack_every_failing_allocation_is_survived(void **state) {
    pack_rig *r = *state;
    dfx_status status = DFX_E_NOFIT;
    size_t held = dfx_mem_held_bytes();
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        assert_true(nth < 1000);
        recorder_clear(&r->dir->log);
        dfx_mem_fail_nth(nth);
        status = prig_pack(
            r, &(dfx_pack_options){.quant = DFX_Q_INT8, .n_threads = 2, .compress = true}, "out");
        dfx_mem_fail_nth(0);
        assert_int_equal(dfx_mem_held_bytes(), held);
        if (status != DFX_OK) {
            assert_int_equal(recorder_count(&r->dir->log, DFX_ERROR), 1);
            nothing_is_left(r);
        }
    }
    assert_int_equal(tmpdir_count_entries(r->dir, "."), N_SOURCE_ENTRIES + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, prig_setup, prig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pack_int8_pages_lie_where_arithmetic_says),
        TEST(pack_int8_example_row_has_the_documented_codes),
        TEST(pack_fp8_example_row_has_the_documented_codes),
        TEST(pack_bf16_narrows_f32_and_keeps_bf16),
        TEST(pack_stored_copies_every_byte),
        TEST(pack_keep_pattern_leaves_tensor_as_stored),
        TEST(pack_layout_equals_builder),
        TEST(pack_small_files_come_back_from_bundle),
        TEST(pack_bytes_do_not_depend_on_threads),
        TEST(pack_compress_keeps_what_pays),
        TEST(pack_dry_run_tells_what_is_then_written),
        TEST(pack_unread_tensor_is_left_out_with_a_warning),
        TEST(pack_weights_of_a_rule_need_no_file),
        TEST(pack_progress_ends_at_all_bytes),
        TEST(pack_memory_is_two_pages_and_runs),
        TEST(pack_nan_in_converted_weight_is_named),
        TEST(pack_infinity_in_copied_weight_is_named),
        TEST(pack_onto_own_source_is_refused),
        TEST(pack_cancelled_leaves_nothing),
        TEST(pack_full_disk_leaves_nothing),
        TEST(pack_killed_leaves_nothing_that_is_a_model),
        TEST(packed_is_refuses_a_file_without_header),
        TEST(pack_weight_in_two_pages_is_refused),
        TEST(pack_every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
