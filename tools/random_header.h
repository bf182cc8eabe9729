/* Headers of weight files that are written tensor after tensor, in the order given: their offsets follow from their sizes. */
#ifndef DFX_TOOLS_RANDOM_HEADER_H
#define DFX_TOOLS_RANDOM_HEADER_H

#include "core/safetensors.h"

/* Length, JSON, spaces up to a multiple of 8. *out: dfx_free. Errors: DFX_E_NOFIT. */
dfx_status dfx_safetensors_header(const dfx_tensor *const *tensors, size_t n, const dfx_sink *sink,
                                  uint8_t **out, size_t *n_bytes);

/* GGUF 3 with general.architecture, up to where the data begins. Every tensor must take a multiple of 32 bytes, the
 * alignment: nothing is put between them. Errors: DFX_E_INTERNAL, DFX_E_NOFIT. */
dfx_status dfx_gguf_header(const dfx_tensor *const *tensors, size_t n, const char *architecture,
                           const dfx_sink *sink, uint8_t **out, size_t *n_bytes);

#endif
