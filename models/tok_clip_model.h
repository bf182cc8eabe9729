/* Inside of the CLIP tokenizer, shared by the reader (tok_clip_read.c) and the encoder
 * (tok_clip.c). The vocabulary's texts are needed only while reading: encoding goes from bytes to
 * ids to merged ids. */
#ifndef DFX_MODELS_TOK_CLIP_MODEL_H
#define DFX_MODELS_TOK_CLIP_MODEL_H

#include "models/added_tokens.h"
#include "models/tok_clip.h"

/* left and right become `merged`; lower ranks go first. */
typedef struct dfx_bpe_merge {
    int32_t left, right, merged;
    uint32_t rank;
} dfx_bpe_merge;

struct dfx_tok_clip {
    int32_t byte_ids
        [2][256]; /* of a byte, and of the last byte of a piece; -1 when not in the vocabulary */
    dfx_bpe_merge *merges;    /* owned; open addressing by (left, right), at most half full */
    size_t cap_merges;        /* a power of two */
    dfx_added_tokens special; /* texts of the special tokens */
    int32_t bos_id, eos_id, pad_id, unk_id;
    size_t n_ids;
    size_t model_max_length;
};

/* Fill a zeroed tokenizer from the files of `folder`; after a failure it can still be closed. */
dfx_status dfx_tok_clip_read(dfx_tok_clip *tok, const dfx_bundle *bundle, const char *folder,
                             const dfx_sink *sink);

/* The slot of the pair; rank is DFX_BPE_NO_MERGE when the pair does not merge. */
#define DFX_BPE_NO_MERGE UINT32_MAX
dfx_bpe_merge *dfx_tok_clip_merge(const dfx_tok_clip *tok, int32_t left, int32_t right);

#endif
