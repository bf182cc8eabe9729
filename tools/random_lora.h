/* A LoRA that a seed makes, on every linear layer of an architecture's transformer: for measuring what one costs. */
#ifndef DFX_TOOLS_RANDOM_LORA_H
#define DFX_TOOLS_RANDOM_LORA_H

#include "models/architecture.h"

/* A safetensors file in PEFT's names, BF16: lora_A of values of about 1 / sqrt(inputs), lora_B of about 1 / 64, so that at strength
 * 1 a layer's output moves by some percent. rank: [1, 512]. The same seed gives the same file.
 * Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_random_lora_write(const dfx_architecture *arch, int rank, uint64_t seed,
                                 const char *path, const dfx_sink *sink, uint64_t *out_bytes);

#endif
