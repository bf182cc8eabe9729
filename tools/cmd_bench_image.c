/* dfx-edge bench image: pictures at many budgets, as a table, files and a comparison with an earlier run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tools/bench_command.h"
#include "tools/bench_compare.h"
#include "tools/bench_image_print.h"
#include "tools/bench_print.h"
#include "tools/find_model.h"
#include "tools/output.h"

enum { TEXT_LENGTH_MAX = 65536, PROMPT_MAX = 1000, REUSE_MAX = 1000, JSON_BYTES_MAX = 16 << 20 };

typedef struct image_settings {
    dfx_bench_image_question question;
    char model[DFX_MODEL_PATH_BYTES];
    const char *output, *compare; /* NULL: none */
    bool json;
} image_settings;

/* ---- lists: "12G,8G", each as generate has it */

typedef struct lists {
    uint64_t budgets[DFX_BENCH_BUDGETS_MAX];
    int quants[DFX_BENCH_SERIES_MAX]; /* indices into QUANTS */
    int widths[DFX_BENCH_SERIES_MAX], heights[DFX_BENCH_SERIES_MAX];
} lists;

static const char *const QUANTS[] = {"auto", "bf16", "int8", "int8wo", "fp8", NULL};

static bool read_budget(dfx_args *args, lists *l, int i) {
    return dfx_args_bytes(args, DFX_BENCH_VRAM_BUDGET, &l->budgets[i]);
}

static bool read_quant(dfx_args *args, lists *l, int i) {
    return dfx_args_choice(args, DFX_BENCH_QUANT, QUANTS, &l->quants[i]);
}

static bool read_size(dfx_args *args, lists *l, int i) {
    return dfx_args_extent(args, DFX_BENCH_SIZE, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &l->widths[i],
                           &l->heights[i]);
}

/* Each piece of the option as if it were all of it; *n: how many. One that was not given is one piece, which stays as it is. */
static dfx_status read_list(dfx_args *args, int option, int most,
                            bool (*read)(dfx_args *args, lists *l, int i), lists *l, int *n,
                            dfx_console *console) {
    const char *given = args->value[option], *name = args->options[option].name;
    char text[1024];
    *n = 1;
    if (!given)
        return DFX_OK;
    *n = 0;
    if ((size_t)snprintf(text, sizeof(text), "%s", given) >= sizeof(text))
        return dfx_console_fail(console, DFX_E_USAGE, "--%s: wanted a list of less than %zu bytes",
                                name, sizeof(text));
    for (char *rest = text, *piece; (piece = strsep(&rest, ","));) {
        if (*n == most)
            return dfx_console_fail(console, DFX_E_USAGE, "--%s: wanted at most %d, found more",
                                    name, most);
        args->value[option] = piece;
        bool good = read(args, l, (*n)++);
        args->value[option] = given;
        if (!good)
            return dfx_bench_misused(args, console);
    }
    return DFX_OK;
}

/* The models of the command line, or the bundled one. */
static dfx_status list_models(const dfx_args *args, dfx_console *console, image_settings *s,
                              const char *models[DFX_ARGS_LISTED_MAX], int *n) {
    *n = dfx_args_list(args, DFX_BENCH_MODEL, models);
    if (*n > 0)
        return DFX_OK;
    models[(*n)++] = s->model;
    return dfx_bundled_find(console, s->model);
}

/* Every model in every format at every size, and the budgets of each. */
static dfx_status read_subjects(dfx_args *args, dfx_console *console, image_settings *s) {
    static lists l; /* zeroed */
    dfx_bench_image_question *q = &s->question;
    const char *models[DFX_ARGS_LISTED_MAX];
    int n_models, n_quants, n_sizes;
    DFX_TRY(read_list(args, DFX_BENCH_VRAM_BUDGET, DFX_BENCH_BUDGETS_MAX, read_budget, &l,
                      &q->n_budgets, console));
    DFX_TRY(
        read_list(args, DFX_BENCH_QUANT, DFX_BENCH_SERIES_MAX, read_quant, &l, &n_quants, console));
    DFX_TRY(
        read_list(args, DFX_BENCH_SIZE, DFX_BENCH_SERIES_MAX, read_size, &l, &n_sizes, console));
    DFX_TRY(list_models(args, console, s, models, &n_models));
    if (n_models * n_quants * n_sizes > DFX_BENCH_SERIES_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench image: wanted at most %d series of pictures, found %d "
                                "models in %d formats at %d sizes",
                                DFX_BENCH_SERIES_MAX, n_models, n_quants, n_sizes);
    memcpy(q->budgets, l.budgets, sizeof(q->budgets));
    q->n_subjects = n_models * n_quants * n_sizes;
    for (int i = 0; i < q->n_subjects; i++)
        q->subjects[i] =
            (dfx_bench_image_subject){.model_path = models[i / (n_quants * n_sizes)],
                                      .quant = QUANTS[l.quants[i / n_sizes % n_quants]],
                                      .width = l.widths[i % n_sizes],
                                      .height = l.heights[i % n_sizes]};
    return DFX_OK;
}

