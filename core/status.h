/* Statuses and messages: how every call of dfx-edge reports.
 *
 * A status is 0 or negative. The frame that finds a fault says one sentence to the sink (what was
 * wanted, what was found, where, what to do) with dfx_fail(); frames above it forward the status
 * with DFX_TRY() and say nothing. The library never prints, exits, or asserts on data.
 * This header is spliced into the installed dfx.h, so it includes nothing of ours. */
#ifndef DFX_CORE_STATUS_H
#define DFX_CORE_STATUS_H

/*      name            value  exit  meaning */
#define DFX_STATUS_LIST(X)                                                         \
    X(DFX_OK, 0, 0, "ok")                                                          \
    X(DFX_E_INTERNAL, -1, 1, "internal error")                                     \
    X(DFX_E_USAGE, -2, 2, "usage: an option or a request is not valid")            \
    X(DFX_E_FORMAT, -3, 3, "bad model: a file or folder is not what it should be") \
    X(DFX_E_NOFIT, -4, 4, "does not fit: the budget or the memory is too small")   \
    X(DFX_E_DEVICE, -5, 5, "device: missing, unusable, or failed")                 \
    X(DFX_E_IO, -6, 6, "I/O: a file could not be opened, read or written")         \
    X(DFX_E_NUMERIC, -7, 7, "numeric: a value that is not finite appeared")        \
    X(DFX_E_CANCELLED, -8, 130, "interrupted")

#define DFX_STATUS_ENUM(name, value, exit_code, text) name = value,
typedef enum dfx_status { DFX_STATUS_LIST(DFX_STATUS_ENUM) } dfx_status;
#undef DFX_STATUS_ENUM

/* The text above for a status; never NULL. */
const char *dfx_status_text(dfx_status status);

/* The documented exit code of a program that ends with this status. */
int dfx_status_exit_code(dfx_status status);

typedef enum dfx_level { DFX_ERROR, DFX_WARN, DFX_INFO, DFX_DEBUG } dfx_level;

/* Where messages go. `text` is one line, UTF-8, without a newline, and lives for the call only.
 * A NULL sink, or one without `say`, swallows everything. May be called from any thread. */
typedef struct dfx_sink {
    void (*say)(void *user, dfx_level level, const char *text);
    void *user; /* borrowed */
} dfx_sink;

#endif
