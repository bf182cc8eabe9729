/* dfx-edge repl: prompts line by line, with a model that stays open, so that what one picture has brought serves the next. A line
 * is a prompt as it stands, or a command that begins with ':'. What :set keeps are words of a command line; each prompt is read
 * through them as a line of a batch file is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/batch_file.h"
#include "tools/commands.h"
#include "tools/maker.h"
#include "tools/memory.h"
#include "tools/signals.h"

enum { OPT_JSON = DFX_N_MODEL_OPTIONS, OPT_QUIET, OPT_VERBOSE, OPT_HELP, OPT_VERSION, N_OPTIONS };

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_JSON] = {"json", 0, NULL},         [OPT_QUIET] = {"quiet", 'q', NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL}, [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},   DFX_PICTURE_OPTION_TABLE DFX_MODEL_OPTION_TABLE};

/* What :set can set. */
static const dfx_args_option settable[] = {DFX_PICTURE_OPTION_TABLE};

/* A prompt that was made, or not. */
typedef struct past {
    struct past *next;   /* owned */
    char *prompt, *name; /* behind it; name: the first file */
    dfx_status status;
} past;

typedef struct repl {
    dfx_console *console;
    dfx_maker maker;
    dfx_picture_options defaults;        /* of the command line */
    char *values[DFX_N_PICTURE_OPTIONS]; /* owned: what stood behind :set KEY; NULL: not set */
    past *history, **next_past;          /* owned; and where the next one goes */
    bool json, terminal;                 /* a person types */
    FILE *answers;                       /* of :show and its kin: not where JSON goes */
    bool quit;
} repl;

/* Words as on a command line, in memory of their own. */
typedef struct words {
    char *texts[DFX_ARGS_LISTED_MAX + DFX_N_PICTURE_OPTIONS]; /* owned, each */
    int n;
} words;

static void free_words(words *w) {
    while (w->n > 0)
        free(w->texts[--w->n]);
}

static dfx_status add_word(repl *r, words *w, const char *name, const char *value) {
    size_t bytes = strlen(name) + (value ? strlen(value) : 0) + sizeof("--=");
    if (w->n == (int)DFX_LENGTH(w->texts))
        return dfx_console_fail(r->console, DFX_E_USAGE, ":set %s: too many values", name);
    DFX_OR_RETURN(dfx_take_array(r->console, bytes, "words", &w->texts[w->n]));
    snprintf(w->texts[w->n++], bytes, value ? "--%s=%s" : "--%s", name, value);
    return DFX_OK;
}

/* The words behind :set KEY, each as a value of the option. */
static dfx_status add_values(repl *r, words *w, const char *name, const char *values) {
    const char *fault = NULL;
    char *copy, *rest;
    DFX_OR_RETURN(dfx_take_text(r->console, values, "words", &copy));
    rest = copy;
    dfx_status status = DFX_OK;
    for (char *word; status == DFX_OK && (word = dfx_batch_word(&rest, &fault));)
        status = add_word(r, w, name, word);
    if (status == DFX_OK && fault)
        status = dfx_console_fail(r->console, DFX_E_USAGE, ":set %s: found %s", name, fault);
    free(copy);
    return status;
}

/* What has been set, over the command line. `w` must stay as long as `picture`. */
static dfx_status read_values(repl *r, words *w, dfx_picture_options *picture) {
    dfx_args args;
    for (int i = 0; i < DFX_N_PICTURE_OPTIONS; i++)
        if (r->values[i])
            DFX_OR_RETURN(settable[i].value ? add_values(r, w, settable[i].name, r->values[i])
                                            : add_word(r, w, settable[i].name, NULL));
    dfx_picture_options_inherit(picture, &r->defaults);
    if (!dfx_args_parse(&args, settable, DFX_N_PICTURE_OPTIONS, w->n, w->texts))
        return dfx_console_fail(r->console, DFX_E_USAGE, "%s", args.error);
    return dfx_picture_options_read(&args, r->console, picture);
}

static dfx_status remember(repl *r, const dfx_picture_options *picture, dfx_status made) {
    char name[DFX_OUTPUT_PATH_BYTES];
    past *entry;
    dfx_output_name(&picture->output, picture->seed, name);
    size_t prompt_bytes = strlen(picture->prompt) + 1, name_bytes = strlen(name) + 1;
    DFX_OR_RETURN(dfx_take(r->console, 1, sizeof(*entry) + prompt_bytes + name_bytes, "history",
                           (void **)&entry));
    *entry = (past){.prompt = (char *)(entry + 1), .status = made};
    entry->name = entry->prompt + prompt_bytes;
    memcpy(entry->prompt, picture->prompt, prompt_bytes);
    memcpy(entry->name, name, name_bytes);
    *r->next_past = entry;
    r->next_past = &entry->next;
    return made;
}

