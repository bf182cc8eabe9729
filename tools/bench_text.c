#include "tools/bench_text.h"

#include <stdarg.h>
#include <stdio.h>

void dfx_bench_text_add(dfx_bench_text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (t->status == DFX_OK)
        t->status =
            dfx_grow(t->sink, t->bytes + (size_t)n + 1, 1, "bench", &t->cap, (void **)&t->text);
    if (t->status != DFX_OK)
        return;
    va_start(args, fmt);
    vsnprintf(t->text + t->bytes, (size_t)n + 1, fmt, args);
    va_end(args);
    t->bytes += (size_t)n;
}

dfx_status dfx_bench_text_write(const dfx_bench_text *t, const char *path) {
    dfx_file_writer writer;
    DFX_TRY(t->status);
    DFX_TRY(dfx_file_write_begin(path, t->sink, &writer));
    dfx_status status = dfx_file_write(&writer, t->sink, t->text, t->bytes);
    if (status == DFX_OK)
        return dfx_file_write_commit(&writer, t->sink);
    dfx_file_write_abort(&writer);
    return status;
}

void dfx_bench_text_fini(dfx_bench_text *t) {
    dfx_free(t->text);
    *t = (dfx_bench_text){0};
}
