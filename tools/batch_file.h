/* Batch file: a request a line, in words like those of a command line.
 *
 *     # empty lines, and lines that begin with '#', are left out
 *     a red ball on a green hill --seed 7 -o ball.png
 *     "a house -- at night" --size 512x768 --lora style.safetensors:0.8
 *
 * Words are parted by blanks. A word, or the value behind the '=' of a word that begins with "--", may be in quotes, ' or ": blanks
 * inside are part of it, and in "..." \" and \\ stand for " and \. Elsewhere quotes and backslashes are what they are: it's. There are
 * no variables, patterns or line ends within a word. Words that are no options are the prompt, with a blank between them. */
#ifndef DFX_TOOLS_BATCH_FILE_H
#define DFX_TOOLS_BATCH_FILE_H

#include "tools/console.h"

typedef struct dfx_batch_line {
    int number;   /* from 1 */
    char **words; /* [n_words]; in the file's own memory */
    int n_words;
} dfx_batch_line;

typedef struct dfx_batch_file {
    const char *name;      /* borrowed: of the file, for messages */
    char *text;            /* owned; words lie in it */
    char **words;          /* owned; of all lines */
    dfx_batch_line *lines; /* owned */
    int n_lines;
} dfx_batch_file;

/* "-" is standard input. All faults of all lines are told. Errors: DFX_E_IO; DFX_E_USAGE: a quote that does not end, no line, more
 * than a mebibyte or 10000 lines; DFX_E_CANCELLED. */
dfx_status dfx_batch_file_read(dfx_console *console, const char *path, dfx_batch_file *out);
void dfx_batch_file_free(dfx_batch_file *file); /* zeroed is fine */

/* The next word of *line, in its place, which moves behind it: the line is written over. NULL: there is none, or, with *fault,
 * a quote does not end or is followed by more. */
char *dfx_batch_word(char **line, const char **fault);

#endif
