/* Prompts from files. */
#ifndef DFX_TOOLS_PROMPT_H
#define DFX_TOOLS_PROMPT_H

#include "tools/console.h"

/* What may surround the text: a byte order mark before it, CRLF after it. */
enum { DFX_PROMPT_BUFFER_BYTES = DFX_PROMPT_BYTES_MAX + 3 + 2 + 2 };

/* The file (or standard input for "-") as a prompt: a UTF-8 byte order mark at the start and one newline at the end are
 * dropped, CRLF becomes a newline; an empty file is the empty prompt. `option`: which names it, for messages.
 * Errors: DFX_E_IO; DFX_E_USAGE when it is longer than DFX_PROMPT_BYTES_MAX or holds a zero byte (UTF-16, or no text at
 * all); DFX_E_CANCELLED when a signal ends the wait for input. */
dfx_status dfx_prompt_read(dfx_console *console, const char *option, const char *path,
                           char text[DFX_PROMPT_BUFFER_BYTES]);

#endif
