/* dfx-edge bench: what parts of the runtime reach on this machine, beside what the machine can do. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "offload/disk.h"
#include "tools/args.h"
#include "tools/bench_io.h"
#include "tools/commands.h"
#include "tools/output.h"
#include "tools/report.h"
#include "tools/signals.h"

enum { OPT_QUEUE_DEPTH, OPT_RUNS, OPT_JSON, OPT_VERBOSE, OPT_HELP, OPT_VERSION, N_OPTIONS };

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_QUEUE_DEPTH] = {"queue-depth", 0, "a number"},
    [OPT_RUNS] = {"runs", 0, "a number"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

enum { RUNS_DEFAULT = 5 };

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

static void print_rates(const char *name, const double *rates, uint32_t n, double median) {
    double least = rates[0], most = rates[0];
    for (uint32_t i = 1; i < n; i++) {
        least = rates[i] < least ? rates[i] : least;
        most = rates[i] > most ? rates[i] : most;
    }
    printf("%-14s  %6.3f GB/s  (median of %u, %.3f to %.3f)\n", name, median * 1e-9, n,
           least * 1e-9, most * 1e-9);
}

static void print_text(const char *path, const dfx_bench_io *r) {
    char bytes[DFX_REPORT_TEXT_BYTES], block[DFX_REPORT_TEXT_BYTES];
    printf("%s: %u pages, %s; device %s; %u requests of %s in flight\n", path, r->n_pages,
           dfx_report_bytes(r->bytes, bytes), r->device[0] ? r->device : "unknown", r->queue_depth,
           dfx_report_bytes(r->block_bytes, block));
    print_rates("bare io_uring", r->bare, r->n_runs, r->bare_median);
    print_rates("page feed", r->feed, r->n_runs, r->feed_median);
    printf("%-14s  %6.3f  through %s\n", "feed / bare", r->feed_median / r->bare_median, r->mode);
}

static json_t *rates_json(const double *rates, uint32_t n) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(array, json_real(rates[i]));
    return array;
}

static void print_json(const char *path, const dfx_bench_io *r) {
    json_t *json = json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:f, s:f, s:f}", "path", path, "pages",
        (int)r->n_pages, "bytes", (json_int_t)r->bytes, "device", r->device, "mode", r->mode,
        "queue_depth", (int)r->queue_depth, "block_bytes", (int)r->block_bytes, "runs",
        (int)r->n_runs, "bare_bytes_per_s", rates_json(r->bare, r->n_runs), "feed_bytes_per_s",
        rates_json(r->feed, r->n_runs), "bare_median_bytes_per_s", r->bare_median,
        "feed_median_bytes_per_s", r->feed_median, "ratio", r->feed_median / r->bare_median);
    if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
        puts("");
    json_decref(json);
}

static dfx_status bench_io(dfx_args *args, dfx_console *console) {
    int depth = 0, runs = RUNS_DEFAULT;
    dfx_packed *packed;
    dfx_bench_io result;
    if (args->n_words != 1)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench io: wanted one packed model after it, found %d words",
                                args->n_words);
    if (!dfx_args_int(args, OPT_QUEUE_DEPTH, 1, DFX_DISK_DEPTH_MAX, &depth) ||
        !dfx_args_int(args, OPT_RUNS, 1, DFX_BENCH_RUNS_MAX, &runs))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    dfx_signals_catch();
    DFX_TRY(dfx_packed_open(args->word, &console->sink, &packed));
    dfx_bench_io_options bench = {
        .queue_depth = (uint32_t)depth, .n_runs = (uint32_t)runs, .cancelled = on_cancelled};
    dfx_status status = dfx_bench_io_run(packed, &bench, &console->sink, &result);
    if (status == DFX_OK) {
        if (dfx_args_given(args, OPT_JSON))
            print_json(args->word, &result);
        else
            print_text(args->word, &result);
        status = dfx_output_flush(console);
    } else if (status == DFX_E_CANCELLED) { /* the library stops silently */
        dfx_console_fail(console, status, "interrupted");
    }
    dfx_packed_close(packed);
    return status;
}

int dfx_cmd_bench(int argc, char **argv) {
    dfx_args args;
    dfx_console console;
    dfx_status status;
    bool io = argc > 0 && strcmp(argv[0], "io") == 0;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc - io, argv + io);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_bench();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, false, dfx_args_given(&args, OPT_VERBOSE));
    if (!good)
        status = dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    else if (!io)
        status = dfx_console_fail(&console, DFX_E_USAGE, "bench: wanted \"io\" after it, found %s",
                                  argc > 0 ? argv[0] : "nothing");
    else
        status = bench_io(&args, &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
