/* Pull reader for JSON in a caller's buffer: one pass, no tree, no allocation, no recursion. It
 * reads the headers of weight files, where a tree would cost some hundred bytes for every two of
 * the file and where 64-bit offsets must stay exact. (Configs and indexes are small: core/json.h.)
 *
 * Strings are unescaped in place and NUL-terminated over their closing quote, so the buffer is
 * changed and strings live as long as it does. Strict RFC 8259: valid UTF-8, no lone surrogates, no
 * raw control characters; U+0000 is refused because C strings end there.
 *
 *     dfx_jscan scan = {.text = text, .bytes = bytes};
 *     if (!dfx_jscan_open(&scan, '{')) ...
 *     for (size_t n = 0; dfx_jscan_next(&scan, '}', &n);)
 *         if (!dfx_jscan_key(&scan, &key) || !dfx_jscan_whole(&scan, &value)) ...
 *     if (scan.fault) ...
 *
 * The first fault sticks: `fault` says what was wanted and `at` is where; every later call is
 * false. */
#ifndef DFX_CORE_JSCAN_H
#define DFX_CORE_JSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DFX_JSCAN_DEPTH = 64 }; /* of values that are skipped */

typedef struct dfx_jscan {
    char *text; /* borrowed, changed */
    size_t bytes, at;
    const char *fault; /* NULL, or a string literal */
} dfx_jscan;

/* The byte that the next value starts with, after white space; 0 at the end and after a fault. */
char dfx_jscan_peek(dfx_jscan *scan);

/* Enter an object or list: the next byte must be `brace`, '{' or '['. */
bool dfx_jscan_open(dfx_jscan *scan, char brace);

/* Step to the next member; *n_seen is 0 before the first and counts them. False at the closing
 * `brace`, which is taken, and on a fault. */
bool dfx_jscan_next(dfx_jscan *scan, char brace, size_t *n_seen);

bool dfx_jscan_string(dfx_jscan *scan, char **out);
bool dfx_jscan_key(dfx_jscan *scan, char **out); /* a string and its colon */

/* A number of digits alone, 0 to 2^63 - 1: no sign, fraction or exponent. */
bool dfx_jscan_whole(dfx_jscan *scan, int64_t *out);

/* The word null. False without a fault when something else stands there. */
bool dfx_jscan_null(dfx_jscan *scan);

/* Any value, at most DFX_JSCAN_DEPTH levels deep. */
bool dfx_jscan_skip(dfx_jscan *scan);

/* Only white space is left. */
bool dfx_jscan_end(dfx_jscan *scan);

#endif
