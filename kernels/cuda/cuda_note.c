/* What an op was given to, in words: for benches. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_internal.h"

void dfx_cuda_note(dfx_cuda *cuda, const char *fmt, ...) {
    char note[sizeof(cuda->kernels)], *all = cuda->kernels;
    size_t used = strlen(all);
    va_list args;
    va_start(args, fmt);
    vsnprintf(note, sizeof(note), fmt, args);
    va_end(args);
    if (!strstr(all, note))
        snprintf(all + used, sizeof(cuda->kernels) - used, "%s%s", used ? "; " : "", note);
}
