/* PSNR: how near a picture is to another one. */
#ifndef DFX_TOOLS_PSNR_H
#define DFX_TOOLS_PSNR_H

#include "models/dfx.h"

/* 10 log10(255^2 / mean squared difference) in dB, over all values of both pictures, which have one size; infinite where they
 * are the same. */
double dfx_psnr(const uint8_t *rgb, const uint8_t *other, int width, int height);

enum { DFX_PSNR_TEXT_BYTES = 32 };
/* "38.4 dB", "no difference". */
char *dfx_psnr_text(double psnr, char text[DFX_PSNR_TEXT_BYTES]);

#endif
