/* dfx-edge generate: from the command line to files. In order: read all of the line, check what can be checked without
 * the model (numbers, prompt, names of files), open the model, check the request, and only then compute. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "models/dfx.h"
#include "tools/args.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/find_model.h"
#include "tools/init_files.h"
#include "tools/lora_list.h"
#include "tools/output.h"
#include "tools/pack_progress.h"
#include "tools/prompt.h"
#include "tools/report.h"
#include "tools/signals.h"

enum {
    COUNT_MAX = 1000,
    THREADS_MAX = 256,
    TEXT_LENGTH_MAX = 65536,
    GUIDANCE_MAX = 1000,
    LORA_RANK_MAX = 512,
    DEVICE_MAX = 63
};

enum {
    OPT_MODEL,
    OPT_OUTPUT,
    OPT_PROMPT,
    OPT_PROMPT_FILE,
    OPT_INIT,
    OPT_STRENGTH,
    OPT_MASK,
    OPT_SIZE,
    OPT_WIDTH,
    OPT_HEIGHT,
    OPT_STEPS,
    OPT_GUIDANCE,
    OPT_TEXT_LENGTH,
    OPT_SEED,
    OPT_COUNT,
    OPT_DEVICE,
    OPT_THREADS,
    OPT_VRAM_BUDGET,
    OPT_RAM_BUDGET,
    OPT_OFFLOAD,
    OPT_QUANT,
    OPT_LORA,
    OPT_LORA_MAX_RANK,
    OPT_LORA_MAX,
    OPT_PROFILE,
    OPT_VERIFY,
    OPT_TRACE,
    OPT_JSON,
    OPT_NO_METADATA,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_MODEL] = {"model", 'm', "a folder"},
    [OPT_OUTPUT] = {"output", 'o', "a file name"},
    [OPT_PROMPT] = {"prompt", 'p', "the text"},
    [OPT_PROMPT_FILE] = {"prompt-file", 0, "a file name"},
    [OPT_INIT] = {"init", 0, "a picture, PNG or JPEG"},
    [OPT_STRENGTH] = {"strength", 0, "a number"},
    [OPT_MASK] = {"mask", 0, "a picture, PNG or JPEG"},
    [OPT_SIZE] = {"size", 0, "WIDTHxHEIGHT"},
    [OPT_WIDTH] = {"width", 0, "a number of pixels"},
    [OPT_HEIGHT] = {"height", 0, "a number of pixels"},
    [OPT_STEPS] = {"steps", 0, "a number"},
    [OPT_GUIDANCE] = {"guidance", 0, "a number"},
    [OPT_TEXT_LENGTH] = {"text-length", 0, "a number of tokens"},
    [OPT_SEED] = {"seed", 0, "a number"},
    [OPT_COUNT] = {"count", 'n', "a number"},
    [OPT_DEVICE] = {"device", 0, "auto, cpu, cuda or cuda:N"},
    [OPT_THREADS] = {"threads", 0, "a number"},
    [OPT_VRAM_BUDGET] = {"vram-budget", 0, "a size such as 12G"},
    [OPT_RAM_BUDGET] = {"ram-budget", 0, "a size such as 16G"},
    [OPT_OFFLOAD] = {"offload", 0, "auto, ram, nvme or none"},
    [OPT_QUANT] = {"quant", 0, "auto, bf16, int8, int8wo or fp8"},
    [OPT_LORA] = {"lora", 0, "a file, with or without :STRENGTH", true},
    [OPT_LORA_MAX_RANK] = {"lora-max-rank", 0, "a number"},
    [OPT_LORA_MAX] = {"lora-max", 0, "a number"},
    [OPT_PROFILE] = {"profile", 0, "a machine profile"},
    [OPT_VERIFY] = {"verify", 0, "first or always"},
    [OPT_TRACE] = {"trace", 0, "a file name"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_NO_METADATA] = {"no-metadata", 0, NULL},
    [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

/* The command line, understood. 0 (or a negative guidance, and strength) leaves the choice to the model. */
typedef struct generate_settings {
    const char *prompt;
    int width, height, steps, text_length;
    double guidance, strength;
    dfx_init_files init;
    bool has_seed;
    uint64_t seed;
    int n_pictures;
    bool json, no_metadata;
    dfx_output output;
    dfx_lora_list loras;
    char model_path[DFX_MODEL_PATH_BYTES];
    dfx_open_options open;
} generate_settings;

static char prompt_text[DFX_PROMPT_BUFFER_BYTES]; /* of --prompt-file; too large for a stack */

