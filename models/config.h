/* A component's configuration file: found, parsed, handed to its reader, closed. */
#ifndef DFX_MODELS_CONFIG_H
#define DFX_MODELS_CONFIG_H

#include "core/bundle.h"
#include "core/json.h"

/* Fills `out` from the object; `path` is for messages. */
typedef dfx_status (*dfx_config_reader)(const json_t *json, const char *path, const dfx_sink *sink,
                                        void *out);

/* folder/file of the bundle ("" for its root) through `read`. Errors: DFX_E_IO, DFX_E_FORMAT, those of the reader. */
dfx_status dfx_config_load(const dfx_bundle *bundle, const char *folder, const char *file,
                           dfx_config_reader read, const dfx_sink *sink, void *out);

#endif
