/* dfx-edge bench io: the disk path beside a bare read of the same bytes. */
#include "offload/disk.h"
#include "tools/bench_command.h"
#include "tools/bench_print.h"
#include "tools/output.h"

static dfx_status run(const dfx_args *args, const dfx_bench_io_options *bench,
                      dfx_console *console) {
    dfx_packed *packed;
    dfx_bench_io result;
    DFX_TRY(dfx_packed_open(args->word, &console->sink, &packed));
    dfx_status status =
        dfx_bench_told(dfx_bench_io_run(packed, bench, &console->sink, &result), console);
    if (status == DFX_OK) {
        if (dfx_args_given(args, DFX_BENCH_JSON))
            dfx_bench_print_io_json(args->word, &result);
        else
            dfx_bench_print_io(args->word, &result);
        status = dfx_output_flush(console);
    }
    dfx_packed_close(packed);
    return status;
}

dfx_status dfx_bench_io_command(dfx_args *args, dfx_console *console) {
    int depth = 0;
    dfx_bench_io_options bench = {.cancelled = dfx_bench_cancelled};
    if (args->n_words != 1)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench io: wanted one packed model after it, found %d words",
                                args->n_words);
    if (!dfx_args_int(args, DFX_BENCH_QUEUE_DEPTH, 1, DFX_DISK_DEPTH_MAX, &depth) ||
        !dfx_bench_read_runs(args, &bench.n_runs))
        return dfx_bench_misused(args, console);
    bench.queue_depth = (uint32_t)depth;
    return run(args, &bench, console);
}