static void warn_twice(const dfx_args *args, dfx_console *console) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (args->n_given[i] > 1 && options[i].value && !options[i].listed)
            dfx_console_say(console, DFX_WARN, "--%s: given %d times; the last one, \"%s\", counts",
                            options[i].name, args->n_given[i], args->value[i]);
    for (int side = OPT_WIDTH; side <= OPT_HEIGHT; side++)
        if (dfx_args_given(args, OPT_SIZE) && dfx_args_given(args, side))
            dfx_console_say(console, DFX_WARN,
                            "--size and --%s: both given; the last one, --%s, counts",
                            options[side].name,
                            args->at[side] > args->at[OPT_SIZE] ? options[side].name : "size");
}

/* One side: from --size or from its own option, whichever came last. */
static bool read_side(dfx_args *args, int which, int *side) {
    int own = *side;
    if (!dfx_args_int(args, which, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &own))
        return false;
    if (!dfx_args_given(args, OPT_SIZE) || args->at[which] > args->at[OPT_SIZE])
        *side = own;
    return true;
}

static bool read_numbers(dfx_args *args, generate_settings *to) {
    static const char *const devices[] = {
        [DFX_DEVICE_AUTO] = "auto", [DFX_DEVICE_CPU] = "cpu", [DFX_DEVICE_CUDA] = "cuda", NULL};
    static const char *const offloads[] = {"auto", "ram", "nvme", "none", NULL};
    static const char *const quants[] = {"auto", "bf16", "int8", "int8wo", "fp8", NULL};
    static const char *const verifies[] = {"first", "always", NULL};
    int device = DFX_DEVICE_AUTO, offload = 0, quant = 0, verify = 0;
    to->guidance = to->strength = -1;
    to->n_pictures = 1;
    bool good =
        dfx_args_extent(args, OPT_SIZE, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &to->width, &to->height) &&
        read_side(args, OPT_WIDTH, &to->width) && read_side(args, OPT_HEIGHT, &to->height) &&
        dfx_args_int(args, OPT_STEPS, 1, DFX_STEPS_MAX, &to->steps) &&
        dfx_args_real(args, OPT_GUIDANCE, 0, GUIDANCE_MAX, &to->guidance) &&
        dfx_args_real(args, OPT_STRENGTH, 0, 1, &to->strength) &&
        dfx_args_int(args, OPT_TEXT_LENGTH, 1, TEXT_LENGTH_MAX, &to->text_length) &&
        dfx_args_seed(args, OPT_SEED, &to->has_seed, &to->seed) &&
        dfx_args_int(args, OPT_COUNT, 1, COUNT_MAX, &to->n_pictures) &&
        dfx_args_choice_numbered(args, OPT_DEVICE, devices, DFX_DEVICE_CUDA, DEVICE_MAX, &device,
                                 &to->open.device_index) &&
        dfx_args_int(args, OPT_THREADS, 1, THREADS_MAX, &to->open.n_threads) &&
        dfx_args_bytes(args, OPT_VRAM_BUDGET, &to->open.vram_budget_bytes) &&
        dfx_args_bytes(args, OPT_RAM_BUDGET, &to->open.ram_budget_bytes) &&
        dfx_args_choice(args, OPT_OFFLOAD, offloads, &offload) &&
        dfx_args_choice(args, OPT_QUANT, quants, &quant) &&
        dfx_args_choice(args, OPT_VERIFY, verifies, &verify) &&
        dfx_args_int(args, OPT_LORA_MAX_RANK, 1, LORA_RANK_MAX, &to->open.lora_max_rank) &&
        dfx_args_int(args, OPT_LORA_MAX, 1, LORA_RANK_MAX, &to->open.lora_max);
    to->open.device = (dfx_device_choice)device;
    to->open.offload = offloads[offload];
    to->open.quant = quants[quant];
    to->open.verify_always = verify == 1;
    return good;
}

/* What the numbers say together. */
static dfx_status check_numbers(const dfx_args *args, const generate_settings *settings,
                                dfx_console *console) {
    int64_t width = settings->width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    int64_t height = settings->height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (width * height > DFX_PIXELS_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--size %dx%d: wanted at most %d pixels, found %" PRId64,
                                settings->width, settings->height, DFX_PIXELS_MAX, width * height);
    if (settings->has_seed && settings->seed > UINT64_MAX - (uint64_t)(settings->n_pictures - 1))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--seed %" PRIu64
                                " --count %d: the last seed would be above %" PRIu64,
                                settings->seed, settings->n_pictures, UINT64_MAX);
    if (settings->strength == 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--strength 0: wanted more than 0; it would leave no step to make");
    if (dfx_args_given(args, OPT_STRENGTH) && !dfx_args_given(args, OPT_INIT))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--strength: wanted --init with it, the picture to begin with");
    if (dfx_args_given(args, OPT_QUIET) && dfx_args_given(args, OPT_VERBOSE))
        return dfx_console_fail(console, DFX_E_USAGE, "--quiet and --verbose: wanted one of them");
    if (dfx_args_given(args, OPT_TRACE) && strcmp(args->value[OPT_TRACE], "-") == 0)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--trace -: wanted the name of a file; it is written several times");
    if (settings->output.to_stdout && settings->json)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--output - and --json: both want standard output; wanted one of them");
    return DFX_OK;
}

