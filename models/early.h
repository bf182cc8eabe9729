/* What is read of a model before it has a device and a plan. Private to models/. */
#ifndef DFX_MODELS_EARLY_H
#define DFX_MODELS_EARLY_H

#include "models/checkpoint.h"
#include "models/model.h"

/* Opens the packed file, when that is what was given, and begins to read it; before the device, which takes a third of a second.
 * Anything else is left alone, and what is wrong with a packed file is not told here: its turn comes. Errors: DFX_E_NOFIT. */
dfx_status dfx_early_open(dfx_model *model, const dfx_model_paths *paths);

/* The RAM tier of the packed file that is open by now, and early reading, unless early_open has begun it. Errors: DFX_E_NOFIT. */
dfx_status dfx_early_begin(dfx_model *model);

/* What pages that came early may take beside a plan until they are copied. */
uint64_t dfx_early_spare_bytes(const dfx_model *model, uint64_t ram_budget_bytes,
                               uint64_t host_bytes);

#endif
