/* T5's tokenizer: ids equal those of the Python library on golden prompts, from tokenizer.json and
 * from spiece.model, and limits. Files that are not what they should be: test_tok_t5_files.c.
 * Groups that need the real vocabulary are skipped where DFX_TOKENIZERS does not name it. */
#include "tests/tok_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "models/tok_t5.h"
#include "tests/spiece_writer.h"

enum { DEV_LIMIT = 512, SCHNELL_LIMIT = 256, LONG = 4096, MIB = 1 << 20 };

#define SCENES "models/scenes/tokenizer_2"

static dfx_status encode(const void *tok, const char *text, size_t bytes, size_t max_len,
                         const dfx_sink *sink, dfx_tokens *out) {
    return dfx_tok_t5_encode(tok, text, bytes, max_len, sink, out);
}

/* *state is the open tokenizer, or NULL without the vocabulary. */
static int open_real(void **state) {
    char path[TMPDIR_PATH];
    dfx_tok_t5 *tok = NULL;
    const char *dir = real_vocabulary("t5-xxl", path);
    if (dir && tok_t5_open_dir(dir, NULL, &tok) != DFX_OK)
        return -1;
    *state = tok;
    return 0;
}

static int open_scenes(void **state) {
    return tok_t5_open_dir(SCENES, NULL, (dfx_tok_t5 **)state) == DFX_OK ? 0 : -1;
}

static int close_tok(void **state) {
    dfx_tok_t5_close(*state);
    return 0;
}

static const dfx_tok_t5 *real_or_skip(void **state) {
    if (!*state)
        skip();
    return *state;
}

static void check_case(void **state, const char *name, size_t n_wanted) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    json_t *root = golden_load("tokenizer-cases.json");
    size_t n = golden_check(json_object_get(root, "prompts"), "t5", name, LONG, encode, tok);
    json_decref(root);
    assert_int_equal(n, n_wanted);
}

static void d01_blank_prompts_are_the_end_token(void **state) {
    check_case(state, "D01", 5);
}
static void d02_case_is_kept(void **state) {
    check_case(state, "D02", 3);
}
static void d06_white_space_collapses(void **state) {
    check_case(state, "D06", 9);
}
static void d07_apostrophes_as_reference(void **state) {
    check_case(state, "D07", 7);
}
static void d08_accents_composed_and_decomposed_are_same(void **state) {
    check_case(state, "D08", 8);
}
static void d09_unknown_run_is_one_token(void **state) {
    check_case(state, "D09", 8);
}
static void d11_markup_is_literal(void **state) {
    check_case(state, "D11", 6);
}
static void d13_prompt_syntax_is_literal(void **state) {
    check_case(state, "D13", 8);
}
static void d14_compatibility_characters_are_folded(void **state) {
    check_case(state, "D14", 6);
}
static void d16_hundred_letters_as_reference(void **state) {
    check_case(state, "D16", 1);
}
static void d17_smoke_strings_as_reference(void **state) {
    check_case(state, "D17", 4);
}

