/* DoRA: a LoRA that also says how long each row of the changed weight is.
 *
 *   V = W + scale * up down,   W' = d V,   d = magnitude / |V|, row by row    (PEFT; Liu et al., "DoRA", 2024)
 *
 * With strength s a layer has W + s (W' - W) = (1 + s (d - 1)) W + s d scale * up down: its rows are rescaled, which the scales of a
 * quantized weight can do, and up is multiplied by d. d depends on W, so it is worked out from the weight as it is stored. */
#ifndef DFX_MODELS_LORA_DORA_H
#define DFX_MODELS_LORA_DORA_H

#include "models/lora.h"

/* d of rows [n] of W [n, k], the factors of a part without its scale, and its magnitude [n]; row: room for k values. A row of
 * zeros has d = 1. */
void dfx_dora_rescale(const float *w, const float *down, const float *up, const float *magnitude,
                      float scale, int64_t n, int64_t k, int64_t rank, float *row, float *d);

/* The same of a part whose magnitude is one of rows: W is `weight` codes of `set` with `scales` [n], read in pieces.
 * Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_dora_of_part(const dfx_lora *lora, const dfx_lora_part *part, const dfx_tensors *set,
                            const dfx_tensor *weight, const float *scales, const float *down,
                            const float *up, const dfx_sink *sink, float *d);

#endif
