/* Bundle: the small files of a model (configurations, tokenizers) by relative path, from a folder, from inside a packed
 * model or from memory, so that a reader does not care which. */
#ifndef DFX_CORE_BUNDLE_H
#define DFX_CORE_BUNDLE_H

#include <jansson.h>

#include "core/file.h"
#include "core/safetensors.h"

/* A small file that is held in memory. */
typedef struct dfx_bundle_text {
    const char *path, *text; /* borrowed */
    size_t bytes;
} dfx_bundle_text;

/* One of the three: a folder, tensors, or texts. */
typedef struct dfx_bundle {
    const char *folder;           /* borrowed */
    const dfx_tensors *tensors;   /* borrowed; U8 tensors named DFX_BUNDLE_PREFIX and the path */
    const dfx_bundle_text *texts; /* borrowed; [n_texts] */
    size_t n_texts;
    const char *name; /* borrowed; for messages: the folder or the file that stands for it */
} dfx_bundle;

#define DFX_BUNDLE_PREFIX "files/"

/* Is there such a file? `path` has '/' between its parts and none at its ends, e.g. "tokenizer/vocab.json". */
bool dfx_bundle_has(const dfx_bundle *bundle, const char *path);

/* "<bundle>/<path>" for messages. */
void dfx_bundle_label(const dfx_bundle *bundle, const char *path, char out[DFX_PATH_BYTES]);

/* As dfx_file_slurp; a file that a packed model or memory lacks is DFX_E_FORMAT. */
dfx_status dfx_bundle_slurp(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                            size_t max_bytes, char **out, size_t *out_bytes);

/* As dfx_json_load. */
dfx_status dfx_bundle_json(const dfx_bundle *bundle, const char *path, const dfx_sink *sink,
                           size_t max_bytes, json_t **out);

#endif
