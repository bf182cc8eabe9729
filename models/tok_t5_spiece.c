/* Reading T5's spiece.model, a sentencepiece ModelProto. Field numbers are from
 * sentencepiece_model.proto:
 *   ModelProto      1 pieces, 2 trainer_spec, 3 normalizer_spec
 *   SentencePiece   1 piece, 2 score, 3 type
 *   TrainerSpec     3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback
 *   NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
 *                   5 escape_whitespaces
 * The result is the pipeline that tokenizer.json of the same model spells out, so both files give
 * the same ids. Pieces that are not ordinary never match inside a text; control, unknown and
 * user-defined ones are added tokens. */
#include <stdio.h>
#include <string.h>

#include "core/sink.h"
#include "models/protobuf.h"
#include "models/tok_t5_model.h"

enum { FILE_BYTES_MAX = 64 << 20, UNIGRAM = 1 };

typedef enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE } piece_type;

/* What the reading functions share. */
typedef struct reader {
    dfx_tok_t5 *tok;
    const char *path; /* bundle and path, for messages */
    const dfx_sink *sink;
} reader;

static dfx_status want_type(const reader *r, const dfx_pb_field *field, dfx_pb_type type,
                            const char *what) {
    if (field->type != type)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s: wire type %d, wanted %d", r->path, what,
                        (int)field->type, (int)type);
    return DFX_OK;
}

static dfx_status add_special(const reader *r, const char *text, size_t bytes, int32_t id) {
    return dfx_added_tokens_add(&r->tok->added, r->path, text, bytes, (dfx_added_token){.id = id},
                                r->sink);
}

static dfx_status add_piece(const reader *r, dfx_pb text, float score, uint64_t type) {
    int32_t id = (int32_t)r->tok->n_pieces;
    const char *piece = (const char *)text.at;
    size_t bytes = (size_t)(text.end - text.at);
    if (type < NORMAL || type > UNUSED)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: piece %d is of type %llu, which is not supported%s", r->path, (int)id,
                        (unsigned long long)type,
                        type == BYTE ? " (a model with byte fallback)" : "");
    DFX_TRY(dfx_tok_t5_add_piece(r->tok, r->path, piece, bytes, score, type == NORMAL, r->sink));
    if (type == UNKNOWN) {
        if (r->tok->unk_id >= 0)
            return dfx_fail(r->sink, DFX_E_FORMAT, "%s: pieces %d and %d are both unknown tokens",
                            r->path, (int)r->tok->unk_id, (int)id);
        r->tok->unk_id = id;
    }
    if (type == UNKNOWN || type == CONTROL || type == USER_DEFINED)
        return add_special(r, piece, bytes, id);
    return DFX_OK;
}

static dfx_status read_piece(const reader *r, dfx_pb msg) {
    dfx_pb text = {0};
    float score = 0;
    uint64_t type = NORMAL;
    while (msg.at < msg.end) {
        dfx_pb_field field;
        DFX_TRY(dfx_pb_next(&msg, r->path, r->sink, &field));
        if (field.number == 1) {
            DFX_TRY(want_type(r, &field, DFX_PB_BYTES, "piece"));
            text = field.bytes;
        } else if (field.number == 2) {
            DFX_TRY(want_type(r, &field, DFX_PB_FIXED32, "score"));
            uint32_t bits = (uint32_t)field.value;
            memcpy(&score, &bits, sizeof(score));
        } else if (field.number == 3) {
            DFX_TRY(want_type(r, &field, DFX_PB_VARINT, "type"));
            type = field.value;
        }
    }
    return add_piece(r, text, score, type);
}

/* A number of a spec that T5 models have only one value for. */
static dfx_status want_value(const reader *r, const dfx_pb_field *field, const char *what,
                             uint64_t wanted) {
    DFX_TRY(want_type(r, field, DFX_PB_VARINT, what));
    if (field->value != wanted)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s is %llu; only %llu is supported", r->path,
                        what, (unsigned long long)field->value, (unsigned long long)wanted);
    return DFX_OK;
}

static dfx_status read_trainer_spec(const reader *r, dfx_pb msg) {
    while (msg.at < msg.end) {
        dfx_pb_field field;
        DFX_TRY(dfx_pb_next(&msg, r->path, r->sink, &field));
        if (field.number == 3)
            DFX_TRY(want_value(r, &field, "model_type", UNIGRAM));
        else if (field.number == 24)
            DFX_TRY(want_value(r, &field, "treat_whitespace_as_suffix", 0));
        else if (field.number == 35)
            DFX_TRY(want_value(r, &field, "byte_fallback", 0));
    }
    return DFX_OK;
}

