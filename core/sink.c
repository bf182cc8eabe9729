/* Formats messages of any length into one line for the sink. Control characters that a hostile
 * file name or tensor name may carry are shown as '?', so that one message stays one line. */
#include "core/sink.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048 }; /* longer messages are cut: names in them come from files */

static void say(const dfx_sink *sink, dfx_level level, const char *fmt, va_list args) {
    char text[MESSAGE_BYTES];
    if (!sink || !sink->say)
        return;
    vsnprintf(text, sizeof(text), fmt, args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = '?';
    sink->say(sink->user, level, text);
}

dfx_status dfx_fail(const dfx_sink *sink, dfx_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(sink, DFX_ERROR, fmt, args);
    va_end(args);
    return status;
}

#define DEFINE_SAY(name, level)                             \
    void name(const dfx_sink *sink, const char *fmt, ...) { \
        va_list args;                                       \
        va_start(args, fmt);                                \
        say(sink, level, fmt, args);                        \
        va_end(args);                                       \
    }
DEFINE_SAY(dfx_warn, DFX_WARN)
DEFINE_SAY(dfx_info, DFX_INFO)
DEFINE_SAY(dfx_debug, DFX_DEBUG)

const char *dfx_status_text(dfx_status status) {
    switch (status) {
#define CASE(name, value, exit_code, text) \
    case name:                             \
        return text;
        DFX_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

int dfx_status_exit_code(dfx_status status) {
    switch (status) {
#define CASE(name, value, exit_code, text) \
    case name:                             \
        return exit_code;
        DFX_STATUS_LIST(CASE)
#undef CASE
    }
    return 1;
}
