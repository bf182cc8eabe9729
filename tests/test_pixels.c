/* Pictures from files, against Pillow (tests/golden/make_pictures.py): JPEG of every kind that we read, cut and damaged ones,
 * orientation, grey, other sizes. PNG has tests of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/exif.h"
#include "core/file.h"
#include "core/jpeg.h"
#include "core/pixels.h"
#include "core/png.h"
#include "tests/cpu_rig.h"

enum { WIDTH = 23, HEIGHT = 17 };

static void same_pixels(rig *r, const dfx_pixels *got, const char *golden, int tolerance) {
    size_t n = (size_t)got->width * got->height * (size_t)got->n_channels;
    const float *want = rig_golden(r, "pictures", golden, n);
    for (size_t i = 0; i < n; i++)
        if (abs(got->values[i] - (int)want[i]) > tolerance)
            fail_msg("%s: value %zu is %d, wanted %d", golden, i, got->values[i], (int)want[i]);
}

static char *jpeg_path(const char *name, char path[64]) {
    snprintf(path, 64, "tests/golden/pictures/%s.jpg", name);
    return path;
}

static uint8_t *jpeg_bytes(rig *r, const char *name, size_t *bytes) {
    char path[64], *data;
    assert_int_equal(dfx_file_slurp(jpeg_path(name, path), &r->log.sink, 1 << 20, &data, bytes),
                     DFX_OK);
    uint8_t *copy = rig_alloc(r, *bytes);
    memcpy(copy, data, *bytes);
    dfx_free(data);
    return copy;
}

static dfx_status decode(rig *r, const uint8_t *data, size_t bytes, dfx_pixels *out) {
    int orientation = 0;
    *out = (dfx_pixels){.n_channels = 3};
    dfx_status status = dfx_jpeg_decode(&r->log.sink, "a.jpg", data, bytes, &out->values,
                                        &out->width, &out->height, &orientation);
    assert_true(status != DFX_OK || (orientation >= 1 && orientation <= 8));
    return status;
}

static void jpeg_of_each_kind_has_the_pixels_of_pillow(void **state) {
    static const char *const names[] = {"colour", "full", "progressive", "grey"};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        char path[64];
        dfx_pixels p;
        assert_int_equal(dfx_pixels_read(jpeg_path(names[i], path), &r->log.sink, &p), DFX_OK);
        assert_true(p.width == WIDTH && p.height == HEIGHT && p.n_channels == 3);
        same_pixels(r, &p, names[i], 1);
        dfx_pixels_free(&p);
    }
    assert_int_equal(r->log.n_messages, 0);
}

/* The value of the tag, wherever it is in the file. */
static void set_orientation(uint8_t *data, size_t bytes, bool big_endian, int value) {
    static const uint8_t little[] = {0x12, 1, 3, 0, 1, 0, 0, 0},
                         big[] = {1, 0x12, 0, 3, 0, 0, 0, 1};
    uint8_t *tag = memmem(data, bytes, big_endian ? big : little, sizeof(little));
    assert_non_null(tag);
    tag[sizeof(little) + big_endian] = (uint8_t)value;
}

static void jpeg_is_turned_as_its_exif_says(void **state) {
    static const char *const names[] = {"exif_ii", "exif_mm"};
    rig *r = *state;
    for (int value = 1; value <= 8; value++)
        for (int order = 0; order < 2; order++) {
            size_t bytes;
            char golden[32];
            dfx_pixels p = {.n_channels = 3};
            int orientation;
            uint8_t *data = jpeg_bytes(r, names[order], &bytes);
            set_orientation(data, bytes, order == 1, value);
            assert_int_equal(dfx_jpeg_decode(&r->log.sink, "a.jpg", data, bytes, &p.values,
                                             &p.width, &p.height, &orientation),
                             DFX_OK);
            assert_int_equal(orientation, value);
            assert_int_equal(
                dfx_exif_upright(orientation, &r->log.sink, &p.values, &p.width, &p.height),
                DFX_OK);
            assert_int_equal(p.width, value < 5 ? WIDTH : HEIGHT);
            snprintf(golden, sizeof(golden), "upright%d", value);
            same_pixels(r, &p, golden, 1);
            dfx_pixels_free(&p);
        }
}

