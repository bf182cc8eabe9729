#include "tools/memory.h"

#include <stdlib.h>
#include <string.h>

dfx_status dfx_take(dfx_console *console, size_t count, size_t bytes, const char *what,
                    void **out) {
    void *taken = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!taken)
        return dfx_console_fail(console, DFX_E_NOFIT, "out of memory: %zu x %zu bytes for %s",
                                count, bytes, what);
    *out = taken;
    return DFX_OK;
}

dfx_status dfx_take_text(dfx_console *console, const char *text, const char *what, char **out) {
    size_t bytes = strlen(text) + 1;
    DFX_OR_RETURN(dfx_take(console, bytes, 1, what, (void **)out));
    memcpy(*out, text, bytes);
    return DFX_OK;
}
