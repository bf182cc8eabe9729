/* Reader of packed models: files made by hand, right and wrong. Nothing that a file claims may lead outside it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/checksum.h"
#include "offload/builder.h"
#include "offload/packed_format.h"
#include "tests/pack_rig.h"
#include "tests/stfile.h"

/* A file of one page by hand: header of 4088 bytes, so that data begins at 4096; data of 8192 bytes, the page at 4096 of
 * the data: a.weight U8 [64], b.weight U8 [64], then padding. */
enum { N_DATA = 8192, HEADER = 4096 - 8 };

static const char PAGE[] =
    "{'name':'step/p','component':'vae','begin':4096,'bytes':128,'stored':128,"
    "'codec':'raw','xxh3':'%016llx'}";

static void make_data(uint8_t data[N_DATA]) {
    memset(data, 0, N_DATA);
    for (int i = 0; i < 128; i++)
        data[4096 + i] = (uint8_t)i;
}

/* `pages` with ' for ", as the value of dfx.pages in a file whose tensors are `tensors`. */
static void write_file(tmpdir *dir, const char *version, const char *tensors, const char *pages) {
    char header[HEADER + 1], escaped[HEADER] = "";
    uint8_t data[N_DATA];
    size_t n = 0;
    for (const char *p = pages; *p; p++)
        n += (size_t)snprintf(escaped + n, sizeof(escaped) - n, *p == '\'' ? "\\\"" : "%c", *p);
    memset(header, ' ', sizeof(header));
    int len = snprintf(header, sizeof(header),
                       "{\"__metadata__\":{\"dfx.version\":\"%s\",\"dfx.quant\":\"int8\","
                       "\"dfx.source\":\"x\",\"dfx.pages\":\"%s\"},%s}",
                       version, escaped, tensors);
    assert_true(len < HEADER);
    header[len] = ' ';
    header[HEADER] = 0;
    make_data(data);
    stfile_write(dir, "p", header, data, N_DATA);
}

static const char TENSORS[] =
    "\"pad/0\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
    "\"vae.a.weight\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[4096,4160]},"
    "\"vae.b.weight\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[4160,4224]},"
    "\"pad/1\":{\"dtype\":\"U8\",\"shape\":[3968],\"data_offsets\":[4224,8192]}";

static dfx_status open_file(tmpdir *dir, dfx_packed **out) {
    char path[TMPDIR_PATH];
    *out = NULL;
    return dfx_packed_open(tmpdir_join(dir, "p", path), &dir->log.sink, out);
}

static void packed_made_by_hand_opens(void **state) {
    tmpdir *dir = *state;
    uint8_t data[N_DATA];
    char pages[512] = "[", path[TMPDIR_PATH];
    dfx_packed *packed;
    make_data(data);
    snprintf(pages + 1, sizeof(pages) - 1, PAGE, (unsigned long long)dfx_xxh3(data + 4096, 128));
    strcat(pages, "]");
    write_file(dir, "1", TENSORS, pages);
    assert_true(dfx_packed_is(tmpdir_join(dir, "p", path)));
    assert_int_equal(open_file(dir, &packed), DFX_OK);
    assert_int_equal(dfx_packed_n_pages(packed), 1);
    const dfx_packed_page *page = dfx_packed_page_at(packed, 0);
    assert_int_equal(page->off, 8192);
    assert_int_equal(dfx_packed_verify(packed, page, data + 4096, &dir->log.sink), DFX_OK);
    const dfx_tensors *set = dfx_packed_tensors(packed, "vae");
    assert_int_equal(dfx_tensors_count(set), 2);
    assert_int_equal(dfx_tensors_find(set, "b.weight")->off, 8192 + 64);
    assert_null(dfx_packed_tensors(packed, "transformer"));
    said_nothing(&dir->log, DFX_ERROR);

    data[4096 + 127] ^= 1;
    assert_int_equal(dfx_packed_verify(packed, page, data + 4096, &dir->log.sink), DFX_E_FORMAT);
    said_error(&dir->log, "step/p has the checksum");

    assert_int_equal(dfx_packed_verify_file(packed, page, &dir->log.sink), DFX_OK);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(page->off + 127)), 1);
    close(fd);
    assert_int_equal(dfx_packed_verify_file(packed, page, &dir->log.sink), DFX_E_FORMAT);
    dfx_packed_close(packed);
}

