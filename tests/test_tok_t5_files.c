/* T5 vocabularies that are not what they should be: each is refused with one sentence that names
 * the fault, nothing stays held, and no damage of a small file makes the reader or the encoder step
 * outside their memory (run with sanitizers). */
#include "tests/tok_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/precompiled.h"
#include "models/protobuf.h"
#include "models/tok_t5.h"
#include "tests/spiece_writer.h"

#define SCENES "models/scenes/tokenizer_2"

/* tokenizer.json around parts that the rows below vary. */
#define SPECIALS "[\"<pad>\", 0], [\"</s>\", 0], [\"<unk>\", 0]"
#define MODEL(vocab) "\"model\": {\"type\": \"Unigram\", \"unk_id\": 2, \"vocab\": [" vocab "]}"
#define GOOD MODEL(SPECIALS ", [\"a\", -1]")
#define ADDED(rest) GOOD ", \"added_tokens\": [{\"lstrip\": false, \"rstrip\": false, " rest "}]"
#define PLAIN "\"single_word\": false, \"normalized\": false"

typedef struct bad_json {
    const char *body, *words;
} bad_json;

static const bad_json bad_jsons[] = {
    {"\"model\": 3", "model: wanted an object"},
    {"\"model\": {\"type\": \"BPE\"}", "\"BPE\": T5's tokenizer is Unigram"},
    {"\"model\": {\"type\": \"Unigram\", \"byte_fallback\": true}", "byte_fallback true"},
    {"\"model\": {\"type\": \"Unigram\", \"vocab\": [], \"unk_id\": 0}", "unk_id"},
    {"\"model\": {\"type\": \"Unigram\", \"vocab\": [" SPECIALS "], \"unk_id\": 3}", "unk_id"},
    {"\"model\": {\"type\": \"Unigram\", \"vocab\": [" SPECIALS "], \"unk_id\": -1}", "unk_id"},
    {"\"model\": {\"type\": \"Unigram\", \"vocab\": [" SPECIALS "], \"unk_id\": null}", "unk_id"},
    {MODEL(SPECIALS ", [\"a\"]"), "entry 3: wanted [\"piece\", score]"},
    {MODEL(SPECIALS ", [\"a\", \"b\"]"), "entry 3: wanted"},
    {MODEL(SPECIALS ", [\"a\", 1, 2]"), "entry 3: wanted"},
    {MODEL(SPECIALS ", {}"), "entry 3: wanted"},
    {MODEL(SPECIALS ", [\"a\", NaN]"), "not valid JSON"},
    {MODEL(SPECIALS ", [\"a\", 1e999]"), "not valid JSON"},
    {MODEL(SPECIALS ", [\"\", 0]"), "piece 3 has 0 bytes"},
    {MODEL(SPECIALS ", [\"a\", 0], [\"a\", 0]"), "pieces 3 and 4 are the same text"},
    {MODEL("[\"a\", 0], [\"</s>\", 0], [\"<unk>\", 0]"), "no special token \"<pad>\""},
    {MODEL("[\"<pad>\", 0], [\"a\", 0], [\"<unk>\", 0]"), "no special token \"</s>\""},
    {GOOD ", \"normalizer\": {\"type\": \"NFKC\"}", "normalizer \"NFKC\" is not supported"},
    {GOOD ", \"normalizer\": {\"type\": \"Sequence\"}", "normalizers: wanted"},
    {GOOD ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [3]}", "wanted objects"},
    {GOOD ", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
          "\"content\": \"\"}",
     "only the pattern"},
    {GOOD
     ", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": "
     "\"01234567890123456\"}",
     "content of 17 bytes"},
    {GOOD ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"A?==\"}",
     "is not base64"},
    {GOOD ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}",
     "character map of 3 bytes"},
    {GOOD ", \"normalizer\": {\"type\": \"Strip\", \"strip_left\": 1}", "strip_left"},
    {GOOD ", \"pre_tokenizer\": {\"type\": \"ByteLevel\"}",
     "pre-tokenizer \"ByteLevel\" is not supported"},
    {GOOD ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"}", "only U+2581"},
    {GOOD ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
          "\"prepend_scheme\": \"last\"}",
     "prepend_scheme \"last\""},
    {GOOD ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
          "\"prepend_scheme\": \"first\", \"add_prefix_space\": false}",
     "with add_prefix_space false"},
    {ADDED(PLAIN ", \"content\": \"b\", \"id\": 9"), "id: wanted an integer from 0 to 4"},
    {ADDED(PLAIN ", \"content\": \"b\", \"id\": 3"), "has id 3, which is another piece's"},
    {ADDED(PLAIN ", \"content\": \"a\", \"id\": 4"), "has id 4, which is another piece's"},
    {ADDED(PLAIN ", \"content\": \"\", \"id\": 4"), "0 bytes"},
    {ADDED("\"single_word\": true, \"normalized\": false, \"content\": \"b\", \"id\": 4"),
     "single_word true is not supported"},
    {ADDED("\"single_word\": false, \"normalized\": true, \"content\": \"b\", \"id\": 4"),
     "normalized true is not supported"},
};

