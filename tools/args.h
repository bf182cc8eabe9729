/* Command lines, read strictly: first every word, then every value.
 *
 * dfx_args_parse() sorts the words into options and prompt words and judges nothing but the spelling, so that --help can
 * win over every mistake and nothing is done before all of the line has been read. The typed getters judge values.
 * A failing call writes one sentence to args->error and returns false; it names the option, what was wanted and what
 * was found. Numbers are decimal and whole words: "4x", " 4", "0x10" and "1e3" are refused, the locale has no say.
 *
 *     static const dfx_args_option options[] = {{"steps", 's', "N"}, {"quiet", 'q', NULL}};
 *     if (!dfx_args_parse(&args, options, 2, argc, argv) || !dfx_args_int(&args, 0, 1, 1000, &steps))
 *         ... args.error ... */
#ifndef DFX_TOOLS_ARGS_H
#define DFX_TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DFX_ARGS_OPTIONS_MAX = 64, DFX_ARGS_LISTED_MAX = 32, DFX_ARGS_ERROR_BYTES = 1024 };

typedef struct dfx_args_option {
    const char *name;  /* "steps" for --steps */
    char letter;       /* 's' for -s; 0: none */
    const char *value; /* what the value is called; NULL: a flag */
    bool listed;       /* may be given several times, and each counts */
} dfx_args_option;

/* `which` in every call is an index into `options`. */
typedef struct dfx_args {
    const dfx_args_option *options; /* borrowed */
    int n_options;
    const char *value[DFX_ARGS_OPTIONS_MAX]; /* the last one given; borrowed from argv */
    int n_given[DFX_ARGS_OPTIONS_MAX];
    int at[DFX_ARGS_OPTIONS_MAX];          /* index in argv of the last one */
    const char *list[DFX_ARGS_LISTED_MAX]; /* values of listed options, in order */
    int list_of[DFX_ARGS_LISTED_MAX];      /* and which option each is of */
    int n_listed;
    const char *word; /* first word that is no option; borrowed */
    char **words;     /* [n_words]: all of them; the front of argv */
    int n_words;
    char error[DFX_ARGS_ERROR_BYTES]; /* the first mistake; "" when there is none */
} dfx_args;

/* Reads all of argv[0 .. argc), even after a mistake, which is kept in args->error.
 * --name VALUE, --name=VALUE, -x VALUE, -xVALUE, -abc for flags; words after "--" are no options; "-" is a word. A word
 * that is itself an option of this command is never taken for the value of the one before it. Words that are no options are moved
 * to the front of argv, in order. */
bool dfx_args_parse(dfx_args *args, const dfx_args_option *options, int n_options, int argc,
                    char **argv);

bool dfx_args_given(const dfx_args *args, int which);

/* The values of a listed option, in order, into out[DFX_ARGS_LISTED_MAX]; returns their number. */
int dfx_args_list(const dfx_args *args, int which, const char **out);

/* Digits with at most one '.' between or beside them, all of [text, end). Fifteen digits: mantissa and power of ten are then exact
 * doubles, and their quotient is the nearest double to what was written. */
bool dfx_args_decimal(const char *text, const char *end, double *out);

/* Each leaves *out alone when the option was not given. Both bounds are allowed values. */
bool dfx_args_int(dfx_args *args, int which, int min, int max, int *out);
bool dfx_args_real(dfx_args *args, int which, double min, double max, double *out); /* "3.5" */
/* 0 to 2^64 - 1; -1 leaves *out alone, as if it had not been given. */
bool dfx_args_seed(dfx_args *args, int which, bool *given, uint64_t *out);
/* "1024x768", each side within the bounds. */
bool dfx_args_extent(dfx_args *args, int which, int min, int max, int *width, int *height);
/* "12G" and "12GiB" are 12 * 2^30, "12GB" is 12 * 10^9; K, M, G, T; "1.5G"; a bare number is bytes. */
bool dfx_args_bytes(dfx_args *args, int which, uint64_t *out);
/* The index of the value in a list that ends with NULL. */
bool dfx_args_choice(dfx_args *args, int which, const char *const *choices, int *out);
/* The same, and the choice `numbered` may carry a number from 0 to max: "cuda" and "cuda:1". Without one *number is left alone. */
bool dfx_args_choice_numbered(dfx_args *args, int which, const char *const *choices, int numbered,
                              int max, int *out, int *number);

#endif