static void encode_cats(const dfx_tok_t5 *tok, size_t n, size_t max_len, dfx_tokens *out) {
    char *text = test_malloc(4 * n + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(text + 4 * i, "cat ", 5);
    assert_int_equal(dfx_tok_t5_encode(tok, text, 4 * n, max_len, NULL, out), DFX_OK);
    test_free(text);
}

static void d04_limit_keeps_end_token_and_counts_dropped(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    static const struct {
        size_t words, max_len, n_dropped;
    } rows[] = {{511, DEV_LIMIT, 0},
                {512, DEV_LIMIT, 1},
                {600, DEV_LIMIT, 89},
                {511, SCHNELL_LIMIT, 256},
                {255, SCHNELL_LIMIT, 0}};
    for (size_t i = 0; i < DFX_COUNT(rows); i++) {
        dfx_tokens tokens;
        encode_cats(tok, rows[i].words, rows[i].max_len, &tokens);
        assert_int_equal(tokens.n, rows[i].max_len);
        for (size_t k = 0; k + 1 < tokens.n; k++)
            assert_int_equal(tokens.ids[k], 1712);
        assert_int_equal(tokens.ids[tokens.n - 1], 1);
        assert_int_equal(tokens.n_dropped, rows[i].n_dropped);
        dfx_tokens_free(&tokens);
    }
}

static void d05_padding_is_zero_up_to_length(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    static const size_t lengths[] = {SCHNELL_LIMIT, DEV_LIMIT};
    for (size_t i = 0; i < DFX_COUNT(lengths); i++) {
        dfx_tokens tokens;
        encode_cats(tok, 3, lengths[i], &tokens);
        assert_int_equal(tokens.n, 4);
        assert_int_equal(tokens.ids[3], 1);
        for (size_t k = 4; k < lengths[i]; k++)
            assert_int_equal(tokens.ids[k], 0);
        dfx_tokens_free(&tokens);
    }
}

static void d15_bad_utf8_becomes_replacement_characters(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    /* T5's map makes U+FFFD a space */
    ASSERT_IDS(encode, tok, "a \xff cat", 3, 9, 1712, 1);
    ASSERT_IDS(encode, tok, "a cat\xe7\x8c", 3, 9, 1712, 1);
    ASSERT_IDS(encode, tok,
               "a\xc0\x80"
               "cat",
               3, 9, 1712, 1);
    ASSERT_IDS(encode, tok,
               "a\xed\xa0\x80"
               "cat",
               3, 9, 1712, 1);
}

static void unknown_tokens_are_counted_as_fused(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    static const char text[] = "a \u732B\u732B cat \u732B<unk>";
    dfx_tokens tokens;
    assert_int_equal(encode(tok, text, sizeof(text) - 1, 32, NULL, &tokens), DFX_OK);
    assert_int_equal(tokens.n_unknown, 3);
    dfx_tokens_free(&tokens);
}

/* Encode a repeated text within 2 s and 100 MiB (case D16), and return the ids of the text. */
static size_t encode_long(const dfx_tok_t5 *tok, const char *unit, size_t n_units) {
    size_t unit_bytes = strlen(unit), held = dfx_mem_held_bytes();
    char *text = test_malloc(unit_bytes * n_units);
    for (size_t i = 0; i < n_units; i++)
        memcpy(text + i * unit_bytes, unit, unit_bytes);
    dfx_tokens tokens;
    double begin = cpu_seconds();
    assert_int_equal(encode(tok, text, unit_bytes * n_units, DEV_LIMIT, NULL, &tokens), DFX_OK);
    double seconds = cpu_seconds() - begin;
#ifndef DFX_SANITIZED
    assert_true(seconds < 2);
#endif
    size_t n_ids = tokens.n - 1 + tokens.n_dropped;
    print_message("%zu x %.4s: %.0f ms, %zu ids\n", n_units, unit, 1e3 * seconds, n_ids);
    dfx_tokens_free(&tokens);
    test_free(text);
    assert_int_equal(dfx_mem_held_bytes(), held);
    assert_true(dfx_mem_peak_bytes() - held < 100 * (size_t)MIB);
    return n_ids;
}

static void d16_very_long_input_is_linear(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    assert_int_equal(encode_long(tok, "a", MIB), MIB + 1);
    assert_int_equal(encode_long(tok, " ", MIB), 0);
    assert_int_equal(encode_long(tok, "'", MIB), MIB + 1);
    assert_int_equal(encode_long(tok, "\U0001F431", 100000), 2);
    assert_int_equal(encode_long(tok, "\u0301\u0323", MIB / 4), 2);
    /* one character that the map makes 18 of, three of them spaces */
    assert_true(encode_long(tok, "\uFDFA", MIB / 3) > MIB / 3);
    assert_true(encode_long(tok, "<extra_id_", MIB / 10) > MIB / 10);
}

static void real_vocabulary_has_published_sizes(void **state) {
    const dfx_tok_t5 *tok = real_or_skip(state);
    assert_int_equal(dfx_tok_t5_vocab_size(tok), 32100);
    assert_int_equal(dfx_tok_t5_model_max_length(tok), 512);
}

static void check_all_prompts(const dfx_tok_t5 *tok) {
    json_t *root = golden_load("tokenizers.json");
    const json_t *prompts = json_object_get(root, "prompts");
    assert_int_equal(golden_check(prompts, "t5", NULL, LONG, encode, tok), 175);
    assert_true(golden_check(prompts, "t5_512", NULL, DEV_LIMIT, encode, tok) >= 2);
    json_decref(root);
    root = golden_load("tokenizer-goldens.json");
    assert_int_equal(golden_check(root, "t5", NULL, LONG, encode, tok), 25);
    json_decref(root);
}

static void all_golden_prompts_equal_tokenizers(void **state) {
    check_all_prompts(real_or_skip(state));
}

static void spiece_model_of_same_vocabulary_gives_same_ids(void **state) {
    tmpdir *dir = *state;
    char path[TMPDIR_PATH], json_path[TMPDIR_PATH];
    const char *real = real_vocabulary("t5-xxl", path);
    if (!real)
        skip();
    snprintf(json_path, sizeof(json_path), "%.4000s/tokenizer.json", real);
    spiece_from_json(dir, json_path, 32000);
    dfx_tok_t5 *tok;
    assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_OK);
    assert_int_equal(dfx_tok_t5_vocab_size(tok), 32100);
    check_all_prompts(tok);
    dfx_tok_t5_close(tok);
}

