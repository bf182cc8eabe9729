/* CLIP's tokenizer: byte-level BPE over lower-cased text, as the fast tokenizer of the Python
 * library does it.
 *
 * NFC, lower-cased, white space only separates; cut into contractions ('s 't 're 've 'm 'll 'd),
 * letter runs, single numbers, runs of anything else; the bytes of each piece are merged by rank.
 * Facts that have bitten someone (tests/test_tok_clip.c guards each):
 *   the suffix </w> belongs to the last byte of a piece, not to its last character;
 *   digits are single tokens; combining marks are neither letters nor numbers;
 *   the padding is the end token again (id 49407), so the pooled vector is at the first end token;
 *   the special tokens written out in a prompt become their ids, when spelled exactly;
 *   NFC comes before lower-casing, and lower-casing knows no context (no final sigma).
 * Bytes that are not UTF-8: each bad sequence is replaced by U+FFFD before tokenising.
 * An open tokenizer is read-only: encode from any thread. */
#ifndef DFX_MODELS_TOK_CLIP_H
#define DFX_MODELS_TOK_CLIP_H

#include "core/bundle.h"
#include "models/tokens.h"

typedef struct dfx_tok_clip dfx_tok_clip;

/* `folder` of the bundle ("tokenizer"; "" is its root) holds vocab.json and merges.txt, or
 * tokenizer.json (model.type BPE with end_of_word_suffix "</w>") when those are not there.
 * tokenizer_config.json and special_tokens_map.json name the special tokens where present, else
 * <|startoftext|> and <|endoftext|> (also padding and unknown).
 * Ids must be 0 .. n-1, each once.
 * The bundle is not needed after this.
 * Errors: DFX_E_IO, DFX_E_FORMAT, DFX_E_NOFIT, DFX_E_USAGE (a path is too long). */
dfx_status dfx_tok_clip_open(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                             dfx_tok_clip **out);
void dfx_tok_clip_close(dfx_tok_clip *tok); /* NULL is fine */

/* out->ids[max_len]: begin token, text, end token, padding. A long text loses its tail; the end
 * token stays. Says nothing about a cut: that is the caller's, from out->n_dropped.
 * Errors: DFX_E_USAGE (max_len < 2, prompt above DFX_TOKENIZER_BYTES_MAX), DFX_E_NOFIT. */
dfx_status dfx_tok_clip_encode(const dfx_tok_clip *tok, const char *text, size_t bytes,
                               size_t max_len, const dfx_sink *sink, dfx_tokens *out);

/* As tokenizer_config.json says, 0 when it does not; not always the encoder's limit (one real file
 * says 8192). */
size_t dfx_tok_clip_model_max_length(const dfx_tok_clip *tok);
size_t dfx_tok_clip_vocab_size(const dfx_tok_clip *tok);

#endif
