#include "core/exif.h"

#include <string.h>

enum {
    TIFF_HEADER_BYTES = 8,
    ENTRY_BYTES = 12,
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
    TRANSPOSED_FROM = 5, /* rows of the file are columns of the picture */
};

static const char SIGNATURE[6] = "Exif\0";

/* A TIFF file in memory; reads beyond its end are zeros. */
typedef struct tiff {
    const uint8_t *data;
    size_t bytes;
    bool big_endian;
} tiff;

static uint32_t number(const tiff *t, size_t off, size_t n_bytes) {
    uint32_t value = 0;
    if (off > t->bytes || n_bytes > t->bytes - off)
        return 0;
    for (size_t i = 0; i < n_bytes; i++)
        value = value << 8 | t->data[off + (t->big_endian ? i : n_bytes - 1 - i)];
    return value;
}

bool dfx_exif_is(const uint8_t *data, size_t bytes) {
    return bytes >= sizeof(SIGNATURE) && memcmp(data, SIGNATURE, sizeof(SIGNATURE)) == 0;
}

int dfx_exif_orientation(const uint8_t *data, size_t bytes) {
    if (!dfx_exif_is(data, bytes) || bytes < sizeof(SIGNATURE) + TIFF_HEADER_BYTES)
        return 1;
    tiff t = {.data = data + sizeof(SIGNATURE), .bytes = bytes - sizeof(SIGNATURE)};
    t.big_endian = t.data[0] == 'M';
    size_t directory = number(&t, 4, 4);
    uint32_t n_entries = number(&t, directory, 2);
    for (uint32_t i = 0; i < n_entries; i++) {
        size_t entry = directory + 2 + (size_t)i * ENTRY_BYTES;
        if (number(&t, entry, 2) != TAG_ORIENTATION)
            continue;
        uint32_t value = number(&t, entry + 8, 2);
        return number(&t, entry + 2, 2) == TYPE_SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

dfx_status dfx_exif_upright(int orientation, const dfx_sink *sink, uint8_t **rgb, uint32_t *width,
                            uint32_t *height) {
    static const bool from_right[] = {[2] = true, [3] = true, [7] = true, [8] = true},
                      from_below[] = {[3] = true, [4] = true, [6] = true, [7] = true, [8] = false};
    bool transposed = orientation >= TRANSPOSED_FROM;
    size_t w = *width, h = *height, to_w = transposed ? h : w, to_h = transposed ? w : h;
    uint8_t *upright;
    if (orientation == 1)
        return DFX_OK;
    DFX_TRY(dfx_alloc_array(sink, w * h, 3, "upright picture", (void **)&upright));
    for (size_t y = 0; y < to_h; y++)
        for (size_t x = 0; x < to_w; x++) {
            size_t from_x = transposed ? y : x, from_y = transposed ? x : y;
            from_x = from_right[orientation] ? w - 1 - from_x : from_x;
            from_y = from_below[orientation] ? h - 1 - from_y : from_y;
            memcpy(upright + 3 * (y * to_w + x), *rgb + 3 * (from_y * w + from_x), 3);
        }
    dfx_free(*rgb);
    *rgb = upright;
    *width = (uint32_t)to_w;
    *height = (uint32_t)to_h;
    return DFX_OK;
}