static void open_json(tmpdir *dir, const char *body, dfx_status wanted, const char *words) {
    char text[2048];
    dfx_tok_t5 *tok = NULL;
    size_t held = dfx_mem_held_bytes();
    recorder_clear(&dir->log);
    snprintf(text, sizeof(text), "{%s}", body);
    tmpdir_write_text(dir, "tokenizer.json", text);
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), wanted);
    if (wanted != DFX_OK)
        said_error(&dir->log, words);
    dfx_tok_t5_close(tok);
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void bad_json_is_refused_with_a_sentence(void **state) {
    tmpdir *dir = *state;
    open_json(dir, GOOD, DFX_OK, NULL);
    open_json(dir, ADDED(PLAIN ", \"content\": \"b\", \"id\": 4"), DFX_OK, NULL);
    for (size_t i = 0; i < DFX_COUNT(bad_jsons); i++)
        open_json(dir, bad_jsons[i].body, DFX_E_FORMAT, bad_jsons[i].words);
}

/* `n` Sequences, one inside the other. */
static void open_nested(tmpdir *dir, int n, dfx_status wanted) {
    char body[2048] = GOOD ", \"normalizer\": ";
    for (int i = 0; i < n; i++)
        strcat(body, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < n; i++)
        strcat(body, "]}");
    open_json(dir, body, wanted, "nested at most 8 deep");
}

static void deep_and_many_parts_are_refused(void **state) {
    tmpdir *dir = *state;
    open_nested(dir, 9, DFX_OK);
    open_nested(dir, 10, DFX_E_FORMAT);
    char body[2048] = GOOD ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [";
    for (int i = 0; i < 9; i++)
        strcat(body, i ? ", {\"type\": \"WhitespaceSplit\"}" : "{\"type\": \"WhitespaceSplit\"}");
    strcat(body, "]}");
    open_json(dir, body, DFX_E_FORMAT, "more than 8 pre-tokenizers");
}

static void piece_above_128_bytes_is_refused(void **state) {
    char body[1024];
    snprintf(body, sizeof(body), MODEL(SPECIALS ", [\"%0128d\", -1]"), 0);
    open_json(*state, body, DFX_OK, NULL);
    snprintf(body, sizeof(body), MODEL(SPECIALS ", [\"%0129d\", -1]"), 0);
    open_json(*state, body, DFX_E_FORMAT, "piece 3 has 129 bytes, wanted 1 to 128");
}

static void older_metaspace_fields_choose_the_prefix(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *fields;
        int32_t first; /* id of the first piece of "a" */
    } rows[] = {{"", 3}, {", \"add_prefix_space\": true", 3}, {", \"add_prefix_space\": false", 4}};
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        char text[1024];
        dfx_tok_t5 *tok;
        dfx_tokens tokens;
        snprintf(
            text, sizeof(text),
            "{" MODEL(
                SPECIALS
                ", [\"\u2581\", -1], [\"a\", -1]") ", \"pre_tokenizer\": {\"type\": "
                                                   "\"Metaspace\", \"replacement\": \"\u2581\"%s}}",
            rows[i].fields);
        tmpdir_write_text(dir, "tokenizer.json", text);
        assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_OK);
        assert_int_equal(dfx_tok_t5_encode(tok, "a", 1, 4, NULL, &tokens), DFX_OK);
        assert_int_equal(tokens.ids[0], rows[i].first);
        dfx_tokens_free(&tokens);
        dfx_tok_t5_close(tok);
    }
}

static void folder_without_files_says_what_is_wanted(void **state) {
    tmpdir *dir = *state;
    dfx_tok_t5 *tok;
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_E_IO);
    said_error(&dir->log, "tokenizer.json or spiece.model");
    dfx_tok_t5_close(NULL);
}

