/* Memory of the program itself: from calloc, outside what the library counts; freed with free(). */
#ifndef DFX_TOOLS_MEMORY_H
#define DFX_TOOLS_MEMORY_H

#include "tools/console.h"

/* `count` zeroed things of `bytes` each, at least one byte. Errors: DFX_E_NOFIT, said; `what` names what they are for. */
dfx_status dfx_take(dfx_console *console, size_t count, size_t bytes, const char *what, void **out);

#define dfx_take_array(console, count, what, pp) \
    dfx_take((console), (count), sizeof(**(pp)), (what), (void **)(pp))

dfx_status dfx_take_text(dfx_console *console, const char *text, const char *what, char **out);

#define DFX_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Forward a failure that was said. */
#define DFX_OR_RETURN(expr)                \
    do {                                   \
        dfx_status dfx_or_status = (expr); \
        if (dfx_or_status != DFX_OK)       \
            return dfx_or_status;          \
    } while (0)

#endif
