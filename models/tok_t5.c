/* prompt -> repaired UTF-8 -> cut at added tokens -> normalised -> split into parts -> segmented ->
 * framed. */
#include "models/tok_t5.h"

#include <math.h>
#include <string.h>

#include "core/sink.h"
#include "models/tok_config.h"
#include "models/tok_t5_model.h"

enum { EXTRA_IDS = 100, MARK_BYTES = sizeof(DFX_T5_WORD_MARK) - 1 };

/* What one encode call works with. */
typedef struct work {
    const dfx_tok_t5 *tok;
    const dfx_sink *sink;
    dfx_text_buf text, spare; /* the segment being normalised, and where the next form is written */
    dfx_text_buf marked[DFX_T5_STEPS_MAX]; /* what each metaspace step wrote */
    bool lost_front; /* Strip took white space away in front: the text begins later now */
    dfx_t5_lattice lattice;
    dfx_id_list ids;
} work;

static dfx_status collapse_spaces(work *w, const dfx_t5_norm *norm) {
    const char *text = w->text.text;
    size_t n = w->text.n;
    for (size_t at = 0, end; at < n; at = end) {
        bool spaces = text[at] == ' ';
        for (end = at + 1; end < n && (text[end] == ' ') == spaces;)
            end++;
        if (spaces && end - at >= 2)
            DFX_TRY(dfx_text_buf_add(&w->spare, w->sink, norm->fill, norm->fill_bytes));
        else
            DFX_TRY(dfx_text_buf_add(&w->spare, w->sink, text + at, end - at));
    }
    return DFX_OK;
}

static dfx_status strip(work *w, const dfx_t5_norm *norm) {
    const char *text = w->text.text;
    size_t begin = w->text.n, end = 0; /* of what is not white space */
    for (size_t at = 0, taken; at < w->text.n; at += taken) {
        int32_t code;
        taken = dfx_utf8_next(text + at, w->text.n - at, &code);
        if (dfx_code_is_space(code))
            continue;
        begin = at < begin ? at : begin;
        end = at + taken;
    }
    if (begin >= end)
        return DFX_OK; /* nothing but white space: the ends meet */
    begin = norm->left ? begin : 0;
    w->lost_front = w->lost_front || begin > 0;
    end = norm->right ? end : w->text.n;
    return dfx_text_buf_add(&w->spare, w->sink, text + begin, end - begin);
}

static dfx_status normalise(work *w, const char *text, size_t bytes) {
    w->text.n = 0;
    w->lost_front = false;
    DFX_TRY(dfx_text_buf_add(&w->text, w->sink, text, bytes));
    for (size_t i = 0; i < w->tok->n_norms; i++) {
        const dfx_t5_norm *norm = &w->tok->norms[i];
        w->spare.n = 0;
        switch (norm->kind) {
        case DFX_T5_NORM_MAP:
            DFX_TRY(
                dfx_precompiled_apply(&w->tok->map, w->text.text, w->text.n, w->sink, &w->spare));
            break;
        case DFX_T5_NORM_STRIP:
            DFX_TRY(strip(w, norm));
            break;
        case DFX_T5_NORM_COLLAPSE:
            DFX_TRY(collapse_spaces(w, norm));
            break;
        }
        dfx_text_buf form = w->spare;
        w->spare = w->text;
        w->text = form;
    }
    return DFX_OK;
}

static bool starts_with_mark(const char *text, size_t bytes) {
    return bytes >= MARK_BYTES && memcmp(text, DFX_T5_WORD_MARK, MARK_BYTES) == 0;
}

static dfx_status split(work *w, size_t step, const char *text, size_t bytes, bool at_start);

static dfx_status split_at_space(work *w, size_t step, const char *text, size_t bytes,
                                 bool at_start) {
    size_t begin = 0;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        int32_t code;
        taken = dfx_utf8_next(text + at, bytes - at, &code);
        if (!dfx_code_is_space(code))
            continue;
        DFX_TRY(split(w, step + 1, text + begin, at - begin, at_start && begin == 0));
        begin = at + taken;
    }
    return split(w, step + 1, text + begin, bytes - begin, at_start && begin == 0);
}

