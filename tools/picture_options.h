/* The options that say what a picture shall be: of generate, of a line of a batch file, of repl. Others of a command come behind
 * them in its table.
 *
 *     static const dfx_args_option options[] = {[DFX_N_PICTURE_OPTIONS] = {"json", 0, NULL}, DFX_PICTURE_OPTION_TABLE};
 *     ... dfx_args_parse() ...
 *     dfx_picture_options_init(&picture);
 *     if (dfx_picture_options_read(&args, console, &picture) == DFX_OK &&      what the words say
 *         dfx_picture_options_settle(&picture, console) == DFX_OK)             files, names, the seed
 *         ... dfx_maker_make(&maker, &picture) ... */
#ifndef DFX_TOOLS_PICTURE_OPTIONS_H
#define DFX_TOOLS_PICTURE_OPTIONS_H

#include "tools/init_files.h"
#include "tools/lora_list.h"
#include "tools/output.h"

#define DFX_PICTURE_OPTIONS(X)                                    \
    X(OUTPUT, "output", 'o', "a file name", false)                \
    X(PROMPT, "prompt", 'p', "the text", false)                   \
    X(INIT, "init", 0, "a picture, PNG or JPEG", false)           \
    X(STRENGTH, "strength", 0, "a number", false)                 \
    X(MASK, "mask", 0, "a picture, PNG or JPEG", false)           \
    X(SIZE, "size", 0, "WIDTHxHEIGHT", false)                     \
    X(WIDTH, "width", 0, "a number of pixels", false)             \
    X(HEIGHT, "height", 0, "a number of pixels", false)           \
    X(STEPS, "steps", 0, "a number", false)                       \
    X(GUIDANCE, "guidance", 0, "a number", false)                 \
    X(TEXT_LENGTH, "text-length", 0, "a number of tokens", false) \
    X(REUSE, "reuse", 0, "a number such as 0.1", false)           \
    X(REUSE_CHECK, "reuse-check", 0, NULL, false)                 \
    X(SEED, "seed", 0, "a number", false)                         \
    X(COUNT, "count", 'n', "a number", false)                     \
    X(LORA, "lora", 0, "a file, with or without :STRENGTH", true) \
    X(NO_METADATA, "no-metadata", 0, NULL, false)

#define DFX_PICTURE_OPTION_ENUM(name, word, letter, value, listed) DFX_PICTURE_##name,
enum { DFX_PICTURE_OPTIONS(DFX_PICTURE_OPTION_ENUM) DFX_N_PICTURE_OPTIONS };
#undef DFX_PICTURE_OPTION_ENUM

/* The first entries of a command's table, each with a comma behind it. */
#define DFX_PICTURE_OPTION_ENTRY(name, word, letter, value, listed) \
    [DFX_PICTURE_##name] = {word, letter, value, listed},
#define DFX_PICTURE_OPTION_TABLE DFX_PICTURE_OPTIONS(DFX_PICTURE_OPTION_ENTRY)

enum { DFX_PICTURES_MAX = 1000 }; /* of one request */

/* 0, or a negative guidance or strength, leaves the choice to the model. */
typedef struct dfx_picture_options {
    const char *prompt;                              /* borrowed; NULL: none yet */
    const char *output_path, *init_path, *mask_path; /* borrowed; NULL: not given */
    int width, height, steps, text_length, n_pictures;
    double guidance, strength, reuse; /* reuse 0: none */
    bool reuse_check, has_seed, no_metadata;
    bool seed_in_name; /* of the file, always */
    uint64_t seed;
    const dfx_lora_list *loras; /* own_loras, or borrowed; NULL: none */
    dfx_lora_list *own_loras;   /* owned */
    dfx_init_files init;        /* owned; settle reads them */
    dfx_output output;          /* settle makes it */
} dfx_picture_options;

void dfx_picture_options_init(dfx_picture_options *picture);

/* As `from`, which stays longer and owns what both have. */
void dfx_picture_options_inherit(dfx_picture_options *picture, const dfx_picture_options *from);

void dfx_picture_options_fini(dfx_picture_options *picture);

/* Warnings of options of the whole table that are given twice; then what args say of the picture, over what is there; the prompt
 * from --prompt alone. Strings are borrowed from args. Errors: DFX_E_USAGE, said. */
dfx_status dfx_picture_options_read(dfx_args *args, dfx_console *console,
                                    dfx_picture_options *picture);

/* What the options say together; names of output, files of input, a seed if there is none. Opens no model.
 * Errors: DFX_E_USAGE, DFX_E_IO, DFX_E_FORMAT, said. */
dfx_status dfx_picture_options_settle(dfx_picture_options *picture, dfx_console *console);

#endif
