/* dfx-edge random-model: a model of full size whose weights a seed makes, for benchmarks and tests. As a diffusers folder,
 * or straight into a packed model, without anything between. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/commands.h"
#include "tools/output.h"
#include "tools/pack_options.h"
#include "tools/pack_progress.h"
#include "tools/progress.h"
#include "tools/random_folder.h"
#include "tools/random_lora.h"
#include "tools/random_single.h"
#include "tools/report.h"
#include "tools/signals.h"

enum {
    OPT_LIKE,
    OPT_OUTPUT,
    OPT_QUANT,
    OPT_KEEP,
    OPT_COMPRESS,
    OPT_LORA,
    OPT_LAYOUT,
    OPT_FORMAT,
    OPT_SEED,
    OPT_THREADS,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_LIKE] = {"like", 0, "flux-dev, flux-schnell, scenes or tiny"},
    [OPT_OUTPUT] = {"output", 'o', "a folder, or a file name that ends in .safetensors"},
    [OPT_QUANT] = {"quant", 0, "int8, fp8, int8wo, bf16 or auto"},
    [OPT_KEEP] = {"keep", 0, "patterns of names"},
    [OPT_COMPRESS] = {"compress", 0, NULL},
    [OPT_LORA] = {"lora", 0, "a rank"},
    [OPT_LAYOUT] = {"layout", 0, "diffusers, bfl or comfy"},
    [OPT_FORMAT] = {"format", 0, "bf16, fp8, fp8-scaled or gguf-q8_0"},
    [OPT_SEED] = {"seed", 0, "a number"},
    [OPT_THREADS] = {"threads", 0, "a number"},
    [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

enum { THREADS_MAX = 256 };

enum { LAYOUT_DIFFUSERS, LAYOUT_BFL, LAYOUT_COMFY };
static const char *const LAYOUTS[] = {"diffusers", "bfl", "comfy", NULL};
static const char *const FORMATS[] = {[DFX_SINGLE_BF16] = "bf16",
                                      [DFX_SINGLE_FP8] = "fp8",
                                      [DFX_SINGLE_FP8_SCALED] = "fp8-scaled",
                                      [DFX_SINGLE_Q8_0] = "gguf-q8_0",
                                      NULL};

typedef struct random_settings {
    const dfx_architecture *arch;
    const char *output;
    bool to_file;
    int lora_rank; /* 0: a model */
    int layout;    /* LAYOUTS */
    dfx_single_format format;
    uint64_t seed;
    dfx_pack_keep keep;
    dfx_pack_options pack;
} random_settings;

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

static dfx_status check_folder_options(const dfx_args *args, dfx_console *console) {
    static const int packed_only[] = {OPT_KEEP, OPT_COMPRESS};
    for (size_t i = 0; i < DFX_COUNT(packed_only); i++)
        if (dfx_args_given(args, packed_only[i]))
            return dfx_console_fail(console, DFX_E_USAGE,
                                    "--%s: wanted with a packed model: an --output that ends in "
                                    ".safetensors",
                                    options[packed_only[i]].name);
    if (dfx_args_given(args, OPT_QUANT) && strcmp(args->value[OPT_QUANT], "bf16") != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--quant %s: a folder holds bf16; wanted an --output that ends in "
                                ".safetensors",
                                args->value[OPT_QUANT]);
    return DFX_OK;
}

static dfx_status check_lora_options(const dfx_args *args, const random_settings *s,
                                     dfx_console *console) {
    static const int of_models[] = {OPT_QUANT, OPT_KEEP, OPT_COMPRESS};
    for (size_t i = 0; i < DFX_COUNT(of_models); i++)
        if (dfx_args_given(args, of_models[i]))
            return dfx_console_fail(console, DFX_E_USAGE, "--%s: not for a LoRA, which is bf16",
                                    options[of_models[i]].name);
    return s->to_file ? DFX_OK
                      : dfx_console_fail(console, DFX_E_USAGE,
                                         "--output %s: wanted a file that ends in .safetensors for "
                                         "a LoRA",
                                         s->output);
}

