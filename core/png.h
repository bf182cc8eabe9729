/* PNG pictures: 8-bit RGB out with text chunks (libpng underneath), and in for tests and image-to-image. */
#ifndef DFX_CORE_PNG_H
#define DFX_CORE_PNG_H

#include "core/mem.h"

typedef struct dfx_png_text {
    const char *key;  /* 1 to 79 Latin-1 bytes, e.g. "parameters" */
    const char *text; /* UTF-8; written as tEXt when it is plain ASCII, else iTXt */
} dfx_png_text;

/* Encode rgb[height][width][3] into memory. *out is owned by the caller (dfx_free). */
dfx_status dfx_png_encode(const dfx_sink *sink, const uint8_t *rgb, uint32_t width, uint32_t height,
                          const dfx_png_text *texts, size_t n_texts, uint8_t **out,
                          size_t *out_bytes);

/* Decode any PNG to 8-bit RGB (alpha is dropped over white). *rgb owned by the caller. `name` is for messages.
 * Errors: DFX_E_FORMAT; more than 2^28 pixels is refused. */
dfx_status dfx_png_decode(const dfx_sink *sink, const char *name, const uint8_t *data, size_t bytes,
                          uint8_t **rgb, uint32_t *width, uint32_t *height);

#endif