/* `text` with marks for spaces, and one in front where the rule says so, into w->marked[step]. */
static dfx_status put_marks(work *w, size_t step, const char *text, size_t bytes, bool at_start) {
    dfx_t5_prepend prepend = w->tok->splits[step].prepend;
    dfx_text_buf *marked = &w->marked[step];
    marked->n = 0;
    if ((prepend == DFX_T5_ALWAYS || (prepend == DFX_T5_FIRST && at_start)) && text[0] != ' ' &&
        !starts_with_mark(text, bytes))
        DFX_TRY(dfx_text_buf_add(marked, w->sink, DFX_T5_WORD_MARK, MARK_BYTES));
    for (size_t i = 0; i < bytes; i++)
        DFX_TRY(text[i] == ' ' ? dfx_text_buf_add(marked, w->sink, DFX_T5_WORD_MARK, MARK_BYTES)
                               : dfx_text_buf_add(marked, w->sink, text + i, 1));
    return DFX_OK;
}

static dfx_status split_at_marks(work *w, size_t step, const char *text, size_t bytes,
                                 bool at_start) {
    DFX_TRY(put_marks(w, step, text, bytes, at_start));
    const char *marked = w->marked[step].text;
    size_t n = w->marked[step].n, begin = 0;
    for (size_t at = 1; w->tok->splits[step].cut && at < n; at++) {
        if (!starts_with_mark(marked + at, n - at))
            continue;
        DFX_TRY(split(w, step + 1, marked + begin, at - begin, at_start && begin == 0));
        begin = at;
    }
    return split(w, step + 1, marked + begin, n - begin, at_start && begin == 0);
}

/* Hand a part through the splitting steps from `step` on, at last to the segmenter. `at_start`: it
 * begins the prompt. */
static dfx_status split(work *w, size_t step, const char *text, size_t bytes, bool at_start) {
    if (bytes == 0)
        return DFX_OK;
    if (step == w->tok->n_splits)
        return dfx_tok_t5_segment(w->tok, text, bytes, w->sink, &w->lattice, &w->ids);
    switch (w->tok->splits[step].kind) {
    case DFX_T5_SPLIT_SPACE:
        return split_at_space(w, step, text, bytes, at_start);
    case DFX_T5_SPLIT_METASPACE:
        return split_at_marks(w, step, text, bytes, at_start);
    }
    return DFX_E_INTERNAL;
}

/* Text between added tokens. */
static dfx_status encode_segment(work *w, const char *text, size_t bytes, bool at_start) {
    if (bytes == 0)
        return DFX_OK;
    DFX_TRY(normalise(w, text, bytes));
    return split(w, 0, w->text.text, w->text.n, at_start && !w->lost_front);
}

static dfx_status encode_text(work *w, const char *text, size_t bytes) {
    dfx_added_match match;
    size_t at = 0;
    while (dfx_added_tokens_next(&w->tok->added, text, bytes, at, &match)) {
        DFX_TRY(encode_segment(w, text + at, match.begin - at, at == 0));
        DFX_TRY(dfx_id_list_add(&w->ids, w->sink, match.id));
        w->ids.n_unknown += match.id == w->tok->unk_id;
        at = match.end;
    }
    return encode_segment(w, text + at, bytes - at, at == 0);
}

dfx_status dfx_tok_t5_encode(const dfx_tok_t5 *tok, const char *text, size_t bytes, size_t max_len,
                             const dfx_sink *sink, dfx_tokens *out) {
    *out = (dfx_tokens){0};
    DFX_TRY(dfx_tokens_check(sink, bytes, max_len, 1));
    work w = {.tok = tok, .sink = sink};
    char *repaired = NULL;
    dfx_status status = dfx_utf8_repair(text, bytes, sink, &repaired, &bytes);
    if (status == DFX_OK)
        status = encode_text(&w, repaired, bytes);
    if (status == DFX_OK)
        status = dfx_tokens_frame(&w.ids, -1, tok->eos_id, tok->pad_id, max_len, sink, out);
    dfx_free(repaired);
    dfx_free(w.text.text);
    dfx_free(w.spare.text);
    for (size_t i = 0; i < DFX_T5_STEPS_MAX; i++)
        dfx_free(w.marked[i].text);
    dfx_t5_lattice_free(&w.lattice);
    dfx_id_list_free(&w.ids);
    return status;
}

