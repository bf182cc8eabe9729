/* prompt -> repaired UTF-8 -> cut at special tokens -> NFC, lower case -> pieces -> bytes -> merged
 * ids. Merging keeps the symbols of a piece in a linked list and the pairs that may merge in a heap
 * ordered by rank, then place: n log n for a piece of any length. A heap entry is stale when its
 * place has since taken part in another merge; stale entries are dropped as they surface. */
#include "models/tok_clip.h"

#include <string.h>

#include "core/sink.h"
#include "models/tok_clip_model.h"
#include "models/unicode.h"

enum { NOBODY = -1, MERGED_AWAY = -1, UNKNOWN = -2 };

typedef struct symbol {
    int32_t id; /* or MERGED_AWAY, UNKNOWN */
    int32_t prev, next;
} symbol;

/* What one encode call works with. */
typedef struct work {
    const dfx_tok_clip *tok;
    const dfx_sink *sink;
    dfx_id_list ids;
    int32_t *codes; /* owned; the lower-cased segment */
    size_t cap_codes;
    dfx_text_buf piece;
    symbol *symbols; /* owned */
    size_t cap_symbols;
    uint64_t *heap; /* owned; rank << 32 | place, smallest on top */
    size_t n_heap, cap_heap;
} work;

static dfx_status heap_push(work *w, uint64_t key) {
    if (w->n_heap == w->cap_heap)
        DFX_TRY(dfx_grow(w->sink, w->n_heap + 1, sizeof(*w->heap), "tokenizer merges", &w->cap_heap,
                         (void **)&w->heap));
    size_t at = w->n_heap++;
    for (size_t up; at > 0 && w->heap[up = (at - 1) / 2] > key; at = up)
        w->heap[at] = w->heap[up];
    w->heap[at] = key;
    return DFX_OK;
}

static uint64_t heap_pop(work *w) {
    uint64_t top = w->heap[0], key = w->heap[--w->n_heap];
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < w->n_heap; at = down) {
        if (down + 1 < w->n_heap && w->heap[down + 1] < w->heap[down])
            down++;
        if (w->heap[down] >= key)
            break;
        w->heap[at] = w->heap[down];
    }
    w->heap[at] = key;
    return top;
}

/* Remember that the symbols at `left` and after it may merge. */
static dfx_status offer(work *w, int32_t left) {
    if (left == NOBODY || w->symbols[left].next == NOBODY)
        return DFX_OK;
    int32_t right = w->symbols[left].next;
    uint32_t rank = dfx_tok_clip_merge(w->tok, w->symbols[left].id, w->symbols[right].id)->rank;
    return rank == DFX_BPE_NO_MERGE ? DFX_OK : heap_push(w, (uint64_t)rank << 32 | (uint32_t)left);
}

static dfx_status merge_all(work *w) {
    symbol *symbols = w->symbols;
    while (w->n_heap > 0) {
        uint64_t key = heap_pop(w);
        int32_t left = (int32_t)(uint32_t)key, right = symbols[left].next;
        if (symbols[left].id == MERGED_AWAY || right == NOBODY)
            continue;
        const dfx_bpe_merge *merge =
            dfx_tok_clip_merge(w->tok, symbols[left].id, symbols[right].id);
        if (merge->rank != key >> 32)
            continue;
        symbols[left].id = merge->merged;
        symbols[left].next = symbols[right].next;
        symbols[right].id = MERGED_AWAY;
        if (symbols[left].next != NOBODY)
            symbols[symbols[left].next].prev = left;
        DFX_TRY(offer(w, symbols[left].prev));
        DFX_TRY(offer(w, left));
    }
    return DFX_OK;
}

/* The ids of one piece of n >= 1 bytes. */
static dfx_status encode_piece(work *w, const char *bytes, size_t n) {
    DFX_TRY(dfx_grow(w->sink, n, sizeof(*w->symbols), "tokenizer merges", &w->cap_symbols,
                     (void **)&w->symbols));
    for (size_t i = 0; i < n; i++) {
        int32_t id = w->tok->byte_ids[i + 1 == n][(unsigned char)bytes[i]];
        w->symbols[i] = (symbol){.id = id < 0 ? UNKNOWN : id,
                                 .prev = (int32_t)i - 1,
                                 .next = i + 1 == n ? NOBODY : (int32_t)i + 1};
    }
    for (size_t i = 0; i < n; i++)
        DFX_TRY(offer(w, (int32_t)i));
    DFX_TRY(merge_all(w));
    for (int32_t at = 0; at != NOBODY; at = w->symbols[at].next) {
        int32_t id = w->symbols[at].id;
        w->ids.n_unknown += id == UNKNOWN;
        DFX_TRY(dfx_id_list_add(&w->ids, w->sink, id == UNKNOWN ? w->tok->unk_id : id));
    }
    return DFX_OK;
}

/* Characters of the contraction that begins at codes[0] (an apostrophe), or 0. No two of them begin
 * alike. */
