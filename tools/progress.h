/* What a progress line says. Pure text; console.c decides when and where. */
#ifndef DFX_TOOLS_PROGRESS_H
#define DFX_TOOLS_PROGRESS_H

#include "models/dfx.h"

enum { DFX_PROGRESS_BYTES = 256 };

/* "2/4  denoise 5/16  0.12 s/step  1.3 s left" into text, cut to `max_columns` (at most DFX_PROGRESS_BYTES - 1) columns.
 * The picture's number is shown when there are several, "1-4/8" when it is at four of them together; speed and rest when a step
 * is done; when all are done, the seconds of the stage instead of the rest. ASCII only, so a byte is a column. Returns the
 * length. */
int dfx_progress_text(const dfx_progress *progress, int max_columns, char text[DFX_PROGRESS_BYTES]);

/* "0.82 s", "12.3 s", "4 min 05 s", "1 h 02 min" into text; returns text. */
enum { DFX_PROGRESS_SECONDS_BYTES = 32 };
char *dfx_progress_seconds(double seconds, char text[DFX_PROGRESS_SECONDS_BYTES]);

#endif
