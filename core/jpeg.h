/* JPEG pictures to 8-bit RGB (libjpeg-turbo underneath). */
#ifndef DFX_CORE_JPEG_H
#define DFX_CORE_JPEG_H

#include "core/mem.h"

bool dfx_jpeg_is(const uint8_t *data, size_t bytes); /* by its first bytes */

/* Decode a grey or colour JPEG, baseline or progressive. *rgb owned by the caller (dfx_free), rows as the file has them;
 * *orientation: which way up they are, as EXIF says (core/exif.h), 1 when it does not. `name` is for messages.
 * Errors: DFX_E_FORMAT: cut, damaged, CMYK, 2^28 pixels or more; DFX_E_NOFIT. */
dfx_status dfx_jpeg_decode(const dfx_sink *sink, const char *name, const uint8_t *data,
                           size_t bytes, uint8_t **rgb, uint32_t *width, uint32_t *height,
                           int *orientation);

#endif