/* Open dir/spiece.model of these bytes; frees the message. */
static void open_spiece(tmpdir *dir, pb_writer *model, dfx_status wanted, const char *words) {
    dfx_tok_t5 *tok = NULL;
    size_t held = dfx_mem_held_bytes();
    recorder_clear(&dir->log);
    tmpdir_write(dir, "spiece.model", model->data, model->n);
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), wanted);
    if (wanted != DFX_OK)
        said_error(&dir->log, words);
    dfx_tok_t5_close(tok);
    assert_int_equal(dfx_mem_held_bytes(), held);
    free(model->data);
    *model = (pb_writer){0};
}

static void put_specials(pb_writer *model) {
    pb_piece(model, "<pad>", 5, 0, 3);
    pb_piece(model, "</s>", 4, 0, 3);
    pb_piece(model, "<unk>", 5, 0, 2);
}

static void bad_pieces_of_spiece_are_refused(void **state) {
    tmpdir *dir = *state;
    pb_writer model = {0};
    static const struct {
        const char *piece;
        float score;
        unsigned type;
        const char *words;
    } rows[] = {
        {"a", NAN, 0, "score of piece 3 is not a finite number"},
        {"a", INFINITY, 0, "score of piece 3 is not a finite number"},
        {"a", 0, 6, "type 6, which is not supported (a model with byte fallback)"},
        {"a", 0, 7, "type 7, which is not supported"},
        {"<x>", 0, 2, "pieces 2 and 3 are both unknown tokens"},
        {"", 0, 0, "piece 3 has 0 bytes"},
        {"\xff", 0, 0, "piece 3 is not UTF-8"},
        {"<pad>", 0, 4, "are the same text \"<pad>\""},
        {"<extra_id_7>", 0, 4, "are the same text \"<extra_id_7>\""},
    };
    put_specials(&model);
    open_spiece(dir, &model, DFX_OK, NULL);
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        put_specials(&model);
        pb_piece(&model, rows[i].piece, strlen(rows[i].piece), rows[i].score, rows[i].type);
        open_spiece(dir, &model, DFX_E_FORMAT, rows[i].words);
    }
    pb_piece(&model, "a", 1, 0, 0);
    open_spiece(dir, &model, DFX_E_FORMAT, "none of its 1 pieces is the unknown token");
}

/* One number in a spec (2: trainer, 3: normalizer). */
static void open_with_spec(tmpdir *dir, unsigned spec, unsigned field, uint64_t value,
                           dfx_status wanted, const char *words) {
    pb_writer model = {0}, msg = {0};
    put_specials(&model);
    pb_int(&msg, field, value);
    pb_bytes(&model, spec, msg.data, msg.n);
    free(msg.data);
    open_spiece(dir, &model, wanted, words);
}

static void other_kinds_of_spiece_are_refused(void **state) {
    open_with_spec(*state, 2, 3, 1, DFX_OK, NULL);
    open_with_spec(*state, 2, 3, 2, DFX_E_FORMAT, "model_type is 2; only 1");
    open_with_spec(*state, 2, 35, 1, DFX_E_FORMAT, "byte_fallback is 1");
    open_with_spec(*state, 2, 24, 1, DFX_E_FORMAT, "treat_whitespace_as_suffix is 1");
    open_with_spec(*state, 3, 3, 0, DFX_E_FORMAT, "add_dummy_prefix is 0");
    open_with_spec(*state, 3, 4, 0, DFX_E_FORMAT, "remove_extra_whitespaces is 0");
    open_with_spec(*state, 3, 5, 0, DFX_E_FORMAT, "escape_whitespaces is 0");
    open_with_spec(*state, 3, 2, 0, DFX_E_FORMAT, "precompiled_charsmap: wire type 0, wanted 2");
}

static void extra_ids_come_from_the_config(void **state) {
    tmpdir *dir = *state;
    static const struct {
        const char *config;
        size_t n_ids;
    } rows[] = {{"{}", 103}, {"{\"extra_ids\": 2}", 5}, {"{\"extra_ids\": 0}", 3}};
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        pb_writer model = {0};
        dfx_tok_t5 *tok;
        put_specials(&model);
        tmpdir_write(dir, "spiece.model", model.data, model.n);
        free(model.data);
        tmpdir_write_text(dir, "tokenizer_config.json", rows[i].config);
        assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_OK);
        assert_int_equal(dfx_tok_t5_vocab_size(tok), rows[i].n_ids);
        dfx_tok_t5_close(tok);
    }
}

