/* Where pictures go: the rule for names, the checks before any work is done, and the writing.
 *
 * The name ends in .png (any case); one without an extension gets .png; any other extension is refused. With several
 * pictures, or without a name, the seed is part of it: cat.png becomes cat-7.png, cat-8.png; without a name it is
 * dfx-7.png. The same seed gives the same picture, so a file that is there is replaced, whole, by a rename. */
#ifndef DFX_TOOLS_OUTPUT_H
#define DFX_TOOLS_OUTPUT_H

#include "tools/console.h"

enum { DFX_OUTPUT_PATH_BYTES = 4096 };

typedef struct dfx_output {
    bool to_stdout;
    bool with_seed;
    bool bare;                        /* the path was given without an extension */
    const char *extension;            /* borrowed from the path, or ".png" */
    char stem[DFX_OUTPUT_PATH_BYTES]; /* the path up to the extension */
} dfx_output;

/* `path` NULL: the automatic name; "-": standard output. Touches no file. Errors: DFX_E_USAGE. */
dfx_status dfx_output_init(dfx_output *output, dfx_console *console, const char *path,
                           int n_pictures);

/* The name for a seed; for messages "standard output". */
void dfx_output_name(const dfx_output *output, uint64_t seed, char name[DFX_OUTPUT_PATH_BYTES]);

/* Seeds [seed, seed + n_pictures): the folder is there and can be written, no target is a folder or another thing that
 * a picture must not replace. Errors: DFX_E_IO, DFX_E_USAGE. */
dfx_status dfx_output_check(const dfx_output *output, dfx_console *console, uint64_t seed,
                            int n_pictures);

/* Errors: DFX_E_IO; nothing that looks like a picture is left then. */
dfx_status dfx_output_write(const dfx_output *output, dfx_console *console, const dfx_image *image);

/* What was printed to standard output has got there. Errors: DFX_E_IO. */
dfx_status dfx_output_flush(dfx_console *console);

#endif
