/* See prompt.h. */
#include "tools/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/signals.h"

/* The whole of `fd`; one byte of the buffer stays free. */
static dfx_status read_all(dfx_console *console, int fd, const char *name,
                           char text[DFX_PROMPT_BUFFER_BYTES], size_t *out_bytes) {
    size_t used = 0;
    for (;;) {
        ssize_t n = read(fd, text + used, DFX_PROMPT_BUFFER_BYTES - 1 - used);
        if (n < 0 && errno == EINTR && dfx_signals_interrupted())
            return dfx_console_fail(console, DFX_E_CANCELLED, "interrupted");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dfx_console_fail(console, DFX_E_IO, "%s: %s", name, strerror(errno));
        if (n == 0)
            break;
        used += (size_t)n;
        if (used == DFX_PROMPT_BUFFER_BYTES - 1)
            break; /* longer than a prompt may be, whatever is dropped */
    }
    *out_bytes = used;
    return DFX_OK;
}

/* Returns the length of what is left. */
static size_t tidy(char *text, size_t n_bytes) {
    size_t from = 0, to = 0;
    if (n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        from = 3;
    for (; from < n_bytes; from++)
        if (text[from] != '\r' || from + 1 == n_bytes || text[from + 1] != '\n')
            text[to++] = text[from];
    if (to > 0 && text[to - 1] == '\n')
        to--;
    return to;
}

dfx_status dfx_prompt_read(dfx_console *console, const char *option, const char *path,
                           char text[DFX_PROMPT_BUFFER_BYTES]) {
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    size_t n_bytes = 0;
    if (fd < 0 && errno == EINTR && dfx_signals_interrupted())
        return dfx_console_fail(console, DFX_E_CANCELLED, "interrupted");
    if (fd < 0)
        return dfx_console_fail(console, DFX_E_IO, "%s %s: %s", option, name, strerror(errno));
    dfx_status status = read_all(console, fd, name, text, &n_bytes);
    if (!standard)
        close(fd);
    if (status != DFX_OK)
        return status;
    if (memchr(text, 0, n_bytes))
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "%s %s: wanted text in UTF-8, found a zero byte (UTF-16, or no text file)", option,
            name);
    n_bytes = tidy(text, n_bytes);
    if (n_bytes > DFX_PROMPT_BYTES_MAX)
        return dfx_console_fail(console, DFX_E_USAGE, "%s %s: wanted at most %d bytes, found more",
                                option, name, DFX_PROMPT_BYTES_MAX);
    text[n_bytes] = 0;
    return DFX_OK;
}
