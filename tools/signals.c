/* See signals.h. A process has one set of signal handlers, so their flag is process-wide too. */
#include "tools/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "models/dfx.h"

static atomic_int n_signals;

static void on_signal(int number) {
    if (atomic_fetch_add(&n_signals, 1) > 0)
        _exit(dfx_status_exit_code(DFX_E_CANCELLED));
}

void dfx_signals_catch(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal}, old;
    sigemptyset(&action.sa_mask); /* no SA_RESTART: a read of the prompt from a terminal ends too */
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        /* nohup sets SIGHUP to ignored before it starts us, and means it. */
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(numbers[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

bool dfx_signals_interrupted(void) {
    return atomic_load(&n_signals) > 0;
}

void dfx_signals_forget(void) {
    atomic_store(&n_signals, 0);
}
