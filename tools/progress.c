/* See progress.h. */
#include "tools/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

char *dfx_progress_seconds(double seconds, char text[DFX_PROGRESS_SECONDS_BYTES]) {
    if (!(seconds > 0))
        seconds = 0;
    if (seconds < 9.995) {
        snprintf(text, DFX_PROGRESS_SECONDS_BYTES, "%.2f s", seconds);
    } else if (seconds < 59.95) {
        snprintf(text, DFX_PROGRESS_SECONDS_BYTES, "%.1f s", seconds);
    } else if (seconds < 3599.5) {
        int whole = (int)lround(seconds);
        snprintf(text, DFX_PROGRESS_SECONDS_BYTES, "%d min %02d s", whole / 60, whole % 60);
    } else {
        double minutes = floor(seconds / 60 + 0.5);
        snprintf(text, DFX_PROGRESS_SECONDS_BYTES, "%.0f h %02.0f min", floor(minutes / 60),
                 fmod(minutes, 60));
    }
    return text;
}

/* Returns the length. */
static int picture_numbers(const dfx_progress *progress, char text[DFX_PROGRESS_BYTES]) {
    int first = progress->picture + 1, n = progress->n_together, all = progress->n_pictures;
    text[0] = 0;
    if (all > 1 && n > 1)
        return snprintf(text, DFX_PROGRESS_BYTES, "%d-%d/%d  ", first, first + n - 1, all);
    return all > 1 ? snprintf(text, DFX_PROGRESS_BYTES, "%d/%d  ", first, all) : 0;
}

int dfx_progress_text(const dfx_progress *progress, int max_columns,
                      char text[DFX_PROGRESS_BYTES]) {
    char each[DFX_PROGRESS_SECONDS_BYTES], rest[DFX_PROGRESS_SECONDS_BYTES];
    int used = picture_numbers(progress, text), done = progress->step, n = progress->n_steps;
    used += snprintf(text + used, (size_t)(DFX_PROGRESS_BYTES - used), "%s",
                     dfx_stage_name(progress->stage));
    if (n > 1)
        used += snprintf(text + used, (size_t)(DFX_PROGRESS_BYTES - used), " %d/%d", done, n);
    if (progress->n_reused > 0)
        used += snprintf(text + used, (size_t)(DFX_PROGRESS_BYTES - used), " (%d reused)",
                         progress->n_reused);
    if (done > 0) {
        double per_step = progress->stage_seconds / done;
        dfx_progress_seconds(per_step, each);
        dfx_progress_seconds(done < n ? per_step * (n - done) : progress->stage_seconds, rest);
        if (n > 1)
            used += snprintf(text + used, (size_t)(DFX_PROGRESS_BYTES - used), "  %s/step", each);
        used += snprintf(text + used, (size_t)(DFX_PROGRESS_BYTES - used), "  %s%s", rest,
                         done < n ? " left" : "");
    }
    if (max_columns < used && max_columns >= 0) {
        used = max_columns;
        text[used] = 0;
    }
    return used;
}
