/* Packing: what a user has (models/checkpoint.h) into one packed model. */
#ifndef DFX_MODELS_PACK_H
#define DFX_MODELS_PACK_H

#include "models/checkpoint.h"
#include "models/parts.h"
#include "offload/packed.h"

/* What is packed, in the order in which a picture uses it: embeddings, encoders, conditioning, step, decoder, encoder. */
enum { DFX_PACK_PROGRAMS = 8 };
extern const dfx_component dfx_pack_component_of[DFX_PACK_PROGRAMS];

/* The programs, for small shapes: pages depend on the architecture alone. sets[component]: tensors, NULL: from the architecture
 * alone. *n_programs: one less for a checkpoint without the VAE's encoder, which is last. */
dfx_status dfx_pack_build(const dfx_configs *configs,
                          const dfx_tensors *const sets[DFX_N_COMPONENTS], const dfx_sink *sink,
                          dfx_program programs[DFX_PACK_PROGRAMS], size_t *n_programs);

/* Everything that opening files, a folder or a packed model would check, without packing or a device: parts and every tensor.
 * On success *parts is the caller's (dfx_parts_fini). */
dfx_status dfx_model_check(const dfx_model_paths *paths, const dfx_sink *sink, dfx_parts *parts);

/* Every weight that a picture needs, and the encoder's of the VAE where it is there, with configurations and tokenizers.
 * automatic: models/checkpoint.h. options->source NULL: paths->model. out_path NULL: only the report of what would be written.
 * Errors: those of dfx_checkpoint_open(), and of dfx_pack_write(). */
dfx_status dfx_model_pack(const dfx_model_paths *paths, bool automatic,
                          const dfx_pack_options *options, const char *out_path,
                          const dfx_sink *sink, dfx_pack_report *report);

#endif
