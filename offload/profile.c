/* Reading and writing profiles. What a profile holds is one table; reading, checking and printing walk over it. Numbers are
 * read and written in the C locale, whatever the program's is. */
#include "offload/profile.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "offload/profiles.h"

enum { FILE_BYTES_MAX = 1 << 20, VALUE_MAX = DFX_PROFILE_TEXT - 1, QUEUE_DEPTH_MAX = 4096 };

typedef enum field_kind {
    FIELD_NAME,
    FIELD_BOOL,
    FIELD_RATE,    /* above 0 */
    FIELD_RATE_0,  /* 0 is allowed: what the machine cannot do */
    FIELD_SECONDS, /* 0 is allowed */
    FIELD_SHARE,   /* 0 is allowed, and what it is when left out */
    FIELD_DEPTH,
    FIELD_BYTES,   /* above 0 */
    FIELD_BYTES_0, /* 0 is allowed */
    FIELD_TEXT,    /* may be left out, as FIELD_WHOLE_0 */
    FIELD_WHOLE_0, /* 0 when left out */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t off; /* in dfx_profile */
} field;

#define FIELD(name, kind) \
    { #name, kind, offsetof(dfx_profile, name) }
static const field FIELDS[] = {
    FIELD(name, FIELD_NAME),
    FIELD(unified, FIELD_BOOL),
    FIELD(has_fp8, FIELD_BOOL),
    FIELD(sm, FIELD_WHOLE_0),
    FIELD(link_bytes_per_s, FIELD_RATE),
    FIELD(link_latency_s, FIELD_SECONDS),
    FIELD(link_slows_compute, FIELD_SHARE),
    FIELD(disk_bytes_per_s, FIELD_RATE),
    FIELD(disk_latency_s, FIELD_SECONDS),
    FIELD(disk_queue_depth, FIELD_DEPTH),
    FIELD(bf16_flops, FIELD_RATE),
    FIELD(int8_flops, FIELD_RATE),
    FIELD(fp8_flops, FIELD_RATE_0),
    FIELD(attention_flops, FIELD_RATE),
    FIELD(memory_bytes_per_s, FIELD_RATE),
    FIELD(launch_s, FIELD_SECONDS),
    FIELD(device_bytes, FIELD_BYTES),
    FIELD(context_bytes, FIELD_BYTES_0),
    FIELD(host_bytes, FIELD_BYTES),
    FIELD(device, FIELD_TEXT),
    FIELD(driver, FIELD_TEXT),
    FIELD(method, FIELD_WHOLE_0),
};
#undef FIELD

enum { N_FIELDS = sizeof(FIELDS) / sizeof(FIELDS[0]) };

static const char *wanted(field_kind kind) {
    static const char *const texts[] = {
        [FIELD_NAME] = "a name of 1 to 63 letters, digits, '-', '_' and '.'",
        [FIELD_BOOL] = "yes or no",
        [FIELD_RATE] = "a number above 0 such as 25e9, without a unit",
        [FIELD_RATE_0] = "a number from 0 such as 25e9, without a unit",
        [FIELD_SECONDS] = "a number of seconds from 0 such as 10e-6, without a unit",
        [FIELD_SHARE] = "a share from 0 such as 0.02, which is 2 %, without a unit",
        [FIELD_DEPTH] = "a whole number from 1 to 4096",
        [FIELD_BYTES] = "a whole number of bytes above 0, without a unit",
        [FIELD_BYTES_0] = "a whole number of bytes, without a unit",
        [FIELD_TEXT] = "a text of 1 to 127 bytes",
        [FIELD_WHOLE_0] = "a whole number from 1 to 65535",
    };
    return texts[kind];
}

/* ---- values ---- */

static bool read_name(const char *text, char *out) {
    size_t len = strlen(text);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (len == 0 || len >= DFX_PROFILE_NAME || strspn(text, allowed) != len)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

static bool read_words(const char *text, char *out) {
    size_t len = strlen(text);
    if (len == 0 || len >= DFX_PROFILE_TEXT)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

static bool read_bool(const char *text, bool *out) {
    *out = strcmp(text, "yes") == 0;
    return *out || strcmp(text, "no") == 0;
}

/* Decimal, with or without an exponent: no sign before it, no hexadecimal, no inf or nan. */
static bool read_real(const char *text, locale_t c_locale, double *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9' || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    *out = strtod_l(text, &end, c_locale);
    return *end == 0 && *out <= 1e30;
}

static bool read_whole(const char *text, uint64_t *out) {
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    *out = value;
    return true;
}

static bool read_value(const field *f, const char *text, locale_t c_locale, dfx_profile *to) {
    void *at = (char *)to + f->off;
    uint64_t whole;
    switch (f->kind) {
    case FIELD_NAME:
        return read_name(text, at);
    case FIELD_BOOL:
        return read_bool(text, at);
    case FIELD_RATE:
        return read_real(text, c_locale, at) && *(double *)at > 0;
    case FIELD_RATE_0:
    case FIELD_SECONDS:
    case FIELD_SHARE:
        return read_real(text, c_locale, at);
    case FIELD_DEPTH:
        if (!read_whole(text, &whole) || whole < 1 || whole > QUEUE_DEPTH_MAX)
            return false;
        *(uint32_t *)at = (uint32_t)whole;
        return true;
    case FIELD_BYTES:
        return read_whole(text, at) && *(uint64_t *)at > 0;
    case FIELD_BYTES_0:
        return read_whole(text, at);
    case FIELD_TEXT:
        return read_words(text, at);
    case FIELD_WHOLE_0:
        if (!read_whole(text, &whole) || whole < 1 || whole > UINT16_MAX)
            return false;
        *(uint32_t *)at = (uint32_t)whole;
        return true;
    }
    return false;
}

/* ---- reading ---- */

typedef struct reader {
    const char *path; /* for messages */
    const dfx_sink *sink;
    locale_t c_locale;
    uint32_t line_no;
    uint32_t line_of[N_FIELDS]; /* 0: not seen */
    dfx_profile profile;
} reader;

/* Without white space at both ends; changes the text. */
static char *trimmed(char *text) {
    static const char white[] = " \t\r";
    text += strspn(text, white);
    size_t len = strlen(text);
    while (len > 0 && strchr(white, text[len - 1]))
        len--;
    text[len] = 0;
    return text;
}

static dfx_status read_line(reader *r, char *line) {
    size_t i = 0;
    line[strcspn(line, "#")] = 0;
    line = trimmed(line);
    if (!*line)
        return DFX_OK;
    char *equals = strchr(line, '=');
    if (!equals)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: line %u: wanted name = value, found \"%.80s\"",
                        r->path, r->line_no, line);
    *equals = 0;
    const char *name = trimmed(line), *value = trimmed(equals + 1);
    while (i < N_FIELDS && strcmp(FIELDS[i].name, name) != 0)
        i++;
    if (i == N_FIELDS)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: line %u: a profile has no \"%.80s\"; the names are those of "
                        "offload/profile.h, such as link_bytes_per_s",
                        r->path, r->line_no, name);
    if (r->line_of[i])
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: line %u: %s is given twice, first in line %u; wanted it once", r->path,
                        r->line_no, name, r->line_of[i]);
    r->line_of[i] = r->line_no;
    if (!read_value(&FIELDS[i], value, r->c_locale, &r->profile))
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: line %u: %s: wanted %s, found \"%.80s\"",
                        r->path, r->line_no, name, wanted(FIELDS[i].kind), value);
    return DFX_OK;
}