/* xxHash's own test value: XXH3_64bits of nothing. */
static void xxh3_of_nothing_is_the_published_value(void **state) {
    assert_true(dfx_xxh3("", 0) == 0x2d06800538d394c2u);
}

static void packed_other_version_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_packed *packed;
    char path[TMPDIR_PATH];
    write_file(dir, "2", TENSORS, "[]");
    assert_true(dfx_packed_is(tmpdir_join(dir, "p", path)));
    assert_int_equal(open_file(dir, &packed), DFX_E_FORMAT);
    said_error(&dir->log, "version 2");
}

static void packed_is_false_for_other_files(void **state) {
    tmpdir *dir = *state;
    dfx_packed *packed;
    char path[TMPDIR_PATH];
    stfile_write(dir, "p", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x",
                 1);
    assert_false(dfx_packed_is(tmpdir_join(dir, "p", path)));
    assert_int_equal(open_file(dir, &packed), DFX_E_FORMAT);
    said_error(&dir->log, "not a packed model");
    tmpdir_write_text(dir, "p", "hello");
    assert_false(dfx_packed_is(path));
    assert_false(dfx_packed_is(tmpdir_join(dir, "none", path)));
    assert_false(dfx_packed_is(dir->path));
    stfile_write(dir, "p",
                 "{\"__metadata__\":{\"dfx.version\":\"1\",\"dfx.quant\":\"int8\","
                 "\"dfx.source\":\"\",\"dfx.pages\":\"[{}]\"}}",
                 "", 0);
    recorder_clear(&dir->log);
    assert_int_equal(open_file(dir, &packed), DFX_E_FORMAT); /* no tensors at all */
}

/* One page that is wrong in one way. */
static const struct {
    const char *pages, *words;
} HOSTILE[] = {
    {"", "dfx.pages"},
    {"[", "dfx.pages"},
    {"{}", "list of 1 to"},
    {"[]", "list of 1 to"},
    {"[1]", "name"},
    {"[{}]", "name"},
    {"[{'name':'n','component':'vae','begin':4097,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "4096"},
    {"[{'name':'n','component':'vae','begin':8192,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "beyond the end"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':8192,'stored':8192,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "beyond the end"},
    {"[{'name':'n','component':'vae','begin':9223372036854771712,'bytes':128,'stored':128,"
     "'codec':'raw','xxh3':'0000000000000000'}]",
     "begin"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':4611686018427387840,'stored':128,"
     "'codec':'raw','xxh3':'0000000000000000'}]",
     "another length"},
    {"[{'name':'n','component':'vae','begin':-4096,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "begin"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':0,'stored':0,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "bytes"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':100,'stored':100,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "multiple of 64"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':128,'stored':64,'codec':'raw',"
     "'xxh3':'0000000000000000'}]",
     "stored"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':128,'stored':128,'codec':'zip',"
     "'xxh3':'0000000000000000'}]",
     "codec"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'+123'}]",
     "checksum"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'0000000000000000'},{'name':'n','component':'vae','begin':4096,'bytes':128,"
     "'stored':128,'codec':'raw','xxh3':'0000000000000000'}]",
     "overlaps"},
    {"[{'name':'n','component':'vae','begin':0,'bytes':128,'stored':128,'codec':'raw',"
     "'xxh3':'0000000000000000'},{'name':'n','component':'vae','begin':4096,'bytes':128,"
     "'stored':128,'codec':'raw','xxh3':'0000000000000000'}]",
     "same name"},
    {"[{'name':'n','component':'vae','begin':4096,'bytes':128,'stored':100,"
     "'codec':'lz4-planes','xxh3':'0000000000000000','tensors':[]}]",
     "not where they should be"},
};

