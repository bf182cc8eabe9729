/* Viterbi over the bytes of one part of a text: the best-scored path to each place, extended by
 * every piece that begins there, or by one unknown character where no piece is exactly that
 * character. Scores add up in double, left to right, and only a strictly better path replaces
 * another: with that, ties fall as in the Python library. */
#include "core/sink.h"
#include "models/tok_t5_model.h"
#include "models/unicode.h"

/* Below the least likely piece, so that a known piece always wins. */
#define UNKNOWN_PENALTY 10.0

struct dfx_t5_node {
    double score;  /* of the best path that ends here */
    int32_t id;    /* of its last piece, or NOT_REACHED */
    uint32_t from; /* where that piece begins */
};

enum { NOT_REACHED = -1 };

void dfx_t5_lattice_free(dfx_t5_lattice *lattice) {
    dfx_free(lattice->nodes);
    *lattice = (dfx_t5_lattice){0};
}

static void relax(struct dfx_t5_node *nodes, size_t from, size_t to, double score, int32_t id) {
    double sum = nodes[from].score + score;
    if (nodes[to].id == NOT_REACHED || sum > nodes[to].score)
        nodes[to] = (struct dfx_t5_node){.score = sum, .id = id, .from = (uint32_t)from};
}

/* Every piece that begins at `from`. */
static void extend(const dfx_tok_t5 *tok, const char *text, size_t bytes, size_t from,
                   size_t char_bytes, struct dfx_t5_node *nodes) {
    bool has_single = false;
    uint32_t node = 0;
    for (size_t at = from; at < bytes; at++) {
        node = dfx_piece_trie_step(&tok->pieces, node, (unsigned char)text[at]);
        if (node == 0)
            break;
        int32_t id = tok->pieces.values[node];
        if (id < 0)
            continue;
        relax(nodes, from, at + 1, tok->scores[id], id);
        has_single = has_single || at + 1 - from == char_bytes;
    }
    if (!has_single)
        relax(nodes, from, from + char_bytes, tok->min_score - UNKNOWN_PENALTY, tok->unk_id);
}

/* The path's ids, last first, neighbouring unknowns as one; then turned round. */
static dfx_status collect(const dfx_tok_t5 *tok, const struct dfx_t5_node *nodes, size_t bytes,
                          const dfx_sink *sink, dfx_id_list *ids) {
    size_t first = ids->n;
    for (size_t at = bytes; at > 0; at = nodes[at].from) {
        int32_t id = nodes[at].id;
        if (id == tok->unk_id) {
            if (ids->n > first && ids->ids[ids->n - 1] == id)
                continue;
            ids->n_unknown++;
        }
        DFX_TRY(dfx_id_list_add(ids, sink, id));
    }
    for (size_t a = first, b = ids->n; a + 1 < b; a++) {
        int32_t swap = ids->ids[a];
        ids->ids[a] = ids->ids[--b];
        ids->ids[b] = swap;
    }
    return DFX_OK;
}

dfx_status dfx_tok_t5_segment(const dfx_tok_t5 *tok, const char *text, size_t bytes,
                              const dfx_sink *sink, dfx_t5_lattice *lattice, dfx_id_list *ids) {
    DFX_TRY(dfx_grow(sink, bytes + 1, sizeof(*lattice->nodes), "tokenizer lattice",
                     &lattice->cap_nodes, (void **)&lattice->nodes));
    struct dfx_t5_node *nodes = lattice->nodes;
    nodes[0].score = 0;
    for (size_t i = 1; i <= bytes; i++)
        nodes[i].id = NOT_REACHED;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        int32_t code;
        taken = dfx_utf8_next(text + at, bytes - at, &code);
        extend(tok, text, bytes, at, taken, nodes);
    }
    return collect(tok, nodes, bytes, sink, ids);
}