static bool may_be_left_out(const field *f) {
    return f->kind == FIELD_TEXT || f->kind == FIELD_WHOLE_0 || f->kind == FIELD_SHARE;
}

static dfx_status check_whole(const reader *r) {
    const dfx_profile *p = &r->profile;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (!r->line_of[i] && !may_be_left_out(&FIELDS[i]))
            return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s is missing; wanted %s = %s", r->path,
                            FIELDS[i].name, FIELDS[i].name, wanted(FIELDS[i].kind));
    if (p->has_fp8 && p->fp8_flops <= 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: has_fp8 is yes and fp8_flops is 0; wanted its rate, or no", r->path);
    if (p->context_bytes >= p->device_bytes)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: context_bytes %" PRIu64 " leave nothing of device_bytes %" PRIu64,
                        r->path, p->context_bytes, p->device_bytes);
    return DFX_OK;
}

/* `text` is changed. */
static dfx_status read_text(const char *path, char *text, size_t bytes, const dfx_sink *sink,
                            dfx_profile *out) {
    if (memchr(text, 0, bytes))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: wanted text, found a zero byte", path);
    reader r = {.path = path, .sink = sink, .c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (!r.c_locale)
        return dfx_fail(sink, DFX_E_NOFIT, "%s: no memory for the C locale", path);
    dfx_status status = DFX_OK;
    for (char *line = text; line && status == DFX_OK;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        r.line_no++;
        status = read_line(&r, line);
        line = next;
    }
    freelocale(r.c_locale);
    if (status == DFX_OK)
        status = check_whole(&r);
    if (status == DFX_OK)
        *out = r.profile;
    return status;
}

static dfx_status load_shipped(const dfx_shipped_profile *shipped, const dfx_sink *sink,
                               dfx_profile *out) {
    char *text, label[DFX_PROFILE_NAME + 16];
    DFX_TRY(dfx_alloc(sink, shipped->bytes + 1, "profile", (void **)&text));
    memcpy(text, shipped->text, shipped->bytes);
    snprintf(label, sizeof(label), "profile %s", shipped->name);
    dfx_status status = read_text(label, text, shipped->bytes, sink, out);
    dfx_free(text);
    return status;
}

static dfx_status refuse(const char *name, const dfx_sink *sink) {
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < dfx_shipped_profile_count() && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                                 dfx_shipped_profile_at(i).name);
    return dfx_fail(sink, DFX_E_USAGE,
                    "no machine profile and no file \"%s\"; there are %s, or give the path of a "
                    "file like offload/profiles/rtx4090.profile",
                    name, list);
}

