/* Nodes are numbers, edges live in one hash table with linear probing, at most half full. A key
 * packs node and byte into 32 bits, which limits a trie to 2^24 nodes; child 0 marks an empty slot,
 * since the root is nobody's child. */
#include "models/piece_trie.h"

#include "core/sink.h"

enum { FIRST_EDGES = 64, NODES_MAX = 1 << 24 };

struct dfx_piece_edge {
    uint32_t key, child;
};

void dfx_piece_trie_free(dfx_piece_trie *trie) {
    dfx_free(trie->edges);
    dfx_free(trie->values);
    *trie = (dfx_piece_trie){0};
}

/* The slot that holds `key`, or the empty one where it belongs. */
static size_t edge_slot(const struct dfx_piece_edge *edges, size_t cap, uint32_t key) {
    size_t slot = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (cap - 1);
    while (edges[slot].child != 0 && edges[slot].key != key)
        slot = (slot + 1) & (cap - 1);
    return slot;
}

static dfx_status make_room(dfx_piece_trie *trie, const dfx_sink *sink) {
    if (trie->n_nodes == trie->cap_nodes)
        DFX_TRY(dfx_grow(sink, trie->n_nodes + 1, sizeof(*trie->values), "vocabulary",
                         &trie->cap_nodes, (void **)&trie->values));
    if (2 * (trie->n_edges + 1) <= trie->cap_edges)
        return DFX_OK;
    size_t cap = trie->cap_edges ? 2 * trie->cap_edges : FIRST_EDGES;
    struct dfx_piece_edge *edges;
    DFX_TRY(dfx_new_array(sink, cap, "vocabulary", &edges));
    for (size_t i = 0; i < trie->cap_edges; i++)
        if (trie->edges[i].child != 0)
            edges[edge_slot(edges, cap, trie->edges[i].key)] = trie->edges[i];
    dfx_free(trie->edges);
    trie->edges = edges;
    trie->cap_edges = cap;
    return DFX_OK;
}

static dfx_status add_child(dfx_piece_trie *trie, uint32_t node, unsigned char byte,
                            const dfx_sink *sink, uint32_t *child) {
    DFX_TRY(make_room(trie, sink));
    uint32_t key = node << 8 | byte;
    *child = (uint32_t)trie->n_nodes++;
    trie->values[*child] = -1;
    trie->edges[edge_slot(trie->edges, trie->cap_edges, key)] =
        (struct dfx_piece_edge){key, *child};
    trie->n_edges++;
    return DFX_OK;
}

dfx_status dfx_piece_trie_add(dfx_piece_trie *trie, const char *name, const char *piece,
                              size_t bytes, int32_t value, const dfx_sink *sink) {
    if (bytes == 0 || bytes > DFX_PIECE_BYTES_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: piece %d has %zu bytes, wanted 1 to %d", name,
                        (int)value, bytes, DFX_PIECE_BYTES_MAX);
    if (trie->n_nodes + bytes >= NODES_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: the pieces have more than %d bytes together", name,
                        NODES_MAX);
    if (trie->n_nodes == 0) {
        DFX_TRY(make_room(trie, sink));
        trie->values[trie->n_nodes++] = -1;
    }
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t child = dfx_piece_trie_step(trie, node, (unsigned char)piece[i]);
        if (child == 0)
            DFX_TRY(add_child(trie, node, (unsigned char)piece[i], sink, &child));
        node = child;
    }
    if (trie->values[node] >= 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: pieces %d and %d are the same text \"%.*s\"", name,
                        (int)trie->values[node], (int)value, (int)bytes, piece);
    trie->values[node] = value;
    return DFX_OK;
}

uint32_t dfx_piece_trie_step(const dfx_piece_trie *trie, uint32_t node, unsigned char byte) {
    if (trie->cap_edges == 0)
        return 0;
    return trie->edges[edge_slot(trie->edges, trie->cap_edges, node << 8 | byte)].child;
}

int32_t dfx_piece_trie_find(const dfx_piece_trie *trie, const char *text, size_t bytes) {
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = dfx_piece_trie_step(trie, node, (unsigned char)text[i]);
        if (node == 0)
            return -1;
    }
    return node == 0 ? -1 : trie->values[node];
}
