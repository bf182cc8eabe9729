/* The bundled model's folder, for when --model is not given. */
#ifndef DFX_TOOLS_FIND_MODEL_H
#define DFX_TOOLS_FIND_MODEL_H

#include "tools/console.h"

enum { DFX_MODEL_PATH_BYTES = 4096 };

/* $DFX_MODEL when it is set, whatever it names; else the first folder with a model_index.json of: models/scenes beside
 * the program, scenes in the data folder of the installation, models/scenes here.
 * Errors: DFX_E_IO: one sentence that lists where it looked. */
dfx_status dfx_bundled_find(dfx_console *console, char path[DFX_MODEL_PATH_BYTES]);

#endif