/* Single files are a folder's; GGUF is one component a file. */
static dfx_status check_layout(const dfx_args *args, const random_settings *s,
                               dfx_console *console) {
    bool given = dfx_args_given(args, OPT_LAYOUT) || dfx_args_given(args, OPT_FORMAT);
    if (given && (s->to_file || s->lora_rank))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--layout and --format: wanted with an --output that is a folder");
    if (s->layout == LAYOUT_DIFFUSERS && s->format != DFX_SINGLE_BF16)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--format %s: wanted with --layout bfl or comfy; a diffusers folder is "
            "bf16",
            FORMATS[s->format]);
    if (s->layout == LAYOUT_COMFY && s->format == DFX_SINGLE_Q8_0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--format gguf-q8_0: wanted with --layout bfl; all in one are "
                                "safetensors files only");
    return DFX_OK;
}

static dfx_status read_settings(dfx_args *args, random_settings *s, dfx_console *console) {
    dfx_status status;
    bool seeded = false;
    int like = 0, format = DFX_SINGLE_BF16;
    dfx_pack_warn_twice(args, console);
    if (args->n_words != 0)
        return dfx_console_fail(console, DFX_E_USAGE, "random-model: wanted options only, found %s",
                                args->word);
    if (!dfx_args_given(args, OPT_LIKE) || !dfx_args_given(args, OPT_OUTPUT))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "random-model: wanted --like and --output, as in dfx-edge "
                                "random-model --like flux-dev -o random.safetensors");
    if (!dfx_args_choice(args, OPT_LIKE, dfx_architecture_names(), &like) ||
        !dfx_args_choice(args, OPT_LAYOUT, LAYOUTS, &s->layout) ||
        !dfx_args_choice(args, OPT_FORMAT, FORMATS, &format) ||
        !dfx_args_seed(args, OPT_SEED, &seeded, &s->seed) ||
        !dfx_args_int(args, OPT_LORA, 1, DFX_ADAPTER_RANK_MAX, &s->lora_rank) ||
        !dfx_args_int(args, OPT_THREADS, 1, THREADS_MAX, &s->pack.n_threads))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    s->arch = dfx_architecture_find(dfx_architecture_names()[like]);
    s->output = args->value[OPT_OUTPUT];
    size_t n = strlen(s->output);
    s->to_file = n > 12 && strcmp(s->output + n - 12, ".safetensors") == 0;
    s->format = (dfx_single_format)format;
    DFX_TRY_OUT(status, check_layout(args, s, console));
    if (s->lora_rank)
        return check_lora_options(args, s, console);
    if (!s->to_file)
        return check_folder_options(args, console);
    s->pack.quant = DFX_Q_INT8;
    s->pack.compress = dfx_args_given(args, OPT_COMPRESS);
    DFX_TRY_OUT(status, dfx_pack_read_quant(args, OPT_QUANT, console, &s->pack.quant));
    DFX_TRY_OUT(status, dfx_pack_read_keep(args, OPT_KEEP, console, &s->keep));
    s->pack.keep = s->keep.patterns;
    s->pack.n_keep = s->keep.n;
out:
    return status;
}

/* Weights drawn, quantized and written page by page. */
static dfx_status write_file(random_settings *s, dfx_random_weights *weights,
                             const dfx_random_files *files, dfx_console *console) {
    dfx_program programs[DFX_PACK_PROGRAMS] = {0};
    const dfx_program *list[DFX_PACK_PROGRAMS];
    const char *components[DFX_PACK_PROGRAMS];
    const dfx_tensors *sets[DFX_N_COMPONENTS];
    char source[96];
    dfx_pack_report report;
    size_t n;
    for (int c = 0; c < DFX_N_COMPONENTS; c++)
        sets[c] = weights->sets[c];
    dfx_status status = dfx_pack_build(&s->arch->configs, sets, &console->sink, programs, &n);
    for (int p = 0; p < DFX_PACK_PROGRAMS; p++) {
        list[p] = &programs[p];
        components[p] = dfx_component_places[dfx_pack_component_of[p]].folder;
    }
    dfx_pack_source from = {.programs = list,
                            .components = components,
                            .n_programs = DFX_PACK_PROGRAMS,
                            .files = files->paths,
                            .file_texts = (const char *const *)files->texts,
                            .n_files = DFX_RANDOM_FILES,
                            .read = dfx_random_weights_read,
                            .read_user = weights};
    snprintf(source, sizeof(source), "random weights like %s, seed %" PRIu64, s->arch->name,
             s->seed);
    s->pack.source = source;
    if (status == DFX_OK)
        status = dfx_pack_write(&from, &s->pack, s->output, &console->sink, &report);
    if (status == DFX_OK)
        dfx_pack_tell(console, s->output, s->pack.quant, &report);
    for (int p = 0; p < DFX_PACK_PROGRAMS; p++)
        dfx_program_fini(&programs[p]);
    return status;
}

