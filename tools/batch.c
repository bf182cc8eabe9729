#include "tools/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memory.h"

/* A request, and the line it stands in. */
typedef struct batch_request {
    const dfx_batch_line *line;
    dfx_picture_options picture;
    char *prompt; /* owned: words joined; NULL: the line has none, or --prompt */
    dfx_status status;
} batch_request;

typedef struct batch {
    dfx_console *console;
    dfx_batch_file file;
    batch_request *requests; /* owned; [file.n_lines] */
    dfx_maker maker;
} batch;

/* Words with a blank between them. */
static dfx_status join(dfx_console *console, char *const *words, int n_words, char **out) {
    size_t bytes = 1, used = 0;
    for (int i = 0; i < n_words; i++)
        bytes += strlen(words[i]) + 1;
    DFX_OR_RETURN(dfx_take_array(console, bytes, "prompt", out));
    for (int i = 0; i < n_words; i++)
        used += (size_t)snprintf(*out + used, bytes - used, "%s%s", i ? " " : "", words[i]);
    return DFX_OK;
}

static dfx_status read_prompt(batch *b, const dfx_args *args, batch_request *r) {
    bool option = dfx_args_given(args, DFX_PICTURE_PROMPT);
    if (option && args->n_words > 0)
        return dfx_console_fail(b->console, DFX_E_USAGE,
                                "the prompt: given as words, \"%s ...\", and with --prompt",
                                args->word);
    if (option)
        return DFX_OK;
    if (args->n_words == 0)
        return dfx_console_fail(b->console, DFX_E_USAGE,
                                "the prompt: found options only; an empty one is --prompt=");
    DFX_OR_RETURN(join(b->console, args->words, args->n_words, &r->prompt));
    r->picture.prompt = r->prompt;
    return DFX_OK;
}

/* All that can be known of a line without the model; of its files the sizes are kept. */
static dfx_status read_line(batch *b, const dfx_picture_options *defaults, batch_request *r) {
    static const dfx_args_option options[] = {DFX_PICTURE_OPTION_TABLE};
    dfx_args args;
    dfx_picture_options_inherit(&r->picture, defaults);
    if (!dfx_args_parse(&args, options, DFX_LENGTH(options), r->line->n_words, r->line->words))
        return dfx_console_fail(b->console, DFX_E_USAGE, "%s", args.error);
    DFX_OR_RETURN(dfx_picture_options_read(&args, b->console, &r->picture));
    DFX_OR_RETURN(read_prompt(b, &args, r));
    if (r->picture.output_path && strcmp(r->picture.output_path, "-") == 0)
        return dfx_console_fail(b->console, DFX_E_USAGE,
                                "--output -: wanted a file; a batch makes several pictures");
    DFX_OR_RETURN(dfx_picture_options_settle(&r->picture, b->console));
    dfx_init_files_drop(&r->picture.init);
    return DFX_OK;
}

/* Calls `check` for every request, all faults told under the lines they stand in; the first status. */
static dfx_status for_each(batch *b,
                           dfx_status (*check)(batch *b, const void *what, batch_request *r),
                           const void *what) {
    dfx_status status = DFX_OK;
    for (int i = 0; i < b->file.n_lines; i++) {
        batch_request *r = &b->requests[i];
        char where[DFX_CONSOLE_WHERE_BYTES];
        snprintf(where, sizeof(where), "%s:%d: ", b->file.name, r->line->number);
        dfx_console_set_where(b->console, where);
        r->status = check(b, what, r);
        dfx_console_set_where(b->console, "");
        if (status == DFX_OK)
            status = r->status;
        if (r->status == DFX_E_CANCELLED)
            return r->status;
    }
    return status;
}

static dfx_status check_line(batch *b, const void *defaults, batch_request *r) {
    return read_line(b, defaults, r);
}

static dfx_status look(batch *b, const void *unused, batch_request *r) {
    return dfx_maker_look(&b->maker, &r->picture);
}

static dfx_status make(batch *b, const void *unused, batch_request *r) {
    dfx_picture_options *p = &r->picture;
    DFX_OR_RETURN(dfx_init_files_read(b->console, p->init_path, p->mask_path, &p->init));
    dfx_status status = dfx_maker_make(&b->maker, p);
    dfx_init_files_drop(&p->init);
    return status;
}

/* A file that will be written, and by which line. */
typedef struct target {
    char *name; /* owned */
    int line;
} target;

static int by_name(const void *a, const void *b) {
    const target *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->line - y->line;
}

static dfx_status tell_twice(const batch *b, const target *targets, size_t n) {
    dfx_status status = DFX_OK;
    for (size_t i = 1; i < n; i++)
        if (strcmp(targets[i].name, targets[i - 1].name) == 0)
            status = dfx_console_fail(
                b->console, DFX_E_USAGE,
                "%s:%d: %s is written by line %d too; give one of them another --output or --seed",
                b->file.name, targets[i].line, targets[i].name, targets[i - 1].line);
    return status;
}

