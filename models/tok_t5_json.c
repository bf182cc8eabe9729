/* Reading T5's tokenizer.json. The file describes a pipeline of named parts; those that T5
 * tokenizers are made of are followed, any other is refused by name, since ignoring one would
 * change ids in silence. post_processor, decoder, truncation and padding are not read: the encoder
 * adds the end token and the padding itself. */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/sink.h"
#include "models/tok_t5_model.h"

enum { FILE_BYTES_MAX = 64 << 20, NESTING_MAX = 8 };

/* What the reading functions share. */
typedef struct reader {
    dfx_tok_t5 *tok;
    const char *path; /* bundle and path, for messages */
    const dfx_sink *sink;
} reader;

static int base64_value(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at ? (int)(at - digits) : -1;
}

/* RFC 4648, padded, no line breaks. *out is owned by the caller. */
static dfx_status base64_decode(const reader *r, const char *text, size_t n, unsigned char **out,
                                size_t *out_bytes) {
    int values[256];
    size_t n_pad = n > 0 && text[n - 1] == '=' ? (n > 1 && text[n - 2] == '=' ? 2 : 1) : 0;
    for (int c = 0; c < 256; c++)
        values[c] = base64_value((char)c);
    unsigned char *bytes;
    DFX_TRY(dfx_new_array(r->sink, n / 4 * 3 + 1, "character map", &bytes));
    size_t n_bytes = 0;
    uint32_t bits = 0;
    bool good = n % 4 == 0;
    for (size_t i = 0; good && i < n; i++) {
        int value = i < n - n_pad ? values[(unsigned char)text[i]] : 0;
        good = value >= 0;
        bits = bits << 6 | (uint32_t)(value & 63);
        if (i % 4 == 3)
            for (int shift = 16; shift >= 0; shift -= 8)
                bytes[n_bytes++] = (unsigned char)(bits >> shift);
    }
    if (!good) {
        dfx_free(bytes);
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: precompiled_charsmap is not base64", r->path);
    }
    *out = bytes;
    *out_bytes = n_bytes - n_pad;
    return DFX_OK;
}

static dfx_status read_map(const reader *r, const json_t *obj) {
    const char *text;
    unsigned char *blob;
    size_t bytes;
    if (r->tok->has_map)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: more than one Precompiled normalizer", r->path);
    DFX_TRY(dfx_json_str(obj, r->path, "precompiled_charsmap", r->sink, &text));
    DFX_TRY(base64_decode(r, text, strlen(text), &blob, &bytes));
    dfx_status status = dfx_precompiled_init(&r->tok->map, r->path, blob, bytes, r->sink);
    dfx_free(blob);
    DFX_TRY(status);
    r->tok->has_map = true;
    return dfx_tok_t5_add_norm(r->tok, r->path, (dfx_t5_norm){.kind = DFX_T5_NORM_MAP}, r->sink);
}

static dfx_status read_strip(const reader *r, const json_t *obj) {
    dfx_t5_norm norm = {.kind = DFX_T5_NORM_STRIP};
    DFX_TRY(dfx_json_bool(obj, r->path, "strip_left", r->sink, &norm.left));
    DFX_TRY(dfx_json_bool(obj, r->path, "strip_right", r->sink, &norm.right));
    return dfx_tok_t5_add_norm(r->tok, r->path, norm, r->sink);
}

static dfx_status read_replace(const reader *r, const json_t *obj) {
    dfx_t5_norm norm = {.kind = DFX_T5_NORM_COLLAPSE};
    const char *content;
    const char *regex =
        json_string_value(json_object_get(json_object_get(obj, "pattern"), "Regex"));
    if (!regex || strcmp(regex, " {2,}") != 0)
        return dfx_fail(
            r->sink, DFX_E_FORMAT,
            "%s: normalizer Replace of \"%.64s\": only the pattern \" {2,}\" is supported", r->path,
            regex ? regex : "something that is no regular expression");
    DFX_TRY(dfx_json_str(obj, r->path, "content", r->sink, &content));
    norm.fill_bytes = strlen(content);
    if (norm.fill_bytes > sizeof(norm.fill))
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: normalizer Replace: content of %zu bytes, at most %zu", r->path,
                        norm.fill_bytes, sizeof(norm.fill));
    memcpy(norm.fill, content, norm.fill_bytes);
    return dfx_tok_t5_add_norm(r->tok, r->path, norm, r->sink);
}

typedef dfx_status (*part_fn)(const reader *r, const json_t *obj);

