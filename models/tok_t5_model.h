/* Inside of the T5 tokenizer: what its two readers (tok_t5_json.c, tok_t5_spiece.c) fill in, and
 * the encoder (tok_t5.c) and the segmenter (tok_t5_viterbi.c) read. */
#ifndef DFX_MODELS_TOK_T5_MODEL_H
#define DFX_MODELS_TOK_T5_MODEL_H

#include "models/added_tokens.h"
#include "models/precompiled.h"
#include "models/tok_config.h"
#include "models/tok_t5.h"

#define DFX_T5_WORD_MARK "\xE2\x96\x81" /* U+2581 */

enum { DFX_T5_STEPS_MAX = 8, DFX_T5_FILL_BYTES = 16, DFX_T5_IDS_MAX = 1 << 22 };

/* A rewriting of the text, applied in order. */
typedef enum dfx_t5_norm_kind {
    DFX_T5_NORM_MAP,     /* the precompiled map */
    DFX_T5_NORM_STRIP,   /* white space at the ends */
    DFX_T5_NORM_COLLAPSE /* two spaces or more become `fill` */
} dfx_t5_norm_kind;

typedef struct dfx_t5_norm {
    dfx_t5_norm_kind kind;
    bool left, right; /* STRIP */
    char fill[DFX_T5_FILL_BYTES];
    size_t fill_bytes;
} dfx_t5_norm;

/* A cutting of the text, applied in order, each to the parts that the one before left. */
typedef enum dfx_t5_split_kind {
    DFX_T5_SPLIT_SPACE,    /* parts between white space, which is dropped */
    DFX_T5_SPLIT_METASPACE /* spaces become word marks, perhaps one in front; cut before each */
} dfx_t5_split_kind;

typedef enum dfx_t5_prepend { DFX_T5_ALWAYS, DFX_T5_FIRST, DFX_T5_NEVER } dfx_t5_prepend;

typedef struct dfx_t5_split {
    dfx_t5_split_kind kind;
    dfx_t5_prepend prepend; /* METASPACE */
    bool cut;               /* METASPACE; false leaves the text whole */
} dfx_t5_split;

struct dfx_tok_t5 {
    dfx_piece_trie pieces; /* texts that may match, to ids */
    double *scores;        /* owned, [n_pieces]; log-probability by id */
    size_t n_pieces, cap_scores;
    double min_score; /* of the pieces that count for the unknown's score */
    dfx_added_tokens added;
    bool has_map;
    dfx_precompiled map;
    dfx_t5_norm norms[DFX_T5_STEPS_MAX];
    dfx_t5_split splits[DFX_T5_STEPS_MAX];
    size_t n_norms, n_splits;
    int32_t pad_id, eos_id, unk_id;
    size_t n_ids; /* pieces and added tokens */
    size_t model_max_length;
};

/* The readers. Fill a zeroed tokenizer; after a failure it can still be closed. */
dfx_status dfx_tok_t5_read_json(dfx_tok_t5 *tok, const dfx_bundle *bundle, const dfx_tok_file *file,
                                const dfx_sink *sink);
dfx_status dfx_tok_t5_read_spiece(dfx_tok_t5 *tok, const dfx_bundle *bundle,
                                  const dfx_tok_file *file, int n_extra_ids, const dfx_sink *sink);

/* For the readers; `path` is for messages. The next piece, whose id is its turn. One that does not
 * `match` has an id but no place in a text, and its score does not count. Errors: DFX_E_FORMAT:
 * score not finite; empty, too long or repeated piece. */
dfx_status dfx_tok_t5_add_piece(dfx_tok_t5 *tok, const char *path, const char *piece, size_t bytes,
                                double score, bool match, const dfx_sink *sink);
dfx_status dfx_tok_t5_add_norm(dfx_tok_t5 *tok, const char *path, dfx_t5_norm norm,
                               const dfx_sink *sink);
dfx_status dfx_tok_t5_add_split(dfx_tok_t5 *tok, const char *path, dfx_t5_split split,
                                const dfx_sink *sink);

/* The segmenter's scratch; zero it before the first use. */
typedef struct dfx_t5_lattice {
    struct dfx_t5_node *nodes; /* owned */
    size_t cap_nodes;
} dfx_t5_lattice;

void dfx_t5_lattice_free(dfx_t5_lattice *lattice);

/* Append the ids of the best segmentation of valid UTF-8. */
dfx_status dfx_tok_t5_segment(const dfx_tok_t5 *tok, const char *text, size_t bytes,
                              const dfx_sink *sink, dfx_t5_lattice *lattice, dfx_id_list *ids);

#endif
