/* The small files of a random model: configurations as diffusers and transformers write them, and tokenizers of the right
 * size whose vocabularies are made here: single characters, and pieces that no text contains. */
#ifndef DFX_TOOLS_RANDOM_FILES_H
#define DFX_TOOLS_RANDOM_FILES_H

#include "models/architecture.h"
#include "models/pack.h"

enum { DFX_RANDOM_FILES = 12 };

typedef struct dfx_random_files {
    const char *paths[DFX_RANDOM_FILES]; /* string literals; model_index.json is the last */
    char *texts[DFX_RANDOM_FILES];       /* owned */
} dfx_random_files;

/* Errors: DFX_E_NOFIT. */
dfx_status dfx_random_files_init(dfx_random_files *files, const dfx_architecture *arch,
                                 const dfx_sink *sink);
void dfx_random_files_fini(dfx_random_files *files); /* zeroed is fine */

#endif
