/* T5's tokenizer: unigram pieces chosen by the best sum of scores (Viterbi), as the fast tokenizer
 * of the Python library does it.
 *
 * Added tokens are cut out as written; the rest is normalised, words get their mark U+2581, each is
 * segmented, and the end token follows.
 * Facts that have bitten someone (tests/test_tok_t5.c guards each):
 *   case is kept; newlines, tabs and odd spaces are spaces; runs of them collapse;
 *   a run of unknown characters within a word is one unknown token;
 *   padding (id 0) is not masked by FLUX, so the length that is asked for matters;
 *   text after an added token gets no word mark of its own under prepend_scheme "first".
 * Bytes that are not UTF-8: each bad sequence is replaced by U+FFFD before tokenising (T5's map
 * makes it a space).
 * An open tokenizer is read-only: encode from any thread. */
#ifndef DFX_MODELS_TOK_T5_H
#define DFX_MODELS_TOK_T5_H

#include "core/bundle.h"
#include "models/tokens.h"

typedef struct dfx_tok_t5 dfx_tok_t5;

/* `folder` of the bundle ("tokenizer_2"; "" is its root) holds tokenizer.json (model.type Unigram),
 * or spiece.model when that is not there. Of tokenizer.json, these are followed and anything else is
 * refused by name: normalizers null, Sequence, Precompiled, Strip, Replace of " {2,}";
 * pre-tokenizers WhitespaceSplit, Metaspace, Sequence. spiece.model: unigram without byte fallback;
 * the <extra_id_N> are appended (tokenizer_config.json extra_ids, 100 when it does not say). Both
 * need the pieces <pad> and </s>.
 * The bundle is not needed after this.
 * Errors: DFX_E_IO, DFX_E_FORMAT, DFX_E_NOFIT, DFX_E_USAGE (a path is too long). */
dfx_status dfx_tok_t5_open(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                           dfx_tok_t5 **out);
void dfx_tok_t5_close(dfx_tok_t5 *tok); /* NULL is fine */

/* out->ids[max_len]: text, end token, padding. A long text loses its tail; the end token stays.
 * Says nothing about a cut: that is the caller's, from out->n_dropped.
 * Errors: DFX_E_USAGE (max_len < 1, prompt above DFX_TOKENIZER_BYTES_MAX), DFX_E_NOFIT. */
dfx_status dfx_tok_t5_encode(const dfx_tok_t5 *tok, const char *text, size_t bytes, size_t max_len,
                             const dfx_sink *sink, dfx_tokens *out);

/* As tokenizer_config.json says, 0 when it does not. */
size_t dfx_tok_t5_model_max_length(const dfx_tok_t5 *tok);
size_t dfx_tok_t5_vocab_size(const dfx_tok_t5 *tok);

#endif
