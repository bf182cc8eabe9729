/* The cache folder, and in it packed models: what was given is packed once, and found again by what is in it.
 * Where: $XDG_CACHE_HOME/dfx-edge, else $HOME/.cache/dfx-edge. Names: <folder or file>-<quant>-<key>.safetensors; the key is a
 * hash of the small files, of every weight file's size, time, header and samples of its data, of which part each was given for,
 * of the options and of this program's version.
 * Profiles that were measured lie there, too: machine-<device>.profile (offload/profile_choice.h); and tokenizers/
 * (models/tokenizer_files.h). */
#ifndef DFX_MODELS_CACHE_H
#define DFX_MODELS_CACHE_H

#include "core/file.h"
#include "models/checkpoint.h"
#include "quant/qformat.h"

/* Where the cache is, or would be: nothing is made. False: neither XDG_CACHE_HOME nor HOME says. */
bool dfx_cache_find(char out[DFX_PATH_BYTES]);

/* The same, and it is there. Errors: DFX_E_IO. */
dfx_status dfx_cache_folder(const dfx_sink *sink, char out[DFX_PATH_BYTES]);

/* The packed file for these paths and this format, whether it is there or not; the cache folder is made.
 * Errors: DFX_E_IO (no home, not writable), DFX_E_FORMAT, those of reading what was given. */
dfx_status dfx_cache_path(const dfx_model_paths *paths, dfx_qformat quant, const dfx_sink *sink,
                          char out[DFX_PATH_BYTES]);

/* "FLUX.1-dev" of "/models/FLUX.1-dev/", "flux1-dev" of "flux1-dev.safetensors"; cut where it is too long. */
void dfx_cache_short_name(const char *path, char *out, size_t out_bytes);

#endif
