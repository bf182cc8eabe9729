/* Where random models go: a folder that nothing is in yet, and small files in it. */
#ifndef DFX_TOOLS_RANDOM_PLACE_H
#define DFX_TOOLS_RANDOM_PLACE_H

#include "core/file.h"

/* Errors: DFX_E_USAGE: there is something in it. A folder that is not there is fine. */
dfx_status dfx_random_check_empty(const char *dir, const dfx_sink *sink);

/* dir/name, or dir itself with name ""; it may be there. */
dfx_status dfx_random_make_folder(const char *dir, const char *name, const dfx_sink *sink);

dfx_status dfx_random_write_text(const char *dir, const char *name, const char *text,
                                 const dfx_sink *sink);

#endif
