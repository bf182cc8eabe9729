/* dfx-edge bench: what parts of the runtime reach on this machine, beside what the machine can do, and the machine as a
 * profile for plans. */
#include <stdio.h>
#include <string.h>

#include "offload/disk.h"
#include "tools/args.h"
#include "tools/bench_print.h"
#include "tools/commands.h"
#include "tools/output.h"
#include "tools/signals.h"

enum {
    OPT_QUEUE_DEPTH,
    OPT_OUTPUT,
    OPT_DISK,
    OPT_THREADS,
    OPT_RUNS,
    OPT_JSON,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_QUEUE_DEPTH] = {"queue-depth", 0, "a number"},
    [OPT_OUTPUT] = {"output", 'o', "a name"},
    [OPT_DISK] = {"disk", 0, "a file or a folder"},
    [OPT_THREADS] = {"threads", 0, "a number"},
    [OPT_RUNS] = {"runs", 0, "a number"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

enum { RUNS_DEFAULT = 5, THREADS_MAX = 256 };

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

/* The library stops silently. */
static dfx_status told(dfx_status status, dfx_console *console) {
    return status == DFX_E_CANCELLED ? dfx_console_fail(console, status, "interrupted") : status;
}

/* Options of the other one are refused. */
static dfx_status refuse_options(const dfx_args *args, dfx_console *console, const char *name,
                                 const int *foreign, size_t n_foreign) {
    for (size_t i = 0; i < n_foreign; i++)
        if (dfx_args_given(args, foreign[i]))
            return dfx_console_fail(console, DFX_E_USAGE, "bench %s: there is no --%s here", name,
                                    options[foreign[i]].name);
    return DFX_OK;
}

/* ---- io ---- */

static dfx_status run_io(const dfx_args *args, const dfx_bench_io_options *bench,
                         dfx_console *console) {
    dfx_packed *packed;
    dfx_bench_io result;
    DFX_TRY(dfx_packed_open(args->word, &console->sink, &packed));
    dfx_status status = told(dfx_bench_io_run(packed, bench, &console->sink, &result), console);
    if (status == DFX_OK) {
        if (dfx_args_given(args, OPT_JSON))
            dfx_bench_print_io_json(args->word, &result);
        else
            dfx_bench_print_io(args->word, &result);
        status = dfx_output_flush(console);
    }
    dfx_packed_close(packed);
    return status;
}

static dfx_status bench_io(dfx_args *args, dfx_console *console) {
    static const int foreign[] = {OPT_OUTPUT, OPT_DISK, OPT_THREADS};
    int depth = 0, runs = RUNS_DEFAULT;
    if (args->n_words != 1)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench io: wanted one packed model after it, found %d words",
                                args->n_words);
    DFX_TRY(refuse_options(args, console, "io", foreign, DFX_COUNT(foreign)));
    if (!dfx_args_int(args, OPT_QUEUE_DEPTH, 1, DFX_DISK_DEPTH_MAX, &depth) ||
        !dfx_args_int(args, OPT_RUNS, 1, DFX_BENCH_RUNS_MAX, &runs))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    dfx_bench_io_options bench = {
        .queue_depth = (uint32_t)depth, .n_runs = (uint32_t)runs, .cancelled = on_cancelled};
    return run_io(args, &bench, console);
}

/* ---- machine ---- */

/* To standard output as one profile, in which the table is a comment. */
static dfx_status print_profile(const dfx_bench_machine *machine, const dfx_bench_step *step,
                                dfx_console *console) {
    char *text;
    DFX_TRY(dfx_profile_print(&machine->profile, &console->sink, &text));
    dfx_bench_print_machine(machine, step, "# ");
    fputs(text, stdout);
    dfx_free(text);
    return DFX_OK;
}

/* The profile is kept even where the check of it fails. `writer` NULL: standard output; it is ended here. */
static dfx_status measure(const dfx_args *args, const dfx_bench_machine_options *bench,
                          dfx_file_writer *writer, dfx_console *console) {
    dfx_bench_machine machine;
    dfx_bench_step step;
    dfx_console_say(console, DFX_INFO, "measuring the disk at %s and the processor", bench->disk);
    dfx_status status = dfx_bench_machine_run(bench, &console->sink, &machine);
    if (status == DFX_OK && writer)
        DFX_TRY(dfx_bench_write_profile(&machine.profile, &console->sink, writer));
    else if (writer)
        dfx_file_write_abort(writer);
    DFX_TRY(told(status, console));
    dfx_status checked =
        told(dfx_bench_step_run(&machine.profile, bench->n_threads, on_cancelled, console, &step),
             console);
    const dfx_bench_step *known = checked == DFX_OK ? &step : NULL;
    if (dfx_args_given(args, OPT_JSON))
        dfx_bench_print_machine_json(&machine, known);
    else if (writer)
        dfx_bench_print_machine(&machine, known, "");
    else
        DFX_TRY(print_profile(&machine, known, console));
    DFX_TRY(dfx_output_flush(console));
    return checked;
}

static dfx_status bench_machine(dfx_args *args, dfx_console *console) {
    static const int foreign[] = {OPT_QUEUE_DEPTH};
    int threads = 0, runs = RUNS_DEFAULT;
    if (args->n_words != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench machine: wanted options only, found \"%s\"; a disk is "
                                "--disk FOLDER",
                                args->word);
    DFX_TRY(refuse_options(args, console, "machine", foreign, DFX_COUNT(foreign)));
    if (!dfx_args_int(args, OPT_THREADS, 1, THREADS_MAX, &threads) ||
        !dfx_args_int(args, OPT_RUNS, 1, DFX_BENCH_RUNS_MAX, &runs))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    dfx_bench_machine_options bench = {
        .disk = dfx_args_given(args, OPT_DISK) ? args->value[OPT_DISK] : ".",
        .n_threads = threads,
        .n_runs = (uint32_t)runs,
        .cancelled = on_cancelled};
    if (!dfx_args_given(args, OPT_OUTPUT))
        return measure(args, &bench, NULL, console);
    dfx_file_writer writer; /* begun first: a name that will not do is told before the work */
    DFX_TRY(dfx_file_write_begin_large(args->value[OPT_OUTPUT], &console->sink, &writer));
    return measure(args, &bench, &writer, console);
}

/* ---- the command ---- */

int dfx_cmd_bench(int argc, char **argv) {
    dfx_args args;
    dfx_console console;
    dfx_status status;
    bool io = argc > 0 && strcmp(argv[0], "io") == 0;
    bool machine = argc > 0 && strcmp(argv[0], "machine") == 0;
    int skip = io || machine;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc - skip, argv + skip);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_bench();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_signals_catch();
    dfx_console_init(&console, false, dfx_args_given(&args, OPT_VERBOSE));
    if (!good)
        status = dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    else if (!skip)
        status = dfx_console_fail(&console, DFX_E_USAGE,
                                  "bench: wanted \"io\" or \"machine\" after it, found %s",
                                  argc > 0 ? argv[0] : "nothing");
    else
        status = io ? bench_io(&args, &console) : bench_machine(&args, &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
