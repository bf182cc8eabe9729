/* A text that grows, and becomes a file. Errors stick: after the first one, told once, adding does nothing and writing returns
 * it. */
#ifndef DFX_TOOLS_BENCH_TEXT_H
#define DFX_TOOLS_BENCH_TEXT_H

#include "core/file.h"

typedef struct dfx_bench_text {
    const dfx_sink *sink;
    dfx_status status;
    char *text; /* owned */
    size_t bytes, cap;
} dfx_bench_text;

void dfx_bench_text_add(dfx_bench_text *text, const char *fmt, ...) DFX_PRINTF(2, 3);

/* Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_bench_text_write(const dfx_bench_text *text, const char *path);
void dfx_bench_text_fini(dfx_bench_text *text);

#endif