/* Values that are none, and directories that lead out of the segment. */
static void exif_that_is_damaged_leaves_the_picture_as_it_lies(void **state) {
    rig *r = *state;
    size_t bytes;
    uint8_t *data = jpeg_bytes(r, "exif_ii", &bytes);
    uint8_t *exif = memmem(data, bytes, "Exif\0", 6);
    static const uint8_t values[] = {0, 9, 255};
    for (size_t i = 0; i < DFX_COUNT(values); i++) {
        set_orientation(data, bytes, false, values[i]);
        assert_int_equal(dfx_exif_orientation(exif, 60), 1);
    }
    set_orientation(data, bytes, false, 6);
    assert_int_equal(dfx_exif_orientation(exif, 60), 6);
    for (size_t n = 0; n < 38; n++) /* the value's last byte is the 38th */
        assert_int_equal(dfx_exif_orientation(exif, n), 1);
    assert_int_equal(dfx_exif_orientation(exif, 38), 6);
    memset(exif + 10, 0xff, 4); /* where the directory is */
    assert_int_equal(dfx_exif_orientation(exif, 60), 1);
}

static void jpeg_cut_anywhere_is_refused(void **state) {
    static const char *const names[] = {"colour", "progressive"};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        size_t bytes, held = dfx_mem_held_bytes();
        uint8_t *data = jpeg_bytes(r, names[i], &bytes);
        for (size_t n = 0; n < bytes - 2; n++) { /* without the end mark nothing is missing */
            dfx_pixels p;
            uint8_t *cut = malloc(n + 1); /* of this size, so that reading on shows */
            assert_non_null(cut);
            memcpy(cut, data, n);
            recorder_clear(&r->log);
            if (decode(r, cut, n, &p) == DFX_OK)
                fail_msg("%s: the first %zu of %zu bytes are taken for a picture", names[i], n,
                         bytes);
            said_error(&r->log, "a.jpg: libjpeg says");
            free(cut);
        }
        assert_int_equal(dfx_mem_held_bytes(), held);
    }
}

/* Whatever a changed byte makes of it: a picture or one sentence, and nothing stays allocated. */
static void jpeg_with_a_changed_byte_ends_well(void **state) {
    rig *r = *state;
    size_t bytes, held = dfx_mem_held_bytes(), n_refused = 0;
    uint8_t *data = jpeg_bytes(r, "exif_mm", &bytes);
    for (size_t i = 0; i < bytes; i++)
        for (int change = 1; change < 256; change *= 5) {
            dfx_pixels p;
            recorder_clear(&r->log);
            data[i] ^= (uint8_t)change;
            dfx_status status = decode(r, data, bytes, &p);
            data[i] ^= (uint8_t)change;
            if (status != DFX_OK)
                said_error(&r->log, "a.jpg: ");
            n_refused += status != DFX_OK;
            if (status == DFX_OK)
                dfx_pixels_free(&p);
        }
    assert_true(n_refused > bytes / 2);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void jpeg_of_cmyk_is_refused_with_what_to_do(void **state) {
    rig *r = *state;
    char path[64];
    dfx_pixels p;
    assert_int_equal(dfx_pixels_read(jpeg_path("cmyk", path), &r->log.sink, &p), DFX_E_FORMAT);
    said_error(&r->log, "save it as RGB");
}

/* 65500 x 65500 is libjpeg's limit; what it takes is ours, and what so short a file can hold. */
static void jpeg_of_huge_size_is_refused_before_allocation(void **state) {
    static const struct {
        uint8_t sides[4];
        const char *words;
    } rows[] = {{{0xff, 0, 0xff, 0}, "65280x65280 has more than 2^28 pixels"},
                {{0x20, 0, 0x20, 0}, "880 bytes cannot hold the 8192x8192 pixels"}};
    rig *r = *state;
    size_t bytes;
    dfx_pixels p;
    uint8_t *data = jpeg_bytes(r, "colour", &bytes);
    static const uint8_t size[] = {0, HEIGHT, 0, WIDTH, 3};
    uint8_t *at = memmem(data, bytes, size, sizeof(size));
    assert_non_null(at);
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        memcpy(at, rows[i].sides, 4);
        recorder_clear(&r->log);
        dfx_mem_fail_nth(1);
        assert_int_equal(decode(r, data, bytes, &p), DFX_E_FORMAT);
        dfx_mem_fail_nth(0);
        said_error(&r->log, rows[i].words);
    }
}

