/* Two runs of `bench image`, in words: what became faster or slower by more than the runs differ among themselves. */
#ifndef DFX_TOOLS_BENCH_COMPARE_H
#define DFX_TOOLS_BENCH_COMPARE_H

#include <jansson.h>

#include "tools/bench_text.h"

/* Both as dfx_bench_image_json makes them; `name` of the earlier one is for messages. Adds a line a budget and a verdict.
 * Errors: DFX_E_FORMAT: not such a file; DFX_E_USAGE: of another device, or without a series (model, format, size, number of steps)
 * in common. */
dfx_status dfx_bench_compare(const json_t *then, const char *name, const json_t *now,
                             const dfx_sink *sink, dfx_bench_text *out);

#endif
