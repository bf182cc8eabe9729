/* Many requests in one process: every line of a batch file is checked before the first picture, then each is made in turn. */
#ifndef DFX_TOOLS_BATCH_H
#define DFX_TOOLS_BATCH_H

#include "tools/batch_file.h"
#include "tools/maker.h"

/* `defaults`: what a line does not say; read, not settled. `open`: the model; room is made for the LoRAs that lines name.
 * Faults that are found before the first picture are told, all of them, and nothing is made. Later a line that fails is told, and
 * the others are made; the first such status is returned, and what failed is listed at the end. DFX_E_CANCELLED ends it. */
dfx_status dfx_batch_run(dfx_console *console, const char *path,
                         const dfx_picture_options *defaults, const dfx_open_options *open,
                         bool json);

#endif
