/* What is read of a model before it has a device and a plan. Private to models/. */
#ifndef DFX_MODELS_EARLY_H
#define DFX_MODELS_EARLY_H

#include "models/checkpoint.h"
#include "models/model.h"

/* Opens the packed file that was given, or that was made before of what was given (`from`, in which without_fp8 says nothing),
 * and begins to read it; before the device, which takes a third of a second. Where there is none, nothing is done, and what is
 * wrong with one is not told here: its turn comes. Errors: DFX_E_NOFIT. */
dfx_status dfx_early_open(dfx_model *model, const dfx_checkpoint_options *from);
/* It is not the one for this device. */
void dfx_early_drop(dfx_model *model);

/* The RAM tier of the packed file that is open by now, and early reading, unless early_open has begun it. Errors: DFX_E_NOFIT. */
dfx_status dfx_early_begin(dfx_model *model);

/* What pages that came early may take beside a plan until they are copied. */
uint64_t dfx_early_spare_bytes(const dfx_model *model, uint64_t ram_budget_bytes,
                               uint64_t host_bytes);

#endif
