/* What is said about a finished picture: for a reader, and for a program. */
#ifndef DFX_TOOLS_REPORT_H
#define DFX_TOOLS_REPORT_H

#include "tools/console.h"

/* "dfx-7.png  256x256  16 steps  2.1 s", "16 steps, 5 reused" where some were, and when the console is verbose the seconds of each stage and peak memory. */
void dfx_report_picture(dfx_console *console, const char *name, const dfx_image *image);

/* One line of JSON on standard output, without flushing. `parameters` in it is image->json. psnr: against the picture without
 * reuse, infinite where they are the same; NULL: not known. */
void dfx_report_json(const char *name, const dfx_model_info *info, const dfx_image *image,
                     const double *psnr);

/* "12.0 GiB", "64.5 MiB", "812 bytes" into text; returns text. */
enum { DFX_REPORT_TEXT_BYTES = 32 };
char *dfx_report_bytes(uint64_t n_bytes, char text[DFX_REPORT_TEXT_BYTES]);

/* "11.9 G", "843" into text; returns text. */
char *dfx_report_count(uint64_t n, char text[DFX_REPORT_TEXT_BYTES]);

#endif
