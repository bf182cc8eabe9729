/* Reading a CLIP vocabulary: vocab.json + merges.txt, or the same two tables inside tokenizer.json.
 * Everything a file says is checked here, so that encoding has nothing left to doubt. */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/sink.h"
#include "models/tok_clip_model.h"
#include "models/tok_config.h"
#include "models/unicode.h"

enum { FILE_BYTES_MAX = 64 << 20, MERGES_MAX = 1 << 22, PIECE_TEXT = 2 * DFX_PIECE_BYTES_MAX + 1 };

#define END_OF_WORD "</w>"

/* What the reading functions share. */
typedef struct reader {
    dfx_tok_clip *tok;
    const dfx_bundle *bundle;
    const dfx_sink *sink;
    const char *path; /* bundle and path of the file that is being read, for messages */
    json_t *vocab;    /* borrowed; piece to id */
    uint32_t n_merges;
} reader;

dfx_bpe_merge *dfx_tok_clip_merge(const dfx_tok_clip *tok, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (tok->cap_merges - 1);
    dfx_bpe_merge *merge;
    while ((merge = &tok->merges[slot])->rank != DFX_BPE_NO_MERGE &&
           (merge->left != left || merge->right != right))
        slot = (slot + 1) & (tok->cap_merges - 1);
    return merge;
}

/* Ids are 0 .. n-1, each once. */
static dfx_status check_ids(reader *r) {
    size_t n = json_object_size(r->vocab);
    if (n == 0 || n > INT32_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: a vocabulary of %zu pieces", r->path, n);
    bool *seen;
    DFX_TRY(dfx_new_array(r->sink, n, "vocabulary", &seen));
    dfx_status status = DFX_OK;
    const char *piece;
    json_t *value;
    json_object_foreach(r->vocab, piece, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (uint64_t)id >= n || seen[id]) {
            status =
                dfx_fail(r->sink, DFX_E_FORMAT,
                         "%s: the id of piece \"%.64s\" is not an integer from 0 to %zu of its own",
                         r->path, piece, n - 1);
            break;
        }
        seen[id] = true;
    }
    dfx_free(seen);
    r->tok->n_ids = n;
    return status;
}

/* -1 when the piece is not in the vocabulary. */
static int32_t piece_id(const reader *r, const char *piece) {
    const json_t *value = json_object_get(r->vocab, piece);
    return value ? (int32_t)json_integer_value(value) : -1;
}

/* A byte's symbol is the character of the same number where that prints, else U+0100 and on, in
 * order. */
static void read_byte_ids(reader *r) {
    int32_t next = 0x100;
    for (int32_t byte = 0; byte < 256; byte++) {
        bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        char piece[DFX_UTF8_BYTES_MAX + sizeof(END_OF_WORD)];
        size_t n = dfx_utf8_put(prints ? byte : next++, piece);
        piece[n] = '\0';
        r->tok->byte_ids[0][byte] = piece_id(r, piece);
        memcpy(piece + n, END_OF_WORD, sizeof(END_OF_WORD));
        r->tok->byte_ids[1][byte] = piece_id(r, piece);
    }
}

static dfx_status make_merges(reader *r, size_t n) {
    if (n > MERGES_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %zu merges, wanted at most %d", r->path, n,
                        MERGES_MAX);
    size_t cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    DFX_TRY(dfx_new_array(r->sink, cap, "vocabulary", &r->tok->merges));
    r->tok->cap_merges = cap;
    for (size_t i = 0; i < cap; i++)
        r->tok->merges[i].rank = DFX_BPE_NO_MERGE;
    return DFX_OK;
}