static void packed_hostile_metadata_is_refused(void **state) {
    tmpdir *dir = *state;
    dfx_packed *packed;
    for (size_t i = 0; i < DFX_COUNT(HOSTILE); i++) {
        recorder_clear(&dir->log);
        write_file(dir, "1", TENSORS, HOSTILE[i].pages);
        if (open_file(dir, &packed) != DFX_E_FORMAT)
            fail_msg("not refused: %s", HOSTILE[i].pages);
        said_error(&dir->log, HOSTILE[i].words);
        assert_int_equal(dfx_mem_held_bytes(), 0);
    }
}

/* The compressed page's bytes are there; what it says of itself is wrong. */
static const struct {
    const char *bytes, *tensors, *words;
} LYING[] = {
    {"128", "[]", NULL},
    {"128", "[{'name':'a','dtype':'U8','shape':[64],'off':64}]", NULL},
    {"25856", "[]", "larger than LZ4"},
    {"128", "[{'name':'a','dtype':'U8','shape':[65],'off':64}]", "does not lie within"},
    {"128", "[{'name':'a','dtype':'U8','shape':[64],'off':32}]", "does not lie within"},
    {"128", "[{'name':'a','dtype':'U8','shape':[64],'off':192}]", "off"},
    {"128", "[{'name':'a','dtype':'U8','shape':[64],'off':-64}]", "off"},
    {"128", "[{'name':'a','dtype':'U8','shape':[4294967296,4294967296],'off':0}]", "within"},
    {"128", "[{'name':'a','dtype':'U8','shape':[-1],'off':0}]", "shape"},
    {"128", "[{'name':'a','dtype':'U9','shape':[1],'off':0}]", "unknown type"},
    {"128", "[{'name':'a','dtype':'U8','shape':[1,1,1,1,1,1,1,1,1],'off':0}]", "dimensions"},
    {"128", "[{'name':'a','dtype':'U8','shape':'x','off':0}]", "shape"},
    {"128",
     "[{'name':'a','dtype':'U8','shape':[1],'off':0},{'name':'a','dtype':'U8','shape':[1],'off':64}"
     "]",
     "twice"},
    {"128", "7", "tensors"},
};

static void packed_hostile_compressed_page_is_refused(void **state) {
    static const char tensors[] =
        "\"pad/0\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
        "\"pages/n\":{\"dtype\":\"U8\",\"shape\":[100],\"data_offsets\":[4096,4196]},"
        "\"pad/1\":{\"dtype\":\"U8\",\"shape\":[3996],\"data_offsets\":[4196,8192]}";
    tmpdir *dir = *state;
    dfx_packed *packed;
    for (size_t i = 0; i < DFX_COUNT(LYING); i++) {
        char pages[1024];
        snprintf(pages, sizeof(pages),
                 "[{'name':'n','component':'vae','begin':4096,'bytes':%s,'stored':100,"
                 "'codec':'lz4-planes','xxh3':'0000000000000000','tensors':%s}]",
                 LYING[i].bytes, LYING[i].tensors);
        recorder_clear(&dir->log);
        write_file(dir, "1", tensors, pages);
        dfx_status status = open_file(dir, &packed);
        if (status != (LYING[i].words ? DFX_E_FORMAT : DFX_OK))
            fail_msg("status %d: %s", status, pages);
        if (LYING[i].words)
            said_error(&dir->log, LYING[i].words);
        dfx_packed_close(packed);
        assert_int_equal(dfx_mem_held_bytes(), 0);
    }
}

/* ---- expanding ---- */

static dfx_packed_page compressed_page(uint64_t bytes, uint64_t stored_bytes) {
    return (dfx_packed_page){
        .name = "n", .bytes = bytes, .stored_bytes = stored_bytes, .codec = DFX_CODEC_LZ4_PLANES};
}

