/* See args.h. The only state is the caller's struct; nothing is allocated, values stay in argv. */
#include "tools/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Keeps the first mistake. Bytes that would break the line of a terminal are shown as '?'. */
__attribute__((format(printf, 2, 3))) static bool mistake(dfx_args *args, const char *fmt, ...) {
    va_list list;
    if (args->error[0])
        return false;
    va_start(list, fmt);
    vsnprintf(args->error, sizeof(args->error), fmt, list);
    va_end(list);
    for (unsigned char *p = (unsigned char *)args->error; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
    return false;
}

static int min3(int a, int b, int c) {
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

enum { SUGGEST_BYTES = 32 };

/* Letters to add, drop or change to make one word the other (Levenshtein). */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len) {
    int row[SUGGEST_BYTES + 1];
    if (a_len > SUGGEST_BYTES || b_len > SUGGEST_BYTES)
        return SUGGEST_BYTES;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_len];
}

/* The option that was probably meant, or NULL. */
static const dfx_args_option *nearest(const dfx_args *args, const char *name, size_t len) {
    const dfx_args_option *best = NULL;
    int best_distance = len < 4 ? 2 : 3; /* fewer changes than this */
    for (int i = 0; i < args->n_options; i++) {
        const char *candidate = args->options[i].name;
        size_t candidate_len = strlen(candidate);
        int d = distance(name, len, candidate, candidate_len);
        if (len >= 3 && len < candidate_len && memcmp(candidate, name, len) == 0)
            d = 1; /* an abbreviation */
        if (d < best_distance) {
            best_distance = d;
            best = &args->options[i];
        }
    }
    return best;
}

static int find_name(const dfx_args *args, const char *name, size_t len) {
    for (int i = 0; i < args->n_options; i++)
        if (strlen(args->options[i].name) == len && memcmp(args->options[i].name, name, len) == 0)
            return i;
    return -1;
}

static int find_letter(const dfx_args *args, char letter) {
    for (int i = 0; i < args->n_options; i++)
        if (args->options[i].letter && args->options[i].letter == letter)
            return i;
    return -1;
}

/* True for a word that cannot be the value of the option before it. */
static bool is_option(const dfx_args *args, const char *word) {
    if (word[0] != '-' || !word[1])
        return false;
    if (word[1] != '-')
        return !word[2] && find_letter(args, word[1]) >= 0;
    return !word[2] || find_name(args, word + 2, strcspn(word + 2, "=")) >= 0;
}

static void take(dfx_args *args, int which, const char *value, int at) {
    if (args->options[which].listed && args->n_listed == DFX_ARGS_LISTED_MAX)
        mistake(args, "--%s %s: wanted at most %d of its kind", args->options[which].name, value,
                DFX_ARGS_LISTED_MAX);
    else if (args->options[which].listed) {
        args->list_of[args->n_listed] = which;
        args->list[args->n_listed++] = value;
    }
    args->value[which] = value;
    args->n_given[which]++;
    args->at[which] = at;
}

/* The value of argv[*at], which is the next word; moves *at. */
static void take_next(dfx_args *args, int which, int argc, char **argv, int *at) {
    const dfx_args_option *option = &args->options[which];
    int own_at = *at;
    if (own_at + 1 >= argc) {
        mistake(args, "--%s: wanted %s after it, found the end of the line", option->name,
                option->value);
        return;
    }
    if (is_option(args, argv[own_at + 1])) {
        mistake(args,
                "--%s: wanted %s after it, found the option %s; if that is the value, write "
                "--%s=%s",
                option->name, option->value, argv[own_at + 1], option->name, argv[own_at + 1]);
        return;
    }
    *at = own_at + 1;
    take(args, which, argv[own_at + 1], own_at);
}

static void long_option(dfx_args *args, int argc, char **argv, int *at) {
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    int which = find_name(args, name, len);
    if (which < 0) {
        const dfx_args_option *meant = nearest(args, name, len);
        if (meant)
            mistake(args, "--%.*s: no such option; did you mean --%s?", (int)len, name,
                    meant->name);
        else
            mistake(args, "--%.*s: no such option; words that start with '-' go after \"--\"",
                    (int)len, name);
        return;
    }
    if (!args->options[which].value) {
        if (name[len] == '=')
            mistake(args, "--%s: wanted no value, found \"%s\"", args->options[which].name,
                    name + len + 1);
        take(args, which, "", *at);
    } else if (name[len] == '=') {
        take(args, which, name + len + 1, *at);
    } else {
        take_next(args, which, argc, argv, at);
    }
}

