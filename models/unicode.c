/* Decoding and classes are small; NFC is split so that no step is worse than linear: libutf8proc
 * decomposes one character at a time and composes, the canonical ordering in between is a counting
 * sort of ours (the library's own is quadratic in the length of a run of combining marks, and a
 * prompt may be one such run). */
#include "models/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "core/sink.h"

enum {
    REPLACEMENT = 0xFFFD,
    DECOMPOSED_MAX = 32, /* a canonical decomposition has at most 4 characters */
    N_CLASSES = 256      /* canonical combining classes */
};

/* The flags of NFC in libutf8proc. */
#define NFC_OPTIONS ((utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE))

dfx_status dfx_text_buf_add(dfx_text_buf *buf, const dfx_sink *sink, const char *text,
                            size_t bytes) {
    if (bytes > buf->cap - buf->n)
        DFX_TRY(
            dfx_grow(sink, buf->n + bytes, 1, "tokenizer text", &buf->cap, (void **)&buf->text));
    if (bytes > 0)
        memcpy(buf->text + buf->n, text, bytes);
    buf->n += bytes;
    return DFX_OK;
}

size_t dfx_utf8_next(const char *text, size_t bytes, int32_t *code) {
    const unsigned char *s = (const unsigned char *)text;
    *code = s[0];
    if (s[0] < 0x80)
        return 1;
    /* the first continuation byte is bounded tighter where overlong forms, surrogates or too large
     * values start */
    size_t more = s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : 3;
    unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[0] < 0xC2 || s[0] > 0xF4) {
        *code = REPLACEMENT;
        return 1;
    }
    int32_t value = s[0] & (0x3F >> more);
    for (size_t i = 1; i <= more; i++) {
        if (i >= bytes || s[i] < low || s[i] > high) {
            *code = REPLACEMENT;
            return i;
        }
        value = value << 6 | (s[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *code = value;
    return more + 1;
}

size_t dfx_utf8_put(int32_t code, char out[DFX_UTF8_BYTES_MAX]) {
    return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)out);
}

/* Bytes of the character at `text`, and whether they are well-formed as they stand. */
static bool is_wellformed(const char *text, size_t bytes, int32_t *code, size_t *taken) {
    *taken = dfx_utf8_next(text, bytes, code);
    return *code != REPLACEMENT || (*taken == 3 && memcmp(text, "\xEF\xBF\xBD", 3) == 0);
}

bool dfx_utf8_valid(const char *text, size_t bytes) {
    int32_t code;
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (!is_wellformed(text + at, bytes - at, &code, &taken))
            return false;
    return true;
}

dfx_status dfx_utf8_repair(const char *text, size_t bytes, const dfx_sink *sink, char **out,
                           size_t *out_bytes) {
    size_t need = 0;
    int32_t code;
    for (size_t at = 0, taken; at < bytes; at += taken)
        need += is_wellformed(text + at, bytes - at, &code, &taken) ? taken : 3;
    void *raw;
    DFX_TRY(dfx_alloc(sink, need + 1, "tokenizer text", &raw));
    char *copy = raw;
    size_t n = 0;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        taken = dfx_utf8_next(text + at, bytes - at, &code);
        n += dfx_utf8_put(code, copy + n);
    }
    *out = copy;
    *out_bytes = n;
    return DFX_OK;
}

bool dfx_code_is_space(
    int32_t code) { /* White_Space of the Unicode character database, PropList.txt */
    return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool dfx_code_is_letter(int32_t code) {
    utf8proc_category_t category = utf8proc_category(code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool dfx_code_is_number(int32_t code) {
    utf8proc_category_t category = utf8proc_category(code);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

size_t dfx_code_lower(int32_t code, int32_t out[2]) {
    if (code == 0x130) { /* alone in SpecialCasing.txt: two characters and no condition */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = utf8proc_tolower(code);
    return 1;
}

static unsigned combining_class(int32_t code) {
    return code < 0x300 ? 0 : (unsigned)utf8proc_get_property(code)->combining_class;
}

/* Stable sort of a run of combining marks by class; `spare` holds n. */
static void sort_marks(int32_t *codes, size_t n, int32_t *spare) {
    size_t first[N_CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++)
        first[combining_class(codes[i]) % N_CLASSES + 1]++;
    for (size_t c = 1; c <= N_CLASSES; c++)
        first[c] += first[c - 1];
    for (size_t i = 0; i < n; i++)
        spare[first[combining_class(codes[i]) % N_CLASSES]++] = codes[i];
    memcpy(codes, spare, n * sizeof(*codes));
}

/* Canonical ordering: every run of marks (class above 0) by class. */
static dfx_status order_marks(int32_t *codes, size_t n, const dfx_sink *sink) {
    int32_t *spare = NULL;
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        unsigned last = combining_class(codes[begin]);
        if (last == 0)
            continue;
        bool sorted = true;
        for (unsigned next; end < n && (next = combining_class(codes[end])) != 0; end++) {
            sorted = sorted && next >= last;
            last = next;
        }
        if (sorted)
            continue;
        if (!spare)
            DFX_TRY(dfx_new_array(sink, n, "tokenizer text", &spare));
        sort_marks(codes + begin, end - begin, spare);
    }
    dfx_free(spare);
    return DFX_OK;
}

dfx_status dfx_nfc(const char *text, size_t bytes, const dfx_sink *sink, int32_t **out,
                   size_t *n_out) {
    int32_t *codes = NULL;
    size_t n = 0, cap = 0;
    dfx_status status = DFX_OK;
    for (size_t at = 0; at < bytes;) {
        int32_t code, parts[DECOMPOSED_MAX];
        at += dfx_utf8_next(text + at, bytes - at, &code);
        int boundclass = UTF8PROC_BOUNDCLASS_START;
        utf8proc_ssize_t n_parts = 1;
        parts[0] = code;
        if (code >= 0xC0) /* nothing below decomposes */
            n_parts =
                utf8proc_decompose_char(code, parts, DECOMPOSED_MAX, NFC_OPTIONS, &boundclass);
        if (n_parts < 0 || n_parts > DECOMPOSED_MAX) {
            status = dfx_fail(sink, DFX_E_INTERNAL, "libutf8proc could not decompose U+%04X: %s",
                              (unsigned)code, n_parts < 0 ? utf8proc_errmsg(n_parts) : "too long");
            goto out;
        }
        if (n + (size_t)n_parts > cap)
            DFX_TRY_OUT(status, dfx_grow(sink, n + (size_t)n_parts, sizeof(*codes),
                                         "tokenizer text", &cap, (void **)&codes));
        memcpy(codes + n, parts, (size_t)n_parts * sizeof(*codes));
        n += (size_t)n_parts;
    }
    DFX_TRY_OUT(status, order_marks(codes, n, sink));
    if (n > 0)
        n = (size_t)utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)n, NFC_OPTIONS);
    *out = codes;
    *n_out = n;
    codes = NULL;
out:
    dfx_free(codes);
    return status;
}
