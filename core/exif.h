/* EXIF: which way up a camera's picture is. Source: CIPA DC-008 (Exif 2.3), TIFF 6.0.
 *
 * Orientation says where the first row and the first column of the stored picture belong: 1 top and left, 2 top and right
 * (mirrored), 3 bottom and right (upside down), 4 bottom and left, 5 left and top, 6 right and top (the camera was turned),
 * 7 right and bottom, 8 left and bottom. */
#ifndef DFX_CORE_EXIF_H
#define DFX_CORE_EXIF_H

#include "core/mem.h"

/* `data`: of a JPEG's APP1 segment. */
bool dfx_exif_is(const uint8_t *data, size_t bytes);

/* 1 to 8; 1 too when it does not say, or is damaged. */
int dfx_exif_orientation(const uint8_t *data, size_t bytes);

/* Turn and mirror rgb[*height][*width][3] so that it is upright, in new memory; *rgb is freed and replaced. Errors: DFX_E_NOFIT,
 * *rgb is then as it was. */
dfx_status dfx_exif_upright(int orientation, const dfx_sink *sink, uint8_t **rgb, uint32_t *width,
                            uint32_t *height);

#endif