static void control_pieces_match_as_written_but_not_inside_text(void **state) {
    tmpdir *dir = *state;
    pb_writer model = {0};
    dfx_tok_t5 *tok;
    dfx_tokens tokens;
    put_specials(&model);
    pb_piece(&model, "\u2581", 3, -1, 0);
    pb_piece(&model, "unused", 6, -1, 5);
    tmpdir_write(dir, "spiece.model", model.data, model.n);
    free(model.data);
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_OK);
    assert_int_equal(dfx_tok_t5_encode(tok, "<pad> unused", 12, 5, NULL, &tokens), DFX_OK);
    assert_memory_equal(tokens.ids, ((int32_t[]){0, 3, 2, 1, 0}), sizeof(int32_t[5]));
    assert_int_equal(tokens.n_unknown, 1);
    dfx_tokens_free(&tokens);
    dfx_tok_t5_close(tok);
}

static void broken_protobuf_is_refused(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
        {"\x0a", 1},                                              /* no length */
        {"\x0a\x05\x0a", 3},                                      /* shorter than its length */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     /* length of 2^64 - 1 */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},     /* varint of 65 bits */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, /* varint of 11 bytes */
        {"\x02\x00", 2},                                          /* field 0 */
        {"\x0b", 1},                                              /* group */
        {"\x0f", 1},                                              /* wire type 7 */
        {"\x15\x00\x00\x00", 4},                                  /* cut 4-byte value */
        {"\x11\x00\x00\x00\x00\x00\x00\x00", 8},                  /* cut 8-byte value */
        {"\x0a\x02\x15\x00", 4},                                  /* the same inside a piece */
    };
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        pb_writer model = {0};
        pb_raw(&model, rows[i].bytes, rows[i].n);
        open_spiece(*state, &model, DFX_E_FORMAT, "not a protocol buffer");
    }
}

/* A map of one block: "a" -> "b". Unit 0 leads to its own block; the leaf of 'a' is in unit 1. */
enum { BLOCK = 256, BLOB_BYTES = 4 + 4 * BLOCK + 2 };
static void make_blob(unsigned char blob[BLOB_BYTES]) {
    uint32_t words[1 + BLOCK] = {4 * BLOCK};
    words[1 + 'a'] = (uint32_t)('a' ^ 1) << 10 | 0x100 | 'a';
    words[1 + 1] = 0x80000000;
    memcpy(blob, words, sizeof(words));
    memcpy(blob + sizeof(words), "b", 2);
}

static void set_unit(unsigned char blob[BLOB_BYTES], size_t at, uint32_t unit) {
    memcpy(blob + 4 + 4 * at, &unit, sizeof(unit));
}

static void refuse_blob(tmpdir *dir, const unsigned char *blob, size_t n, const char *words) {
    dfx_precompiled map;
    recorder_clear(&dir->log);
    assert_int_equal(dfx_precompiled_init(&map, "map", blob, n, &dir->log.sink), DFX_E_FORMAT);
    said_error(&dir->log, words);
}

static void character_map_maps_and_damaged_ones_are_refused(void **state) {
    tmpdir *dir = *state;
    unsigned char blob[BLOB_BYTES];
    dfx_precompiled map;
    dfx_text_buf out = {0};
    make_blob(blob);
    assert_int_equal(dfx_precompiled_init(&map, "map", blob, sizeof(blob), &dir->log.sink), DFX_OK);
    assert_int_equal(dfx_precompiled_apply(&map, "cab", 3, NULL, &out), DFX_OK);
    assert_int_equal(out.n, 3);
    assert_memory_equal(out.text, "cbb", 3);
    dfx_free(out.text);
    dfx_precompiled_fini(&map);

    refuse_blob(dir, blob, 3, "character map of 3 bytes");
    refuse_blob(dir, blob, 4 + 4 * BLOCK - 1, "whose trie would have 1024 bytes");
    refuse_blob(dir, blob, 4 + 4 * BLOCK, "its last replacement has no end");
    refuse_blob(dir, blob, BLOB_BYTES - 1, "its last replacement has no end");
    set_unit(blob, 'z', 0x1FF << 10 | 'z');
    refuse_blob(dir, blob, sizeof(blob), "unit 122 leads to unit");
    make_blob(blob);
    set_unit(blob, 1, 0x80000002);
    refuse_blob(dir, blob, sizeof(blob), "names replacement 2 in 2 bytes");
    set_unit(blob, 1, 0);
    refuse_blob(dir, blob, sizeof(blob), "names replacement 0");
    make_blob(blob);
    set_unit(blob, 0, 0x80000000 | 0x1FF << 10); /* the root as a leaf */
    refuse_blob(dir, blob, sizeof(blob), "unit 0 leads to unit 2097663 of 256");
    make_blob(blob);
    blob[BLOB_BYTES - 2] = 0xFF;
    refuse_blob(dir, blob, sizeof(blob), "is not UTF-8");
    make_blob(blob);
    blob[0] = 4; /* of the length, which was 0x400 */
    refuse_blob(dir, blob, sizeof(blob), "whose trie would have 1028 bytes");
}

