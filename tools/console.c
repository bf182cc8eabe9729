/* See console.h. Everything that is written to standard error while a command runs is written here. */
#include "tools/console.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/progress.h"

enum { MESSAGE_BYTES = 4096 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes that steer a terminal are shown as '?'. */
static void make_plain(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
}

/* With the lock held. */
static void wipe_line(dfx_console *console) {
    if (console->line_columns > 0)
        fprintf(stderr, "\r%*s\r", console->line_columns, "");
    console->line_columns = 0;
}

static void on_say(void *user, dfx_level level, const char *text) {
    static const char *const heads[] = {[DFX_ERROR] = "dfx-edge: ",
                                        [DFX_WARN] = "dfx-edge: warning: ",
                                        [DFX_INFO] = "",
                                        [DFX_DEBUG] = ""};
    dfx_console *console = user;
    if (level > console->level)
        return;
    pthread_mutex_lock(&console->lock);
    wipe_line(console);
    fprintf(stderr, "%s%s%s\n", heads[level], level <= DFX_WARN ? console->where : "", text);
    pthread_mutex_unlock(&console->lock);
}

void dfx_console_init(dfx_console *console, bool quiet, bool verbose) {
    memset(console, 0, sizeof(*console));
    console->sink = (dfx_sink){.say = on_say, .user = console};
    console->level = quiet ? DFX_ERROR : verbose ? DFX_DEBUG : DFX_INFO;
    console->terminal = isatty(STDERR_FILENO);
    pthread_mutex_init(&console->lock, NULL);
}

void dfx_console_fini(dfx_console *console) {
    wipe_line(console);
    fflush(stderr);
    pthread_mutex_destroy(&console->lock);
}

void dfx_console_ask(dfx_console *console, const char *question) {
    pthread_mutex_lock(&console->lock);
    wipe_line(console);
    fputs(question, stderr);
    fflush(stderr);
    pthread_mutex_unlock(&console->lock);
}

void dfx_console_set_where(dfx_console *console, const char *where) {
    size_t len = strlen(where), most = sizeof(console->where) - 1;
    pthread_mutex_lock(&console->lock);
    snprintf(console->where, sizeof(console->where), "%s", len > most ? where + len - most : where);
    make_plain(console->where);
    pthread_mutex_unlock(&console->lock);
}

/* Names in messages come from files and command lines. */
__attribute__((format(printf, 3, 0))) static void say_list(dfx_console *console, dfx_level level,
                                                           const char *fmt, va_list list) {
    char text[MESSAGE_BYTES];
    vsnprintf(text, sizeof(text), fmt, list);
    make_plain(text);
    on_say(console, level, text);
}

void dfx_console_say(dfx_console *console, dfx_level level, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    say_list(console, level, fmt, list);
    va_end(list);
}

dfx_status dfx_console_fail(dfx_console *console, dfx_status status, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    say_list(console, DFX_ERROR, fmt, list);
    va_end(list);
    return status;
}

/* The last column stays free: a character there makes some terminals begin a new line. */
static int columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        return size.ws_col - 1;
    return 79;
}

void dfx_console_progress(dfx_console *console, const dfx_progress *progress) {
    char text[DFX_PROGRESS_BYTES];
    double now = now_s();
    bool done = progress->step >= progress->n_steps;
    if (console->level < DFX_INFO)
        return;
    pthread_mutex_lock(&console->lock);
    bool begun = progress->step == 0 || progress->stage != console->stage;
    console->stage = progress->stage;
    if (console->terminal) {
        if (begun || done || now >= console->next_s) {
            int len = dfx_progress_text(progress, columns(), text);
            int stale = console->line_columns > len ? console->line_columns - len : 0;
            fprintf(stderr, "\r%s%*s", text, stale, "");
            fflush(stderr);
            console->line_columns = len;
            console->next_s = now + 0.1;
        }
    } else if (done || (!begun && now >= console->next_s)) {
        dfx_progress_text(progress, DFX_PROGRESS_BYTES - 1, text);
        fprintf(stderr, "%s\n", text);
        console->next_s = now + 10;
    } else if (begun) {
        console->next_s = now + 10;
    }
    pthread_mutex_unlock(&console->lock);
}
