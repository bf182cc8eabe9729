/* Unicode text for the tokenizers: UTF-8 in and out, the character classes they ask for, and NFC.
 *
 * Text that enters a tokenizer goes through dfx_utf8_repair() once; everything below may then rely
 * on valid UTF-8. NUL is an ordinary character: lengths count, terminators do not.
 * Properties come from libutf8proc (Unicode 14 or later). */
#ifndef DFX_MODELS_UNICODE_H
#define DFX_MODELS_UNICODE_H

#include "core/mem.h"

enum { DFX_UTF8_BYTES_MAX = 4 };

/* A growing piece of text; zero it before the first use, dfx_free(buf.text) at the end. */
typedef struct dfx_text_buf {
    char *text; /* owned; not terminated */
    size_t n, cap;
} dfx_text_buf;

dfx_status dfx_text_buf_add(dfx_text_buf *buf, const dfx_sink *sink, const char *text,
                            size_t bytes);

/* Decode the character at text[0], bytes >= 1, and return its bytes (1 to 4). A sequence that is
 * not UTF-8 (stray or missing continuation, overlong form, surrogate, above U+10FFFF) gives U+FFFD
 * and the bytes of its longest well-formed beginning, at least 1: the practice that the Unicode
 * standard recommends (chapter 3.9). */
size_t dfx_utf8_next(const char *text, size_t bytes, int32_t *code);

/* Encode; returns the bytes. `code` is a scalar value. */
size_t dfx_utf8_put(int32_t code, char out[DFX_UTF8_BYTES_MAX]);

bool dfx_utf8_valid(const char *text, size_t bytes);

/* A NUL-terminated copy with every bad sequence replaced by U+FFFD. *out is owned by the caller
 * (dfx_free). */
dfx_status dfx_utf8_repair(const char *text, size_t bytes, const dfx_sink *sink, char **out,
                           size_t *out_bytes);

bool dfx_code_is_space(int32_t code);  /* White_Space */
bool dfx_code_is_letter(int32_t code); /* general category L* */
bool dfx_code_is_number(int32_t code); /* general category N* */

/* Full lower-casing of one character without context: 1 or 2 characters (U+0130 is the one that
 * grows, and final sigma has no rule of its own). Returns how many. */
size_t dfx_code_lower(int32_t code, int32_t out[2]);

/* NFC of valid UTF-8, as code points. Linear in the length, also for long runs of combining marks.
 * *out is owned by the caller (dfx_free). */
dfx_status dfx_nfc(const char *text, size_t bytes, const dfx_sink *sink, int32_t **out,
                   size_t *n_out);

#endif