static dfx_status make_settled(repl *r, dfx_picture_options *picture) {
    if (picture->output_path && strcmp(picture->output_path, "-") == 0)
        return dfx_console_fail(r->console, DFX_E_USAGE,
                                "--output -: wanted a file; repl makes several pictures");
    DFX_OR_RETURN(dfx_picture_options_settle(picture, r->console));
    return remember(r, picture, dfx_maker_make(&r->maker, picture));
}

static dfx_status make(repl *r, const char *prompt) {
    words w = {.n = 0};
    dfx_picture_options picture = {0};
    dfx_status status = read_values(r, &w, &picture);
    picture.prompt = prompt;
    picture.seed_in_name = true;
    if (status == DFX_OK)
        status = make_settled(r, &picture);
    dfx_picture_options_fini(&picture);
    free_words(&w);
    return status;
}

/* -1, said: there is none. */
static int find_key(repl *r, const char *key) {
    for (int i = 0; i < DFX_N_PICTURE_OPTIONS; i++)
        if (i != DFX_PICTURE_PROMPT && strcmp(settable[i].name, key) == 0)
            return i;
    dfx_console_say(r->console, DFX_ERROR, ":set %s: no such key; :show lists them", key);
    return -1;
}

/* The last one counts, as on a command line, whatever the order in which they are kept. */
static void forget_other_sizes(repl *r, int key) {
    static const int sides[] = {DFX_PICTURE_WIDTH, DFX_PICTURE_HEIGHT};
    for (size_t i = 0; i < DFX_LENGTH(sides); i++) {
        int other = key == DFX_PICTURE_SIZE ? sides[i] : key == sides[i] ? DFX_PICTURE_SIZE : -1;
        if (other >= 0) {
            free(r->values[other]);
            r->values[other] = NULL;
        }
    }
}

/* Values that do not do leave what was set. */
static dfx_status set_value(repl *r, int key, const char *values) {
    words w = {.n = 0};
    dfx_picture_options picture = {0};
    char *before = r->values[key], *now = NULL;
    if (*values)
        DFX_OR_RETURN(dfx_take_text(r->console, values, "setting", &now));
    r->values[key] = now;
    dfx_status status = read_values(r, &w, &picture);
    dfx_picture_options_fini(&picture);
    free_words(&w);
    free(status == DFX_OK ? before : now);
    if (status != DFX_OK)
        r->values[key] = before;
    else
        forget_other_sizes(r, key);
    return status;
}

/* `rest`: KEY and its values. A flag is set by any word, and a key without a value is as the command line says. */
static dfx_status set(repl *r, char *rest) {
    const char *fault = NULL;
    char *key = dfx_batch_word(&rest, &fault);
    if (!key)
        return dfx_console_fail(r->console, DFX_E_USAGE,
                                ":set: wanted a key and a value; :show "
                                "lists the keys");
    int which = find_key(r, key);
    return which < 0 ? DFX_E_USAGE : set_value(r, which, rest + strspn(rest, " \t"));
}

static dfx_status show(repl *r, char *rest) {
    const dfx_model_info *info = &r->maker.info;
    fprintf(r->answers, "%s: %s, on %s; without settings %dx%d, %d steps\n", info->name, info->kind,
            info->device, info->width, info->height, info->steps);
    for (int i = 0; i < DFX_N_PICTURE_OPTIONS; i++)
        if (i != DFX_PICTURE_PROMPT)
            fprintf(r->answers, "  %-12s %s\n", settable[i].name, r->values[i] ? r->values[i] : "");
    return DFX_OK;
}

static dfx_status tell_history(repl *r, char *rest) {
    int number = 0;
    for (const past *p = r->history; p; p = p->next)
        fprintf(r->answers, "%4d  %s  %s\n", ++number,
                p->status == DFX_OK ? p->name : dfx_status_text(p->status), p->prompt);
    return DFX_OK;
}

static dfx_status help(repl *r, char *rest) {
    fputs("a line makes a picture of it; :: at the beginning stands for a prompt's own ':'\n"
          ":set KEY VALUE   for all pictures from now on; without VALUE: as at the start\n"
          ":show            keys and what is set\n"
          ":history         prompts so far, and their files\n"
          ":help            this\n"
          ":quit            end; so does the end of input\n",
          r->answers);
    return DFX_OK;
}