/* A kind of part, by the name in "type". */
typedef struct part {
    const char *type;
    part_fn read;
} part;

/* One part, or a Sequence of parts under `list_key`; `what` is for messages. */
static dfx_status read_parts(const reader *r, const json_t *obj, const char *what,
                             const char *list_key, const part *parts, size_t n_parts, int depth) {
    const char *type;
    if (!json_is_object(obj) || depth > NESTING_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s: wanted objects, nested at most %d deep",
                        r->path, what, NESTING_MAX);
    DFX_TRY(dfx_json_str(obj, r->path, "type", r->sink, &type));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        DFX_TRY(dfx_json_array(obj, r->path, list_key, r->sink, &list));
        for (size_t i = 0; i < json_array_size(list); i++)
            DFX_TRY(
                read_parts(r, json_array_get(list, i), what, list_key, parts, n_parts, depth + 1));
        return DFX_OK;
    }
    for (size_t i = 0; i < n_parts; i++)
        if (strcmp(type, parts[i].type) == 0)
            return parts[i].read(r, obj);
    return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s \"%.64s\" is not supported", r->path, what,
                    type);
}

static dfx_status read_whitespace_split(const reader *r, const json_t *obj) {
    return dfx_tok_t5_add_split(r->tok, r->path, (dfx_t5_split){.kind = DFX_T5_SPLIT_SPACE},
                                r->sink);
}

/* Older files say add_prefix_space instead of prepend_scheme, or both. */
static dfx_status read_prepend(const reader *r, const json_t *obj, dfx_t5_prepend *out) {
    static const char *const schemes[] = {
        [DFX_T5_ALWAYS] = "always", [DFX_T5_FIRST] = "first", [DFX_T5_NEVER] = "never"};
    bool prefix = true;
    const char *scheme;
    if (dfx_json_has(obj, "add_prefix_space"))
        DFX_TRY(dfx_json_bool(obj, r->path, "add_prefix_space", r->sink, &prefix));
    *out = prefix ? DFX_T5_ALWAYS : DFX_T5_NEVER;
    if (!dfx_json_has(obj, "prepend_scheme"))
        return DFX_OK;
    DFX_TRY(dfx_json_str(obj, r->path, "prepend_scheme", r->sink, &scheme));
    for (size_t i = 0; i < DFX_COUNT(schemes); i++)
        if (strcmp(scheme, schemes[i]) == 0 && (prefix || i == DFX_T5_NEVER)) {
            *out = (dfx_t5_prepend)i;
            return DFX_OK;
        }
    return dfx_fail(
        r->sink, DFX_E_FORMAT,
        "%s: Metaspace: prepend_scheme \"%.64s\" with add_prefix_space %s is not supported",
        r->path, scheme, prefix ? "true" : "false");
}

static dfx_status read_metaspace(const reader *r, const json_t *obj) {
    dfx_t5_split step = {.kind = DFX_T5_SPLIT_METASPACE, .cut = true};
    const char *mark;
    DFX_TRY(dfx_json_str(obj, r->path, "replacement", r->sink, &mark));
    if (strcmp(mark, DFX_T5_WORD_MARK) != 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: Metaspace: replacement \"%.64s\": only U+2581 is supported", r->path,
                        mark);
    DFX_TRY(read_prepend(r, obj, &step.prepend));
    if (dfx_json_has(obj, "split"))
        DFX_TRY(dfx_json_bool(obj, r->path, "split", r->sink, &step.cut));
    return dfx_tok_t5_add_split(r->tok, r->path, step, r->sink);
}

static dfx_status read_pipeline(const reader *r, const json_t *root) {
    static const part norms[] = {
        {"Precompiled", read_map}, {"Strip", read_strip}, {"Replace", read_replace}};
    static const part splits[] = {{"WhitespaceSplit", read_whitespace_split},
                                  {"Metaspace", read_metaspace}};
    if (dfx_json_has(root, "normalizer"))
        DFX_TRY(read_parts(r, json_object_get(root, "normalizer"), "normalizer", "normalizers",
                           norms, DFX_COUNT(norms), 0));
    if (dfx_json_has(root, "pre_tokenizer"))
        DFX_TRY(read_parts(r, json_object_get(root, "pre_tokenizer"), "pre-tokenizer",
                           "pretokenizers", splits, DFX_COUNT(splits), 0));
    return DFX_OK;
}

