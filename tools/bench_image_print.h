/* What `bench image` found: a table for a reader, CSV, JSON, and a chart. */
#ifndef DFX_TOOLS_BENCH_IMAGE_PRINT_H
#define DFX_TOOLS_BENCH_IMAGE_PRINT_H

#include <jansson.h>

#include "tools/bench_image.h"
#include "tools/bench_text.h"

/* To standard output, without flushing. */
void dfx_bench_image_table(const dfx_bench_image *image);

json_t *dfx_bench_image_json(const dfx_bench_image *image); /* a new reference; NULL: no memory */

/* A line of names, then a line for each budget of each series; empty where a budget does not fit. */
void dfx_bench_image_csv(const dfx_bench_image *image, dfx_bench_text *text);

/* An SVG, a chart for each series, one below the other: seconds of a picture against the budget, medians with their spread; what
 * the plan says; and the floor. */
void dfx_bench_image_svg(const dfx_bench_image *image, dfx_bench_text *text);

#endif
