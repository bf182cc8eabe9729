/* Ctrl-C and its kin: the first one asks, the second one ends.
 *
 * SIGINT, SIGTERM and SIGHUP set a flag that the library polls (dfx_request.cancelled). The second of them ends the
 * process at once with exit code 130. SIGPIPE and SIGXFSZ are ignored, so that a closed pipe and a limit on file sizes
 * are write errors with a sentence. */
#ifndef DFX_TOOLS_SIGNALS_H
#define DFX_TOOLS_SIGNALS_H

#include <stdbool.h>

void dfx_signals_catch(void);
bool dfx_signals_interrupted(void); /* any thread */
void dfx_signals_forget(void); /* what was asked for is done: the next one is the first again */

#endif
