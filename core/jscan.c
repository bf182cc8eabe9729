/* See jscan.h. Invariant: at <= bytes, and nothing at or after text[at] has been changed yet. */
#include "core/jscan.h"

#include <string.h>

static bool fail(dfx_jscan *scan, const char *fault) {
    if (!scan->fault)
        scan->fault = fault;
    return false;
}

/* The byte at the cursor; 0 at the end, which no rule accepts (a NUL in the text is as wrong). */
static unsigned char here(const dfx_jscan *scan) {
    return scan->at < scan->bytes ? (unsigned char)scan->text[scan->at] : 0;
}

static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}

char dfx_jscan_peek(dfx_jscan *scan) {
    if (scan->fault)
        return 0;
    for (unsigned char c; (c = here(scan)) == ' ' || c == '\n' || c == '\r' || c == '\t';)
        scan->at++;
    return (char)here(scan);
}

bool dfx_jscan_open(dfx_jscan *scan, char brace) {
    if (dfx_jscan_peek(scan) != brace)
        return fail(scan, brace == '{' ? "wanted an object" : "wanted a list");
    scan->at++;
    return true;
}

bool dfx_jscan_next(dfx_jscan *scan, char brace, size_t *n_seen) {
    char c = dfx_jscan_peek(scan);
    if (scan->fault)
        return false;
    if (c == brace) {
        scan->at++;
        return false;
    }
    if (*n_seen > 0) {
        if (c != ',')
            return fail(scan, brace == '}' ? "wanted ',' or '}'" : "wanted ',' or ']'");
        scan->at++;
    }
    ++*n_seen;
    return true;
}

/* Four hex digits at the cursor, or -1. */
static int32_t hex4(dfx_jscan *scan) {
    int32_t value = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        unsigned char c = here(scan), letter = c | 0x20;
        if (is_digit(c))
            value = value << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return value;
}

static size_t put_utf8(char *dst, uint32_t code) {
    if (code < 0x80) {
        dst[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6)
        dst[i] = (char)(0x80 | (code & 0x3f));
    dst[0] = (char)(lead[n] | code);
    return n;
}

/* The escape at the cursor, behind its backslash, written to dst. It never grows: \uXXXX gives at
 * most 3 bytes, a pair of them 4. */
static bool unescape(dfx_jscan *scan, char *dst, size_t *n) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned char c = here(scan);
    const char *simple = c ? strchr(from, c) : NULL;
    *n = 1;
    if (simple) {
        *dst = to[simple - from];
        scan->at++;
        return true;
    }
    if (c != 'u')
        return fail(scan, "a string holds an unknown escape");
    scan->at++;
    int32_t code = hex4(scan);
    if (code < 0)
        return fail(scan, "\\u without four hex digits");
    if (code == 0)
        return fail(scan, "a string holds U+0000");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail(scan, "a string holds a lone surrogate");
    if (code >= 0xd800 && code <= 0xdbff) {
        bool escape = scan->bytes - scan->at >= 6 && memcmp(scan->text + scan->at, "\\u", 2) == 0;
        scan->at += escape ? 2 : 0;
        int32_t low = escape ? hex4(scan) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(scan, "a string holds a lone surrogate");
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
    }
    *n = put_utf8(dst, (uint32_t)code);
    return true;
}

/* Bytes of the UTF-8 character at p, or 0 when it is none: RFC 3629, so no overlong forms, no
 * surrogates, nothing past U+10FFFF. */
