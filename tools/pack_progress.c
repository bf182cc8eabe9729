#include "tools/pack_progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/progress.h"
#include "tools/report.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void dfx_pack_progress_begin(dfx_pack_progress *progress, dfx_console *console, const char *verb) {
    *progress = (dfx_pack_progress){.console = console, .verb = verb, .begun_s = now_s()};
    progress->next_s = progress->begun_s + (console->terminal ? 0 : 10);
}

char *dfx_pack_progress_text(const char *verb, uint64_t done_bytes, uint64_t all_bytes,
                             double seconds, char text[DFX_PACK_PROGRESS_BYTES]) {
    char done[DFX_REPORT_TEXT_BYTES], all[DFX_REPORT_TEXT_BYTES], rate[DFX_REPORT_TEXT_BYTES];
    char left[DFX_PROGRESS_SECONDS_BYTES];
    double bytes_per_s = seconds > 0 ? (double)done_bytes / seconds : 0;
    int used = snprintf(text, DFX_PACK_PROGRESS_BYTES, "%s  %s of %s", verb,
                        dfx_report_bytes(done_bytes, done), dfx_report_bytes(all_bytes, all));
    if (bytes_per_s >= 1)
        snprintf(text + used, (size_t)(DFX_PACK_PROGRESS_BYTES - used), "  %s/s  %s left",
                 dfx_report_bytes((uint64_t)bytes_per_s, rate),
                 dfx_progress_seconds((double)(all_bytes - done_bytes) / bytes_per_s, left));
    return text;
}

void dfx_pack_progress_show(void *user, uint64_t done_bytes, uint64_t all_bytes) {
    dfx_pack_progress *progress = user;
    dfx_console *console = progress->console;
    char text[DFX_PACK_PROGRESS_BYTES];
    double now = now_s();
    if (console->level < DFX_INFO || now < progress->next_s)
        return;
    dfx_pack_progress_text(progress->verb, done_bytes, all_bytes, now - progress->begun_s, text);
    pthread_mutex_lock(&console->lock);
    if (console->terminal) {
        int len = (int)strlen(text), stale = console->line_columns - len;
        fprintf(stderr, "\r%s%*s", text, stale > 0 ? stale : 0, "");
        fflush(stderr);
        console->line_columns = len;
        progress->next_s = now + 0.1;
    } else {
        fprintf(stderr, "%s\n", text);
        progress->next_s = now + 10;
    }
    pthread_mutex_unlock(&console->lock);
}
