/* The small files beside a tokenizer: tokenizer_config.json and special_tokens_map.json. */
#ifndef DFX_MODELS_TOK_CONFIG_H
#define DFX_MODELS_TOK_CONFIG_H

#include "core/bundle.h"

enum { DFX_SPECIAL_BYTES = 128 };

typedef struct dfx_tok_config {
    char bos[DFX_SPECIAL_BYTES],
        eos[DFX_SPECIAL_BYTES]; /* texts of special tokens; empty: not named */
    char pad[DFX_SPECIAL_BYTES], unk[DFX_SPECIAL_BYTES];
    size_t model_max_length; /* 0: not given, or so large that it means "no limit" */
    int extra_ids;           /* -1: not given */
} dfx_tok_config;

/* Both files are optional; a name in tokenizer_config.json wins. `folder` "" is the bundle's root.
 * Errors: DFX_E_FORMAT, DFX_E_IO. */
dfx_status dfx_tok_config_read(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                               dfx_tok_config *out);

/* A file of a tokenizer, which may not exist. */
typedef struct dfx_tok_file {
    char path[DFX_PATH_BYTES];  /* in the bundle, for reading */
    char label[DFX_PATH_BYTES]; /* "<bundle>/<path>", for messages */
    bool exists;
} dfx_tok_file;

/* Errors: DFX_E_USAGE (the path is too long). */
dfx_status dfx_tok_file_find(const dfx_bundle *bundle, const char *folder, const char *name,
                             const dfx_sink *sink, dfx_tok_file *out);

#endif
