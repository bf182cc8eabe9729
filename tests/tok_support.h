/* What the tokenizer tests share: golden files of prompts and ids, and the folders of vocabularies.
 * */
#ifndef DFX_TESTS_TOK_SUPPORT_H
#define DFX_TESTS_TOK_SUPPORT_H

#include "tests/tmpdir.h"

#include <jansson.h>

#include "models/tok_clip.h"
#include "models/tok_t5.h"

/* Open the tokenizer whose files lie in the folder `dir` itself. */
dfx_status tok_clip_open_dir(const char *dir, const dfx_sink *sink, dfx_tok_clip **out);
dfx_status tok_t5_open_dir(const char *dir, const dfx_sink *sink, dfx_tok_t5 **out);

/* Encode `text`; the test's own way to say which tokenizer. Returns the status of the encode call.
 * */
typedef dfx_status (*golden_encode)(const void *tok, const char *text, size_t bytes, size_t max_len,
                                    const dfx_sink *sink, dfx_tokens *out);

/* A golden file of this folder (tests/golden); json_decref by the caller. U+0000 in texts is fine.
 * */
json_t *golden_load(const char *name);

/* Every entry {"text": ..., key: [ids]} of `prompts` must encode to exactly these ids, without
 * padding, within max_len. With `only`, entries whose "case" is another are passed over. Entries
 * without the key, or with null in it, have no expectation. Fails the test, showing text and ids,
 * at the end when any differed. Returns how many were compared. */
size_t golden_check(const json_t *prompts, const char *key, const char *only, size_t max_len,
                    golden_encode encode, const void *tok);

/* Encode NUL-terminated text and compare with `n` ids (no padding). */
void assert_ids(golden_encode encode, const void *tok, const char *text, const int32_t *ids,
                size_t n);
#define ASSERT_IDS(encode, tok, text, ...)                        \
    assert_ids((encode), (tok), (text), (int32_t[]){__VA_ARGS__}, \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* The folder `name` of the real vocabularies; NULL when this machine does not have it. */
const char *real_vocabulary(const char *name, char path[TMPDIR_PATH]);

/* Of this process, so that a busy machine does not fail a test. */
double cpu_seconds(void);

/* Allocations fail at the first, second, third ... call until one run is clean: the status must be
 * DFX_E_NOFIT with one sentence, and nothing may stay held. `run` opens, works and closes. */
void assert_survives_faults(dfx_status (*run)(void *user, const dfx_sink *sink), void *user,
                            recorder *log);

#endif
