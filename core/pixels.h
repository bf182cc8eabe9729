/* Pixels: pictures that come in from files, and the same in another size. */
#ifndef DFX_CORE_PIXELS_H
#define DFX_CORE_PIXELS_H

#include "core/mem.h"

/* Values [height][width][n_channels]: 3 are RGB, 1 is grey. */
typedef struct dfx_pixels {
    uint8_t *values; /* owned */
    uint32_t width, height;
    int n_channels;
} dfx_pixels;

/* A PNG or JPEG file, by its content, as RGB. Alpha lies over white, 16 bits become 8, a camera's orientation is applied.
 * Errors: DFX_E_IO; DFX_E_FORMAT: another kind of file, cut, damaged, too large; DFX_E_NOFIT. */
dfx_status dfx_pixels_read(const char *path, const dfx_sink *sink, dfx_pixels *out);

/* RGB to grey, in place: ITU-R BT.601, (19595 R + 38470 G + 7471 B) / 2^16, rounded, as common picture libraries do. */
void dfx_pixels_to_grey(dfx_pixels *pixels);

/* width x height of the middle of a picture: scaled until both sides are covered, what is over is cut off at both ends alike (an
 * odd pixel at the far one). The filter is Lanczos of three lobes, as wide as an output pixel where that is more than one of the
 * input; the same pixels on every machine. A size that only needs cutting leaves values as they are. Errors: DFX_E_NOFIT. */
dfx_status dfx_pixels_fit(const dfx_pixels *pixels, uint32_t width, uint32_t height,
                          const dfx_sink *sink, dfx_pixels *out);

void dfx_pixels_free(dfx_pixels *pixels); /* zeroed is fine */

#endif
