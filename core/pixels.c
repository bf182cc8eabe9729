#include "core/pixels.h"

#include <string.h>

#include "core/exif.h"
#include "core/file.h"
#include "core/jpeg.h"
#include "core/png.h"

/* Of a file; a picture of 2^28 pixels in 16-bit RGBA that does not compress has as many. */
static const size_t FILE_BYTES_MAX = (size_t)1 << 31;

static dfx_status decode(const char *path, const dfx_sink *sink, const uint8_t *data, size_t bytes,
                         dfx_pixels *out) {
    static const uint8_t png[4] = {0x89, 'P', 'N', 'G'};
    int orientation = 1;
    if (bytes >= sizeof(png) && memcmp(data, png, sizeof(png)) == 0)
        return dfx_png_decode(sink, path, data, bytes, &out->values, &out->width, &out->height);
    if (!dfx_jpeg_is(data, bytes))
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: wanted a picture, PNG or JPEG, found another kind of file; convert it",
                        path);
    DFX_TRY(dfx_jpeg_decode(sink, path, data, bytes, &out->values, &out->width, &out->height,
                            &orientation));
    return dfx_exif_upright(orientation, sink, &out->values, &out->width, &out->height);
}

dfx_status dfx_pixels_read(const char *path, const dfx_sink *sink, dfx_pixels *out) {
    dfx_pixels pixels = {.n_channels = 3};
    char *data;
    size_t bytes;
    DFX_TRY(dfx_file_slurp(path, sink, FILE_BYTES_MAX, &data, &bytes));
    dfx_status status = decode(path, sink, (const uint8_t *)data, bytes, &pixels);
    dfx_free(data);
    if (status == DFX_OK)
        *out = pixels;
    else
        dfx_pixels_free(&pixels);
    return status;
}

void dfx_pixels_to_grey(dfx_pixels *p) {
    size_t n = (size_t)p->width * p->height;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *rgb = p->values + 3 * i;
        p->values[i] =
            (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
    }
    p->n_channels = 1;
}

void dfx_pixels_free(dfx_pixels *pixels) {
    dfx_free(pixels->values);
    *pixels = (dfx_pixels){0};
}