/* The next merge in rank; `left` and `right` are pieces. */
static dfx_status add_merge(reader *r, const char *left, const char *right) {
    uint32_t rank = r->n_merges++;
    char merged[PIECE_TEXT];
    size_t n_left = strlen(left), n_right = strlen(right);
    if (n_left >= sizeof(merged) || n_right >= sizeof(merged) - n_left)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: merge %u: a piece of more than %d bytes",
                        r->path, rank + 1, PIECE_TEXT - 1);
    memcpy(merged, left, n_left);
    memcpy(merged + n_left, right, n_right + 1);
    const char *const pieces[] = {left, right, merged};
    int32_t ids[3];
    for (size_t i = 0; i < 3; i++)
        if ((ids[i] = piece_id(r, pieces[i])) < 0)
            return dfx_fail(
                r->sink, DFX_E_FORMAT,
                "%s: merge %u: piece \"%.64s\" is not in the vocabulary; do the vocabulary "
                "and the merges belong together?",
                r->path, rank + 1, pieces[i]);
    dfx_bpe_merge *slot = dfx_tok_clip_merge(r->tok, ids[0], ids[1]);
    if (slot->rank != DFX_BPE_NO_MERGE)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: merge %u repeats merge %u", r->path, rank + 1,
                        slot->rank + 1);
    *slot = (dfx_bpe_merge){.left = ids[0], .right = ids[1], .merged = ids[2], .rank = rank};
    return DFX_OK;
}

/* "left right", both there; the text is cut in two. */
static dfx_status add_merge_text(reader *r, char *text) {
    char *space = strchr(text, ' ');
    if (!space || space == text || space[1] == '\0' || strchr(space + 1, ' '))
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: merge %u: wanted two pieces, found \"%.64s\"",
                        r->path, r->n_merges + 1, text);
    *space = '\0';
    return add_merge(r, text, space + 1);
}

/* merges.txt: a header line "#version...", then one merge a line. */
static dfx_status read_merge_lines(reader *r, char *text, size_t bytes) {
    size_t n_lines = 1;
    if (memchr(text, '\0', bytes))
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: a NUL byte in a text file", r->path);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n_lines++;
    DFX_TRY(make_merges(r, n_lines));
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        size_t len = strlen(line);
        if (len > 0 && line[len - 1] == '\r')
            line[--len] = '\0';
        if (len == 0 || (line == text && strncmp(line, "#version", 8) == 0))
            continue;
        DFX_TRY(add_merge_text(r, line));
    }
    return DFX_OK;
}

static dfx_status read_two_files(reader *r, const dfx_tok_file *vocab, const dfx_tok_file *merges) {
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes;
    dfx_status status;
    r->path = vocab->label;
    DFX_TRY_OUT(status, dfx_bundle_json(r->bundle, vocab->path, r->sink, FILE_BYTES_MAX, &root));
    if (!json_is_object(root)) {
        status =
            dfx_fail(r->sink, DFX_E_FORMAT, "%s: wanted a JSON object of pieces and ids", r->path);
        goto out;
    }
    r->vocab = root;
    DFX_TRY_OUT(status, check_ids(r));
    read_byte_ids(r);
    r->path = merges->label;
    DFX_TRY_OUT(status,
                dfx_bundle_slurp(r->bundle, merges->path, r->sink, FILE_BYTES_MAX, &text, &bytes));
    DFX_TRY_OUT(status, read_merge_lines(r, text, bytes));
out:
    dfx_free(text);
    if (status != DFX_OK)
        json_decref(root);
    return status;
}

/* An entry of model.merges: "left right" or ["left", "right"]. */
static dfx_status add_merge_json(reader *r, const json_t *entry) {
    if (json_is_array(entry) && json_array_size(entry) == 2 &&
        json_is_string(json_array_get(entry, 0)) && json_is_string(json_array_get(entry, 1)))
        return add_merge(r, json_string_value(json_array_get(entry, 0)),
                         json_string_value(json_array_get(entry, 1)));
    char text[PIECE_TEXT + 1];
    if (!json_is_string(entry) || json_string_length(entry) >= sizeof(text))
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: merge %u: wanted two pieces of at most %d bytes", r->path,
                        r->n_merges + 1, PIECE_TEXT - 1);
    snprintf(text, sizeof(text), "%s", json_string_value(entry));
    return add_merge_text(r, text);
}

/* The rules of CLIP are fixed in the encoder; another BPE in the same file format must not slip
 * through. */