static void short_options(dfx_args *args, int argc, char **argv, int *at) {
    const char *word = argv[*at];
    for (const char *p = word + 1; *p; p++) {
        int which = find_letter(args, *p);
        if (which < 0) {
            const dfx_args_option *meant = p == word + 1 ? nearest(args, p, strlen(p)) : NULL;
            if (meant && p[1])
                mistake(args, "%s: no such option; did you mean --%s?", word, meant->name);
            else
                mistake(args, "-%.1s: no such option; words that start with '-' go after \"--\"",
                        p);
            return;
        }
        if (args->options[which].value) {
            if (p[1])
                take(args, which, p + 1, *at);
            else
                take_next(args, which, argc, argv, at);
            return;
        }
        take(args, which, "", *at);
    }
}

bool dfx_args_parse(dfx_args *args, const dfx_args_option *options, int n_options, int argc,
                    char **argv) {
    bool only_words = false;
    memset(args, 0, sizeof(*args));
    args->options = options;
    args->n_options = n_options;
    args->words = argv;
    for (int at = 0; at < argc; at++) {
        char *word = argv[at];
        if (only_words || word[0] != '-' || !word[1]) {
            argv[args->n_words++] = word; /* never beyond `at` */
            args->word = argv[0];
        } else if (word[1] != '-') {
            short_options(args, argc, argv, &at);
        } else if (!word[2]) {
            only_words = true;
        } else {
            long_option(args, argc, argv, &at);
        }
    }
    return !args->error[0];
}

int dfx_args_list(const dfx_args *args, int which, const char **out) {
    int n = 0;
    for (int i = 0; i < args->n_listed; i++)
        if (args->list_of[i] == which)
            out[n++] = args->list[i];
    return n;
}

bool dfx_args_given(const dfx_args *args, int which) {
    return args->n_given[which] > 0;
}

/* All of `text` as digits, at most `max`. */
static bool whole(const char *text, uint64_t max, uint64_t *out) {
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    if (value > max)
        return false;
    *out = value;
    return true;
}

bool dfx_args_decimal(const char *text, const char *end, double *out) {
    uint64_t mantissa = 0;
    double power = 1;
    int n_digits = 0;
    bool point = false;
    for (; text < end; text++) {
        if (*text == '.' && !point) {
            point = true;
        } else if (*text >= '0' && *text <= '9' && n_digits < 15) {
            mantissa = mantissa * 10 + (uint64_t)(*text - '0');
            n_digits++;
            power *= point ? 10 : 1;
        } else {
            return false;
        }
    }
    *out = (double)mantissa / power;
    return n_digits > 0;
}

bool dfx_args_int(dfx_args *args, int which, int min, int max, int *out) {
    uint64_t value;
    if (!dfx_args_given(args, which))
        return true;
    if (!whole(args->value[which], (uint64_t)max, &value) || value < (uint64_t)min)
        return mistake(args, "--%s: wanted a whole number from %d to %d, found \"%s\"",
                       args->options[which].name, min, max, args->value[which]);
    *out = (int)value;
    return true;
}

bool dfx_args_real(dfx_args *args, int which, double min, double max, double *out) {
    double value;
    if (!dfx_args_given(args, which))
        return true;
    const char *text = args->value[which];
    if (!dfx_args_decimal(text, text + strlen(text), &value) || value < min || value > max)
        return mistake(args, "--%s: wanted a number such as 3.5, from %g to %g, found \"%s\"",
                       args->options[which].name, min, max, text);
    *out = value;
    return true;
}

bool dfx_args_seed(dfx_args *args, int which, bool *given, uint64_t *out) {
    *given = false;
    if (!dfx_args_given(args, which) || strcmp(args->value[which], "-1") == 0)
        return true;
    if (!whole(args->value[which], UINT64_MAX, out))
        return mistake(args,
                       "--%s: wanted a whole number from 0 to 18446744073709551615, or -1 to draw "
                       "one, found \"%s\"",
                       args->options[which].name, args->value[which]);
    *given = true;
    return true;
}