static dfx_status read_settings(dfx_args *args, dfx_console *console, image_settings *s) {
    static const char *const offloads[] = {"auto", "ram", "nvme", "none", NULL};
    static const char *const attentions[] = {"16", "8", NULL};
    dfx_bench_image_question *q = &s->question;
    dfx_bench_device_choice choice;
    int offload = 0, attention = 0;
    if (args->n_words != 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "bench image: wanted options only, found \"%s\"; a prompt is "
                                "--prompt TEXT",
                                args->word);
    DFX_TRY(dfx_bench_read_device(args, console, &choice));
    if (!dfx_bench_read_runs(args, &q->n_runs) ||
        !dfx_args_int(args, DFX_BENCH_STEPS, 1, DFX_STEPS_MAX, &q->steps) ||
        !dfx_args_int(args, DFX_BENCH_TEXT_LENGTH, 1, TEXT_LENGTH_MAX, &q->text_length) ||
        !dfx_args_real(args, DFX_BENCH_REUSE, 0, REUSE_MAX, &q->reuse) ||
        !dfx_args_choice(args, DFX_BENCH_ATTENTION_BITS, attentions, &attention) ||
        !dfx_args_bytes(args, DFX_BENCH_RAM_BUDGET, &q->open.ram_budget_bytes) ||
        !dfx_args_choice(args, DFX_BENCH_OFFLOAD, offloads, &offload))
        return dfx_bench_misused(args, console);
    q->prompt = dfx_args_given(args, DFX_BENCH_PROMPT) ? args->value[DFX_BENCH_PROMPT]
                                                       : "a cat holding a sign";
    if (strlen(q->prompt) > PROMPT_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--prompt: wanted at most %d bytes, found %zu", PROMPT_MAX,
                                strlen(q->prompt));
    q->open.device = choice.device;
    q->open.n_threads = choice.n_threads;
    q->open.offload = offloads[offload];
    q->open.attention_bits = attention == 1 ? 8 : 16;
    q->open.cancelled = dfx_bench_cancelled;
    s->output = args->value[DFX_BENCH_OUTPUT];
    s->compare = args->value[DFX_BENCH_COMPARE];
    s->json = dfx_args_given(args, DFX_BENCH_JSON);
    return read_subjects(args, console, s);
}

/* ---- files */

static dfx_status write_text(const char *output, const char *extension, dfx_bench_text *text) {
    char path[DFX_PATH_BYTES];
    if ((size_t)snprintf(path, sizeof(path), "%s.%s", output, extension) >= sizeof(path))
        return dfx_fail(text->sink, DFX_E_USAGE, "--output: the name is too long");
    DFX_TRY(dfx_bench_text_write(text, path));
    dfx_info(text->sink, "wrote %s", path);
    return DFX_OK;
}

static void add_json(const json_t *json, dfx_bench_text *text) {
    char *dump = json_dumps(json, JSON_INDENT(1));
    if (dump)
        dfx_bench_text_add(text, "%s\n", dump);
    else if (text->status == DFX_OK)
        text->status = dfx_fail(text->sink, DFX_E_NOFIT, "bench image: no memory for its JSON");
    free(dump);
}

static dfx_status write_files(const char *output, const dfx_bench_image *result, const json_t *json,
                              const dfx_sink *sink) {
    dfx_bench_text csv = {.sink = sink}, svg = {.sink = sink}, text = {.sink = sink};
    dfx_status status;
    dfx_bench_image_csv(result, &csv);
    dfx_bench_image_svg(result, &svg);
    add_json(json, &text);
    DFX_TRY_OUT(status, write_text(output, "csv", &csv));
    DFX_TRY_OUT(status, write_text(output, "svg", &svg));
    DFX_TRY_OUT(status, write_text(output, "json", &text));
out:
    dfx_bench_text_fini(&csv);
    dfx_bench_text_fini(&svg);
    dfx_bench_text_fini(&text);
    return status;
}

/* To standard output, or where that is JSON to standard error. */
static dfx_status print_comparison(const image_settings *s, const json_t *then, const json_t *now,
                                   const dfx_sink *sink) {
    dfx_bench_text text = {.sink = sink};
    dfx_status status = dfx_bench_compare(then, s->compare, now, sink, &text);
    if (status == DFX_OK)
        status = text.status;
    if (status == DFX_OK)
        fprintf(s->json ? stderr : stdout, "\nagainst %s\n%s", s->compare, text.text);
    dfx_bench_text_fini(&text);
    return status;
}

static dfx_status tell(const image_settings *s, const dfx_bench_image *result, const json_t *then,
                       dfx_console *console) {
    json_t *json = dfx_bench_image_json(result);
    if (!json)
        return dfx_console_fail(console, DFX_E_NOFIT, "bench image: no memory for its JSON");
    dfx_status status = DFX_OK;
    if (s->json)
        dfx_bench_print_json(json_incref(json));
    else
        dfx_bench_image_table(result);
    if (s->output)
        status = write_files(s->output, result, json, &console->sink);
    if (status == DFX_OK && then)
        status = print_comparison(s, then, json, &console->sink);
    json_decref(json);
    return status == DFX_OK ? dfx_output_flush(console) : status;
}

dfx_status dfx_bench_image_command(dfx_args *args, dfx_console *console) {
    static image_settings s; /* zeroed, as the result: too large for a stack */
    static dfx_bench_image result;
    json_t *then = NULL;
    DFX_TRY(read_settings(args, console, &s));
    if (s.compare) /* read before the work, so that a wrong name is told at once */
        DFX_TRY(dfx_json_load(s.compare, &console->sink, JSON_BYTES_MAX, &then));
    dfx_status status = dfx_bench_told(dfx_bench_image_run(&s.question, console, &result), console);
    if (result.n_series > 0) { /* also what was measured before an error */
        dfx_status told = tell(&s, &result, then, console);
        status = status == DFX_OK ? told : status;
    }
    json_decref(then);
    return status;
}
