/* Saying things to a dfx_sink, and forwarding statuses. See core/status.h for the rules. */
#ifndef DFX_CORE_SINK_H
#define DFX_CORE_SINK_H

#include "core/status.h"

#define DFX_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/* Say one error sentence and return `status`, so that a fault is told and returned in one line. */
dfx_status dfx_fail(const dfx_sink *sink, dfx_status status, const char *fmt, ...) DFX_PRINTF(3, 4);

void dfx_warn(const dfx_sink *sink, const char *fmt, ...) DFX_PRINTF(2, 3);
void dfx_info(const dfx_sink *sink, const char *fmt, ...) DFX_PRINTF(2, 3);
void dfx_debug(const dfx_sink *sink, const char *fmt, ...) DFX_PRINTF(2, 3);

/* Forward a failure that was already told. */
#define DFX_TRY(expr)                       \
    do {                                    \
        dfx_status dfx_try_status = (expr); \
        if (dfx_try_status != DFX_OK)       \
            return dfx_try_status;          \
    } while (0)

/* The same where something must be undone first: `status` is the function's variable. */
#define DFX_TRY_OUT(status, expr) \
    do {                          \
        (status) = (expr);        \
        if ((status) != DFX_OK)   \
            goto out;             \
    } while (0)

#define DFX_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