static size_t utf8_bytes(const unsigned char *p, size_t left) {
    unsigned char low = 0x80, high = 0xbf;
    size_t n = p[0] >= 0xc2 && p[0] <= 0xdf   ? 2
               : p[0] >= 0xe0 && p[0] <= 0xef ? 3
               : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                              : 0;
    if (n == 0 || n > left)
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool dfx_jscan_string(dfx_jscan *scan, char **out) {
    if (dfx_jscan_peek(scan) != '"')
        return fail(scan, "wanted a string");
    scan->at++;
    char *dst = scan->text + scan->at;
    *out = dst;
    for (;;) {
        unsigned char c = here(scan);
        size_t n = 1;
        if (c == '"') {
            scan->at++;
            *dst = '\0'; /* at the quote, or before it where escapes shrank */
            return true;
        }
        if (c == '\\') {
            scan->at++;
            if (!unescape(scan, dst, &n))
                return false;
        } else if (c < 0x20) {
            return fail(scan, scan->at == scan->bytes ? "a string is not closed"
                                                      : "a string holds a raw control character");
        } else {
            const char *src = scan->text + scan->at;
            n = c < 0x80 ? 1 : utf8_bytes((const unsigned char *)src, scan->bytes - scan->at);
            if (n == 0)
                return fail(scan, "not valid UTF-8");
            if (dst != src)
                memmove(dst, src, n);
            scan->at += n;
        }
        dst += n;
    }
}

bool dfx_jscan_key(dfx_jscan *scan, char **out) {
    if (!dfx_jscan_string(scan, out))
        return false;
    if (dfx_jscan_peek(scan) != ':')
        return fail(scan, "wanted ':' after a key");
    scan->at++;
    return true;
}

bool dfx_jscan_whole(dfx_jscan *scan, int64_t *out) {
    static const char wanted[] =
        "wanted a whole number from 0 to 2^63 - 1, written in digits alone";
    int64_t value = 0;
    if (!is_digit((unsigned char)dfx_jscan_peek(scan)))
        return fail(scan, wanted);
    bool zero = here(scan) == '0';
    size_t start = scan->at;
    for (; is_digit(here(scan)); scan->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, here(scan) - '0', &value))
            return fail(scan, wanted);
    unsigned char after = here(scan);
    if ((zero && scan->at - start > 1) || after == '.' || after == 'e' || after == 'E')
        return fail(scan, wanted);
    *out = value;
    return true;
}

static bool word(dfx_jscan *scan, const char *text) {
    size_t len = strlen(text);
    if (scan->bytes - scan->at < len || memcmp(scan->text + scan->at, text, len) != 0)
        return false;
    scan->at += len;
    return true;
}

bool dfx_jscan_null(dfx_jscan *scan) {
    return dfx_jscan_peek(scan) == 'n' && word(scan, "null");
}

static bool skip_digits(dfx_jscan *scan) {
    size_t start = scan->at;
    while (is_digit(here(scan)))
        scan->at++;
    return scan->at > start;
}

static bool skip_number(dfx_jscan *scan) {
    scan->at += here(scan) == '-';
    bool zero = here(scan) == '0';
    size_t start = scan->at;
    if (!skip_digits(scan) || (zero && scan->at - start > 1))
        return fail(scan, "not a number");
    if (here(scan) == '.') {
        scan->at++;
        if (!skip_digits(scan))
            return fail(scan, "not a number");
    }
    if (here(scan) == 'e' || here(scan) == 'E') {
        scan->at++;
        scan->at += here(scan) == '+' || here(scan) == '-';
        if (!skip_digits(scan))
            return fail(scan, "not a number");
    }
    return true;
}

static bool skip_plain(dfx_jscan *scan, char first) {
    char *text;
    if (first == '"')
        return dfx_jscan_string(scan, &text);
    if (first == '-' || is_digit((unsigned char)first))
        return skip_number(scan);
    return word(scan, "true") || word(scan, "false") || word(scan, "null") ||
           fail(scan, "wanted a value");
}

/* One turn reads one plain value or opens one level, then closes the levels that end there. */
bool dfx_jscan_skip(dfx_jscan *scan) {
    struct {
        char close;
        size_t n_seen;
    } levels[DFX_JSCAN_DEPTH];
    size_t depth = 0;
    char *key;
    do {
        char first = dfx_jscan_peek(scan);
        if (first == '{' || first == '[') {
            if (depth == DFX_JSCAN_DEPTH)
                return fail(scan, "nested deeper than 64 levels");
            dfx_jscan_open(scan, first);
            levels[depth].close = first == '{' ? '}' : ']';
            levels[depth++].n_seen = 0;
        } else if (!skip_plain(scan, first)) {
            return false;
        }
        while (depth > 0 &&
               !dfx_jscan_next(scan, levels[depth - 1].close, &levels[depth - 1].n_seen)) {
            if (scan->fault)
                return false;
            depth--;
        }
        if (depth > 0 && levels[depth - 1].close == '}' && !dfx_jscan_key(scan, &key))
            return false;
    } while (depth > 0);
    return true;
}

bool dfx_jscan_end(dfx_jscan *scan) {
    dfx_jscan_peek(scan);
    return !scan->fault && (scan->at == scan->bytes || fail(scan, "wanted nothing more"));
}