static void opening_real_vocabulary_is_quick(void **state) {
    char path[TMPDIR_PATH];
    const char *dir = real_vocabulary("t5-xxl", path);
    if (!dir)
        skip();
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        dfx_tok_t5 *tok;
        double begin = cpu_seconds();
        assert_int_equal(tok_t5_open_dir(dir, NULL, &tok), DFX_OK);
        double seconds = cpu_seconds() - begin;
        best = seconds < best ? seconds : best;
        dfx_tok_t5_close(tok);
    }
    print_message("open: %.1f ms\n", 1e3 * best);
#ifndef DFX_SANITIZED
    assert_true(best < 0.5);
#endif
}

static void scenes_prompts_equal_tokenizers(void **state) {
    json_t *root = golden_load("scenes-tokenizers.json");
    const json_t *prompts = json_object_get(root, "prompts");
    assert_true(golden_check(prompts, "t5", NULL, LONG, encode, *state) >= 60);
    json_decref(root);
    assert_int_equal(dfx_tok_t5_model_max_length(*state), 64);
}

static void scenes_long_prompt_is_cut_at_64(void **state) {
    dfx_tokens tokens;
    char text[80 * 5 + 1] = "";
    for (size_t i = 0; i < 80; i++)
        memcpy(text + 5 * i, "ball ", 6);
    assert_int_equal(encode(*state, text, sizeof(text) - 1, 64, NULL, &tokens), DFX_OK);
    assert_int_equal(tokens.n, 64);
    assert_int_equal(tokens.ids[62], 9); /* the piece of "ball" in the vocabulary file */
    assert_int_equal(tokens.ids[63], 1);
    assert_int_equal(tokens.n_dropped, 17);
    dfx_tokens_free(&tokens);
}

static void every_variant_of_tokenizer_json_equals_tokenizers(void **state) {
    tmpdir *dir = *state;
    json_t *root = golden_load("tokenizer-variants.json");
    const json_t *list = json_object_get(root, "variants");
    assert_int_equal(json_array_size(list), 11);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *variant = json_array_get(list, i);
        char *text = json_dumps(json_object_get(variant, "tokenizer"), 0);
        tmpdir_write_text(dir, "tokenizer.json", text);
        free(text);
        dfx_tok_t5 *tok;
        assert_int_equal(tok_t5_open_dir(dir->path, &dir->log.sink, &tok), DFX_OK);
        print_message("%s\n", json_string_value(json_object_get(variant, "name")));
        golden_check(json_object_get(variant, "prompts"), "t5", NULL, LONG, encode, tok);
        dfx_tok_t5_close(tok);
    }
    json_decref(root);
}

