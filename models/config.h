/* A component's configuration file: opened, parsed, handed to its reader, closed. */
#ifndef DFX_MODELS_CONFIG_H
#define DFX_MODELS_CONFIG_H

#include "core/file.h"
#include "core/json.h"

/* Fills `out` from the object; `path` is for messages. */
typedef dfx_status (*dfx_config_reader)(const json_t *json, const char *path, const dfx_sink *sink,
                                        void *out);

/* dir/file through `read`. Errors: DFX_E_IO, DFX_E_FORMAT, those of the reader. */
dfx_status dfx_config_load(const char *dir, const char *file, dfx_config_reader read,
                           const dfx_sink *sink, void *out);

#endif
