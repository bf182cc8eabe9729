/* dfx-edge bench: what the parts of the runtime reach on this machine, beside what the machine can do; the machine as a profile
 * for plans; whole pictures at many budgets. */
#include <stdio.h>
#include <string.h>

#include "tools/bench_command.h"
#include "tools/bench_sample.h"
#include "tools/commands.h"
#include "tools/signals.h"

enum { RUNS_DEFAULT = 5, THREADS_MAX = 256 };

/* Which parts take an option. */
enum { IO = 1, MACHINE = 2, OPS = 4, IMAGE = 8, ALL = IO | MACHINE | OPS | IMAGE };

static const struct {
    dfx_args_option option;
    int parts;
} TABLE[DFX_BENCH_N_OPTIONS] = {
    [DFX_BENCH_MODEL] = {{"model", 'm', "a model", .listed = true}, IMAGE},
    [DFX_BENCH_DEVICE] = {{"device", 0, "auto, cpu or cuda"}, MACHINE | OPS | IMAGE},
    [DFX_BENCH_THREADS] = {{"threads", 0, "a number"}, MACHINE | OPS | IMAGE},
    [DFX_BENCH_DISK] = {{"disk", 0, "a file or a folder"}, MACHINE},
    [DFX_BENCH_QUEUE_DEPTH] = {{"queue-depth", 0, "a number"}, IO},
    [DFX_BENCH_ONLY] = {{"only", 0, "a part of an op's line"}, OPS},
    [DFX_BENCH_QUANT] = {{"quant", 0, "bf16, int8, int8wo or fp8"}, OPS | IMAGE},
    [DFX_BENCH_LIKE] = {{"like", 0, "flux-dev, flux-schnell, scenes or tiny"}, OPS},
    [DFX_BENCH_SIZE] = {{"size", 0, "WIDTHxHEIGHT"}, OPS | IMAGE},
    [DFX_BENCH_STEPS] = {{"steps", 0, "a number"}, IMAGE},
    [DFX_BENCH_TEXT_LENGTH] = {{"text-length", 0, "a number of tokens"}, OPS | IMAGE},
    [DFX_BENCH_REUSE] = {{"reuse", 0, "a number such as 0.1"}, IMAGE},
    [DFX_BENCH_ATTENTION_BITS] = {{"attention-bits", 0, "16 or 8"}, OPS | IMAGE},
    [DFX_BENCH_PROMPT] = {{"prompt", 'p', "the text"}, IMAGE},
    [DFX_BENCH_VRAM_BUDGET] = {{"vram-budget", 0, "sizes such as 12G,8G,6G"}, IMAGE},
    [DFX_BENCH_RAM_BUDGET] = {{"ram-budget", 0, "a size such as 32G"}, IMAGE},
    [DFX_BENCH_OFFLOAD] = {{"offload", 0, "auto, ram, nvme or none"}, IMAGE},
    [DFX_BENCH_COMPARE] = {{"compare", 0, "a JSON file of an earlier run"}, IMAGE},
    [DFX_BENCH_RUNS] = {{"runs", 0, "a number"}, ALL},
    [DFX_BENCH_OUTPUT] = {{"output", 'o', "a name"}, MACHINE | IMAGE},
    [DFX_BENCH_JSON] = {{"json", 0, NULL}, ALL},
    [DFX_BENCH_VERBOSE] = {{"verbose", 'v', NULL}, ALL},
    [DFX_BENCH_HELP] = {{"help", 'h', NULL}, ALL},
    [DFX_BENCH_VERSION] = {{"version", 0, NULL}, ALL},
};

static const struct {
    const char *name;
    int part;
    dfx_status (*run)(dfx_args *args, dfx_console *console);
} PARTS[] = {{"io", IO, dfx_bench_io_command},
             {"machine", MACHINE, dfx_bench_machine_command},
             {"ops", OPS, dfx_bench_ops_command},
             {"image", IMAGE, dfx_bench_image_command}};

/* ---- what the parts share */

bool dfx_bench_cancelled(void *user) {
    return dfx_signals_interrupted();
}

dfx_status dfx_bench_told(dfx_status status, dfx_console *console) {
    return status == DFX_E_CANCELLED ? dfx_console_fail(console, status, "interrupted") : status;
}

dfx_status dfx_bench_misused(const dfx_args *args, dfx_console *console) {
    return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
}

