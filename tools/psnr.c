#include "tools/psnr.h"

#include <math.h>
#include <stdio.h>

double dfx_psnr(const uint8_t *rgb, const uint8_t *other, int width, int height) {
    size_t n = (size_t)width * (size_t)height * 3;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = (double)rgb[i] - (double)other[i];
        sum += diff * diff;
    }
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : INFINITY;
}

char *dfx_psnr_text(double psnr, char text[DFX_PSNR_TEXT_BYTES]) {
    if (isinf(psnr))
        snprintf(text, DFX_PSNR_TEXT_BYTES, "no difference");
    else
        snprintf(text, DFX_PSNR_TEXT_BYTES, "%.1f dB", psnr);
    return text;
}
