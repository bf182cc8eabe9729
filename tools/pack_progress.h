/* Progress of commands that move bytes: pack, random-model. On a terminal a line that is rewritten; elsewhere a line every
 * ten seconds. */
#ifndef DFX_TOOLS_PACK_PROGRESS_H
#define DFX_TOOLS_PACK_PROGRESS_H

#include <stdint.h>

#include "tools/console.h"

typedef struct dfx_pack_progress {
    dfx_console *console; /* borrowed */
    const char *verb;     /* string literal: "pack" */
    double begun_s, next_s;
} dfx_pack_progress;

void dfx_pack_progress_begin(dfx_pack_progress *progress, dfx_console *console, const char *verb);

/* As options->progress of offload/packed.h, with a dfx_pack_progress as user. */
void dfx_pack_progress_show(void *progress, uint64_t done_bytes, uint64_t all_bytes);

/* "pack  3.2 GiB of 31.4 GiB  1.1 GiB/s  25.7 s left" after `seconds`. */
enum { DFX_PACK_PROGRESS_BYTES = 160 };
char *dfx_pack_progress_text(const char *verb, uint64_t done_bytes, uint64_t all_bytes,
                             double seconds, char text[DFX_PACK_PROGRESS_BYTES]);

#endif
