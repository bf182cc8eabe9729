/* Where the vocabularies of single files come from: weight files have none. In this order: what --tokenizer names (a folder with
 * tokenizer/ and tokenizer_2/ in it, such as a diffusers folder, or a packed model), else <cache>/tokenizers/, where the first
 * use of --tokenizer leaves a copy. Only FLUX's own vocabularies are left there, told by what they make of a sentence: those of
 * a test model would fit any encoder and be wrong. */
#ifndef DFX_MODELS_TOKENIZER_FILES_H
#define DFX_MODELS_TOKENIZER_FILES_H

#include "core/bundle.h"
#include "offload/packed.h"

typedef struct dfx_tokenizer_files {
    char folder[DFX_PATH_BYTES]; /* or file: where they are */
    dfx_packed *packed;          /* owned */
    bool from_cache;
    dfx_bundle
        bundle; /* holds the paths of dfx_model_files that begin with "tokenizer", and maybe others */
} dfx_tokenizer_files;

/* given NULL: the cache's. Errors: DFX_E_IO with the names of the files that are wanted and where to put them; DFX_E_FORMAT. */
dfx_status dfx_tokenizer_files_find(const char *given, const dfx_sink *sink,
                                    dfx_tokenizer_files *out);
void dfx_tokenizer_files_close(dfx_tokenizer_files *files); /* zeroed is fine */

/* Is it a small file of a tokenizer? */
bool dfx_tokenizer_file_is(const char *path);

/* Leave a copy in the cache, unless there is one or these are not FLUX's. A cache that cannot be written is a warning. */
void dfx_tokenizer_files_remember(const dfx_tokenizer_files *files, const dfx_sink *sink);

#endif