static void no_room_for_end_token_and_too_long_prompt_are_refused(void **state) {
    tmpdir *dir = *state;
    dfx_tok_t5 *tok;
    dfx_tokens tokens;
    char *text = calloc(1, DFX_TOKENIZER_BYTES_MAX + 1);
    assert_int_equal(tok_t5_open_dir(SCENES, NULL, &tok), DFX_OK);
    assert_int_equal(encode(tok, "a", 1, 0, &dir->log.sink, &tokens), DFX_E_USAGE);
    said_error(&dir->log, "0 tokens has no room for the 1");
    recorder_clear(&dir->log);
    assert_int_equal(encode(tok, text, DFX_TOKENIZER_BYTES_MAX + 1, 8, &dir->log.sink, &tokens),
                     DFX_E_USAGE);
    said_error(&dir->log, "at most 4194304");
    ASSERT_IDS(encode, tok, "", 1);
    dfx_tok_t5_close(tok);
    free(text);
}

static dfx_status open_encode_close(void *user, const dfx_sink *sink) {
    static const char text[] = "an old <pad> caf\u00e9\u2026 \ufb01 red  xylophone";
    const tmpdir *dir = user;
    dfx_tok_t5 *tok;
    dfx_tokens tokens;
    DFX_TRY(tok_t5_open_dir(dir->path, sink, &tok));
    dfx_status status = dfx_tok_t5_encode(tok, text, sizeof(text) - 1, 64, sink, &tokens);
    dfx_tokens_free(&tokens);
    dfx_tok_t5_close(tok);
    return status;
}

static void failing_allocations_leak_nothing(void **state) {
    tmpdir *dir = *state;
    json_t *root = golden_load("tokenizer-variants.json");
    const json_t *list = json_object_get(root, "variants");
    char *text = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *variant = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(variant, "name")), "t5") == 0)
            text = json_dumps(json_object_get(variant, "tokenizer"), 0);
    }
    json_decref(root);
    assert_non_null(text);
    tmpdir_write_text(dir, "tokenizer.json", text);
    free(text);
    assert_survives_faults(open_encode_close, dir, &dir->log);
}

static void failing_allocations_with_spiece_leak_nothing(void **state) {
    tmpdir *dir = *state;
    spiece_from_json(dir, SCENES "/tokenizer.json", 1000);
    assert_survives_faults(open_encode_close, dir, &dir->log);
}

#define WITH_REAL(test) cmocka_unit_test_setup_teardown(test, open_real, close_tok)
#define WITH_SCENES(test) cmocka_unit_test_setup_teardown(test, open_scenes, close_tok)
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_REAL(d01_blank_prompts_are_the_end_token),
        WITH_REAL(d02_case_is_kept),
        WITH_REAL(d04_limit_keeps_end_token_and_counts_dropped),
        WITH_REAL(d05_padding_is_zero_up_to_length),
        WITH_REAL(d06_white_space_collapses),
        WITH_REAL(d07_apostrophes_as_reference),
        WITH_REAL(d08_accents_composed_and_decomposed_are_same),
        WITH_REAL(d09_unknown_run_is_one_token),
        WITH_REAL(d11_markup_is_literal),
        WITH_REAL(d13_prompt_syntax_is_literal),
        WITH_REAL(d14_compatibility_characters_are_folded),
        WITH_REAL(d15_bad_utf8_becomes_replacement_characters),
        WITH_REAL(d16_hundred_letters_as_reference),
        WITH_REAL(d16_very_long_input_is_linear),
        WITH_REAL(d17_smoke_strings_as_reference),
        WITH_REAL(unknown_tokens_are_counted_as_fused),
        WITH_REAL(real_vocabulary_has_published_sizes),
        WITH_REAL(all_golden_prompts_equal_tokenizers),
        WITH_SCENES(scenes_prompts_equal_tokenizers),
        WITH_SCENES(scenes_long_prompt_is_cut_at_64),
        cmocka_unit_test(opening_real_vocabulary_is_quick),
        WITH_DIR(spiece_model_of_same_vocabulary_gives_same_ids),
        WITH_DIR(every_variant_of_tokenizer_json_equals_tokenizers),
        WITH_DIR(no_room_for_end_token_and_too_long_prompt_are_refused),
        WITH_DIR(failing_allocations_leak_nothing),
        WITH_DIR(failing_allocations_with_spiece_leak_nothing),
    };
    return cmocka_run_group_tests_name("tok_t5", tests, NULL, NULL);
}
