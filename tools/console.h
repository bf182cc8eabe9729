/* Standard error: messages of the library and of the program, and the progress between them.
 *
 * On a terminal, progress is one line that is rewritten with \r and wiped before a message; elsewhere it is a plain
 * line at the end of each stage (of loading, when it took a second), and one every ten seconds of a long stage. Any
 * thread may speak. */
#ifndef DFX_TOOLS_CONSOLE_H
#define DFX_TOOLS_CONSOLE_H

#include <pthread.h>
#include <stdbool.h>

#include "models/dfx.h"

enum { DFX_CONSOLE_WHERE_BYTES = 256 };

typedef struct dfx_console {
    dfx_sink sink;   /* hand this to the library */
    dfx_level level; /* the least important level that is shown */
    bool terminal;
    pthread_mutex_t lock;
    int line_columns;                    /* of the progress line on the screen; 0: none */
    dfx_stage stage;                     /* of the last progress */
    char where[DFX_CONSOLE_WHERE_BYTES]; /* before errors and warnings: "prompts.txt:3: " */
    double next_s; /* no progress before this time, unless a stage begins or ends */
} dfx_console;

/* Errors only when quiet; details too when verbose. The console must not move afterwards. */
void dfx_console_init(dfx_console *console, bool quiet, bool verbose);
void dfx_console_fini(dfx_console *console); /* wipes the progress line */

/* A question at the beginning of a line, without an end of line. */
void dfx_console_ask(dfx_console *console, const char *question);

/* What errors and warnings are about, from now on; "" for nothing. A long text is cut at its beginning. */
void dfx_console_set_where(dfx_console *console, const char *where);

void dfx_console_say(dfx_console *console, dfx_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Says an error and returns `status`. */
dfx_status dfx_console_fail(dfx_console *console, dfx_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void dfx_console_progress(dfx_console *console, const dfx_progress *progress);

#endif
