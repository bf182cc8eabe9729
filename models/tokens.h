/* Token ids: what both tokenizers hand to the text encoders.
 *
 *     dfx_tokens tokens;
 *     DFX_TRY(dfx_tok_t5_encode(tok, prompt, strlen(prompt), 512, sink, &tokens));
 *     ... tokens.ids[0 .. 512) ...
 *     dfx_tokens_free(&tokens); */
#ifndef DFX_MODELS_TOKENS_H
#define DFX_MODELS_TOKENS_H

#include "core/mem.h"

/* A longer prompt is refused (DFX_E_USAGE); anything shorter is tokenised in full, whatever max_len
 * is. */
enum { DFX_TOKENIZER_BYTES_MAX = 4 << 20 };

typedef struct dfx_tokens {
    int32_t *ids;     /* owned; exactly the max_len that was asked for, padded */
    size_t n;         /* ids before the padding, begin and end tokens included */
    size_t n_dropped; /* ids of the text that max_len left no room for */
    size_t n_unknown; /* unknown tokens in the whole text, dropped ones included */
} dfx_tokens;

void dfx_tokens_free(dfx_tokens *tokens); /* zeroed tokens are fine; leaves *tokens zeroed */

/* The ids of a text while a tokenizer collects them. Zero it before the first use. */
typedef struct dfx_id_list {
    int32_t *ids; /* owned */
    size_t n, cap;
    size_t n_unknown;
} dfx_id_list;

dfx_status dfx_id_list_add(dfx_id_list *list, const dfx_sink *sink, int32_t id);
void dfx_id_list_free(dfx_id_list *list);

/* DFX_E_USAGE unless the prompt is within the limit and max_len has room for `n_special` ids. */
dfx_status dfx_tokens_check(const dfx_sink *sink, size_t text_bytes, size_t max_len,
                            size_t n_special);

/* begin (when >= 0), the first ids of the list, end; then padding up to max_len. */
dfx_status dfx_tokens_frame(const dfx_id_list *list, int32_t begin, int32_t end, int32_t pad,
                            size_t max_len, const dfx_sink *sink, dfx_tokens *out);

#endif