dfx_status dfx_profile_load(const char *name_or_path, const dfx_sink *sink, dfx_profile *out) {
    for (size_t i = 0; i < dfx_shipped_profile_count(); i++) {
        dfx_shipped_profile shipped = dfx_shipped_profile_at(i);
        if (strcmp(shipped.name, name_or_path) == 0)
            return load_shipped(&shipped, sink, out);
    }
    if (!dfx_file_exists(name_or_path))
        return refuse(name_or_path, sink);
    char *text;
    size_t bytes;
    DFX_TRY(dfx_file_slurp(name_or_path, sink, FILE_BYTES_MAX, &text, &bytes));
    dfx_status status = read_text(name_or_path, text, bytes, sink, out);
    dfx_free(text);
    return status;
}

/* ---- writing ---- */

/* The shortest text that reads back as the same number. Under the C locale. */
static void real_text(double value, char text[VALUE_MAX + 1]) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, VALUE_MAX + 1, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

static void value_text(const field *f, const dfx_profile *profile, char text[VALUE_MAX + 1]) {
    const void *at = (const char *)profile + f->off;
    switch (f->kind) {
    case FIELD_NAME:
        snprintf(text, VALUE_MAX + 1, "%s", (const char *)at);
        break;
    case FIELD_BOOL:
        snprintf(text, VALUE_MAX + 1, "%s", *(const bool *)at ? "yes" : "no");
        break;
    case FIELD_RATE:
    case FIELD_RATE_0:
    case FIELD_SECONDS:
    case FIELD_SHARE:
        real_text(*(const double *)at, text);
        break;
    case FIELD_DEPTH:
        snprintf(text, VALUE_MAX + 1, "%" PRIu32, *(const uint32_t *)at);
        break;
    case FIELD_BYTES:
    case FIELD_BYTES_0:
        snprintf(text, VALUE_MAX + 1, "%" PRIu64, *(const uint64_t *)at);
        break;
    case FIELD_TEXT:
        snprintf(text, VALUE_MAX + 1, "%s", (const char *)at);
        break;
    case FIELD_WHOLE_0:
        text[0] = 0;
        if (*(const uint32_t *)at)
            snprintf(text, VALUE_MAX + 1, "%" PRIu32, *(const uint32_t *)at);
        break;
    }
}

dfx_status dfx_profile_print(const dfx_profile *profile, const dfx_sink *sink, char **out) {
    enum { LINE_MAX_BYTES = 64 + VALUE_MAX };
    char *text;
    size_t used = 0, room = N_FIELDS * LINE_MAX_BYTES;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return dfx_fail(sink, DFX_E_NOFIT, "profile %s: no memory for the C locale", profile->name);
    dfx_status status = dfx_alloc(sink, room, "profile", (void **)&text);
    if (status == DFX_OK) {
        locale_t before = uselocale(c_locale);
        for (size_t i = 0; i < N_FIELDS; i++) {
            char value[VALUE_MAX + 1];
            value_text(&FIELDS[i], profile, value);
            if (!value[0] && may_be_left_out(&FIELDS[i]))
                continue;
            used += (size_t)snprintf(text + used, room - used, "%s = %s\n", FIELDS[i].name, value);
        }
        uselocale(before);
        *out = text;
    }
    freelocale(c_locale);
    return status;
}
