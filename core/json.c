/* Strict reading of JSON files through jansson; messages name file, key, wanted and found. jansson
 * itself refuses invalid UTF-8, lone surrogates, U+0000 and nesting deeper than 2048. */
#include "core/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"

dfx_status dfx_json_load(const char *path, const dfx_sink *sink, size_t max_bytes, json_t **out) {
    char *text;
    size_t bytes;
    DFX_TRY(dfx_file_slurp(path, sink, max_bytes, &text, &bytes));
    dfx_status status = dfx_json_parse(text, bytes, path, sink, out);
    dfx_free(text);
    return status;
}

/* The string literal that ends just before text[end], without quotes. jansson tells where it
 * stopped, yet not the key when that is longer than 20 bytes. */
static const char *literal_before(const char *text, size_t end, size_t *len) {
    size_t close = end > 0 ? end - 1 : 0, open = close;
    while (open > 0) {
        size_t slashes = 0;
        if (text[--open] != '"')
            continue;
        while (slashes < open && text[open - 1 - slashes] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            break;
    }
    *len = close > open ? close - open - 1 : 0;
    return text + open + 1;
}

dfx_status dfx_json_parse(const char *text, size_t bytes, const char *name, const dfx_sink *sink,
                          json_t **out) {
    json_error_t error;
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (value) {
        *out = value;
        return DFX_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory)
        return dfx_fail(sink, DFX_E_NOFIT, "%s: out of memory while reading JSON", name);
    if (json_error_code(&error) == json_error_duplicate_key && error.position > 0 &&
        (size_t)error.position <= bytes) {
        size_t len;
        const char *key = literal_before(text, (size_t)error.position, &len);
        return dfx_fail(sink, DFX_E_FORMAT, "%s: line %d: duplicate key \"%.*s\"", name, error.line,
                        (int)(len < 200 ? len : 200), key);
    }
    return dfx_fail(sink, DFX_E_FORMAT, "%s: line %d: not valid JSON: %s", name, error.line,
                    error.text);
}

/* What stands at a key, for messages. */
enum { FOUND_BYTES = 80 };
static const char *found_text(const json_t *value, char text[FOUND_BYTES]) {
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        snprintf(text, FOUND_BYTES, "\"%.60s\"", json_string_value(value));
        return text;
    case JSON_INTEGER:
        snprintf(text, FOUND_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return text;
    case JSON_REAL:
        snprintf(text, FOUND_BYTES, "%.17g", json_real_value(value));
        return text;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return "something else";
}

static dfx_status wrong(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                        const char *wanted) {
    char text[FOUND_BYTES];
    return dfx_fail(sink, DFX_E_FORMAT, "%s: %s: wanted %s, found %s", name, key, wanted,
                    found_text(json_object_get(obj, key), text));
}

dfx_status dfx_json_int(const json_t *obj, const char *name, const char *key, int64_t min,
                        int64_t max, const dfx_sink *sink, int64_t *out) {
    const json_t *value = json_object_get(obj, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < min || number > max) {
        char wanted[80];
        snprintf(wanted, sizeof(wanted), "an integer from %" PRId64 " to %" PRId64, min, max);
        return wrong(obj, name, key, sink, wanted);
    }
    *out = number;
    return DFX_OK;
}

dfx_status dfx_json_real(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                         double *out) {
    const json_t *value = json_object_get(obj, key);
    if (!json_is_number(value))
        return wrong(obj, name, key, sink, "a number");
    *out = json_number_value(value);
    return DFX_OK;
}

dfx_status dfx_json_bool(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                         bool *out) {
    const json_t *value = json_object_get(obj, key);
    if (!json_is_boolean(value))
        return wrong(obj, name, key, sink, "true or false");
    *out = json_is_true(value);
    return DFX_OK;
}

dfx_status dfx_json_str(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                        const char **out) {
    const json_t *value = json_object_get(obj, key);
    if (!json_is_string(value))
        return wrong(obj, name, key, sink, "a string");
    *out = json_string_value(value);
    return DFX_OK;
}

bool dfx_json_has(const json_t *obj, const char *key) {
    const json_t *value = json_object_get(obj, key);
    return value && !json_is_null(value);
}

dfx_status dfx_json_object(const json_t *obj, const char *name, const char *key,
                           const dfx_sink *sink, json_t **out) {
    json_t *value = json_object_get(obj, key);
    if (!json_is_object(value))
        return wrong(obj, name, key, sink, "an object");
    *out = value;
    return DFX_OK;
}

dfx_status dfx_json_array(const json_t *obj, const char *name, const char *key,
                          const dfx_sink *sink, json_t **out) {
    json_t *value = json_object_get(obj, key);
    if (!json_is_array(value))
        return wrong(obj, name, key, sink, "a list");
    *out = value;
    return DFX_OK;
}
