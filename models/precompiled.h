/* sentencepiece's precompiled character map: which short texts a normaliser replaces by which.
 *
 * Blob: u32 LE bytes of the trie | trie, a double array of u32 LE units | replacement texts, each
 * NUL-terminated. Of a unit u:
 *   label = u & 0x800000FF, offset = (u >> 10) << ((u & 0x200) >> 6), has_leaf = bit 8;
 *   a leaf (bit 31) holds in its low 31 bits where the replacement begins.
 * Source: the darts-clone layout. Every place a walk can reach is checked when a map is made, so
 * that applying it cannot fail on its content. */
#ifndef DFX_MODELS_PRECOMPILED_H
#define DFX_MODELS_PRECOMPILED_H

#include "models/unicode.h"

typedef struct dfx_precompiled {
    uint32_t *units; /* owned */
    size_t n_units;
    char *texts; /* owned; ends with NUL */
    size_t texts_bytes;
} dfx_precompiled;

/* `name` is for messages. The blob is copied. Errors: DFX_E_FORMAT, DFX_E_NOFIT. */
dfx_status dfx_precompiled_init(dfx_precompiled *map, const char *name, const void *blob,
                                size_t bytes, const dfx_sink *sink);
void dfx_precompiled_fini(dfx_precompiled *map); /* zeroed map is fine */

/* Append the normal form of valid UTF-8 to `out`.
 * The rule is that of the Python library's fast tokenizer: a grapheme cluster of fewer than 6 bytes
 * of which some beginning is in the map is replaced as a whole by the replacement of the shortest
 * such beginning; otherwise each of its characters is looked up alone. It differs from
 * sentencepiece (longest match) for some combining sequences only. */
dfx_status dfx_precompiled_apply(const dfx_precompiled *map, const char *text, size_t bytes,
                                 const dfx_sink *sink, dfx_text_buf *out);

#endif