static void jpeg_out_of_memory_fails_cleanly(void **state) {
    rig *r = *state;
    size_t bytes, held = dfx_mem_held_bytes();
    dfx_pixels p;
    uint8_t *data = jpeg_bytes(r, "colour", &bytes);
    dfx_mem_fail_nth(1);
    assert_int_equal(decode(r, data, bytes, &p), DFX_E_NOFIT);
    said_error(&r->log, "jpeg");
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void file_of_another_kind_is_refused(void **state) {
    rig *r = *state;
    dfx_pixels p;
    assert_int_equal(dfx_pixels_read("tests/golden/weights.json", &r->log.sink, &p), DFX_E_FORMAT);
    said_error(&r->log, "PNG or JPEG");
    recorder_clear(&r->log);
    assert_int_equal(dfx_pixels_read("tests/golden/none.png", &r->log.sink, &p), DFX_E_IO);
}

static dfx_pixels source(rig *r, bool grey) {
    size_t n = WIDTH * HEIGHT * (grey ? 1 : 3);
    const float *want = rig_golden(r, "pictures", grey ? "source_grey" : "source", n);
    dfx_pixels p = {
        .values = rig_alloc(r, n), .width = WIDTH, .height = HEIGHT, .n_channels = grey ? 1 : 3};
    for (size_t i = 0; i < n; i++)
        p.values[i] = (uint8_t)want[i];
    return p;
}

static void grey_of_colours_is_that_of_pillow(void **state) {
    rig *r = *state;
    dfx_pixels p = source(r, false);
    dfx_pixels_to_grey(&p);
    assert_int_equal(p.n_channels, 1);
    same_pixels(r, &p, "source_grey", 0);
}

/* Halves may be rounded either way. */
static void other_sizes_are_those_of_pillow(void **state) {
    static const uint32_t sizes[][2] = {{16, 16}, {48, 32}, {7, 30}, {23, 11},
                                        {20, 17}, {64, 48}, {1, 1},  {230, 16}};
    rig *r = *state;
    for (size_t i = 0; i < DFX_COUNT(sizes); i++)
        for (int grey = 0; grey < 2; grey++) {
            dfx_pixels from = source(r, grey), p;
            char golden[32];
            assert_int_equal(dfx_pixels_fit(&from, sizes[i][0], sizes[i][1], &r->log.sink, &p),
                             DFX_OK);
            assert_true(p.width == sizes[i][0] && p.height == sizes[i][1]);
            snprintf(golden, sizeof(golden), "%s_%ux%u", grey ? "grey" : "fit", sizes[i][0],
                     sizes[i][1]);
            same_pixels(r, &p, golden, 1);
            dfx_pixels_free(&p);
        }
}

static void size_that_only_cuts_keeps_values(void **state) {
    rig *r = *state;
    dfx_pixels from = source(r, false), p;
    assert_int_equal(dfx_pixels_fit(&from, WIDTH, HEIGHT, &r->log.sink, &p), DFX_OK);
    assert_memory_equal(p.values, from.values, WIDTH * HEIGHT * 3);
    dfx_pixels_free(&p);
    assert_int_equal(dfx_pixels_fit(&from, 20, HEIGHT, &r->log.sink, &p), DFX_OK);
    for (size_t y = 0; y < HEIGHT; y++) /* three columns less: one at the left, two at the right */
        assert_memory_equal(p.values + y * 20 * 3, from.values + (y * WIDTH + 1) * 3, 20 * 3);
    dfx_pixels_free(&p);
}

static void other_size_out_of_memory_anywhere_fails_cleanly(void **state) {
    rig *r = *state;
    dfx_pixels from = source(r, false), p;
    size_t held = dfx_mem_held_bytes();
    dfx_status status = DFX_E_NOFIT;
    int n_failed = 0;
    for (uint64_t nth = 1; status != DFX_OK; nth++) {
        dfx_mem_fail_nth(nth);
        status = dfx_pixels_fit(&from, 16, 16, &r->log.sink, &p);
        dfx_mem_fail_nth(0);
        n_failed += status != DFX_OK;
        assert_true(status == DFX_OK || (status == DFX_E_NOFIT && dfx_mem_held_bytes() == held));
    }
    assert_in_range(n_failed, 3, 20);
    dfx_pixels_free(&p);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(jpeg_of_each_kind_has_the_pixels_of_pillow),
        WITH_RIG(jpeg_is_turned_as_its_exif_says),
        WITH_RIG(exif_that_is_damaged_leaves_the_picture_as_it_lies),
        WITH_RIG(jpeg_cut_anywhere_is_refused),
        WITH_RIG(jpeg_with_a_changed_byte_ends_well),
        WITH_RIG(jpeg_of_cmyk_is_refused_with_what_to_do),
        WITH_RIG(jpeg_of_huge_size_is_refused_before_allocation),
        WITH_RIG(jpeg_out_of_memory_fails_cleanly),
        WITH_RIG(file_of_another_kind_is_refused),
        WITH_RIG(grey_of_colours_is_that_of_pillow),
        WITH_RIG(other_sizes_are_those_of_pillow),
        WITH_RIG(size_that_only_cuts_keeps_values),
        WITH_RIG(other_size_out_of_memory_anywhere_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