static dfx_status write_folder(random_settings *s, dfx_random_weights *weights,
                               const dfx_random_files *files, dfx_console *console) {
    char size[DFX_REPORT_TEXT_BYTES], seconds[DFX_PROGRESS_SECONDS_BYTES];
    const dfx_pack_progress *progress = s->pack.user;
    dfx_random_options o = {.n_threads = s->pack.n_threads,
                            .progress = s->pack.progress,
                            .cancelled = s->pack.cancelled,
                            .user = s->pack.user};
    uint64_t n_bytes;
    struct timespec now;
    dfx_status status =
        s->layout == LAYOUT_DIFFUSERS
            ? dfx_random_folder_write(weights, files, s->output, &o, &console->sink, &n_bytes)
            : dfx_random_single_write(weights, files, s->output,
                                      s->layout == LAYOUT_BFL ? DFX_SINGLE_BFL : DFX_SINGLE_COMFY,
                                      s->format, &o, &console->sink, &n_bytes);
    if (status != DFX_OK)
        return status;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double took = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - progress->begun_s;
    dfx_console_say(console, DFX_INFO, "%s  %s of weights  %s", s->output,
                    dfx_report_bytes(n_bytes, size), dfx_progress_seconds(took, seconds));
    return DFX_OK;
}

static dfx_status write_lora(const random_settings *s, dfx_console *console) {
    char size[DFX_REPORT_TEXT_BYTES];
    uint64_t n_bytes;
    dfx_status status =
        dfx_random_lora_write(s->arch, s->lora_rank, s->seed, s->output, &console->sink, &n_bytes);
    if (status == DFX_OK)
        dfx_console_say(console, DFX_INFO, "%s  a LoRA of rank %d on every layer, %s", s->output,
                        s->lora_rank, dfx_report_bytes(n_bytes, size));
    return status;
}

static dfx_status write_model(random_settings *s, dfx_console *console) {
    dfx_pack_progress progress;
    dfx_random_weights weights = {0};
    dfx_random_files files = {0};
    dfx_pack_progress_begin(&progress, console, "random-model");
    s->pack.progress = dfx_pack_progress_show;
    s->pack.cancelled = on_cancelled;
    s->pack.user = &progress;
    dfx_status status = dfx_random_weights_init(&weights, s->arch, s->seed, &console->sink);
    if (status == DFX_OK)
        status = dfx_random_files_init(&files, s->arch, &console->sink);
    if (status == DFX_OK)
        status = s->to_file ? write_file(s, &weights, &files, console)
                            : write_folder(s, &weights, &files, console);
    if (status == DFX_E_CANCELLED) /* the library stops silently: we are the ones who asked */
        dfx_console_fail(console, status, "interrupted; %s is not complete and no model",
                         s->output);
    dfx_random_files_fini(&files);
    dfx_random_weights_fini(&weights);
    return status;
}

int dfx_cmd_random_model(int argc, char **argv) {
    static random_settings settings; /* zeroed; too large for a stack */
    dfx_args args;
    dfx_console console;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_random_model();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, dfx_args_given(&args, OPT_QUIET),
                     dfx_args_given(&args, OPT_VERBOSE));
    dfx_status status = good ? read_settings(&args, &settings, &console)
                             : dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    if (status == DFX_OK) {
        dfx_signals_catch();
        status =
            settings.lora_rank ? write_lora(&settings, &console) : write_model(&settings, &console);
    }
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