static dfx_status check_model(const reader *r, const json_t *model) {
    const char *type, *suffix;
    DFX_TRY(dfx_json_str(model, r->path, "type", r->sink, &type));
    if (strcmp(type, "BPE") != 0)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: model.type \"%.64s\": CLIP's tokenizer is BPE",
                        r->path, type);
    DFX_TRY(dfx_json_str(model, r->path, "end_of_word_suffix", r->sink, &suffix));
    if (strcmp(suffix, END_OF_WORD) != 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: model.end_of_word_suffix \"%.64s\": CLIP's is \"" END_OF_WORD "\"",
                        r->path, suffix);
    return DFX_OK;
}

static dfx_status read_one_file(reader *r, const dfx_tok_file *file) {
    json_t *root, *model, *merges;
    dfx_status status;
    r->path = file->label;
    DFX_TRY(dfx_bundle_json(r->bundle, file->path, r->sink, FILE_BYTES_MAX, &root));
    DFX_TRY_OUT(status, dfx_json_object(root, r->path, "model", r->sink, &model));
    DFX_TRY_OUT(status, check_model(r, model));
    DFX_TRY_OUT(status, dfx_json_object(model, r->path, "vocab", r->sink, &r->vocab));
    DFX_TRY_OUT(status, dfx_json_array(model, r->path, "merges", r->sink, &merges));
    DFX_TRY_OUT(status, check_ids(r));
    read_byte_ids(r);
    DFX_TRY_OUT(status, make_merges(r, json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++)
        DFX_TRY_OUT(status, add_merge_json(r, json_array_get(merges, i)));
    json_incref(r->vocab);
out:
    json_decref(root);
    return status;
}

/* The id of a special token, which is also cut out of prompts. */
static dfx_status add_special(reader *r, const char *role, const char *text, int32_t *id) {
    *id = piece_id(r, text);
    if (*id < 0)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s token \"%s\" is not in the vocabulary",
                        r->path, role, text);
    size_t bytes = strlen(text);
    if (dfx_added_tokens_find(&r->tok->special, text, bytes) >= 0)
        return DFX_OK;
    return dfx_added_tokens_add(&r->tok->special, r->path, text, bytes,
                                (dfx_added_token){.id = *id}, r->sink);
}

/* No one file is to blame for a special token that is missing: `label` names the folder. */
static dfx_status read_specials(reader *r, const char *folder, const char *label) {
    dfx_tok_config config;
    DFX_TRY(dfx_tok_config_read(r->bundle, folder, r->sink, &config));
    r->tok->model_max_length = config.model_max_length;
    const char *bos = config.bos[0] ? config.bos : "<|startoftext|>";
    const char *eos = config.eos[0] ? config.eos : "<|endoftext|>";
    r->path = label;
    DFX_TRY(add_special(r, "begin", bos, &r->tok->bos_id));
    DFX_TRY(add_special(r, "end", eos, &r->tok->eos_id));
    DFX_TRY(add_special(r, "padding", config.pad[0] ? config.pad : eos, &r->tok->pad_id));
    return add_special(r, "unknown", config.unk[0] ? config.unk : eos, &r->tok->unk_id);
}

dfx_status dfx_tok_clip_read(dfx_tok_clip *tok, const dfx_bundle *bundle, const char *folder,
                             const dfx_sink *sink) {
    char label[DFX_PATH_BYTES];
    dfx_tok_file vocab, merges, json;
    dfx_bundle_label(bundle, folder, label);
    DFX_TRY(dfx_tok_file_find(bundle, folder, "vocab.json", sink, &vocab));
    DFX_TRY(dfx_tok_file_find(bundle, folder, "merges.txt", sink, &merges));
    DFX_TRY(dfx_tok_file_find(bundle, folder, "tokenizer.json", sink, &json));
    bool two_files = vocab.exists && merges.exists;
    if (!two_files && !json.exists)
        return dfx_fail(
            sink, DFX_E_IO,
            "%s: wanted CLIP's vocab.json and merges.txt, or tokenizer.json; neither is there",
            label);
    reader r = {.tok = tok, .bundle = bundle, .sink = sink};
    DFX_TRY(two_files ? read_two_files(&r, &vocab, &merges) : read_one_file(&r, &json));
    dfx_status status = read_specials(&r, folder, label);
    json_decref(r.vocab);
    return status;
}
