/* dfx-edge pack: a diffusers folder into one packed model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/cache.h"
#include "models/pack.h"
#include "tools/commands.h"
#include "tools/output.h"
#include "tools/pack_options.h"
#include "tools/pack_progress.h"
#include "tools/signals.h"

enum {
    OPT_VAE,
    OPT_CLIP_L,
    OPT_T5,
    OPT_TOKENIZER,
    OPT_OUTPUT,
    OPT_QUANT,
    OPT_KEEP,
    OPT_COMPRESS,
    OPT_DRY_RUN,
    OPT_THREADS,
    OPT_JSON,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_VERSION,
    N_OPTIONS
};

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_VAE] = {"vae", 0, "a file"},
    [OPT_CLIP_L] = {"clip-l", 0, "a file"},
    [OPT_T5] = {"t5", 0, "a file"},
    [OPT_TOKENIZER] = {"tokenizer", 0, "a folder"},
    [OPT_OUTPUT] = {"output", 'o', "a file name"},
    [OPT_QUANT] = {"quant", 0, "int8, fp8, int8wo, bf16, f32, stored or auto"},
    [OPT_KEEP] = {"keep", 0, "patterns of names"},
    [OPT_COMPRESS] = {"compress", 0, NULL},
    [OPT_DRY_RUN] = {"dry-run", 0, NULL},
    [OPT_THREADS] = {"threads", 0, "a number"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

enum { THREADS_MAX = 256 };

typedef struct pack_settings {
    dfx_model_paths paths;
    bool automatic; /* nobody asked for the format */
    char output[DFX_OUTPUT_PATH_BYTES];
    bool dry_run, json;
    dfx_pack_keep keep;
    dfx_pack_options pack;
} pack_settings;

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

static dfx_status choose_output(pack_settings *s, const char *given, dfx_console *console) {
    char name[128];
    dfx_cache_short_name(s->paths.model, name, sizeof(name));
    bool nameless = !*name || *name == '.' || *name == '/';
    int wanted = given ? snprintf(s->output, sizeof(s->output), "%s", given)
                       : snprintf(s->output, sizeof(s->output), "%s-%s.safetensors",
                                  nameless ? "model" : name, dfx_q_name(s->pack.quant));
    size_t n = strlen(s->output);
    if (wanted >= (int)sizeof(s->output) || n < 13 ||
        strcmp(s->output + n - 12, ".safetensors") != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--output: wanted a name that ends in .safetensors, found \"%s\"",
                                s->output);
    return DFX_OK;
}

static dfx_status read_settings(dfx_args *args, pack_settings *s, dfx_console *console) {
    dfx_status status;
    dfx_pack_warn_twice(args, console);
    if (args->n_words != 1)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "pack: wanted one folder or file after it, found %d words",
                                args->n_words);
    if (dfx_args_given(args, OPT_QUIET) && dfx_args_given(args, OPT_VERBOSE))
        return dfx_console_fail(console, DFX_E_USAGE, "--quiet and --verbose: wanted one of them");
    s->paths = (dfx_model_paths){.model = args->word,
                                 .vae = args->value[OPT_VAE],
                                 .clip = args->value[OPT_CLIP_L],
                                 .t5 = args->value[OPT_T5],
                                 .tokenizer = args->value[OPT_TOKENIZER]};
    s->automatic = !dfx_args_given(args, OPT_QUANT) || strcmp(args->value[OPT_QUANT], "auto") == 0;
    s->pack.quant = DFX_Q_INT8;
    s->pack.compress = dfx_args_given(args, OPT_COMPRESS);
    s->dry_run = dfx_args_given(args, OPT_DRY_RUN);
    s->json = dfx_args_given(args, OPT_JSON);
    DFX_TRY_OUT(status, dfx_pack_read_quant(args, OPT_QUANT, console, &s->pack.quant));
    DFX_TRY_OUT(status, dfx_pack_read_keep(args, OPT_KEEP, console, &s->keep));
    s->pack.keep = s->keep.patterns;
    s->pack.n_keep = s->keep.n;
    if (!dfx_args_int(args, OPT_THREADS, 1, THREADS_MAX, &s->pack.n_threads))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    status = choose_output(s, args->value[OPT_OUTPUT], console);
out:
    return status;
}

static dfx_status print_json(const pack_settings *s, const dfx_pack_report *r,
                             dfx_console *console) {
    json_t *json =
        json_pack("{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "output", s->output,
                  "dry_run", s->dry_run, "quant", dfx_q_name(s->pack.quant), "source_bytes",
                  (json_int_t)r->source_bytes, "file_bytes", (json_int_t)r->file_bytes, "tensors",
                  (json_int_t)r->n_tensors, "quantized", (json_int_t)r->n_quantized, "pages",
                  (json_int_t)r->n_pages, "compressed", (json_int_t)r->n_compressed,
                  "page_bytes_max", (json_int_t)r->page_bytes_max, "seconds", r->seconds);
    if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
        puts("");
    json_decref(json);
    return dfx_output_flush(console);
}

static dfx_status pack(pack_settings *s, dfx_console *console) {
    dfx_pack_progress progress;
    dfx_pack_report report;
    dfx_pack_progress_begin(&progress, console, "pack");
    s->pack.progress = dfx_pack_progress_show;
    s->pack.cancelled = on_cancelled;
    s->pack.user = &progress;
    dfx_status status = dfx_model_pack(&s->paths, s->automatic, &s->pack,
                                       s->dry_run ? NULL : s->output, &console->sink, &report);
    if (status == DFX_E_CANCELLED) /* the library stops silently: we are the ones who asked */
        return dfx_console_fail(console, status, "interrupted; nothing was written");
    if (status != DFX_OK)
        return status;
    dfx_pack_tell(console, s->output, s->pack.quant, &report);
    if (s->dry_run)
        dfx_console_say(console, DFX_INFO, "--dry-run: nothing was written%s",
                        s->pack.compress ? "; what --compress gains is known only then" : "");
    return s->json ? print_json(s, &report, console) : DFX_OK;
}

int dfx_cmd_pack(int argc, char **argv) {
    static pack_settings settings; /* zeroed; too large for a stack */
    dfx_args args;
    dfx_console console;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_pack();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, dfx_args_given(&args, OPT_QUIET),
                     dfx_args_given(&args, OPT_VERBOSE));
    dfx_status status = good ? read_settings(&args, &settings, &console)
                             : dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    if (status == DFX_OK) {
        dfx_signals_catch();
        status = pack(&settings, &console);
    }
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
