#include "tools/batch_file.h"

#include <stdlib.h>
#include <string.h>

#include "tools/memory.h"
#include "tools/prompt.h"

enum { LINES_MAX = 10000 };

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool may_quote(const char *begin, const char *at) {
    return at == begin || (at[-1] == '=' && strncmp(begin, "--", 2) == 0 &&
                           memchr(begin, '=', (size_t)(at - begin)) == at - 1);
}

/* The text between quotes, moved to `to`; *from is behind the closing one. NULL: there is none. */
static char *unquote(char **from, char *to) {
    char quote = *(*from)++;
    for (char *p = *from; *p; p++) {
        if (*p == quote) {
            *from = p + 1;
            return to;
        }
        if (quote == '"' && *p == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        *to++ = *p;
    }
    return NULL;
}

char *dfx_batch_word(char **line, const char **fault) {
    char *from = *line, *begin, *to;
    while (is_blank(*from))
        from++;
    if (!*from)
        return NULL;
    begin = to = from;
    while (*from && !is_blank(*from)) {
        /* Nothing before it has been taken out, so that `from` is still where the word began. */
        if ((*from == '"' || *from == '\'') && to == from && may_quote(begin, from)) {
            if (!(to = unquote(&from, to))) {
                *fault = "a quote that does not end";
                return NULL;
            }
            if (*from && !is_blank(*from)) {
                *fault = "more behind the end of a quote; wanted a blank";
                return NULL;
            }
            break;
        }
        *to++ = *from++;
    }
    *line = *from ? from + 1 : from;
    *to = 0;
    return begin;
}

/* Words of a line to file->words, from *used on. */
static dfx_status split_line(dfx_console *console, dfx_batch_file *file, char *text, int number,
                             size_t *used) {
    const char *fault = NULL;
    dfx_batch_line line = {.number = number, .words = file->words + *used};
    for (char *word; (word = dfx_batch_word(&text, &fault)); line.n_words++)
        line.words[line.n_words] = word;
    if (fault)
        return dfx_console_fail(console, DFX_E_USAGE, "%s:%d: found %s", file->name, number, fault);
    *used += (size_t)line.n_words;
    file->lines[file->n_lines++] = line;
    return DFX_OK;
}

static bool is_request(const char *line) {
    while (is_blank(*line))
        line++;
    return *line && *line != '#';
}

/* There are no more words than every second byte begins one. */
static dfx_status split(dfx_console *console, dfx_batch_file *file) {
    size_t used = 0, n_lines = 1;
    for (const char *p = file->text; *p; p++)
        n_lines += *p == '\n';
    if (n_lines > LINES_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--batch-file %s: wanted at most %d lines, "
                                "found %zu",
                                file->name, LINES_MAX, n_lines);
    DFX_OR_RETURN(
        dfx_take_array(console, strlen(file->text) / 2 + 1 + n_lines, "batch file", &file->words));
    DFX_OR_RETURN(dfx_take_array(console, n_lines, "batch file", &file->lines));
    dfx_status status = DFX_OK;
    int number = 1;
    for (char *line = file->text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (is_request(line) && split_line(console, file, line, number, &used) != DFX_OK)
            status = DFX_E_USAGE;
    }
    if (status == DFX_OK && file->n_lines == 0)
        return dfx_console_fail(console, DFX_E_USAGE, "--batch-file %s: there is no request in it",
                                file->name);
    return status;
}

dfx_status dfx_batch_file_read(dfx_console *console, const char *path, dfx_batch_file *out) {
    dfx_batch_file file = {.name = strcmp(path, "-") == 0 ? "standard input" : path};
    DFX_OR_RETURN(dfx_take_array(console, DFX_PROMPT_BUFFER_BYTES, "batch file", &file.text));
    dfx_status status = dfx_prompt_read(console, "--batch-file", path, file.text);
    if (status == DFX_OK)
        status = split(console, &file);
    if (status == DFX_OK)
        *out = file;
    else
        dfx_batch_file_free(&file);
    return status;
}

void dfx_batch_file_free(dfx_batch_file *file) {
    free(file->text);
    free(file->words);
    free(file->lines);
    *file = (dfx_batch_file){0};
}