static dfx_status read_map(const reader *r, const dfx_pb_field *field) {
    DFX_TRY(want_type(r, field, DFX_PB_BYTES, "precompiled_charsmap"));
    size_t bytes = (size_t)(field->bytes.end - field->bytes.at);
    if (r->tok->has_map)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: more than one character map", r->path);
    if (bytes == 0) /* the identity */
        return DFX_OK;
    DFX_TRY(dfx_precompiled_init(&r->tok->map, r->path, field->bytes.at, bytes, r->sink));
    r->tok->has_map = true;
    return DFX_OK;
}

static dfx_status read_normalizer_spec(const reader *r, dfx_pb msg) {
    while (msg.at < msg.end) {
        dfx_pb_field field;
        DFX_TRY(dfx_pb_next(&msg, r->path, r->sink, &field));
        if (field.number == 2)
            DFX_TRY(read_map(r, &field));
        else if (field.number == 3)
            DFX_TRY(want_value(r, &field, "add_dummy_prefix", 1));
        else if (field.number == 4)
            DFX_TRY(want_value(r, &field, "remove_extra_whitespaces", 1));
        else if (field.number == 5)
            DFX_TRY(want_value(r, &field, "escape_whitespaces", 1));
    }
    return DFX_OK;
}

static dfx_status read_model(const reader *r, dfx_pb msg) {
    while (msg.at < msg.end) {
        dfx_pb_field field;
        DFX_TRY(dfx_pb_next(&msg, r->path, r->sink, &field));
        if (field.number < 1 || field.number > 3)
            continue;
        DFX_TRY(want_type(r, &field, DFX_PB_BYTES, "ModelProto"));
        DFX_TRY(field.number == 1   ? read_piece(r, field.bytes)
                : field.number == 2 ? read_trainer_spec(r, field.bytes)
                                    : read_normalizer_spec(r, field.bytes));
    }
    if (r->tok->unk_id < 0)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: none of its %zu pieces is the unknown token",
                        r->path, r->tok->n_pieces);
    return DFX_OK;
}

/* <extra_id_N> have the ids after the pieces, the highest N first. */
static dfx_status add_extra_ids(const reader *r, int n_extra_ids) {
    for (int n = n_extra_ids - 1; n >= 0; n--) {
        char text[32];
        int len = snprintf(text, sizeof(text), "<extra_id_%d>", n);
        DFX_TRY(add_special(r, text, (size_t)len, (int32_t)r->tok->n_ids));
        r->tok->n_ids++;
    }
    return DFX_OK;
}

static dfx_status add_pipeline(const reader *r) {
    dfx_t5_norm collapse = {.kind = DFX_T5_NORM_COLLAPSE,
                            .fill = DFX_T5_WORD_MARK,
                            .fill_bytes = strlen(DFX_T5_WORD_MARK)};
    if (r->tok->has_map)
        DFX_TRY(
            dfx_tok_t5_add_norm(r->tok, r->path, (dfx_t5_norm){.kind = DFX_T5_NORM_MAP}, r->sink));
    DFX_TRY(dfx_tok_t5_add_norm(r->tok, r->path,
                                (dfx_t5_norm){.kind = DFX_T5_NORM_STRIP, .right = true}, r->sink));
    DFX_TRY(dfx_tok_t5_add_norm(r->tok, r->path, collapse, r->sink));
    return dfx_tok_t5_add_split(
        r->tok, r->path,
        (dfx_t5_split){.kind = DFX_T5_SPLIT_METASPACE, .prepend = DFX_T5_FIRST, .cut = true},
        r->sink);
}

dfx_status dfx_tok_t5_read_spiece(dfx_tok_t5 *tok, const dfx_bundle *bundle,
                                  const dfx_tok_file *file, int n_extra_ids, const dfx_sink *sink) {
    reader r = {.tok = tok, .path = file->label, .sink = sink};
    char *bytes;
    size_t n;
    DFX_TRY(dfx_bundle_slurp(bundle, file->path, sink, FILE_BYTES_MAX, &bytes, &n));
    tok->unk_id = -1;
    const unsigned char *begin = (const unsigned char *)bytes;
    dfx_status status = read_model(&r, (dfx_pb){.at = begin, .end = begin + n});
    dfx_free(bytes);
    DFX_TRY(status);
    DFX_TRY(add_extra_ids(&r, n_extra_ids));
    return add_pipeline(&r);
}