static dfx_status quit(repl *r, char *rest) {
    r->quit = true;
    return DFX_OK;
}

static dfx_status run_command(repl *r, char *line) {
    static const struct {
        const char *name;
        dfx_status (*run)(repl *r, char *rest);
    } commands[] = {{"set", set},   {"show", show}, {"history", tell_history},
                    {"help", help}, {"quit", quit}, {"q", quit}};
    size_t len = strcspn(line, " \t");
    for (size_t i = 0; i < DFX_LENGTH(commands); i++)
        if (strlen(commands[i].name) == len && memcmp(commands[i].name, line, len) == 0)
            return commands[i].run(r, line + len);
    return dfx_console_fail(r->console, DFX_E_USAGE, ":%.*s: no such command; :help lists them",
                            (int)len, line);
}

static dfx_status run_line(repl *r, char *line) {
    if (!line[strspn(line, " \t")])
        return DFX_OK;
    if (line[0] != ':')
        return make(r, line);
    return line[1] == ':' ? make(r, line + 1) : run_command(r, line + 1);
}

/* The next line of standard input without its end. False: there is none, or a signal ended the wait. */
static bool next_line(repl *r, char **line, size_t *cap) {
    if (r->terminal)
        dfx_console_ask(r->console, "> ");
    ssize_t n = getline(line, cap, stdin);
    if (n < 0)
        return false;
    while (n > 0 && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r'))
        (*line)[--n] = 0;
    return true;
}

/* Of a person the first Ctrl-C stops the picture; of a pipe it ends. */
static bool goes_on(repl *r, dfx_status status) {
    if (status != DFX_E_CANCELLED)
        return !r->quit;
    if (r->terminal)
        dfx_signals_forget();
    return r->terminal;
}

/* The first failure of a pipe is the program's; a person has seen it. */
static dfx_status run_lines(repl *r) {
    char *line = NULL; /* of getline, which takes it from malloc */
    size_t cap = 0;
    dfx_status first = DFX_OK, status = DFX_OK;
    while (goes_on(r, status) && next_line(r, &line, &cap)) {
        status = run_line(r, line);
        fflush(r->answers);
        first = first == DFX_OK ? status : first;
    }
    free(line);
    if (dfx_signals_interrupted())
        return DFX_E_CANCELLED;
    return r->terminal ? DFX_OK : first;
}

static void close_repl(repl *r) {
    for (int i = 0; i < DFX_N_PICTURE_OPTIONS; i++)
        free(r->values[i]);
    for (past *p = r->history, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    dfx_maker_close(&r->maker);
    dfx_picture_options_fini(&r->defaults);
}

static dfx_status open_repl(repl *r, dfx_args *args, dfx_model_options *model) {
    dfx_picture_options_init(&r->defaults);
    DFX_OR_RETURN(dfx_picture_options_read(args, r->console, &r->defaults));
    if (args->n_words > 0 || dfx_args_given(args, DFX_PICTURE_PROMPT))
        return dfx_console_fail(r->console, DFX_E_USAGE,
                                "repl: prompts come from standard input; found one on the command "
                                "line");
    DFX_OR_RETURN(dfx_model_options_read(args, r->console, model));
    if (r->defaults.loras) {
        model->open.loras = r->defaults.loras->acting;
        model->open.n_loras = r->defaults.loras->n_acting;
    }
    DFX_OR_RETURN(dfx_maker_open(&r->maker, r->console, &model->open, r->json));
    if (r->terminal)
        dfx_console_say(r->console, DFX_INFO, "%s on %s; a line makes a picture, :help says more",
                        r->maker.info.name, r->maker.info.device);
    return DFX_OK;
}

int dfx_cmd_repl(int argc, char **argv) {
    static dfx_model_options model; /* zeroed; its path is too large for a stack */
    dfx_args args;
    dfx_console console;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_repl();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, dfx_args_given(&args, OPT_QUIET),
                     dfx_args_given(&args, OPT_VERBOSE));
    repl r = {.console = &console,
              .json = dfx_args_given(&args, OPT_JSON),
              .terminal = isatty(STDIN_FILENO)};
    r.answers = r.json ? stderr : stdout;
    r.next_past = &r.history;
    dfx_signals_catch();
    dfx_status status = good ? DFX_OK : dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    if (status == DFX_OK)
        status = open_repl(&r, &args, &model);
    if (status == DFX_OK)
        status = run_lines(&r);
    close_repl(&r);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
