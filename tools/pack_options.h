/* What the commands that write packed models have in common on the command line: --quant, --keep, and the name of the
 * result. */
#ifndef DFX_TOOLS_PACK_OPTIONS_H
#define DFX_TOOLS_PACK_OPTIONS_H

#include "offload/packed.h"
#include "tools/args.h"
#include "tools/console.h"

enum { DFX_PACK_KEEP_MAX = 64, DFX_PACK_KEEP_BYTES = 4096 };

/* The patterns of --keep, cut at commas. */
typedef struct dfx_pack_keep {
    char text[DFX_PACK_KEEP_BYTES];
    const char *patterns[DFX_PACK_KEEP_MAX]; /* into text */
    size_t n;
} dfx_pack_keep;

/* "int8", "fp8", "int8wo", "bf16", "f32", "stored"; "auto" is int8, which every device runs.
 * Leaves *quant alone when the option was not given. Errors: DFX_E_USAGE. */
dfx_status dfx_pack_read_quant(const dfx_args *args, int which, dfx_console *console,
                               dfx_qformat *quant);

/* Errors: DFX_E_USAGE. */
dfx_status dfx_pack_read_keep(const dfx_args *args, int which, dfx_console *console,
                              dfx_pack_keep *keep);

/* An option given twice: the last one counts, with a warning. */
void dfx_pack_warn_twice(const dfx_args *args, dfx_console *console);

/* "flux-dev-int8.safetensors  17.2 GiB from 31.4 GiB (54.8 %)  754 of 1379 tensors in int8  57.1 s" */
void dfx_pack_tell(dfx_console *console, const char *path, dfx_qformat quant,
                   const dfx_pack_report *report);

#endif
