/* What kind of checkpoint a set of tensors is, told by names, never by the name of the file. */
#ifndef DFX_TOOLS_INSPECT_KIND_H
#define DFX_TOOLS_INSPECT_KIND_H

#include "core/safetensors.h"

/* "FLUX transformer (diffusers names, no guidance embedding: schnell)", "VAE (...), CLIP text encoder", "LoRA (...)" or
 * "unknown" into text. */
enum { DFX_KIND_TEXT_BYTES = 512 };
void dfx_kind_text(const dfx_tensors *set, char text[DFX_KIND_TEXT_BYTES]);

/* Is it an adapter to a model (LoRA, LoKr, LoHa) rather than one? */
bool dfx_kind_is_adapter(const dfx_tensors *set);

#endif
