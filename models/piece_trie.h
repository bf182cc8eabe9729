/* A trie over byte strings (pieces of a vocabulary, literal special tokens), for finding every
 * piece that begins at a place in a text. Read-only after building; then any thread. */
#ifndef DFX_MODELS_PIECE_TRIE_H
#define DFX_MODELS_PIECE_TRIE_H

#include "core/mem.h"

/* Longer pieces are refused, which bounds the cost of a look-up at every byte of a text. */
enum { DFX_PIECE_BYTES_MAX = 128 };

typedef struct dfx_piece_trie {
    struct dfx_piece_edge *edges; /* owned; open addressing by (node, byte) */
    size_t n_edges, cap_edges;    /* cap is 0 or a power of two */
    int32_t *values;              /* owned, [n_nodes]; value of the piece that ends here, or -1 */
    size_t n_nodes, cap_nodes;    /* node 0 is the root */
} dfx_piece_trie;

void dfx_piece_trie_free(dfx_piece_trie *trie); /* zeroed trie is fine */

/* Add a piece of 1 to DFX_PIECE_BYTES_MAX bytes with value >= 0; `name` (a file) is for messages.
 * Errors: DFX_E_FORMAT for an empty, too long or repeated piece. */
dfx_status dfx_piece_trie_add(dfx_piece_trie *trie, const char *name, const char *piece,
                              size_t bytes, int32_t value, const dfx_sink *sink);

/* Where the byte leads from `node`; 0 when no piece goes on that way. Start at node 0. */
uint32_t dfx_piece_trie_step(const dfx_piece_trie *trie, uint32_t node, unsigned char byte);

/* The value of the piece that is exactly this text; -1 when there is none. */
int32_t dfx_piece_trie_find(const dfx_piece_trie *trie, const char *text, size_t bytes);

#endif
