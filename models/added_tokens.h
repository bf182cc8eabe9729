/* Added tokens: literal texts such as "<pad>" that are cut out of a prompt, as written, before
 * anything is normalised. The longest one wins at the leftmost place. Read-only after building;
 * then any thread. */
#ifndef DFX_MODELS_ADDED_TOKENS_H
#define DFX_MODELS_ADDED_TOKENS_H

#include "models/piece_trie.h"

typedef struct dfx_added_token {
    int32_t id;
    bool lstrip, rstrip; /* swallow the white space before, after */
} dfx_added_token;

typedef struct dfx_added_tokens {
    dfx_piece_trie trie;     /* text to index into tokens */
    dfx_added_token *tokens; /* owned */
    size_t n, cap;
} dfx_added_tokens;

typedef struct dfx_added_match {
    size_t begin, end; /* byte range of the text, swallowed white space included */
    int32_t id;
} dfx_added_match;

void dfx_added_tokens_free(dfx_added_tokens *added); /* zeroed set is fine */

/* Errors: DFX_E_FORMAT for an empty, too long or repeated text. */
dfx_status dfx_added_tokens_add(dfx_added_tokens *added, const char *name, const char *text,
                                size_t bytes, dfx_added_token token, const dfx_sink *sink);

/* The id of an added token with exactly this text; -1 when there is none. */
int32_t dfx_added_tokens_find(const dfx_added_tokens *added, const char *text, size_t bytes);

/* The next added token at or after `from` in valid UTF-8. False when there is none. */
bool dfx_added_tokens_next(const dfx_added_tokens *added, const char *text, size_t bytes,
                           size_t from, dfx_added_match *out);

#endif