bool dfx_bench_read_runs(dfx_args *args, uint32_t *runs) {
    int n = RUNS_DEFAULT;
    bool good = dfx_args_int(args, DFX_BENCH_RUNS, 1, DFX_BENCH_RUNS_MAX, &n);
    *runs = (uint32_t)n;
    return good;
}

dfx_status dfx_bench_read_device(dfx_args *args, dfx_console *console,
                                 dfx_bench_device_choice *out) {
    static const char *const devices[] = {
        [DFX_DEVICE_AUTO] = "auto", [DFX_DEVICE_CPU] = "cpu", [DFX_DEVICE_CUDA] = "cuda", NULL};
    int device = DFX_DEVICE_AUTO;
    *out = (dfx_bench_device_choice){0};
    if (!dfx_args_choice(args, DFX_BENCH_DEVICE, devices, &device) ||
        !dfx_args_int(args, DFX_BENCH_THREADS, 1, THREADS_MAX, &out->n_threads))
        return dfx_bench_misused(args, console);
    out->device = (dfx_device_choice)device;
    return DFX_OK;
}

#ifdef DFX_HAVE_CUDA
/* A device that is not there is no fault when nobody asked for it. */
static void say_as_detail(void *user, dfx_level level, const char *text) {
    dfx_console_say(user, DFX_DEBUG, "%s", text);
}

static dfx_status open_cuda(bool wanted, dfx_console *console, dfx_backend **out) {
    dfx_sink quiet = {.say = say_as_detail, .user = console};
    dfx_status status =
        dfx_cuda_backend_open(&(dfx_cuda_options){0}, wanted ? &console->sink : &quiet, out);
    if (status == DFX_OK)
        (*out)->sink = &console->sink;
    return status;
}
#else
static dfx_status open_cuda(bool wanted, dfx_console *console, dfx_backend **out) {
    return !wanted ? DFX_E_DEVICE
                   : dfx_console_fail(console, DFX_E_DEVICE,
                                      "device cuda: this dfx-edge was built without its CUDA part; "
                                      "build it where nvcc is, or use --device cpu");
}
#endif

dfx_status dfx_bench_open_device(const dfx_bench_device_choice *choice, dfx_console *console,
                                 dfx_backend **out, dfx_device_facts *facts) {
    dfx_status status = DFX_E_DEVICE;
    if (choice->device != DFX_DEVICE_CPU)
        status = open_cuda(choice->device == DFX_DEVICE_CUDA, console, out);
    if (status != DFX_OK && choice->device != DFX_DEVICE_CUDA)
        status = dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = choice->n_threads},
                                      &console->sink, out);
    if (status == DFX_OK)
        (*out)->vt->describe(*out, facts);
    return status;
}

/* ---- the command */

static dfx_status run_part(size_t which, dfx_args *args, dfx_console *console) {
    for (int i = 0; i < DFX_BENCH_N_OPTIONS; i++)
        if (dfx_args_given(args, i) && !(TABLE[i].parts & PARTS[which].part))
            return dfx_console_fail(console, DFX_E_USAGE, "bench %s: there is no --%s here",
                                    PARTS[which].name, TABLE[i].option.name);
    return PARTS[which].run(args, console);
}

int dfx_cmd_bench(int argc, char **argv) {
    dfx_args args;
    dfx_console console;
    dfx_status status;
    dfx_args_option options[DFX_BENCH_N_OPTIONS];
    size_t which = 0;
    for (int i = 0; i < DFX_BENCH_N_OPTIONS; i++)
        options[i] = TABLE[i].option;
    while (which < DFX_COUNT(PARTS) && !(argc > 0 && strcmp(argv[0], PARTS[which].name) == 0))
        which++;
    int skip = which < DFX_COUNT(PARTS);
    bool good = dfx_args_parse(&args, options, DFX_BENCH_N_OPTIONS, argc - skip, argv + skip);
    if (dfx_args_given(&args, DFX_BENCH_HELP))
        return dfx_help_bench();
    if (dfx_args_given(&args, DFX_BENCH_VERSION))
        return dfx_help_version();
    dfx_signals_catch();
    dfx_console_init(&console, false, dfx_args_given(&args, DFX_BENCH_VERBOSE));
    if (!good)
        status = dfx_bench_misused(&args, &console);
    else if (!skip)
        status = dfx_console_fail(
            &console, DFX_E_USAGE,
            "bench: wanted \"machine\", \"ops\", \"image\" or \"io\" after it, found %s",
            argc > 0 ? argv[0] : "nothing");
    else
        status = run_part(which, &args, &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