/* 64 bytes 7 9 7 9 ..., by hand from quant/FORMAT.md and LZ4's description of its blocks: 32 sevens, then 32 nines. */
static void expand_block_made_by_hand(void **state) {
    tmpdir *dir = *state;
    static const uint8_t stored[] = {23,   0, 0, 0,     /* stored length */
                                     0x1f, 7, 1, 0, 12, /* a 7; 4 + 15 + 12 bytes from 1 before */
                                     0x1f, 9, 1, 0, 0,  /* a 9; 4 + 15 + 0 */
                                     0xc0, 9, 9, 9, 9,  9, 9, 9, 9, 9, 9, 9, 9}; /* 12 literals */
    uint8_t dst[64], scratch[64];
    dfx_packed_page page = compressed_page(64, sizeof(stored));
    assert_int_equal(dfx_packed_expand(&page, &dir->log.sink, stored, dst, scratch), DFX_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(dst[i], i % 2 ? 9 : 7);
}

/* A stored length equal to the block's: the bytes as they are. */
static void expand_block_that_is_not_compressed(void **state) {
    tmpdir *dir = *state;
    uint8_t stored[4 + 64] = {64}, dst[64], scratch[64];
    for (int i = 0; i < 64; i++)
        stored[4 + i] = (uint8_t)(3 * i);
    dfx_packed_page page = compressed_page(64, sizeof(stored));
    assert_int_equal(dfx_packed_expand(&page, &dir->log.sink, stored, dst, scratch), DFX_OK);
    assert_memory_equal(dst, stored + 4, 64);
}

static void expand_damaged_page_is_refused(void **state) {
    tmpdir *dir = *state;
    uint8_t stored[100] = {0}, dst[128], scratch[128];
    static const struct {
        uint64_t stored_bytes;
        uint8_t length;
    } cases[] = {{3, 0}, {4, 1}, {20, 17}, {100, 95}, {100, 200}, {60, 30}, {14, 10}};
    for (size_t i = 0; i < DFX_COUNT(cases); i++) {
        dfx_packed_page page = compressed_page(128, cases[i].stored_bytes);
        stored[0] = cases[i].length;
        recorder_clear(&dir->log);
        assert_int_equal(dfx_packed_expand(&page, &dir->log.sink, stored, dst, scratch),
                         DFX_E_FORMAT);
        said_error(&dir->log, "page n");
    }
}

/* Under the sanitizers this finds any step outside; buffers are exactly as large as promised. */
static void expand_survives_random_damage(void **state) {
    tmpdir *dir = *state;
    enum { N_PAGE = (1 << 20) + 128, N_TRIES = 300 };
    uint8_t *page = malloc(N_PAGE), *planes = malloc(1 << 20), *dst = malloc(N_PAGE);
    uint8_t *stored = malloc(8 + N_PAGE), *scratch = malloc(N_PAGE);
    uint32_t x = 7;
    for (int i = 0; i < N_PAGE; i++)
        page[i] = (uint8_t)(i % 2 ? 60u + (unsigned)(i >> 4) % 3
                                  : (x = x * 1664525u + 1013904223u) >> 24);
    size_t first = dfx_packed_squeeze(page, 1 << 20, planes, stored + 8);
    size_t second = dfx_packed_squeeze(page + (1 << 20), 128, planes, stored + 8 + first);
    for (int i = 0; i < 4; i++) {
        stored[i] = (uint8_t)(first >> 8 * i);
        stored[4 + i] = (uint8_t)(second >> 8 * i);
    }
    size_t n = 8 + first + second;
    dfx_packed_page p = compressed_page(N_PAGE, n);
    uint8_t *exact = malloc(n);
    memcpy(exact, stored, n);
    assert_int_equal(dfx_packed_expand(&p, &dir->log.sink, exact, dst, scratch), DFX_OK);
    assert_memory_equal(dst, page, N_PAGE);
    for (int try = 0; try < N_TRIES; try++) {
        memcpy(exact, stored, n);
        for (int k = 0; k <= try % 4; k++) {
            x = x * 1664525u + 1013904223u;
            exact[try % 3 ? (x >> 4) % n : x % 8] ^= (uint8_t)(1u << (x >> 28 & 7));
        }
        dfx_status status = dfx_packed_expand(&p, NULL, exact, dst, scratch);
        assert_true(status == DFX_OK || status == DFX_E_FORMAT);
    }
    free(exact);
    free(scratch);
    free(stored);
    free(dst);
    free(planes);
    free(page);
}

/* ---- pages of programs ---- */

static void check_page_of_another_order_is_refused(void **state) {
    pack_rig *r = *state;
    dfx_builder b;
    dfx_program program;
    assert_int_equal(prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_STORED}, "out"), DFX_OK);
    dfx_packed *packed = prig_open(r, "out");
    const dfx_tensors *set = dfx_packed_tensors(packed, "transformer");
    dfx_build_env env = {.tensors = set, .act_dtype = DFX_DTYPE_F32, .sink = r->sink};
    dfx_builder_init(&b, "step", "transformer", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", 1, PRIG_COLS, DFX_DTYPE_F32);
    dfx_builder_page(&b, "transformer_blocks.%d", 0);
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "norm1.linear", .n = 8, .no_bias = true});
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "attn.to_q", .n = PRIG_ROWS});
    dfx_builder_page(&b, "proj_out");
    dfx_builder_scope(&b, "%s", "");
    dfx_linear(&b, &(dfx_linear_spec){.x = x, .name = "proj_out", .n = 3, .no_bias = true});
    dfx_builder_page(&b, "transformer_blocks.%d", 1);
    assert_int_equal(dfx_builder_finish(&b, &program), DFX_OK);
    static const char *const words[] = {"tensor transformer_blocks.0.norm1.linear.weight",
                                        "proj_out has 832 bytes, wanted 768",
                                        "no page step/transformer_blocks.1"};
    for (uint32_t i = 0; i < 3; i++) {
        recorder_clear(&r->dir->log);
        assert_int_equal(dfx_packed_check_page(packed, &program, i, r->sink), DFX_E_FORMAT);
        said_error(&r->dir->log, words[i]);
    }
    dfx_program_fini(&program);
    dfx_packed_close(packed);
}