static dfx_status add_targets(const batch *b, const batch_request *r, target *targets, size_t *n) {
    char name[DFX_OUTPUT_PATH_BYTES];
    for (int k = 0; k < r->picture.n_pictures; k++) {
        dfx_output_name(&r->picture.output, r->picture.seed + (uint64_t)k, name);
        targets[*n].line = r->line->number;
        DFX_OR_RETURN(dfx_take_text(b->console, name, "batch file", &targets[*n].name));
        (*n)++;
    }
    return DFX_OK;
}

/* No line writes over what another one has made. */
static dfx_status check_targets(const batch *b) {
    size_t most = 0, n = 0;
    target *targets;
    for (int i = 0; i < b->file.n_lines; i++)
        most += (size_t)b->requests[i].picture.n_pictures;
    DFX_OR_RETURN(dfx_take_array(b->console, most, "batch file", &targets));
    dfx_status status = DFX_OK;
    for (int i = 0; status == DFX_OK && i < b->file.n_lines; i++)
        status = add_targets(b, &b->requests[i], targets, &n);
    if (status == DFX_OK) {
        qsort(targets, n, sizeof(*targets), by_name);
        status = tell_twice(b, targets, n);
    }
    for (size_t i = 0; i < n; i++)
        free(targets[i].name);
    free(targets);
    return status;
}

/* The LoRAs of one line after the other, NULL between lines. */
static dfx_status list_loras(const batch *b, const char ***out, int *n_out) {
    size_t most = 0;
    int n = 0;
    const char **paths;
    for (int i = 0; i < b->file.n_lines; i++)
        most += b->requests[i].picture.loras ? (size_t)b->requests[i].picture.loras->n + 1 : 0;
    DFX_OR_RETURN(dfx_take_array(b->console, most, "batch file", &paths));
    for (int i = 0; i < b->file.n_lines; i++) {
        const dfx_lora_list *loras = b->requests[i].picture.loras;
        for (int k = 0; loras && k < loras->n_acting; k++)
            paths[n++] = loras->acting[k];
        if (loras)
            paths[n++] = NULL;
    }
    *out = paths;
    *n_out = n;
    return DFX_OK;
}

static dfx_status open_model(batch *b, const dfx_open_options *open, bool json) {
    dfx_open_options options = *open;
    const char **loras;
    DFX_OR_RETURN(list_loras(b, &loras, &options.n_loras));
    options.loras = loras;
    dfx_status status = dfx_maker_open(&b->maker, b->console, &options, json);
    free(loras);
    return status;
}

static void list_failed(const batch *b) {
    int n_failed = 0;
    for (int i = 0; i < b->file.n_lines; i++)
        n_failed += b->requests[i].status != DFX_OK;
    if (n_failed == 0)
        return;
    dfx_console_say(b->console, DFX_ERROR, "%s: %d of %d requests failed:", b->file.name, n_failed,
                    b->file.n_lines);
    for (int i = 0; i < b->file.n_lines; i++)
        if (b->requests[i].status != DFX_OK)
            dfx_console_say(b->console, DFX_ERROR, "  line %d: %s", b->requests[i].line->number,
                            dfx_status_text(b->requests[i].status));
}

/* Lines that were not begun are cancelled, too. */
static dfx_status make_all(batch *b) {
    for (int i = 0; i < b->file.n_lines; i++)
        b->requests[i].status = DFX_E_CANCELLED;
    dfx_status status = for_each(b, make, NULL);
    list_failed(b);
    return status;
}

static dfx_status run(batch *b, const dfx_picture_options *defaults, const dfx_open_options *open,
                      bool json) {
    DFX_OR_RETURN(dfx_take_array(b->console, (size_t)b->file.n_lines, "batch file", &b->requests));
    for (int i = 0; i < b->file.n_lines; i++)
        b->requests[i].line = &b->file.lines[i];
    DFX_OR_RETURN(for_each(b, check_line, defaults));
    DFX_OR_RETURN(check_targets(b));
    DFX_OR_RETURN(open_model(b, open, json));
    DFX_OR_RETURN(for_each(b, look, NULL));
    return make_all(b);
}

dfx_status dfx_batch_run(dfx_console *console, const char *path,
                         const dfx_picture_options *defaults, const dfx_open_options *open,
                         bool json) {
    batch b = {.console = console};
    DFX_OR_RETURN(dfx_batch_file_read(console, path, &b.file));
    dfx_status status = run(&b, defaults, open, json);
    dfx_maker_close(&b.maker);
    for (int i = 0; b.requests && i < b.file.n_lines; i++) {
        dfx_picture_options_fini(&b.requests[i].picture);
        free(b.requests[i].prompt);
    }
    free(b.requests);
    dfx_batch_file_free(&b.file);
    return status;
}
