/* JSON files of models (jansson underneath): configs, indexes, vocabularies. Getters check type and range and
 * say file and key when something is wrong, so that a reader is a list of wishes. */
#ifndef DFX_CORE_JSON_H
#define DFX_CORE_JSON_H

#include <jansson.h>

#include "core/mem.h"

/* Parse a file of at most max_bytes. Duplicate keys are errors. *out: json_decref by the caller.
 * Errors: DFX_E_IO, DFX_E_FORMAT with line and cause. */
dfx_status dfx_json_load(const char *path, const dfx_sink *sink, size_t max_bytes, json_t **out);

/* Parse `bytes` of text; `name` is for messages. Duplicate keys: the message holds "duplicate key" and the key. */
dfx_status dfx_json_parse(const char *text, size_t bytes, const char *name, const dfx_sink *sink,
                          json_t **out);

/* Required values of an object: DFX_E_FORMAT "<name>: <key>: wanted an integer from 1 to 64, found \"x\"". */
dfx_status dfx_json_int(const json_t *obj, const char *name, const char *key, int64_t min,
                        int64_t max, const dfx_sink *sink, int64_t *out);
dfx_status dfx_json_real(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                         double *out);
dfx_status dfx_json_bool(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                         bool *out);
/* Borrowed from obj. */
dfx_status dfx_json_str(const json_t *obj, const char *name, const char *key, const dfx_sink *sink,
                        const char **out);

/* True when the key is there and not null: for values with defaults. */
bool dfx_json_has(const json_t *obj, const char *key);

/* Object / array members; borrowed. */
dfx_status dfx_json_object(const json_t *obj, const char *name, const char *key,
                           const dfx_sink *sink, json_t **out);
dfx_status dfx_json_array(const json_t *obj, const char *name, const char *key,
                          const dfx_sink *sink, json_t **out);

#endif
