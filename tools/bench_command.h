/* What the parts of `dfx-edge bench` share: their options, read by cmd_bench.c, and the device they work on. */
#ifndef DFX_TOOLS_BENCH_COMMAND_H
#define DFX_TOOLS_BENCH_COMMAND_H

#include "kernels/backend.h"
#include "tools/args.h"
#include "tools/console.h"

enum {
    DFX_BENCH_MODEL,
    DFX_BENCH_DEVICE,
    DFX_BENCH_THREADS,
    DFX_BENCH_DISK,
    DFX_BENCH_QUEUE_DEPTH,
    DFX_BENCH_ONLY,
    DFX_BENCH_QUANT,
    DFX_BENCH_LIKE,
    DFX_BENCH_SIZE,
    DFX_BENCH_STEPS,
    DFX_BENCH_TEXT_LENGTH,
    DFX_BENCH_REUSE,
    DFX_BENCH_ATTENTION_BITS,
    DFX_BENCH_PROMPT,
    DFX_BENCH_VRAM_BUDGET,
    DFX_BENCH_RAM_BUDGET,
    DFX_BENCH_OFFLOAD,
    DFX_BENCH_COMPARE,
    DFX_BENCH_RUNS,
    DFX_BENCH_OUTPUT,
    DFX_BENCH_JSON,
    DFX_BENCH_VERBOSE,
    DFX_BENCH_HELP,
    DFX_BENCH_VERSION,
    DFX_BENCH_N_OPTIONS
};

/* The parts. Options that are of no use to a part are refused before. */
dfx_status dfx_bench_io_command(dfx_args *args, dfx_console *console);
dfx_status dfx_bench_machine_command(dfx_args *args, dfx_console *console);
dfx_status dfx_bench_ops_command(dfx_args *args, dfx_console *console);
dfx_status dfx_bench_image_command(dfx_args *args, dfx_console *console);

/* A mistake in the command line, as the last getter left it. */
dfx_status dfx_bench_misused(const dfx_args *args, dfx_console *console);

/* --runs, or 5. */
bool dfx_bench_read_runs(dfx_args *args, uint32_t *runs);

/* --device (auto: the GPU where there is one) and --threads. Errors: DFX_E_USAGE. */
typedef struct dfx_bench_device_choice {
    dfx_device_choice device;
    int n_threads;
} dfx_bench_device_choice;
dfx_status dfx_bench_read_device(dfx_args *args, dfx_console *console,
                                 dfx_bench_device_choice *out);

/* What was chosen, open and described. Errors: DFX_E_DEVICE. */
dfx_status dfx_bench_open_device(const dfx_bench_device_choice *choice, dfx_console *console,
                                 dfx_backend **out, dfx_device_facts *facts);

bool dfx_bench_cancelled(void *user);

/* The library stops silently. */
dfx_status dfx_bench_told(dfx_status status, dfx_console *console);

#endif
