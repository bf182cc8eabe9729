/* A trie walk from every byte; walks end at the first byte that no token goes on with, so this is
 * linear in practice and bounded by DFX_PIECE_BYTES_MAX a byte. */
#include "models/added_tokens.h"

#include "core/sink.h"
#include "models/unicode.h"

void dfx_added_tokens_free(dfx_added_tokens *added) {
    dfx_piece_trie_free(&added->trie);
    dfx_free(added->tokens);
    *added = (dfx_added_tokens){0};
}

dfx_status dfx_added_tokens_add(dfx_added_tokens *added, const char *name, const char *text,
                                size_t bytes, dfx_added_token token, const dfx_sink *sink) {
    if (added->n == added->cap)
        DFX_TRY(dfx_grow(sink, added->n + 1, sizeof(*added->tokens), "vocabulary", &added->cap,
                         (void **)&added->tokens));
    DFX_TRY(dfx_piece_trie_add(&added->trie, name, text, bytes, (int32_t)added->n, sink));
    added->tokens[added->n++] = token;
    return DFX_OK;
}

int32_t dfx_added_tokens_find(const dfx_added_tokens *added, const char *text, size_t bytes) {
    int32_t idx = dfx_piece_trie_find(&added->trie, text, bytes);
    return idx < 0 ? -1 : added->tokens[idx].id;
}

/* Where the white space that ends at `end` begins; not before `from`. */
static size_t spaces_begin(const char *text, size_t from, size_t end) {
    size_t begin = end;
    for (size_t at = from, taken; at < end; at += taken) {
        int32_t code;
        taken = dfx_utf8_next(text + at, end - at, &code);
        if (!dfx_code_is_space(code))
            begin = end;
        else if (begin == end)
            begin = at;
    }
    return begin;
}

static size_t spaces_end(const char *text, size_t bytes, size_t begin) {
    size_t at = begin;
    while (at < bytes) {
        int32_t code;
        size_t taken = dfx_utf8_next(text + at, bytes - at, &code);
        if (!dfx_code_is_space(code))
            break;
        at += taken;
    }
    return at;
}

/* Bytes of the longest token that begins at text[0]; 0 when none does. */
static size_t longest_match(const dfx_added_tokens *added, const char *text, size_t bytes,
                            int32_t *idx) {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = dfx_piece_trie_step(&added->trie, node, (unsigned char)text[i]);
        if (node == 0)
            break;
        if (added->trie.values[node] >= 0) {
            *idx = added->trie.values[node];
            longest = i + 1;
        }
    }
    return longest;
}

bool dfx_added_tokens_next(const dfx_added_tokens *added, const char *text, size_t bytes,
                           size_t from, dfx_added_match *out) {
    for (size_t at = from; at < bytes; at++) {
        int32_t idx;
        size_t len = longest_match(added, text + at, bytes - at, &idx);
        if (len == 0)
            continue;
        const dfx_added_token *token = &added->tokens[idx];
        out->id = token->id;
        out->begin = token->lstrip ? spaces_begin(text, from, at) : at;
        out->end = token->rstrip ? spaces_end(text, bytes, at + len) : at + len;
        return true;
    }
    return false;
}