static size_t contraction(const int32_t *codes, size_t n) {
    static const char *const tails[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < DFX_COUNT(tails); i++) {
        size_t len = strlen(tails[i]), same = 0;
        while (same < len && same + 1 < n && codes[same + 1] == tails[i][same])
            same++;
        if (same == len)
            return len + 1;
    }
    return 0;
}

typedef enum char_class { SPACE, LETTER, NUMBER, OTHER } char_class;

static char_class class_of(int32_t code) {
    if (code < 0x80) {
        if ((code | 0x20) >= 'a' && (code | 0x20) <= 'z')
            return LETTER;
        if (code >= '0' && code <= '9')
            return NUMBER;
        return dfx_code_is_space(code) ? SPACE : OTHER;
    }
    return dfx_code_is_letter(code)   ? LETTER
           : dfx_code_is_number(code) ? NUMBER
           : dfx_code_is_space(code)  ? SPACE
                                      : OTHER;
}

/* Characters of the piece that begins at codes[0], which is not white space. */
static size_t piece_len(const int32_t *codes, size_t n) {
    size_t len = codes[0] == '\'' ? contraction(codes, n) : 0;
    if (len > 0)
        return len;
    char_class first = class_of(codes[0]);
    for (len = 1; first != NUMBER && len < n && class_of(codes[len]) == first;)
        len++;
    return len;
}

/* NFC and lower case of a segment into w->codes. */
static dfx_status normalise(work *w, const char *text, size_t bytes, size_t *n_out) {
    int32_t *composed;
    size_t n_composed, n = 0;
    DFX_TRY(dfx_nfc(text, bytes, w->sink, &composed, &n_composed));
    dfx_status status = dfx_grow(w->sink, 2 * n_composed, sizeof(*w->codes), "tokenizer text",
                                 &w->cap_codes, (void **)&w->codes);
    if (status == DFX_OK)
        for (size_t i = 0; i < n_composed; i++)
            n += dfx_code_lower(composed[i], w->codes + n);
    dfx_free(composed);
    *n_out = n;
    return status;
}

/* Text between special tokens. */
static dfx_status encode_segment(work *w, const char *text, size_t bytes) {
    size_t n;
    if (bytes == 0)
        return DFX_OK;
    DFX_TRY(normalise(w, text, bytes, &n));
    for (size_t at = 0, len; at < n; at += len) {
        len = 1;
        if (dfx_code_is_space(w->codes[at]))
            continue;
        len = piece_len(w->codes + at, n - at);
        w->piece.n = 0;
        for (size_t i = 0; i < len; i++) {
            char utf8[DFX_UTF8_BYTES_MAX];
            size_t n_utf8 = dfx_utf8_put(w->codes[at + i], utf8);
            DFX_TRY(dfx_text_buf_add(&w->piece, w->sink, utf8, n_utf8));
        }
        DFX_TRY(encode_piece(w, w->piece.text, w->piece.n));
    }
    return DFX_OK;
}

static dfx_status encode_text(work *w, const char *text, size_t bytes) {
    dfx_added_match match;
    size_t at = 0;
    while (dfx_added_tokens_next(&w->tok->special, text, bytes, at, &match)) {
        DFX_TRY(encode_segment(w, text + at, match.begin - at));
        DFX_TRY(dfx_id_list_add(&w->ids, w->sink, match.id));
        at = match.end;
    }
    return encode_segment(w, text + at, bytes - at);
}

dfx_status dfx_tok_clip_encode(const dfx_tok_clip *tok, const char *text, size_t bytes,
                               size_t max_len, const dfx_sink *sink, dfx_tokens *out) {
    *out = (dfx_tokens){0};
    DFX_TRY(dfx_tokens_check(sink, bytes, max_len, 2));
    work w = {.tok = tok, .sink = sink};
    char *repaired = NULL;
    dfx_status status = dfx_utf8_repair(text, bytes, sink, &repaired, &bytes);
    if (status == DFX_OK)
        status = encode_text(&w, repaired, bytes);
    if (status == DFX_OK)
        status =
            dfx_tokens_frame(&w.ids, tok->bos_id, tok->eos_id, tok->pad_id, max_len, sink, out);
    dfx_free(repaired);
    dfx_free(w.codes);
    dfx_free(w.piece.text);
    dfx_free(w.symbols);
    dfx_free(w.heap);
    dfx_id_list_free(&w.ids);
    return status;
}

dfx_status dfx_tok_clip_open(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                             dfx_tok_clip **out) {
    dfx_tok_clip *tok;
    DFX_TRY(dfx_new(sink, "vocabulary", &tok));
    dfx_status status = dfx_tok_clip_read(tok, bundle, folder, sink);
    if (status != DFX_OK) {
        dfx_tok_clip_close(tok);
        return status;
    }
    *out = tok;
    return DFX_OK;
}

void dfx_tok_clip_close(dfx_tok_clip *tok) {
    if (!tok)
        return;
    dfx_free(tok->merges);
    dfx_added_tokens_free(&tok->special);
    dfx_free(tok);
}

size_t dfx_tok_clip_model_max_length(const dfx_tok_clip *tok) {
    return tok->model_max_length;
}

size_t dfx_tok_clip_vocab_size(const dfx_tok_clip *tok) {
    return tok->n_ids;
}