bool dfx_args_extent(dfx_args *args, int which, int min, int max, int *width, int *height) {
    char left[16];
    uint64_t w, h;
    if (!dfx_args_given(args, which))
        return true;
    const char *text = args->value[which];
    size_t len = strcspn(text, "xX");
    bool good = text[len] && len < sizeof(left);
    if (good) {
        memcpy(left, text, len);
        left[len] = 0;
        good = whole(left, (uint64_t)max, &w) && whole(text + len + 1, (uint64_t)max, &h) &&
               w >= (uint64_t)min && h >= (uint64_t)min;
    }
    if (!good)
        return mistake(args,
                       "--%s: wanted WIDTHxHEIGHT such as 1024x768, each side from %d to %d "
                       "pixels, found \"%s\"",
                       args->options[which].name, min, max, text);
    *width = (int)w;
    *height = (int)h;
    return true;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The number of bytes in a unit: none, "k", "kib", "kb" and so on in any case; 0 for anything else. */
static double unit_bytes(const char *unit) {
    static const char letters[] = "kmgt";
    const char *letter = *unit ? strchr(letters, lower(*unit)) : NULL;
    double bytes = 1;
    if (!letter)
        return *unit ? 0 : 1;
    bool binary = !unit[1] || (lower(unit[1]) == 'i' && lower(unit[2]) == 'b' && !unit[3]);
    if (!binary && !(lower(unit[1]) == 'b' && !unit[2]))
        return 0;
    for (const char *p = letters; p <= letter; p++)
        bytes *= binary ? 1024 : 1000;
    return bytes;
}

bool dfx_args_bytes(dfx_args *args, int which, uint64_t *out) {
    const double min = 1 << 20, max = 1024.0 * 1024 * 1024 * 1024 * 1024;
    double number;
    if (!dfx_args_given(args, which))
        return true;
    const char *text = args->value[which];
    const char *unit = text + strspn(text, "0123456789.");
    double bytes = dfx_args_decimal(text, unit, &number) ? number * unit_bytes(unit) : 0;
    if (!(bytes >= min && bytes <= max))
        return mistake(args,
                       "--%s: wanted a size from 1M to 1024T such as 12G, 12GiB, 4096M or "
                       "12GB, found \"%s\"",
                       args->options[which].name, text);
    *out = (uint64_t)bytes;
    return true;
}

/* "auto, cpu, cuda" into text, cut where it is full. */
enum { LIST_BYTES = 256 };
static const char *list_choices(const char *const *choices, char text[LIST_BYTES]) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; choices[i] && used < LIST_BYTES; i++)
        used += (size_t)snprintf(text + used, LIST_BYTES - used, "%s%s", i ? ", " : "", choices[i]);
    return text;
}

static bool find_choice(const char *const *choices, const char *text, size_t bytes, int *out) {
    for (int i = 0; choices[i]; i++)
        if (strlen(choices[i]) == bytes && memcmp(choices[i], text, bytes) == 0) {
            *out = i;
            return true;
        }
    return false;
}

bool dfx_args_choice(dfx_args *args, int which, const char *const *choices, int *out) {
    char list[LIST_BYTES];
    const char *text = args->value[which];
    if (!dfx_args_given(args, which) || find_choice(choices, text, strlen(text), out))
        return true;
    return mistake(args, "--%s: wanted one of %s, found \"%s\"", args->options[which].name,
                   list_choices(choices, list), text);
}

bool dfx_args_choice_numbered(dfx_args *args, int which, const char *const *choices, int numbered,
                              int max, int *out, int *number) {
    char list[LIST_BYTES];
    const char *text = args->value[which];
    uint64_t value = 0;
    int found;
    if (!dfx_args_given(args, which))
        return true;
    size_t bytes = strcspn(text, ":");
    bool good = find_choice(choices, text, bytes, &found);
    if (good && text[bytes])
        good = found == numbered && whole(text + bytes + 1, (uint64_t)max, &value);
    if (!good)
        return mistake(args, "--%s: wanted one of %s, or %s:N with N from 0 to %d, found \"%s\"",
                       args->options[which].name, list_choices(choices, list), choices[numbered],
                       max, text);
    *out = found;
    if (text[bytes])
        *number = (int)value;
    return true;
}