static void replacement_above_64_bytes_is_refused(void **state) {
    unsigned char blob[BLOB_BYTES + 64];
    memset(blob, 'x', sizeof(blob));
    make_blob(blob);
    blob[BLOB_BYTES - 1] = 'x';
    blob[sizeof(blob) - 1] = '\0';
    refuse_blob(*state, blob, sizeof(blob), "a replacement of 65 bytes, wanted at most 64");
}

/* Whatever a damaged file does, it opens and encodes, or is refused as a format. */
static void try_damaged(tmpdir *dir, const char *name, const unsigned char *data, size_t n) {
    static const char text[] = "a red ba\u00e9ll \u2026 <pad>x";
    dfx_tok_t5 *tok;
    dfx_tokens tokens;
    size_t held = dfx_mem_held_bytes();
    tmpdir_write(dir, name, data, n);
    dfx_status status = tok_t5_open_dir(dir->path, NULL, &tok);
    if (status == DFX_OK) {
        assert_int_equal(dfx_tok_t5_encode(tok, text, sizeof(text) - 1, 16, NULL, &tokens), DFX_OK);
        for (size_t i = 0; i < 16; i++)
            assert_in_range(tokens.ids[i], 0, dfx_tok_t5_vocab_size(tok) - 1);
        dfx_tokens_free(&tokens);
        dfx_tok_t5_close(tok);
    } else {
        assert_int_equal(status, DFX_E_FORMAT);
    }
    assert_int_equal(dfx_mem_held_bytes(), held);
}

static void any_damage_of_a_small_spiece_is_survived(void **state) {
    tmpdir *dir = *state;
    pb_writer model = {0}, spec = {0};
    unsigned char blob[BLOB_BYTES];
    make_blob(blob);
    put_specials(&model);
    pb_piece(&model, "\u2581red", 6, -1, 0);
    pb_piece(&model, "b", 1, -2, 0);
    pb_bytes(&spec, 2, blob, sizeof(blob));
    pb_bytes(&model, 3, spec.data, spec.n);
    for (size_t n = 0; n < model.n; n++)
        try_damaged(dir, "spiece.model", model.data, n);
    for (size_t i = 0; i < model.n; i++)
        for (unsigned bit = 0; bit < 8; bit += i < 120 ? 1 : 3) {
            model.data[i] ^= (unsigned char)(1u << bit);
            try_damaged(dir, "spiece.model", model.data, model.n);
            model.data[i] ^= (unsigned char)(1u << bit);
        }
    free(model.data);
    free(spec.data);
}

static void any_cut_of_a_small_json_is_refused(void **state) {
    tmpdir *dir = *state;
    static const char text[] = "{" ADDED(PLAIN ", \"content\": \"b\", \"id\": 4") "}";
    for (size_t n = 0; n + 1 < sizeof(text); n++) {
        dfx_tok_t5 *tok;
        tmpdir_write(dir, "tokenizer.json", text, n);
        assert_int_equal(tok_t5_open_dir(dir->path, NULL, &tok), DFX_E_FORMAT);
    }
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_DIR(bad_json_is_refused_with_a_sentence),
        WITH_DIR(deep_and_many_parts_are_refused),
        WITH_DIR(piece_above_128_bytes_is_refused),
        WITH_DIR(older_metaspace_fields_choose_the_prefix),
        WITH_DIR(folder_without_files_says_what_is_wanted),
        WITH_DIR(bad_pieces_of_spiece_are_refused),
        WITH_DIR(other_kinds_of_spiece_are_refused),
        WITH_DIR(extra_ids_come_from_the_config),
        WITH_DIR(control_pieces_match_as_written_but_not_inside_text),
        WITH_DIR(broken_protobuf_is_refused),
        WITH_DIR(character_map_maps_and_damaged_ones_are_refused),
        WITH_DIR(replacement_above_64_bytes_is_refused),
        WITH_DIR(any_damage_of_a_small_spiece_is_survived),
        WITH_DIR(any_cut_of_a_small_json_is_refused),
    };
    return cmocka_run_group_tests_name("tok_t5_files", tests, NULL, NULL);
}
