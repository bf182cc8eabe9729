/* dfx-edge bench machine: measure this machine, keep what was found as its profile, and tell how good that is. */
#include "models/cache.h"
#include "offload/profile_choice.h"
#include "tools/bench_command.h"
#include "tools/bench_print.h"
#include "tools/output.h"

typedef struct job {
    dfx_args *args;
    dfx_console *console;
    dfx_bench_device_choice choice;
    dfx_bench_machine_options bench;
    dfx_bench_machine machine;
    char path[DFX_PATH_BYTES]; /* of the profile */
} job;

/* --output, else where generate and plan look for it. */
static dfx_status find_path(job *j) {
    char folder[DFX_PATH_BYTES];
    if (dfx_args_given(j->args, DFX_BENCH_OUTPUT)) {
        snprintf(j->path, sizeof(j->path), "%s", j->args->value[DFX_BENCH_OUTPUT]);
        return DFX_OK;
    }
    DFX_TRY(dfx_cache_folder(&j->console->sink, folder));
    return dfx_profile_path(folder, j->machine.facts.name, &j->console->sink, j->path);
}

/* The file is begun first: a name that will not do is told before the work. */
static dfx_status measure(job *j, dfx_backend *be) {
    const dfx_sink *sink = &j->console->sink;
    dfx_file_writer writer;
    DFX_TRY(find_path(j));
    DFX_TRY(dfx_file_write_begin_large(j->path, sink, &writer));
    dfx_status status = dfx_bench_machine_run(be, &j->bench, sink, &j->machine);
    if (status == DFX_OK)
        return dfx_bench_write_profile(&j->machine.profile, sink, &writer);
    dfx_file_write_abort(&writer);
    return status;
}

/* The profile is kept even where the check of it fails. */
static dfx_status check_and_print(job *j) {
    dfx_bench_step step;
    bool is_gpu = j->machine.facts.sm > 0;
    dfx_status checked =
        is_gpu ? DFX_OK
               : dfx_bench_told(dfx_bench_step_run(&j->machine.profile, j->choice.n_threads,
                                                   dfx_bench_cancelled, j->console, &step),
                                j->console);
    const dfx_bench_step *known = checked == DFX_OK && !is_gpu ? &step : NULL;
    if (dfx_args_given(j->args, DFX_BENCH_JSON))
        dfx_bench_print_machine_json(&j->machine, known);
    else
        dfx_bench_print_machine(&j->machine, known);
    DFX_TRY(dfx_output_flush(j->console));
    dfx_console_say(j->console, DFX_INFO, "profile: %s", j->path);
    return checked;
}

static dfx_status run(job *j) {
    dfx_backend *be;
    DFX_TRY(dfx_bench_open_device(&j->choice, j->console, &be, &j->machine.facts));
    dfx_status status = dfx_bench_told(measure(j, be), j->console);
    be->vt->close(be); /* the check of a processor opens it anew */
    if (status == DFX_OK)
        status = check_and_print(j);
    dfx_bench_machine_close(&j->machine);
    return status;
}

dfx_status dfx_bench_machine_command(dfx_args *args, dfx_console *console) {
    static job j; /* zeroed; its samples are too large for a stack */
    j.args = args;
    j.console = console;
    if (args->n_words != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench machine: wanted options only, found \"%s\"; a disk is "
                                "--disk FOLDER",
                                args->word);
    j.bench.cancelled = dfx_bench_cancelled;
    j.bench.disk = dfx_args_given(args, DFX_BENCH_DISK) ? args->value[DFX_BENCH_DISK] : ".";
    DFX_TRY(dfx_bench_read_device(args, console, &j.choice));
    if (!dfx_bench_read_runs(args, &j.bench.n_runs))
        return dfx_bench_misused(args, console);
    return run(&j);
}
