/* dfx-edge generate: from the command line to files. In order: read all of the line, check what can be checked without
 * the model (numbers, prompt, names of files), open the model, check the request, and only then compute. */
#include <stdio.h>
#include <string.h>

#include "tools/batch.h"
#include "tools/commands.h"
#include "tools/maker.h"
#include "tools/memory.h"
#include "tools/prompt.h"
#include "tools/signals.h"

enum {
    OPT_PROMPT_FILE = DFX_N_MODEL_OPTIONS,
    OPT_BATCH_FILE,
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_PROMPT_FILE] = {"prompt-file", 0, "a file name"},
    [OPT_BATCH_FILE] = {"batch-file", 0, "a file name"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
    DFX_PICTURE_OPTION_TABLE DFX_MODEL_OPTION_TABLE};

/* The command line, understood. */
typedef struct generate_settings {
    dfx_picture_options picture;
    dfx_model_options model;
    const char *batch_path; /* borrowed; NULL: one request */
    bool json;
} generate_settings;

static char prompt_text[DFX_PROMPT_BUFFER_BYTES]; /* of --prompt-file; too large for a stack */

static dfx_status read_prompt(const dfx_args *args, generate_settings *settings,
                              dfx_console *console) {
    bool option = dfx_args_given(args, DFX_PICTURE_PROMPT),
         file = dfx_args_given(args, OPT_PROMPT_FILE);
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
        settings->picture.prompt = prompt_text;
        return dfx_prompt_read(console, "--prompt-file", args->value[OPT_PROMPT_FILE], prompt_text);
    }
    if (args->n_words > 0)
        settings->picture.prompt = args->word;
    if (settings->picture.prompt)
        return DFX_OK;
    dfx_help_usage(stderr);
    return DFX_E_USAGE;
}

/* Prompts and names are the lines' own; a seed, too, since it would give all of them one name. */
static dfx_status check_batch(const dfx_args *args, dfx_console *console) {
    static const int own[] = {DFX_PICTURE_PROMPT, OPT_PROMPT_FILE, DFX_PICTURE_OUTPUT,
                              DFX_PICTURE_SEED};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (dfx_args_given(args, own[i]))
            return dfx_console_fail(console, DFX_E_USAGE,
                                    "--batch-file and --%s: the lines of the file say that",
                                    options[own[i]].name);
    if (args->n_words > 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--batch-file: wanted no prompt beside it, found \"%s\"",
                                args->word);
    return DFX_OK;
}

static dfx_status check_output(const generate_settings *settings, dfx_console *console) {
    const char *path = settings->picture.output_path;
    if (path && strcmp(path, "-") == 0 && settings->json)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--output - and --json: both want standard output; wanted one of them");
    return DFX_OK;
}

/* Everything before the model, but what the lines of a batch say. */
static dfx_status read_settings(dfx_args *args, generate_settings *settings, dfx_console *console) {
    dfx_picture_options_init(&settings->picture);
    settings->json = dfx_args_given(args, OPT_JSON);
    settings->batch_path = args->value[OPT_BATCH_FILE];
    if (dfx_args_given(args, OPT_QUIET) && dfx_args_given(args, OPT_VERBOSE))
        return dfx_console_fail(console, DFX_E_USAGE, "--quiet and --verbose: wanted one of them");
    DFX_OR_RETURN(dfx_picture_options_read(args, console, &settings->picture));
    DFX_OR_RETURN(check_output(settings, console));
    DFX_OR_RETURN(settings->batch_path ? check_batch(args, console)
                                       : read_prompt(args, settings, console));
    if (!settings->batch_path)
        DFX_OR_RETURN(dfx_picture_options_settle(&settings->picture, console));
    return dfx_model_options_read(args, console, &settings->model);
}

static dfx_status make_pictures(const generate_settings *settings, dfx_console *console) {
    dfx_maker maker;
    dfx_open_options open = settings->model.open;
    const dfx_picture_options *picture = &settings->picture;
    if (settings->batch_path)
        return dfx_batch_run(console, settings->batch_path, picture, &open, settings->json);
    if (picture->loras) {
        open.loras = picture->loras->acting;
        open.n_loras = picture->loras->n_acting;
    }
    DFX_OR_RETURN(dfx_maker_open(&maker, console, &open, settings->json));
    dfx_status status = dfx_maker_make(&maker, picture);
    dfx_maker_close(&maker);
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
        status = make_pictures(&settings, &console);
    dfx_picture_options_fini(&settings.picture);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