static dfx_status read_prompt(const dfx_args *args, generate_settings *settings,
                              dfx_console *console) {
    bool option = dfx_args_given(args, OPT_PROMPT), file = dfx_args_given(args, OPT_PROMPT_FILE);
    if (args->n_words > 1)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "the prompt: wanted one word of the command line, found %d; quote it: "
            "dfx-edge \"%s ...\"",
            args->n_words, args->word);
    if (option + file + args->n_words > 1)
        return dfx_console_fail(console, DFX_E_USAGE, "the prompt: given %d times: %s%s%s",
                                option + file + args->n_words, args->n_words ? "as a word, " : "",
                                option ? "--prompt" : "--prompt-file",
                                option && file ? ", --prompt-file" : "");
    if (file) {
        settings->prompt = prompt_text;
        return dfx_prompt_read(console, args->value[OPT_PROMPT_FILE], prompt_text);
    }
    settings->prompt = option ? args->value[OPT_PROMPT] : args->word;
    if (settings->prompt)
        return DFX_OK;
    dfx_help_usage(stderr);
    return DFX_E_USAGE;
}

/* Below 2^32, since noise depends on the low 32 bits alone; the seeds of the whole batch too. */
static dfx_status draw_seed(generate_settings *settings, dfx_console *console) {
    uint32_t drawn;
    if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
        return dfx_console_fail(console, DFX_E_IO,
                                "no random numbers from the system; give --seed");
    settings->seed = drawn % (UINT32_MAX - (uint32_t)COUNT_MAX);
    return DFX_OK;
}

/* Everything before the model. */
static dfx_status read_settings(dfx_args *args, generate_settings *settings, dfx_console *console) {
    dfx_status status = DFX_OK;
    settings->open.sink = console->sink;
    settings->json = dfx_args_given(args, OPT_JSON);
    settings->no_metadata = dfx_args_given(args, OPT_NO_METADATA);
    warn_twice(args, console);
    if (!read_numbers(args, settings))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    if ((status = dfx_output_init(&settings->output, console, args->value[OPT_OUTPUT],
                                  settings->n_pictures)) != DFX_OK ||
        (status = check_numbers(args, settings, console)) != DFX_OK ||
        (status = read_prompt(args, settings, console)) != DFX_OK ||
        (status = dfx_lora_list_read(&settings->loras, args, OPT_LORA, console)) != DFX_OK)
        return status;
    settings->open.loras = settings->loras.paths;
    settings->open.n_loras = settings->loras.n;
    if (!settings->has_seed && (status = draw_seed(settings, console)) != DFX_OK)
        return status;
    if ((status = dfx_output_check(&settings->output, console, settings->seed,
                                   settings->n_pictures)) != DFX_OK ||
        (status = dfx_init_files_read(console, args->value[OPT_INIT], args->value[OPT_MASK],
                                      &settings->init)) != DFX_OK)
        return status;
    settings->open.profile = args->value[OPT_PROFILE];
    settings->open.trace_path = args->value[OPT_TRACE];
    settings->open.model_path = args->value[OPT_MODEL];
    if (!dfx_args_given(args, OPT_MODEL)) {
        status = dfx_bundled_find(console, settings->model_path);
        settings->open.model_path = settings->model_path;
    }
    return status;
}

typedef struct generate_run {
    dfx_console *console;
    const generate_settings *settings;
    dfx_model *model;
    dfx_model_info info;
    dfx_pack_progress packing;
    int n_written;
} generate_run;

static void on_progress(void *user, const dfx_progress *progress) {
    generate_run *at = user;
    dfx_console_progress(at->console, progress);
}

static void on_packing(void *user, uint64_t done_bytes, uint64_t all_bytes) {
    generate_run *at = user;
    dfx_pack_progress_show(&at->packing, done_bytes, all_bytes);
}

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