static dfx_status read_vocab(const reader *r, const json_t *model) {
    json_t *vocab;
    DFX_TRY(dfx_json_array(model, r->path, "vocab", r->sink, &vocab));
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *entry = json_array_get(vocab, i);
        const json_t *piece = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(piece) || !json_is_number(score) || json_array_size(entry) != 2)
            return dfx_fail(r->sink, DFX_E_FORMAT,
                            "%s: vocab: entry %zu: wanted [\"piece\", score]", r->path, i);
        DFX_TRY(dfx_tok_t5_add_piece(r->tok, r->path, json_string_value(piece),
                                     json_string_length(piece), json_number_value(score), true,
                                     r->sink));
    }
    return DFX_OK;
}

static dfx_status read_model(const reader *r, const json_t *root) {
    json_t *model;
    const char *type;
    bool byte_fallback = false;
    int64_t unk_id;
    DFX_TRY(dfx_json_object(root, r->path, "model", r->sink, &model));
    DFX_TRY(dfx_json_str(model, r->path, "type", r->sink, &type));
    if (strcmp(type, "Unigram") != 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: model.type \"%.64s\": T5's tokenizer is Unigram", r->path, type);
    if (dfx_json_has(model, "byte_fallback"))
        DFX_TRY(dfx_json_bool(model, r->path, "byte_fallback", r->sink, &byte_fallback));
    if (byte_fallback)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: model.byte_fallback true is not supported",
                        r->path);
    DFX_TRY(read_vocab(r, model));
    DFX_TRY(
        dfx_json_int(model, r->path, "unk_id", 0, (int64_t)r->tok->n_pieces - 1, r->sink, &unk_id));
    r->tok->unk_id = (int32_t)unk_id;
    return DFX_OK;
}

/* An added token that is a piece too has the piece's id; others follow the vocabulary. */
static dfx_status read_added_token(const reader *r, const json_t *entry, size_t n_added) {
    dfx_added_token token = {0};
    const char *content;
    int64_t id;
    bool single_word = false, normalized = false;
    DFX_TRY(dfx_json_str(entry, r->path, "content", r->sink, &content));
    DFX_TRY(dfx_json_int(entry, r->path, "id", 0, (int64_t)(r->tok->n_pieces + n_added) - 1,
                         r->sink, &id));
    DFX_TRY(dfx_json_bool(entry, r->path, "lstrip", r->sink, &token.lstrip));
    DFX_TRY(dfx_json_bool(entry, r->path, "rstrip", r->sink, &token.rstrip));
    DFX_TRY(dfx_json_bool(entry, r->path, "single_word", r->sink, &single_word));
    DFX_TRY(dfx_json_bool(entry, r->path, "normalized", r->sink, &normalized));
    if (single_word || normalized)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: added token \"%.64s\": %s true is not supported", r->path, content,
                        single_word ? "single_word" : "normalized");
    int32_t piece = dfx_piece_trie_find(&r->tok->pieces, content, strlen(content));
    if (piece >= 0 ? piece != id : (size_t)id < r->tok->n_pieces)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: added token \"%.64s\" has id %d, which is another piece's", r->path,
                        content, (int)id);
    token.id = (int32_t)id;
    r->tok->n_ids = (size_t)id >= r->tok->n_ids ? (size_t)id + 1 : r->tok->n_ids;
    return dfx_added_tokens_add(&r->tok->added, r->path, content, strlen(content), token, r->sink);
}

static dfx_status read_added_tokens(const reader *r, const json_t *root) {
    json_t *list;
    if (!dfx_json_has(root, "added_tokens"))
        return DFX_OK;
    DFX_TRY(dfx_json_array(root, r->path, "added_tokens", r->sink, &list));
    for (size_t i = 0; i < json_array_size(list); i++)
        DFX_TRY(read_added_token(r, json_array_get(list, i), json_array_size(list)));
    return DFX_OK;
}

dfx_status dfx_tok_t5_read_json(dfx_tok_t5 *tok, const dfx_bundle *bundle, const dfx_tok_file *file,
                                const dfx_sink *sink) {
    reader r = {.tok = tok, .path = file->label, .sink = sink};
    json_t *root = NULL;
    dfx_status status;
    DFX_TRY_OUT(status, dfx_bundle_json(bundle, file->path, sink, FILE_BYTES_MAX, &root));
    DFX_TRY_OUT(status, read_model(&r, root));
    DFX_TRY_OUT(status, read_pipeline(&r, root));
    DFX_TRY_OUT(status, read_added_tokens(&r, root));
out:
    json_decref(root);
    return status;
}