dfx_status dfx_tok_t5_add_piece(dfx_tok_t5 *tok, const char *path, const char *piece, size_t bytes,
                                double score, bool match, const dfx_sink *sink) {
    size_t id = tok->n_pieces;
    if (id >= DFX_T5_IDS_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: more than %d pieces", path, DFX_T5_IDS_MAX);
    if (!isfinite(score))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: the score of piece %zu is not a finite number",
                        path, id);
    if (!dfx_utf8_valid(piece, bytes))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: piece %zu is not UTF-8", path, id);
    DFX_TRY(dfx_grow(sink, id + 1, sizeof(*tok->scores), "vocabulary", &tok->cap_scores,
                     (void **)&tok->scores));
    if (match) {
        DFX_TRY(dfx_piece_trie_add(&tok->pieces, path, piece, bytes, (int32_t)id, sink));
        tok->min_score = score < tok->min_score ? score : tok->min_score;
    }
    tok->scores[id] = score;
    tok->n_pieces = tok->n_ids = id + 1;
    return DFX_OK;
}

dfx_status dfx_tok_t5_add_norm(dfx_tok_t5 *tok, const char *path, dfx_t5_norm norm,
                               const dfx_sink *sink) {
    if (tok->n_norms == DFX_T5_STEPS_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: more than %d normalizers", path, DFX_T5_STEPS_MAX);
    tok->norms[tok->n_norms++] = norm;
    return DFX_OK;
}

dfx_status dfx_tok_t5_add_split(dfx_tok_t5 *tok, const char *path, dfx_t5_split step,
                                const dfx_sink *sink) {
    if (tok->n_splits == DFX_T5_STEPS_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: more than %d pre-tokenizers", path,
                        DFX_T5_STEPS_MAX);
    tok->splits[tok->n_splits++] = step;
    return DFX_OK;
}

static dfx_status find_special(const dfx_tok_t5 *tok, const char *path, const char *text,
                               const dfx_sink *sink, int32_t *id) {
    *id = dfx_added_tokens_find(&tok->added, text, strlen(text));
    if (*id < 0)
        *id = dfx_piece_trie_find(&tok->pieces, text, strlen(text));
    if (*id < 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: no special token \"%s\" in the vocabulary", path,
                        text);
    return DFX_OK;
}

static dfx_status read_files(dfx_tok_t5 *tok, const dfx_bundle *bundle, const char *folder,
                             const dfx_sink *sink) {
    char label[DFX_PATH_BYTES];
    dfx_tok_file json, spiece;
    dfx_tok_config config;
    dfx_bundle_label(bundle, folder, label);
    DFX_TRY(dfx_tok_config_read(bundle, folder, sink, &config));
    tok->model_max_length = config.model_max_length;
    DFX_TRY(dfx_tok_file_find(bundle, folder, "tokenizer.json", sink, &json));
    DFX_TRY(dfx_tok_file_find(bundle, folder, "spiece.model", sink, &spiece));
    if (json.exists)
        DFX_TRY(dfx_tok_t5_read_json(tok, bundle, &json, sink));
    else if (spiece.exists)
        DFX_TRY(dfx_tok_t5_read_spiece(tok, bundle, &spiece,
                                       config.extra_ids < 0 ? EXTRA_IDS : config.extra_ids, sink));
    else
        return dfx_fail(sink, DFX_E_IO,
                        "%s: wanted T5's tokenizer.json or spiece.model; neither is there", label);
    const char *path = json.exists ? json.label : spiece.label;
    DFX_TRY(find_special(tok, path, "<pad>", sink, &tok->pad_id));
    return find_special(tok, path, "</s>", sink, &tok->eos_id);
}

dfx_status dfx_tok_t5_open(const dfx_bundle *bundle, const char *folder, const dfx_sink *sink,
                           dfx_tok_t5 **out) {
    dfx_tok_t5 *tok;
    DFX_TRY(dfx_new(sink, "vocabulary", &tok));
    dfx_status status = read_files(tok, bundle, folder, sink);
    if (status != DFX_OK) {
        dfx_tok_t5_close(tok);
        return status;
    }
    *out = tok;
    return DFX_OK;
}

void dfx_tok_t5_close(dfx_tok_t5 *tok) {
    if (!tok)
        return;
    dfx_piece_trie_free(&tok->pieces);
    dfx_free(tok->scores);
    dfx_added_tokens_free(&tok->added);
    dfx_precompiled_fini(&tok->map);
    dfx_free(tok);
}

size_t dfx_tok_t5_model_max_length(const dfx_tok_t5 *tok) {
    return tok->model_max_length;
}

size_t dfx_tok_t5_vocab_size(const dfx_tok_t5 *tok) {
    return tok->n_ids;
}
