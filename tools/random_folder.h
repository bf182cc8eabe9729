/* A random model as a diffusers folder: shards of at most 10 GB, or 5 GB for T5, as the published ones. */
#ifndef DFX_TOOLS_RANDOM_FOLDER_H
#define DFX_TOOLS_RANDOM_FOLDER_H

#include "tools/random_files.h"
#include "tools/random_stream.h"
#include "tools/random_weights.h"

/* `dir` is made; it must not be there, or be empty. model_index.json comes last, so that until then it is no model; what is
 * there after a failure may be deleted. Errors: DFX_E_IO, DFX_E_USAGE, DFX_E_CANCELLED, DFX_E_NOFIT. */
dfx_status dfx_random_folder_write(dfx_random_weights *weights, const dfx_random_files *files,
                                   const char *dir, const dfx_random_options *options,
                                   const dfx_sink *sink, uint64_t *out_bytes);

#endif