/* A picture is there: to its file at once, and out of memory. */
static dfx_status on_made(void *user, dfx_image *image) {
    generate_run *at = user;
    const generate_settings *settings = at->settings;
    char name[DFX_OUTPUT_PATH_BYTES];
    image->plain = settings->no_metadata;
    uint64_t begin_ns = dfx_clock_ns();
    dfx_status status = dfx_output_write(&settings->output, at->console, image);
    dfx_model_span(at->model, "png", begin_ns);
    if (status == DFX_OK) {
        at->n_written++;
        dfx_output_name(&settings->output, image->seed, name);
        dfx_report_picture(at->console, name, image);
        if (settings->json) {
            dfx_report_json(name, &at->info, image);
            status = dfx_output_flush(at->console);
        }
    }
    dfx_image_free(image);
    return status;
}

static void make_request(generate_run *at, dfx_request *request) {
    const generate_settings *settings = at->settings;
    dfx_request_init(at->model, request);
    request->prompt = settings->prompt;
    request->seed = settings->seed;
    if (settings->width)
        request->width = settings->width;
    if (settings->height)
        request->height = settings->height;
    if (settings->steps)
        request->steps = settings->steps;
    if (settings->text_length)
        request->text_length = settings->text_length;
    if (settings->guidance >= 0)
        request->guidance = (float)settings->guidance;
    if (settings->strength >= 0)
        request->strength = settings->strength;
    dfx_init_files_request(&settings->init, at->model, settings->width, settings->height, request);
    if (settings->guidance >= 0 && !at->info.has_guidance)
        dfx_console_say(at->console, DFX_INFO,
                        "--guidance is ignored: %s has no guidance embedding", at->info.kind);
    request->loras = settings->loras.uses;
    request->n_loras = settings->loras.n;
    request->progress = on_progress;
    request->cancelled = on_cancelled;
    request->made = on_made;
    request->user = at;
}

/* After a failure: what is there all the same. */
static void list_written(const generate_settings *settings, dfx_console *console, int n_written) {
    char name[DFX_OUTPUT_PATH_BYTES];
    for (int i = 0; i < n_written; i++) {
        dfx_output_name(&settings->output, settings->seed + (uint64_t)i, name);
        dfx_console_say(console, DFX_ERROR, "written before the failure (%d of %d): %s", i + 1,
                        settings->n_pictures, name);
    }
}

/* The library stops silently: we are the ones who asked. */
static dfx_status say_interrupted(dfx_console *console, dfx_status status) {
    return status == DFX_E_CANCELLED ? dfx_console_fail(console, status, "interrupted") : status;
}

static dfx_status make_pictures(generate_run *at) {
    static dfx_image images[COUNT_MAX];
    const generate_settings *settings = at->settings;
    dfx_request request;
    make_request(at, &request);
    dfx_status status = dfx_request_check_batch(at->model, &request, settings->n_pictures);
    if (status != DFX_OK)
        return status;
    if (!settings->has_seed)
        dfx_console_say(at->console, DFX_INFO, "seed %" PRIu64, settings->seed);
    status = say_interrupted(at->console,
                             dfx_generate_batch(at->model, &request, settings->n_pictures, images));
    if (status != DFX_OK)
        list_written(settings, at->console, at->n_written);
    return status;
}

static dfx_status open_and_make(const generate_settings *settings, dfx_console *console) {
    generate_run at = {.console = console, .settings = settings};
    char parameters[DFX_REPORT_TEXT_BYTES], weights[DFX_REPORT_TEXT_BYTES];
    dfx_open_options open = settings->open;
    dfx_pack_progress_begin(&at.packing, console, "pack");
    open.packing = on_packing;
    open.cancelled = on_cancelled;
    open.user = &at;
    dfx_status status = dfx_model_open(&open, &at.model);
    if (status != DFX_OK)
        return say_interrupted(console, status);
    dfx_model_describe(at.model, &at.info);
    dfx_console_say(console, DFX_DEBUG, "%s: %s, %s parameters, %s, on %s", at.info.name,
                    at.info.kind, dfx_report_count(at.info.n_parameters, parameters),
                    dfx_report_bytes(at.info.weight_bytes, weights), at.info.device);
    status = make_pictures(&at);
    dfx_model_close(at.model);
    return status;
}

int dfx_cmd_generate(int argc, char **argv) {
    static generate_settings settings; /* zeroed; its paths are too large for a stack */
    dfx_args args;
    dfx_console console;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_generate();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, dfx_args_given(&args, OPT_QUIET),
                     dfx_args_given(&args, OPT_VERBOSE));
    dfx_status status = DFX_OK;
    if (!good)
        status = dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    if (good) {
        dfx_signals_catch();
        status = read_settings(&args, &settings, &console);
    }
    if (status == DFX_OK)
        status = open_and_make(&settings, &console);
    dfx_init_files_free(&settings.init);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
