/* The value of --lora: a file, and how strongly it is applied.
 *
 *     style.safetensors             strength 1
 *     style.safetensors:0.8         0.8
 *     loras:new/a.safetensors:-0.5  the last ':' counts, and only when a number follows it
 *
 * A number is decimal and a whole word, "0.8", "-1" or "+2": no exponent, no "nan", no locale. What follows the last ':' and is
 * neither a number nor the rest of a path (it holds a '/', or ends in ".safetensors") is a mistake, told rather than taken for a
 * file's name. A file whose own name ends in ":0.5" is written with a strength behind it. */
#ifndef DFX_TOOLS_LORA_OPTION_H
#define DFX_TOOLS_LORA_OPTION_H

#include <stdbool.h>
#include <stddef.h>

enum { DFX_LORA_PATH_BYTES = 4096, DFX_LORA_OPTION_ERROR_BYTES = 512 };

typedef struct dfx_lora_option {
    char path[DFX_LORA_PATH_BYTES];
    float strength; /* finite; 0 and below are allowed */
} dfx_lora_option;

/* False, and one sentence in error, when it is no such value. */
bool dfx_lora_option_parse(const char *text, dfx_lora_option *out,
                           char error[DFX_LORA_OPTION_ERROR_BYTES]);

#endif