static void packed_every_failing_allocation_is_survived(void **state) {
    pack_rig *r = *state;
    char path[TMPDIR_PATH];
    dfx_status status = DFX_E_NOFIT;
    assert_int_equal(
        prig_pack(r, &(dfx_pack_options){.quant = DFX_Q_INT8, .compress = true}, "out"), DFX_OK);
    size_t held = dfx_mem_held_bytes();
    tmpdir_join(r->dir, "out", path);
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_packed *packed = NULL;
        assert_true(nth < 1000);
        dfx_mem_fail_nth(nth);
        status = dfx_packed_open(path, r->sink, &packed);
        dfx_mem_fail_nth(0);
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        dfx_packed_close(packed);
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
}

#define DIR_TEST(name) cmocka_unit_test_setup_teardown(name, tmpdir_setup, tmpdir_teardown)
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, prig_setup, prig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh3_of_nothing_is_the_published_value),
        DIR_TEST(packed_made_by_hand_opens),
        DIR_TEST(packed_other_version_is_refused),
        DIR_TEST(packed_is_false_for_other_files),
        DIR_TEST(packed_hostile_metadata_is_refused),
        DIR_TEST(packed_hostile_compressed_page_is_refused),
        DIR_TEST(expand_block_made_by_hand),
        DIR_TEST(expand_block_that_is_not_compressed),
        DIR_TEST(expand_damaged_page_is_refused),
        DIR_TEST(expand_survives_random_damage),
        RIG_TEST(check_page_of_another_order_is_refused),
        RIG_TEST(packed_every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
